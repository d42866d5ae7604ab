"""Options of each job as parsed, with their types.

The rule: the classes define no values. `argparse` sets an attribute for each option, so that defaults stand beside the
option.
"""

from __future__ import annotations

import argparse


class SparkArguments:
    """Options for Spark and for the output; see `common.add_spark`."""

    master: str | None
    conf: list[str]
    json: bool


class ClusterArguments:
    """Options for the connection to the cluster; see `common.add_log`."""

    bootstrap: str
    log_dir: list[str]
    transport: str | None
    isolation: str
    client: list[str]


class RangeArguments:
    """Options that name a part of a topic; see `common.add_range`. Times are ms since 1970."""

    from_offsets: str
    to_offsets: str
    from_time: int | None
    to_time: int | None


class LakeArguments:
    """Options that name a lake and its catalog; see `common.add_lake`."""

    lake: str
    catalog: str | None
    catalog_property: list[str]


class TableArguments(LakeArguments):
    """Options that name the table of one topic; see `lake.add_table`."""

    topic: str
    table: str
    branch: str | None
    topics: str | None


class RegistryArguments:
    """Options for the connection to a registry; see `formats.add_registry_login`."""

    registry: str | None
    registry_user: str | None
    registry_ca: str
    registry_cert: str
    registry_key: str


class FormatArguments(RegistryArguments):
    """Options of formats and schemas; see `formats.add_format`."""

    topic: str
    schema: str | None
    format: str | None
    key_format: str | None
    key_schema: str | None
    subjects: str
    record: str
    key_record: str
    event_time: str | None
    tombstones: str
    evolve: bool


class TopicClusterArguments(ClusterArguments):
    """Options for the connection to the cluster of one topic."""

    topic: str


class TableFormatArguments(TableArguments, FormatArguments):
    """Options of a table and of the formats of its topic."""


class TopicArguments(TopicClusterArguments, TableFormatArguments):
    """Options of a job that reads one topic and writes its table."""


class AuditArguments(TopicArguments, SparkArguments):
    """Options of audit; `lateness` is hours, `now` ms since 1970."""

    lateness: float
    now: int | None
    no_seal: bool
    deep: bool
    strict: bool


class PublishArguments(TopicArguments, SparkArguments):
    """Options of publish."""

    deep: bool
    tag: str | None
    drop: bool


class CompactArguments(TableArguments, SparkArguments):
    """Options of compact."""

    target_file_bytes: int | None
    files_min: int
    vacuum_hours: float | None


class EraseArguments(TableArguments):
    """Options of erase."""

    where: str
    reason: str
    json: bool


class RetainArguments(TableArguments):
    """Options of retain; `now` is ms since 1970."""

    days: float
    now: int | None
    json: bool


class RedriveArguments(TableFormatArguments):
    """Options of redrive; `since` is ms since 1970."""

    reason: list[str] | None
    since: int | None
    past_max_days: float | None
    json: bool


class BackfillArguments(TopicArguments, SparkArguments):
    """Options of backfill; times are ms since 1970."""

    from_ms: int
    to_ms: int
    reason: str


class MigrateArguments(TableArguments):
    """Options of migrate."""

    source: str
    json: bool


class InferSchemaArguments(TopicClusterArguments, FormatArguments):
    """Options of infer-schema; `sample` is a number of records."""

    sample: int
    out: str | None


class ReportingArguments:
    """Options of progress and log; see `reporting.add_reporting`."""

    progress: str
    log_format: str | None


class LoadArguments(ClusterArguments, LakeArguments, RangeArguments, SparkArguments, ReportingArguments):
    """Options of load, for all its topics; `topics.Settings.of` returns the options of one topic."""

    topic: list[str]
    topic_pattern: list[str]
    exclude: list[str]
    topics: str | None
    trigger: str
    tag: str | None
    offsets_per_trigger_max: int
    worker_offsets_max: int
    metrics: str | None
    page: str | None


class PlanArguments(LoadArguments):
    """Options of plan: the options of load that select the records."""


class DoctorArguments(LoadArguments):
    """Options of doctor: the options of load, all optional."""

    no_spark: bool


class LineageArguments(TopicClusterArguments, TableArguments):
    """Options of lineage."""

    at: str | None
    where: str | None
    rows_max: int
    json: bool


class CurrentArguments(LakeArguments, SparkArguments):
    """Options of current."""

    topic: str
    table: str
    to: str
    key: str | None
    key_from: str | None
    envelope: str | None
    buckets: int | None
    trigger: str
    rebuild: bool
    check: bool
    strict: bool
    keep_snapshots: int
    vacuum_hours: float | None


class DerivedArguments(LakeArguments, SparkArguments, argparse.Namespace):
    """Options of a job that derives a result; options of the job's class are attributes, too."""

    job: str
    out: str
    prefix: str
    replay: bool
    truth: str | None
    to_topic: str | None
    bootstrap: str
    trigger: str | None


class ReportArguments(LakeArguments, SparkArguments):
    """Options of report."""

    out: str
    prefix: str
    day: str
    partial: bool


class MirrorArguments(SparkArguments):
    """Options of mirror."""

    topic: list[str]
    exclude: list[str]
    bootstrap: str
    log_dir: list[str]
    client: list[str]
    source: list[str]
    source_client: list[str]
    trigger: str
    offsets_per_round_max: int | None
    worker_offsets_max: int
    on_data_loss: str
    to_bootstrap: str
    to_client: list[str]
    to_topic: str | None
    rename: str | None
    no_create: bool
    replication_factor: int
    sync_configs: bool
    shared: bool
    groups: str
    groups_back: bool
    metrics: str | None


class ValuesArguments(RegistryArguments):
    """Options for the encoding of simulated values; see `simulate.add_values`."""

    format: str


class SimulateArguments(ValuesArguments):
    """Options of simulate; `start` is ms since 1970, `late` and `bad` are fractions."""

    bootstrap: str
    events: int
    seed: int
    hours: float
    start: int | None
    rate: float
    late: float
    bad: float
    partitions: int
    prefix: str
    truth: str | None
    client: list[str]
    json: bool


class DemoArguments(SparkArguments):
    """Options of demo."""

    out: str
    events: int
    seed: int
    bad: float
    format: str
    store: str


BY_JOB: dict[str, type] = {
    "audit": AuditArguments,
    "backfill": BackfillArguments,
    "compact": CompactArguments,
    "current": CurrentArguments,
    "demo": DemoArguments,
    "doctor": DoctorArguments,
    "erase": EraseArguments,
    "infer-schema": InferSchemaArguments,
    "lineage": LineageArguments,
    "load": LoadArguments,
    "migrate": MigrateArguments,
    "mirror": MirrorArguments,
    "plan": PlanArguments,
    "publish": PublishArguments,
    "redrive": RedriveArguments,
    "report": ReportArguments,
    "retain": RetainArguments,
    "simulate": SimulateArguments,
}
"""The class of a job's options; all other jobs derive results, and have DerivedArguments."""
