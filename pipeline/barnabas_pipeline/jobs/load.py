"""load: from topics into the lake, exactly once. This module has a commit of one topic; `loading` loads many.

The rule: only the lake records which offsets were loaded. A load begins where the last commit ended, and bad records go to
the dead letters in the same commit.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas_pipeline import faults, formats, worker
from barnabas_pipeline.errors import (
    DataLossError,
    IncompleteError,
    MissingOffsets,
    NoTopicError,
    PipelineError,
    UsageError,
)
from barnabas_pipeline.formats.base import PAST_MAX_MS, VALUE_BYTES_MAX
from barnabas_pipeline.jobs.portions import bins
from barnabas_pipeline.lake.files import TARGET_FILE_BYTES
from barnabas_pipeline.lake.iceberg import Place
from barnabas_pipeline.lake.ledger import Entry, PartitionCommit, State
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.task import LoadTask, TaskResult, run_all
from barnabas_pipeline.log import digest
from barnabas_pipeline.log.model import Bounds, LogOptions, OffsetRange, TopicIdentity
from barnabas_pipeline.log.planning import Selection
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

    from barnabas_pipeline.data_types import Document


OFFSETS_PER_COMMIT_MAX = 2_000_000
OFFSETS_PER_SPARK_TASK = 50_000  # below this, Spark's cost of a task (20 to 40 ms of CPU) matters
FAIL, RECORD = "fail", "record"


@dataclass(slots=True)
class LoadOptions:
    """Options of a load: its log, its target, and the size of its portions."""

    log: LogOptions
    root: Place | str  # of the table
    schema: EventSchema
    decoding: Document = field(default_factory=dict)  # further limits of the decoder, including its format
    selection: Selection = field(default_factory=Selection)
    on_data_loss: str = FAIL
    offsets_per_commit_max: int = OFFSETS_PER_COMMIT_MAX
    split_bytes: int | None = None  # None: as many tasks as cores, if large enough
    target_file_bytes: int = TARGET_FILE_BYTES
    past_max_ms: int = PAST_MAX_MS
    value_bytes_max: int = VALUE_BYTES_MAX
    keep_snapshots: int = 0  # expire older ones with each commit; 0: none
    tag: str = ""  # of the snapshot of the newest commit
    job_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def decoder(self) -> formats.Decoder:
        """The decoder for the tasks."""
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
        """Add the counts of committed tasks."""
        self.commits += 1
        for result in results:
            for name in ("loaded", "dead", "control", "aborted", "compacted", "bytes_read"):
                setattr(self, name, getattr(self, name) + getattr(result, name))
            self.files += len(result.files)
            for file in result.dead_files:
                for reason, count in file.reasons.items():
                    self.reasons[reason] = self.reasons.get(reason, 0) + count


def only_end(selection: Selection) -> Selection:
    """Return a selection of all records up to the same end."""
    return Selection(ending=selection.ending, ending_timestamp_ms=selection.ending_timestamp_ms)


# --- identity -------------------------------------------------------------------------------------------------------


def gone(topic: str, where: str, state: State) -> PipelineError:
    """Return the error for a missing topic: a loss if a part of it was loaded already."""
    if not state.version:
        return NoTopicError(f"there is no topic {topic!r} at {where}")
    missing = [MissingOffsets(partition, end, None) for partition, end in sorted(state.ends.items())]
    return DataLossError(f"topic {topic} is gone", missing)


def adopt(table: Table, identity: TopicIdentity, bounds: dict[int, Bounds], options: LoadOptions) -> None:
    """Check that the table was loaded from this topic, and that no records in between are missing.

    Raises DataLossError with the missing offsets; with `on_data_loss` record it commits the loss instead.
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
    entry.lost = {str(offsets.partition): [offsets.start, offsets.end] for offsets in loss.missing}
    entry.note = loss.cause
    table.commit(entry)


def find_loss(state: State, identity: TopicIdentity, bounds: dict[int, Bounds]) -> DataLossError | None:
    """Return the records that can never be loaded, if any: the topic was replaced, or its log has lost them."""
    earlier = (state.cluster_id, state.topic_id)
    if earlier != (identity.cluster_id, identity.topic_id):
        missing = [
            MissingOffsets(partition, end, max(end, state.high_watermarks.get(partition, end)))
            for partition, end in sorted(state.ends.items())
        ]
        what = "cluster" if earlier[0] != identity.cluster_id else "topic"
        was, now = (earlier[0], identity.cluster_id) if what == "cluster" else (earlier[1], identity.topic_id)
        return DataLossError(
            f"{what} {identity.topic if what == 'topic' else ''} is another one now: {now}, was {was}; offsets after the "
            "last known high watermark cannot be known",
            [offsets for offsets in missing if offsets.end is None or offsets.end > offsets.start],
        )
    missing = []
    cause = ""
    for partition in sorted({*state.ends, *bounds}):
        end = state.ends.get(partition, 0)  # of a partition added after the last load, nothing was loaded
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
        # records loaded from offsets that have other records now cannot be distinguished
        loss.can_go_on = all(
            offsets.end is not None and offsets.start == state.ends.get(offsets.partition, 0)
            for offsets in missing
        )
    return loss


def new_entry(table: Table, kind: str, identity: TopicIdentity, schema: EventSchema, job: Document) -> Entry:
    """Return a new entry that follows the table's state."""
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


@dataclass(slots=True)
class Plan:
    """The next commit of a topic. Lifecycle: `prepare`, then the tasks are run, then `commit`."""

    table: Table
    identity: TopicIdentity
    bounds: dict[int, Bounds]
    ranges: list[OffsetRange]
    tasks: list[OffsetRange]
    options: LoadOptions
    entry: Entry | None = None

    def prepare(self) -> list[LoadTask]:
        """Create or evolve the table, and return the tasks that write its files. Raises IncompleteError, UsageError."""
        faults.point("load.after_plan")
        options, decoder = self.options, self.options.decoder
        self.entry = new_entry(self.table, "load", self.identity, options.schema, _job(options))
        self.table.prepare(options.schema)
        fixed = (options.log, decoder, self.table.layout, self.identity.topic_id)
        return [LoadTask(*fixed, task, options.target_file_bytes) for task in self.tasks]

    def commit(self, results: list[TaskResult]) -> None:
        """Commit the results of the tasks. Raises ConflictError if another process has committed meanwhile."""
        assert self.entry is not None
        faults.point("load.after_tasks")
        fill(self.entry, self.ranges, results, self.bounds, known_partitions=self.table.state().ends)
        self.table.commit(self.entry, keep_snapshots=self.options.keep_snapshots, tag=self.options.tag)


def _job(options: LoadOptions) -> Document:
    return {"name": "load", "id": options.job_id, "decoder": options.decoder.limits()}


def run_tasks(
    spark: Callable[[], SparkSession], tasks: list[LoadTask], worker_offsets_max: int = worker.OFFSETS_MAX
) -> list[TaskResult | PipelineError]:
    """Run the tasks in one Spark job, small tasks together; up to `worker_offsets_max` offsets in the worker instead.

    Returns the result or the error of each task, in order. Raises errors of the job as a whole, such as workers that die
    repeatedly.
    """
    offsets = sum(len(task.offset_range) for task in tasks)
    results = worker.SHARED.run(run_all, tasks) if offsets <= worker_offsets_max else None
    if results is not None:
        return results
    context = spark().sparkContext
    large = offsets // OFFSETS_PER_SPARK_TASK
    parts = bins(
        [*enumerate(tasks)], max(large, context.defaultParallelism), lambda item: len(item[1].offset_range)
    )
    outcomes = dict(collected(context.parallelize(parts, len(parts)).mapPartitions(_run)))
    return [outcomes[n] for n in range(len(tasks))]


def _run(parts: Iterable[list[tuple[int, LoadTask]]]) -> Iterator[tuple[int, TaskResult | PipelineError]]:
    for part in parts:
        yield from zip([n for n, _ in part], run_all([task for _, task in part]), strict=True)


def collected(rows: RDD[Any]) -> list[Any]:
    """Return the results of a Spark job's tasks. Raises the error of a task, converted by `unwrap`."""
    try:
        return list(rows.collect())
    except Exception as error:
        raise unwrap(error) from None


def unwrap(error: Exception) -> Exception:
    """Return the error that a task raised, from the text in Spark's error; for a bug, Spark's error unchanged."""
    cause = ""
    for line in str(error).splitlines():
        name, separator, detail = line.strip().partition(": ")
        if separator and name == "barnabas_pipeline.errors.DataLossError":
            return DataLossError(detail.partition("; missing: ")[0], _parse_missing(detail))
        if separator and name.startswith("barnabas_pipeline."):
            return IncompleteError(detail)
        if name == "AssertionError":
            return error
        if separator and name == "ModuleNotFoundError":
            return UsageError(
                f"executors lack a package: {detail}; give them one by spark-submit's --archives"
            )
        if separator and name == "OSError":  # such as a full disk
            return IncompleteError(f"a task could not read or write: {detail}")
        if "Python worker exited unexpectedly" in line or "Job aborted" in line:
            cause = cause or line.strip()
    return IncompleteError(f"Spark could not do it: {cause}") if cause else error


_MISSING = re.compile(r"partition (\d+): \[(\d+), (\d+|\?)\)")


def _parse_missing(text: str) -> list[MissingOffsets]:
    matches = _MISSING.findall(text.partition("; missing: ")[2])
    return [MissingOffsets(int(p), int(start), None if end == "?" else int(end)) for p, start, end in matches]


def fill(
    entry: Entry,
    ranges: list[OffsetRange],
    results: list[TaskResult],
    bounds: dict[int, Bounds],
    *,
    known_partitions: Collection[int] = (),
) -> None:
    """Add the tasks' results to the entry, and check that it covers the ranges exactly.

    An empty range is omitted, unless its partition is not in `known_partitions`: then the table records its start.
    """
    for offset_range in ranges:
        if not len(offset_range) and offset_range.partition in known_partitions:
            continue
        mine = sorted(
            (result for result in results if result.offset_range.partition == offset_range.partition),
            key=lambda result: result.offset_range,
        )
        edges = [offset_range.start, *(task.offset_range.end for task in mine)]
        assert [task.offset_range.start for task in mine] == edges[:-1], (offset_range, mine)
        assert edges[-1] == offset_range.end, (offset_range, mine)
        bound = bounds[offset_range.partition]
        counts = {
            name: sum(getattr(result, name) for result in mine)
            for name in ("loaded", "dead", "control", "aborted", "compacted")
        }
        entry.partitions[str(offset_range.partition)] = PartitionCommit(
            start=offset_range.start,
            end=offset_range.end,
            leader_epoch=bound.leader_epoch,
            high_watermark=bound.high_watermark,
            log_digest=digest.encode(digest.add(*(result.digest for result in mine))),
            **counts,
        )
    entry.add = [file for result in results for file in result.files]
    entry.dead_add = [file for result in results for file in result.dead_files]
