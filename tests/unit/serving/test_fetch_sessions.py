"""Fetch sessions: what is remembered, what is refused, which are evicted."""

import itertools

import pytest

from barnabas.errors import RequestError
from barnabas.serving.fetch_sessions import EVICTION_MS_MIN, FetchSessions, Session, SessionPartition
from barnabas.wire.generated.errors import ErrorCode


def partitions(*indexes: int, topic: str = "t", offset: int = 0) -> list[SessionPartition]:
    return [SessionPartition(topic, index, offset, 1000) for index in indexes]


def make(slots: int = 2) -> FetchSessions:
    ids = itertools.count(1)
    return FetchSessions(slots, lambda: next(ids))


def code_of(sessions: FetchSessions, session_id: int, epoch: int, *, by_id: bool = False) -> int:
    with pytest.raises(RequestError) as caught:
        sessions.resume(session_id, epoch, uses_topic_ids=by_id, now_ms=0)
    return caught.value.code


def test_a_session_remembers_its_partitions_and_takes_up_changes() -> None:
    sessions = make()
    session = sessions.create(partitions(0, 1), uses_topic_ids=False, now_ms=0)
    assert session is not None
    resumed = sessions.resume(session.id, 1, uses_topic_ids=False, now_ms=1)
    resumed.update([*partitions(1, offset=7), *partitions(2)], [("t", 0)])
    assert [(p.index, p.fetch_offset) for p in resumed.partitions.values()] == [(1, 7), (2, 0)]


def test_an_epoch_moves_by_one_and_wraps_to_one() -> None:
    sessions = make()
    session = sessions.create(partitions(0), uses_topic_ids=False, now_ms=0)
    assert session is not None
    assert code_of(sessions, session.id, 2) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    sessions.resume(session.id, 1, uses_topic_ids=False, now_ms=0)
    assert code_of(sessions, session.id, 1) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.epoch = 2**31 - 1
    sessions.resume(session.id, 2**31 - 1, uses_topic_ids=False, now_ms=0)
    assert session.epoch == 1


def test_partitions_that_returned_records_go_to_the_end() -> None:
    session = make().create(partitions(0, 1, 2), uses_topic_ids=False, now_ms=0)
    assert session is not None
    session.rotate([("t", 0), ("t", 9)])
    assert [p.index for p in session.partitions.values()] == [1, 2, 0]


def test_no_slots_mean_no_session_but_no_partitions_do() -> None:
    assert make(slots=0).create(partitions(0), uses_topic_ids=False, now_ms=0) is None
    sessions = make()
    empty = sessions.create([], uses_topic_ids=False, now_ms=0)
    assert empty is not None
    assert sessions.resume(empty.id, 1, uses_topic_ids=False, now_ms=0) is empty


class Watched:
    """A watch that says whether it has been ended."""

    def __init__(self) -> None:
        self.is_over = False

    def end(self) -> None:
        self.is_over = True


def watched_session(count: int = 3) -> tuple[FetchSessions, Session, list[Watched]]:
    """A session with partitions that are all watched, and has looked at all of them in ms 1,000."""
    sessions = make()
    session = sessions.create(partitions(*range(count)), uses_topic_ids=False, now_ms=0)
    assert session is not None
    assert len(session.due(1000, all_after_ms=500)) == count
    watches = [Watched() for _ in range(count)]
    for watch, partition in zip(watches, session.partitions.values(), strict=True):
        session.watched(partition, watch)
    return sessions, session, watches


def indexes(due: list[SessionPartition]) -> list[int]:
    return [partition.index for partition in due]


def test_unwatched_partitions_are_looked_at_and_all_at_times() -> None:
    _, session, watches = watched_session()
    assert session.due(1001, all_after_ms=500) == []
    session.note_change(session.partitions["t", 2])
    assert watches[2].is_over
    assert indexes(session.due(1499, all_after_ms=500)) == [2]
    assert indexes(session.due(1500, all_after_ms=500)) == [0, 1, 2]
    assert indexes(session.due(1501, all_after_ms=500)) == [2]
    assert indexes(session.due(900, all_after_ms=500)) == [0, 1, 2], "the clock was put back"
    assert indexes(session.due(901, all_after_ms=500, broker_epoch=7)) == [0, 1, 2], "it registered again"


def test_named_partitions_are_looked_at_and_forgotten_never() -> None:
    _, session, watches = watched_session()
    session.update([*partitions(0, offset=7), *partitions(5)], [("t", 1)])
    assert [watch.is_over for watch in watches] == [True, True, False]
    assert indexes(session.due(1001, all_after_ms=500)) == [0, 5]
    session.rotate([("t", 0), ("t", 2)])
    assert indexes(session.due(1001, all_after_ms=500)) == [5, 0]
    assert indexes(session.due(1600, all_after_ms=500)) == [5, 0, 2]


def test_a_session_that_ends_watches_nothing() -> None:
    sessions, session, watches = watched_session()
    sessions.close(session.id)
    assert all(watch.is_over for watch in watches)
    assert not session.is_open


def test_a_session_that_is_evicted_watches_nothing() -> None:
    sessions, session, watches = watched_session()
    later = 3 * EVICTION_MS_MIN
    for n in range(2):
        assert sessions.create(partitions(n), uses_topic_ids=False, now_ms=later + n) is not None
    assert not session.is_open
    assert all(watch.is_over for watch in watches)


# --- one thing at a time ------------------------------------------------------------------------------------------

FIELDS = (
    "topic", "index", "fetch_offset", "max_bytes", "current_leader_epoch", "last_fetched_epoch",
    "log_start_offset",
)  # fmt: skip


def said(partition: SessionPartition) -> tuple[object, ...]:
    return tuple(getattr(partition, name) for name in FIELDS)


def test_fetcher_fields_are_kept_for_each_partition() -> None:
    assert said(SessionPartition("t", 11, 12, 13, 14, 15, 16)) == ("t", 11, 12, 13, 14, 15, 16)
    session = make().create(partitions(11), uses_topic_ids=False, now_ms=0)
    assert session is not None
    partition = session.partitions["t", 11]
    session.update([SessionPartition("t", 11, 22, 23, 24, 25, 26)], [])
    assert session.partitions["t", 11] is partition
    assert said(partition) == ("t", 11, 22, 23, 24, 25, 26)


@pytest.mark.parametrize(
    ("before", "after", "is_news"),
    [
        ((5, 4, 1, False), (5, 4, 1, False), False),
        ((5, 4, 1, False), (6, 4, 1, False), True),
        ((5, 4, 1, False), (5, 5, 1, False), True),
        ((5, 4, 1, False), (5, 4, 2, False), True),
        ((5, 4, 1, False), (5, 4, 1, True), True),
        ((5, 4, 1, True), (5, 4, 1, True), True),
        ((5, 4, 1, True), (5, 4, 1, False), True),
    ],
)
def test_each_thing_that_is_new_and_each_error_is_told(
    before: tuple[int, int, int, bool], after: tuple[int, int, int, bool], is_news: bool
) -> None:
    [partition] = partitions(0)
    assert partition.tell(*before[:3], is_error=before[3])
    assert partition.tell(*after[:3], is_error=after[3]) is is_news
    assert partition.tell(*after[:3], is_error=False) is after[3]


def test_ids_that_are_taken_or_no_ids_are_not_given() -> None:
    ids = iter([7, 7, 0, -3, 9])
    sessions = FetchSessions(5, lambda: next(ids))
    created = [sessions.create([], uses_topic_ids=False, now_ms=0) for _ in range(2)]
    assert [session.id for session in created if session is not None] == [7, 9]


@pytest.mark.parametrize(
    ("epoch", "by_id", "code"),
    [
        (1, False, 0),
        (0, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        (2, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_each_wrong_session_request_has_its_error(epoch: int, by_id: bool, code: int) -> None:
    sessions = make()
    session = sessions.create(partitions(0), uses_topic_ids=False, now_ms=3)
    assert session is not None
    if code:
        assert code_of(sessions, session.id, epoch, by_id=by_id) == code
        assert (session.epoch, session.used_ms) == (1, 3)
    else:
        assert sessions.resume(session.id, epoch, uses_topic_ids=by_id, now_ms=9) is session
        assert (session.epoch, session.used_ms, session.created_ms) == (2, 9, 3)


@pytest.mark.parametrize(
    ("used_ms", "created_ms", "sizes", "size", "evicted"),
    [
        ((1, -1), (0, 0), (2, 2), 1, 1), ((0, 0), (0, 0), (2, 2), 2, None), ((0, 0), (-1, 0), (2, 2), 3, 0),
        ((0, 0), (0, -1), (2, 2), 3, None), ((0, 0), (-1, -1), (3, 2), 3, 1),
        ((0, 0), (-1, 0), (3, 2), 4, None), ((5, 4), (-1, -1), (2, 2), 3, 1),
    ],
)  # fmt: skip
def test_who_is_evicted_is_unused_for_long_or_smaller_and_old(
    used_ms: tuple[int, int],
    created_ms: tuple[int, int],
    sizes: tuple[int, int],
    size: int,
    evicted: int | None,
) -> None:
    """Times count from when a session may just not be evicted any more; of equals the least recently used goes."""
    sessions, now_ms = make(), 10 * EVICTION_MS_MIN
    created: list[Session] = []
    for number in range(2):
        session = sessions.create(partitions(*range(sizes[number])), uses_topic_ids=False, now_ms=0)
        assert session is not None
        session.created_ms = now_ms - EVICTION_MS_MIN + created_ms[number]
        session.used_ms = now_ms - EVICTION_MS_MIN + used_ms[number]
        created.append(session)
    new = sessions.create(partitions(*range(size)), uses_topic_ids=False, now_ms=now_ms)
    assert (new is not None) is (evicted is not None)
    are_open = [session.is_open for session in created]
    assert are_open == [number != evicted for number in range(2)]
