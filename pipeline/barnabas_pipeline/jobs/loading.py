"""A load of many topics in rounds: one plan and one worker or Spark job for all topics, one commit for each topic.

The rule: a round takes a fair portion of each topic with new records, and a failed topic stops no other. A topic without
new records costs neither a task nor a commit.
"""

from __future__ import annotations

import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.client import ClientError
from barnabas_pipeline import worker
from barnabas_pipeline.errors import (
    DefectError,
    IncompleteError,
    NoTopicError,
    PipelineError,
    TopicsError,
    UsageError,
)
from barnabas_pipeline.jobs import ONCE
from barnabas_pipeline.jobs.choices import Choice, choose
from barnabas_pipeline.jobs.load import LoadOptions, LoadSummary, Plan, run_tasks
from barnabas_pipeline.jobs.portions import share
from barnabas_pipeline.jobs.rounds import Round, Rounds
from barnabas_pipeline.jobs.sites import Cluster, Source, Topic, open_source
from barnabas_pipeline.jobs.streams import RETRY_SECONDS, Stream
from barnabas_pipeline.lake import current, dead
from barnabas_pipeline.lake.iceberg import Catalogs, Place, place_of
from barnabas_pipeline.lake.table import ConflictError
from barnabas_pipeline.lake.task import LoadTask, TaskResult
from barnabas_pipeline.log.model import Bounds, LogOptions, OffsetRange, TopicIdentity
from barnabas_pipeline.log.planning import shorten, split
from barnabas_pipeline.log.transports import open_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.wire.topic_partitions import TopicPartition

CLIENT_ID = "barnabas-pipeline"
OFFSETS_PER_ROUND_MAX = 2_000_000
TOGETHER = 8  # tables that are opened or committed to at the same time
TABLES_OPEN_MAX = 1_000  # tables with the metadata of all their snapshots in memory

T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[[int, int], None]
Pending = tuple[Stream, TopicIdentity, dict[int, Bounds], list[OffsetRange]]
"""A topic with new records: its bounds by partition, and the ranges after its table."""


class Parts(NamedTuple):
    """Replaceable parts of rounds."""

    open_source: Callable[..., Source] = open_source
    run_tasks: Callable[
        [Callable[[], SparkSession], list[LoadTask], int], list[TaskResult | PipelineError]
    ] = run_tasks
    split: Callable[..., list[OffsetRange]] = split
    retry_seconds: float = RETRY_SECONDS
    tables_open_max: int = TABLES_OPEN_MAX


PARTS = Parts()


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of a load: their cluster, and the table and options of each topic.

    `place_of` and `options_of` may raise UsageError, the latter also IncompleteError.
    """

    log: LogOptions
    choice: Choice
    place_of: Callable[[str], Place | str]
    options_of: Callable[[str], LoadOptions]
    catalogs: Catalogs = field(default_factory=Catalogs)
    parts: Parts = PARTS


class TableNames:
    """Registry of table names, each of one topic."""

    def __init__(self) -> None:
        self._topics: dict[str, str] = {}

    def take(self, topic: str, root: Place | str) -> None:
        """Register the tables of a topic. Raises UsageError if one of them is another topic's."""
        name = place_of(root).name
        names = (name, f"{name}{dead.SUFFIX}", f"{name}{current.SUFFIX}")
        for table_name in names:
            other = self._topics.get(table_name)
            if other not in (None, topic):
                raise UsageError(
                    f"topics {other} and {topic} would both have a table {table_name}: give one of them another"
                )
        self._topics |= dict.fromkeys(names, topic)


@dataclass(slots=True)
class Commit:
    """A commit of a topic: loaded offsets [start, end) by partition, the lag, and `seconds` since its round began."""

    topic: str
    version: int
    offsets: dict[int, tuple[int, int]]
    summary: LoadSummary
    behind: int
    seconds: float

    @property
    def count(self) -> int:
        """The number of offsets that the commit covers."""
        return sum(end - start for start, end in self.offsets.values())


@dataclass(slots=True)
class LoadRound(Round):
    """A round: its commits, and the progress of the load since its start."""

    topics: int = 0
    commits: list[Commit] = field(default_factory=list)
    failures: int = 0
    offsets: int = 0
    behind: int = 0


class Watcher:
    """Observer of a load; its methods are called in the thread of the load."""

    def joined(self, topic: str) -> None:
        """Called when a topic is added to the load."""

    def failed(self, topic: str, error: PipelineError, *, is_over: bool) -> None:
        """Called when a topic fails with a new error; `is_over`: it is not tried again."""

    def recovered(self, topic: str) -> None:
        """Called when a failed topic is loaded again."""

    def committed(self, commit: Commit) -> None:
        """Called after each commit."""

    def ended(self, done: LoadRound) -> None:
        """Called after each round."""


class Load(Rounds[list[tuple[Stream, Plan]], LoadRound, LoadSummary]):
    """A load of topics, in rounds."""

    kind = LoadRound
    watchers: list[Watcher]

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        topics: Topics | LoadOptions,
        *,
        is_bounded: bool = True,
        offsets_max: int = 0,
        worker_offsets_max: int = worker.OFFSETS_MAX,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        """`is_bounded`: load up to the ends at the first round. `offsets_max` limits a round; 0: the default.

        `spark` returns the session, which rounds of at most `worker_offsets_max` offsets do without.
        """
        super().__init__(watchers, is_bounded=is_bounded)
        if isinstance(topics, LoadOptions):
            topics = only(topics)
        self.summary = LoadSummary()
        self.streams: dict[str, Stream] = {}
        self._spark = spark
        self._topics = topics
        self._offsets_max = offsets_max
        self._worker_offsets_max = worker_offsets_max
        self._tables = TableNames()
        self._active: OrderedDict[str, Stream] = OrderedDict()
        log = topics.log
        log_dirs = log.log_dirs if log.transport == "disk" else ()
        self._cluster = Cluster("", log.bootstrap, log.client, log_dirs, log.isolation)
        self._source = topics.parts.open_source(self._cluster, topics.choice.names, client_id=CLIENT_ID)
        self._pool = ThreadPoolExecutor(TOGETHER, "barnabas-load")
        self._offsets = 0

    def close(self) -> None:
        """Close the connections to the cluster."""
        self._pool.shutdown()
        self._source.close()

    def run(self, trigger: str = ONCE, after: Callable[[], None] = lambda: None) -> LoadSummary:
        """Load until the end, and close. Raises the errors of a load: of many topics the worst."""
        try:
            super().run(trigger, after)
        finally:
            self.close()
        self.raise_worst()
        return self.summary

    @property
    def failures(self) -> dict[str, PipelineError]:
        """The topics that have failed and not recovered."""
        return {name: stream.error for name, stream in self.streams.items() if stream.error is not None}

    @property
    def is_over(self) -> bool:
        """Return whether all topics have failed for good."""
        return bool(self.streams) and all(
            stream.is_stuck and stream.error for stream in self.streams.values()
        )

    def raise_worst(self) -> None:
        """Raise the failures, if any: a single one unchanged, several with the exit code of the worst."""
        if self.is_bounded and self._count and not self.streams:
            raise NoTopicError(
                f"no topic of {self._cluster} matches {', '.join(self._topics.choice.patterns)}"
            )
        failures = self.failures
        if not failures:
            return
        if len(self.streams) == 1:
            raise next(iter(failures.values()))
        raise TopicsError(failures, len(self.streams))

    # --- a round ----------------------------------------------------------------------------------------------------

    def poll(self, done: LoadRound) -> list[tuple[Stream, Plan]] | None:
        """Plan a portion of the new records. Raises IncompleteError without a cluster, UsageError for a shared table."""
        with done.step("ask"):
            topics = self._source.topics()
            due = self._due(topics)
            bounds = self._source.bounds(topics[stream.name] for stream in due)
        with done.step("plan"):
            return self._plan(due, topics, bounds) or None

    def note(self, done: LoadRound) -> None:
        """Report the progress of the load."""
        done.topics = len(self.streams)
        done.failures = len(self.failures)
        done.offsets = self._offsets
        done.behind = sum(
            sum(stream.behind.values()) for stream in self.streams.values() if not stream.is_over
        )
        done.has_done = bool(done.commits)
        done.has_more = not all(stream.is_settled for stream in self.streams.values())

    # --- which topics -----------------------------------------------------------------------------------------------

    def _join(self, topics: Mapping[str, Topic]) -> None:
        """Add new topics; a bounded load adds topics only in its first round."""
        if self.is_bounded and self._count > 1:
            return
        choice = self._topics.choice
        chosen = choose(choice, {topic.name: topic.is_internal for topic in topics.values()})
        for name in dict.fromkeys([*choice.names, *chosen]):
            if name in self.streams:
                continue
            stream = Stream(
                name,
                self._topics.options_of,
                self._topics.catalogs,
                is_bounded=self.is_bounded,
                retry_seconds=self._topics.parts.retry_seconds,
            )
            try:
                self._tables.take(name, self._topics.place_of(name))
            except UsageError as error:
                if self._count == 1:
                    raise
                self._fail_topic(stream, error)
            self.streams[name] = stream

    def _due(self, topics: Mapping[str, Topic]) -> list[Stream]:
        """Return the existing topics that are open and do not wait for a retry."""
        self._join(topics)
        now = time.monotonic()
        due = [stream for stream in self.streams.values() if not stream.is_over and stream.retry_at <= now]
        for stream, error in self._each([stream for stream in due if not stream.is_open], Stream.open):
            if error is not None:
                self._fail_topic(stream, error)
            elif stream.name in topics:
                self._tell("joined", stream.name)
        there = []
        for stream in due:
            if stream.name in topics:
                there += [stream] if stream.is_open else []
            elif stream.is_open and (error := stream.miss(str(self._cluster))) is not None:
                self._fail_topic(stream, error)
        return there

    def _fail_topic(self, stream: Stream, error: PipelineError) -> None:
        before = str(stream.error), stream.is_over
        stream.fail(error)
        if before != (str(error), stream.is_over):
            self._tell("failed", stream.name, error, is_over=stream.is_over)

    def _tell(self, what: str, *arguments: object, **more: object) -> None:
        for watcher in self.watchers:
            getattr(watcher, what)(*arguments, **more)

    # --- ranges to load ---------------------------------------------------------------------------------------------

    def _plan(
        self,
        due: list[Stream],
        topics: Mapping[str, Topic],
        bounds: Mapping[TopicPartition, Bounds | ClientError],
    ) -> list[tuple[Stream, Plan]]:
        """Return the plans of a round: a fair portion of each topic with new records."""
        pending: list[Pending] = []
        for stream in due:
            topic = topics[stream.name]
            identity = TopicIdentity(self._source.cluster_id(), topic.name, topic.topic_id)
            try:
                stream_bounds = bounds_of(topic, bounds)
                ranges = stream.pending(identity, stream_bounds)
            except PipelineError as error:
                self._fail_topic(stream, error)
                continue
            if any(map(len, ranges)):
                pending.append((stream, identity, stream_bounds, ranges))
            elif stream.succeed():
                self._tell("recovered", stream.name)
        portions = share(
            [_portion(stream, ranges) for stream, _, _, ranges in pending], self._round_max(pending)
        )
        plans = []
        for (stream, identity, stream_bounds, whole), portion in zip(pending, portions, strict=True):
            ranges = shorten(whole, portion)
            log = open_log(stream.options.log)
            try:
                tasks = self._topics.parts.split(log, ranges, bytes_max=stream.options.split_bytes)
            finally:
                log.close()
            plans.append((stream, Plan(stream.table, identity, stream_bounds, ranges, tasks, stream.options)))
        return plans

    def _round_max(self, pending: list[Pending]) -> int:
        largest = max((stream.options.offsets_per_commit_max for stream, *_ in pending), default=0)
        return self._offsets_max or max(OFFSETS_PER_ROUND_MAX, largest)

    def apply(self, plan: list[tuple[Stream, Plan]], done: LoadRound) -> None:
        """Read the planned ranges, and commit topic by topic."""
        tasks: list[tuple[Stream, Plan, list[LoadTask]]] = []
        with done.step("prepare"):
            for (stream, topic_plan), prepared in self._each(plan, lambda item: item[1].prepare()):
                if isinstance(prepared, PipelineError):
                    self._fail_topic(stream, prepared)
                else:
                    tasks.append((stream, topic_plan, prepared))
        with done.step("tasks"):
            results = self._run([task for _, _, task in tasks])
        ready: list[tuple[Stream, Plan, list[TaskResult]]] = []
        for (stream, topic_plan, _), outcome in zip(tasks, results, strict=True):
            if isinstance(outcome, PipelineError):
                self._fail_topic(stream, outcome)
            else:
                ready.append((stream, topic_plan, outcome))
        committed = []
        with done.step("commit"):
            for (stream, topic_plan, mine), error in self._each(ready, lambda item: item[1].commit(item[2])):
                if error is None:
                    committed.append(stream)
                    self._note(done, stream, topic_plan, mine)
                elif not (isinstance(error, ConflictError) and _is_overtaken(topic_plan)):
                    self._fail_topic(stream, error)
        with done.step("publish"):
            for stream, error in self._each(committed, Stream.publish):
                if isinstance(error, PipelineError):
                    self._fail_topic(stream, error)
        self._put_away(stream for stream, _ in plan)

    def _note(self, done: LoadRound, stream: Stream, plan: Plan, results: list[TaskResult]) -> None:
        """Note a topic's commit."""
        offsets = {
            offset_range.partition: (offset_range.start, offset_range.end)
            for offset_range in plan.ranges
            if len(offset_range)
        }
        for partition, (start, end) in offsets.items():
            stream.behind[partition] -= end - start
        version, behind = plan.table.state().version, sum(stream.behind.values())
        seconds = time.monotonic() - done.began
        commit = Commit(stream.name, version, offsets, LoadSummary(), behind, seconds)
        for summary in (commit.summary, stream.summary, self.summary):
            summary.add(results)
        self._offsets += commit.count
        stream.committed_at = time.time()
        done.commits.append(commit)
        if stream.succeed():
            self._tell("recovered", stream.name)
        self._tell("committed", commit)

    def _run(self, tasks: list[list[LoadTask]]) -> list[list[TaskResult] | PipelineError]:
        """Run the tasks of all topics together; if that fails, in one Spark job for each topic."""
        if not tasks:
            return []
        try:
            every = [task for mine in tasks for task in mine]
            remaining = iter(self._topics.parts.run_tasks(self._spark, every, self._worker_offsets_max))
        except Exception as error:
            if len(tasks) == 1:
                return [self._failure(error)]
            return [self._run([mine])[0] for mine in tasks]
        results: list[list[TaskResult] | PipelineError] = []
        for mine in tasks:
            outcomes = [next(remaining) for _ in mine]
            failed = next((outcome for outcome in outcomes if isinstance(outcome, PipelineError)), None)
            results.append(failed or [outcome for outcome in outcomes if isinstance(outcome, TaskResult)])
        return results

    # --- in general -------------------------------------------------------------------------------------------------

    def _each(self, items: Iterable[T], work: Callable[[T], R]) -> Iterator[tuple[T, R | PipelineError]]:
        """Call `work` for some items, several at the same time; yields each item with its result or its error."""
        futures = {self._pool.submit(work, item): item for item in items}
        for future in as_completed(futures):
            error = future.exception()
            yield futures[future], future.result() if error is None else self._failure(error)

    def _failure(self, error: BaseException) -> PipelineError:
        """Return the failure of a topic. A bug is printed, and stops no other topic; of a single topic it is raised."""
        if isinstance(error, PipelineError):
            return error
        if len(self.streams) == 1 or not isinstance(error, Exception):
            raise error
        traceback.print_exception(error)
        return DefectError(f"{type(error).__name__}: {error}".splitlines()[0])

    def _put_away(self, streams: Iterable[Stream]) -> None:
        """Close the least recently committed tables if too many are open."""
        for stream in streams:
            self._active[stream.name] = stream
            self._active.move_to_end(stream.name)
        while len(self._active) > self._topics.parts.tables_open_max:
            self._active.popitem(last=False)[1].put_away()


def load(
    spark: SparkSession, options: LoadOptions, progress: Progress = lambda _done, _all: None
) -> LoadSummary:
    """Load the present records of one topic. Raises DataLossError, UsageError, IncompleteError."""
    return Load(lambda: spark, options, watchers=[_Portions(progress)]).run()


class _Portions(Watcher):
    """Watcher that reports the progress of a load, as (done, all) offsets."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def ended(self, done: LoadRound) -> None:
        """Report after each round with a commit."""
        if done.commits:
            self._progress(done.offsets, done.offsets + done.behind)


def only(options: LoadOptions) -> Topics:
    """Return a load's topics with one topic, by its options."""
    return Topics(options.log, Choice((options.log.topic,)), lambda _: options.root, lambda _: options)


def bounds_of(topic: Topic, bounds: Mapping[TopicPartition, Bounds | ClientError]) -> dict[int, Bounds]:
    """Return the bounds of a topic's partitions. Raises IncompleteError if one is unknown."""
    by_number = {}
    for number in range(topic.partitions):
        bound = bounds.get((topic.name, number))
        if isinstance(bound, Bounds):
            by_number[number] = bound
        elif bound is not None:
            raise IncompleteError(str(bound))
    return by_number


def _portion(stream: Stream, ranges: list[OffsetRange]) -> int:
    return min(sum(map(len, ranges)), stream.options.offsets_per_commit_max)


def _is_overtaken(plan: Plan) -> bool:
    """Return whether another process has committed the planned ranges, so that less remains."""
    assert plan.entry is not None
    return plan.table.refresh().version >= plan.entry.version
