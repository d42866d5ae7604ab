"""What connections share, for tests of connections without a broker behind them."""

from __future__ import annotations

from typing import Any

import trio

from barnabas.broker.buffers import BufferPool
from barnabas.broker.connection_parts import ConnectionParts
from barnabas.broker.handshakes import Handshakes
from barnabas.broker.stalls import StallMeter
from barnabas.environment.real import OsThreads
from barnabas.loop_budget import LoopBudget
from barnabas.requests.log_limit import LogLimit
from barnabas.requests.memory import Memory

NAMES = (
    "pipeline",
    "memory",
    "buffers",
    "budget",
    "stalls",
    "log_limit",
    "handshakes",
    "frame_bytes_max",
    "now_s",
    "on_closed",
)


class NobodyAnswers:
    """A pipeline of a broker that is asked nothing."""

    async def answer(self, *_: object) -> bool:
        """Fail."""
        raise AssertionError("a request came")


def connection_parts(**changed: Any) -> ConnectionParts:
    """Return the parts of a broker that answers nothing, with those that are `changed`."""
    log_limit = LogLimit()
    parts: dict[str, Any] = {
        "pipeline": NobodyAnswers(),
        "memory": Memory(),
        "buffers": BufferPool(),
        "budget": LoopBudget(),
        "stalls": StallMeter(log_limit),
        "log_limit": log_limit,
        "handshakes": Handshakes(OsThreads()),
        "frame_bytes_max": 1 << 20,
        "now_s": trio.current_time,
        "on_closed": bool,
    }
    return ConnectionParts(**{**parts, **changed})


def copied(parts: ConnectionParts, **changed: Any) -> ConnectionParts:
    """Return the same parts with those that are `changed`; a test can put others in place of them later, too."""
    return ConnectionParts(**{name: getattr(parts, name) for name in NAMES} | changed)
