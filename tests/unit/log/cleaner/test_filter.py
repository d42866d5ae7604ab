"""The rest of a batch after a cleaning, condition by condition: keys, tombstones, horizons, markers, the last writer."""

import pytest

from barnabas.log.cleaner.filter import BatchFilter, LastRecord, control_type_of
from barnabas.log.cleaner.offset_map import OffsetMap
from barnabas.log.cleaner.transactions import TransactionTracker
from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.records import legacy
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import iter_batches, read_any_header, read_header, read_records
from barnabas.records.building import encode_batch
from barnabas.records.compression import Codec
from barnabas.records.control import ControlType, encode_end_marker
from barnabas.records.errors import InvalidRecordsError
from barnabas.records.record import Record

NOW_MS, RETENTION_MS, END = 10_000, 500, 100


def filter_of(*puts, aborted=(), last=None, **how):
    """A filter that has seen these keys at these offsets, and nothing after offset 50."""
    offsets = OffsetMap(1 << 16)
    for key, offset in puts:
        offsets.put(key, offset)
    offsets.latest_offset = 50
    tracker = TransactionTracker()
    tracker.expect(aborted)
    return BatchFilter(offsets, tracker, last or {}, NOW_MS, RETENTION_MS, END, **how)


def one(offset, key=b"k", value=b"v", **how):
    return encode_batch([Record(offset, 7, key, value)], **how)


def outcome(batch_filter, raw):
    """None, "whole", or the records that are left."""
    kept = batch_filter.filter(read_any_header(raw), memoryview(raw))
    if kept is None:
        return None
    if bytes(kept) == raw:
        return "whole"
    return list(iter_any_records(kept))


@pytest.mark.parametrize(
    ("offset", "last_of_key", "expected"),
    [
        (9, 10, None),
        (10, 10, "whole"),
        (11, 10, "whole"),
        (10, None, "whole"),
        (50, 60, None),
        (51, 60, "whole"),
    ],
)
def test_cleaning_keeps_the_last_record_of_each_mapped_key(offset, last_of_key, expected):
    puts = [(b"k", last_of_key)] if last_of_key is not None else []
    assert outcome(filter_of(*puts), one(offset)) == expected


def test_cleaning_refuses_a_record_above_its_topics_bound():
    raw = one(9, value=bytes(1_000), codec=Codec.GZIP)
    assert outcome(filter_of((b"k", 10), record_bytes_max=2_000), raw) is None
    with pytest.raises(InvalidRecordsError, match=r"exceeds max\.decompressed\.message\.bytes, 500"):
        outcome(filter_of((b"k", 10), record_bytes_max=500), raw)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("kind", [0, 1])
def test_what_is_left_of_a_wrapper_is_one_again(magic, kind):
    records = [Record(at, 70 + at, b"%d" % at, b"v") for at in (10, 11, 12)]
    how = {"timestamp_type": legacy.TimestampType(kind), "append_timestamp": 99}
    raw = legacy.encode_message_set(records, magic=magic, codec=1, **how)
    kept = filter_of((b"11", 20)).filter(read_any_header(raw), memoryview(raw))
    assert kept == legacy.encode_message_set([records[0], records[2]], magic=magic, codec=1, **how)
    assert outcome(filter_of(), raw) == "whole"
    assert outcome(filter_of(*((b"%d" % at, 20) for at in (10, 11, 12))), raw) is None


# --- who needs the header of a batch that is empty ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "producer_id", "last", "stays"),
    [
        (10, 7, {7: LastRecord(10, 3)}, True),
        (10, 7, {7: LastRecord(11, 3)}, False),
        (10, 7, {7: LastRecord(9, 3)}, False),
        (10, 7, {8: LastRecord(10, 3)}, False),
        (10, 7, {}, False),
        (10, 7, {7: LastRecord(-1, 3)}, False),  # that was a marker, and this is none
        (10, -1, {-1: LastRecord(10, 3)}, False),
        (99, -1, {}, True),  # the last batch of the cleaning
        (98, -1, {}, False),
        (99, 7, {7: LastRecord(200, 3)}, True),
    ],
)
def test_an_empty_batch_stays_for_its_producer_or_as_the_end(offset, producer_id, last, stays):
    raw = one(offset, producer_id=producer_id, producer_epoch=3, base_sequence=5)
    batch_filter = filter_of((b"k", 200), last=last)
    batch_filter.offsets.latest_offset = 300
    assert outcome(batch_filter, raw) == ([] if stays else None)


# --- transactions -------------------------------------------------------------------------------------------------

ABORTED = AbortedTransaction(7, 10, 20, 21)


def marker(offset, *, commit, producer_id=7, epoch=3):
    return encode_end_marker(
        commit=commit, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=0, timestamp_ms=7,
        base_offset=offset,
    )  # fmt: skip


def data(offset, producer_id=7, *, transactional=True):
    return one(
        offset, producer_id=producer_id, producer_epoch=3, base_sequence=5, transactional=transactional
    )


def with_horizon(raw, horizon_ms):
    return encode_batch(
        read_records(raw), producer_id=7, producer_epoch=3, transactional=True, control=True,
        delete_horizon_ms=horizon_ms,
    )  # fmt: skip


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(
    ("horizon_ms", "expected"),
    [(None, NOW_MS + RETENTION_MS), (NOW_MS + 1, "whole"), (NOW_MS, None), (NOW_MS - 1, None)],
)
def test_a_marker_of_nothing_stays_until_its_horizon(commit, horizon_ms, expected):
    raw = marker(20, commit=commit)
    if horizon_ms is not None:
        raw = with_horizon(raw, horizon_ms)
    kept = filter_of(aborted=[ABORTED]).filter(read_header(raw), memoryview(raw))
    if isinstance(expected, int):
        assert read_header(kept).delete_horizon_ms == expected
        assert read_records(kept) == read_records(raw)
        assert read_header(kept).is_control
    else:
        assert kept is None if expected is None else bytes(kept) == raw


@pytest.mark.parametrize(
    ("last", "epoch", "stays"),
    [
        ({7: LastRecord(-1, 3)}, 3, True),
        ({7: LastRecord(-1, 4)}, 3, False),
        ({7: LastRecord(20, 4)}, 3, True),
        ({7: LastRecord(21, 3)}, 3, False),
        ({}, 3, False),
    ],
)
def test_the_marker_that_was_a_producers_last_word_stays_empty(last, epoch, stays):
    raw = marker(20, commit=True, epoch=epoch)
    raw = encode_batch(
        read_records(raw), producer_id=7, producer_epoch=epoch, transactional=True, control=True,
        delete_horizon_ms=NOW_MS,
    )  # fmt: skip
    batch_filter = filter_of(last=last)
    assert outcome(batch_filter, raw) == ([] if stays else None)
    empty = encode_batch(
        [], base_offset=20, last_offset=20, producer_id=7, producer_epoch=epoch, transactional=True, control=True
    )  # fmt: skip
    assert outcome(batch_filter, empty) == ("whole" if stays else None)
    assert control_type_of(memoryview(empty)) is None
    assert control_type_of(memoryview(raw)) is ControlType.COMMIT


def test_transactions_of_several_producers_are_kept_apart():
    tracker = TransactionTracker()
    expected = [
        AbortedTransaction(1, 10, 30, 31),
        AbortedTransaction(2, 12, 20, 21),
        AbortedTransaction(1, 40, 50, 51),
    ]
    tracker.expect(reversed(expected))
    seen = []
    for offset, producer_id in ((10, 1), (11, 2), (12, 2), (13, 3), (14, 1)):
        raw = data(offset, producer_id)
        seen.append(tracker.see_batch(next(header for _, header in iter_batches(raw))))
    assert seen == [True, False, True, False, True]

    def ends(offset, producer_id, *, commit):
        raw = marker(offset, commit=commit, producer_id=producer_id)
        return tracker.see_marker(read_header(raw), control_type_of(memoryview(raw)))

    assert not ends(20, 2, commit=False)
    assert not ends(25, 3, commit=True)
    assert ends(26, 3, commit=True)  # it has nothing left
    assert not ends(30, 1, commit=False)
    assert tracker.take_aborted() == [expected[1], expected[0]]
    assert ends(50, 1, commit=False)  # nothing of it was seen
    assert tracker.take_aborted() == []
    other = encode_end_marker(
        commit=True, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0, base_offset=60
    )
    assert not tracker.see_marker(read_header(other), ControlType.LEADER_CHANGE)
    assert tracker.see_marker(read_header(other), None)
