"""The broker: everything it owns, how it starts, and how it stops.

The rule: one nursery, one order. Start: listeners bound, logs, metadata, partitions, coordinators, and only then
the ready line. Stop: listeners, connections, coordinators, logs, and last the clean-shutdown marker.
"""

from __future__ import annotations

import gc
import logging
import secrets
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.broker import housekeeping
from barnabas.broker.buffers import BufferPool
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.listener import Connections, Listener
from barnabas.broker.partitions import Partitions
from barnabas.broker.startup import StartupError, open_listeners
from barnabas.cluster.endpoints import advertised_endpoint
from barnabas.config import broker as settings
from barnabas.errors import StorageError

if TYPE_CHECKING:
    from barnabas.broker.context import ConnectionInfo
    from barnabas.cluster.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.log.manager import LogManager

log = logging.getLogger(__name__)


class Broker:
    """One running broker.

    Lifecycle: `Broker(config)`, then `await run()` in a task of its own; `run` reports readiness through
    `task_status` with the broker itself as the value, and returns after a clean stop, which `stop()` asks for.
    """

    def __init__(self, config: BrokerConfig, *, now_ms: Callable[[], int] | None = None) -> None:
        self.config = config
        self.now_ms = now_ms or _wall_clock_ms
        self.broker_id = config.get(settings.NODE_ID)
        self.frame_bytes_max = config.get(settings.SOCKET_REQUEST_MAX_BYTES)
        self.fetch_bytes_max = config.get(settings.FETCH_MAX_BYTES)
        self.buffers = BufferPool()
        self.fetch_sessions = FetchSessions(
            config.get(settings.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS), partial(secrets.randbelow, 2**31)
        )
        self.listeners: list[Listener] = []
        self.logs: LogManager
        self.metadata: MetadataStore
        self.partitions: Partitions
        self._stopping = trio.Event()
