"""Rounds of a mirror: new records of all topics are copied by a worker or one Spark job, then the next round begins.

The rule: a round reads the positions on both sides, and needs no state of the previous round. A failure concerns a cluster,
a topic or a partition; the others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.client import ClientError
from barnabas.wire.topic_partitions import TopicPartition
from barnabas_pipeline import faults, worker
from barnabas_pipeline.errors import (
    EXIT_DATA_LOSS,
    EXIT_DONE,
    EXIT_INCOMPLETE,
    EXIT_USAGE,
    DataLossError,
    IncompleteError,
    NoTopicError,
    PipelineError,
    UsageError,
)
from barnabas_pipeline.jobs import ONCE
from barnabas_pipeline.jobs.choices import choose
from barnabas_pipeline.jobs.load import collected
from barnabas_pipeline.jobs.mirror.copying import copy_parts
from barnabas_pipeline.jobs.mirror.groups import Groups, Mirrored
from barnabas_pipeline.jobs.mirror.model import (
    GROUP_PREFIX,
    RECORD,
    Failure,
    MirrorOptions,
    MirrorSummary,
    Part,
    Place,
    check_identity,
    check_position,
)
from barnabas_pipeline.jobs.mirror.naming import check_rename, target_name
from barnabas_pipeline.jobs.mirror.topics import TargetTopics
from barnabas_pipeline.jobs.rounds import Round, Rounds
from barnabas_pipeline.jobs.sites import Cluster, Site, Source, Topic, open_source
from barnabas_pipeline.log.model import Bounds, OffsetRange
from barnabas_pipeline.log.planning import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from barnabas.client import CommittedOffset
    from barnabas_pipeline.jobs.mirror.model import Coordinates


@dataclass(slots=True)
class Stream:
    """A topic of a source, and its topic in the target."""

    source: Source
    cluster: Cluster
    topic: Topic
    target: str
    there: Topic | None = None

    def __str__(self) -> str:
        return f"{self.cluster}: {self.topic.name}"


@dataclass(slots=True)
class MirrorRound(Round):
    """A round of a mirror: its plan and its results."""

    summary: MirrorSummary = field(default_factory=lambda: MirrorSummary(rounds=1))
    failures: list[Failure] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    positions: dict[Place, int] = field(default_factory=dict)
    behind: int = 0

    def fail(self, where: object, error: Exception) -> None:
        """Note a failure and its place."""
        self.failures.append(Failure.of(str(where), error))


class Mirror(Rounds[list[Part], MirrorRound, MirrorSummary]):
    """A mirror of one or more clusters into one target."""

    kind = MirrorRound

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        options: MirrorOptions,
        watchers: Sequence[Any] = (),
        *,
        is_bounded: bool = True,
        worker_offsets_max: int = worker.OFFSETS_MAX,
    ) -> None:
        """`spark` returns the session, which rounds of at most `worker_offsets_max` offsets do without.

        Raises UsageError for options that cannot work.
        """
        super().__init__(watchers, is_bounded=is_bounded)
        if options.target.log_dirs:
            raise UsageError("the target of a mirror is a cluster, not a directory")
        check_rename(options.rename, options.choice, len(options.sources))
        for name in options.choice.names:
            target_name(options.rename, options.sources[0].name, name)
        self.summary = MirrorSummary()
        self.failures: list[Failure] = []
        """Failures of the newest round."""
        self._spark = spark
        self._worker_offsets_max = worker_offsets_max
        self._options = options
        self._target = Site(options.target)
        self._sources = [(source, open_source(source, options.choice.names)) for source in options.sources]
        self._topics = TargetTopics(self._target, options)
        self._groups = Groups(self._target, options)
        self._ends: dict[tuple[str, str, int], int] = {}
        """Ends of partitions when `available` began, by cluster id, topic id and number."""

    def run(self, trigger: str = ONCE, after: Callable[[], None] = lambda: None) -> MirrorSummary:
        """Mirror once, up to the present ends (`available`), or in rounds until `stop`."""
        self._ends.clear()
        return super().run(trigger, after)

    def close(self) -> None:
        """Close all connections."""
        self._target.close()
        for _, source in self._sources:
            source.close()

    @property
    def exit_code(self) -> int:
        """The exit code of the worst failure of the newest round; EXIT_USAGE only if no topic was mirrored."""
        codes = {failure.exit_code for failure in self.failures}
        if EXIT_DATA_LOSS in codes:
            return EXIT_DATA_LOSS
        if codes == {EXIT_USAGE} and not self.summary.topics:
            return EXIT_USAGE
        return EXIT_INCOMPLETE if codes else EXIT_DONE

    def note(self, done: MirrorRound) -> None:
        """Add the figures of a round to the summary; gauges, such as the lag, are those of the newest round."""
        done.has_done = bool(done.summary.mirrored)
        done.has_more = done.has_done and bool(done.behind)
        total, new = self.summary, done.summary
        new.failures = [f"{failure.where}: {failure.text}" for failure in done.failures]
        for name in (
            "rounds", "mirrored", "skipped_loops", "skipped_control", "transactions", "created_topics",
            "added_partitions", "changed_settings", "groups_committed",
        ):  # fmt: skip
            setattr(total, name, getattr(total, name) + getattr(new, name))
        for name in (
            "topics",
            "partitions",
            "behind",
            "groups_waiting",
            "groups_live",
            "groups_kept",
            "failures",
        ):
            setattr(total, name, getattr(new, name))
        total.lost += new.lost
        self.failures = done.failures

    # --- a round --------------------------------------------------------------------------------------------

    def poll(self, done: MirrorRound) -> list[Part]:
        """Plan the parts to copy, after the creation of their topics in the target."""
        self._find_streams(done)
        self._prepare_topics(done)
        self._plan(done)
        return done.parts

    def apply(self, plan: list[Part], done: MirrorRound) -> None:
        """Copy all parts in one Spark job; each commits separately."""
        faults.point("mirror.after_plan")
        self._copy(plan, done)
        faults.point("mirror.after_tasks")

    def conclude(self, done: MirrorRound) -> None:
        """Commit the offsets of groups up to the copied records."""
        done.summary.topics = len(done.streams)
        done.summary.behind = done.behind
        if self._options.groups:
            self._move_groups(done)

    def fail(self, error: PipelineError, done: MirrorRound) -> None:
        """Note a failure of the target; the next round tries again."""
        done.fail(f"target {self._options.target}", error)

    def _find_streams(self, done: MirrorRound) -> None:
        """Note the mirrored topics, and their names in the target, which must be distinct."""
        options = self._options
        by_target: dict[str, list[Stream]] = {}
        for cluster, source in self._sources:
            try:
                topics = source.topics()
            except PipelineError as error:
                done.fail(cluster, error)
                continue
            chosen = choose(options.choice, {topic.name: topic.is_internal for topic in topics.values()})
            for name in options.choice.names:
                if name not in topics:
                    done.fail(cluster, NoTopicError(f"there is no topic {name!r}"))
            for name in chosen:
                try:
                    target = target_name(options.rename, cluster.name, name)
                except UsageError as error:
                    done.fail(f"{cluster}: {name}", error)
                    continue
                by_target.setdefault(target, []).append(Stream(source, cluster, topics[name], target))
        for target, streams in sorted(by_target.items()):
            if len(streams) == 1:
                done.streams += streams
            for stream in streams if len(streams) > 1 else ():
                done.fail(
                    stream, UsageError(f"{len(streams)} topics would be called {target!r}; see --rename")
                )

    def _prepare_topics(self, done: MirrorRound) -> None:
        targets = {
            stream.target: (stream.source if isinstance(stream.source, Site) else None, stream.topic)
            for stream in done.streams
        }
        prepared = self._topics.prepare(targets, done.summary)
        kept = []
        for stream in done.streams:
            there = prepared.get(stream.target)
            if isinstance(there, Topic):
                stream.there = there
                kept.append(stream)
            else:
                done.fail(stream, there or NoTopicError(f"{stream.target} is gone again"))
        done.streams = kept

    def _plan(self, done: MirrorRound) -> None:
        """Plan the parts to copy: records of the source that the target lacks."""
        for cluster, source in self._sources:
            mine = [stream for stream in done.streams if stream.source is source]
            if not mine:
                continue
            try:
                bounds = source.bounds(stream.topic for stream in mine)
            except PipelineError as error:
                done.fail(cluster, error)
                done.streams = [stream for stream in done.streams if stream.source is not source]
                continue
            committed = self._target.committed(GROUP_PREFIX + source.cluster_id())
            empty = self._empty_partitions(mine, committed)
            for stream in mine:
                for number in range(stream.topic.partitions):
                    place = self._place(stream, number)
                    bound = bounds.get((stream.topic.name, number))
                    if not isinstance(bound, Bounds):
                        done.fail(f"{stream}-{number}", bound or ClientError("the partition is not there"))
                        continue
                    done.summary.partitions += 1
                    if self.is_bounded:
                        key = (place.cluster_id, place.topic_id, number)
                        end = min(bound.end, self._ends.setdefault(key, bound.end))
                        bound = bound._replace(end=max(bound.start, end))
                    committed_offset = committed.get((stream.target, number))
                    position = (
                        place.parse_position(committed_offset.metadata)
                        if committed_offset is not None
                        else None
                    )
                    try:
                        start = self._start(
                            stream, place, bound, position, is_empty=(stream.target, number) in empty
                        )
                    except DataLossError as error:
                        done.fail(f"{stream}-{number}", error)
                        continue
                    if start is None:
                        done.positions[place] = bound.end if position is None else position.offset
                    else:
                        done.parts.append(self._part(stream, place, bound, start))
        self._shorten(done)

    def _empty_partitions(
        self, streams: list[Stream], committed: Mapping[TopicPartition, CommittedOffset]
    ) -> set[TopicPartition]:
        """Return partitions of the target without a position and without records: no record was mirrored there yet."""
        unknown = [
            stream.there
            for stream in streams
            if stream.there is not None
            and any((stream.target, number) not in committed for number in range(stream.topic.partitions))
        ]
        return {
            place
            for place, bound in self._target.bounds(unknown).items()
            if isinstance(bound, Bounds) and not bound.high_watermark
        }

    def _start(
        self, stream: Stream, place: Place, bound: Bounds, position: Coordinates | None, *, is_empty: bool
    ) -> int | None:
        """Return the offset at which copying starts; None if no record is to be copied. Raises DataLossError."""
        if position is None:
            return None if is_empty and bound.start >= bound.end and not bound.end else bound.start
        try:
            check_identity(place, stream.topic.name, position)
            check_position(place, stream.topic.name, position.offset, bound)
        except DataLossError:
            if self._options.on_data_loss != RECORD:
                raise
            return bound.start  # the task decides, and records the loss
        return int(position.offset) if position.offset < bound.end else None

    def _place(self, stream: Stream, number: int) -> Place:
        assert stream.there is not None
        return Place(
            stream.source.cluster_id(), stream.topic.topic_id, number, stream.target, stream.there.topic_id
        )

    def _part(self, stream: Stream, place: Place, bound: Bounds, start: int) -> Part:
        options = self._options
        return Part(
            place,
            stream.cluster.log(stream.topic.name),
            options.target.log(stream.target),
            bound,
            self._target.cluster_id(),
            start,
            options.shares_topics,
            options.on_data_loss,
        )

    def _shorten(self, done: MirrorRound) -> None:
        """Cut each part to its fair share of a round; the next round has the rest."""
        whole = [
            OffsetRange(n, part.start, max(part.start, part.bound.end)) for n, part in enumerate(done.parts)
        ]
        ranges = shorten(whole, self._options.offsets_per_round_max)
        done.behind = sum(map(len, whole)) - sum(map(len, ranges))
        done.parts = [
            part.up_to(max(short.end, part.bound.start))
            for part, long, short in zip(done.parts, whole, ranges, strict=True)
            if len(short) or not len(long)
        ]

    def _copy(self, parts: list[Part], done: MirrorRound) -> None:
        if not parts:
            return
        offsets = sum(part.bound.end - part.start for part in parts)
        results = worker.SHARED.run(copy_parts, parts) if offsets <= self._worker_offsets_max else None
        if results is None:
            context = self._spark().sparkContext
            slices = min(len(parts), context.defaultParallelism)
            results = collected(context.parallelize(parts, slices).mapPartitions(copy_parts))
        for result in results:
            done.summary.add_part(result)
            if result.position is not None:
                done.positions[result.place] = result.position
            if result.failure is not None:
                done.failures.append(result.failure)

    def _move_groups(self, done: MirrorRound) -> None:
        for cluster, source in self._sources:
            if not isinstance(source, Site):
                continue
            mirrored = {}
            for stream in (stream for stream in done.streams if stream.source is source):
                for number in range(stream.topic.partitions):
                    place = self._place(stream, number)
                    if place in done.positions:
                        mirrored[stream.topic.name, number] = Mirrored(place, done.positions[place])
            try:
                self._groups.move(source, mirrored, done.summary)
            except PipelineError as error:
                done.fail(f"groups of {cluster}", error)


def mirror(spark: SparkSession, options: MirrorOptions) -> MirrorSummary:
    """Mirror the present records once. Raises DataLossError, UsageError or IncompleteError for the worst failure."""
    mirror = Mirror(lambda: spark, options)
    try:
        summary = mirror.run()
        raise_worst(mirror)
        return summary
    finally:
        mirror.close()


def raise_worst(mirror: Mirror) -> None:
    """Raise the worst failure of the newest round, if any."""
    code = mirror.exit_code
    text = "; ".join(f"{failure.where}: {failure.text}" for failure in mirror.failures)
    if code == EXIT_DATA_LOSS:
        raise DataLossError(text, [])
    if code == EXIT_USAGE:
        raise UsageError(text)
    if code != EXIT_DONE:
        raise IncompleteError(text)
