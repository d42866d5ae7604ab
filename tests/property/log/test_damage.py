"""Logs that are damaged anywhere after a crash: one batch is lost where only the broker crashed, and after a power cut the
longest sound prefix is left."""

from __future__ import annotations

import shutil

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.log.format import names
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from tests.support.effort import examples
from tests.support.logs import NOW_MS, Broker, append, quick_directory, read_all

# Of a batch's header, base offset and leader epoch are not covered by the checksum.
CHECKED_FROM = (*range(8, 12), 16)


@st.composite
def written_batches(draw):
    sizes = draw(st.lists(st.lists(st.integers(0, 200), min_size=1, max_size=3), min_size=1, max_size=30))
    codec = draw(st.sampled_from([0, 0, 2, 4]))
    return [
        encode_batch(
            [Record(n, NOW_MS + number, b"k", bytes(size)) for n, size in enumerate(batch)],
            codec=codec,
            producer_id=number % 3,
            producer_epoch=0,
            base_sequence=sum(len(sizes[before]) for before in range(number % 3, number, 3)),
        )
        for number, batch in enumerate(sizes)
    ]


@settings(max_examples=examples(60), deadline=None)
@given(raw=written_batches(), data=st.data())
def test_what_is_left_of_a_damaged_log(raw, data):
    directory = quick_directory()
    try:
        broker = Broker(directory, segment_bytes=1_500, index_interval_bytes=100)
        log = broker.log()
        ends = []  # of each batch: base offset of its segment, where it ends in it, the offset after it
        states = [[]]
        for batch in raw:
            append(log, bytearray(batch))
            ends.append((log.active.base_offset, log.active.size, log.log_end_offset))
            states.append(log.producers.snapshot())
        before = read_all(log)
        if data.draw(st.booleans(), label="has a checkpoint"):
            broker.manager.write_checkpoints()
        broker.crash()

        number = data.draw(st.integers(0, len(raw) - 1), label="damaged batch")
        base, end, _ = ends[number]
        start = end - len(raw[number])
        path = directory / "t-0" / names.file_name(base, names.LOG)
        content = bytearray(path.read_bytes())
        torn = data.draw(st.booleans(), label="torn")
        if torn:
            del content[data.draw(st.integers(start, end - 1), label="bytes left") :]
        else:
            at = data.draw(
                st.sampled_from([*CHECKED_FROM, *range(17, end - start)]), label="byte of the batch"
            )
            content[start + at] ^= data.draw(st.integers(1, 255), label="bits")
        path.write_bytes(content)

        power_cut = data.draw(st.booleans(), label="power cut")
        if power_cut:
            broker.reboot()
        broker.start()
        log = broker.log()
        log.advance_high_watermark(log.log_end_offset)
        good = ends[number - 1][2] if number else 0
        lost = range(good, ends[number][2])
        if torn:  # with all that followed it in its file
            lost = range(good, max(offset for segment, _, offset in ends if segment == base))
        kept = [record for record in before if record.offset not in lost]
        if power_cut:
            kept = before[:good]
            assert log.producers.snapshot() == states[number]
        assert read_all(log) == kept
        assert log.log_end_offset == (kept[-1].offset + 1 if kept else good)
        end = log.log_end_offset
        append(log, bytearray(encode_batch([Record(0, NOW_MS, b"k", b"new")])), epoch=1)
        broker.restart(clean=True)
        assert broker.log().log_end_offset == end + 1
    finally:
        shutil.rmtree(directory)
