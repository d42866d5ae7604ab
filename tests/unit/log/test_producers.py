"""Idempotent and transactional producers."""

import pytest

from barnabas.errors import RequestError
from barnabas.log.errors import Code
from barnabas.log.producers import AWAITED_MAX, ProducedBatch, Producer, ProducerState, is_end_marker
from barnabas.records.batch import SEQUENCE_MAX, read_header
from barnabas.records.building import encode_batch
from barnabas.records.control import ControlType, EndMarker
from barnabas.records.record import Record
from tests.support.logs import rebase

PID = 7


def data(sequence, count=1, *, epoch=0, pid=PID, txn=False, timestamp=1_000):
    records = [Record(n, timestamp, b"k", b"v") for n in range(count)]
    return bytearray(
        encode_batch(
            records, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=txn
        )
    )


class Partition:
    """A log without records: it gives offsets, and asks the producers' state as a real one does."""

    def __init__(self):
        self.producers = ProducerState("t-0", expiration_ms=10_000)
        self.end = 0

    def append(self, raw, *, from_client=True, high_watermark=0):
        header = read_header(raw)
        repeated = self.producers.check(header, from_client=from_client, high_watermark=high_watermark)
        if repeated:
            return repeated.base_offset, repeated.last_offset
        rebase(raw, 0, self.end, 0)
        header = read_header(raw)
        self.producers.append(header)
        self.end = header.next_offset
        return header.base_offset, header.last_offset

    def end_transaction(self, *, commit, epoch=0, pid=PID, coordinator_epoch=0):
        raw = data(-1, epoch=epoch, pid=pid, txn=True)
        rebase(raw, 0, self.end, 0)
        header = read_header(raw)
        marker = EndMarker(ControlType.COMMIT if commit else ControlType.ABORT, coordinator_epoch)
        self.producers.check_marker(header, marker)
        self.end += 1
        return self.producers.append_marker(header, marker)

    def refuses(self, raw, **options):
        with pytest.raises(RequestError) as error:
            self.append(raw, **options)
        return error.value.code


@pytest.fixture
def partition():
    return Partition()


def test_a_batch_sent_again_is_answered_with_its_first_offsets(partition):
    answers = [partition.append(data(n * 2, 2)) for n in range(5)]
    assert answers == [(n * 2, n * 2 + 1) for n in range(5)]
    assert [partition.append(data(n * 2, 2)) for n in range(5)] == answers
    assert partition.end == 10


def test_only_the_last_five_batches_are_remembered(partition):
    for n in range(6):
        partition.append(data(n))
    assert partition.refuses(data(0)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(data(1)) == (1, 1)


def test_committed_sequence_that_was_forgotten_is_a_duplicate(partition):
    for n in range(3, 13):
        partition.append(data(n * 2, 2))
    assert partition.refuses(data(6, 2), high_watermark=9) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    for sequence, count in ((6, 2), (8, 4), (14, 2)):
        assert partition.refuses(data(sequence, count), high_watermark=10) == Code.DUPLICATE_SEQUENCE_NUMBER
    for sequence, count in ((4, 2), (5, 2), (14, 4), (27, 2), (28, 1)):
        code = partition.refuses(data(sequence, count), high_watermark=20)
        assert code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER, sequence
    assert partition.end == 20


def test_sequence_before_a_gap_or_epoch_is_no_duplicate(partition):
    for n in range(6):
        partition.append(data(n))
    for n in range(8, 14):
        partition.append(data(n), from_client=False)  # as a follower, or from the log
    assert partition.refuses(data(3), high_watermark=12) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refuses(data(8), high_watermark=12) == Code.DUPLICATE_SEQUENCE_NUMBER
    for n in range(6):
        partition.append(data(n, epoch=1))
    assert partition.refuses(data(8, epoch=1), high_watermark=18) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refuses(data(0, epoch=1), high_watermark=18) == Code.DUPLICATE_SEQUENCE_NUMBER


def test_known_range_wraps_with_the_sequence_numbers(partition):
    for n in range(SEQUENCE_MAX - 3, SEQUENCE_MAX + 5):
        partition.append(data(n & SEQUENCE_MAX))
    for n in range(SEQUENCE_MAX - 3, SEQUENCE_MAX):
        assert partition.refuses(data(n), high_watermark=8) == Code.DUPLICATE_SEQUENCE_NUMBER
    assert partition.refuses(data(SEQUENCE_MAX - 4), high_watermark=8) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_batch_without_a_sequence_ends_the_known_range(partition):
    """It may come from a log that was written elsewhere: no client's has a producer and no sequence."""
    for n in range(10, 13):
        partition.append(data(n))
    partition.append(data(-1), from_client=False)
    for sequence in (3, 9, 14):
        assert partition.refuses(data(sequence), high_watermark=4) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("count", range(1, 7))
def test_what_is_ahead_of_a_producer_is_no_duplicate_after_a_gap(partition, count):
    """A leader that had forgotten the producer took what its follower has as a gap; then the follower leads."""
    for n in range(6):
        partition.append(data(n))
    for n in range(20, 20 + count):
        partition.append(data(n), from_client=False)
    end = partition.end
    for sequence in (6, 19, 21 + count, 1 << 20, SEQUENCE_MAX):
        code = partition.refuses(data(sequence), high_watermark=end)
        assert code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER, sequence
    assert partition.append(data(20 + count)) == (end, end)


@pytest.mark.parametrize("last", [1 << 30, (1 << 30) + 1])
def test_known_range_is_at_most_half_of_all_sequences(last):
    """Otherwise what is ahead of the producer would count as being behind it."""
    producer = Producer(PID, 0)
    producer.take(ProducedBatch(0, 0, 0, 1_000))
    producer.take(ProducedBatch(last - 5, last - 5, last - 6, 1_000))
    for n in range(last - 4, last + 1):
        producer.take(ProducedBatch(n, n, 0, 1_000))
    assert producer.has_all(0, 0, 1 << 40) is (last == 1 << 30)
    assert not producer.has_all(last + 1, last + 9, 1 << 40)


def test_part_of_an_old_batch_is_no_duplicate(partition):
    partition.append(data(0, 4))
    assert partition.refuses(data(0, 2)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refuses(data(2, 2)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("sequence", [0, 1, 3, 100])
def test_a_gap_or_a_step_back_is_out_of_order(partition, sequence):
    partition.append(data(0, 2))
    assert partition.refuses(data(sequence)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(data(2)) == (2, 2)


def test_sequences_wrap_to_zero(partition):
    partition.append(data(SEQUENCE_MAX - 1, 1))
    assert partition.append(data(SEQUENCE_MAX, 3)) == (1, 3)
    assert partition.producers.get(PID).last_sequence == 1
    assert partition.append(data(SEQUENCE_MAX, 3)) == (1, 3)
    assert partition.append(data(2)) == (4, 4)
    assert partition.refuses(data(SEQUENCE_MAX)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_begin_anywhere(partition):
    assert partition.append(data(1234)) == (0, 0)
    assert partition.append(data(1235)) == (1, 1)


def test_a_new_epoch_begins_with_sequence_zero(partition):
    partition.append(data(0))
    assert partition.refuses(data(1, epoch=1)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(data(0, epoch=1)) == (1, 1)


def test_an_old_epoch_is_fenced(partition):
    partition.append(data(0, epoch=3))
    assert partition.refuses(data(1, epoch=2)) == Code.INVALID_PRODUCER_EPOCH
    assert partition.refuses(data(1, epoch=2), from_client=False) == Code.INVALID_PRODUCER_EPOCH
    with pytest.raises(RequestError) as error:
        partition.end_transaction(commit=True, epoch=2)
    assert error.value.code == Code.INVALID_PRODUCER_EPOCH


def test_marker_of_a_newer_epoch_fences_and_restarts_sequences(partition):
    partition.append(data(0, 5, txn=True))
    partition.end_transaction(commit=False, epoch=1)
    assert partition.refuses(data(5, txn=True)) == Code.INVALID_PRODUCER_EPOCH
    assert partition.refuses(data(5, epoch=1, txn=True)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(data(0, epoch=1, txn=True)) == (6, 6)


def test_sequences_go_on_after_a_transaction_of_the_same_epoch(partition):
    partition.append(data(0, 2, txn=True))
    partition.end_transaction(commit=True)
    assert partition.append(data(2, txn=True)) == (3, 3)


def test_an_old_coordinator_is_fenced(partition):
    partition.append(data(0, txn=True))
    partition.end_transaction(commit=True, coordinator_epoch=5)
    with pytest.raises(RequestError) as error:
        partition.end_transaction(commit=True, coordinator_epoch=4)
    assert error.value.code == Code.TRANSACTION_COORDINATOR_FENCED
    assert partition.end_transaction(commit=True, coordinator_epoch=6) is None


def test_writing_outside_of_the_open_transaction_is_refused(partition):
    partition.append(data(0, txn=True))
    assert partition.refuses(data(1)) == Code.INVALID_TXN_STATE
    partition.end_transaction(commit=True)
    assert partition.append(data(1)) == (2, 2)


def test_a_transaction_ends_with_its_marker(partition):
    partition.append(data(0))
    partition.append(data(1, 3, txn=True))
    assert partition.producers.get(PID).current_txn_first_offset == 1
    completed = partition.end_transaction(commit=False)
    assert completed == (PID, 1, 4, True)
    assert partition.producers.get(PID).current_txn_first_offset == -1
    assert partition.end_transaction(commit=True) is None


def test_oldest_open_transaction_is_the_first_unstable_offset(partition):
    producers = partition.producers
    assert producers.first_unstable_offset is None
    partition.append(data(0, txn=True, pid=1))
    partition.append(data(0, txn=True, pid=2))
    assert (producers.first_undecided_offset, producers.first_unstable_offset) == (0, 0)
    partition.end_transaction(commit=True, pid=1)
    assert (producers.first_undecided_offset, producers.first_unstable_offset) == (1, 0)
    producers.on_high_watermark(2)
    assert producers.first_unstable_offset == 0
    producers.on_high_watermark(3)
    assert producers.first_unstable_offset == 1
    partition.end_transaction(commit=False, pid=2)
    producers.on_high_watermark(4)
    assert producers.first_unstable_offset is None


def test_idle_producers_expire_unless_a_transaction_is_open(partition):
    partition.append(data(0, pid=1, timestamp=1_000))
    partition.append(data(0, pid=2, timestamp=1_000, txn=True))
    partition.append(data(0, pid=3, timestamp=1_001))
    assert partition.producers.expire(10_999) == 0
    assert partition.producers.expire(11_000) == 1
    assert [producer.producer_id for producer in partition.producers.active()] == [2, 3]


def test_a_snapshot_keeps_the_last_batch_and_open_transactions(partition):
    for n in range(3):
        partition.append(data(n, pid=1))
    partition.append(data(0, pid=2, epoch=4, txn=True))
    partition.append(data(0, 2, pid=3, txn=True))
    partition.end_transaction(commit=True, pid=3, coordinator_epoch=9)
    again = Partition()
    again.producers.load(partition.producers.snapshot(), partition.end, 2_000)
    again.end = partition.end
    assert again.producers.snapshot() == partition.producers.snapshot()
    assert again.producers.first_unstable_offset == 3
    assert again.append(data(2, pid=1)) == (2, 2)
    assert again.refuses(data(1, pid=1)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert again.append(data(1, pid=2, epoch=4, txn=True)) == (7, 7)
    with pytest.raises(RequestError):
        again.end_transaction(commit=True, pid=3, coordinator_epoch=8)
    assert again.end_transaction(commit=True, pid=2, epoch=4) == (2, 3, 8, False)


def test_a_snapshot_is_read_without_those_who_expired_since(partition):
    partition.append(data(0, pid=1, timestamp=1_000))
    partition.append(data(0, pid=2, timestamp=5_000))
    again = ProducerState("t-0", expiration_ms=10_000)
    again.load(partition.producers.snapshot(), 2, 12_000)
    assert [producer.producer_id for producer in again.active()] == [2]


def test_coordinators_write_without_sequence_checks(partition):
    partition.append(data(0), from_client=False)
    assert partition.append(data(5), from_client=False) == (1, 1)


def test_control_batches_of_producers_are_end_markers():
    plain = read_header(data(0, txn=True))
    control = read_header(
        encode_batch([Record(0, 0, b"", b"")], control=True, producer_id=1, producer_epoch=0)
    )
    raft = read_header(encode_batch([Record(0, 0, b"", b"")], control=True))
    assert [is_end_marker(header) for header in (plain, control, raft)] == [False, True, False]


# --- what is awaited ------------------------------------------------------------------------------------------------

REFUSED = "refused"
"""A batch that is not appended: its producer could not be verified, or too few replicas were in sync."""
AHEAD = Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def transacted(partition, sequence, outcome, *, version, epoch=0, count=1):
    """A batch of a transaction as a request brings it: noted unless the transaction has begun, then appended or refused."""
    producer = partition.producers.get(PID)
    if producer is None or producer.current_txn_first_offset < 0:
        partition.producers.expect(PID, epoch, sequence, from_zero=version == 2, now_ms=1_000)
    if outcome == REFUSED:
        return
    raw = data(sequence, count, epoch=epoch, txn=True)
    if outcome == AHEAD:
        assert partition.refuses(raw) == AHEAD
    else:
        assert partition.append(raw)[0] == outcome


@pytest.mark.parametrize(
    ("version", "steps"),
    [
        (1, [(5, 0), (0, AHEAD), (6, 1)]),
        (1, [(0, REFUSED), (5, AHEAD), (0, 0), (1, 1)]),
        (1, [(7, REFUSED), (5, REFUSED), (6, AHEAD), (5, 0), (6, 1), (7, 2)]),
        (2, [(5, AHEAD), (0, 0), (1, 1)]),
        (2, [(0, REFUSED), (1, AHEAD), (0, 0), (1, 1)]),
    ],
)
def test_no_later_batch_takes_the_place_of_an_awaited_one(partition, version, steps):
    for sequence, outcome in steps:
        transacted(partition, sequence, outcome, version=version)


@pytest.mark.parametrize(
    "steps",
    [
        [(2, AHEAD), (3, AHEAD), (3, AHEAD)],  # the lowest is behind what is there: nothing but an end helps
        [(4, AHEAD), (3, 4), (4, 5)],
    ],
)
def test_next_transaction_awaits_its_lowest_seen_sequence(partition, steps):
    transacted(partition, 0, 0, version=1, count=3)
    partition.end_transaction(commit=True)
    for sequence, outcome in steps:
        transacted(partition, sequence, outcome, version=1)
    partition.end_transaction(commit=False)
    following = partition.producers.get(PID).last_sequence + 1
    transacted(partition, following, partition.end, version=1)


def test_a_new_epoch_awaits_its_own_sequence(partition):
    transacted(partition, 3, REFUSED, version=1, epoch=0)
    transacted(partition, 8, REFUSED, version=1, epoch=1)
    transacted(partition, 2, REFUSED, version=1, epoch=0)  # older: no longer of interest
    transacted(partition, 9, AHEAD, version=1, epoch=1)
    transacted(partition, 8, 0, version=1, epoch=1)


def test_only_so_many_producers_are_awaited_at_a_time():
    producers = ProducerState("t-0", expiration_ms=10_000)
    for pid in range(AWAITED_MAX + 1):
        producers.expect(pid, 0, 0, from_zero=False, now_ms=pid)
    ahead = {pid: data(1, pid=pid, txn=True) for pid in (0, 1, AWAITED_MAX)}
    producers.check(read_header(ahead[0]), from_client=True)  # forgotten for the newest
    for pid in (1, AWAITED_MAX):
        with pytest.raises(RequestError):
            producers.check(read_header(ahead[pid]), from_client=True)
        producers.check(read_header(ahead[pid]), from_client=False)  # followers take what their leader has


def test_what_is_awaited_for_long_is_forgotten():
    producers = ProducerState("t-0", expiration_ms=10_000)
    producers.expect(PID, 0, 0, from_zero=False, now_ms=5)
    ahead = read_header(data(1, txn=True))
    producers.expire(10_004)
    with pytest.raises(RequestError):
        producers.check(ahead, from_client=True)
    producers.expire(10_005)
    assert producers.check(ahead, from_client=True) is None
