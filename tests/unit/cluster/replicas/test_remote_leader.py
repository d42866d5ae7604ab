"""Requests to a leader field by field, in old and new versions, and what is read from its answers."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from barnabas.cluster.replicas.following import FetchPosition
from barnabas.cluster.replicas.remote_leader import (
    NO_TOPIC_ID,
    Ask,
    EpochAnswer,
    FetchAnswer,
    OffsetAnswer,
    RemoteLeader,
    Selection,
)
from barnabas.cluster.replication.fetch_session import FetcherSession, Wanted
from barnabas.cluster.replication.follower import EpochEnd
from barnabas.config import broker as settings
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

RUNS_SOURCES = True
"""A budget that counts stands in here, which compiled code does not take."""

T_ID, U_ID = b"t" * 16, b"u" * 16
CONFIG = {
    settings.REPLICA_FETCH_MAX_BYTES: 111, settings.REPLICA_FETCH_MIN_BYTES: 222,
    settings.REPLICA_FETCH_RESPONSE_MAX_BYTES: 333, settings.REPLICA_SOCKET_TIMEOUT_MS: 4_000,
}  # fmt: skip
FETCHES, LISTS, EPOCHS = FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest


class Budget(LoopBudget):
    """Counts how often others might run."""

    count = 0

    async def checkpoint(self) -> None:
        self.count += 1


class Peers:
    """A leader that answers as the test says, in versions that it says; notes what it is asked."""

    def __init__(self, version: int = 0) -> None:
        self.version = version
        self.asked: list[tuple[Any, ...]] = []
        self.answers: list[Any] = []
        self.closed: list[tuple[int, str]] = []

    async def version_of(self, leader_id: int, key: int, *, timeout_s: float, channel: str) -> int:
        assert (leader_id, timeout_s, channel) == (7, 4.0, "c")
        assert key == 2
        return self.version

    async def ask(
        self, leader_id: int, request: Any, *, timeout_s: float, channel: str, version: int | None = None
    ) -> Any:
        assert (leader_id, channel) == (7, "c")
        self.asked.append((request, version, timeout_s))
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self, leader_id: int, channel: str) -> None:
        self.closed.append((leader_id, channel))


def leader(peers: Peers, budget: LoopBudget | None = None) -> RemoteLeader:
    config: Any = type("Config", (), {"get": staticmethod(CONFIG.__getitem__)})
    return RemoteLeader(5, 7, "c", peers, config, lambda: 55, budget or LoopBudget())  # type: ignore[arg-type]


def ask(topic: str, index: int, topic_id: bytes, *position: int) -> Ask:
    return Ask(topic, index, topic_id, FetchPosition(*position))


ASKS = {
    ("t", 0): ask("t", 0, T_ID, 10, 3, 4, 1),
    ("u", 2): ask("u", 2, U_ID, 20, -1, 6, 2),
    ("t", 1): ask("t", 1, T_ID, 30, 5, 8, 3),
}


# --- Fetch --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 6, 7, 11, 12, 13, 14, 15, 17])
async def test_a_fetch_asks_for_all_that_is_wanted(version: int) -> None:
    peers = Peers()
    peers.answers = [FetchResponse(error_code=9)]
    await leader(peers).fetch(ASKS, FetcherSession(), version=version, max_wait_ms=500)
    by_id, tells_epoch = version >= 13, version >= 12

    def partition(index: int, offset: int, last: int, epoch: int, start: int) -> Any:
        return FETCHES.FetchPartition(
            partition=index, current_leader_epoch=epoch, fetch_offset=offset,
            last_fetched_epoch=last if tells_epoch else -1, log_start_offset=start, partition_max_bytes=111,
        )  # fmt: skip

    def topic(name: str, topic_id: bytes, *parts: Any) -> Any:
        named = {"topic_id": topic_id} if by_id else {"topic": name}
        return FETCHES.FetchTopic(partitions=list(parts), **named)

    expected = FetchRequest(
        max_wait_ms=500, min_bytes=222, max_bytes=333, session_id=0, session_epoch=0,
        topics=[
            topic("t", T_ID, partition(0, 10, 3, 4, 1), partition(1, 30, 5, 8, 3)),
            topic("u", U_ID, partition(2, 20, -1, 6, 2)),
        ],
    )  # fmt: skip
    if version < 15:
        expected.replica_id = 5
    else:
        expected.replica_state = FETCHES.ReplicaState(5, 55)
    assert peers.asked == [(expected, version, 4.5)]


def response(*partitions: tuple[str, bytes, int], session: int = 9, **fields: Any) -> FetchResponse:
    topics = [
        FetchResponse.FetchableTopicResponse(
            topic=name, topic_id=topic_id, partitions=[FetchResponse.PartitionData(partition_index=index)]
        )
        for name, topic_id, index in partitions
    ]
    return FetchResponse(session_id=session, responses=topics, **fields)


@pytest.mark.parametrize("version", [7, 13])
async def test_a_session_names_what_has_changed_and_what_is_gone(version: int) -> None:
    peers, session = Peers(), FetcherSession()
    it = leader(peers)
    every = [("t", T_ID, 0), ("u", U_ID, 2), ("t", T_ID, 1)]
    peers.answers = [response(*every), response(("t", T_ID, 1)), response()]
    first = await it.fetch(ASKS, session, version=version, max_wait_ms=0)
    assert first is not None
    assert [key for key, _ in first.partitions] == list(ASKS)
    asks = dict(ASKS)
    del asks["u", 2]
    asks["t", 1] = ask("t", 1, T_ID, 31, 5, 8, 3)
    second = await it.fetch(asks, session, version=version, max_wait_ms=0, changed=[("u", 2), ("t", 1)])
    assert second is not None
    assert [key for key, _ in second.partitions] == [("t", 1)]
    request = peers.asked[-1][0]
    assert (request.session_id, request.session_epoch) == (9, 1)
    [named] = request.topics
    [forgotten] = request.forgotten_topics_data
    assert [(one.partition, one.fetch_offset) for one in named.partitions] == [(1, 31)]
    assert forgotten.partitions == [2]
    names = (named.topic_id, forgotten.topic_id) if version >= 13 else (named.topic, forgotten.topic)
    assert names == ((T_ID, U_ID) if version >= 13 else ("t", "u"))
    await it.fetch(asks, session, version=version, max_wait_ms=0, changed=[])
    request = peers.asked[-1][0]
    assert (request.topics, request.forgotten_topics_data, request.session_epoch) == ([], [], 2)


async def test_before_sessions_each_request_names_everything() -> None:
    peers, session = Peers(), FetcherSession()
    it = leader(peers)
    every = [("t", T_ID, 0), ("u", U_ID, 2), ("t", T_ID, 1)]
    for number in range(3):
        peers.answers = [response(*every, session=0)]
        assert await it.fetch(ASKS, session, version=6, max_wait_ms=0, changed=[] if number else None)
        assert sum(len(topic.partitions) for topic in peers.asked[-1][0].topics) == 3


async def test_a_leader_that_is_an_older_one_by_now_has_no_session_any_more() -> None:
    """It was started again with a release that has none."""
    peers, session = Peers(), FetcherSession()
    it = leader(peers)
    every = [("t", T_ID, 0), ("u", U_ID, 2), ("t", T_ID, 1)]
    for version in (12, 6):
        peers.answers = [response(*every)]
        assert await it.fetch(ASKS, session, version=version, max_wait_ms=0, changed=[])
        assert sum(len(topic.partitions) for topic in peers.asked[-1][0].topics) == 3


async def test_nothing_is_asked_for_where_nothing_is_wanted() -> None:
    peers, session = Peers(), FetcherSession()
    it = leader(peers)
    assert await it.fetch({}, session, version=13, max_wait_ms=0) is None
    peers.answers = [response(("t", T_ID, 0)), response()]
    one = {("t", 0): ASKS["t", 0]}
    assert await it.fetch(one, session, version=13, max_wait_ms=0) is not None
    gone = await it.fetch({}, session, version=13, max_wait_ms=0, changed=[("t", 0)])
    assert gone == FetchAnswer([]), "the leader has to forget it"
    assert await it.fetch({}, session, version=13, max_wait_ms=0, changed=[]) is None


@pytest.mark.parametrize(
    "bad", [response(("t", T_ID, 0)), response(("t", T_ID, 5)), response(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)]
)  # fmt: skip
async def test_an_answer_that_does_not_fit_is_not_used_and_a_new_session_begins(bad: FetchResponse) -> None:
    peers, session = Peers(), FetcherSession()
    it = leader(peers)
    peers.answers = [bad, response()]
    answer = await it.fetch(ASKS, session, version=13, max_wait_ms=0)
    assert answer is not None
    assert (answer.partitions, bool(answer.failure)) == ([], True)
    await it.fetch(ASKS, session, version=13, max_wait_ms=0, changed=[])
    assert len(peers.asked[-1][0].topics) == 2


async def test_after_a_lost_answer_everything_is_named_again() -> None:
    peers, session = Peers(), FetcherSession()
    it = leader(peers)
    every = [("t", T_ID, 0), ("u", U_ID, 2), ("t", T_ID, 1)]
    peers.answers = [response(*every), OSError("lost"), response(*every)]
    await it.fetch(ASKS, session, version=13, max_wait_ms=0)
    with pytest.raises(OSError, match="lost"):
        await it.fetch(ASKS, session, version=13, max_wait_ms=0, changed=[])
    await it.fetch(ASKS, session, version=13, max_wait_ms=0, changed=[])
    request = peers.asked[-1][0]
    assert (request.session_id, request.session_epoch, len(request.topics)) == (9, 0, 2)


async def test_with_one_topic_that_has_no_id_all_are_asked_for_by_name() -> None:
    peers, session = Peers(), FetcherSession()
    it = leader(peers)
    asks = ASKS | {("old", 0): ask("old", 0, NO_TOPIC_ID, 0, -1, 0, 0)}
    every = [("t", T_ID, 0), ("u", U_ID, 2), ("t", T_ID, 1)]
    peers.answers = [response(*every, ("old", NO_TOPIC_ID, 0)), response(*every)]
    found = await it.fetch(asks, session, version=17, max_wait_ms=0)
    assert found is not None
    assert len(found.partitions) == 4
    request, version, _ = peers.asked[-1]
    assert version == 12
    assert {topic.topic for topic in request.topics} == {"t", "u", "old"}
    await it.fetch(ASKS, session, version=17, max_wait_ms=0, changed=[("old", 0)])
    request, version, _ = peers.asked[-1]
    assert version == 17
    assert {topic.topic_id for topic in request.topics} == {T_ID, U_ID}


@pytest.mark.parametrize("count", [99, 100, 101, 250])
async def test_others_run_while_many_partitions_are_named(count: int) -> None:
    peers, session = Peers(), FetcherSession()
    budget = Budget()
    it = leader(peers, budget)
    asks = {("t", index): ask("t", index, T_ID, 0, -1, 0, 0) for index in range(count)}
    peers.answers = [response(*(("t", T_ID, index) for index in range(count))), response()]
    await it.fetch(asks, session, version=13, max_wait_ms=0)
    assert budget.count == count // 100 + (count + 99) // 100
    budget.count = 0
    later = {key: ask("t", key[1], T_ID, 1, -1, 0, 0) for key in asks}
    await it.fetch(later, session, version=13, max_wait_ms=0, changed=list(asks))
    assert budget.count == count // 100 + (count + 99) // 100


# --- what is selected ---------------------------------------------------------------------------------------------


def selected(asks: Mapping[Any, Ask], version: int, max_bytes: int) -> dict[Any, Wanted]:
    """All that is asked for, by the keys of this version."""
    by_id = version >= 13 and all(one.topic_id != NO_TOPIC_ID for one in asks.values())
    return {
        (one.topic_id if by_id else one.topic, one.partition): Wanted(
            one.position.fetch_offset, one.position.log_start_offset, max_bytes, one.position.current_leader_epoch,
            one.position.last_fetched_epoch if version >= 12 else -1,
        )
        for one in asks.values()
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
async def test_a_selection_that_is_kept_is_what_a_new_one_would_be(seed: int) -> None:
    random, kept, asks = Random(seed), Selection(), dict[Any, Ask]()
    ids = {"t": T_ID, "u": U_ID, "old": NO_TOPIC_ID}
    version, max_bytes = 13, 1
    for step in range(12):
        changed = {}
        for _ in range(random.randint(0, 4)):
            key = random.choice(("t", "t", "u", "old")), random.randint(0, 2)
            changed[key] = None
            if key in asks and random.random() < 0.4:
                del asks[key]
            else:
                topic_id = ids[key[0]] if random.random() < 0.7 else T_ID[:15] + key[0][:1].encode()
                asks[key] = ask(*key, topic_id, *random.choices(range(3), k=4))
        if random.random() < 0.15:
            version = random.choice((11, 12, 13))
        if random.random() < 0.1:
            max_bytes = random.choice((1, 2))
        before = dict(kept.by_key)
        everything = step == 0 or random.random() < 0.2
        keys = await kept.update(
            asks, None if everything else list(changed), version=version, max_bytes=max_bytes, budget=LoopBudget()
        )  # fmt: skip
        expected = selected(asks, version, max_bytes)
        assert kept.by_key == expected
        assert kept.uses_ids is (version >= 13 and all(one.topic_id != NO_TOPIC_ID for one in asks.values()))
        assert sorted(kept.names.values()) == sorted(asks)
        for key, name in kept.names.items():
            assert expected[key] == kept.by_key[key]
            assert key[1] == name[1]
        if keys is not None:
            differ = {key for key in before.keys() | expected.keys() if before.get(key) != expected.get(key)}
            assert differ <= set(keys)
            assert not everything
            assert set(keys) <= before.keys() | expected.keys()
            named = [kept.names[key] for key in keys if key in kept.names]
            last = list(kept.names.values())[len(kept.names) - len(set(named)) :]
            assert set(last) == set(named), "what has changed is last"


# --- epochs and offsets -------------------------------------------------------------------------------------------


async def test_ends_of_epochs_are_asked_for_and_read() -> None:
    peers = Peers()
    ends = OffsetForLeaderEpochResponse.EpochEndOffset
    topics = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    peers.answers = [
        OffsetForLeaderEpochResponse(topics=[
            topics("t", [ends(0, 1, 12, 100), ends(9, 0, 2, 10)]), topics("u", [ends(0, 2, -1, -1)]),
        ])
    ]  # fmt: skip
    found = await leader(peers).epoch_ends(ASKS.values())
    partitions = EPOCHS.OffsetForLeaderPartition
    expected = OffsetForLeaderEpochRequest(
        replica_id=5,
        topics=[
            EPOCHS.OffsetForLeaderTopic(topic="t", partitions=[partitions(0, 4, 3), partitions(1, 8, 5)]),
            EPOCHS.OffsetForLeaderTopic(topic="u", partitions=[partitions(2, 6, -1)]),
        ],
    )
    assert peers.asked == [(expected, None, 4.0)]
    assert found == {
        ("t", 0): EpochAnswer(9, EpochEnd(2, 10)), ("t", 1): EpochAnswer(0, EpochEnd(12, 100)),
        ("u", 2): EpochAnswer(0, EpochEnd(-1, -1)),
    }  # fmt: skip


def listed(*offsets: tuple[str, int, int, list[int], int]) -> ListOffsetsResponse:
    """An answer with an error code, old offsets and the offset by topic and partition."""
    found: dict[str, Any] = {}
    for name, index, code, old, offset in offsets:
        topic = found.setdefault(name, ListOffsetsResponse.ListOffsetsTopicResponse(name=name))
        topic.partitions.append(
            ListOffsetsResponse.ListOffsetsPartitionResponse(
                partition_index=index, error_code=code, old_style_offsets=old, offset=offset
            )
        )
    return ListOffsetsResponse(topics=list(found.values()))


@pytest.mark.parametrize("version", [0, 1, 10])
async def test_the_ends_of_a_leaders_log_are_asked_for_and_read(version: int) -> None:
    peers = Peers(version)
    peers.answers = [
        listed(("t", 0, 0, [90, 80], 99), ("t", 1, 3, [1], 2), ("u", 2, 0, [], 77), ("more", 0, 0, [1], 1)),
        listed(("u", 2, 0, [5], 6), ("t", 0, 0, [3], 4), ("t", 1, 0, [7], 8)),
    ]
    found = await leader(peers).log_ends(iter(ASKS.values()))
    partitions = LISTS.ListOffsetsPartition

    def request(timestamp: int) -> ListOffsetsRequest:
        def partition(index: int, epoch: int) -> Any:
            return partitions(
                partition_index=index, current_leader_epoch=epoch, timestamp=timestamp, max_num_offsets=1
            )

        t, u = [partition(0, 4), partition(1, 8)], [partition(2, 6)]
        topics = [LISTS.ListOffsetsTopic("t", t), LISTS.ListOffsetsTopic("u", u)]
        return ListOffsetsRequest(replica_id=5, topics=topics)

    assert peers.asked == [(request(-1), version, 4.0), (request(-2), version, 4.0)]
    if version:
        last = {("t", 0): (0, 99), ("t", 1): (3, 2), ("u", 2): (0, 77)}
        first = {("t", 0): (0, 4), ("t", 1): (0, 8), ("u", 2): (0, 6)}
    else:
        last = {("t", 0): (0, 90), ("t", 1): (3, 2), ("u", 2): (ErrorCode.UNKNOWN_SERVER_ERROR, 77)}
        first = {("t", 0): (0, 3), ("t", 1): (0, 7), ("u", 2): (0, 5)}
    assert found == {key: (OffsetAnswer(*first[key]), OffsetAnswer(*last[key])) for key in ASKS}


def test_a_leader_is_left_by_its_channel() -> None:
    peers = Peers()
    leader(peers).close()
    assert peers.closed == [(7, "c")]
