"""Power cuts at any time: what was flushed or closed is there, and what else is there was written once."""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.log.cleaner.cleaner import LogCleaner
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.effort import examples
from tests.support.logs import NOW_MS, Broker, flushes_due, read_all

SEEDS = st.one_of(st.none(), st.integers(0, 1 << 30))


class PowerCutMachine(RuleBasedStateMachine):
    """`self.written` is what the log must hold, `self.safe` the offset before which it must last."""

    @initialize(segment_bytes=st.integers(800, 2_500), compacted=st.booleans())
    def begin(self, segment_bytes: int, compacted: bool) -> None:
        self.disk = MemoryDisk()
        self.disk.make_dirs("/data")
        self.disk.sync_dir("/")
        policy = frozenset({"compact"}) if compacted else frozenset({"delete"})
        self.settings = {
            "segment_bytes": segment_bytes,
            "index_interval_bytes": 100,
            "cleanup_policy": policy,
            "min_cleanable_dirty_ratio": 0.0,
            "retention_ms": -1,
        }
        self.compacted = compacted
        self.written: list[Record] = []
        self.epochs: list[tuple[int, int]] = []
        self.safe = 0
        self.epoch = 0
        self.sequence = 0
        self.open()

    def open(self) -> None:
        self.broker = Broker("/data", disk=self.disk, **self.settings)  # type: ignore[arg-type]
        self.log = self.broker.log()
        self.log.advance_high_watermark(self.log.log_end_offset)

    @rule(keys=st.lists(st.integers(0, 5), min_size=1, max_size=4), size=st.integers(0, 100))
    def append(self, keys: list[int], size: int) -> None:
        records = [Record(n, NOW_MS, b"%d" % key, bytes(size)) for n, key in enumerate(keys)]
        raw = encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=self.sequence)
        result = self.log.append_as_leader(bytearray(raw), leader_epoch=self.epoch, now_ms=NOW_MS)
        self.sequence += len(records)
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.written += [
            Record(result.base_offset + n, NOW_MS, record.key, record.value)
            for n, record in enumerate(records)
        ]
        if not self.epochs or self.epochs[-1][0] != self.epoch:
            self.epochs.append((self.epoch, result.base_offset))

    @rule()
    def elect(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush(NOW_MS)
        self.safe = self.log.log_end_offset

    @rule()
    def flush_what_is_due(self) -> None:
        for task in flushes_due(self.broker.manager, NOW_MS):
            task.run()
            task.finish(NOW_MS)
            self.safe = task.end_offset

    @rule()
    def checkpoint(self) -> None:
        self.broker.manager.write_checkpoints()

    @rule()
    def clean(self) -> None:
        LogCleaner(lambda: self.broker.manager).clean(NOW_MS)

    @rule()
    def remove(self) -> None:
        self.broker.manager.remove_due(NOW_MS + 60_000)

    @rule(seed=SEEDS)
    def restart_cleanly_and_lose_power(self, seed: int | None) -> None:
        self.broker.manager.close()
        self.safe = self.log.log_end_offset
        self.lose_power(seed)

    @rule(seed=SEEDS)
    def lose_power(self, seed: int | None) -> None:
        end_before = self.log.log_end_offset
        self.disk = self.disk.crash(None if seed is None else Random(seed))
        self.open()
        end = self.log.log_end_offset
        assert self.safe <= end <= end_before
        if self.compacted:  # there, a gap looks like one that a cleaner has made
            remaining = {record.offset for record in read_all(self.log)}
            self.written = [r for r in self.written if r.offset < self.safe or r.offset in remaining]
        self.written = [record for record in self.written if record.offset < end]
        before_end = [entry for entry in self.epochs if entry[1] < end]
        if not self.compacted:  # of an epoch whose file is lost, compaction leaves no beginning
            assert [entry for entry in self.log.epochs.entries if entry[1] < self.safe] == [
                entry for entry in before_end if entry[1] < self.safe
            ]
        self.epochs = before_end
        producer = self.log.producers.get(1)
        self.sequence = producer.last_sequence + 1 if producer else 0
        assert self.compacted or self.sequence == len(self.written)
        self.safe = end

    @invariant()
    def all_records_are_there(self) -> None:
        if not hasattr(self, "log"):
            return
        seen = read_all(self.log)
        if not self.compacted:
            assert seen == self.written
            return
        by_offset = {record.offset: record for record in self.written}
        assert all(by_offset.get(record.offset) == record for record in seen)
        assert {record.key: record.offset for record in seen} == {
            record.key: record.offset for record in self.written
        }


PowerCutMachine.TestCase.settings = settings(
    max_examples=examples(100), stateful_step_count=60, deadline=None
)
TestPowerCuts = PowerCutMachine.TestCase
