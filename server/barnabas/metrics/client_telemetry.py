"""Client telemetry of a broker: subscriptions from the cluster's settings, client instances, pushed metrics.

The rule: created with the first request for it, and then kept as long as the broker runs; pushes are decoded in a thread.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.config import broker as settings
from barnabas.errors import RequestError
from barnabas.metrics.telemetry.instances import ClientInstances
from barnabas.metrics.telemetry.pushed import Bounds, PushedMetrics
from barnabas.metrics.telemetry.subscriptions import Subscriptions
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.ids import new_uuid, uuid_text

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import ResourceKey, Settings
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Entropy, Threads
    from barnabas.metrics.telemetry.instances import ClientInstance
    from barnabas.metrics.telemetry.payload import Pushed
    from barnabas.metrics.telemetry.subscriptions import Attributes
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

EXPIRE_INTERVAL_SECONDS = 10.0
POINTS_PER_TURN = 200
"""Number of points of a push that are added between two looks at the loop's budget."""

UNKNOWN_SOFTWARE = "unknown"
"""Kafka's value for the software, and its version, of a client that has not sent it (KIP-511)."""


class Telemetry:
    """Lifecycle: `run` in a task, until cancelled."""

    def __init__(
        self,
        config: BrokerConfig,
        configs: Mapping[ResourceKey, Settings],
        threads: Threads,
        budget: LoopBudget,
        now_ms: Callable[[], int],
        entropy: Entropy,
    ) -> None:
        """`configs` are the present settings of all resources; `take_subscriptions` is called when they change."""
        self._threads = threads
        self._budget = budget
        self._now_ms = now_ms
        self.bytes_max = config.get(settings.TELEMETRY_MAX_BYTES)
        self.instances = ClientInstances(
            Subscriptions(), bytes_max=self.bytes_max, new_id=partial(new_uuid, entropy)
        )
        self.pushed = PushedMetrics(
            Bounds(
                series=config.get(settings.TELEMETRY_RETAINED_SERIES),
                size_bytes=config.get(settings.TELEMETRY_RETAINED_BYTES),
                client_series=config.get(settings.TELEMETRY_CLIENT_RETAINED_SERIES),
                client_size_bytes=config.get(settings.TELEMETRY_CLIENT_RETAINED_BYTES),
            )
        )
        self._one_at_a_time = trio.CapacityLimiter(1)  # a push takes many times its size while it is read
        self.taken = 0
        self.unreadable = 0
        """Number of pushes that could not be read."""
        self.take_subscriptions(configs)

    async def run(self) -> None:
        """Expire unused instances, until cancelled."""
        while True:
            await trio.sleep(EXPIRE_INTERVAL_SECONDS)
            self.expire()

    def expire(self) -> None:
        """Remove the clients that have been silent for too long."""
        now_ms = self._now_ms()
        self.instances.expire(now_ms)
        self.pushed.expire(now_ms)

    def take_subscriptions(self, configs: Mapping[ResourceKey, Settings]) -> None:
        """Apply the subscriptions that there are among all resources' settings."""
        self.instances.subscriptions.take(configs)

    async def take(self, context: RequestContext, instance: ClientInstance, codec: int, data: bytes) -> None:
        """Add the metrics of a push. Raises RequestError(TELEMETRY_TOO_LARGE or INVALID_RECORD)."""
        try:
            pushed = await self._threads.run(
                lambda: _read(codec, data, self.bytes_max), limiter=self._one_at_a_time
            )
        except Exception as error:
            refusal = error if isinstance(error, RequestError) else None
            if refusal is None:
                log.exception(
                    "the metrics of client %r on %s cannot be read", context.client_id, context.connection
                )
                refusal = RequestError(ErrorCode.INVALID_RECORD, "the metrics cannot be read")
            self.unreadable += 1
            self.instances.settled(instance, refusal.code)
            raise refusal from None
        self.instances.settled(instance, ErrorCode.NONE)
        self.taken += 1
        client = self.pushed.begin(
            instance.id,
            instance.attributes,
            pushed.resource,
            now_ms=context.now_ms,
            lifetime_ms=instance.lifetime_ms,
        )
        is_first = client.pushes == 1
        for start in range(0, len(pushed.points), POINTS_PER_TURN):
            self.pushed.add(client, pushed.points[start : start + POINTS_PER_TURN])
            await self._budget.checkpoint()
        if is_first:
            log.info(
                "client metrics: client %r (%s %s) on %s, instance %s, pushes %d values every %d ms",
                context.client_id,
                instance.attributes["client_software_name"],
                instance.attributes["client_software_version"],
                context.connection,
                uuid_text(instance.id),
                len(pushed.points),
                instance.selection.push_interval_ms,
            )


def _read(codec: int, data: bytes, bytes_max: int) -> Pushed:
    from barnabas.metrics.telemetry.payload import read

    return read(codec, data, bytes_max)


def attributes_of(context: RequestContext, instance_id: bytes) -> Attributes:
    """Return the attributes of a client that subscriptions may match, by the keys of `match`."""
    connection = context.connection
    host, port = connection.peer_address
    attributes = {
        "client_instance_id": uuid_text(instance_id),
        "client_software_name": connection.client_software_name or UNKNOWN_SOFTWARE,
        "client_software_version": connection.client_software_version or UNKNOWN_SOFTWARE,
        "client_source_address": address_text(host),
        "client_source_port": str(port),
    }
    return attributes if context.client_id is None else {**attributes, "client_id": context.client_id}


def address_text(host: str) -> str:
    """An address as Java writes it, for patterns that were written for Kafka: all groups of an IPv6 address."""
    host = host.removeprefix("::ffff:")
    if ":" not in host:
        return host
    groups = struct.unpack(">8H", socket.inet_pton(socket.AF_INET6, host.partition("%")[0]))
    return ":".join(f"{group:x}" for group in groups)
