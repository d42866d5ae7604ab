"""Fetch and ListOffsets of what is in tiered storage only (KIP-405, KIP-1005, KIP-1075)."""

import threading

import pytest
import trio

from barnabas.records.batch import iter_batches, read_records
from barnabas.records.validate import Origin
from barnabas.tiered.segment import SegmentState
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.support.broker import NOW_MS
from tests.support.logs import marker
from tests.support.plain_requests import ask
from tests.support.tiering import tiered_broker

EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -2, -4, -5, -6


@pytest.fixture
async def tier(tmp_path):
    async with tiered_broker(tmp_path) as tier:
        await tier.make()
        for _ in range(30):
            tier.append(1)
            tier.asked.clock.now_ms += 10
        await tier.rounds()
        yield tier


async def fetch(
    tier, *offsets, version=17, max_bytes=1 << 20, isolation=0, replica_id=-1, topics=("t",), **options
):
    """The answers of one request: one for each topic and offset."""
    services = tier.asked.services
    named = []
    for topic, offset in zip(topics, offsets, strict=True):
        partition = FetchRequest.FetchPartition(0, fetch_offset=offset, partition_max_bytes=max_bytes)
        topic_id = services.metadata.image.topics[topic].id
        named.append(FetchRequest.FetchTopic(topic, topic_id, [partition]))
    request = FetchRequest(
        replica_id=replica_id if version < 15 else -1,
        replica_state=FetchRequest.ReplicaState(replica_id, -1) if version >= 15 else FetchRequest.ReplicaState(),
        max_wait_ms=options.pop("max_wait_ms", 0), min_bytes=options.pop("min_bytes", 0),
        max_bytes=options.pop("total", 1 << 24), isolation_level=isolation, session_epoch=-1, topics=named,
    )  # fmt: skip
    response = await tier.asked(request, version)
    return [topic.partitions[0] for topic in response.responses]


def offsets_in(answer):
    return [
        record.offset for at, _ in iter_batches(answer.records) for record in read_records(answer.records, at)
    ]


async def offset_of(tier, timestamp, version=11, topic="t"):
    partition = ListOffsetsRequest.ListOffsetsPartition(0, timestamp=timestamp)
    named = ListOffsetsRequest.ListOffsetsTopic(topic, [partition])
    request = ListOffsetsRequest(-1, 0, [named], timeout_ms=300 if version >= 10 else 0)
    return (await tier.asked(request, version)).topics[0].partitions[0]


# --- Fetch ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 12, 17])
async def test_log_is_read_from_its_start_to_its_end(tier, version):
    offsets = []
    while len(offsets) < 30:
        (answer,) = await fetch(tier, len(offsets), version=version)
        assert answer.error_code == 0
        assert offsets_in(answer)[0] == len(offsets)
        offsets += offsets_in(answer)
    assert offsets == list(range(30))


async def test_old_clients_get_message_sets(tier):
    (answer,) = await fetch(tier, 0, version=2)
    ((_, header), *_) = iter_batches(answer.records)
    assert (header.magic, header.base_offset) == (1, 0)


async def test_first_batch_comes_whole_however_small_the_limit_is(tier):
    (answer,) = await fetch(tier, 3, max_bytes=1)
    assert offsets_in(answer) == [3]


async def test_offset_within_a_segment_begins_there(tier):
    (answer,) = await fetch(tier, 8)
    assert offsets_in(answer)[0] == 8


async def test_several_partitions_are_read_for_one_request(tier):
    await tier.store_all("u")
    answers = await fetch(tier, 0, 1, topics=("t", "u"))
    assert [offsets_in(answer)[0] for answer in answers] == [0, 1]


async def test_partition_that_finds_no_room_in_the_answer_is_left_out(tier):
    await tier.store_all("u")
    first, second = await fetch(tier, 0, 0, topics=("t", "u"), total=1)
    assert offsets_in(first) == [0]
    assert (second.error_code, second.records) == (0, b"")
    assert tier.tiered.counts.of("u").reads == 0


async def test_reads_of_one_request_are_not_kept_for_others(tier):
    await tier.store_all("u")
    for count in (2, 4):
        await fetch(tier, 0, 0, topics=("t", "u"))
        assert sum(tier.tiered.counts.of(topic).reads for topic in "tu") == count


async def test_offset_below_the_log_start_is_out_of_range(tier):
    tier.log().delete_records_before(4)
    (answer,) = await fetch(tier, 3)
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    (answer,) = await fetch(tier, 4)
    assert offsets_in(answer)[0] == 4


async def test_missing_segment_is_an_error_that_resets_no_client(tier):
    for path in tier.directory.rglob("*.log"):
        path.unlink()
    (answer,) = await fetch(tier, 0)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (await offset_of(tier, NOW_MS + 1)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_store_that_is_away_has_no_offset_out_of_range(tier):
    root, away = tier.directory / "kafka-tiered-storage", tier.directory / "away"
    root.rename(away)
    (answer,) = await fetch(tier, 0, isolation=1)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    away.rename(root)
    (answer,) = await fetch(tier, 0, isolation=1)
    assert offsets_in(answer)[0] == 0


async def test_segment_deleted_while_it_is_read_is_out_of_range(tier):
    await fetch(tier, 0)
    tier.store.gate = threading.Event()
    answers = []

    async def read() -> None:
        answers.extend(await fetch(tier, 0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        while not tier.tiered.reads.pending:
            await trio.sleep(0.001)
        tier.log().delete_records_before(20)
        await tier.rounds()
        tier.store.gate.set()
    assert [answer.error_code for answer in answers] == [ErrorCode.OFFSET_OUT_OF_RANGE]


async def test_failing_store_is_an_error_of_its_partition(tier):
    tier.store.failing = {"read"}
    (answer,) = await fetch(tier, 0)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert tier.tiered.counts.of("t").failed_reads == 1
    tier.store.failing = set()
    (answer,) = await fetch(tier, 0)
    assert answer.error_code == 0


async def test_slow_store_is_no_error_and_answers_the_next_request(tmp_path):
    async with tiered_broker(tmp_path, remote_fetch_max_wait_ms="50") as tier:
        await tier.store_all()
        tier.store.gate = threading.Event()
        (answer,) = await fetch(tier, 0)
        assert (answer.error_code, answer.records) == (0, b"")
        assert answer.high_watermark == 30
        tier.store.gate.set()
        while tier.tiered.reads.pending:
            await trio.sleep(0.01)
        reads = tier.store.reads
        (answer,) = await fetch(tier, 0)
        assert offsets_in(answer)[0] == 0
        assert tier.store.reads == reads


async def test_too_many_waiting_reads_are_refused(tmp_path):
    few = {"remote_log_reader_threads": "1", "remote_log_reader_max_pending_tasks": "1"}
    async with tiered_broker(tmp_path, remote_fetch_max_wait_ms="10", **few) as tier:
        await tier.store_all()
        tier.store.gate = threading.Event()
        codes = [(await fetch(tier, offset))[0].error_code for offset in range(3)]
        assert codes == [0, 0, ErrorCode.UNKNOWN_SERVER_ERROR]
        tier.store.gate.set()


# --- reading ahead --------------------------------------------------------------------------------------------------

TWO_BATCHES = 800


@pytest.fixture
async def read_on(tmp_path):
    """A tier of which offsets 0 to 3 were read by two fetches, and offset 4, the rest of its segment, ahead."""
    async with tiered_broker(tmp_path, remote_log_manager_fetch_max_bytes_per_second="200") as tier:
        await tier.store_all(index_interval_bytes="1")
        for offset in (0, 2):
            (answer,) = await fetch(tier, offset, max_bytes=TWO_BATCHES)
            assert offsets_in(answer) == [offset, offset + 1]
        await until_read_bytes(tier, 2 * TWO_BATCHES + 1)
        yield tier


async def until_read_bytes(tier, size):
    with trio.fail_after(5):
        while tier.tiered.counts.of("t").read_bytes < size:
            await trio.sleep(0.005)


@pytest.mark.parametrize("max_bytes", [1, 400, TWO_BATCHES, 1 << 20])
@pytest.mark.parametrize("isolation", [0, 1])
async def test_sequential_reader_gets_each_record_once(tier, isolation, max_bytes):
    await tier.store_all("u", index_interval_bytes="1")
    offsets = []
    while len(offsets) < 30:
        (answer,) = await fetch(tier, len(offsets), topics=("u",), max_bytes=max_bytes, isolation=isolation)
        assert (answer.error_code, answer.aborted_transactions) == (0, [] if isolation else None)
        offsets += offsets_in(answer)
    assert offsets == list(range(30))


async def test_sequential_reader_is_answered_while_the_store_hangs(read_on):
    read_on.store.gate = threading.Event()
    (answer,) = await fetch(read_on, 4, max_bytes=TWO_BATCHES, isolation=1)
    assert (offsets_in(answer), answer.aborted_transactions) == ([4], [])
    read_on.store.gate.set()


async def test_failure_ahead_is_an_error_of_the_fetch_that_meets_it(read_on):
    read_on.store.failing = {"read"}
    for offset, code in ((4, 0), (5, ErrorCode.UNKNOWN_SERVER_ERROR)):
        (answer,) = await fetch(read_on, offset, max_bytes=TWO_BATCHES)
        assert answer.error_code == code
    assert read_on.tiered.counts.of("t").failed_reads == 1
    read_on.store.failing = set()
    (answer,) = await fetch(read_on, 5, max_bytes=TWO_BATCHES)
    assert offsets_in(answer) == [5, 6]


async def test_records_ahead_of_a_deleted_segment_are_out_of_range(read_on):
    (segments,) = read_on.tiered.metadata.partitions.values()
    await read_on.tiered.metadata.advance(segments.segments()[0], SegmentState.DELETE_STARTED)
    (answer,) = await fetch(read_on, 4, max_bytes=TWO_BATCHES)
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_records_ahead_count_for_the_limit_of_reads(read_on):
    await fetch(read_on, 4, max_bytes=TWO_BATCHES)
    await until_read_bytes(read_on, 3 * TWO_BATCHES)
    (answer,) = await fetch(read_on, 5, max_bytes=TWO_BATCHES)
    assert (answer.error_code, answer.records, read_on.tiered.counts.throttled_reads) == (0, b"", 1)


async def test_used_up_quota_leaves_nothing_to_read(tmp_path):
    async with tiered_broker(tmp_path, remote_log_manager_fetch_max_bytes_per_second="1") as tier:
        await tier.store_all()
        (first,) = await fetch(tier, 0)
        (second,) = await fetch(tier, 0)
        assert (bool(first.records), second.error_code, second.records) == (True, 0, b"")
        assert tier.tiered.counts.throttled_reads == 1


async def test_damaged_index_is_an_error_of_its_partition(tier):
    for path in tier.directory.rglob("*.index"):
        path.write_bytes(b"\xff" * 8)
    (answer,) = await fetch(tier, 0)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_session_reads_on_in_the_tier(tier):
    image = tier.asked.services.metadata.image
    partition = FetchRequest.FetchPartition(0, fetch_offset=0, partition_max_bytes=1)
    topic = FetchRequest.FetchTopic("t", image.topics["t"].id, [partition])
    first = await tier.asked(
        FetchRequest(max_wait_ms=0, max_bytes=1 << 20, session_id=0, session_epoch=0, topics=[topic]), 17
    )
    partition.fetch_offset = 1
    second = await tier.asked(
        FetchRequest(
            max_wait_ms=0, max_bytes=1 << 20, session_id=first.session_id, session_epoch=1, topics=[topic]
        ),
        17,
    )
    assert [offsets_in(answer.responses[0].partitions[0]) for answer in (first, second)] == [[0], [1]]


async def test_aborted_transactions_are_found_in_later_segments(tmp_path):
    async with tiered_broker(tmp_path) as tier:
        log = await tier.make()
        replica = tier.asked.services.replicas.leader("t", 0)
        producer = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
        tier.append(1, base_sequence=0, **producer)
        tier.append(12)
        replica.appended(
            log.append_as_leader(
                marker(commit=False, producer_id=7), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR
            )
        )
        tier.append(20)
        await tier.rounds()
        (answer,) = await fetch(tier, 0, isolation=1, max_bytes=1)
        aborted = [(entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions]
        assert (offsets_in(answer), aborted) == ([0], [(7, 0)])
        (answer,) = await fetch(tier, 15, isolation=1, max_bytes=1)
        assert answer.aborted_transactions == []
        (answer,) = await fetch(tier, 0, max_bytes=1)
        assert answer.aborted_transactions is None


# --- share groups ---------------------------------------------------------------------------------------------------

FEW = {
    "offsets_topic_num_partitions": "1",
    "share_coordinator_state_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
}


async def test_share_group_acquires_records_out_of_the_tier(tmp_path):
    async with tiered_broker(tmp_path, **FEW) as tier:
        await tier.store_all()
        assert tier.log().local_log_start_offset > 20
        configs = [{"Name": "share.auto.offset.reset", "ConfigOperation": 0, "Value": "earliest"}]
        resource = {"ResourceType": 32, "ResourceName": "s", "Configs": configs}
        await ask(tier.asked, "IncrementalAlterConfigs", 1, {"Resources": [resource]})
        join = {"GroupId": "s", "MemberId": "m", "MemberEpoch": 0, "SubscribedTopicNames": ["t"]}
        assert (await ask(tier.asked, "ShareGroupHeartbeat", 1, join)).error_code == 0
        topic_id = tier.asked.services.metadata.image.topics["t"].id
        topics = [{"TopicId": topic_id, "Partitions": [{"PartitionIndex": 0, "AcknowledgementBatches": []}]}]
        acquired = []
        for epoch in range(10):
            request = {
                "GroupId": "s", "MemberId": "m", "ShareSessionEpoch": epoch, "MaxBytes": 1 << 20,
                "MaxRecords": 100, "BatchSize": 100, "Topics": topics if not epoch else [],
            }  # fmt: skip
            answer = await ask(tier.asked, "ShareFetch", 2, request)
            for part in [part for topic in answer.responses for part in topic.partitions]:
                assert part.error_code == 0
                for span in part.acquired_records:
                    acquired += range(span.first_offset, span.last_offset + 1)
        assert acquired == list(range(30))


# --- ListOffsets ----------------------------------------------------------------------------------------------------


async def test_ends_of_the_tiers_are_told(tier):
    log = tier.log()
    highest = log.highest_remote_offset
    answers = [
        (await offset_of(tier, timestamp)).offset
        for timestamp in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING)
    ]
    assert answers == [0, log.local_log_start_offset, highest, highest + 1]
    assert (await offset_of(tier, LATEST_TIERED)).leader_epoch == 0


async def test_without_anything_stored_all_is_pending(tmp_path):
    async with tiered_broker(tmp_path) as tier:
        await tier.make()
        assert (await offset_of(tier, EARLIEST_PENDING)).offset == -1
        tier.append(1)
        answers = [await offset_of(tier, timestamp) for timestamp in (LATEST_TIERED, EARLIEST_PENDING)]
        assert [(answer.offset, answer.error_code) for answer in answers] == [(-1, 0), (0, 0)]


@pytest.mark.parametrize("offset", [0, 3, 14, 29])
async def test_time_is_found_wherever_its_record_is(tier, offset):
    answer = await offset_of(tier, NOW_MS + 10 * offset)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, NOW_MS + 10 * offset)
    between = await offset_of(tier, NOW_MS + 10 * offset - 5)
    assert between.offset == offset


async def test_time_of_deleted_records_is_found_in_the_next_segment(tier):
    await tier.make("u")
    for timestamp in [NOW_MS + 500, *[NOW_MS] * 9, *[NOW_MS + 300] * 10, *[NOW_MS] * 10]:
        tier.append(1, "u", timestamp=timestamp)
    await tier.rounds()
    log = tier.log("u")
    assert log.local_log_start_offset > 15
    log.delete_records_before(1)
    offsets = [(await offset_of(tier, NOW_MS + delta_ms, topic="u")).offset for delta_ms in (0, 250)]
    assert offsets == [1, 10]


async def test_time_after_the_last_record_is_not_found(tier):
    answer = await offset_of(tier, NOW_MS + 1000)
    assert (answer.error_code, answer.offset) == (0, -1)


async def test_slow_look_for_a_time_is_timed_out(tier):
    tier.store.gate = threading.Event()
    answer = await offset_of(tier, NOW_MS)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert tier.tiered.counts.late_look_ups == 1
    tier.store.gate.set()


async def test_epochs_of_stored_records_are_known(tier):
    partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(0, leader_epoch=0)
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic("t", [partition])
    response = await tier.asked(OffsetForLeaderEpochRequest(-2, [topic]), 4)
    assert response.topics[0].partitions[0].end_offset == 30


async def times_of(tier, topics, timestamp, timeout_ms=5000):
    """Answers of one request for a time in several topics."""
    partition = ListOffsetsRequest.ListOffsetsPartition(0, timestamp=timestamp)
    named = [ListOffsetsRequest.ListOffsetsTopic(topic, [partition]) for topic in topics]
    response = await tier.asked(ListOffsetsRequest(-1, 0, named, timeout_ms=timeout_ms), 11)
    return [
        (topic.name, topic.partitions[0].error_code, topic.partitions[0].offset) for topic in response.topics
    ]


async def until_reads(tier, count):
    with trio.fail_after(5):
        while tier.store.reads < count:
            await trio.sleep(0.005)


@pytest.mark.parametrize("threads", [2, 10])
async def test_times_are_found_by_all_reader_threads_at_once(tmp_path, threads):
    topics = ["a", "b", "c", "d"]
    async with (
        tiered_broker(tmp_path, remote_log_reader_threads=str(threads)) as tier,
        trio.open_nursery() as nursery,
    ):
        for topic in topics:
            await tier.store_all(topic)
        tier.store.gate = threading.Event()
        answers = []

        async def look():
            answers.extend(await times_of(tier, [*topics, "none"], NOW_MS))

        nursery.start_soon(look)
        try:
            await until_reads(tier, min(threads, len(topics)))
            assert tier.store.reads == tier.tiered.reads.pending == min(threads, len(topics))
        finally:
            tier.store.gate.set()
    unknown = ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert answers == [*((topic, 0, 0) for topic in topics), unknown]


async def test_timeout_of_look_for_times_is_that_of_the_request(tmp_path):
    topics = [f"t{number}" for number in range(8)]
    async with tiered_broker(tmp_path, remote_log_reader_threads="2") as tier:
        for topic in topics:
            await tier.store_all(topic)
        tier.store.gate = threading.Event()
        begun = trio.current_time()
        answers = await times_of(tier, topics, NOW_MS, timeout_ms=300)
        assert 0.3 <= trio.current_time() - begun < 2
        assert {code for _, code, _ in answers} == {ErrorCode.REQUEST_TIMED_OUT}
        tier.store.gate.set()
        assert {answer[1:] for answer in await times_of(tier, topics, NOW_MS)} == {(0, 0)}
