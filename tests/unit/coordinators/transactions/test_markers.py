"""A marker in a partition that is led here: what it says, when it is refused, and who hears of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.coordinators.runtime.internal_topics import InternalTopic
from barnabas.coordinators.share.high_watermarks import LocalHighWatermarks
from barnabas.coordinators.transactions.markers import LocalMarkers
from barnabas.coordinators.transactions.transaction import Producer
from barnabas.errors import RequestError
from barnabas.records.batch import iter_batches, read_records
from barnabas.records.control import ControlType, EndMarker, parse_end_marker
from barnabas.wire.generated.errors import ErrorCode

RUNS_SOURCES = True
"""Stand-ins here are for classes that may be compiled, where nothing else is taken for them."""

NOW_MS, LAST_OFFSET = 5_000, 41
PRODUCER = Producer(7, 3)
OFFSETS = "__consumer_offsets"


class World:
    """Stands for replicas of which all are led here, one log for all of them, and for the group coordinator."""

    def __init__(self) -> None:
        self.known: dict[int, Any] = {}
        self.told: list[Any] = []
        self.appended: list[tuple[str, int, bytes, int]] = []
        self.led: tuple[str, int] = "", -1
        self.high_watermark = 0
        self.closed = False
        self.log = self
        self.producers = self.known
        self.committed = trio.Event()
        self.committed.set()
        self.markers = LocalMarkers(self, self, lambda: NOW_MS)  # type: ignore[arg-type]

    def leader(self, topic: str, index: int) -> World:
        if index > 9:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.led = topic, index
        return self

    def find(self, topic: str, index: int) -> World | None:
        return self.leader(topic, index) if index <= 9 else None

    def append_own(self, batch: bytearray, *, now_ms: int) -> Any:
        self.appended.append((*self.led, bytes(batch), now_ms))
        return SimpleNamespace(last_offset=LAST_OFFSET)

    def transaction_ended(self, partition: int, producer_id: int, *, committed: bool) -> None:
        self.told.append((partition, producer_id, committed))

    async def wait_committed(self, end_offset: int) -> None:
        self.told.append(end_offset)
        await self.committed.wait()

    async def write(self, topic: str = "t", *, commit: bool = True, version: int = 0, **of_known: int) -> Any:
        """Write a marker where the producer is known as `of_known` says; returns what the one batch says."""
        if of_known:
            fields = {
                "producer_epoch": PRODUCER.epoch,
                "current_txn_first_offset": 0,
                "marker_offset": -1,
                "coordinator_epoch": -1,
            } | of_known
            self.known[PRODUCER.id] = SimpleNamespace(**fields)
        await self.markers.write((topic, 4), PRODUCER, 9, commit, version)
        [(name, index, data, now_ms)] = self.appended
        assert (name, index, now_ms) == (topic, 4, NOW_MS)
        [(position, header)] = iter_batches(data)
        [record] = read_records(data, position)
        assert header.is_control
        assert header.is_transactional
        return header, record


@pytest.mark.parametrize("commit", [True, False])
async def test_a_marker_says_whose_transaction_has_ended_how_when_and_by_whom(commit):
    header, record = await World().write(commit=commit)
    assert (header.producer_id, header.producer_epoch) == PRODUCER
    assert header.max_timestamp == NOW_MS
    assert parse_end_marker(record) == EndMarker(ControlType.COMMIT if commit else ControlType.ABORT, 9)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("topic", [OFFSETS, "t"])
async def test_only_a_marker_among_committed_offsets_is_told_to_the_groups(topic, commit):
    world = World()
    await world.write(topic, commit=commit)
    of_groups = [(4, PRODUCER.id, commit)] if topic == OFFSETS else []
    assert world.told == [*of_groups, LAST_OFFSET + 1], "it is waited for to the end of the marker"


async def test_who_writes_a_marker_waits_until_it_is_committed(autojump_clock):
    world = World()
    world.committed = trio.Event()
    async with trio.open_nursery() as nursery:
        ended = trio.Event()

        async def write() -> None:
            await world.write()
            ended.set()

        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        assert world.appended
        assert not ended.is_set()
        world.committed.set()


@pytest.mark.parametrize(
    ("version", "of_known", "is_refused"),
    [
        (2, {}, True),
        (3, {}, True),
        (2, {"current_txn_first_offset": 8}, True),
        (1, {}, False),
        (0, {}, False),
        (2, {"current_txn_first_offset": -1}, False),
        (2, {"producer_epoch": 2}, False),
        (2, {"producer_epoch": 4}, False),
    ],
)
async def test_a_marker_in_the_epoch_of_what_is_open_is_one_that_was_sent_twice(
    version, of_known, is_refused
):
    world = World()
    world.known[PRODUCER.id] = SimpleNamespace(producer_epoch=PRODUCER.epoch, current_txn_first_offset=0)
    if not is_refused:
        await world.write(version=version, **of_known)
        return
    with pytest.raises(RequestError) as refused:
        await world.write(version=version, **of_known)
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.appended == []
    assert world.told == []


@pytest.mark.parametrize(
    ("of_known", "is_written"),
    [
        ({"marker_offset": 30}, False),
        ({"marker_offset": 31}, False),
        ({"marker_offset": 29}, True),  # it is committed, as all others of its time
        ({"marker_offset": 30, "coordinator_epoch": 8}, True),
        ({"marker_offset": 30, "producer_epoch": 2}, True),
    ],
)
async def test_uncommitted_marker_sent_again_is_not_written_again(of_known, is_written):
    world = World()
    world.high_watermark = 30
    fields = {
        "producer_epoch": PRODUCER.epoch,
        "coordinator_epoch": 9,
        "current_txn_first_offset": -1,
    } | of_known
    world.known[PRODUCER.id] = SimpleNamespace(**fields)
    await world.markers.write(("t", 4), PRODUCER, 9, True, 2)
    assert len(world.appended) == is_written
    assert world.told == [LAST_OFFSET + 1 if is_written else of_known["marker_offset"] + 1]


@pytest.mark.parametrize("version", [0, 1])
async def test_marker_of_version_1_is_written_each_time(version):
    """It may be that of the next transaction, which has the same epoch; a check of records that come late looks at it."""
    world = World()
    await world.write(version=version, current_txn_first_offset=-1, marker_offset=41, coordinator_epoch=9)


async def test_a_producer_of_which_nothing_is_known_may_end():
    await World().write(version=2)


async def test_high_watermarks_are_those_of_the_leaders_here():
    world = World()
    world.high_watermark = 12
    found = await LocalHighWatermarks(world).of([("t", 0), ("t", 10)])  # type: ignore[arg-type]
    assert found["t", 0] == 12
    assert isinstance(error := found["t", 10], RequestError)
    assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- internal topics ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("high_watermark", "closed", "index", "is_committed"),
    [
        (9, False, 0, False),
        (10, False, 0, True),
        (11, False, 0, True),
        (11, True, 0, False),
        (11, False, 10, False),
    ],
)
async def test_a_record_is_committed_when_the_high_watermark_has_passed_it(
    high_watermark, closed, index, is_committed
):
    world = World()
    world.high_watermark, world.closed = high_watermark, closed
    topic = InternalTopic(OFFSETS, metadata=None, replicas=world, creation=None)  # type: ignore[arg-type]
    assert topic.is_committed(index, 10) is is_committed
    if index <= 9 and not closed:
        await topic.wait_committed(index, 10)
        assert world.told == ([] if is_committed else [10])


def test_records_of_a_coordinator_are_appended_to_their_partition_in_the_transaction_of_their_producer():
    world = World()
    topic = InternalTopic(OFFSETS, metadata=None, replicas=world, creation=None)  # type: ignore[arg-type]
    assert topic.append(3, [(b"k", b"v"), (b"l", None)], NOW_MS) == LAST_OFFSET + 1
    assert topic.append(4, [(b"k", b"v")], NOW_MS + 1, (7, 3)) == LAST_OFFSET + 1
    found = []
    for name, index, data, now_ms in world.appended:
        [(position, header)] = iter_batches(data)
        assert header.max_timestamp == now_ms
        producer = header.producer_id, header.producer_epoch, header.is_transactional
        found.append((name, index, now_ms, producer))
        assert next((one.key, one.value) for one in read_records(data, position)) == (b"k", b"v")
    assert found == [(OFFSETS, 3, NOW_MS, (-1, -1, False)), (OFFSETS, 4, NOW_MS + 1, (7, 3, True))]
