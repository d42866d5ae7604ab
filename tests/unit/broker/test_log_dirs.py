"""Several log dirs: a disk that fails takes its own partitions along and no others; one that is full can be read."""

import errno
from contextlib import asynccontextmanager

import pytest
import trio

from barnabas.errors import StorageError
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.wire.generated.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from barnabas.wire.generated.create_partitions import CreatePartitionsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.describe_log_dirs import DescribeLogDirsRequest
from barnabas.wire.generated.elect_leaders import ElectLeadersRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.metadata import MetadataRequest
from tests.support.brokers import running

METADATA = "/a/__cluster_metadata-0/00000000000000000000.log"
DIRS = ("/a", "/b", "/c")


@pytest.fixture
def disk():
    return MemoryDisk()


@asynccontextmanager
async def three_dirs(disk):
    async with running(DIRS, disk) as client:
        await client.create("t", 6)
        for partition in range(6):
            assert (await client.produce("t", partition, b"first")).error_code == 0
        yield client


def places(client):
    return {log.partition: log.log_dir for log in client.services.logs if log.topic == "t"}


async def test_a_dir_that_cannot_be_made_is_explained(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"log dir .*/file/data: .*Not a directory"):
        async with running([f"{tmp_path}/file/data"]):
            pass


async def test_new_partitions_go_to_the_dir_with_the_fewest(disk):
    async with three_dirs(disk) as client:
        assert sorted(places(client).values()) == ["/a", "/a", "/b", "/b", "/c", "/c"]
        await client.create("more", 3)
        assert {log.log_dir for log in client.services.logs if log.topic == "more"} == set(DIRS)


@pytest.mark.parametrize("operation", ["write", "sync", "read"])
async def test_a_dir_that_fails_goes_offline_alone(disk, operation):
    async with three_dirs(disk) as client:
        where = places(client)
        lost = {partition for partition, path in where.items() if path == "/b"}
        # All of /b is broken from now on, whatever is asked of it.
        disk.fault = lambda op, path: (
            OSError(errno.EIO, "broken") if path.startswith("/b/") and op == operation else None
        )
        index = min(lost)
        if operation == "write":
            assert (await client.produce("t", index, b"second")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        elif operation == "read":
            assert await client.fetch("t", index) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        else:
            for task in client.services.logs:
                if task.log_dir == "/b":
                    with pytest.raises(Exception, match="in doubt") as failure:
                        task.flush(0)
            client.services.failures.failed(failure.value)
        for partition in range(6):
            expected = (ErrorCode.KAFKA_STORAGE_ERROR, []) if partition in lost else (0, [b"first"])
            assert await client.fetch("t", partition) == expected
            code = (await client.produce("t", partition, b"second")).error_code
            assert code == (ErrorCode.KAFKA_STORAGE_ERROR if partition in lost else 0)
        response = await client.ask(DescribeLogDirsRequest(topics=None), 4)
        assert {result.log_dir: result.error_code for result in response.results} == {
            "/a": 0, "/b": ErrorCode.KAFKA_STORAGE_ERROR, "/c": 0,
        }  # fmt: skip
        await client.create("new", 4)
        assert {log.log_dir for log in client.services.logs if log.topic == "new"} == {"/a", "/c"}


async def test_what_was_lost_is_not_made_anew_and_empty(disk):
    async with three_dirs(disk) as client:
        lost = {partition for partition, path in places(client).items() if path == "/b"}
        disk.fault = lambda _, path: OSError(errno.EIO, "broken") if path.startswith("/b") else None
        await client.produce("t", min(lost), b"x")
        grow = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=8, assignments=None)
        response = await client.ask(CreatePartitionsRequest(topics=[grow], timeout_ms=60_000), 1)
        assert response.results[0].error_code == 0
        assert set(places(client)) == set(range(8)) - lost
    async with running(DIRS, disk) as client:
        assert set(places(client)) == set(range(8)) - lost
        assert (await client.fetch("t", min(lost)))[0] == ErrorCode.KAFKA_STORAGE_ERROR
    disk.fault = None
    async with running(DIRS, disk) as client:
        for partition in range(6):
            assert await client.fetch("t", partition) == (0, [b"first"])


async def test_without_the_first_dir_no_topic_and_no_broker_starts(disk):
    async with three_dirs(disk) as client:
        where = places(client)
        disk.fault = lambda _, path: OSError(errno.EIO, "broken") if path.startswith("/a") else None
        for partition, path in where.items():
            code = (await client.produce("t", partition, b"second")).error_code
            assert code == (ErrorCode.KAFKA_STORAGE_ERROR if path == "/a" else 0)
        grow = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=8, assignments=None)
        response = await client.ask(CreatePartitionsRequest(topics=[grow], timeout_ms=60_000), 1)
        assert response.results[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.RaisesGroup(StorageError, flatten_subgroups=True, allow_unwrapped=True):
        async with running(DIRS, disk):
            pass
    disk.fault = None
    async with running(DIRS, disk) as client:
        for partition in range(6):
            assert await client.fetch("t", partition) == (
                0, [b"first"] if where[partition] == "/a" else [b"first", b"second"],
            )  # fmt: skip


async def test_the_last_dir_that_fails_ends_the_broker(disk):
    async with running(["/a"], disk) as client:
        await client.create("t")
        disk.fault = lambda op, path: OSError(errno.EIO, "broken") if op == "write" else None
        assert (await client.produce("t", 0, b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await client.broker.stopping.wait()


async def test_full_disk_is_readable_and_writable_after_space_returns(disk, caplog):
    async with running(["/a"], disk) as client:
        await client.create("t", internal_segment_bytes="400")
        producer = {"producer_id": 5, "producer_epoch": 0}
        expected = []
        for n in range(3):
            assert (await client.produce("t", 0, b"%d" % n * 50, base_sequence=n, **producer)).error_code == 0
            expected.append(b"%d" % n * 50)
        for room in (0, 1, 60, 110):
            disk.room = room
            for _ in range(2):
                response = await client.produce("t", 0, b"x" * 50, base_sequence=3, **producer)
                assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                assert (await client.fetch("t", 0, offset=2)) == (0, expected[2:])
        assert client.services.logs.online == ["/a"]
        assert caplog.text.count("until there is room again") == 1
        disk.room = None
        assert (await client.produce("t", 0, b"x" * 50, base_sequence=3, **producer)).base_offset == 3
        assert (
            await client.produce("t", 0, b"x" * 50, base_sequence=3, **producer)
        ).base_offset == 3  # a duplicate
        log = client.services.logs.get("t", 0)
        assert (log.log_end_offset, log.epochs.entries) == (4, [(0, 0)])
    async with running(["/a"], disk) as client:
        assert client.services.logs.get("t", 0).log_end_offset == 4


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_too_many_open_files_do_not_take_a_dir_offline(disk, number, caplog):
    async with running(["/a"], disk) as client:
        await client.create("t", internal_segment_bytes="400", flush_messages="1")
        services = client.services
        codes = set()
        for n in range(8):  # some of which begin a new segment
            disk.fault = lambda op, path: OSError(number, "too many") if op in ("open", "create") else None
            refused = (await client.produce("t", 0, b"%d" % n * 50)).error_code
            assert refused in (0, ErrorCode.KAFKA_STORAGE_ERROR)
            codes.add(refused)
            disk.fault = None
            if refused:
                assert (await client.produce("t", 0, b"%d" % n * 50)).error_code == 0
            assert await client.fetch("t", 0, offset=n) == (0, [b"%d" % n * 50])
        assert services.logs.online == ["/a"]
        assert codes == {0, ErrorCode.KAFKA_STORAGE_ERROR}
    async with running(["/a"], disk) as client:
        for n in range(8):
            code, values = await client.fetch("t", 0, offset=n)
            assert (code, values[0]) == (0, b"%d" % n * 50)


async def test_answer_is_cut_short_when_no_more_files_can_be_opened(disk):
    async with running(["/a"], disk) as client:
        await client.create("t", 3)
        for n in range(3):
            assert (await client.produce("t", n, b"x")).error_code == 0

        async def fetch():
            for log in client.services.logs:
                log.active.release()
            parts = [
                FetchRequest.FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1000)
                for n in range(3)
            ]
            topic = FetchRequest.FetchTopic(topic="t", partitions=parts)
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=10_000, topics=[topic])
            answer = (await client.ask(request, 11)).responses[0].partitions
            return [(each.error_code, len(each.records) > 0, each.high_watermark) for each in answer]

        disk.fault = lambda op, path: OSError(errno.EMFILE, "too many") if "t-0/" not in path else None
        assert await fetch() == [(0, True, 1), (0, False, 1), (0, False, 1)]
        disk.fault = lambda op, path: OSError(errno.EMFILE, "too many")
        failed = (ErrorCode.KAFKA_STORAGE_ERROR, False, -1)
        assert await fetch() == [failed, failed, failed]
        disk.fault = None
        assert await fetch() == [(0, True, 1), (0, True, 1), (0, True, 1)]


async def test_disk_that_fills_during_housekeeping_stays_online(disk):
    async with running(["/a"], disk) as client:
        await client.create("t")
        await client.produce("t", 0, b"x")
        disk.room = 0
        services = client.services
        with pytest.raises(StorageError, match="no space") as failure:
            services.logs.write_checkpoints()
        assert services.failures.failed(failure.value).code == ErrorCode.KAFKA_STORAGE_ERROR
        assert services.logs.online == ["/a"]
        assert await client.fetch("t", 0) == (0, [b"x"])
        disk.room = None


async def alter(client, path, topic, *partitions, version=2):
    asked = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))
    log_dir = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[asked])
    response = await client.ask(AlterReplicaLogDirsRequest(dirs=[log_dir]), version)
    return {result.partition_index: result.error_code for result in response.results[0].partitions}


async def until(condition):
    while not condition():
        await trio.sleep(0.001)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_log_moves_while_it_is_written_and_read(disk, version, monkeypatch):
    monkeypatch.setattr("barnabas.log.moving.LAST_STEP_BYTES", 0)
    async with three_dirs(disk) as client:
        expected = [b"first"]
        services = client.services
        with trio.fail_after(30):
            for target in ("/c", "/a", "/b"):
                assert await alter(client, target, "t", 0, version=version) == {0: 0}
                for n in range(20):
                    response = await client.produce("t", 0, b"%d" % n)
                    assert (response.error_code, response.base_offset) == (0, len(expected))
                    expected.append(b"%d" % n)
                await until(lambda: not len(services.logs.moves))
                assert places(client)[0] == target
                assert await client.fetch("t", 0) == (0, expected)


async def test_a_move_under_way_is_described(disk):
    async with three_dirs(disk) as client:
        services = client.services
        before = places(client)[0]
        target = next(path for path in DIRS if path != before)
        services.logs.begin_move("t", 0, target, 0)  # and nobody carries it out
        await client.produce("t", 0, b"x" * 100)
        asked = DescribeLogDirsRequest.DescribableLogDirTopic(topic="t", partitions=[0])
        response = await client.ask(DescribeLogDirsRequest(topics=[asked]), 4)
        log_places = {
            result.log_dir: (partition.is_future_key, partition.offset_lag, partition.partition_size > 100)
            for result in response.results
            for topic in result.topics
            for partition in topic.partitions
        }
        assert log_places == {before: (False, 0, True), target: (True, 2, False)}
        assert all(result.total_bytes >= result.usable_bytes > 0 for result in response.results)


async def test_moves_that_cannot_be_are_refused_as_by_kafka(disk):
    async with three_dirs(disk) as client:
        assert await alter(client, "/nowhere", "t", 0) == {0: ErrorCode.LOG_DIR_NOT_FOUND}
        assert await alter(client, "/a", "n" * 249, 0) == {0: ErrorCode.INVALID_TOPIC_EXCEPTION}
        assert await alter(client, "/c", "later", 0) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        await client.create("later")
        assert client.services.logs.get("later", 0).log_dir == "/c"
        disk.fault = lambda _, path: OSError(errno.EIO, "broken") if path.startswith("/b/") else None
        assert await alter(client, "/b", "later", 0) == {0: 0}
        with trio.fail_after(30):
            await until(lambda: "/b" in client.services.logs.offline)
        assert client.services.logs.get("later", 0).log_dir == "/c"
        assert await alter(client, "/b", "later", 0) == {0: ErrorCode.KAFKA_STORAGE_ERROR}
        lost = next(n for n in range(6) if client.services.logs.get("t", n) is None)
        assert await alter(client, "/a", "t", lost) == {lost: ErrorCode.KAFKA_STORAGE_ERROR}


async def test_log_of_a_deleted_topic_is_not_taken_for_its_successor(disk):
    async with running(["/a", "/b"], disk) as client:
        await client.create("other")
        await client.create("t")
        await client.produce("t", 0, b"old")
        assert client.services.logs.get("t", 0).log_dir == "/b"
        disk.fault = lambda _, path: OSError(errno.EIO, "broken") if path.startswith("/b") else None
        await client.produce("t", 0, b"old")
        await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000), 1)
    disk.fault = None
    kept = disk.read(METADATA)
    async with running(["/a"], disk) as client:
        await client.create("t")
        client.services.logs.delete("t", 0, 0)  # as if the new topic's partition had not been made yet
    assert disk.read(METADATA) != kept
    async with running(["/a", "/b"], disk) as client:
        assert await client.fetch("t", 0) == (0, [])
        assert (await client.produce("t", 0, b"new")).base_offset == 0
    assert [entry.name for entry in disk.list("/b") if entry.name.endswith("-stray")]


async def elected(client, kind, *partitions):
    asked = (
        [ElectLeadersRequest.TopicPartitions(topic="t", partitions=list(partitions))] if partitions else None
    )
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=1_000)
    response = await client.ask(request, 2)
    return {
        result.partition_id: result.error_code
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


async def leaders(client):
    described = (
        await client.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 8)
    ).topics[0]
    return {
        part.partition_index: (part.error_code, part.leader_id, part.leader_epoch, part.offline_replicas)
        for part in described.partitions
    }


async def test_dir_left_out_takes_its_partitions_until_it_returns(disk, caplog):
    async with three_dirs(disk) as client:
        lost = {partition for partition, path in places(client).items() if path == "/b"}
        me = client.services.broker_id
    for epoch in (1, 2):  # it is not forgotten over another start
        async with running(("/a", "/c"), disk) as client:
            assert "kafka-leader-election" in caplog.text
            assert set(places(client)) == set(range(6)) - lost
            for partition in range(6):
                online = partition not in lost
                code = ErrorCode.NONE if online else ErrorCode.KAFKA_STORAGE_ERROR
                assert (await client.produce("t", partition, b"second")).error_code == code
                told = (0, me, epoch, []) if online else (ErrorCode.LEADER_NOT_AVAILABLE, -1, epoch, [me])
                assert (await leaders(client))[partition] == told
            await client.create("new", 2)  # what is new is made where there is room
            await client.ask(DeleteTopicsRequest(topic_names=["new"], timeout_ms=60_000), 5)
    async with running(DIRS, disk) as client:
        for partition in lost:
            assert await client.fetch("t", partition) == (0, [b"first"])
        assert {told[0] for told in (await leaders(client)).values()} == {0}
    caplog.clear()
    async with running(DIRS, disk) as client:
        assert "kafka-leader-election" not in caplog.text


async def test_unclean_election_gives_up_what_a_lost_dir_held(disk, caplog):
    preferred, unclean = 0, 1
    async with three_dirs(disk) as client:
        lost = sorted(partition for partition, path in places(client).items() if path == "/b")
        kept = min(set(range(6)) - set(lost))
    async with running(("/a", "/c"), disk) as client:
        assert await elected(client, preferred, lost[0]) == {
            lost[0]: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        }
        assert await elected(client, unclean, lost[0], kept) == {
            lost[0]: 0,
            kept: ErrorCode.ELECTION_NOT_NEEDED,
        }
        assert (await leaders(client))[lost[0]] == (0, client.services.broker_id, 2, [])
        assert await client.fetch("t", lost[0]) == (0, [])
        assert (await client.produce("t", lost[0], b"again")).error_code == 0
        assert (await client.fetch("t", lost[1]))[0] == ErrorCode.KAFKA_STORAGE_ERROR
    async with running(("/a", "/c"), disk) as client:
        assert await client.fetch("t", lost[0]) == (0, [b"again"])
        assert (await client.fetch("t", lost[1]))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert await elected(client, unclean) == dict.fromkeys(lost[1:], 0)
        assert await elected(client, unclean) == {}
        for partition in set(range(6)) - set(lost):
            assert await client.fetch("t", partition) == (0, [b"first"])
    caplog.clear()
    async with running(("/a", "/c"), disk) as client:
        assert "kafka-leader-election" not in caplog.text, "nothing is missing any more"


async def test_what_is_in_a_dir_that_is_only_offline_is_not_given_up(disk):
    async with three_dirs(disk) as client:
        lost = min(partition for partition, path in places(client).items() if path == "/b")
        disk.fault = lambda _, path: OSError(errno.EIO, "broken") if path.startswith("/b") else None
        await client.produce("t", lost, b"x")
        assert await elected(client, 1, lost) == {lost: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    async with running(DIRS, disk) as client:
        assert await elected(client, 1, lost) == {lost: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    disk.fault = None
    async with running(DIRS, disk) as client:
        assert await client.fetch("t", lost) == (0, [b"first"])


async def test_of_dirs_without_metadata_what_is_not_found_is_offline(disk):
    """The first dir is gone, and with it what says which topics there are."""
    async with three_dirs(disk) as client:
        last = max(places(client))
        present = {partition for partition, path in places(client).items() if path in ("/b", "/c")}
        assert last in present
    for _ in range(2):
        async with running(("/new", "/b", "/c"), disk) as client:
            for partition in range(6):
                expected = (0, [b"first"]) if partition in present else (ErrorCode.KAFKA_STORAGE_ERROR, [])
                assert await client.fetch("t", partition) == expected
    async with running(("/new", "/b", "/c"), disk) as client:
        assert await elected(client, 1) == dict.fromkeys(set(range(6)) - present, 0)
