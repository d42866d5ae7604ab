"""Damage in an internal topic: its partition is out of service until an operator decides to do without the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.cluster.metadata.internal_topics import OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from barnabas.log.format import names
from barnabas.records.batch import BatchHeader, iter_batches
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.tools.logtool.overlay import apply_changes
from barnabas.tools.logtool.places import open_partition
from barnabas.tools.logtool.repair import plan_repair
from barnabas.tools.logtool.verify import Finding, Severity, Verifier
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from barnabas.wire.generated.initialize_share_group_state import InitializeShareGroupStateRequest
from barnabas.wire.generated.join_group import JoinGroupRequest
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.generated.offset_fetch import OffsetFetchRequest
from barnabas.wire.generated.read_share_group_state import ReadShareGroupStateRequest
from tests.support.broker import Asked, ask_for_topic, broker_to_ask

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
DATA = Path("/data")
GROUPS = ("a", "b", "c")
OUT_OF_SERVICE = ErrorCode.COORDINATOR_NOT_AVAILABLE


async def until_loaded(ask: Asked, request: Any, version: int, error_of: Any) -> Any:
    while True:
        answer = await ask(request, version)
        if error_of(answer) not in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        ):
            return answer


def top_error(answer: Any) -> int:
    return int(answer.error_code)


async def commit(ask: Asked, group: str, offset: int) -> int:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])]
    request = OffsetCommitRequest(group_id=group, topics=topics)

    def error_of(answer: Any) -> int:
        return int(answer.topics[0].partitions[0].error_code)

    return error_of(await until_loaded(ask, request, 8, error_of))


async def committed(ask: Asked, group: str) -> tuple[int, int]:
    """Return the error that a group is answered, and the offset."""
    topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    answer = await until_loaded(ask, OffsetFetchRequest(group_id=group, topics=topics), 7, top_error)
    if answer.error_code:
        return answer.error_code, -1
    return answer.error_code, answer.topics[0].partitions[0].committed_offset


async def join(ask: Asked, group: str) -> int:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    return top_error(await until_loaded(ask, request, 5, top_error))


async def init(ask: Asked, name: str) -> int:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    return top_error(await until_loaded(ask, request, 4, top_error))


def of_share_state(request: Any, ask: Asked, **values: int) -> Any:
    topic_id = ask.services.metadata.image.topics["t"].id
    partition = request.PartitionData(partition=0, **values)
    topics = [next(getattr(request, field) for field in dir(request) if field.endswith("StateData"))]
    return request(group_id="s", topics=[topics[0](topic_id=topic_id, partitions=[partition])])


async def share_state(ask: Asked) -> tuple[int, int]:
    request = of_share_state(ReadShareGroupStateRequest, ask, leader_epoch=1)

    def error_of(answer: Any) -> int:
        return int(answer.results[0].partitions[0].error_code)

    answer = await until_loaded(ask, request, 0, error_of)
    return error_of(answer), answer.results[0].partitions[0].start_offset


async def written(*, is_killed: bool) -> MemoryDisk:
    disk = MemoryDisk()
    async with broker_to_ask(DATA, SETTINGS, disk=disk) as ask:
        await ask_for_topic(ask, "t", partitions=1)
        for group in GROUPS:
            assert await commit(ask, group, 5) == 0
        for name in ("x", "y"):
            assert await init(ask, name) == 0
        request = of_share_state(InitializeShareGroupStateRequest, ask, state_epoch=1, start_offset=7)
        assert (await ask(request, 0)).results[0].partitions[0].error_code == 0
        assert await share_state(ask) == (0, 7)
        killed = disk.fork()
    return killed if is_killed else disk


def batches(disk: MemoryDisk, topic: str) -> list[tuple[int, BatchHeader]]:
    return list(iter_batches(disk.read(log_of(topic))))


def log_of(topic: str) -> str:
    return f"/data/logs/{topic}-0/{names.file_name(0, names.LOG)}"


def flip(disk: MemoryDisk, topic: str, which: int) -> int:
    """Flip a bit of the last byte of a batch; returns the batch's offset."""
    content, (at, header) = bytearray(disk.read(log_of(topic))), batches(disk, topic)[which]
    content[at + header.size - 1] ^= 4
    disk.replace(log_of(topic), bytes(content), sync=True)
    return header.base_offset


def warnings(disk: MemoryDisk, topic: str) -> list[str]:
    """The warnings of `barnabas log verify`."""
    findings: list[Finding] = []
    Verifier(disk, findings.append).partition(open_partition(disk, f"/data/logs/{topic}-0"))
    return [finding.text for finding in findings if finding.severity is Severity.WARNING]


def salvage(disk: MemoryDisk, topic: str) -> None:
    disk.locks.clear()
    place = open_partition(disk, f"/data/logs/{topic}-0")
    apply_changes(disk, plan_repair(disk, place, salvage=True).changes)


@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_damage_hides_offsets_until_it_is_repaired(which, is_killed, caplog):
    disk = await written(is_killed=is_killed)
    offset = flip(disk, OFFSETS_TOPIC, which)
    for _ in range(3):  # it is not forgotten over another start
        caplog.clear()
        async with broker_to_ask(DATA, SETTINGS, disk=disk) as ask:
            for group in (*GROUPS, "new"):
                assert await committed(ask, group) == (OUT_OF_SERVICE, -1)
                assert await commit(ask, group, 9) == OUT_OF_SERVICE
                assert await join(ask, group) == OUT_OF_SERVICE
            assert await init(ask, "x") == 0  # others go on
        (line,) = [
            logged.getMessage() for logged in caplog.records if "out of service" in logged.getMessage()
        ]
        assert f"offset {offset}" in line or f"offsets {offset} to" in line
        assert f"barnabas log repair --salvage /data/logs/{OFFSETS_TOPIC}-0" in line
        assert not [record for record in caplog.records if record.exc_info]
        assert sum("shards" in record.name for record in caplog.records) == 1
    assert ["out of service" in warning for warning in warnings(disk, OFFSETS_TOPIC)] == [True] * is_killed
    salvage(disk, OFFSETS_TOPIC)
    assert not warnings(disk, OFFSETS_TOPIC)
    async with broker_to_ask(DATA, SETTINGS, disk=disk) as ask:
        offsets = [await committed(ask, group) for group in GROUPS]
        assert sorted(offsets) == [(0, -1), (0, 5), (0, 5)]
        for group in GROUPS:
            assert await commit(ask, group, 9) == 0
            assert await committed(ask, group) == (0, 9)
    async with broker_to_ask(DATA, SETTINGS, disk=disk) as ask:
        assert [await committed(ask, group) for group in GROUPS] == [(0, 9)] * 3


@pytest.mark.parametrize("is_killed", [False, True])
async def test_damage_stops_transactions_and_share_groups(is_killed):
    disk = await written(is_killed=is_killed)
    for topic in (TRANSACTION_TOPIC, SHARE_TOPIC):
        flip(disk, topic, 0)
    async with broker_to_ask(DATA, SETTINGS, disk=disk) as ask:
        assert await init(ask, "x") == await init(ask, "y") == OUT_OF_SERVICE
        assert await share_state(ask) == (OUT_OF_SERVICE, 0)
        assert await committed(ask, "a") == (0, 5)
    for topic in (TRANSACTION_TOPIC, SHARE_TOPIC):
        salvage(disk, topic)
    async with broker_to_ask(DATA, SETTINGS, disk=disk) as ask:
        assert await init(ask, "x") == await init(ask, "y") == 0
        assert (await share_state(ask))[0] == 0


async def test_torn_commit_was_never_acknowledged(caplog):
    disk = await written(is_killed=True)
    content = disk.read(log_of(OFFSETS_TOPIC))
    disk.replace(log_of(OFFSETS_TOPIC), content[:-1], sync=True)
    async with broker_to_ask(DATA, SETTINGS, disk=disk) as ask:
        assert sorted([await committed(ask, group) for group in GROUPS]) == [(0, -1), (0, 5), (0, 5)]
    assert "out of service" not in caplog.text
