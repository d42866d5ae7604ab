"""Compaction against a model: whatever is written, cleaned and restarted, each key keeps its last value."""

from __future__ import annotations

import shutil

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.log.cleaner.cleaner import LogCleaner
from barnabas.records.batch import read_records
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.records.validate import Origin
from tests.support.effort import examples
from tests.support.logs import NOW_MS, Broker, append, marker, quick_directory

KEYS = st.integers(0, 8).map(lambda n: b"key%d" % n)
VALUES = st.one_of(st.none(), st.binary(max_size=60))
PRODUCERS = st.integers(1, 3)


class CleaningMachine(RuleBasedStateMachine):
    """`self.committed` is what a read_committed consumer ends up with; None: may be seen or not."""

    @initialize(segment_bytes=st.integers(400, 1_500), retention=st.sampled_from([0, 1_000]))
    def begin(self, segment_bytes: int, retention: int) -> None:
        self.directory = quick_directory()
        self.broker = Broker(
            self.directory,
            segment_bytes=segment_bytes,
            index_interval_bytes=100,
            cleanup_policy=frozenset({"compact"}),
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=retention,
        )
        self.log = self.broker.log()
        self.now_ms = NOW_MS
        self.committed: dict[bytes, bytes | None] = {}
        self.open: dict[int, list[tuple[int, bytes, bytes | None]]] = {}
        self.written: dict[bytes, int] = {}  # key -> offset of its last committed record
        self.sequences: dict[int, int] = {}
        self.last_sequences: dict[int, tuple[int, int]] = {}

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            shutil.rmtree(self.directory)

    @rule(pairs=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4), codec=st.sampled_from([0, 0, 3]))
    def write(self, pairs: list, codec: int) -> None:
        records = [Record(n, self.now_ms, *pair) for n, pair in enumerate(pairs)]
        result = append(self.log, bytearray(encode_batch(records, codec=codec)), now_ms=self.now_ms)
        self.commit([(result.base_offset + n, *pair) for n, pair in enumerate(pairs)])

    def commit(self, records: list[tuple[int, bytes, bytes | None]]) -> None:
        for offset, key, value in records:
            # A cleaner goes by offsets, not by when a transaction was committed.
            if offset > self.written.get(key, -1):
                self.written[key] = offset
                self.committed[key] = value

    @rule(producer_id=PRODUCERS, pairs=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=2))
    def write_in_transaction(self, producer_id: int, pairs: list) -> None:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(pairs)
        records = [Record(n, self.now_ms, *pair) for n, pair in enumerate(pairs)]
        raw = encode_batch(
            records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        base = append(self.log, bytearray(raw), now_ms=self.now_ms).base_offset
        self.last_sequences[producer_id] = (sequence, len(pairs))
        self.open.setdefault(producer_id, []).extend((base + n, *pair) for n, pair in enumerate(pairs))

    @rule(producer_id=PRODUCERS, commit=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool) -> None:
        if producer_id in self.open:
            append(self.log, marker(commit=commit, producer_id=producer_id), origin=Origin.COORDINATOR)
            records = self.open.pop(producer_id)
            if commit:
                self.commit(records)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(delay_ms=st.sampled_from([0, 500, 1_000]))
    def wait(self, delay_ms: int) -> None:
        self.now_ms += delay_ms

    @rule(slots=st.integers(2, 20))
    def clean(self, slots: int) -> None:
        self.log.flush(self.now_ms)
        cleaner = LogCleaner(lambda: self.broker.manager, dedupe_bytes=24 * slots)
        cleaner.clean(self.now_ms)
        assert not cleaner.uncleanable
        self.broker.manager.remove_due(self.now_ms + 60_000)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        end = self.log.log_end_offset
        self.broker.restart(clean=clean)
        self.log = self.broker.log()
        assert self.log.log_end_offset == end
        self.log.advance_high_watermark(end)

    @rule(producer_id=PRODUCERS)
    def send_again(self, producer_id: int) -> None:
        if producer_id in self.last_sequences and producer_id in self.open:
            sequence, count = self.last_sequences[producer_id]
            raw = encode_batch(
                [Record(n, self.now_ms, b"k", b"again") for n in range(count)],
                producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True,
            )  # fmt: skip
            assert append(self.log, bytearray(raw), now_ms=self.now_ms).duplicate

    @invariant()
    def consumers_see_the_last_values(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        aborted = log.aborted_transactions(0, log.log_end_offset)
        seen: dict[bytes, bytes | None] = {}
        for segment in log.segments:
            for position, header in segment.headers():
                if header.is_control:
                    continue
                is_aborted = header.is_transactional and any(
                    entry.producer_id == header.producer_id
                    and entry.first_offset <= header.base_offset <= entry.last_offset
                    for entry in aborted
                )
                is_open = header.is_transactional and any(
                    offset == header.base_offset for offset, _, _ in self.open.get(header.producer_id, ())
                )
                if is_aborted or is_open:
                    continue
                for record in read_records(segment.file.read(header.size, position)):
                    seen[record.key] = record.value
        live = {key: value for key, value in self.committed.items() if value is not None}
        assert {key: value for key, value in seen.items() if value is not None} == live
        assert log.log_start_offset == 0


CleaningMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestCleaningModel = CleaningMachine.TestCase
