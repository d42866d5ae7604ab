"""The broker: everything it owns, how it starts, and how it stops.

The rule: one nursery, one order. Start: data directories, logs, metadata, partitions, coordinators, listeners, and
only then the ready line. Stop: listeners, connections, coordinators, logs, and last the clean-shutdown marker.
"""

from __future__ import annotations

import logging
import secrets
import signal
import time
from typing import TYPE_CHECKING

import trio

from barnabas.broker import startup
from barnabas.broker.buffers import BufferPool
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.housekeeping import keep_house
from barnabas.broker.listener import Connections, Listener
from barnabas.broker.partitions import Partitions
from barnabas.config import broker as settings

if TYPE_CHECKING:
    from barnabas.broker.context import ConnectionInfo
    from barnabas.cluster.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordination.groups import GroupCoordinator
    from barnabas.log.manager import LogManager

log = logging.getLogger(__name__)
