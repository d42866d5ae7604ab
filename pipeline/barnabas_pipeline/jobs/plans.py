"""plan: the work of a load now, by topic: offsets, commits, bytes and files. It writes nothing.

The rule: the load's own functions make its decisions; estimates are marked as such, with their basis.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from barnabas.client import ClientError
from barnabas_pipeline.errors import EXIT_DONE, PipelineError, UsageError
from barnabas_pipeline.jobs.choices import choose
from barnabas_pipeline.jobs.compact import plan as plan_compaction
from barnabas_pipeline.jobs.load import RECORD, LoadOptions, find_loss, gone, only_end
from barnabas_pipeline.jobs.loading import CLIENT_ID, OFFSETS_PER_ROUND_MAX, TableNames, Topics, bounds_of
from barnabas_pipeline.jobs.portions import share
from barnabas_pipeline.jobs.sites import Cluster, Site, Source
from barnabas_pipeline.jobs.streams import pending
from barnabas_pipeline.lake.files import TARGET_FILE_BYTES
from barnabas_pipeline.lake.iceberg import check_writable, is_made, place_of
from barnabas_pipeline.lake.ledger import HOUR_MS, State
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.log.model import Bounds, CorruptSpan, Log, LogOptions, OffsetRange, TopicIdentity
from barnabas_pipeline.log.planning import resolve, shorten, split
from barnabas_pipeline.log.transports import open_log
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from barnabas.wire.topic_partitions import TopicPartition
    from barnabas_pipeline.jobs.sites import Topic

OFFSETS_OF_SIZE = 1 << 20
ENTRIES_LOOKED_AT = 20  # newest commits of a table, for estimates of bytes and files


@dataclass(slots=True)
class TopicPlan:
    """The work of a load on one topic; `exit_code` and `problem` are those of a load that would fail.

    `offsets` are [start, end) by partition. Bytes and files are estimates, None where these have no basis.
    """

    topic: str
    table: str
    problem: str = ""
    exit_code: int = EXIT_DONE
    creates: bool = False
    adds_columns: list[str] = field(default_factory=list)
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    records_max: int = 0
    log_bytes: int | None = None
    tasks: int = 0
    commits: int = 0
    files: int | None = None
    file_bytes: int | None = None
    compactable_files: int = 0
    compactable_bytes: int = 0


@dataclass(slots=True)
class LoadPlan:
    """The work of a load on all its topics."""

    topics: list[TopicPlan] = field(default_factory=list)
    rounds: int = 0
    seconds: float = 0.0

    def total(self) -> dict[str, int]:
        """Return the sums of the known values of all topics."""
        names = ("records_max", "log_bytes", "tasks", "commits", "files", "file_bytes")
        return {name: sum(getattr(topic, name) or 0 for topic in self.topics) for name in names}

    def to_dict(self) -> dict[str, object]:
        """Return the plan in JSON form."""
        return {
            "topics": [asdict(topic) for topic in self.topics],
            "rounds": self.rounds,
            "seconds": self.seconds,
            "total": self.total(),
        }


@dataclass(slots=True)
class _Due:
    """A topic with new records."""

    plan: TopicPlan
    options: LoadOptions
    ranges: list[OffsetRange]


def plan_load(topics: Topics, *, offsets_max: int = 0) -> LoadPlan:
    """Return the plan of a load now. Raises IncompleteError without a cluster, UsageError for two tables of one name."""
    began = time.monotonic()
    log = topics.log
    cluster = Cluster(
        "",
        log.bootstrap,
        log.client,
        log.log_dirs if log.transport == "disk" else (),
        log.isolation,
    )
    source = topics.parts.open_source(cluster, topics.choice.names, client_id=CLIENT_ID)
    try:
        there = source.topics()
        chosen = choose(topics.choice, {topic.name: topic.is_internal for topic in there.values()})
        names = list(dict.fromkeys([*topics.choice.names, *chosen]))
        taken = TableNames()
        for name in names:
            taken.take(name, topics.place_of(name))
        bounds = source.bounds(there[name] for name in names if name in there)
        sizes = _sizes(source)
        plan, due = LoadPlan(), []
        for name in names:
            mine = _plan_topic(topics, source, name, there, bounds)
            plan.topics.append(mine.plan)
            if mine.plan.records_max:
                due.append(mine)
    finally:
        source.close()
    plan.rounds = _simulate(due, offsets_max)
    for each in due:
        _estimate(each, sizes)
    plan.seconds = time.monotonic() - began
    return plan


def _plan_topic(
    topics: Topics,
    source: Source,
    name: str,
    there: Mapping[str, Topic],
    all_bounds: Mapping[TopicPartition, Bounds | ClientError],
) -> _Due:
    place = place_of(topics.place_of(name))
    plan = TopicPlan(name, place.name)
    options = None
    try:
        options = topics.options_of(name)
        table = Table(options.root, catalogs=topics.catalogs) if is_made(place) else None
        state = table.state() if table is not None else State()
        if name not in there:
            raise gone(name, str(source_name(topics.log)), state)
        topic = there[name]
        identity = TopicIdentity(source.cluster_id(), name, topic.topic_id)
        bounds = bounds_of(topic, all_bounds)
        plan.creates = not state.version
        if table is not None and table.iceberg is not None:
            check_writable(table.iceberg)
            _ = table.layout  # its columns are checked
        if state.version:
            assert table is not None
            _look_at_table(plan, table, state, options)
            if state.topic != name:
                raise UsageError(f"{place.location} was loaded from topic {state.topic}, not {name}")
            loss = find_loss(state, identity, bounds)
            if loss is not None and (options.on_data_loss != RECORD or not loss.can_go_on):
                raise loss
            if loss is not None:
                plan.problem = f"records as lost: {loss}"
                state = _after_loss(
                    state, identity, {missing.partition: missing.end for missing in loss.missing}
                )
        ranges = _ranges(options, state, bounds)
        plan.offsets = {each.partition: (each.start, each.end) for each in ranges if len(each)}
        plan.records_max = sum(map(len, ranges))
        return _Due(plan, options, ranges)
    except PipelineError as error:
        plan.problem, plan.exit_code = str(error), error.exit_code
    return _Due(plan, options or LoadOptions(topics.log, place, EventSchema(name, "", ())), [])


def source_name(log: LogOptions) -> str:
    """Return the name of a cluster for messages."""
    return log.bootstrap or (log.log_dirs[0] if log.log_dirs else "")


def _look_at_table(plan: TopicPlan, table: Table, state: State, options: LoadOptions) -> None:
    mine = EventSchema.from_dict(state.schema)
    mine.check_evolution(options.schema)
    columns = {each.name for each in mine.fields}
    plan.adds_columns = [each.name for each in options.schema.fields if each.name not in columns]
    groups = list(plan_compaction(table, state, TARGET_FILE_BYTES, 2))
    plan.compactable_files = sum(len(group.files) for group in groups)
    plan.compactable_bytes = sum(file.size for group in groups for file in group.files)
    entries = [
        entry for entry in table.entries(max(0, state.version - ENTRIES_LOOKED_AT)) if entry.kind == "load"
    ]
    rows = sum(file.rows for entry in entries for file in entry.add)
    loaded = [sum(commit.span for commit in entry.partitions.values()) for entry in entries]
    if rows and sum(loaded):
        size = sum(file.size for entry in entries for file in entry.add)
        plan.file_bytes = size * OFFSETS_OF_SIZE // sum(loaded)  # until `_estimate` counts the files


def _after_loss(state: State, identity: TopicIdentity, ends: Mapping[int, int | None]) -> State:
    after = state.copy()
    if (state.cluster_id, state.topic_id) != (identity.cluster_id, identity.topic_id):
        after.ends = {}
    else:
        after.ends |= {partition: end for partition, end in ends.items() if end is not None}
    return after


def _ranges(options: LoadOptions, state: State, bounds: dict[int, Bounds]) -> list[OffsetRange]:
    log = open_log(options.log)
    try:
        starts = (
            {}
            if state.version
            else {each.partition: each.start for each in resolve(log, options.selection, bounds)}
        )
        ends = {each.partition: each.end for each in resolve(log, only_end(options.selection), bounds)}
    finally:
        log.close()
    return pending(state, starts, ends, bounds)


def _simulate(due: Iterable[_Due], offsets_max: int) -> int:
    """Simulate how a load shares rounds among topics: notes the commits of each, and returns the number of rounds."""
    remaining = {each.plan.topic: (each, each.ranges) for each in due}
    largest = max((each.options.offsets_per_commit_max for each, _ in remaining.values()), default=0)
    round_max = offsets_max or max(OFFSETS_PER_ROUND_MAX, largest)
    rounds = 0
    while remaining:
        rounds += 1
        demands = [
            min(sum(map(len, ranges)), each.options.offsets_per_commit_max)
            for each, ranges in remaining.values()
        ]
        for (name, (each, ranges)), portion in zip(
            list(remaining.items()), share(demands, round_max), strict=True
        ):
            taken = shorten(ranges, portion)
            each.plan.commits += 1
            behind = [
                OffsetRange(whole.partition, part.end, whole.end)
                for whole, part in zip(ranges, taken, strict=True)
            ]
            if any(map(len, behind)):
                remaining[name] = each, behind
            else:
                del remaining[name]
    return rounds


# --- estimates ------------------------------------------------------------------------------------------------------


def _sizes(source: Source) -> dict[TopicPartition, int]:
    """Return the bytes of partitions, as reported by brokers; empty if they do not report them."""
    if not isinstance(source, Site):
        return {}
    try:
        answers = source.ask(lambda admin: admin.log_dirs())
    except PipelineError:
        return {}
    sizes: dict[TopicPartition, int] = {}
    for log_dirs in answers.values():
        for log_dir in () if isinstance(log_dirs, ClientError) else log_dirs:
            for replica in log_dir.replicas:
                place = replica.topic, replica.partition
                sizes[place] = max(sizes.get(place, 0), replica.size_bytes)
    return sizes


def _estimate(due: _Due, sizes: Mapping[TopicPartition, int]) -> None:
    """Add estimates of a topic's bytes and files: by the log's size, its records' hours, and earlier commits."""
    plan, options, ranges = due.plan, due.options, [each for each in due.ranges if len(each)]
    log = open_log(options.log)
    try:
        plan.tasks = max(len(split(log, ranges, bytes_max=options.split_bytes)), plan.commits)
        hours = sum(_hours(log, each) for each in ranges)
        bounds = log.bounds()
        parts: list[int | None] = [log.size(each) for each in ranges]
    finally:
        log.close()
    for n, each in enumerate(ranges):
        size, bound = sizes.get((plan.topic, each.partition)), bounds.get(each.partition)
        if parts[n] is None and size is not None and bound is not None:
            parts[n] = size * len(each) // max(1, bound.end - bound.start)
    if None not in parts:
        plan.log_bytes = sum(part or 0 for part in parts)
    if not place_of(options.root).partition_by:
        plan.files = hours + plan.tasks - len(ranges)
    if plan.file_bytes is not None:
        plan.file_bytes = plan.file_bytes * plan.records_max // OFFSETS_OF_SIZE


def _hours(log: Log, offset_range: OffsetRange) -> int:
    """Return the number of hours that a range covers, by the timestamps of its first and last batch."""
    times = []
    for at in (offset_range.start, offset_range.end - 1):
        for item in log.read(OffsetRange(offset_range.partition, at, at + 1)):
            if not isinstance(item, CorruptSpan):
                times.append(item.header.max_timestamp // HOUR_MS)
                break
    return max(times) - min(times) + 1 if times else 1
