"""Produce: what is appended, how often, with which times, and what an idempotent producer may send."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from barnabas.records.batch import HEADER_SIZE, TIMESTAMP_TYPE_BIT, iter_batches, read_header, whole_size
from barnabas.records.building import encode_batch, join_batch
from barnabas.records.legacy import iter_message_set
from barnabas.records.record import Record
from barnabas.tools.conformance.batches import batch, now_ms
from barnabas.tools.conformance.cases import Case, NotApplicableError
from barnabas.tools.conformance.suites.acting import (
    append,
    appended,
    begin,
    case,
    described,
    read,
    records_in,
    refused,
    values_in,
)
from barnabas.tools.conformance.trial import Trial
from barnabas.tools.probing.exchanges import ClosedByBrokerError
from barnabas.tools.probing.harmless import records_of

LAST_BY_NAME = 12
"""The last version of Produce that names topics by their names."""
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def cases() -> Iterator[Case]:
    """Return the cases of this module."""
    yield case(
        "producing/offsets",
        "Records get offsets one after the other, from 0 on.",
        "protocol guide",
        _offsets,
        "Produce",
        "Fetch",
    )
    yield case(
        "producing/partitions",
        "Each partition of a request has its own answer.",
        "protocol guide",
        _partitions,
        "Produce",
    )
    yield case(
        "producing/acks 0",
        "With acks=0 nothing is answered, and what comes next is.",
        "protocol guide",
        _acks_0,
        "Produce",
        "Fetch",
    )
    yield case(
        "producing/acks 0 refused",
        "With acks=0 a record that is refused ends the connection.",
        "protocol guide",
        _acks_0_refused,
        "Produce",
    )
    yield case(
        "producing/internal topics",
        "What coordinators keep is not for clients to write or to delete: INVALID_TOPIC_EXCEPTION.",
        "protocol guide",
        _internal,
        "Produce",
        "DeleteRecords",
        "FindCoordinator",
    )
    for name, codec in CODECS.items():
        yield case(
            f"producing/{name}",
            "A compressed batch is kept and read as it was sent.",
            "KIP-98, KIP-110",
            partial(_codec, codec),
            "Produce",
            "Fetch",
        )
    yield case(
        "producing/nulls and headers",
        "Keys and values may be null, and headers are kept in their order.",
        "KIP-82",
        _nulls,
        "Produce",
        "Fetch",
    )
    yield case(
        "producing/create time",
        "A topic keeps the times of producers unless it says otherwise.",
        "KIP-32",
        _create_time,
        "Produce",
        "Fetch",
    )
    yield from described(
        "producing",
        "Kafka 4.3",
        {
            "a partition twice": _twice,
            "a time of append of another broker": _of_another_broker,
            "what follows a gzip stream": _follows_gzip,
            "a wrong checksum of LZ4 content": _wrong_lz4_content,
        },
        "CreateTopics",
        "Produce",
        "Fetch",
    )
    yield case(
        "producing/append time",
        "A topic of append times gives its own, and tells it.",
        "KIP-32",
        _append_time,
        "CreateTopics",
        "Produce",
        "Fetch",
    )
    yield case(
        "producing/a time to come",
        "A time too far ahead is INVALID_TIMESTAMP, with the record that has it.",
        "KIP-937, KIP-467",
        _far_ahead,
        "CreateTopics",
        "Produce",
    )
    yield case(
        "producing/too large",
        "A batch larger than max.message.bytes is MESSAGE_TOO_LARGE.",
        "protocol guide",
        _too_large,
        "CreateTopics",
        "Produce",
    )
    yield case(
        "producing/compacted without keys",
        "A compacted topic refuses records without keys: INVALID_RECORD.",
        "KIP-467",
        _no_keys,
        "CreateTopics",
        "Produce",
    )
    for version in (0, 1, 2):
        yield case(
            f"producing/messages of Produce v{version}",
            "Old versions append messages of magic 0 or 1, which are read again.",
            "KIP-31, KIP-32",
            partial(_legacy, version),
            "Fetch",
            Produce=version,
        )
    yield from described(
        "idempotence",
        "KIP-98, KIP-360",
        {
            "in order": _in_order,
            "again": _again,
            "again, five batches back": _five_back,
            "a gap": _gap,
            "an older epoch": _older_epoch,
            "a newer epoch": _newer_epoch,
            "a newer epoch in the middle": _newer_in_the_middle,
            "partitions apart": _apart,
        },
        "Produce",
        "InitProducerId",
    )


# --- plain ------------------------------------------------------------------------------------------------------


async def _offsets(trial: Trial) -> None:
    topic = await trial.new_topic()
    bases = [
        await appended(trial, topic, batch(b"a")),
        await appended(trial, topic, batch(b"b", b"c")),
        await appended(trial, topic, batch(b"d"), acks=1),
    ]
    trial.check(bases == [0, 1, 3], f"base offsets are {bases}, not 0, 1, 3")
    response = await read(trial, topic)
    trial.check(
        values_in(response.records) == [b"a", b"b", b"c", b"d"], f"read {values_in(response.records)}"
    )
    trial.check(
        [record.offset for record in records_in(response.records)] == [0, 1, 2, 3],
        "the offsets of records are not 0 to 3",
    )
    trial.expect(response, {"high_watermark": 4})


async def _partitions(trial: Trial) -> None:
    name, topic_id = await trial.new_topic(2)
    data = [
        {"index": 0, "records": batch(b"a")},
        {"index": 1, "records": batch(b"b")},
        {"index": 7, "records": batch(b"c")},
    ]
    asked = {
        "acks": -1,
        "timeout_ms": 20_000,
        "topic_data": [{"name": name, "topic_id": topic_id, "partition_data": data}],
    }
    answer = await trial.ask("Produce", asked)
    codes = {
        partition_response.index: partition_response.error_code
        for topic in answer.responses
        for partition_response in topic.partition_responses
    }
    trial.check(codes == {0: 0, 1: 0, 7: 3}, f"the codes by partition are {codes}, not 0, 0 and 3")


async def _acks_0(trial: Trial) -> None:
    topic = await trial.new_topic()
    await append(trial, topic, batch(b"a"), acks=0)
    response = await read(trial, topic, max_wait_ms=5000, min_bytes=1)
    trial.check(values_in(response.records) == [b"a"], f"read {values_in(response.records)}")


async def _acks_0_refused(trial: Trial) -> None:
    topic = await trial.new_topic()
    async with trial.connection() as wire:
        await append(trial, topic, batch(b"a")[:-1] + b"\xff", acks=0, wire=wire)
        try:
            await trial.ask(
                "ApiVersions", {"client_software_name": "a", "client_software_version": "1"}, wire=wire
            )
        except ClosedByBrokerError:
            return
    trial.check(False, "the connection goes on")


async def _internal(trial: Trial) -> None:
    await trial.group()  # which has the topic made
    name, refusal = "__consumer_offsets", "INVALID_TOPIC_EXCEPTION"
    unknown_type = encode_batch(
        [Record(0, now_ms(), b"\x7f\xff", b"v")]
    )  # no reader meets it, should it be taken
    by_name = min(trial.fixture.newest("Produce"), LAST_BY_NAME)
    await refused(trial, (name, bytes(16)), unknown_type, refusal, version=by_name)
    partitions = [{"partition_index": 0, "offset": 0}]
    asked = {"topics": [{"name": name, "partitions": partitions}], "timeout_ms": 10_000}
    answer = await trial.ask("DeleteRecords", asked)
    trial.expect(answer, {"topics.0.partitions.0.error_code": refusal})


async def _codec(codec: int, trial: Trial) -> None:
    if codec == 4 and not trial.fixture.serves("Produce", 7):
        raise NotApplicableError("zstd needs Produce v7")
    topic = await trial.new_topic()
    values = [b"value %d " % number * 20 for number in range(20)]
    sent = batch(*values, codec=codec)
    await appended(trial, topic, sent)
    response = await read(trial, topic)
    trial.check(values_in(response.records) == values, "other values are read")
    kept = [header.codec for _, header in iter_batches(response.records)]
    trial.check(kept == [codec], f"the codecs of what is read are {kept}, not {codec}")


async def _nulls(trial: Trial) -> None:
    topic = await trial.new_topic()
    at = now_ms()
    records = [
        Record(0, at, None, b"v", [("a", b"1"), ("a", None), ("", b"")]),
        Record(1, at, b"k", None),
        Record(2, at, None, None),
    ]
    await appended(trial, topic, encode_batch(records))
    read_back = records_in((await read(trial, topic)).records)
    seen = [(record.key, record.value, record.headers) for record in read_back]
    trial.check(seen == [(record.key, record.value, record.headers) for record in records], f"read {seen}")


async def _create_time(trial: Trial) -> None:
    topic = await trial.new_topic()
    answer = await append(trial, topic, batch(b"a", timestamp_ms=1_600_000_000_000))
    trial.expect(answer, {"error_code": 0, "log_append_time_ms": -1})
    read_back = records_in((await read(trial, topic)).records)
    trial.check(read_back[0].timestamp == 1_600_000_000_000, f"the time is {read_back[0].timestamp}")


async def _append_time(trial: Trial) -> None:
    topic = await trial.new_topic(message_timestamp_type="LogAppendTime")
    answer = await append(trial, topic, batch(b"a", b"b", timestamp_ms=1_600_000_000_000))
    trial.expect(answer, {"error_code": 0, "log_append_time_ms": lambda time_ms: time_ms > 1_600_000_000_000})
    read_back = records_in((await read(trial, topic)).records)
    times = {record.timestamp for record in read_back}
    trial.check(
        times == {answer.log_append_time_ms}, f"the times are {times}, not {answer.log_append_time_ms}"
    )


async def _twice(trial: Trial) -> None:
    """Of a partition that is named twice the last records are appended, and it is answered once."""
    name, topic_id = topic = await trial.new_topic()
    data = [{"index": 0, "records": batch(b"a")}, {"index": 0, "records": batch(b"b", b"c")}]
    named = {"name": name, "topic_id": topic_id, "partition_data": data}
    asked = {"acks": -1, "timeout_ms": 20_000, "topic_data": [named, named]}
    answer = await trial.ask("Produce", asked)
    trial.expect(answer, {"responses.len": 1, "responses.0.partition_responses.len": 1})
    response = await read(trial, topic)
    trial.check(values_in(response.records) == [b"b", b"c"], f"read {values_in(response.records)}")


def _attributed(records: bytes, bits: int, body: bytes | None = None) -> bytes:
    """A batch with these bits among its attributes, and perhaps another body, under a checksum that fits."""
    header = read_header(records)
    header.attributes |= bits
    return bytes(join_batch(header, records[HEADER_SIZE:] if body is None else body))


async def _of_another_broker(trial: Trial) -> None:
    """A topic with CreateTime takes a batch with LogAppendTime, and clears the type; one with LogAppendTime refuses it."""
    for codec in (0, 1):
        at = now_ms() - 1000
        sent = _attributed(batch(b"a", b"b", timestamp_ms=at, codec=codec), TIMESTAMP_TYPE_BIT)
        topic = await trial.new_topic()
        await appended(trial, topic, sent)
        data = (await read(trial, topic)).records
        kept = [header.attributes for _, header in iter_batches(data)]
        trial.check(kept == [codec], f"attributes are {kept}, not {codec}")
        times = {record.timestamp for record in records_in(data)}
        trial.check(times == {at}, f"the times are {times}, not {at}")
        topic = await trial.new_topic(message_timestamp_type="LogAppendTime")
        await refused(trial, topic, sent, "INVALID_TIMESTAMP")


async def _follows_gzip(trial: Trial) -> None:
    """Keep what follows a gzip stream and is no other member of it, and read over it."""
    values = [b"value %d " % number * 20 for number in range(20)]
    plain = batch(*values, codec=1)
    for tail in (b"\0", bytes(8), bytes(5000), b"anything else" * 9):
        topic = await trial.new_topic()
        await appended(trial, topic, _attributed(plain, 0, plain[HEADER_SIZE:] + tail))
        response = await read(trial, topic)
        trial.check(values_in(response.records) == values, "other values are read")
        trial.check(
            bytes(response.records)[HEADER_SIZE:].endswith(tail), "the bytes are not those that were sent"
        )


async def _wrong_lz4_content(trial: Trial) -> None:
    """The checksum of an LZ4 frame's content is not checked: that of the batch covers it."""
    from lz4 import frame

    values = [b"value %d " % number * 20 for number in range(20)]
    plain = batch(*values)
    body = bytearray(frame.compress(plain[HEADER_SIZE:], content_checksum=True, block_linked=False))
    body[-1] ^= 1
    topic = await trial.new_topic()
    await appended(trial, topic, _attributed(plain, 3, bytes(body)))
    response = await read(trial, topic)
    trial.check(
        bytes(response.records)[HEADER_SIZE:] == bytes(body), "the bytes are not those that were sent"
    )


async def _far_ahead(trial: Trial) -> None:
    if trial.is_kafka_4:
        topic = await trial.new_topic(message_timestamp_after_max_ms="60000")
    else:
        topic = await trial.new_topic(message_timestamp_difference_max_ms="60000")
    answer = await refused(trial, topic, batch(b"a", timestamp_ms=now_ms() + 86_400_000), "INVALID_TIMESTAMP")
    if trial.fixture.newest("Produce") >= 8:
        trial.expect(answer, {"record_errors.len": 1, "record_errors.0.batch_index": 0})


async def _too_large(trial: Trial) -> None:
    topic = await trial.new_topic(max_message_bytes="1000")
    await refused(trial, topic, batch(bytes(2000)), "MESSAGE_TOO_LARGE")
    await appended(trial, topic, batch(bytes(500)))


async def _no_keys(trial: Trial) -> None:
    topic = await trial.new_topic(cleanup_policy="compact")
    await refused(trial, topic, batch(b"a", key=None), "INVALID_RECORD")
    await appended(trial, topic, batch(b"a"))


async def _legacy(version: int, trial: Trial) -> None:
    topic = await trial.new_topic()
    sent = records_of(version, b"a", b"b")
    await appended(trial, topic, sent, acks=1, version=version)
    reader = 1 if version < 2 else 2
    if trial.fixture.serves("Fetch", reader):
        data = (await read(trial, topic, version=reader)).records
        whole = memoryview(data)[: whole_size(data)]  # the last message may be cut short
        values = [message.value for message in iter_message_set(whole)]
        trial.check(values == [b"a", b"b"], f"Fetch v{reader} reads {values}")


# --- idempotence ------------------------------------------------------------------------------------------------


def _of(producer: tuple[int, int], sequence: int, *values: bytes) -> bytes:
    return batch(*values, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence)


async def _in_order(trial: Trial) -> None:
    """Batches with sequences that follow each other are appended."""
    topic = await trial.new_topic()
    producer = await begin(trial)
    bases = [
        await appended(trial, topic, _of(producer, 0, b"a", b"b")),
        await appended(trial, topic, _of(producer, 2, b"c")),
    ]
    trial.check(bases == [0, 2], f"base offsets are {bases}, not 0 and 2")


async def _again(trial: Trial) -> None:
    """A batch that comes again is appended once, and answered with its offset."""
    topic = await trial.new_topic()
    producer = await begin(trial)
    sent = _of(producer, 0, b"a", b"b")
    first, second = await appended(trial, topic, sent), await appended(trial, topic, sent)
    trial.check((first, second) == (0, 0), f"base offsets are {first} and {second}, not 0 twice")
    response = await read(trial, topic)
    trial.check(values_in(response.records) == [b"a", b"b"], f"read {values_in(response.records)}")


async def _five_back(trial: Trial) -> None:
    """The last five batches of a producer are known again, in any order."""
    topic = await trial.new_topic()
    producer = await begin(trial)
    for number in range(5):
        await appended(trial, topic, _of(producer, number, b"v%d" % number))
    bases = [await appended(trial, topic, _of(producer, number, b"v%d" % number)) for number in (0, 3, 1)]
    trial.check(bases == [0, 3, 1], f"base offsets are {bases}, not 0, 3, 1")


async def _gap(trial: Trial) -> None:
    """A sequence that leaves some out is OUT_OF_ORDER_SEQUENCE_NUMBER, and nothing is appended."""
    topic = await trial.new_topic()
    producer = await begin(trial)
    await appended(trial, topic, _of(producer, 0, b"a"))
    await refused(trial, topic, _of(producer, 2, b"c"), "OUT_OF_ORDER_SEQUENCE_NUMBER")
    trial.check(
        await appended(trial, topic, _of(producer, 1, b"b")) == 1, "what was refused has taken an offset"
    )


async def _older_epoch(trial: Trial) -> None:
    """An epoch before the producer's own is INVALID_PRODUCER_EPOCH."""
    topic = await trial.new_topic()
    producer_id, _ = await begin(trial)
    await appended(trial, topic, _of((producer_id, 1), 0, b"a"))
    await refused(trial, topic, _of((producer_id, 0), 1, b"b"), "INVALID_PRODUCER_EPOCH")


async def _newer_epoch(trial: Trial) -> None:
    """A newer epoch begins again with sequence 0."""
    topic = await trial.new_topic()
    producer_id, _ = await begin(trial)
    await appended(trial, topic, _of((producer_id, 0), 0, b"a"))
    trial.check(
        await appended(trial, topic, _of((producer_id, 1), 0, b"b")) == 1,
        "it is not appended after the first",
    )


async def _newer_in_the_middle(trial: Trial) -> None:
    """A newer epoch that does not begin with sequence 0 is OUT_OF_ORDER_SEQUENCE_NUMBER."""
    topic = await trial.new_topic()
    producer_id, _ = await begin(trial)
    await appended(trial, topic, _of((producer_id, 0), 0, b"a"))
    await refused(trial, topic, _of((producer_id, 1), 5, b"b"), "OUT_OF_ORDER_SEQUENCE_NUMBER")


async def _apart(trial: Trial) -> None:
    """A producer's sequences are counted for each partition by itself."""
    topic = await trial.new_topic(2)
    producer = await begin(trial)
    await appended(trial, topic, _of(producer, 0, b"a"))
    trial.check(
        await appended(trial, topic, _of(producer, 0, b"b"), index=1) == 0,
        "the other partition's first offset is not 0",
    )
    await refused(trial, topic, _of(producer, 5, b"c"), "OUT_OF_ORDER_SEQUENCE_NUMBER", index=1)
