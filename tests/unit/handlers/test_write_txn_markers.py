"""WriteTxnMarkers for several partitions: none waits for the replicas of another, and none for more than a second."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.coordinators.transactions.transaction import Producer
from barnabas.errors import RequestError, StorageError
from barnabas.handlers.write_txn_markers import PATIENCE_SECONDS, WriteTxnMarkers
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.write_txn_markers import WriteTxnMarkersRequest

PARTITIONS = 4


class Markers:
    """Stands for the logs of partitions: those in `late` never commit; `failures` are raised by partition."""

    def __init__(self) -> None:
        self.late: set[int] = set()
        self.seconds = 0.0
        """Time that replicas take."""
        self.failures: dict[int, Exception] = {}
        self.failures_later: dict[int, Exception] = {}
        self.appended: list[tuple[str, int, Producer, bool]] = []

    def append(
        self, topic_partition: Any, producer: Producer, coordinator_epoch: int, commit: bool, version: int
    ) -> Appended:
        topic, index = topic_partition
        if index in self.failures:
            raise self.failures[index]
        self.appended.append((topic, index, producer, commit))
        return Appended(self, index, trio.current_time() + self.seconds)


class Appended:
    def __init__(self, markers: Markers, index: int, committed_at: float) -> None:
        self.markers, self.index, self.committed_at = markers, index, committed_at

    @property
    def is_committed(self) -> bool:
        return self.index not in self.markers.late and trio.current_time() >= self.committed_at

    async def wait_committed(self) -> None:
        if self.index in self.markers.failures_later:
            raise self.markers.failures_later[self.index]
        if self.index in self.markers.late:
            await trio.sleep_forever()
        await trio.sleep_until(self.committed_at)


class Context:
    def authorizes(self, *args: Any, **options: Any) -> bool:
        return True


class Budget:
    async def checkpoint(self) -> None:
        pass


async def ask(markers: Markers, *producer_ids: int, partitions: int = PARTITIONS) -> dict[int, list[int]]:
    """Return the codes of all partitions by producer."""
    handler = WriteTxnMarkers(Budget(), markers)  # type: ignore[arg-type]
    topics = [WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[*range(partitions)])]
    request = WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequest.WritableTxnMarker(
                producer_id=id_, producer_epoch=1, transaction_result=True, coordinator_epoch=1, topics=topics
            )
            for id_ in producer_ids
        ]
    )
    answer = await handler.handle(Context(), request)  # type: ignore[arg-type]
    assert all(
        [part.partition_index for part in result.topics[0].partitions] == [*range(partitions)]
        for result in answer.markers
    )
    return {
        result.producer_id: [part.error_code for part in result.topics[0].partitions]
        for result in answer.markers
    }


async def test_all_markers_wait_for_replicas_at_the_same_time(autojump_clock):
    markers = Markers()
    markers.seconds = 0.3
    began = trio.current_time()
    assert await ask(markers, 7, 8) == {7: [0] * PARTITIONS, 8: [0] * PARTITIONS}
    assert trio.current_time() == pytest.approx(began + 0.3)
    written = [(index, producer.id) for _, index, producer, _ in markers.appended]
    assert written == [(index, id_) for id_ in (7, 8) for index in range(PARTITIONS)], "in their order"


@pytest.mark.parametrize("late", [{0}, {PARTITIONS - 1}, {0, 2}, set(range(PARTITIONS))], ids=str)
async def test_late_partition_is_told_so_and_delays_no_other(autojump_clock, late):
    markers = Markers()
    markers.late = late
    markers.seconds = PATIENCE_SECONDS / 2
    began = trio.current_time()
    expected = [ErrorCode.REQUEST_TIMED_OUT if index in late else 0 for index in range(PARTITIONS)]
    assert await ask(markers, 7) == {7: expected}
    assert trio.current_time() == pytest.approx(began + PATIENCE_SECONDS)
    assert len(markers.appended) == PARTITIONS, "also those behind the late one"


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (StorageError("/dir", OSError(5, "broken")), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
    ids=["moved", "disk"],
)
async def test_partition_that_fails_is_told_so_and_no_other(autojump_clock, failure, code):
    markers = Markers()
    markers.failures = {1: failure}
    assert await ask(markers, 7) == {7: [0, code, 0, 0]}


async def test_partition_whose_leader_moves_meanwhile_is_told_so(autojump_clock):
    markers = Markers()
    markers.failures_later = {2: RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)}
    assert await ask(markers, 7) == {7: [0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0]}
