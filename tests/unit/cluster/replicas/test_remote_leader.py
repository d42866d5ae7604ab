"""Requests to a leader field by field, in old and new versions, and what is read from its answers."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cluster.replicas.following import FetchPosition
from barnabas.cluster.replicas.remote_leader import Ask, OffsetAnswer, RemoteLeader
from barnabas.cluster.replication.fetch_session import FetcherSession
from barnabas.config import broker as settings
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.support.at_once import CheckpointCount

T_ID, U_ID = b"t" * 16, b"u" * 16
CONFIG = {
    settings.REPLICA_FETCH_MAX_BYTES: 111, settings.REPLICA_FETCH_MIN_BYTES: 222,
    settings.REPLICA_FETCH_RESPONSE_MAX_BYTES: 333, settings.REPLICA_SOCKET_TIMEOUT_MS: 4_000,
}  # fmt: skip
FETCHES, LISTS, EPOCHS = FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest


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
    assert [(partition.partition, partition.fetch_offset) for partition in named.partitions] == [(1, 31)]
    assert forgotten.partitions == [2]
    names = (named.topic_id, forgotten.topic_id) if version >= 13 else (named.topic, forgotten.topic)
    assert names == ((T_ID, U_ID) if version >= 13 else ("t", "u"))
    await it.fetch(asks, session, version=version, max_wait_ms=0, changed=[])
    request = peers.asked[-1][0]
    assert (request.topics, request.forgotten_topics_data, request.session_epoch) == ([], [], 2)


@pytest.mark.parametrize(
    "bad", [response(("t", T_ID, 0)), response(("t", T_ID, 5)), response(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)]
)  # fmt: skip
async def test_unexpected_fetch_answer_begins_a_new_session(bad: FetchResponse) -> None:
    peers, session = Peers(), FetcherSession()
    it = leader(peers)
    peers.answers = [bad, response()]
    answer = await it.fetch(ASKS, session, version=13, max_wait_ms=0)
    assert answer is not None
    assert (answer.partitions, bool(answer.failure)) == ([], True)
    await it.fetch(ASKS, session, version=13, max_wait_ms=0, changed=[])
    assert len(peers.asked[-1][0].topics) == 2


@pytest.mark.parametrize("count", [99, 100, 101, 250])
async def test_others_run_while_many_partitions_are_named(count: int) -> None:
    peers, session = Peers(), FetcherSession()
    turns = CheckpointCount()
    it = leader(peers, turns.budget)
    asks = {("t", index): ask("t", index, T_ID, 0, -1, 0, 0) for index in range(count)}
    peers.answers = [response(*(("t", T_ID, index) for index in range(count))), response()]
    await it.fetch(asks, session, version=13, max_wait_ms=0)
    assert turns.count == count // 100 + (count + 99) // 100
    turns.count = 0
    later = {key: ask("t", key[1], T_ID, 1, -1, 0, 0) for key in asks}
    await it.fetch(later, session, version=13, max_wait_ms=0, changed=list(asks))
    assert turns.count == count // 100 + (count + 99) // 100


# --- epochs and offsets -------------------------------------------------------------------------------------------


def listed(*offsets: tuple[str, int, int, list[int], int]) -> ListOffsetsResponse:
    """An answer with an error code, old offsets and the offset by topic and partition."""
    topics: dict[str, Any] = {}
    for name, index, code, old, offset in offsets:
        topic = topics.setdefault(name, ListOffsetsResponse.ListOffsetsTopicResponse(name=name))
        topic.partitions.append(
            ListOffsetsResponse.ListOffsetsPartitionResponse(
                partition_index=index, error_code=code, old_style_offsets=old, offset=offset
            )
        )
    return ListOffsetsResponse(topics=list(topics.values()))


@pytest.mark.parametrize("version", [0, 1, 10])
async def test_the_ends_of_a_leaders_log_are_asked_for_and_read(version: int) -> None:
    peers = Peers(version)
    peers.answers = [
        listed(("t", 0, 0, [90, 80], 99), ("t", 1, 3, [1], 2), ("u", 2, 0, [], 77), ("more", 0, 0, [1], 1)),
        listed(("u", 2, 0, [5], 6), ("t", 0, 0, [3], 4), ("t", 1, 0, [7], 8)),
    ]
    ends = await leader(peers).log_ends(iter(ASKS.values()))
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
    assert ends == {key: (OffsetAnswer(*first[key]), OffsetAnswer(*last[key])) for key in ASKS}
