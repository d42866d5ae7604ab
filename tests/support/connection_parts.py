"""The parts that connections share, for tests of connections without a broker behind them."""

from __future__ import annotations

from typing import Any

import trio

from barnabas.environment.real import OsThreads
from barnabas.serving.channel import Handshakes
from barnabas.serving.connection_parts import ConnectionParts
from barnabas.serving.framing import BufferPool
from barnabas.serving.log_limit import LogLimit
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.memory import Memory
from barnabas.serving.pacing import BUSY_POLL
from barnabas.serving.stalls import StallMeter

NAMES = (
    "begin",
    "memory",
    "pool",
    "budget",
    "busy_poll",
    "stalls",
    "log_limit",
    "handshakes",
    "frame_bytes_max",
    "now_s",
    "on_closed",
)


def _fail(*_: object) -> None:
    """Fail: the connection must not use the broker."""
    raise AssertionError("a request came")


def connection_parts(**changed: Any) -> ConnectionParts:
    """Return the parts of a broker that answers no request, with those in `changed` replaced."""
    log_limit = LogLimit()
    parts: dict[str, Any] = {
        "begin": _fail,
        "memory": Memory(),
        "pool": BufferPool(),
        "budget": LoopBudget(),
        "busy_poll": BUSY_POLL,
        "stalls": StallMeter(log_limit),
        "log_limit": log_limit,
        "handshakes": Handshakes(OsThreads()),
        "frame_bytes_max": 1 << 20,
        "now_s": trio.current_time,
        "on_closed": bool,
    }
    return ConnectionParts(**{**parts, **changed})


def copied(parts: ConnectionParts, **changed: Any) -> ConnectionParts:
    """Return a copy of the parts with those in `changed` replaced; a test may replace attributes of it later, too."""
    return ConnectionParts(**{name: getattr(parts, name) for name in NAMES} | changed)
