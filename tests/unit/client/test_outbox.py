"""Batches of one partition: their order, their sequences, what follows a failure, and what becomes of each record."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client import ProducerSettings, ResponseError
from barnabas.client.producing.outbox import NO_PRODUCER, Batch, Outbox
from barnabas.records.batch import SEQUENCE_MAX, read_header, read_records
from barnabas.wire.generated.errors import ErrorCode

PRODUCER = (7, 2)


def filled(outbox: Outbox, *values: bytes, timestamp_ms: int = 1_000) -> Batch:
    """Return a new batch of the outbox with these records, a second apart."""
    batch = outbox.open_batch(1 << 20, 0, 5.0)
    for index, value in enumerate(values):
        batch.append(b"k", value, [("h", b"x")], timestamp_ms + 1_000 * index, 100)
    return batch


def sent(outbox: Outbox, count: int = 1) -> Batch:
    """Return a batch that is under way, with a sequence."""
    batch = filled(outbox, *[b"v"] * count)
    outbox.queue.remove(batch)
    outbox.number(batch, PRODUCER)
    return batch


# --- records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_offset", "append_time_ms", "offsets", "times"),
    [(40, -1, [40, 41], [1_000, 2_000]), (0, 77, [0, 1], [77, 77]), (-1, 0, [-1, -1], [0, 0])],
)
def test_each_record_has_its_place_and_its_time(
    base_offset: int, append_time_ms: int, offsets: list[int], times: list[int]
) -> None:
    batch = filled(Outbox("t", 3), b"a", b"b")
    with pytest.raises(RuntimeError, match="on its way"):
        batch.deliveries[0].result()
    assert not batch.is_seen
    batch.base_offset, batch.append_time_ms = base_offset, append_time_ms
    batch.end()
    found = [one.result() for one in batch.deliveries]
    assert [(one.topic, one.partition) for one in found] == [("t", 3)] * 2
    assert ([one.offset for one in found], [one.timestamp_ms for one in found]) == (offsets, times)
    assert batch.is_seen


@pytest.mark.parametrize("transactional", [False, True])
def test_a_batch_is_written_with_its_producer_its_sequence_and_its_times(transactional: bool) -> None:
    outbox = Outbox("t", 0)
    batch = filled(outbox, b"a", b"b", timestamp_ms=5_000)
    batch.append(None, None, [], 4_000, 1)
    outbox.next_sequence, outbox.producer = 9, PRODUCER
    outbox.number(batch, PRODUCER)
    batch.close(0, None)
    data = bytes(batch.encoded(transactional=transactional))
    header = read_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.records_count) == (
        7,
        2,
        9,
        3,
    )
    assert (header.base_timestamp, header.max_timestamp, header.last_sequence) == (5_000, 6_000, 11)
    assert header.is_transactional is transactional
    found = [(one.key, one.value, one.timestamp) for one in read_records(data)]
    assert found == [(b"k", b"a", 5_000), (b"k", b"b", 6_000), (None, None, 4_000)]


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("sequence", [-1, 0, 10, SEQUENCE_MAX])
def test_halves_have_all_records_in_their_order_and_go_on_with_the_sequence(
    count: int, sequence: int
) -> None:
    whole = filled(Outbox("t", 0), *(b"%d" % number for number in range(count)))
    deliveries = list(whole.deliveries)
    whole.sequence, whole.producer, whole.attempts, whole.was_restarted = sequence, PRODUCER, 3, True
    first, second = whole.halves()
    assert (first.count, second.count) == (count // 2, count - count // 2)
    assert first.deliveries + second.deliveries == deliveries
    assert [(one.batch, one.index) for one in deliveries] == [
        *((first, index) for index in range(first.count)), *((second, index) for index in range(second.count)),
    ]  # fmt: skip
    assert first.memory_bytes + second.memory_bytes == 100 * count
    assert abs(first.memory_bytes - second.memory_bytes) <= 1
    assert first.sequence == sequence
    assert second.sequence == (-1 if sequence < 0 else (sequence + first.count) % (SEQUENCE_MAX + 1))
    for half in (first, second):
        assert (half.producer, half.attempts, half.was_restarted, half.created_at) == (PRODUCER, 3, True, 5.0)
    assert whole.number < first.number < second.number < (whole.number[0] + 1,)
    values = []
    for half in (first, second):
        half.close(0, None)
        values += [
            (one.value, one.timestamp, one.headers)
            for one in read_records(bytes(half.encoded(transactional=False)))
        ]
    assert values == [(b"%d" % number, 1_000 + 1_000 * number, [("h", b"x")]) for number in range(count)]


# --- filling ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "bytes_max", "is_same"), [(50, 100, True), (51, 100, False)])
def test_a_record_goes_into_the_last_batch_if_it_has_room(size: int, bytes_max: int, is_same: bool) -> None:
    outbox = Outbox("t", 0)
    batch = outbox.open_batch(1, bytes_max, 1.0)
    batch.append(None, b"v", [], 0, 1)
    batch.body[:] = bytes(50)
    again = outbox.open_batch(size, bytes_max, 2.0)
    assert (again is batch) is is_same
    assert len(outbox.queue) == 1 + (not is_same)
    assert (again.number, again.created_at) == (((1,), 1.0) if is_same else ((2,), 2.0))


def test_a_batch_that_is_closed_takes_no_more_and_an_empty_one_takes_anything() -> None:
    outbox = Outbox("t", 0)
    batch = outbox.open_batch(1_000, 10, 1.0)
    assert outbox.open_batch(1_000, 10, 1.0) is batch, "it has no record yet"
    batch.close(0, None)
    assert outbox.open_batch(1, 10, 1.0) is not batch


def test_what_is_sent_again_is_back_in_its_place() -> None:
    outbox = Outbox("t", 0)
    batches = [filled(outbox, b"v") for _ in range(4)]
    halves = batches[1].halves()
    for order in ([0, 3, 2, 1], [1, 0, 2, 3], [3, 2, 1, 0]):
        outbox.queue.clear()
        for index in order:
            outbox.put_back(batches[index])
        assert list(outbox.queue) == batches
    outbox.queue.remove(batches[1])
    outbox.put_back(halves[1])
    outbox.put_back(halves[0])
    assert list(outbox.queue) == [batches[0], *halves, *batches[2:]]


# --- sequences --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "after"), [(1, 0), (2, 1)])
def test_sequences_go_round(count: int, after: int) -> None:
    outbox = Outbox("t", 0)
    outbox.producer, outbox.next_sequence = PRODUCER, SEQUENCE_MAX
    batch = sent(outbox, count)
    assert (batch.sequence, outbox.next_sequence) == (SEQUENCE_MAX, after)
    outbox.last_acknowledged = SEQUENCE_MAX - 1
    assert outbox.is_next(batch)
    outbox.acknowledge(batch, 10)
    assert (outbox.last_acknowledged, outbox.last_offset) == (
        (SEQUENCE_MAX + count - 1) % (SEQUENCE_MAX + 1),
        9 + count,
    )
    following = sent(outbox)
    assert outbox.is_next(following)


def test_a_batch_keeps_the_sequence_that_it_has_and_another_producer_begins_anew() -> None:
    outbox = Outbox("t", 0)
    first = sent(outbox, 3)
    outbox.number(first, (9, 9))
    assert (first.producer, first.sequence) == (PRODUCER, 0)
    outbox.acknowledge(first, 0)
    second = filled(outbox, b"v")
    outbox.number(second, (7, 3))
    assert (second.producer, second.sequence, second.was_restarted) == ((7, 3), 0, False)
    assert (outbox.last_acknowledged, outbox.last_offset) == (-1, -1)


def test_in_a_new_epoch_what_is_not_acknowledged_is_numbered_anew() -> None:
    outbox = Outbox("t", 0)
    batches = [sent(outbox, count) for count in (2, 3, 1)]
    outbox.acknowledge(batches[0], 0)
    outbox.is_unresolved = True
    outbox.restart((7, 3))
    assert [(one.producer, one.sequence, one.was_restarted) for one in batches] == [
        (PRODUCER, 0, False), ((7, 3), 0, True), ((7, 3), 3, True),
    ]  # fmt: skip
    assert (outbox.next_sequence, outbox.is_unresolved, outbox.last_acknowledged) == (4, False, -1)


@pytest.mark.parametrize(("order", "last"), [([0, 1], (4, 14)), ([1, 0], (4, 14))])
def test_the_last_that_is_acknowledged_is_the_greatest(order: list[int], last: tuple[int, int]) -> None:
    outbox = Outbox("t", 0)
    batches = [sent(outbox, 2), sent(outbox, 3)]
    for index in order:
        outbox.acknowledge(batches[index], 10 + 2 * index)
    assert (outbox.last_acknowledged, outbox.last_offset) == last
    assert outbox.unacknowledged == []


def test_an_answer_of_another_epoch_or_without_an_offset_says_nothing_of_the_log() -> None:
    outbox = Outbox("t", 0)
    old, unknown = sent(outbox), sent(outbox)
    old.producer = (7, 1)
    outbox.acknowledge(old, 99)
    assert (outbox.last_acknowledged, outbox.last_offset) == (-1, -1)
    outbox.acknowledge(unknown, -1)
    assert (outbox.last_acknowledged, outbox.last_offset) == (1, -1)


@pytest.mark.parametrize(
    ("current", "in_flight_max", "sending", "sends"),
    [(None, 1, 0, True), (None, 1, 1, False), (None, 2, 1, True), (PRODUCER, 1, 1, True)],
)
def test_without_idempotence_order_needs_one_request_at_a_time(
    current: Any, in_flight_max: int, sending: int, sends: bool
) -> None:
    outbox = Outbox("t", 0)
    filled(outbox, b"v")
    outbox.sending = sending
    assert outbox.may_send(current, in_flight_max) is sends


@pytest.mark.parametrize(
    ("unresolved", "unacknowledged", "producer", "sends"),
    [
        (False, 0, PRODUCER, True), (True, 0, PRODUCER, False), (False, 4, PRODUCER, True), (False, 5, PRODUCER, False),
        (False, 1, (7, 1), False), (False, 0, (7, 1), True), (False, 0, NO_PRODUCER, True),
    ],
)  # fmt: skip
def test_a_new_batch_waits_for_what_is_unresolved_and_for_an_older_epoch(
    unresolved: bool, unacknowledged: int, producer: Any, sends: bool
) -> None:
    outbox = Outbox("t", 0)
    for _ in range(unacknowledged):
        sent(outbox)
    outbox.producer, outbox.is_unresolved = producer, unresolved
    filled(outbox, b"v")
    assert outbox.may_send(PRODUCER, 5) is sends


def test_of_several_that_are_sent_again_only_the_first_goes() -> None:
    outbox = Outbox("t", 0)
    first, second = sent(outbox), sent(outbox)
    outbox.is_unresolved = True
    outbox.put_back(second)
    assert not outbox.may_send(PRODUCER, 5)
    outbox.put_back(first)
    assert outbox.may_send(PRODUCER, 5), "also where something is unresolved"


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_gap_needs_a_new_epoch_once_nothing_is_under_way() -> None:
    outbox = Outbox("t", 0)
    first, second = sent(outbox), sent(outbox)
    assert not outbox.needs_restart()
    outbox.give_up(first)
    assert outbox.is_unresolved
    assert not outbox.needs_restart(), "the second is under way"
    outbox.acknowledge(second, 5)
    assert not outbox.needs_restart(), "the broker has the second, and so the first"
    assert not outbox.is_unresolved
    outbox.give_up(sent(outbox))
    assert outbox.needs_restart()
    assert outbox.is_unresolved


def test_what_was_never_numbered_leaves_no_gap() -> None:
    outbox = Outbox("t", 0)
    batch = filled(outbox, b"v")
    outbox.give_up(batch)
    assert (outbox.is_unresolved, list(outbox.queue)) == (False, [])
    under_way = filled(outbox, b"v")
    under_way.is_sending = True
    outbox.give_up(under_way)
    assert list(outbox.queue) == [under_way], "who sends it takes it out"


def test_a_batch_that_was_too_large_is_in_its_place_as_two() -> None:
    outbox = Outbox("t", 0)
    batches = [sent(outbox, 2), sent(outbox, 4), sent(outbox, 2)]
    halves = outbox.split(batches[1])
    assert outbox.unacknowledged == [batches[0], *halves, batches[2]]
    assert list(outbox.queue) == [*halves]
    assert batches[1].done.is_set()
    assert not batches[1].is_done, "its records have other batches now"
    unnumbered = filled(outbox, b"a", b"b")
    outbox.queue.remove(unnumbered)
    halves = outbox.split(unnumbered)
    assert [one in outbox.unacknowledged for one in halves] == [False, False]


async def test_each_record_fails_with_its_own_error_or_the_batch_s() -> None:
    batch = filled(Outbox("t", 0), b"a", b"b")
    whole = ResponseError(ErrorCode.INVALID_RECORD, "all")
    batch.failures = {0: ResponseError(ErrorCode.INVALID_TIMESTAMP, "one")}
    batch.end(whole)
    codes = []
    for delivery in batch.deliveries:
        with pytest.raises(ResponseError) as raised:
            await delivery.wait()
        codes.append(raised.value.code)
        assert raised.value is not whole
    assert codes == [ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD]


# --- settings ---------------------------------------------------------------------------------------------------------


def test_each_setting_of_a_producer_has_its_own_names() -> None:
    names = {
        ("acks", "request.required.acks"): ("acks", "1", 1),
        ("linger.ms", "queue.buffering.max.ms"): ("linger_ms", "7.5", 7.5),
        ("batch.size",): ("batch_bytes", "11", 11),
        ("max.request.size", "message.max.bytes"): ("request_bytes_max", "12", 12),
        ("buffer.memory",): ("buffer_bytes", "13", 13),
        ("max.block.ms",): ("max_block_ms", "14", 14),
        ("delivery.timeout.ms", "message.timeout.ms"): ("delivery_timeout_ms", "15", 15),
        ("request.timeout.ms",): ("ack_timeout_ms", "16", 16),
        ("max.in.flight.requests.per.connection", "max.in.flight"): ("in_flight_max", "2", 2),
        ("compression.type", "compression.codec"): ("compression", "LZ4", "lz4"),
        ("enable.idempotence",): ("is_idempotent", "false", False),
        ("transactional.id",): ("transactional_id", "x", "x"),
        ("transaction.timeout.ms",): ("transaction_timeout_ms", "17", 17),
        ("allow.auto.create.topics",): ("creates_topics", "False", False),
    }
    usual = ProducerSettings()
    for aliases, (field, text, value) in names.items():
        for name in aliases:
            read = ProducerSettings.of({name: text})
            changed = {one for one in read.__slots__ if getattr(read, one) != getattr(usual, one)}
            assert changed - {"is_idempotent"} | {field} == {field}, name
            assert getattr(read, field) == value, name
            assert read.is_idempotent is (field not in ("acks", "is_idempotent")), name
    level = ProducerSettings.of({"compression.type": "gzip", "compression.level": "3"})
    assert (level.compression, level.compression_level) == ("gzip", 3)
    assert ProducerSettings.of({"acks": "all"}).is_idempotent
    with pytest.raises(ValueError, match="idempotent"):
        ProducerSettings.of({"acks": "0", "enable.idempotence": "true"})
    assert (usual.linger_ms, usual.max_block_ms, usual.delivery_timeout_ms) == (5, 60_000, 120_000)
    assert (usual.ack_timeout_ms, usual.transaction_timeout_ms, usual.in_flight_max) == (30_000, 60_000, 5)


@pytest.mark.parametrize("text", ["true", "YES", "on", "1", "t"])
def test_what_is_true_is_read_as_librdkafka_does(text: str) -> None:
    assert ProducerSettings.of({"allow.auto.create.topics": text}).creates_topics


@pytest.mark.parametrize("text", ["false", "No", "off", "0", "f"])
def test_what_is_false_is_read_as_librdkafka_does(text: str) -> None:
    assert not ProducerSettings.of({"allow.auto.create.topics": text}).creates_topics
