"""A marker in a partition that is led here: its fields, and when it is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.coordinators.transactions.markers import LocalMarkers
from barnabas.coordinators.transactions.transaction import Producer
from barnabas.errors import RequestError
from barnabas.records.batch import iter_batches, read_records
from barnabas.records.control import ControlType, EndMarker, parse_end_marker
from barnabas.wire.generated.errors import ErrorCode

NOW_MS, LAST_OFFSET = 5_000, 41
PRODUCER = Producer(7, 3)


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
async def test_marker_has_producer_result_time_and_coordinator_epoch(commit):
    header, record = await World().write(commit=commit)
    assert (header.producer_id, header.producer_epoch) == PRODUCER
    assert header.max_timestamp == NOW_MS
    assert parse_end_marker(record) == EndMarker(ControlType.COMMIT if commit else ControlType.ABORT, 9)


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
async def test_repeated_marker_in_an_open_epoch_is_refused(version, of_known, is_refused):
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
