"""Parts that all connections of a broker share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.serving.channel import Handshakes
from barnabas.serving.framing import BufferPool
from barnabas.serving.log_limit import LogLimit
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.memory import Memory
from barnabas.serving.pacing import BUSY_POLL, Arrivals, BusyPoll
from barnabas.serving.stalls import StallMeter

if TYPE_CHECKING:
    from barnabas.network.transport import Transport
    from barnabas.serving.context import ConnectionInfo
    from barnabas.serving.request import Request


class ConnectionParts:
    """Parts that all connections of a broker share.

    `begin` returns the request in a frame (without its size field), before its first stage; `on_closed` is called with
    the id of each closed connection.
    """

    __slots__ = (
        "arrivals",
        "begin",
        "budget",
        "busy_poll",
        "frame_bytes_max",
        "handshakes",
        "log_limit",
        "memory",
        "now_s",
        "on_closed",
        "pool",
        "stalls",
    )

    def __init__(
        self,
        begin: Callable[[ConnectionInfo, Transport, memoryview], Request],
        memory: Memory,
        pool: BufferPool,
        budget: LoopBudget,
        stalls: StallMeter,
        log_limit: LogLimit,
        handshakes: Handshakes,
        frame_bytes_max: int,
        now_s: Callable[[], float],
        on_closed: Callable[[int], None],
        busy_poll: BusyPoll = BUSY_POLL,
    ) -> None:
        self.begin = begin
        self.memory = memory
        self.pool = pool
        self.budget = budget
        self.stalls = stalls
        self.log_limit = log_limit
        self.handshakes = handshakes
        self.frame_bytes_max = frame_bytes_max
        self.now_s = now_s
        self.on_closed = on_closed
        self.busy_poll = busy_poll
        self.arrivals = Arrivals()
