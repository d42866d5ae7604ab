"""Share sessions: epochs, connections, and a limit."""

from __future__ import annotations

from barnabas.coordinators.share.sessions import EPOCH_FINAL, EPOCH_MAX, ShareSessions
from barnabas.wire.generated.errors import ErrorCode
from tests.support.refusals import code_of

T = b"t" * 16
KEY = ("group", "member")


def test_the_epoch_moves_with_each_request() -> None:
    sessions = ShareSessions(10)
    assert code_of(sessions.resume, KEY, 1) == ErrorCode.SHARE_SESSION_NOT_FOUND
    sessions.open(KEY, [(T, 0)], 1)
    assert sessions.resume(KEY, 1).epoch == 2
    assert code_of(sessions.resume, KEY, 1) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.resume(KEY, EPOCH_FINAL).epoch == 2
    sessions.resume(KEY, 2).epoch = EPOCH_MAX
    assert sessions.resume(KEY, EPOCH_MAX).epoch == 1


def test_a_member_has_one_session_on_its_newest_connection() -> None:
    sessions = ShareSessions(1)
    sessions.open(KEY, [(T, 0)], 1)
    assert code_of(sessions.open, ("group", "other"), [], 2) == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.open(KEY, [(T, 1)], 2)
    assert sessions.of_connection(1) == []
    assert [session.key for session in sessions.of_connection(2)] == [KEY]
    assert (len(sessions), sessions.has_any("group"), sessions.has_any("other")) == (1, True, False)
    assert sessions.close(KEY) is not None
    assert sessions.close(KEY) is None
    assert not sessions.has_any("group")


def test_partitions_are_added_forgotten_and_taken_in_turns() -> None:
    session = ShareSessions(1).open(KEY, [(T, 0), (T, 1), (T, 2)], 1)
    assert session.rotated(1) == [(T, 1), (T, 2), (T, 0)]
    session.update([(T, 3), (T, 0)], [(T, 1), (T, 3), (T, 9)])
    assert session.rotated(4) == [(T, 0), (T, 2)]
    session.update([], [(T, 0), (T, 2)])
    assert session.rotated(5) == []
