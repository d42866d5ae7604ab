"""The log's side of an audit, without Spark: what the headers of batches tell, and digests of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.records.building import encode_batch
from barnabas.records.control import ControlType, encode_key
from barnabas.records.record import Record
from barnabas_pipeline.log import digest
from barnabas_pipeline.log.columns import Columns
from barnabas_pipeline.log.model import OffsetRange
from barnabas_pipeline.log.order import StoredBatch
from barnabas_pipeline.log.outline import Outline, outline
from barnabas_pipeline.log.reader import RangeReader

from .given import GivenLog, stored


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[StoredBatch], int]:
    """Batches with and without gaps in and between them, some aborted, some control, some damaged; and their end."""
    items, base = [], 0
    for _ in range(draw(st.integers(1, 6))):
        base += draw(st.sampled_from([0, 0, 0, 3]))
        kind = draw(st.sampled_from(["plain", "plain", "plain", "gaps", "control", "aborted", "damaged"]))
        offsets = list(range(base, base + draw(st.integers(1, 8))))
        if kind == "control":
            offsets = offsets[:1]
        last = offsets[-1]
        if kind == "gaps":
            offsets = sorted(draw(st.sets(st.sampled_from(offsets), min_size=1)))
        key = encode_key(ControlType.ABORT) if kind == "control" else b"k"
        records = [Record(offset, 1000 + offset, key, b"v%d" % offset) for offset in offsets]
        is_transactional = kind in ("control", "aborted")
        data = bytearray(
            encode_batch(
                records,
                base_offset=base,
                last_offset=last,
                codec=draw(st.sampled_from([0, 2])),
                producer_id=1 if is_transactional else -1,
                transactional=is_transactional,
                control=kind == "control",
            )
        )
        if kind == "damaged":
            data[-1] ^= 1
        items.append(stored(data, is_aborted=kind == "aborted"))
        base = last + 1
    return items, base


def spans(drawn: Outline) -> list[int]:
    return [
        n for low, high in zip(drawn.low.tolist(), drawn.high.tolist(), strict=True) for n in range(low, high)
    ]


@given(logs(), st.data())
@settings(max_examples=300)
def test_outline_agrees_with_decoding_and_digests_add_up(
    stored: tuple[list[StoredBatch], int], data: st.DataObject
) -> None:
    items, end = stored
    cut = data.draw(st.integers(0, end))
    digests = []
    for start, stop in ((0, cut), (cut, end), (0, end)):
        asked = OffsetRange(0, start, stop)
        reader = RangeReader(GivenLog(items), asked)  # type: ignore[arg-type]
        offsets: list[int] = []
        for item in reader:
            offsets += item.offset.tolist() if isinstance(item, Columns) else range(item.start, item.end)
        outlined = outline(GivenLog(items), asked)  # type: ignore[arg-type]
        assert spans(outlined) == offsets
        assert (outlined.low[1:] > outlined.high[:-1]).all()
        for name in ("control", "aborted", "compacted", "digest"):
            assert getattr(outlined.counts, name) == getattr(reader.counts, name), name
        digests.append(outlined.counts.digest)
    assert digest.add(*digests[:2]) == digests[2]


def test_digest_depends_on_the_batch_but_not_the_leader_epoch() -> None:
    def of(value: bytes, epoch: int = 0) -> int:
        data = encode_batch([Record(7, 1000, None, value)], base_offset=7, leader_epoch=epoch)
        return outline(GivenLog([stored(data)]), OffsetRange(0, 7, 8)).counts.digest  # type: ignore[arg-type]

    assert of(b"a") != of(b"b")
    assert of(b"a", 1) == of(b"a", 2)


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_what_is_missing_and_what_is_strange(there: set[int], actual: set[int]) -> None:
    low = np.array([n for n in sorted(there) if n - 1 not in there], np.int64)
    high = np.array([n + 1 for n in sorted(there) if n + 1 not in there], np.int64)
    log = Outline(low, high, None)  # type: ignore[arg-type]
    offsets = np.array(sorted(actual), np.int64)
    missing = sorted(there - actual)
    assert log.without(offsets, 5) == (len(missing), missing[:5])
    assert offsets[~log.has(offsets)].tolist() == sorted(actual - there)
