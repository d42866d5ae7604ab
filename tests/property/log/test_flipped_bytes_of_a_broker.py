"""Every byte of the data dir of a whole broker is damaged in turn: topics, groups and transactional ids outlive it.

What it costs is one batch of one log: records of a topic, or the last record of one group or one transactional id. That one
is not missing without a word: groups and transactional ids are told so only after a repair.
"""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from barnabas.broker.startup import StartupError
from barnabas.errors import StorageError
from barnabas.log.format import names
from barnabas.records.batch import iter_batches
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.tools.logtool.overlay import apply_changes
from barnabas.tools.logtool.places import open_partition
from barnabas.tools.logtool.repair import plan_repair
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.generated.offset_fetch import OffsetFetchRequest
from barnabas.wire.generated.produce import ProduceRequest
from tests.support.broker import NOW_MS, Asked, broker_to_ask
from tests.support.effort import EFFORT, drawing
from tests.support.logs import read_all

from .test_flipped_bytes import NO_CHECKSUM, files

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.index.interval.bytes": "150",
}
SAMPLE = 60  # of the bytes, on an ordinary day
TOPIC, PARTITIONS, BATCHES = "t", 2, 4
GROUPS = ("a", "b", "c")
TRANSACTIONAL_IDS = ("x", "y")
DATA = Path("/data")


async def write(ask: Asked) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    topic.configs.append(CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="-1"))
    assert (await ask(CreateTopicsRequest(topics=[topic], timeout_ms=9000), 5)).topics[0].error_code == 0
    for n in range(BATCHES):
        for partition in range(PARTITIONS):
            records = encode_batch([Record(0, NOW_MS, b"key", b"%d-%d" % (partition, n))])
            data = ProduceRequest.PartitionProduceData(index=partition, records=records)
            topics = [ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])]
            answer = await ask(ProduceRequest(acks=-1, timeout_ms=9000, topic_data=topics), 8)
            assert answer.responses[0].partition_responses[0].error_code == 0
    for offset in (1, 2):
        for group in GROUPS:
            await commit(ask, group, offset)
    for name in TRANSACTIONAL_IDS:
        await init(ask, name)


async def commit(ask: Asked, group: str, offset: int) -> None:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
    answer = await ask(OffsetCommitRequest(group_id=group, topics=topics), 8)
    assert answer.topics[0].partitions[0].error_code == 0


async def committed(ask: Asked, group: str) -> int:
    topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
    while True:
        answer = await ask(OffsetFetchRequest(group_id=group, topics=topics), 7)
        if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            assert answer.error_code == 0, f"group {group}: error {answer.error_code}"
            return answer.topics[0].partitions[0].committed_offset


async def init(ask: Asked, name: str) -> tuple[int, int]:
    while True:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        answer = await ask(request, 4)
        if answer.error_code not in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        ):
            assert answer.error_code == 0, f"transactional id {name}: error {answer.error_code}"
            return answer.producer_id, answer.producer_epoch


async def written(*, clean: bool) -> MemoryDisk:
    disk = MemoryDisk()
    async with broker_to_ask(DATA, SETTINGS, disk=disk) as ask:
        await write(ask)
        ask.services.logs.write_checkpoints()
        killed = disk.fork()
    return disk.fork() if clean else killed


def places(disk: MemoryDisk, rng: random.Random, *, clean: bool) -> list[tuple[str, int]]:
    every = [
        (path, at)
        for path, inode in sorted(files(disk.root).items())
        # A start after a clean stop does not read the logs of users: readers find what is damaged in them.
        if not (clean and f"/{TOPIC}-" in path and path.endswith(names.LOG))
        for at in range(len(inode.content))
    ]
    return every if EFFORT > 1 else sorted(rng.sample(every, SAMPLE))


def last_batch(disk: MemoryDisk, path: str) -> int:
    """Return where the last batch of a log begins: after a crash it may be taken for one that was torn."""
    return max(at for at, _ in iter_batches(disk.read(path)))


async def judge(ask: Asked, where: str, path: str, *, may_forget: bool) -> None:
    """See that at most one batch is missing, and nothing at all where the damage is in no log.

    `may_forget` says that an internal topic may lack one, too.
    """
    image = ask.services.metadata.image
    assert len(image.topics[TOPIC].partitions) == PARTITIONS, where
    assert image.settings_of(2, TOPIC).get("retention.ms") == "-1", where
    missing = []
    for partition in range(PARTITIONS):
        log = ask.services.logs.get(TOPIC, partition)
        assert log is not None, where
        log.advance_high_watermark(log.log_end_offset)
        assert log.topic_id == image.topics[TOPIC].id, where
        actual = {(record.offset, record.value) for record in read_all(log)}
        expected = {(n, b"%d-%d" % (partition, n)) for n in range(BATCHES)}
        # No checksum covers a base offset: the last batch after a crash, with no batch after it, may have another one.
        moved = actual - expected
        assert len(moved) <= (1 if path.endswith(names.LOG) else 0), (where, moved)
        assert {value for _, value in moved} <= {value for _, value in expected}, (where, moved)
        missing += sorted(expected - actual)
    for group in GROUPS:
        offset = await committed(ask, group)
        assert offset in ((2, 1, -1) if may_forget else (2,)), where
        if offset != 2:
            missing.append((group, offset))
    ids = [await init(ask, name) for name in TRANSACTIONAL_IDS]
    assert len({producer_id for producer_id, _ in ids}) == len(ids), where
    forgotten = [id_ for id_ in ids if id_[1] == 0]  # it begins with another producer id
    assert may_forget or not forgotten, where
    missing += forgotten
    assert len(missing) <= (1 if path.endswith(names.LOG) else 0), (where, missing)


async def judge_start(
    disk: MemoryDisk, where: str, path: str, caplog: pytest.LogCaptureFixture, *, may_be_torn: bool
) -> None:
    """Start on a damaged disk and see what is there, after the repair that the broker asks for if it asks for one."""
    try:
        async with broker_to_ask(DATA, SETTINGS, disk=disk) as ask:
            await judge(ask, where, path, may_forget=may_be_torn)
    except* AssertionError:
        # After a clean stop nobody looks for the next sound batch. Who is asked for what is there says what to do.
        partition = str(Path(path).parent)
        assert f"barnabas log repair --salvage {partition}" in caplog.text, where
        disk.locks.clear()
        apply_changes(disk, plan_repair(disk, open_partition(disk, partition), salvage=True).changes)
        async with broker_to_ask(DATA, SETTINGS, disk=disk) as ask:
            await judge(ask, f"{where}, repaired", path, may_forget=True)


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
async def test_one_damaged_byte_costs_a_broker_one_batch(clean, caplog):
    caplog.set_level(logging.ERROR)
    rng = drawing()
    sound = await written(clean=clean)
    failures = []
    for path, at in places(sound, rng, clean=clean):
        bits = 1 << rng.randrange(8)
        where = f"byte {at} of {path}, bits {bits:#x}"
        if path.endswith(NO_CHECKSUM):
            continue
        disk = sound.fork()
        files(disk.root)[path].content[at] ^= bits
        caplog.clear()
        try:
            may_be_torn = not clean and path.endswith(names.LOG) and at >= last_batch(sound, path)
            await judge_start(disk, where, path, caplog, may_be_torn=may_be_torn)
        except (StorageError, StartupError) as error:
            if names.META_PROPERTIES not in path or f"rm {path}" not in str(error):
                failures.append(f"{where}: refused: {error}")
        except (BaseExceptionGroup, AssertionError) as error:
            failures.append(f"{where}: {innermost(error)!r}")
    assert not failures, "\n".join([f"{len(failures)} places", *failures[:40]])


def innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
