"""One fetcher against a leader that answers as the test says: versions, errors by partition, what becomes of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.cluster.changes import BrokerRegistered, PartitionChanged, TopicCreated
from barnabas.cluster.image import BrokerInfo, PartitionInfo, TopicInfo
from barnabas.cluster.peers import PeerUnavailableError
from barnabas.config.loading import BrokerConfig
from barnabas.loop_budget import LoopBudget
from barnabas.records.batch import rebase
from barnabas.replicas.fetcher import LOOK_AT_ALL_SECONDS, FetcherParts
from barnabas.replicas.fetching import ReplicaFetchers
from barnabas.replicas.followed import Followed
from barnabas.replicas.following import slices
from barnabas.replicas.ports import NoThrottle
from barnabas.replicas.replica import Replica
from barnabas.replication.roles import Role
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from tests.support.logs import NOW_MS, batch
from tests.support.replicas import Node

BACKOFF_S = 1.0
LEADER, ME = 1, 2
PARTITIONS = 3
TOPIC_ID = b"0123456789abcdef"


def at(offset: int, value: bytes, leader_epoch: int) -> bytes:
    """A batch of one record at an offset, as a leader has it."""
    data = batch(value)
    rebase(data, 0, offset, leader_epoch)
    return bytes(data)


@dataclass
class Leader:
    """Broker 1, as `Peers` of broker 2 reaches it: its logs are lists of batches, one offset each."""

    version: int = 17
    logs: dict[int, list[bytes]] = field(default_factory=lambda: {n: [] for n in range(PARTITIONS)})
    start: int = 0
    epoch: int = 5
    errors: dict[int, int] = field(default_factory=dict)
    """Error codes that partitions are answered with, once each unless `is_stubborn`."""
    is_stubborn: bool = False
    answer_epochs: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The end of the follower's last epoch, by partition: (epoch, end offset)."""
    asked: list[Any] = field(default_factory=list)
    damage: Callable[[bytes], bytes] | None = None
    is_away: bool = False
    lacks: frozenset[int] = frozenset()
    has_sessions: bool = False
    session: dict[int, Any] = field(default_factory=dict)
    """What the session's requests want, by partition."""
    told: dict[int, int] = field(default_factory=dict)
    """The high watermark that the session's answers have told, by partition."""

    async def version_of(self, broker_id: int, key: int, **_: Any) -> int:
        await trio.lowlevel.checkpoint()
        if self.is_away:
            raise PeerUnavailableError("away")
        if key in self.lacks:
            raise PeerUnavailableError("too old", lacks_version=True)
        return {1: self.version, 2: 7, 23: 3}[key]

    async def ask(self, broker_id: int, request: Any, *, version: int | None = None, **_: Any) -> Any:
        assert broker_id == LEADER
        await trio.lowlevel.checkpoint()
        if self.is_away:
            raise PeerUnavailableError("away")
        self.asked.append(request)
        if isinstance(request, FetchRequest):
            assert version is not None
            return await self._fetch(request, version)
        if isinstance(request, OffsetForLeaderEpochRequest):
            return self._epochs(request)
        assert isinstance(request, ListOffsetsRequest)
        return self._offsets(request)

    def close(self, *_: Any) -> None:
        """Nothing is open."""

    async def _fetch_in_session(self, request: FetchRequest, version: int) -> FetchResponse:
        """Answer a request of a session, which is the only one: new partitions, and those with news."""
        if not request.session_epoch:
            self.session.clear()
            self.told.clear()
        for topic in request.topics:
            self.session |= {want.partition: want for want in topic.partitions}
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                del self.session[index]
        give_up_at = trio.current_time() + request.max_wait_ms / 1000
        while True:
            news = []
            for index, want in self.session.items():
                data = self._read(want, version)
                if data.records or data.error_code or data.high_watermark != self.told.get(index):
                    self.told[index] = data.high_watermark
                    news.append(data)
            if news or trio.current_time() >= give_up_at:
                topic = FetchResponse.FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=news)
                return FetchResponse(session_id=7, responses=[topic] if news else [])
            await trio.sleep(0.001)

    async def _fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        if self.has_sessions and request.session_epoch >= 0:
            return await self._fetch_in_session(request, version)
        response = FetchResponse()  # without a session
        found = False
        for topic in request.topics:
            if version >= 13:
                assert topic.topic_id == TOPIC_ID
            answered = FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
            response.responses.append(answered)
            for want in topic.partitions:
                data = self._read(want, version)
                found |= bool(data.records) or bool(data.error_code) or data.diverging_epoch.epoch >= 0
                answered.partitions.append(data)
        if not found:
            await trio.sleep(request.max_wait_ms / 1000)
        return response

    def _read(self, want: Any, version: int) -> Any:
        data = FetchResponse.PartitionData(partition_index=want.partition, records=b"")
        code = self.errors.get(want.partition, 0)
        if code:
            if not self.is_stubborn:
                del self.errors[want.partition]
            data.error_code = code
            return data
        log = self.logs[want.partition]
        data.high_watermark, data.log_start_offset = len(log) + self.start, self.start
        if not self.start <= want.fetch_offset <= len(log) + self.start:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return data
        epoch, end = self.answer_epochs.get(want.partition, (-1, -1))
        if epoch == want.last_fetched_epoch >= 0 and end < want.fetch_offset:
            assert version >= 12
            data.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)
            return data
        data.records = b"".join(log[want.fetch_offset - self.start :])
        if self.damage is not None and data.records:
            data.records = self.damage(data.records)
            self.damage = None
        return data

    def _epochs(self, request: Any) -> Any:
        topics = []
        for topic in request.topics:
            answers = [
                OffsetForLeaderEpochResponse.EpochEndOffset(
                    partition=one.partition,
                    error_code=self.errors.pop(one.partition, 0),
                    leader_epoch=self.answer_epochs.get(one.partition, (-1, -1))[0],
                    end_offset=self.answer_epochs.get(one.partition, (-1, -1))[1],
                )
                for one in topic.partitions
            ]
            topics.append(
                OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers)
            )
        return OffsetForLeaderEpochResponse(topics=topics)

    def _offsets(self, request: Any) -> Any:
        topics = []
        for topic in request.topics:
            answers = [
                ListOffsetsResponse.ListOffsetsPartitionResponse(
                    partition_index=one.partition_index,
                    offset=self.start + (len(self.logs[one.partition_index]) if one.timestamp == -1 else 0),
                )
                for one in topic.partitions
            ]
            topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    def append(self, index: int, *values: bytes) -> None:
        """Append one record for each value."""
        for value in values:
            self.logs[index].append(at(self.start + len(self.logs[index]), value, self.epoch))


class Follower(Node):
    """Broker 2, which follows the partitions of `t`."""

    def __init__(self, leader: Leader, **settings: str) -> None:
        super().__init__(ME)
        config = BrokerConfig({"replica.fetch.backoff.ms": "1000", **settings})
        parts = FetcherParts(
            leader, config, LoopBudget(), self.failed, lambda: NOW_MS, NoThrottle()  # type: ignore[arg-type]
        )  # fmt: skip
        self.fetchers = ReplicaFetchers(ME, parts, lambda: 22)
        self.storage_errors: list[Exception] = []

    def failed(self, error: Any) -> Any:
        self.storage_errors.append(error)

    async def follow(self, epoch: int = 5, *, is_first: bool = True) -> None:
        """Hear of the topic, or of a new epoch, and begin to fetch."""
        info = PartitionInfo(LEADER, (LEADER, ME), (LEADER,), epoch, epoch)
        if is_first:
            brokers = [BrokerRegistered(BrokerInfo(one, None, {})) for one in (1, 2)]
            topic = TopicInfo("t", TOPIC_ID, (info,) * PARTITIONS)
            await self.apply([*brokers, TopicCreated(topic)])
        else:
            await self.apply([PartitionChanged("t", index, info) for index in range(PARTITIONS)])
        for index in range(PARTITIONS):
            self.fetchers.start(self.of(index))

    def of(self, index: int) -> Replica:
        return self.replicas.local("t", index)

    def log_of(self, index: int) -> bytes:
        log = self.of(index).log
        return log.read(log.log_start_offset, max_bytes=1 << 20, upper_offset=log.log_end_offset).to_bytes()

    @asynccontextmanager
    async def fetching(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.fetchers.run)
            yield
            nursery.cancel_scope.cancel()

    async def until(self, condition: Callable[[], bool]) -> float:
        """Wait until something is so, and return how long that took (s)."""
        before = trio.current_time()
        with trio.fail_after(60):
            while not condition():
                await trio.sleep(0.001)
        return trio.current_time() - before

    def has(self, leader: Leader, *indexes: int) -> bool:
        return all(
            self.log_of(index) == b"".join(leader.logs[index]) for index in indexes or range(PARTITIONS)
        )


@pytest.mark.parametrize("version", [*range(4, 18)])
async def test_each_version_of_fetch_replicates(autojump_clock: trio.testing.MockClock, version: int) -> None:
    leader = Leader(version)
    follower = Follower(leader)
    leader.append(0, b"a", b"b")
    await follower.follow()
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))
        leader.append(1, b"c")
        await follower.until(lambda: follower.has(leader))
        assert follower.of(0).log.high_watermark == 2
    request = leader.asked[0]
    if version < 15:
        assert (request.replica_id, request.replica_state.replica_id) == (ME, -1)
    else:
        state = request.replica_state
        assert (request.replica_id, state.replica_id, state.replica_epoch) == (-1, ME, 22)
    want = request.topics[0].partitions[0]
    assert (want.current_leader_epoch, want.last_fetched_epoch) == (5, -1)


PASSING = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID,
]  # fmt: skip


@pytest.mark.parametrize(
    "code",
    [*PASSING, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE, 999],
)
async def test_an_error_holds_up_its_partition_alone(
    autojump_clock: trio.testing.MockClock, code: int
) -> None:
    leader = Leader()
    follower = Follower(leader)
    leader.errors = {1: code}
    for index in range(PARTITIONS):
        leader.append(index, b"x")
    await follower.follow()
    async with follower.fetching():
        assert await follower.until(lambda: follower.has(leader, 0, 2)) < 0.01
        took_s = await follower.until(lambda: follower.has(leader))
        assert took_s < 0.1 if code in PASSING else BACKOFF_S - 0.05 < took_s < BACKOFF_S + 0.05


async def test_passing_errors_are_tried_again_less_and_less_often(
    autojump_clock: trio.testing.MockClock,
) -> None:
    leader = Leader(is_stubborn=True, errors={1: ErrorCode.UNKNOWN_LEADER_EPOCH})
    follower = Follower(leader)
    await follower.follow()
    async with follower.fetching():
        await trio.sleep(10)
        tries = [one for one in leader.asked if any(part.partition == 1 for part in one.topics[0].partitions)]
        assert 10 < len(tries) < 20
        leader.errors = {}
        leader.append(1, b"x")
        assert await follower.until(lambda: follower.has(leader)) <= BACKOFF_S


async def test_a_fenced_partition_waits_for_the_metadata(autojump_clock: trio.testing.MockClock) -> None:
    leader = Leader(errors={1: ErrorCode.FENCED_LEADER_EPOCH})
    follower = Follower(leader)
    leader.append(1, b"x")
    await follower.follow()
    async with follower.fetching():
        await trio.sleep(30)
        assert follower.has(leader, 0, 2)
        assert not follower.has(leader, 1)
        await follower.follow(6, is_first=False)
        await follower.until(lambda: follower.has(leader))


async def test_damaged_records_are_fetched_again_from_the_same_offset(
    autojump_clock: trio.testing.MockClock,
) -> None:
    leader = Leader(damage=lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    follower = Follower(leader)
    leader.append(0, b"a", b"b", b"c")
    await follower.follow()
    async with follower.fetching():
        assert await follower.until(lambda: follower.has(leader)) >= BACKOFF_S - 0.01
    assert follower.storage_errors == []


async def test_a_batch_that_is_cut_off_is_fetched_with_the_next_request(
    autojump_clock: trio.testing.MockClock,
) -> None:
    leader = Leader(damage=lambda data: data[:-1])
    follower = Follower(leader)
    leader.append(0, b"a", b"b", b"c")
    await follower.follow()
    async with follower.fetching():
        assert await follower.until(lambda: follower.has(leader)) < 0.1


async def test_a_log_that_ends_before_the_leaders_first_offset_begins_again_there(
    autojump_clock: trio.testing.MockClock,
) -> None:
    leader = Leader(start=100)
    follower = Follower(leader)
    leader.append(0, b"a")
    await follower.follow()
    async with follower.fetching():
        await follower.until(lambda: follower.of(0).log.log_end_offset == 101)
        assert follower.of(0).log.log_start_offset == 100
        assert follower.has(leader)


@pytest.mark.parametrize("version", [9, 11, 12, 17])
@pytest.mark.parametrize("end", [1, 2])
async def test_what_the_leader_does_not_have_is_cut_off_first(
    autojump_clock: trio.testing.MockClock, version: int, end: int
) -> None:
    leader = Leader(version)
    follower = Follower(leader)
    leader.append(0, b"a", b"b", b"c")
    await follower.follow()
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))
    leader.epoch = 6
    del leader.logs[0][end:]
    leader.append(0, b"other", b"others", b"more")
    leader.answer_epochs = {index: (5, end if index == 0 else 0) for index in range(PARTITIONS)}
    await follower.follow(6, is_first=False)
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))
    kinds = [type(one) for one in leader.asked]
    assert (OffsetForLeaderEpochRequest in kinds) is (version < 12)


async def test_a_leader_older_than_leader_epochs_is_followed_from_the_high_watermark(
    autojump_clock: trio.testing.MockClock,
) -> None:
    leader = Leader(4)
    follower = Follower(leader)
    leader.append(0, b"a", b"b")
    await follower.follow()
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader) and follower.of(0).log.high_watermark == 2)
    leader.lacks = frozenset((23,))
    leader.append(0, b"c")
    await follower.follow(6, is_first=False)
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))


async def test_a_leader_that_is_away_is_asked_again(autojump_clock: trio.testing.MockClock) -> None:
    leader = Leader(is_away=True)
    follower = Follower(leader)
    leader.append(0, b"a")
    await follower.follow()
    async with follower.fetching():
        await trio.sleep(5)
        leader.is_away = False
        assert await follower.until(lambda: follower.has(leader)) <= BACKOFF_S


async def test_fetchers_end_when_they_have_nothing_to_do(autojump_clock: trio.testing.MockClock) -> None:
    leader = Leader()
    follower = Follower(leader)
    await follower.follow()
    async with follower.fetching():
        await trio.sleep(1)
        for index in range(PARTITIONS):
            follower.fetchers.stop(follower.of(index))
        await trio.sleep(1)
        count = len(leader.asked)
        await trio.sleep(5)
        assert len(leader.asked) == count
        leader.append(1, b"x")
        follower.fetchers.start(follower.of(1))
        await follower.until(lambda: follower.has(leader))
    assert follower.of(0).role is Role.FOLLOWER


async def test_a_request_of_a_session_costs_what_has_changed(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = Leader(has_sessions=True)
    follower = Follower(leader)
    await follower.follow()
    looked: Counter[int] = Counter()
    ask = Followed.ask

    def counted(followed: Followed) -> Any:
        looked[followed.replica.index] += 1
        return ask(followed)

    async with follower.fetching():
        await follower.until(lambda: len(leader.told) == PARTITIONS)
        await trio.sleep(2)
        monkeypatch.setattr(Followed, "ask", counted)
        begun, requests = trio.current_time(), len(leader.asked)
        for number in range(100):
            leader.append(1, b"%d" % number)
            await follower.until(lambda: follower.has(leader))
        looks_at_all = (trio.current_time() - begun) / LOOK_AT_ALL_SECONDS + 2
        named = [
            want.partition
            for one in leader.asked[requests:]
            for topic in one.topics
            for want in topic.partitions
        ]
        assert looked[1] >= 100
        assert looked[0] <= looks_at_all
        assert looked[2] <= looks_at_all
        assert set(named) == {1}


async def test_what_is_deleted_here_is_told_to_the_leader_soon(
    autojump_clock: trio.testing.MockClock,
) -> None:
    leader = Leader(has_sessions=True)
    leader.append(1, b"a", b"b", b"c")
    follower = Follower(leader)
    await follower.follow()
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader) and leader.session[1].fetch_offset == 3)
        follower.of(1).log.delete_records_before(2)
        assert (
            await follower.until(lambda: leader.session[1].log_start_offset == 2) <= 2 * LOOK_AT_ALL_SECONDS
        )


def test_slices_end_between_batches() -> None:
    data = b"".join(at(n, b"x" * 100, 1) for n in range(1000))
    parts = [bytes(part) for part in slices(data)]
    assert b"".join(parts) == data
    assert len(parts) == 10
    assert [bytes(part) for part in slices(data[:-1])][-1] == parts[-1][:-1]
    assert [bytes(part) for part in slices(b"")] == [b""]
    assert [bytes(part) for part in slices(b"\xff" * 50)] == [b"\xff" * 50]
