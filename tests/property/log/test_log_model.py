"""A log against a model that is a list: random appends, reads, rolls, truncations, restarts, crashes."""

from __future__ import annotations

import shutil

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.records.batch import iter_batches, read_records
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from tests.support.effort import examples
from tests.support.logs import NOW_MS, Broker, quick_directory

SIZES = st.integers(0, 300)
TIMESTAMPS = st.integers(-500, 500).map(lambda delta: NOW_MS + delta)


class LogMachine(RuleBasedStateMachine):
    """`self.records` is what the log must hold from `self.start` on; offsets may have gaps."""

    @initialize(
        segment_bytes=st.integers(1_500, 4_000),
        interval=st.integers(0, 500),
        index_bytes=st.integers(48, 400),
        compacted=st.booleans(),
    )
    def begin(self, segment_bytes: int, interval: int, index_bytes: int, compacted: bool) -> None:
        self.compacted = compacted
        self.directory = quick_directory()
        self.broker = Broker(
            self.directory,
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            cleanup_policy=frozenset({"compact" if compacted else "delete"}),
        )
        self.broker.manager.pool.count_max = 3
        self.log = self.broker.log()
        self.records: list[Record] = []
        self.epochs: dict[int, int] = {}  # offset -> epoch
        self.end = 0
        self.start = 0
        self.epoch = 0

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            shutil.rmtree(self.directory)

    @rule(
        sizes=st.lists(SIZES, min_size=1, max_size=4), timestamp=TIMESTAMPS, codec=st.sampled_from([0, 0, 3])
    )
    def append(self, sizes: list[int], timestamp: int, codec: int) -> None:
        records = [Record(n, timestamp + n, b"k", bytes(size)) for n, size in enumerate(sizes)]
        result = self.log.append_as_leader(
            bytearray(encode_batch(records, codec=codec)), leader_epoch=self.epoch, now_ms=NOW_MS
        )
        assert result.base_offset == self.end
        self.add(self.end, records)

    @precondition(lambda self: self.compacted)  # only there, gaps are nothing that a crash could have made
    @rule(gap=st.integers(1, 1_000), size=SIZES, timestamp=TIMESTAMPS)
    def replicate_with_a_gap(self, gap: int, size: int, timestamp: int) -> None:
        records = [Record(self.end + gap + n, timestamp, b"k", bytes(size)) for n in range(2)]
        self.log.append_as_follower(encode_batch(records, leader_epoch=self.epoch), now_ms=NOW_MS)
        self.add(self.end + gap, records)

    def add(self, base: int, records: list[Record]) -> None:
        for n, record in enumerate(records):
            self.records.append(Record(base + n, record.timestamp, record.key, record.value))
            self.epochs[base + n] = self.epoch
        self.end = base + len(records)

    @rule()
    def elect(self) -> None:
        self.epoch += 1

    def batch_ends(self) -> list[int]:
        """Where followers and high watermarks can be: where batches end."""
        ends = [header.next_offset for segment in self.log.segments for _, header in segment.headers()]
        return [end for end in ends if end >= self.start] or [self.end]

    @rule(data=st.data())
    def advance(self, data: st.DataObject) -> None:
        self.log.advance_high_watermark(data.draw(st.sampled_from(self.batch_ends())))

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.batch_ends()))
        assert self.log.truncate_to(offset, now_ms=NOW_MS) is (offset < self.end)
        self.records = [record for record in self.records if record.offset < offset]
        self.end = offset

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = int(self.log.high_watermark * share)
        self.start = max(self.start, offset)
        assert self.log.delete_records_before(offset) == self.start
        self.log.apply_retention(NOW_MS)
        self.broker.manager.remove_due(NOW_MS + 60_000)

    @rule(clean=st.booleans(), checkpoint=st.booleans(), flush=st.booleans())
    def restart(self, clean: bool, checkpoint: bool, flush: bool) -> None:
        if flush:
            self.log.flush(NOW_MS)
        # The log start of a log is lost in a crash unless it was noted; what was deleted may be seen again.
        if checkpoint or not clean:
            self.broker.manager.write_checkpoints()
        before = self.log.high_watermark
        self.broker.restart(clean=clean)
        self.broker.manager.pool.count_max = 3
        self.log = self.broker.log()
        assert self.log.high_watermark == before

    @rule(share=st.floats(0, 1), max_bytes=st.integers(0, 2_000), min_one=st.booleans())
    def read(self, share: float, max_bytes: int, min_one: bool) -> None:
        offset = self.start + int((self.end - self.start) * share)
        for upper in (self.end, self.log.high_watermark):
            result = self.log.read(offset, max_bytes=max_bytes, upper_offset=upper, min_one_batch=min_one)
            data = result.to_bytes()
            found = [
                record
                for position, header in iter_batches(data)
                for record in read_records(data, position)
                if record.offset >= offset
            ]
            expected = [record for record in self.records if record.offset >= offset]
            assert found == expected[: len(found)]
            assert not found or found[-1].offset < min(upper, result.next_offset)
            if min_one and expected and expected[0].offset < upper:
                assert found
            assert len(data) <= max_bytes or (min_one and len(list(iter_batches(data))) == 1)

    @rule(delta=st.integers(-600, 600))
    def find_by_timestamp(self, delta: int) -> None:
        expected = next(
            (
                record
                for record in self.records
                if record.timestamp >= NOW_MS + delta and record.offset >= self.start
            ),
            None,
        )
        found = self.log.offset_for_timestamp(NOW_MS + delta)
        if expected is None:
            assert found is None
        else:
            assert found == (expected.timestamp, expected.offset, self.epochs[expected.offset])

    @rule()
    def read_everything(self) -> None:
        found: list[Record] = []
        offset = self.start
        while offset < self.end:
            result = self.log.read(offset, max_bytes=500, upper_offset=self.end)
            data = result.to_bytes()
            if not data:
                break
            for position, header in iter_batches(data):
                found += [record for record in read_records(data, position) if record.offset >= offset]
                offset = header.next_offset
        assert found == [record for record in self.records if record.offset >= self.start]

    @invariant()
    def offsets_are_in_order(self) -> None:
        if hasattr(self, "log"):
            log = self.log
            assert log.log_start_offset == self.start
            assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
            assert log.log_end_offset == self.end
            assert [segment.base_offset for segment in log.segments] == sorted(
                {segment.base_offset for segment in log.segments}
            )


LogMachine.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=50, deadline=None)
TestLogModel = LogMachine.TestCase
