"""Check of offset commits by members with epochs. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.coordinators.groups.group import LAST_WITHOUT_MEMBER_EPOCHS, Committer
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode


def check_committer(member_epoch: int, committer: Committer, sinces: Iterable[int | None]) -> None:
    """Check a committer's epoch; `sinces` has for each partition the epoch in which it was assigned to the member, or None.

    An older epoch is accepted for partitions that the member has had since that epoch (KIP-1251). Raises
    UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH; ILLEGAL_GENERATION from a transaction in an old version.
    """
    epoch, is_old = committer.generation, committer.api_version <= LAST_WITHOUT_MEMBER_EPOCHS
    if is_old and not committer.transactional:
        raise RequestError(ErrorCode.UNSUPPORTED_VERSION, "this version cannot carry a member epoch")
    if epoch == member_epoch:
        return
    if epoch > member_epoch or any(since is None or since > epoch for since in sinces):
        code = ErrorCode.ILLEGAL_GENERATION if is_old else ErrorCode.STALE_MEMBER_EPOCH
        raise RequestError(code, f"the member is in epoch {member_epoch}")
