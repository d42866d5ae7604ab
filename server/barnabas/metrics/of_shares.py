"""Metrics of share groups, under the names that Kafka's have behind Prometheus' exporter of JMX (KIP-1103, KIP-1191)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.coordinators.share.acknowledgement import Verdict
from barnabas.coordinators.share.counts import Spread
from barnabas.metrics.families import COUNTER, GAUGE, SUMMARY, Families
from barnabas.metrics.slices import in_slices
from barnabas.metrics.telemetry.payload import Distribution, Labels

if TYPE_CHECKING:
    from barnabas.coordinators.share.partitions import LoadedPartition
    from barnabas.coordinators.share.shares import Shares
    from barnabas.serving.loop_budget import LoopBudget

GROUPS: Final = "kafka_server_sharegroupmetrics_"
PARTITIONS: Final = "kafka_server_sharepartitionmetrics_"
SESSIONS: Final = "kafka_server_sharesessioncache_"
COORDINATOR: Final = "kafka_server_share_coordinator_metrics_"
SPREADS: Final = (
    ("fetch_ratio", "requesttopicpartitionsfetchratio", "Percent of the partitions of a fetch with records to acquire"),
    ("acquire_ms", "topicpartitionsacquiretimems", "Milliseconds until a fetch may acquire records"),
)  # fmt: skip
COUNTERS: Final = (
    ("letters", "deadletterqueuerecordcount", "Records written to the dead letter queue"),
    ("letter_appends", "deadletterqueuetotalproducerequests", "Appends to the dead letter queue"),
    ("failed_letter_appends", "deadletterqueuefailedproducerequests", "Failed appends to the dead letter queue"),
)  # fmt: skip


async def share_families(families: Families, shares: Shares, budget: LoopBudget, *, is_summed: bool) -> None:
    """Add the metrics of share groups, of their partitions, sessions and coordinator."""
    counts = shares.counts
    for verdict in Verdict:
        families.counter(
            f"{GROUPS}recordacknowledgements",
            "Records that members have acknowledged",
            counts.acknowledged[verdict],
            ackType=verdict.name.capitalize(),
        )
    _add_spread(families, f"{GROUPS}partitionloadtimems", "Milliseconds of loads", counts.loads_ms, ())
    for group_id, of_group in list(counts.groups.items()):
        labels: Labels = () if is_summed else (("group", group_id),)
        for name, metric, text in SPREADS:
            _add_spread(families, f"{GROUPS}{metric}", text, getattr(of_group, name), labels)
        for name, metric, text in COUNTERS:
            _add(families, f"{GROUPS}{metric}", COUNTER, text, getattr(of_group, name), labels)
    async for partitions in in_slices(list(shares.partitions), budget):
        for partition in partitions:
            _partition(families, partition, is_summed=is_summed)
    families.gauge(f"{SESSIONS}sharesessionscount", "Share sessions", len(shares.sessions))
    families.gauge(
        f"{SESSIONS}sharepartitionscount", "Partitions in share sessions", shares.sessions.partition_count
    )
    families.counter(f"{COORDINATOR}write", "Writes of states of share partitions", counts.writes_ms.count)
    _add_spread(families, f"{COORDINATOR}write_latency", "Milliseconds of these writes", counts.writes_ms, ())


def _partition(families: Families, partition: LoadedPartition, *, is_summed: bool) -> None:
    group_id, _, index = partition.key
    labels: Labels = (
        () if is_summed else (("group", group_id), ("topic", partition.led.topic), ("partition", str(index)))
    )
    records = partition.records
    for metric, kind, text, value in (
        ("acquisitionlocktimeout", COUNTER, "Records whose locks have ended", partition.timed_out),
        ("inflightmessagecount", GAUGE, "Records in flight", records.end - records.start_offset),
        ("inflightbatchcount", GAUGE, "Stretches of records in flight", records.run_count),
    ):
        _add(families, f"{PARTITIONS}{metric}", kind, text, value, labels)
    _add_spread(
        families, f"{PARTITIONS}inflightbatchmessagecount", "Records acquired", partition.acquired, labels
    )


def _add(families: Families, name: str, kind: str, text: str, value: float, labels: Labels) -> None:
    values = families.get(name, kind, text).values
    before = values.get(labels, 0)
    assert not isinstance(before, Distribution)
    values[labels] = value + before


def _add_spread(families: Families, name: str, text: str, spread: Spread, labels: Labels) -> None:
    values = families.get(name, SUMMARY, text).values
    before, value = values.get(labels), Distribution(spread.count, spread.total)
    values[labels] = value.plus(before) if isinstance(before, Distribution) else value
