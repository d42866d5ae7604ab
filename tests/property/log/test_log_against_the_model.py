"""A partition's log as leader and follower, over truncations and restarts: the model says what each request brings.

Ends, watermarks, segments and leader epochs are compared after every step. `log_slips` are slips that must be noticed.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo
from barnabas.handlers.delete_records import DeleteRecords
from barnabas.handlers.list_offsets import ListOffsets
from barnabas.handlers.offset_for_leader_epoch import OffsetForLeaderEpoch
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.records.batch import iter_batches, read_records
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.records.steps import run
from barnabas.serving.step_runner import StepRunner
from barnabas.wire.generated.delete_records import DeleteRecordsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.models import partition_log as model
from tests.support.at_once import NoThreads, at_once, no_turns
from tests.support.effort import examples
from tests.support.logs import NOW_MS, marker
from tests.support.outcomes import are_answers, outcome
from tests.support.replicas import TOPIC, Node
from tests.support.slips import unnoticed

from .log_slips import SLIPS

ME, OTHER = 1, 2
HOUR_MS = 3_600_000
CONFIGS = st.builds(
    model.Settings,
    segment_bytes=st.sampled_from([350, 700, 1_500]),
    segment_ms=st.sampled_from([300, HOUR_MS]),
    retention_bytes=st.sampled_from([-1, 0, 500, 1_000]),
    retention_ms=st.sampled_from([-1, -1, 300, 500]),
    max_message_bytes=st.sampled_from([300, 1 << 20]),
    is_append_time=st.sampled_from([False, False, True]),
    is_deleted=st.sampled_from([True, True, False]),
)
TIMES = st.builds(
    lambda age_ms, times: [NOW_MS - age_ms + time for time in times],
    st.sampled_from([0, 0, 800]),
    st.lists(st.integers(-400, 400), min_size=1, max_size=4),
)
"""Timestamps of a batch; of some batches all are old: a segment of these may follow a young one."""
PADDING = st.sampled_from([0, 0, 40, 250])
EPOCHS = st.sampled_from([None, None, None, 0, -1, 1])
"""The leader epoch that a client believes in: none, or so many above the real one."""


def config_of(config: model.Settings, interval: int, index_bytes: int) -> LogConfig:
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        retention_bytes=config.retention_bytes,
        retention_ms=config.retention_ms,
        max_message_bytes=config.max_message_bytes,
        message_timestamp_type="LogAppendTime" if config.is_append_time else "CreateTime",
        cleanup_policy=frozenset({"delete" if config.is_deleted else "compact"}),
        index_interval_bytes=interval,
        segment_index_bytes=index_bytes,
    )


class Histories(RuleBasedStateMachine):
    """One of two brokers that are in sync; of the other one the test says how far it has come."""

    @initialize(
        values=CONFIGS, interval=st.sampled_from([0, 200, 4096]), index_bytes=st.sampled_from([10 << 20, 10 << 20, 48]),
    )  # fmt: skip
    def begin(self, values: model.Settings, interval: int, index_bytes: int) -> None:
        """With small index files segments are rolled also where these are full, which is not predicted."""
        self.has_small_indexes = index_bytes < 100
        self.now = NOW_MS
        self.budget = no_turns()
        self.step_runner = StepRunner(self.budget, NoThreads())
        self.node = Node(ME, threads=NoThreads(), budget=self.budget)
        self.node.logs.pool.count_max = 3
        self.node.config = config_of(values, interval, index_bytes)
        self.node.live = frozenset({ME})
        self.model = model.PartitionLog(values)
        self.values: dict[int, bytes] = {}
        self.number = 0
        self.producer = 0
        self.info = PartitionInfo(leader=ME, replicas=(ME, OTHER), isr=(ME, OTHER))
        self.hear_of_topic(leads=True)

    def hear_of_topic(self, *, leads: bool) -> None:
        self.info = self.next_info(leads=leads)
        at_once(self.node.create(self.info))
        self.model.become(leads=leads, leader_epoch=self.info.leader_epoch)

    def next_info(self, *, leads: bool) -> PartitionInfo:
        return self.info._replace(leader=ME if leads else OTHER, leader_epoch=self.info.leader_epoch + 1)

    @property
    def log(self) -> PartitionLog:
        return self.node.replica.log

    # --- comparing ------------------------------------------------------------------------------------------

    def compare(self, event, predicted):
        """Let the log act and the model predict; both must end in the same way and in the same state."""
        got, expected = outcome(event), outcome(predicted)
        assert got == expected
        self.same()
        return got

    def same(self) -> None:
        log, expected = self.log, self.model
        expected.resolve(log.last_stable_offset)
        assert (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset) == (
            expected.start, expected.last_stable_offset, expected.high_watermark, expected.end,
        )  # fmt: skip
        assert log.recovery_point == expected.recovery_point
        assert log.epochs.entries == expected.noted_epochs
        filled = [segment.base for segment in expected.segments if segment.batches]
        assert [segment.base_offset for segment in log.segments if segment.size] == filled

    def is_index_full(self) -> bool:
        """Say whether the last append has begun a segment and, by its files, may have."""
        return self.has_small_indexes and self.log.active.base_offset > self.model.segments[-1].base

    def context(self) -> SimpleNamespace:
        return SimpleNamespace(api_version=11, now_ms=self.now, authorizes=lambda *_, **__: True)

    def place(self, data: st.DataObject) -> int:
        """Return where a batch begins or the log ends: a follower, and a high watermark, are nowhere else."""
        places = [batch.base for batch in self.model.batches()]
        return data.draw(st.sampled_from([*places[-8:], self.model.end, self.model.end]))

    # --- appending ------------------------------------------------------------------------------------------

    def records(self, times: list[int], padding: int) -> list[Record]:
        self.number += 1
        values = [b"%d.%d" % (self.number, n) + b"." * padding for n in range(len(times))]
        return [Record(n, time, b"k", values[n]) for n, time in enumerate(times)]

    def keep(self, base: int, records: list[Record]) -> None:
        for n, record in enumerate(records):
            assert record.value is not None
            self.values[base + n] = record.value

    @rule(
        batches=st.lists(TIMES, min_size=1, max_size=5), padding=PADDING, codec=st.sampled_from([0, 0, 0, 3]),
        ahead=st.sampled_from([0] * 9 + [HOUR_MS]), is_fetched=st.sampled_from([True, True, False]),
    )  # fmt: skip
    def produce(
        self, batches: list[list[int]], padding: int, codec: int, ahead: int, is_fetched: bool
    ) -> None:
        for times in batches:
            self.append(self.records([time + ahead for time in times], padding), codec=codec)
        if is_fetched:
            self.has_come_to(self.model.end)

    @rule(times=TIMES, begins=st.booleans())
    def produce_in_a_transaction(self, times: list[int], begins: bool) -> None:
        open_ones = [key for key, txn in self.model.transactions.items() if txn.end is None]
        if begins or not open_ones:
            self.producer += 1
            open_ones = [self.producer]
        producer = open_ones[0]
        txn = self.model.transactions.get(producer)
        sequence = 0 if txn is None else txn.count
        base = self.append(
            self.records(times, 0),
            producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True,
        )  # fmt: skip
        if isinstance(base, int):
            self.model.note_transactional(producer, base, len(times))
            self.same()

    def append(self, records: list[Record], **options: int) -> int | str:
        data = bytearray(encode_batch(records, **options))
        times = tuple(record.timestamp for record in records)

        def event() -> int:
            leader = self.node.replicas.leader(TOPIC, 0)
            how = {"acks": 1, "now_ms": self.now}
            valid = run(leader.validation(memoryview(data), api_version=11, **how))
            return leader.append(valid, **how).base_offset

        got, expected = (
            outcome(event),
            outcome(
                lambda: self.model.produce(times, len(data), self.now, is_index_full=self.is_index_full())
            ),
        )
        assert got == expected
        if isinstance(got, int):
            self.keep(got, records)
        if not options.get("producer_id"):
            self.same()
        return got

    @precondition(lambda self: self.model.leads)
    @rule(is_commit=st.booleans())
    def end_transaction(self, is_commit: bool) -> None:
        open_ones = [key for key, txn in self.model.transactions.items() if txn.end is None]
        if not open_ones:
            return
        producer = open_ones[0]
        data = marker(commit=is_commit, producer_id=producer)
        base = self.node.replica.append_own(data, now_ms=self.now).base_offset
        times = (self.now if self.model.settings.is_append_time else NOW_MS,)
        assert base == self.model.produce(
            times, len(data), max(self.now, NOW_MS), is_index_full=self.is_index_full()
        )
        self.model.note_end(producer, base, is_commit=is_commit)
        self.same()

    @precondition(lambda self: not self.model.leads)
    @rule(
        batches=st.lists(st.tuples(TIMES, st.sampled_from([0, 0, 0, 1, 50])), min_size=1, max_size=3),
        data=st.data(),
    )
    def replicate(self, batches: list[tuple[list[int], int]], data: st.DataObject) -> None:
        """Append what the leader sends: several batches, and where it compacts also with gaps between them."""
        end, sent, appended = self.model.end, b"", []
        latest = self.model.noted_epochs[-1][0] if self.model.noted_epochs else 0
        for times, gap in batches:
            base = end if self.model.settings.is_deleted else end + gap
            latest = data.draw(st.sampled_from([latest, self.model.leader_epoch]))
            records = self.records(times, 0)
            self.keep(base, records)
            moved = [replace(record, offset=base + record.offset) for record in records]
            encoded = encode_batch(moved, leader_epoch=latest)
            appended.append(model.Batch(base, tuple(times), latest, len(encoded)))
            sent += encoded
            end = base + len(times)
        self.log.append_as_follower(sent, now_ms=self.now)
        self.model.append(appended, is_index_full=self.is_index_full())
        self.same()

    @rule()
    def roll(self) -> None:
        self.log.roll()
        self.model.roll()
        self.same()

    # --- how far readers may see ----------------------------------------------------------------------------

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """The other broker has fetched, or says how far all have come."""
        self.has_come_to(self.place(data))

    def has_come_to(self, offset: int) -> None:
        if self.model.leads:
            self.node.replica.follower_fetched(OTHER, offset, log_start_offset=0)
        else:
            self.log.advance_high_watermark(offset)
        self.model.commit(offset)
        self.same()

    @rule(
        share=st.floats(0, 1.1), max_bytes=st.sampled_from([1, 100, 400, 1 << 20]),
        level=st.sampled_from(["read_committed", "read_uncommitted", "all"]),
        is_first_whole=st.sampled_from([True, True, False]),
    )  # fmt: skip
    def read(self, share: float, max_bytes: int, level: str, is_first_whole: bool) -> None:
        offset = round(self.model.end * share)

        def event():
            log = self.node.replicas.leader(TOPIC, 0).log
            uppers = {"read_committed": log.last_stable_offset, "read_uncommitted": log.high_watermark}
            upper = uppers.get(level, log.log_end_offset)
            sliced = log.read(offset, max_bytes=max_bytes, upper_offset=upper, min_one_batch=is_first_whole)
            told = [
                (transaction.producer_id, transaction.first_offset)
                for transaction in log.aborted_transactions(offset, sliced.next_offset)
            ]
            return sliced.to_bytes(), told

        got, expected = (
            outcome(event),
            outcome(lambda: self.model.read(offset, max_bytes, level, is_first_whole=is_first_whole)),
        )
        if not are_answers(got, expected):
            return
        (content, told), (batches, size) = got, expected
        assert len(content) == size
        whole = [(header, [*read_records(content, at)]) for at, header in iter_batches(content)]
        for (header, records), batch in zip(whole, batches, strict=False):
            assert (header.base_offset, header.leader_epoch) == (batch.base, batch.epoch)
            assert [(record.offset, record.timestamp) for record in records] == [
                (batch.base + n, time) for n, time in enumerate(batch.timestamps)
            ]
            if batch.base in self.values:
                assert [row.value for row in records] == [self.values[row.offset] for row in records]
        must, may = self.model.aborted(offset, whole[-1][0].next_offset if whole else offset)
        assert must <= set(told) <= may
        assert len(told) == len(set(told))

    @rule(
        asked=st.sampled_from([model.LATEST, model.EARLIEST, model.MAX_TIMESTAMP, None, None, None]),
        more=st.integers(-500, 500),
        reads_committed=st.booleans(),
        epoch=EPOCHS,
    )
    def list_offsets(self, asked: int | None, more: int, reads_committed: bool, epoch: int | None) -> None:
        current = -1 if epoch is None else self.model.leader_epoch + epoch
        for timestamp in [NOW_MS + more, NOW_MS - 500] if asked is None else [asked]:
            self.list_offset(timestamp, current, reads_committed)

    def list_offset(self, timestamp: int, current: int, reads_committed: bool) -> None:
        query = ListOffsetsRequest.ListOffsetsPartition(0, current_leader_epoch=current, timestamp=timestamp)
        request = ListOffsetsRequest(
            -1, int(reads_committed), [ListOffsetsRequest.ListOffsetsTopic(TOPIC, [query])]
        )

        def event():
            response = at_once(
                ListOffsets(
                    replicas=self.node.replicas, budget=self.budget, step_runner=self.step_runner, tiered=None
                ).handle(self.context(), request)
            )
            answer = response.topics[0].partitions[0]
            return told(answer, answer.timestamp, answer.offset, answer.leader_epoch)

        self.compare(
            event, lambda: self.model.list_offset(timestamp, current, reads_committed=reads_committed)
        )

    @rule(epoch=EPOCHS)
    def end_of_epochs(self, epoch: int | None) -> None:
        """Ask for the end of each epoch that there may have been lately, and of some that there was not."""
        current = -1 if epoch is None else self.model.leader_epoch + epoch
        for asked in range(max(self.model.leader_epoch - 6, -1), self.model.leader_epoch + 3):
            self.compare(
                lambda asked=asked: self.epoch_end(asked, current),
                lambda asked=asked: self.model.epoch_end(asked, current),
            )

    def epoch_end(self, asked: int, current: int):
        query = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(0, current, asked)
        request = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderEpochRequest.OffsetForLeaderTopic(TOPIC, [query])]
        )
        response = at_once(
            OffsetForLeaderEpoch(replicas=self.node.replicas, budget=self.budget).handle(
                self.context(), request
            )
        )
        answer = response.topics[0].partitions[0]
        return told(answer, answer.leader_epoch, answer.end_offset)

    # --- deleting -------------------------------------------------------------------------------------------

    @rule(offset=st.none() | st.sampled_from([-1, -2]), share=st.floats(0, 1.2))
    def delete_records(self, offset: int | None, share: float) -> None:
        upto = round(self.model.high_watermark * share) if offset is None else offset
        request = DeleteRecordsRequest(
            [DeleteRecordsRequest.DeleteRecordsTopic(TOPIC, [DeleteRecordsRequest.DeleteRecordsPartition(0, upto)])]
        )  # fmt: skip
        metadata = SimpleNamespace(image=ClusterImage("c"))

        def event():
            response = at_once(
                DeleteRecords(metadata=metadata, replicas=self.node.replicas, budget=self.budget).handle(
                    self.context(), request
                )
            )
            return told(response.topics[0].partitions[0], response.topics[0].partitions[0].low_watermark)

        self.compare(event, lambda: (self.model.delete_records(upto),))

    @rule(later_ms=st.sampled_from([0, 0, 100, 300]))
    def retain(self, later_ms: int) -> None:
        self.now += later_ms
        self.log.apply_retention(self.now)
        self.model.retain(self.now)
        self.node.logs.remove_due(self.now + self.log.config.file_delete_delay_ms)
        self.same()

    # --- truncation, roles, restarts ------------------------------------------------------------------------

    @precondition(lambda self: not self.model.leads)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = self.place(data)
        self.log.truncate_to(offset, now_ms=self.now)
        self.model.truncate(offset)
        self.same()

    @precondition(lambda self: not self.model.leads)
    @rule(share=st.sampled_from([0.5, 1.0, 1.5]))
    def begin_anew(self, share: float) -> None:
        """The leader has nothing of what is here."""
        offset = round(self.model.end * share)
        self.log.truncate_fully_and_start_at(offset)
        self.model.restart_at(offset)
        self.same()

    @rule(leads=st.sampled_from([True, True, False]))
    def elect(self, leads: bool) -> None:
        self.info = self.next_info(leads=leads)
        at_once(self.node.change(self.info))
        self.model.become(leads=leads, leader_epoch=self.info.leader_epoch)
        self.same()

    @rule()
    def flush(self) -> None:
        self.log.flush(self.now)
        self.model.flush()
        self.same()

    @rule()
    def checkpoint(self) -> None:
        self.node.logs.write_checkpoints()
        self.model.checkpoint()

    @rule(clean=st.booleans(), leads=st.sampled_from([True, True, False]))
    def restart(self, clean: bool, leads: bool) -> None:
        if clean:
            self.node.logs.close()
        else:
            self.log.abandon()
            self.node.logs.ownership.release()
        self.node.image = ClusterImage("c")
        self.node.start()
        self.model.restart(clean=clean)
        self.hear_of_topic(leads=leads)
        self.same()


def told(answer, *values: int):
    """Return an answer's values; those of a refusal must say nothing."""
    if answer.error_code:
        assert set(values) == {-1}
        return ErrorCode(answer.error_code).name
    return values


Histories.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
TestHistories = Histories.TestCase


def test_slips_are_noticed() -> None:
    assert unnoticed(Histories, SLIPS, f"{__file__}::test_slips_are_noticed") == []
