"""Readers are told of the aborted transactions in their range, in whatever way the log has come to know of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.log.cleaner.transactions import TransactionTracker
from barnabas.log.format import names
from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.log.partition_log import PartitionLog
from barnabas.records.batch import BatchHeader, read_header
from barnabas.records.control import ControlType
from barnabas.records.validate import Origin
from tests.support.logs import Broker, append, batch, marker, rebase

# Offsets: transactions of producers 1 to 3, and what is written outside of any.
#   0 a1   1 b2   2 plain   3 abort 2   4 a1   5 abort 1   6 c3   7 commit 3   8 d1   9 abort 1
TOLD = [
    AbortedTransaction(2, 1, 3, 0),  # when 2 was aborted, 1 was open from 0 on
    AbortedTransaction(1, 0, 5, 6),
    AbortedTransaction(1, 8, 9, 10),
]


def written(log: PartitionLog) -> None:
    sequences = dict.fromkeys((1, 2, 3), 0)

    def of(producer_id: int) -> None:
        sequence = sequences[producer_id]
        sequences[producer_id] += 1
        append(log, batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=sequence,
                          transactional=True))  # fmt: skip

    def end(producer_id: int, *, commit: bool) -> None:
        append(log, marker(commit=commit, producer_id=producer_id), origin=Origin.COORDINATOR)

    of(1)
    of(2)
    append(log, batch(b"plain"))
    end(2, commit=False)
    of(1)
    end(1, commit=False)
    of(3)
    end(3, commit=True)
    of(1)
    end(1, commit=False)
    assert log.log_end_offset == 10


@pytest.fixture(params=["one segment", "small segments"])
def broker(request, tmp_path):
    small = {"segment_bytes": 200} if request.param == "small segments" else {}
    broker = Broker(tmp_path, **small)
    yield broker
    broker.crash()


@pytest.fixture
def log(broker):
    log = broker.log()
    written(log)
    return log


def affecting(start: int, upper: int) -> set[AbortedTransaction]:
    """Those that have a record, or their marker, from `start` on, and began before `upper`."""
    return {entry for entry in TOLD if entry.last_offset >= start and entry.first_offset < upper}


@pytest.mark.parametrize("way", ["written", "clean", "crashed", "index gone", "index damaged"])
def test_reader_gets_just_the_aborts_within_its_read(broker, log, way):
    if way != "written":
        broker.restart(clean=way != "crashed")
        log = broker.log()
        log.advance_high_watermark(10)
    if way.startswith("index"):
        for path in Path(log.dir).glob(f"*{names.TXN_INDEX}"):
            if way == "index gone":
                path.unlink()
            else:
                path.write_bytes(path.read_bytes()[:-1])
    for start in range(10):
        for upper in range(start + 1, 11):
            told = log.aborted_transactions(start, upper)
            assert len(told) == len(set(told)), (start, upper)
            assert set(told) == affecting(start, upper), (start, upper)


def test_aborts_after_a_truncation_count_truncated_ones_do_not(log):
    log.truncate_to(5, now_ms=0)
    assert log.last_stable_offset == 0
    assert log.aborted_transactions(0, 5) == TOLD[:1]
    append(log, marker(commit=True, producer_id=1), origin=Origin.COORDINATOR)
    assert log.aborted_transactions(0, 6) == TOLD[:1]


# --- of the cleaner ---------------------------------------------------------------------------------------------


def data(offset: int, producer_id: int, *, transactional: bool = True, count: int = 1) -> BatchHeader:
    raw = batch(*[b"v"] * count, producer_id=producer_id, producer_epoch=0, base_sequence=0,
                transactional=transactional)  # fmt: skip
    rebase(raw, 0, offset, 0)
    return read_header(raw)


def end_of(offset: int, producer_id: int) -> BatchHeader:
    raw = marker(commit=True, producer_id=producer_id)
    rebase(raw, 0, offset, 0)
    return read_header(raw)


ABORTED = AbortedTransaction(7, 10, 20, 21)


def test_aborted_batches_are_the_producers_from_its_first_offset():
    tracker = TransactionTracker()
    tracker.expect([ABORTED])
    assert not tracker.see_batch(data(9, 7))
    assert not tracker.see_marker(end_of(9, 7), ControlType.COMMIT), "its batch is still there"
    assert tracker.see_batch(data(10, 7))
    assert not tracker.see_batch(data(11, 8))
    assert not tracker.see_batch(data(12, 7, transactional=False))
    assert tracker.see_batch(data(13, 7))
    assert not tracker.see_marker(end_of(20, 7), ControlType.ABORT), "the index still needs an entry"
    assert tracker.take_aborted() == [ABORTED]
    assert tracker.take_aborted() == []
    assert not tracker.see_batch(data(21, 7)), "the next transaction of the producer is another"


def test_a_marker_of_another_kind_stays():
    kinds = [kind for kind in ControlType if kind not in (ControlType.ABORT, ControlType.COMMIT)]
    assert kinds
    for kind in kinds:
        assert not TransactionTracker().see_marker(end_of(1, 7), kind)
