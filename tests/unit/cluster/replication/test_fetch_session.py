"""Fetch sessions as a fetcher keeps them: against a leader that remembers what requests have said."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.cluster.replication.fetch_session import FetcherSession, SessionRequest, Wanted
from barnabas.cluster.replication.fetchers import fetcher_of
from barnabas.errors import RequestError
from barnabas.serving.fetch_sessions import FetchSessions, SessionPartition
from barnabas.wire.generated.errors import ErrorCode


class Leader:
    """The leader's side of sessions, as the handler of Fetch keeps it."""

    def __init__(self, slots: int = 10) -> None:
        ids = iter(range(1, 1_000_000))
        self.sessions = FetchSessions(slots, lambda: next(ids))
        self.seen: dict = {}

    def answer(self, request, *, uses_ids: bool) -> tuple[int, int, list]:
        """Return error code, session id and the partitions that the answer names."""
        named = [
            SessionPartition(*key, want.fetch_offset, want.max_bytes) for key, want in request.named.items()
        ]
        if request.is_full:
            self.sessions.close(request.session_id)
            session = self.sessions.create(named, uses_topic_ids=uses_ids, now_ms=0)
            self.seen = {(place.topic, place.index): place.fetch_offset for place in named}
            return 0, session.id if session else 0, list(self.seen)
        try:
            session = self.sessions.resume(
                request.session_id, request.epoch, uses_topic_ids=uses_ids, now_ms=0
            )
        except RequestError as error:
            return error.code, 0, []
        session.update(named, request.forgotten)
        self.seen = {key: part.fetch_offset for key, part in session.partitions.items()}
        return 0, session.id, list(self.seen)[:1]


def want(offset: int) -> Wanted:
    return Wanted(offset, 0, 1000, 1)


@pytest.mark.parametrize("seed", range(20))
def test_the_leader_always_serves_what_is_wanted(seed: int) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    session, leader = FetcherSession(), Leader(random.choice((0, 1, 10)))
    wants: dict = {}
    changed: list | None = None
    full = 0
    for _ in range(300):
        if seed % 2:  # what has changed is said
            changed = [("t", random.randrange(5)), ("u", 0)] if random.random() < 0.5 else []
        for _ in range(random.randrange(3)):
            key = "t", random.randrange(5)
            wants[key] = want(random.randrange(10))
            if changed is not None:
                changed.append(key)
        if wants and random.random() < 0.2:
            key = random.choice(list(wants))
            del wants[key]
            if changed is not None:
                changed.append(key)
        request = session.next_request(wants, uses_ids=False, changed=changed)
        full += request.is_full
        if random.random() < 0.1:
            leader.answer(request, uses_ids=False)
            session.lost()  # the answer, or the request
            continue
        if random.random() < 0.05:
            leader.sessions = FetchSessions(10, lambda: random.randrange(1, 1000))  # it has started again
        code, session_id, keys = leader.answer(request, uses_ids=False)
        failure = session.answered(request, error_code=code, session_id=session_id, keys=keys)
        assert bool(failure) == bool(code)
        if not failure:
            assert leader.seen == {key: place.fetch_offset for key, place in wants.items()}
    assert full > 5


def test_only_changes_are_named_and_ids_begin_another_session() -> None:
    session = FetcherSession()
    request = session.next_request({("t", 0): want(5), ("t", 1): want(6)}, uses_ids=False)
    assert request.is_full
    session.answered(request, error_code=0, session_id=7, keys=request.named)
    request = session.next_request({("t", 0): want(5), ("u", 0): want(0)}, uses_ids=False)
    assert (request.session_id, request.epoch, list(request.named)) == (7, 1, [("u", 0)])
    assert request.forgotten == [("t", 1)]
    session.answered(request, error_code=0, session_id=7, keys=[])
    request = session.next_request({(b"id", 0): want(5)}, uses_ids=True)
    assert (request.session_id, request.epoch, request.forgotten) == (7, 0, [])


def test_an_answer_about_something_else_begins_another_session() -> None:
    session = FetcherSession()
    request = session.next_request({("t", 0): want(5)}, uses_ids=False)
    assert session.answered(request, error_code=0, session_id=7, keys=[("t", 0), ("t", 1)])
    request = session.next_request({("t", 0): want(5)}, uses_ids=False)
    session.answered(request, error_code=0, session_id=7, keys=request.named)
    request = session.next_request({("t", 0): want(5)}, uses_ids=False)
    assert session.answered(request, error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, session_id=0, keys=[])
    request = session.next_request({("t", 0): want(5)}, uses_ids=False)
    assert (request.session_id, request.is_full, len(request.named)) == (0, True, 1)


def requested(session: FetcherSession, *indexes: int) -> SessionRequest:
    return session.next_request({("t", index): want(index) for index in indexes}, uses_ids=False)


def test_session_ended_by_the_leader_is_not_closed_again() -> None:
    session = FetcherSession()
    request = requested(session, 0, 1)
    session.answered(request, error_code=0, session_id=7, keys=request.named)
    request = requested(session, 0)
    assert request.forgotten == [("t", 1)]
    assert session.answered(request, error_code=0, session_id=0, keys=[("t", 0)]) == ""
    request = requested(session, 0)
    assert (request.session_id, request.epoch, list(request.named)) == (0, 0, [("t", 0)])


def test_partitions_are_spread_as_kafka_does() -> None:
    # Utils.abs(31 * topic.hashCode() + partition) % fetchers, by hand: "t".hashCode() is 116.
    assert [fetcher_of("t", index, 4) for index in range(5)] == [0, 1, 2, 3, 0]
    assert fetcher_of("orders", 3, 1) == 0
    # "orders".hashCode() = -1008770331; 31 * that, as a signed 32-bit number, plus 2.
    hashed = (31 * -1008770331 + 2 + 2**31) % 2**32 - 2**31
    assert fetcher_of("orders", 2, 7) == abs(hashed) % 7
    # The smallest 32-bit number has no positive counterpart: Utils.abs makes 0 of it.
    assert [fetcher_of("t", 2**31 - 31 * 116 + more, 3) for more in (-1, 0, 1)] == [1, 0, 1]
