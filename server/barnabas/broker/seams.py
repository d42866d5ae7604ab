"""Places where something may stand around a broker's requests and connections: faults, recorders, taps.

The rule: a broker without them has none, and pays for none: one look at a name that is None.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.pipeline import Interceptor, Sender
    from barnabas.network.transport import Transport

Taker = Callable[["Transport"], Awaitable[bool]]
"""Takes an accepted connection first; true when the broker is to serve it then, otherwise it is closed."""
Doorkeeper = Callable[[str, "Transport"], "Taker | None"]
"""Asked for each accepted connection on the listener of this name: who takes it first, None for the broker at once."""


@dataclass(frozen=True, slots=True)
class Seams:
    """What stands there; None where nothing does."""

    interceptor: Interceptor | None = None
    sender: Sender | None = None
    doorkeeper: Doorkeeper | None = None


NO_SEAMS = Seams()
