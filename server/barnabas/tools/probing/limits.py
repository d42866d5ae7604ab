"""A broker's limits and habits, as far as its settings are readable."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.tools.inspection.errors import code_name
from barnabas.tools.probing.exchanges import Target
from barnabas.tools.probing.harmless import RESOURCE_BROKER
from barnabas.tools.probing.messages import make
from barnabas.wire import registry

DESCRIBE_CONFIGS = 32
NAMES = (
    "message.max.bytes", "socket.request.max.bytes", "fetch.max.bytes", "connections.max.idle.ms", "max.connections",
    "max.connections.per.ip", "auto.create.topics.enable", "num.partitions", "default.replication.factor",
    "min.insync.replicas", "delete.topic.enable", "group.min.session.timeout.ms", "group.max.session.timeout.ms",
    "group.max.size", "group.initial.rebalance.delay.ms", "offset.metadata.max.bytes", "offsets.retention.minutes",
    "transaction.max.timeout.ms", "log.retention.hours", "log.message.timestamp.type", "log.message.format.version",
    "inter.broker.protocol.version", "compression.type", "group.consumer.session.timeout.ms",
    "group.share.record.lock.duration.ms", "authorizer.class.name",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limits:
    """Settings by name; `problem` is the reason if they cannot be read."""

    settings: dict[str, str | None]
    problem: str = ""


async def read_limits(target: Target, versions: dict[int, tuple[int, int]], node_id: int) -> Limits:
    """Ask for the broker's settings. Raises ClientError, ExchangeError."""
    if DESCRIBE_CONFIGS not in versions:
        return Limits({}, "DescribeConfigs is not served")
    version = min(versions[DESCRIBE_CONFIGS][1], registry.info(DESCRIBE_CONFIGS).max_stable_version)
    resource = {
        "resource_type": RESOURCE_BROKER,
        "resource_name": str(node_id),
        "configuration_keys": list(NAMES),
    }
    async with target.connect() as wire:
        answer = await wire.ask(make("DescribeConfigs", version, {"resources": [resource]}), version)
    result = answer.results[0]
    if result.error_code:
        return Limits({}, f"DescribeConfigs: {code_name(result.error_code)}")
    settings = {config.name: config.value for config in result.configs}
    return Limits({name: settings[name] for name in NAMES if name in settings})
