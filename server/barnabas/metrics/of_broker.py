"""Metrics of the broker itself, under the names of Kafka's metrics in Prometheus' exporter of JMX.

The rule: a scrape copies numbers in the event loop, and a thread renders them as text. `kafka.server:type=
BrokerTopicMetrics,name=BytesInPerSec` is `kafka_server_brokertopicmetrics_bytesin_total`, and so on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from barnabas import __version__
from barnabas.metrics.families import COUNTER, GAUGE, INFO, SUMMARY, Families
from barnabas.metrics.of_authorizer import authorizer_families
from barnabas.metrics.of_quotas import client_quota_families
from barnabas.metrics.slices import in_slices
from barnabas.metrics.telemetry.payload import Distribution, Labels
from barnabas.serving.loop_budget import BOUNDS_SECONDS
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.cluster.tiering.manager import TieredStorage
    from barnabas.coordinators.groups.shard import GroupShard
    from barnabas.coordinators.share.shares import Shares
    from barnabas.environment.lazy import Lazy
    from barnabas.log.cleaner.cleaner import LogCleaner
    from barnabas.log.manager import LogManager
    from barnabas.metrics.client_telemetry import Telemetry
    from barnabas.metrics.of_controller import ControllerParts
    from barnabas.security.authorizer import Authorizer
    from barnabas.serving.log_limit import LogLimit
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.serving.memory import Memory
    from barnabas.serving.meter import RequestMeter
    from barnabas.serving.quotas.connections import Throttling
    from barnabas.serving.request_quotas import BrokerQuotas

RUNNING = 3  # BrokerState of Kafka
CLASSIC = "classic"
PROTOCOLS = (CLASSIC, "consumer", "share", "streams")
_ERROR_NAMES = {int(code): code.name for code in ErrorCode}
CLASSIC_STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")


class OpenConnections(Protocol):
    """Counts of connections, by the name of their listener."""

    @property
    def accepted(self) -> Mapping[str, int]:
        """Numbers of connections that have been accepted."""

    @property
    def delayed(self) -> Mapping[str, Throttling]:
        """Delays of connections above the connection rate of the broker or of the listener."""

    @property
    def throttled(self) -> Mapping[str, Throttling]:
        """Delays of connections above the connection rate of an address."""

    def open_on(self, listener: str) -> int:
        """Return the number of open connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerParts:
    """The parts of any node with clients that metrics are about."""

    connections: OpenConnections
    listener_names: Collection[str]
    quotas: BrokerQuotas
    authorizer: Authorizer
    budget: LoopBudget
    stall_counts: dict[str, int]
    log_limit: LogLimit
    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsParts(ServerParts):
    """The parts of a broker that metrics are about."""

    broker_id: int
    metadata: MetadataStore
    logs: LogManager
    replicas: Replicas
    telemetry: Lazy[Telemetry]
    cleaner: Callable[[], LogCleaner | None]
    in_quorum: bool = False
    """True if the controllers are those of a quorum."""
    controller: ControllerParts | None = None
    """The controller in the same process, if there is one."""
    tiered: TieredStorage | None = None
    """None without tiered storage."""
    shares: Lazy[Shares] | None = None
    """Made with the first request for a share group."""


def server_families(families: Families, parts: ServerParts, meter: RequestMeter) -> None:
    """Add the metrics of any node with clients: requests, connections, quotas, its event loop and memory."""
    _requests(families, meter)
    _sockets(families, parts, meter)
    client_quota_families(families, parts.quotas)
    authorizer_families(families, parts.authorizer)
    _event_loop(families, parts)
    _memory(families, parts)


async def broker_families(
    parts: MetricsParts, meter: RequestMeter, shards: list[GroupShard], *, is_summed: bool = False
) -> Families:
    """Return all present metrics; `shards` are those of the group coordinator.

    If `is_summed`, each metric of topics or logs has one value for all of them, which is quick for any number.
    """
    families = Families()
    await _node(families, parts)
    if parts.controller is not None:
        from barnabas.metrics.of_controller import controller_families

        await controller_families(families, parts.controller)
    server_families(families, parts, meter)
    await _topics(families, parts, meter, is_summed=is_summed)
    await _logs(families, parts, is_summed=is_summed)
    _cleaner(families, parts)
    if parts.tiered is not None:
        from barnabas.metrics.of_tiers import tiered_families

        await tiered_families(families, parts.tiered, parts.budget, is_summed=is_summed)
    await _groups(families, shards, parts.budget)
    if parts.shares is not None and parts.shares.if_made is not None:
        from barnabas.metrics.of_shares import share_families

        await share_families(families, parts.shares.if_made, parts.budget, is_summed=is_summed)
    _telemetry(families, parts)
    return families


def _event_loop(families: Families, parts: ServerParts) -> None:
    """Add this broker's own metrics, which have no name in Kafka."""
    prefix = "barnabas_event_loop_"
    budget = parts.budget
    families.gauge(
        f"{prefix}longest_turn_seconds", "The longest turn of the event loop so far", budget.longest_seconds
    )
    over = 0
    for bound, count in reversed(list(zip(BOUNDS_SECONDS, budget.long_turns, strict=True))):
        over += count
        families.counter(
            f"{prefix}long_turns",
            "Turns of the event loop longer than so many seconds",
            over,
            longer_than=bound,
        )
    for name, count in parts.stall_counts.items():
        families.counter(
            f"{prefix}stalls",
            "Turns longer than 20 ms, by the request that held them longest",
            count,
            request=name,
        )
    families.counter(
        "barnabas_log_lines_left_out",
        "Lines of the log that clients caused too often",
        parts.log_limit.left_out,
    )


def _memory(families: Families, parts: ServerParts) -> None:
    memory = parts.memory
    held = families.get("barnabas_memory_held_bytes", GAUGE, "Bytes that requests and responses hold")
    waiting = families.get("barnabas_memory_waiting", GAUGE, "Requests that wait for memory")
    for name, pool in (
        ("large_requests", memory.large_requests),
        ("small_requests", memory.small_requests),
        ("large_responses", memory.large_responses),
        ("small_responses", memory.small_responses),
    ):
        held.add(pool.held, pool=name)
        waiting.add(pool.waiting, pool=name)
    held.add(memory.unsent.held, pool="unread_responses")


async def _node(families: Families, parts: MetricsParts) -> None:
    image = parts.metadata.image
    info = families.get("kafka_server_app", INFO, "The broker")
    info.add(1, version=__version__, cluster_id=image.cluster_id, broker_id=parts.broker_id)
    families.gauge("kafka_server_kafkaserver_brokerstate", "State of the broker; 3 is running", RUNNING)
    count = ours = behind = 0
    all_partitions = chain.from_iterable(topic.partitions for topic in image.topics.values())
    async for partitions in in_slices(all_partitions, parts.budget):
        count += len(partitions)
        ours += sum(partition.leader == parts.broker_id for partition in partitions)
        behind += sum(len(partition.isr) < len(partition.replicas) for partition in partitions)
    led = 0
    async for some in in_slices(list(parts.replicas), parts.budget):
        led += sum(not replica.closed for replica in some)
    is_active = image.controller_id == parts.broker_id and not parts.in_quorum
    offline = max(ours - led, 0)  # both may have changed while others ran
    for name, text, value in (
        ("kafka_controller_kafkacontroller_activecontrollercount", "Active controllers here: 1 or 0", is_active),
        ("kafka_controller_kafkacontroller_activebrokercount", "Brokers of the cluster", len(image.brokers)),
        ("kafka_controller_kafkacontroller_globaltopiccount", "Topics of the cluster", len(image.topics)),
        ("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of the cluster", count),
        ("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader that works", offline),
        ("kafka_server_replicamanager_partitioncount", "Replicas here", len(parts.logs)),
        ("kafka_server_replicamanager_leadercount", "Partitions led here", led),
        ("kafka_server_replicamanager_underreplicatedpartitions", "Partitions with replicas that are behind", behind),
        ("kafka_server_replicamanager_offlinereplicacount", "Replicas in log dirs that have failed", offline),
    ):  # fmt: skip
        families.gauge(name, text, value)


def _requests(families: Families, meter: RequestMeter) -> None:
    prefix = "kafka_network_requestmetrics_"
    times = families.get(
        f"{prefix}totaltimems", SUMMARY, "Milliseconds from a request's last byte to its answer's"
    )
    for (name, version), counts in meter.requests.items():
        labels = {"request": name, "version": version}
        families.counter(f"{prefix}requests", "Requests answered", counts.count, **labels)
        times.add(Distribution(counts.count, counts.seconds * 1000), **labels)
        families.counter(f"{prefix}requestbytes", "Bytes of requests", counts.bytes_in, **labels)
        families.counter(f"{prefix}responsebytes", "Bytes of responses", counts.bytes_out, **labels)
    for (name, code), count in meter.errors.items():
        labels = {"request": name, "error": error_name(code)}
        families.counter(f"{prefix}errors", "Error codes in responses; NONE is no error", count, **labels)


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    return _ERROR_NAMES.get(code, str(code))


def _sockets(families: Families, parts: ServerParts, meter: RequestMeter) -> None:
    prefix = "kafka_server_socket_server_metrics_"
    connections = parts.connections
    for name in parts.listener_names:
        families.gauge(
            f"{prefix}connection_count", "Connections open", connections.open_on(name), listener=name
        )
        families.counter(
            f"{prefix}connection_creation",
            "Connections accepted",
            connections.accepted.get(name, 0),
            listener=name,
        )
        for kind, text, throttling in (
            ("", "to the broker or the listener", connections.delayed[name]),
            ("ip_", "from an address", connections.throttled[name]),
        ):
            throttled = f"{prefix}{kind}connection_accept_throttle"
            families.counter(
                f"{throttled}s", f"Connections that came too fast {text}", throttling.count, listener=name
            )
            families.counter(
                f"{throttled}_time_ms", "For how long these had to wait", throttling.ms, listener=name
            )
    incoming = sum(counts.bytes_in for counts in meter.requests.values())
    outgoing = sum(counts.bytes_out for counts in meter.requests.values())
    families.counter(f"{prefix}incoming_byte", "Bytes of all requests", incoming)
    families.counter(f"{prefix}outgoing_byte", "Bytes of all responses", outgoing)


async def _topics(families: Families, parts: MetricsParts, meter: RequestMeter, *, is_summed: bool) -> None:
    prefix = "kafka_server_brokertopicmetrics_"
    bytes_in: Counter[str] = Counter()
    messages_in: Counter[str] = Counter()
    async for some in in_slices(list(parts.replicas), parts.budget):
        for replica in some:
            bytes_in[replica.topic] += replica.growth.appended_bytes - replica.growth.replicated_bytes
            messages_in[replica.topic] += replica.growth.appended_records - replica.growth.replicated_records
    topics = parts.metadata.image.topics
    meter.forget_topics(topics.__contains__)
    received = families.get(f"{prefix}bytesin", COUNTER, "Bytes appended").values
    records = families.get(f"{prefix}messagesin", COUNTER, "Records appended").values
    sent = families.get(f"{prefix}bytesout", COUNTER, "Bytes of records fetched").values
    async for names in in_slices(topics, parts.budget):
        for topic in names:
            labels = () if is_summed else (("topic", topic),)
            _add(received, labels, bytes_in[topic])
            _add(records, labels, messages_in[topic])
            _add(sent, labels, meter.fetched_bytes.get(topic, 0))


def _add(values: dict[Labels, float | Distribution], labels: Labels, value: float) -> None:
    """Set the value of these labels, or add to it if they have one."""
    values[labels] = value + values.get(labels, 0)  # type: ignore[operator]


async def _logs(families: Families, parts: MetricsParts, *, is_summed: bool) -> None:
    sizes = families.get("kafka_log_log_size", GAUGE, "Bytes of a log").values
    segments = families.get("kafka_log_log_numlogsegments", GAUGE, "Segments of a log").values
    starts = families.get("kafka_log_log_logstartoffset", GAUGE, "First offset of a log").values
    ends = families.get("kafka_log_log_logendoffset", GAUGE, "Offset after a log's last record").values
    async for logs in in_slices(list(parts.logs), parts.budget):
        for log in logs:
            labels = () if is_summed else (("topic", log.topic), ("partition", str(log.partition)))
            _add(sizes, labels, log.size_bytes)
            _add(segments, labels, len(log.segments))
            _add(starts, labels, log.log_start_offset)
            _add(ends, labels, log.log_end_offset)
    offline = parts.logs.offline
    families.gauge("kafka_log_logmanager_offlinelogdirectorycount", "Log dirs that have failed", len(offline))
    for path in parts.logs.dirs:
        families.gauge(
            "kafka_log_logmanager_logdirectoryoffline",
            "Whether a log dir has failed",
            path in offline,
            logDirectory=path,
        )


def _cleaner(families: Families, parts: MetricsParts) -> None:
    cleaner = parts.cleaner()
    if cleaner is None:  # nothing has been cleaned yet
        return
    totals = cleaner.totals
    prefix = "kafka_log_logcleaner_"
    families.counter(f"{prefix}cleanings", "Cleanings of logs that have been done", totals.count)
    families.counter(f"{prefix}cleaned_read_bytes", "Bytes that cleanings have read", totals.bytes_read)
    families.counter(f"{prefix}cleaned_written_bytes", "Bytes that cleanings have kept", totals.bytes_written)
    families.gauge(
        f"{prefix}cleaner_recopy_percent",
        "Share of the bytes read by the last cleaning that it kept",
        totals.last_recopy_percent,
    )
    families.gauge(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Logs that are damaged and not cleaned",
        len(cleaner.uncleanable),
    )


async def _groups(families: Families, shards: list[GroupShard], budget: LoopBudget) -> None:
    prefix = "kafka_server_group_coordinator_metrics_"
    states: Counter[tuple[str, str]] = Counter()
    offsets = 0
    for shard in shards:
        async for groups in in_slices(list(shard.groups.values()), budget):
            states.update((group.kind, group.state_name) for group in groups)
        async for group_ids in in_slices(list(shard.offsets), budget):
            for group_id in group_ids:
                offsets += len(shard.offsets.get(group_id, ()))
                if group_id not in shard.groups:
                    states[CLASSIC, "Empty"] += 1
    for protocol in PROTOCOLS:
        count = sum(number for (kind, _), number in states.items() if kind == protocol)
        families.gauge(f"{prefix}group_count", "Groups, by their protocol", count, protocol=protocol)
    for (kind, state), number in sorted(states.items()):
        if kind != CLASSIC:
            families.gauge(
                f"{prefix}{kind}_group_count",
                f"Groups of protocol {kind}, by their state",
                number,
                state=state,
            )
    manager = "kafka_coordinator_group_groupmetadatamanager_"
    families.gauge(f"{manager}numoffsets", "Offsets that groups have committed", offsets)
    classic = sum(number for (kind, _), number in states.items() if kind == CLASSIC)
    families.gauge(f"{manager}numgroups", "Classic groups", classic)
    for state in CLASSIC_STATES:
        families.gauge(
            f"{manager}numgroups{state.lower()}", f"Classic groups that are {state}", states[CLASSIC, state]
        )


def _telemetry(families: Families, parts: MetricsParts) -> None:
    telemetry = parts.telemetry.if_made
    if telemetry is None:
        return
    prefix = "kafka_server_client_metrics_"
    counts = telemetry.instances.counts
    families.gauge(f"{prefix}instance_count", "Client instances that are known", len(telemetry.instances))
    for name, text, value in (
        ("unknown_subscription_request", "Pushes for another subscription", counts.unknown_subscriptions),
        ("throttle", "Requests for telemetry that came too early", counts.throttled),
        ("plugin_export", "Pushes taken", telemetry.taken),
        ("plugin_error", "Pushes that could not be read", telemetry.unreadable),
        ("evicted", "Client instances that made room for others", counts.evicted + telemetry.pushed.evicted),
    ):
        families.counter(f"{prefix}{name}", text, value)
    pushed = telemetry.pushed
    prefix = "barnabas_client_metrics_"
    families.gauge(f"{prefix}series", "Series of pushed telemetry that are kept", pushed.series_count)
    families.gauge(f"{prefix}bytes", "About how many bytes of memory they take", pushed.size_bytes)
    families.counter(f"{prefix}evicted_series", "Series that made room for others", pushed.evicted_series)
