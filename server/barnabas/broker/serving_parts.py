"""Memory and connections of a process that serves, be it a broker or a controller.

The rule: both have the same limits, from the same settings.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.open_files import allow_open_files, connections_max
from barnabas.broker.startup import parse_metrics_address
from barnabas.config import broker as settings
from barnabas.serving.channel import Handshakes
from barnabas.serving.connection_parts import ConnectionParts
from barnabas.serving.framing import BufferPool
from barnabas.serving.listener import Connections
from barnabas.serving.memory import REQUEST_BYTES_MAX, Memory
from barnabas.serving.request import Request
from barnabas.serving.stages import STAGES
from barnabas.serving.unauthenticated import UnauthenticatedConnections
from barnabas.system.memory import give_back_memory

if TYPE_CHECKING:
    import trio

    from barnabas.broker.metrics_endpoint import MetricsAddress
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.serving.connection_limits import ConnectionLimits
    from barnabas.serving.request_parts import RequestParts
    from barnabas.serving.seams import Doorkeeper
    from barnabas.serving.stalls import StallMeter


def new_memory(config: BrokerConfig, environment: Environment) -> Memory:
    """Return the memory that requests share."""
    queued = config.get(settings.QUEUED_MAX_REQUEST_BYTES)
    return Memory(
        queued if queued > 0 else REQUEST_BYTES_MAX,
        clock=environment.monotonic,
        give_back=lambda: environment.threads.run(give_back_memory),
    )


def new_connections(
    config: BrokerConfig,
    environment: Environment,
    background: trio.Nursery,
    request_parts: RequestParts,
    limits: ConnectionLimits,
    stalls: StallMeter,
    *,
    on_closed: Callable[[int], None],
    doorkeeper: Doorkeeper | None = None,
) -> Connections:
    """Return all connections, which live in a nursery; `on_closed` and `doorkeeper` are theirs."""
    return Connections(
        background,
        ConnectionParts(
            begin=partial(Request, STAGES, request_parts),
            memory=request_parts.shared.memory,
            pool=BufferPool(),
            budget=request_parts.budget,
            stalls=stalls,
            log_limit=request_parts.shared.log_limit,
            handshakes=Handshakes(environment.threads),
            frame_bytes_max=config.get(settings.SOCKET_REQUEST_MAX_BYTES),
            now_s=environment.monotonic,
            on_closed=on_closed,
        ),
        limits,
        idle_seconds_max=config.get(settings.CONNECTIONS_MAX_IDLE_MS) / 1000,
        count_max=connections_max(allow_open_files()),
        unauthenticated=UnauthenticatedConnections(
            config.get(settings.MAX_UNAUTHENTICATED_CONNECTIONS),
            config.get(settings.AUTHENTICATION_TIMEOUT_MS) / 1000,
        ),
        doorkeeper=doorkeeper,
    )


def bound_metrics_address(config: BrokerConfig) -> MetricsAddress | None:
    """Bind the address of metrics, if they are enabled; only then their libraries are imported. Raises StartupError."""
    address = config.get(settings.METRICS_LISTENER)
    if not address:
        return None
    from barnabas.broker.metrics_endpoint import MetricsAddress

    return MetricsAddress(*parse_metrics_address(address))
