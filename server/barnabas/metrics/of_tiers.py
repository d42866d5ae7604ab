"""Metrics of tiered storage, under the names that Kafka's have behind Prometheus' exporter of JMX (KIP-405, KIP-963)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.metrics.families import COUNTER, GAUGE, Families
from barnabas.metrics.slices import in_slices
from barnabas.tiered.segment import SegmentState

if TYPE_CHECKING:
    from barnabas.cluster.tiering.manager import TieredStorage
    from barnabas.cluster.tiering.partition import TieredPartition
    from barnabas.metrics.telemetry.payload import Labels
    from barnabas.serving.loop_budget import LoopBudget

TOPICS: Final = "kafka_server_brokertopicmetrics_"
THREADS: Final = "org_apache_kafka_storage_internals_log_remotestoragethreadpool_"

COUNTERS: Final = (
    ("copied_bytes", "remotecopybytes", "Bytes of segments copied to tiered storage"),
    ("copies", "remotecopyrequests", "Segments that were to be copied to tiered storage"),
    ("failed_copies", "remotecopyerrors", "Segments of which the copy has failed"),
    ("read_bytes", "remotefetchbytes", "Bytes of records read from tiered storage"),
    ("reads", "remotefetchrequests", "Reads of records from tiered storage"),
    ("failed_reads", "remotefetcherrors", "Reads from tiered storage that have failed"),
    ("deletions", "remotedeleterequests", "Segments that were to be deleted in tiered storage"),
    ("failed_deletions", "remotedeleteerrors", "Deletions of segments that have failed"),
    ("starts", "buildremotelogauxstaterequests", "Logs of followers that were to begin after tiered storage"),
    ("failed_starts", "buildremotelogauxstateerrors", "Such beginnings that have failed"),
)


async def tiered_families(
    families: Families, tiered: TieredStorage, budget: LoopBudget, *, is_summed: bool
) -> None:
    """Add the metrics of tiered storage."""
    counts = tiered.counts
    for topic, of_topic in list(counts.topics.items()):
        labels: Labels = () if is_summed else (("topic", topic),)
        for name, metric, text in COUNTERS:
            values = families.get(f"{TOPICS}{metric}", COUNTER, text).values
            values[labels] = getattr(of_topic, name) + values.get(labels, 0)
    async for partitions in in_slices(list(tiered), budget):
        for partition in partitions:
            _partition(families, partition, is_summed=is_summed)
    for name, text, value in (
        ("kafka_server_delayedremotefetchmetrics_expires", "Remote reads that came too late", counts.late_reads),
        (
            "kafka_server_delayedremotelistoffsetsmetrics_expires",
            "Looks for a time in remote segments that took too long",
            counts.late_look_ups,
        ),
        ("barnabas_tiered_throttled_copies_ms", "Time that copies have waited for their limit", counts.throttled_copies_ms),
        ("barnabas_tiered_throttled_reads", "Fetches that found the limit of remote reads used up", counts.throttled_reads),
    ):  # fmt: skip
        families.counter(name, text, value)
    families.gauge(
        f"{THREADS}remotelogreadertaskqueuesize", "Remote reads that run or wait", tiered.reads.pending
    )


def _partition(families: Families, partition: TieredPartition, *, is_summed: bool) -> None:
    key = partition.key
    labels: Labels = () if is_summed else (("topic", key.topic), ("partition", str(key.partition)))
    segments = partition.segments.segments()
    deletable = [segment for segment in segments if segment.state is SegmentState.DELETE_STARTED]
    for metric, text, value in (
        ("remotecopylagbytes", "Bytes of closed segments that are to be copied", partition.lag_bytes),
        ("remotecopylagsegments", "Closed segments that are to be copied", partition.lag_segments),
        ("remotelogmetadatacount", "Segments in tiered storage", len(segments)),
        ("remotelogsizebytes", "Bytes of the segments in tiered storage", partition.segments.size()),
        (
            "remotedeletelagbytes",
            "Bytes of segments that are to be deleted",
            sum(segment.size for segment in deletable),
        ),
        ("remotedeletelagsegments", "Segments that are to be deleted", len(deletable)),
    ):
        values = families.get(f"{TOPICS}{metric}", GAUGE, text).values
        values[labels] = value + values.get(labels, 0)  # type: ignore[operator]
