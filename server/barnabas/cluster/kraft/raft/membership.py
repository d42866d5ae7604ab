"""Changes of the voters, one at a time (KIP-853): a voter is added or removed, or its endpoints change. Pure.

The rule: a change waits until the leader has committed a record of its epoch, and the last change of the voters. A new
voter must have caught up with the log, and support the finalized kraft.version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.cluster.kraft.decisions import Decision
from barnabas.cluster.kraft.raft.leading import Leading, VoterChange
from barnabas.cluster.kraft.raft.values import ReplicaKey, is_same
from barnabas.cluster.kraft.transitions import KRAFT_VERSION
from barnabas.cluster.kraft.values import LevelRange, Voter
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.kraft.raft.voter import Replica


class RefusedChangeError(Exception):
    """A change of the voters is refused."""

    def __init__(self, error: int, message: str | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def require_ready(replica: Replica, leading: Leading) -> None:
    """Raise RefusedChangeError while a change is in progress, or before the leader has committed a record."""
    if leading.change is not None:
        raise RefusedChangeError(ErrorCode.REQUEST_TIMED_OUT, "another change of the voters has not ended")
    if replica.log.high_watermark <= leading.start_offset:
        raise RefusedChangeError(
            ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed a record of its epoch yet"
        )


def require_changeable(replica: Replica, leading: Leading) -> None:
    """Raise RefusedChangeError while the voters cannot be changed."""
    require_ready(replica, leading)
    level = replica.log.leadership.kraft_version
    if not level:
        raise RefusedChangeError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the voters cannot be changed: {KRAFT_VERSION} is {level}, and 1 is needed",
        )
    if replica.log.voters_offset() >= replica.log.high_watermark:
        raise RefusedChangeError(
            ErrorCode.REQUEST_TIMED_OUT, "the last change of the voters is not committed yet"
        )


def begin_adding(
    replica: Replica,
    leading: Leading,
    key: ReplicaKey,
    endpoints: tuple[tuple[str, str, int], ...],
    *,
    waits_for_commit: bool,
    now_ms: int,
) -> VoterChange:
    """Begin to add a voter, which is first asked for its supported levels. Raises RefusedChangeError."""
    require_changeable(replica, leading)
    if any(voter.id == key.id for voter in replica.voters):
        raise RefusedChangeError(ErrorCode.DUPLICATE_VOTER, f"node {key.id} is a voter already")
    leading.change = VoterChange(
        key,
        now_ms + replica.settings.request_timeout_ms,
        endpoints=endpoints,
        waits_for_commit=waits_for_commit,
    )
    return leading.change


def take_versions(replica: Replica, response: Any, now_ms: int) -> tuple[Decision, ...]:
    """Process the supported levels of a new voter; if it may become one, append the new voters."""
    leading = replica.leading
    if leading is None or leading.change is None or leading.change.offset is not None:
        return ()
    change = leading.change
    levels = next(
        (
            LevelRange(feature.min_version, feature.max_version)
            for feature in response.supported_features
            if feature.name == KRAFT_VERSION
        ),
        None,
    )
    level = replica.log.leadership.kraft_version
    if response.error_code != ErrorCode.NONE:
        replica.finish_change(
            ErrorCode.REQUEST_TIMED_OUT,
            f"node {change.key.id} answers ApiVersions with error {response.error_code}",
        )
    elif levels is None or not levels.lowest <= level <= levels.highest:
        replica.finish_change(
            ErrorCode.INVALID_REQUEST, f"node {change.key.id} does not support {KRAFT_VERSION} {level}"
        )
    elif not leading.is_caught_up(change.key, now_ms):
        replica.finish_change(ErrorCode.REQUEST_TIMED_OUT, f"node {change.key.id} has not all of the log yet")
    else:
        voter = Voter(*change.key, change.endpoints, levels)
        append = replica.append_voters((*replica.voters, voter), now_ms)
        change.offset = append.end_offset - 1
        if not change.waits_for_commit:
            replica.finish_change(ErrorCode.NONE)
        return (append,)
    return ()


def begin_removing(
    replica: Replica, leading: Leading, key: ReplicaKey, now_ms: int
) -> tuple[VoterChange, tuple[Decision, ...]]:
    """Remove a voter, which loses its vote immediately. Raises RefusedChangeError."""
    require_changeable(replica, leading)
    others = tuple(voter for voter in replica.voters if (voter.id, voter.directory_id) != key)
    if len(others) == len(replica.voters) or not others:
        raise RefusedChangeError(
            ErrorCode.VOTER_NOT_FOUND, f"node {key.id} cannot be removed from the voters"
        )
    append = replica.append_voters(others, now_ms)
    leading.change = VoterChange(
        key, now_ms + replica.settings.request_timeout_ms, offset=append.end_offset - 1
    )
    return leading.change, (append,)


def update(replica: Replica, leading: Leading, voter: Voter, now_ms: int) -> tuple[Decision, ...]:
    """Record the endpoints and levels of a voter, from kraft.version 1 on in the log. Raises RefusedChangeError."""
    has_voters = replica.log.leadership.kraft_version > 0
    if has_voters:
        require_changeable(replica, leading)
    else:
        require_ready(replica, leading)
    if (
        not voter.kraft_versions.lowest
        <= replica.log.leadership.kraft_version
        <= voter.kraft_versions.highest
    ):
        raise RefusedChangeError(ErrorCode.INVALID_REQUEST)
    key = ReplicaKey(voter.id, voter.directory_id)
    if not any(is_same(entry, key) for entry in replica.voters):
        raise RefusedChangeError(ErrorCode.VOTER_NOT_FOUND)
    if not has_voters:
        leading.told_voters[voter.id] = voter
        return ()
    after = tuple(voter if is_same(entry, key) else entry for entry in replica.voters)
    return (replica.append_voters(after, now_ms),)


def told_voters(replica: Replica, leading: Leading) -> tuple[Voter, ...]:
    """Return the static voters with the directories, endpoints and levels that they have reported to this leader."""
    own = Voter(*replica.key, tuple(replica.settings.endpoints), replica.settings.kraft_versions)
    told = {**leading.told_voters, own.id: own}
    return tuple(told.get(voter.id, voter) for voter in replica.voters)


def reason_against_level(replica: Replica, level: int) -> str:
    """Return why kraft.version cannot be raised to a level, empty if it can: all voters have reported support."""
    if replica.leading is None:
        return "this node does not lead the quorum"
    for voter in told_voters(replica, replica.leading):
        if not voter.kraft_versions.lowest <= level <= voter.kraft_versions.highest:
            return f"voter {voter.id} does not support it, or has not told this leader that it does"
    return ""
