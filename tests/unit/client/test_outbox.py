"""Batches of one partition: their order, their sequences, what follows a failure, and what becomes of each record."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client import ProducerSettings
from barnabas.client.producing.outbox import Batch, Outbox
from barnabas.records.batch import SEQUENCE_MAX, read_header, read_records

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


@pytest.mark.parametrize("transactional", [False, True])
def test_batch_is_written_with_producer_sequence_and_times(transactional: bool) -> None:
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
    result = [
        (read_record.key, read_record.value, read_record.timestamp) for read_record in read_records(data)
    ]
    assert result == [(b"k", b"a", 5_000), (b"k", b"b", 6_000), (None, None, 4_000)]


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("sequence", [-1, 0, 10, SEQUENCE_MAX])
def test_split_batches_keep_records_order_and_sequence(count: int, sequence: int) -> None:
    whole = filled(Outbox("t", 0), *(b"%d" % number for number in range(count)))
    deliveries = list(whole.deliveries)
    whole.sequence, whole.producer, whole.attempts, whole.was_restarted = sequence, PRODUCER, 3, True
    first, second = whole.halves()
    assert (first.count, second.count) == (count // 2, count - count // 2)
    assert first.deliveries + second.deliveries == deliveries
    assert [(entry.batch, entry.index) for entry in deliveries] == [
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
            (entry.value, entry.timestamp, entry.headers)
            for entry in read_records(bytes(half.encoded(transactional=False)))
        ]
    assert values == [(b"%d" % number, 1_000 + 1_000 * number, [("h", b"x")]) for number in range(count)]


# --- filling ----------------------------------------------------------------------------------------------------------


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
            changed = {slot for slot in read.__slots__ if getattr(read, slot) != getattr(usual, slot)}
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
