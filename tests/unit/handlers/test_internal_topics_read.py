"""Coordinators distrust their topics: what they cannot have written is left out, with its place, and the rest is loaded."""

import logging
import re
from random import Random

import pytest
import trio

from barnabas.records.building import encode_batch
from barnabas.records.control import encode_end_marker
from barnabas.records.record import Record
from barnabas.serving import apis
from barnabas.wire import registry
from barnabas.wire.generated.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.wire.generated.describe_groups import DescribeGroupsRequest
from barnabas.wire.generated.describe_transactions import DescribeTransactionsRequest
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from barnabas.wire.generated.list_groups import ListGroupsRequest
from barnabas.wire.generated.list_transactions import ListTransactionsRequest
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.generated.offset_fetch import OffsetFetchRequest
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.generated.read_share_group_state import ReadShareGroupStateRequest
from barnabas.wire.generated.share_group_describe import ShareGroupDescribeRequest
from barnabas.wire.generated.streams_group_describe import StreamsGroupDescribeRequest
from tests.support.broker import NOW_MS, ask_for_topic, broker_to_ask
from tests.support.logs import batch
from tests.support.messages import all_messages, random_message

OFFSETS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
RECORD_TYPES = [
    (topic, type_id)
    for topic in (OFFSETS, TRANSACTIONS, SHARES)
    for type_id in registry.record_type_ids(topic)
]


async def begun(ask):
    """Have something of each coordinator's that must be there afterwards."""
    await ask_for_topic(ask)
    assert await commit(ask, 5) == 0
    begin = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1_000)
    assert (await ask(begin, 4)).error_code == 0
    await ask.services.topic_creation.ensure(SHARES)


async def commit(ask, offset):
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = await ask(OffsetCommitRequest(group_id="kept", topics=[topic]), 7)
    return answer.topics[0].partitions[0].error_code


async def committed(ask):
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = await ask(OffsetFetchRequest(group_id="kept", topics=[topic]), 5)
    assert answer.error_code == 0
    return answer.topics[0].partitions[0].committed_offset


async def transactional_ids(ask):
    answer = await ask(ListTransactionsRequest(), 0)
    assert answer.error_code == 0
    return {transaction.transactional_id for transaction in answer.transaction_states}


async def planted(ask, topic, records):
    """Append what no coordinator has written, as a user that may write anything; the offset of the first record."""
    ask.client_id = "__admin_client"
    data = ProduceRequest.PartitionProduceData(index=0, records=memoryview(bytearray(records)))
    topic_data = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    answer = await ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic_data]), 9)
    (told,) = answer.responses[0].partition_responses
    assert told.error_code == 0, told
    return told.base_offset


def batch_of(*pairs):
    return encode_batch([Record(n, NOW_MS, key, value) for n, (key, value) in enumerate(pairs)])


def number(value):
    return value.to_bytes(2, "big", signed=True)


def garbage_for(topic):
    """Keys and values that no coordinator writes to a topic, and a word of what the log says of each."""
    for type_id in registry.record_type_ids(topic):
        record_type = registry.record_type(topic, type_id)
        key = record_type.encode_key(random_message(all_messages()[record_type.key.name], 0, Random(type_id)))
        yield key[:-1], b"v", "no coordinator"
        yield key + b"x", b"v", "no coordinator"
        yield key, b"", "no coordinator"
        yield key, number(99), "there is no version"
        yield key, number(-1), "there is no version"
        yield key, number(record_type.value.min_version) + b"\xff" * 5, "no coordinator"
    yield b"", b"v", "too short for a type"
    yield b"k", b"v", "too short for a type"
    yield number(99) + b"anything", b"v", "its type 99 is not known; a newer version"
    yield number(-1), None, "its type -1 is not known"


@pytest.mark.parametrize("topic", [OFFSETS, TRANSACTIONS, SHARES])
async def test_records_are_refused_with_their_places(tmp_path, caplog, topic):
    garbage = list(garbage_for(topic))
    # The replay of this type ends with its key: it has no effect for any version.
    garbage = [row for row in garbage if row[0][:2] != number(9) or topic != OFFSETS]
    async with broker_to_ask(tmp_path, SETTINGS) as ask:
        await begun(ask)
        first = await planted(ask, topic, batch_of(*[(key, value) for key, value, _ in garbage]))
    async with broker_to_ask(tmp_path, SETTINGS) as ask:
        with caplog.at_level(logging.WARNING):
            assert await committed(ask) == 5
            assert "x" in await transactional_ids(ask)
            await asked_of_shares(ask)
    lines = {
        int(match[1]): record
        for record in caplog.records
        if (match := re.match(rf"{topic}-0: skipping the record at offset (\d+),", record.getMessage()))
    }
    assert sorted(lines) == list(range(first, first + len(garbage)))
    for offset, (_, _, word) in enumerate(garbage, first):
        assert word in lines[offset].getMessage()
        is_newer = "newer version" in word or "not known" in word
        assert lines[offset].levelno == (logging.WARNING if is_newer else logging.ERROR)


async def asked_of_shares(ask):
    read = ReadShareGroupStateRequest
    topic = read.ReadStateData(
        topic_id=ask.services.metadata.image.topics["t"].id, partitions=[read.PartitionData(partition=0)]
    )
    answer = await ask(read(group_id="g", topics=[topic]), 0)
    return answer.results[0].partitions[0].error_code


async def test_unreadable_batches_are_refused_and_the_rest_is_loaded(tmp_path, caplog):
    unreadable = batch(b"v", b"w")
    async with broker_to_ask(tmp_path, SETTINGS) as ask:
        await begun(ask)
        replica = ask.services.replicas.leader(OFFSETS, 0)
        places = []

        def append(data):
            places.append(replica.append_own(bytearray(data), now_ms=NOW_MS).last_offset)

        append(broken(unreadable))
        append(
            encode_batch(
                [Record(0, NOW_MS, number(0) + number(2), b"leader")], control=True, transactional=True,
                producer_id=7, producer_epoch=0,
            )
        )  # fmt: skip
        append(encode_batch([Record(0, NOW_MS, None, b"without a key")]))
        append(
            batch(
                b"v", key=number(2) + b"\0\1g", transactional=True, producer_id=7, producer_epoch=0,
                base_sequence=0,
            )
        )  # fmt: skip
        assert await commit(ask, 6) == 0
    async with broker_to_ask(tmp_path, SETTINGS) as ask:
        with caplog.at_level(logging.WARNING):
            assert await committed(ask) == 6
    for offset, word in zip(
        places,
        ("its records cannot be read", "ends no transaction", "has no key", "in a transaction"),
        strict=True,
    ):
        assert any(re.search(rf"\b{offset}\b", line) and word in line for line in caplog.messages), (
            offset,
            word,
            caplog.messages,
        )


def broken(data):
    """A batch with a right checksum, and a first record longer than the batch."""
    from barnabas.records.batch import HEADER_SIZE, compute_crc, read_header

    changed = bytearray(data)
    changed[HEADER_SIZE] = 0x7E
    crc = compute_crc(changed, 0, read_header(changed, 0))
    changed[17:21] = crc.to_bytes(4, "big")
    return changed


async def test_markers_are_refused_where_no_transaction_writes(tmp_path, caplog):
    async with broker_to_ask(tmp_path, SETTINGS) as ask:
        await begun(ask)
        marker = encode_end_marker(
            commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
        )
        replica = ask.services.replicas.leader(TRANSACTIONS, 0)
        offset = replica.append_own(bytearray(marker), now_ms=NOW_MS).last_offset
    async with broker_to_ask(tmp_path, SETTINGS) as ask:
        assert await transactional_ids(ask) == {"x"}
    assert f"{TRANSACTIONS}-0: skipping the record at offset {offset}," in caplog.text


@pytest.mark.parametrize("seed", [*range(12), 140])
async def test_whatever_can_be_read_breaks_no_coordinator(tmp_path, seed):
    """Values of any kind under keys of any kind, of a few groups: each coordinator answers all that is asked of it."""
    random = Random(seed)
    groups = {"a", "", "é→"}
    async with broker_to_ask(tmp_path, SETTINGS) as ask:
        await begun(ask)
        for topic in (OFFSETS, TRANSACTIONS, SHARES):
            pairs = [random_record(topic, random, groups) for _ in range(150)]
            await planted(ask, topic, batch_of(*pairs))
    async with broker_to_ask(tmp_path, SETTINGS) as ask, trio.open_nursery() as nursery:
        assert await committed(ask) == 5
        listed = await ask(ListGroupsRequest(), 5)
        assert listed.error_code == 0
        groups |= {group.group_id for group in listed.groups}
        ids = sorted(groups)
        await ask(DescribeGroupsRequest(groups=ids), 5)
        for kind in (ConsumerGroupDescribeRequest, ShareGroupDescribeRequest, StreamsGroupDescribeRequest):
            answer = await ask(kind(group_ids=ids), min(1, newest(kind)))
            assert len(answer.groups) == len(ids)
        txn_ids = await transactional_ids(ask)
        assert "x" in txn_ids
        await ask(DescribeTransactionsRequest(transactional_ids=sorted(txn_ids)), 0)
        await asked_of_shares(ask)
        nursery.cancel_scope.cancel()


def newest(kind):
    name = kind.__name__.removesuffix("Request")
    return next(api.max_version for api in apis.BY_KEY.values() if api.name == name)


def random_record(topic, random, groups):
    """A record of a topic: any key of any type, mostly of a known group, and any value, mostly of the key's type."""
    kind_of = registry.record_type(topic, random.choice(registry.record_type_ids(topic)))
    key = random_message(all_messages()[kind_of.key.name], 0, random)
    for name in ("group", "group_id"):
        if hasattr(key, name) and random.random() < 0.9:
            setattr(key, name, random.choice(sorted(groups)))
    kind = random.random()
    other = (
        registry.record_type(topic, random.choice(registry.record_type_ids(topic))) if kind < 0.2 else kind_of
    )
    if kind > 0.9:
        return kind_of.encode_key(key), None
    version = random.randint(other.value.min_version, other.value.max_version)
    value = number(version) + other.value.encode_bytes(
        random_message(all_messages()[other.value.name], version, random), version
    )
    if random.random() < 0.1:
        value = bytearray(value)
        value[random.randrange(len(value))] ^= 1 << random.randrange(8)
    return kind_of.encode_key(key), bytes(value)
