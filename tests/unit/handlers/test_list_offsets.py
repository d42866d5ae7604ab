"""ListOffsets: ends of a partition and times, as consumers of both isolation levels, brokers and tools see them."""

import pytest

from barnabas.records.validate import Origin
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from tests.support.broker import ask_for_topic, broker_to_ask
from tests.support.logs import NOW_MS, append, batch, marker

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CONSUMER, DEBUGGING = -1, -2
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
VERSIONS = range(1, 12)


@pytest.fixture
async def ask(tmp_path):
    """A partition with 2 records, 3 of an open transaction, 1 after it, and 1 that is not committed to all replicas."""
    async with broker_to_ask(tmp_path) as asked:
        await ask_for_topic(asked, partitions=1)
        log = asked.services.replicas.leader("t", 0, -1).log
        append(log, batch(b"a", b"b", timestamp=NOW_MS))
        append(log, batch(b"c", b"d", b"e", timestamp=NOW_MS + 10, producer_id=1, producer_epoch=0,
                          base_sequence=0, transactional=True))  # fmt: skip
        append(log, batch(b"f", timestamp=NOW_MS + 20))
        log.append_as_leader(batch(b"g", timestamp=NOW_MS + 30), leader_epoch=0, now_ms=NOW_MS)
        assert (log.last_stable_offset, log.high_watermark, log.log_end_offset) == (2, 6, 7)
        asked.log = log
        yield asked


async def asked_for(ask, timestamp, version, isolation_level=READ_UNCOMMITTED, replica_id=CONSUMER):
    query = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[query])
    request = ListOffsetsRequest(replica_id=replica_id, topics=[topic])
    if version >= 2:
        request.isolation_level = isolation_level
    return (await ask(request, version)).topics[0].partitions[0]


async def offset_of(ask, *args, **options):
    answer = await asked_for(ask, *args, **options)
    assert answer.error_code == 0
    return answer.offset


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_latest_offset_depends_on_who_asks(ask, version):
    assert await offset_of(ask, LATEST, version) == 6
    assert await offset_of(ask, LATEST, version, replica_id=DEBUGGING) == 7
    assert await offset_of(ask, LATEST, version, READ_COMMITTED) == (2 if version >= 2 else 6)


async def test_committed_latest_offset_moves_when_the_transaction_ends(ask):
    append(ask.log, marker(commit=True, producer_id=1), origin=Origin.COORDINATOR)
    assert ask.log.last_stable_offset == 8
    assert await offset_of(ask, LATEST, 7, READ_COMMITTED) == 8


@pytest.mark.parametrize(
    ("after_ms", "uncommitted", "committed"), [(0, 0, 0), (1, 2, -1), (10, 2, -1), (11, 5, -1), (21, -1, -1)]
)
async def test_a_time_is_found_below_what_the_consumer_may_read(ask, after_ms, uncommitted, committed):
    assert await offset_of(ask, NOW_MS + after_ms, 7) == uncommitted
    answer = await asked_for(ask, NOW_MS + after_ms, 7, READ_COMMITTED)
    assert (answer.error_code, answer.offset) == (0, committed)
    if committed < 0:
        assert (answer.timestamp, answer.leader_epoch) == (-1, -1)
    assert await offset_of(ask, NOW_MS + 21, 7, replica_id=DEBUGGING) == 6


async def test_time_is_answered_with_the_record_time_and_leader_epoch(ask):
    answer = await asked_for(ask, NOW_MS + 1, 7)
    assert (answer.timestamp, answer.offset, answer.leader_epoch) == (NOW_MS + 10, 2, 0)


@pytest.mark.parametrize("timestamp", [EARLIEST, EARLIEST_LOCAL])
async def test_the_earliest_offset_is_where_the_log_begins(ask, timestamp):
    assert await offset_of(ask, timestamp, 11) == 0
    ask.log.delete_records_before(3)
    for level in (READ_UNCOMMITTED, READ_COMMITTED):
        assert await offset_of(ask, timestamp, 11, level) == 3


@pytest.mark.parametrize("timestamp", [LATEST_TIERED, EARLIEST_PENDING])
async def test_there_is_nothing_in_tiered_storage(ask, timestamp):
    answer = await asked_for(ask, timestamp, 11)
    assert (answer.error_code, answer.timestamp, answer.offset, answer.leader_epoch) == (0, -1, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "since"),
    [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (EARLIEST_PENDING, 11)],
)
async def test_special_times_have_their_meaning_from_their_version_on(ask, timestamp, since):
    for version in VERSIONS:
        code = 0 if version >= since else ErrorCode.UNSUPPORTED_VERSION
        assert (await asked_for(ask, timestamp, version)).error_code == code, version
    assert (await asked_for(ask, -7, 11)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_the_leader_epoch_is_told_since_version_4(ask):
    for version in VERSIONS:
        assert (await asked_for(ask, LATEST, version)).leader_epoch == (0 if version >= 4 else -1)


async def test_an_empty_partition_begins_in_its_leaders_epoch(tmp_path):
    """As in Kafka, where leaders note their epoch at the log end when they begin."""
    async with broker_to_ask(tmp_path) as asked:
        await ask_for_topic(asked, partitions=1)
        for timestamp in (EARLIEST, EARLIEST_LOCAL):
            answer = await asked_for(asked, timestamp, 11)
            assert (answer.offset, answer.leader_epoch) == (0, 0)
        log = asked.services.replicas.leader("t", 0, -1).log
        append(log, batch(b"a", b"b"))
        log.delete_records_before(2)
        answer = await asked_for(asked, EARLIEST, 11)
        assert (answer.offset, answer.leader_epoch) == (2, 0)
