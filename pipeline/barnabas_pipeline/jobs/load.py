"""load: from a topic into the lake, exactly once; `follow` has the loads that go on.

The rule: the lake alone knows what was loaded. A load begins where the last commit ended, and bad records go to the dead
letters in the same commit.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from barnabas_pipeline import faults, formats
from barnabas_pipeline.errors import (
    DataLossError,
    IncompleteError,
    MissingOffsets,
    NoTopicError,
    UsageError,
)
from barnabas_pipeline.formats.base import PAST_MAX_MS, VALUE_BYTES_MAX
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.files import TARGET_FILE_BYTES
from barnabas_pipeline.lake.iceberg import Layout, Place
from barnabas_pipeline.lake.ledger import Entry, PartitionCommit, State
from barnabas_pipeline.lake.table import ConflictError, Table
from barnabas_pipeline.lake.task import LoadTask, TaskResult
from barnabas_pipeline.lake.task import run as run_task
from barnabas_pipeline.log import digest
from barnabas_pipeline.log.model import Bounds, Log, LogOptions, OffsetRange, TopicIdentity
from barnabas_pipeline.log.planning import Selection, resolve, shorten, split
from barnabas_pipeline.log.transports import open_log
from barnabas_pipeline.schema import EventSchema

OFFSETS_PER_COMMIT_MAX = 2_000_000
OFFSETS_PER_SPARK_TASK = 50_000  # with less, what Spark takes for a task (20 to 40 ms of CPU) begins to count
FAIL, RECORD = "fail", "record"


@dataclass(slots=True)
class LoadOptions:
    """Options of a load: its log, its target, and the size of its portions."""

    log: LogOptions
    root: Place | str  # of the table
    schema: EventSchema
    decoding: dict[str, Any] = field(
        default_factory=dict
    )  # more limits of the decoder, its format among them
    selection: Selection = field(default_factory=Selection)
    on_data_loss: str = FAIL
    offsets_per_commit_max: int = OFFSETS_PER_COMMIT_MAX
    split_bytes: int | None = None  # None: as many tasks as cores, if it is worth it
    target_file_bytes: int = TARGET_FILE_BYTES
    past_max_ms: int = PAST_MAX_MS
    value_bytes_max: int = VALUE_BYTES_MAX
    keep_snapshots: int = 0  # expire older ones with each commit; 0: none
    job_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def decoder(self) -> formats.Decoder:
        """The decoder that tasks use."""
        bounds = {"value_bytes_max": self.value_bytes_max, "past_max_ms": self.past_max_ms}
        return formats.restore(self.schema, bounds | self.decoding)


@dataclass(slots=True)
class LoadSummary:
    """Figures of one run."""

    commits: int = 0
    loaded: int = 0
    dead: int = 0
    control: int = 0
    aborted: int = 0
    compacted: int = 0
    files: int = 0
    bytes_read: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def add(self, results: list[TaskResult]) -> None:
        """Count in what was committed."""
        self.commits += 1
        for one in results:
            for name in ("loaded", "dead", "control", "aborted", "compacted", "bytes_read"):
                setattr(self, name, getattr(self, name) + getattr(one, name))
            self.files += len(one.files)
            for file in one.dead_files:
                for reason, count in file.reasons.items():
                    self.reasons[reason] = self.reasons.get(reason, 0) + count


Progress = Callable[[int, int], None]


def load(spark: Any, options: LoadOptions, progress: Progress = lambda _done, _all: None) -> LoadSummary:
    """Load what is there now. Raises DataLossError, UsageError, IncompleteError."""
    table = Table(options.root)
    dead = DeadLetters(table)
    summary = LoadSummary()
    log = open_log(options.log)
    try:
        identity, bounds = look_up(log, table.state())
        adopt(table, identity, bounds, options)
        dead.publish()  # what an earlier run has committed, but not published
        ends = {one.partition: one.end for one in resolve(log, _only_end(options.selection), bounds)}
        if not table.exists():
            starts = {one.partition: one.start for one in resolve(log, options.selection, bounds)}
        else:
            starts = {}
        first = _pending(table.state(), starts, ends, bounds)
        total = sum(map(len, first))
        while True:
            ranges = shorten(_pending(table.state(), starts, ends, bounds), options.offsets_per_commit_max)
            if not sum(map(len, ranges)):
                return summary
            tasks = split(log, ranges, bytes_max=options.split_bytes)
            version = table.state().version
            try:
                summary.add(commit_ranges(spark, table, identity, bounds, ranges, tasks, options))
            except ConflictError:
                if table.refresh().version == version:
                    raise
                continue  # somebody else has committed: what is left is less now
            dead.publish()
            progress(total - sum(map(len, _pending(table.state(), starts, ends, bounds))), total)
    finally:
        log.close()


def load_round(
    spark: Any,
    options: LoadOptions,
    table: Table,
    summary: LoadSummary,
    *,
    ends: dict[int, int] | None = None,
    offsets_max: int = OFFSETS_PER_COMMIT_MAX,
) -> bool:
    """Load what there is now, or up to given offsets, in one commit; returns whether there was anything to load.

    Raises ConflictError if somebody else has loaded meanwhile, and what `load` raises.
    """
    log = open_log(options.log)
    try:
        identity, bounds = look_up(log, table.state())
        adopt(table, identity, bounds, options)
        starts = {}
        if not table.exists():
            starts = {one.partition: one.start for one in resolve(log, options.selection, bounds)}
        wanted = ends or {partition: bound.end for partition, bound in bounds.items()}
        ranges = shorten(_pending(table.state(), starts, wanted, bounds), offsets_max)
        if not sum(map(len, ranges)):
            return False
        tasks = split(log, ranges, bytes_max=options.split_bytes)
        summary.add(commit_ranges(spark, table, identity, bounds, ranges, tasks, options))
        return True
    finally:
        log.close()


def _only_end(selection: Selection) -> Selection:
    return Selection(ending=selection.ending, ending_timestamp_ms=selection.ending_timestamp_ms)


def _pending(
    state: State, starts: dict[int, int], ends: dict[int, int], bounds: dict[int, Bounds]
) -> list[OffsetRange]:
    ranges = []
    for partition, end in sorted(ends.items()):
        start = state.ends.get(partition, starts.get(partition, bounds[partition].start))
        ranges.append(OffsetRange(partition, start, max(start, end)))
    return ranges


# --- identity -------------------------------------------------------------------------------------------------------


def look_up(log: Log, state: State) -> tuple[TopicIdentity, dict[int, Bounds]]:
    """Return the topic and its bounds. Raises NoTopicError, or DataLossError if some of it was loaded already."""
    try:
        return log.identity(), log.bounds()
    except NoTopicError:
        if not state.version:
            raise
        missing = [MissingOffsets(partition, end, None) for partition, end in sorted(state.ends.items())]
        raise DataLossError(f"topic {state.topic} is gone", missing) from None


def adopt(table: Table, identity: TopicIdentity, bounds: dict[int, Bounds], options: LoadOptions) -> None:
    """Make sure that the topic is the one that the table was loaded from, and that nothing in between is gone.

    Raises DataLossError with the missing offsets; with `on_data_loss` record it commits what was lost instead.
    """
    state = table.state()
    if not state.version:
        return
    if state.topic != identity.topic:
        raise UsageError(f"{table.place.location} was loaded from topic {state.topic}, not {identity.topic}")
    EventSchema.from_dict(state.schema).check_evolution(options.schema)
    loss = find_loss(state, identity, bounds)
    if loss is None:
        return
    if options.on_data_loss != RECORD or not loss.can_go_on:
        raise loss
    entry = new_entry(table, "restart", identity, options.schema, _job(options))
    entry.lost = {str(one.partition): [one.start, one.end] for one in loss.missing}
    entry.note = loss.cause
    table.commit(entry)


def find_loss(state: State, identity: TopicIdentity, bounds: dict[int, Bounds]) -> DataLossError | None:
    """Return the loss that can never be loaded, if any: the topic is another one, or its log begins or ends elsewhere."""
    known = (state.cluster_id, state.topic_id)
    if known != (identity.cluster_id, identity.topic_id):
        missing = [
            MissingOffsets(partition, end, max(end, state.high_watermarks.get(partition, end)))
            for partition, end in sorted(state.ends.items())
        ]
        what = "cluster" if known[0] != identity.cluster_id else "topic"
        was, now = (known[0], identity.cluster_id) if what == "cluster" else (known[1], identity.topic_id)
        return DataLossError(
            f"{what} {identity.topic if what == 'topic' else ''} is another one now: {now}, was {was}; offsets after the "
            "last known high watermark cannot be known",
            [one for one in missing if one.end is None or one.end > one.start],
        )
    missing = []
    cause = ""
    for partition in sorted({*state.ends, *bounds}):
        end = state.ends.get(partition, 0)  # of a partition that came after the last load, nothing was loaded
        bound = bounds.get(partition)
        if bound is None:
            cause = f"partitions of {identity.topic} are gone"
            missing.append(MissingOffsets(partition, end, None))
        elif bound.start > end:
            cause = f"retention has overtaken {identity.topic}"
            missing.append(MissingOffsets(partition, end, bound.start))
        elif bound.high_watermark < end:
            cause = f"{identity.topic} has become shorter than what was loaded of it"
            missing.append(MissingOffsets(partition, bound.high_watermark, end))
    loss = DataLossError(cause, missing) if missing else None
    if loss is not None:
        # What was loaded from offsets that are other records now cannot be told apart from them.
        loss.can_go_on = all(
            one.end is not None and one.start == state.ends.get(one.partition, 0) for one in missing
        )
    return loss


def new_entry(
    table: Table, kind: str, identity: TopicIdentity, schema: EventSchema, job: dict[str, Any]
) -> Entry:
    """Begin the entry that follows the table's state."""
    state = table.state()
    return Entry(
        version=state.version + 1,
        kind=kind,
        cluster_id=identity.cluster_id,
        topic=identity.topic,
        topic_id=identity.topic_id,
        previous=state.digest,
        previous_path=state.path,
        job={**job, "attempt": os.environ.get("BARNABAS_ATTEMPT", "1")},
        schema=schema.to_dict(),
    )


# --- one commit -----------------------------------------------------------------------------------------------------


def commit_ranges(
    spark: Any,
    table: Table,
    identity: TopicIdentity,
    bounds: dict[int, Bounds],
    ranges: list[OffsetRange],
    tasks: list[OffsetRange],
    options: LoadOptions,
) -> list[TaskResult]:
    """Load ranges in one commit. Raises ConflictError if somebody else has loaded meanwhile."""
    faults.point("load.after_plan")
    entry = new_entry(table, "load", identity, options.schema, _job(options))
    table.prepare(options.schema)
    layout = table.layout
    results = run_tasks(spark, [_task(options, layout, identity, one) for one in tasks])
    faults.point("load.after_tasks")
    fill(entry, ranges, results, bounds, known=table.state().ends)
    table.commit(entry, keep_snapshots=options.keep_snapshots)
    return results


def _job(options: LoadOptions) -> dict[str, Any]:
    return {"name": "load", "id": options.job_id, "decoder": options.decoder.limits()}


def _task(options: LoadOptions, layout: Layout, identity: TopicIdentity, wanted: OffsetRange) -> LoadTask:
    return LoadTask(
        options.log, options.decoder, layout, identity.topic_id, wanted, options.target_file_bytes
    )


def run_tasks(spark: Any, tasks: list[LoadTask]) -> list[TaskResult]:
    """Run them in Spark, small ones together, and hand up what they raise."""
    context = spark.sparkContext
    large = sum(len(one.wanted) for one in tasks) // OFFSETS_PER_SPARK_TASK
    slices = min(len(tasks), max(large, context.defaultParallelism))
    try:
        return list(context.parallelize(tasks, slices).map(_run).collect())
    except Exception as error:
        raise unwrap(error) from None


def _run(task: LoadTask) -> TaskResult:
    return run_task(task)


def unwrap(error: Exception) -> Exception:
    """Make of a task's failure, which Spark hands over as text, what the task raised; defects stay as they are."""
    cause = ""
    for line in str(error).splitlines():
        name, separator, detail = line.strip().partition(": ")
        if separator and name == "barnabas_pipeline.errors.DataLossError":
            return DataLossError(detail.partition("; missing: ")[0], _parse_missing(detail))
        if separator and name.startswith("barnabas_pipeline."):
            return IncompleteError(detail)
        if name == "AssertionError":
            return error
        if separator and name == "OSError":  # such as a full disk
            return IncompleteError(f"a task could not read or write: {detail}")
        if "Python worker exited unexpectedly" in line or "Job aborted" in line:
            cause = cause or line.strip()
    return IncompleteError(f"Spark could not do it: {cause}") if cause else error


_MISSING = re.compile(r"partition (\d+): \[(\d+), (\d+|\?)\)")


def _parse_missing(text: str) -> list[MissingOffsets]:
    found = _MISSING.findall(text.partition("; missing: ")[2])
    return [MissingOffsets(int(p), int(start), None if end == "?" else int(end)) for p, start, end in found]


def fill(
    entry: Entry,
    ranges: list[OffsetRange],
    results: list[TaskResult],
    bounds: dict[int, Bounds],
    *,
    known: Collection[int] = (),
) -> None:
    """Put what the tasks did into the entry, and check that it covers the ranges exactly.

    An empty range is left out, but for a partition that is not `known` yet: the table says where it begins.
    """
    for wanted in ranges:
        if not len(wanted) and wanted.partition in known:
            continue
        mine = sorted(
            (one for one in results if one.wanted.partition == wanted.partition), key=lambda one: one.wanted
        )
        edges = [wanted.start, *(one.wanted.end for one in mine)]
        assert [one.wanted.start for one in mine] == edges[:-1], (wanted, mine)
        assert edges[-1] == wanted.end, (wanted, mine)
        bound = bounds[wanted.partition]
        counts = {
            name: sum(getattr(one, name) for one in mine)
            for name in ("loaded", "dead", "control", "aborted", "compacted")
        }
        entry.partitions[str(wanted.partition)] = PartitionCommit(
            start=wanted.start,
            end=wanted.end,
            leader_epoch=bound.leader_epoch,
            high_watermark=bound.high_watermark,
            log_digest=digest.encode(digest.add(*(one.digest for one in mine))),
            **counts,
        )
    entry.add = [file for one in results for file in one.files]
    entry.dead_add = [file for one in results for file in one.dead_files]
