"""Whether a member of a group with member epochs may commit offsets. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

MEMBER_EPOCH_COMMITS_SINCE = 9
"""The version of OffsetCommit from which on it carries member epochs."""


def check_committer(
    member_epoch: int,
    epoch: int,
    sinces: Iterable[int | None],
    api_version: int,
    *,
    transactional: bool = False,
) -> None:
    """Whether an epoch is good for what is committed: that since when the member has each place, None if it has not.

    One that is behind is still good for partitions that the member has had since then (KIP-1251). Raises
    UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH; ILLEGAL_GENERATION in a transaction.
    """
    if not transactional and api_version < MEMBER_EPOCH_COMMITS_SINCE:
        raise RequestError(ErrorCode.UNSUPPORTED_VERSION, "this version cannot carry a member epoch")
    if epoch == member_epoch:
        return
    if epoch > member_epoch or any(since is None or since > epoch for since in sinces):
        code = ErrorCode.ILLEGAL_GENERATION if transactional else ErrorCode.STALE_MEMBER_EPOCH
        raise RequestError(code, f"the member is in epoch {member_epoch}")
