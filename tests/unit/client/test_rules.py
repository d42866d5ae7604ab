"""Rules of the client's parts, each by itself: room for records, turns of partitions, what is asked of which version."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import BufferFullError, CommitFailedError, ResponseError, TopicPartition
from barnabas.client.administration import groups
from barnabas.client.consuming import offsets
from barnabas.client.consuming.handing import Handing
from barnabas.client.consuming.partition import Chunk, Partition
from barnabas.client.errors import FencedInstanceError
from barnabas.client.producing.memory import Memory
from barnabas.client.values import ConsumedRecord, GroupMetadata, OffsetAndMetadata
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.offset_fetch import OffsetFetchResponse
from barnabas.wire.generated.streams_group_describe import StreamsGroupDescribeResponse
from barnabas.wire.registry import request_codec

# --- room for records of a producer -----------------------------------------------------------------------------------


async def test_who_waits_for_room_in_vain_makes_way_for_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    memory = Memory(10)
    memory.reserve_nowait(8)
    async with trio.open_nursery() as nursery:

        async def large() -> None:
            with pytest.raises(BufferFullError, match="for 3 s"):
                await memory.reserve(5, 3)

        nursery.start_soon(large)
        await trio.testing.wait_all_tasks_blocked()
        await memory.reserve(2, 100)
        assert trio.current_time() == pytest.approx(3, abs=0.01)
    assert memory.used_bytes == 10


# --- records of a consumer --------------------------------------------------------------------------------------------


def fetched(number: int, *chunks: list[int]) -> Partition:
    """A partition that has fetched records with these offsets, in chunks."""
    partition = Partition(TopicPartition("t", number))
    partition.offset = 0
    for chunk in chunks:
        data = encode_batch([Record(offset, 0, None, b"v") for offset in chunk])
        partition.chunks.append(Chunk(partition.place, data, chunk[0], None, checks_crcs=True))
    return partition


def test_fetched_partitions_take_turns() -> None:
    wakes: list[None] = []
    partitions = [fetched(0, [1, 2], [3]), fetched(1, [10, 11])]
    fetcher: Any = SimpleNamespace(ready=deque(partitions), wake=lambda: wakes.append(None))
    handing = Handing(fetcher, {partition.place: partition for partition in partitions})
    seen = []
    while (record := handing.next()) is not None:
        seen.append((record.offset, len(wakes)))
    assert [offset for offset, _ in seen] == [1, 2, 3, 10, 11]
    assert dict(seen)[2] == 0, "nothing more is fetched while a chunk has records"
    assert dict(seen)[3] == 1
    assert not fetcher.ready


def test_batch_has_the_records_in_the_order_of_turns() -> None:
    partitions = [fetched(0, [1, 2, 3], [4, 5]), fetched(1, [10, 11], [12])]
    fetcher: Any = SimpleNamespace(ready=deque(partitions), wake=lambda: None)
    handing = Handing(fetcher, {partition.place: partition for partition in partitions})
    records: list[ConsumedRecord] = []
    handing.add_more(records, 2)
    assert [record.offset for record in records] == [1, 2]
    handing.add_more(records, 100)
    # A partition goes to the end of the queue with the first record of its next response.
    assert [record.offset for record in records] == [1, 2, 3, 4, 10, 11, 12, 5]
    assert [partition.offset for partition in partitions] == [6, 13]


def test_paused_partition_keeps_records_and_revoked_loses_them() -> None:
    partitions = [fetched(0, [1]), fetched(1, [10]), fetched(2, [20])]
    fetcher: Any = SimpleNamespace(ready=deque(partitions), wake=lambda: None)
    handing = Handing(fetcher, {partition.place: partition for partition in partitions[:2]})
    partitions[0].is_paused = True
    record = handing.next()
    assert record is not None
    assert record.offset == 10
    assert handing.next() is None
    assert list(fetcher.ready) == [partitions[0]]
    partitions[0].is_paused = False
    record = handing.next()
    assert record is not None
    assert record.offset == 1


# --- offsets of a group -----------------------------------------------------------------------------------------------

GROUP = GroupMetadata("g", 5, "m")
PLACE = TopicPartition("t", 0)


class Coordinator:
    """Stands for a client and its connection to a coordinator that serves versions up to one."""

    def __init__(self, version: int, code: int = 0, part_code: int = 0) -> None:
        self.version = version
        self.forgotten: list[str] = []
        self.request: Any = None
        self._codes = code, part_code

    async def coordinator(self, _: str) -> int:
        return 1

    async def broker(self, _: int, *, lane: str) -> Coordinator:
        return self

    def version_of(self, _: int, version_max: int) -> int:
        return min(self.version, version_max)

    def forget_coordinator(self, group_id: str) -> None:
        self.forgotten.append(group_id)

    async def ask(self, request: Any, *, version: int) -> Any:
        """Answer in the form of the version, for one partition at offset 7."""
        self.request = request
        assert request_codec(9).encode(request, version), "the request can be written"
        code, part_code = self._codes
        created = OffsetFetchResponse
        if version >= 8:
            parts = [created.OffsetFetchResponsePartitions(0, 7, 3, "note", part_code)]
            topics = [created.OffsetFetchResponseTopics("t", partitions=parts)]
            return created(groups=[created.OffsetFetchResponseGroup("g", topics, code)])
        part = created.OffsetFetchResponsePartition(0, 7, 3, "note", part_code)
        return created(topics=[created.OffsetFetchResponseTopic("t", [part])], error_code=code)


async def found(client: Any, *, stable: bool = True) -> dict[TopicPartition, OffsetAndMetadata]:
    return await offsets.committed(client, GROUP, [PLACE], stable=stable)


@pytest.mark.parametrize("version", [5, 6, 7, 8, 9, 10])
async def test_committed_offsets_are_requested_by_version(version: int) -> None:
    client = Coordinator(version)
    assert await found(client) == {PLACE: OffsetAndMetadata(7, 3, "note")}
    request = client.request
    assert request.require_stable is (version >= 7)
    assert [group.group_id for group in request.groups] == ["g"] * (version >= 8)
    if version >= 8:
        (asked,) = request.groups
        assert (asked.member_id, asked.member_epoch) == (("m", 5) if version >= 9 else (None, -1))
    await found(client, stable=False)
    assert not client.request.require_stable


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize(
    ("code", "raised", "is_forgotten"),
    [
        (ErrorCode.NOT_COORDINATOR, ResponseError, True),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ResponseError, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ResponseError, False),
        (ErrorCode.UNSTABLE_OFFSET_COMMIT, ResponseError, False),
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError, False),
        (ErrorCode.ILLEGAL_GENERATION, CommitFailedError, False),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceError, False),
    ],
)
async def test_coordinator_errors_forget_the_coordinator(
    version: int, code: int, raised: type[Exception], is_forgotten: bool
) -> None:
    for client in (Coordinator(version, code), Coordinator(version, part_code=code)):
        with pytest.raises(raised):
            await found(client)
        assert client.forgotten == ["g"] * is_forgotten


# --- members of a streams group ---------------------------------------------------------------------------------------


def test_streams_member_has_partitions_of_its_tasks_sources() -> None:
    subtopology = StreamsGroupDescribeResponse.Subtopology
    subtopologies = [
        subtopology("a", ["in"], repartition_source_topics=[SimpleNamespace(name="again")]),
        subtopology("b", ["other"]),
    ]
    tasks = [
        SimpleNamespace(subtopology_id="a", partitions=[1, 0]),
        SimpleNamespace(subtopology_id="c", partitions=[9]),
    ]
    member = SimpleNamespace(
        member_id="member", instance_id="instance", client_id="client", client_host="/host", member_epoch=4,
        assignment=SimpleNamespace(active_tasks=tasks),
    )  # fmt: skip
    of = groups.streams_member(SimpleNamespace(topology=SimpleNamespace(subtopologies=subtopologies)))
    assert of(member) == groups.GroupMember(
        "member", "instance", "client", "/host", 4, ("again", "in", "other"),
        (("in", 0), ("in", 1), ("again", 0), ("again", 1)),
    )  # fmt: skip
    of = groups.streams_member(SimpleNamespace(topology=None))
    assert (of(member).subscription, of(member).assignment) == ((), ())
