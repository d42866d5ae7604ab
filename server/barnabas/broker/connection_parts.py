"""What all connections of a broker share."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from barnabas.broker.begun import Begun
from barnabas.broker.buffers import BufferPool
from barnabas.broker.handshakes import Handshakes
from barnabas.broker.stalls import StallMeter
from barnabas.loop_budget import LoopBudget
from barnabas.requests.log_limit import LogLimit
from barnabas.requests.memory import Memory

if TYPE_CHECKING:
    from barnabas.network.transport import Transport
    from barnabas.requests.context import ConnectionInfo


class Answering(Protocol):
    """What answers a frame, as `Pipeline` does."""

    def begin(
        self, connection: ConnectionInfo, transport: Transport, frame: memoryview
    ) -> bool | Awaitable[bool] | Begun:
        """Answer a request at once; false when its connection must be closed.

        Otherwise return what is to be awaited for it, or the request if its answer announces itself. Raises PeerError,
        OSError.
        """


class ConnectionParts:
    """What all connections of a broker share; `on_closed` is told the id of each that is at its end."""

    __slots__ = (
        "budget",
        "buffers",
        "frame_bytes_max",
        "handshakes",
        "heard_another_s",
        "last_heard_id",
        "log_limit",
        "memory",
        "now_s",
        "on_closed",
        "pipeline",
        "stalls",
    )

    def __init__(
        self,
        pipeline: Answering,
        memory: Memory,
        buffers: BufferPool,
        budget: LoopBudget,
        stalls: StallMeter,
        log_limit: LogLimit,
        handshakes: Handshakes,
        frame_bytes_max: int,
        now_s: Callable[[], float],
        on_closed: Callable[[int], None],
    ) -> None:
        self.pipeline = pipeline
        self.memory = memory
        self.buffers = buffers
        self.budget = budget
        self.stalls = stalls
        self.log_limit = log_limit
        self.handshakes = handshakes
        self.frame_bytes_max = frame_bytes_max
        self.now_s = now_s
        self.on_closed = on_closed
        self.last_heard_id = 0
        """The connection that has sent something last of all."""
        self.heard_another_s = -math.inf
        """When that last was another one than before."""
