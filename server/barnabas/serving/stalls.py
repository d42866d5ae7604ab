"""Turns of the event loop that are too long: the API of the request at fault, counted and logged.

The rule: a turn is attributed to the task with the longest step in it, unless the loop had no processor for most of it:
then it waited for the machine, and no request is to blame.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from barnabas.serving.loop_budget import STALL_SECONDS, Stall
from barnabas.wire import registry

if TYPE_CHECKING:
    import trio

    from barnabas.serving.context import ConnectionInfo
    from barnabas.serving.log_limit import LogLimit

log = logging.getLogger(__name__)

COUNTED_SECONDS = 0.02
"""From this length on a turn is counted for the API that held it."""

BACKGROUND = "background"
"""Name counted instead of an API's where the longest step was not that of a connection with a request."""

MACHINE = "machine"
"""Name counted instead where the loop had a processor for less than half of the turn."""

KIND, SOURCE = "stalls of the event loop", "all clients"


class StallMeter:
    """Counts long turns by API. Connections enter their tasks in `connections`.

    Before the first connection no client exists that a turn could delay: a start is one long turn.
    """

    def __init__(self, log_limit: LogLimit) -> None:
        self.connections: WeakKeyDictionary[trio.lowlevel.Task, ConnectionInfo] = WeakKeyDictionary()
        self.counts: dict[str, int] = {}
        self._log_limit = log_limit
        self._has_served = False

    def long_turn(self, stall: Stall) -> None:
        """Count a turn, and write it to the log if it was very long."""
        if stall.seconds < COUNTED_SECONDS or not self._is_serving():
            return
        connection = self.connections.get(stall.task) if stall.task is not None else None
        request = connection.request if connection is not None else None
        name = registry.name_of(request.api_key) if request is not None else BACKGROUND
        has_waited = stall.cpu_seconds < stall.seconds / 2
        if has_waited:
            name = MACHINE
        self.counts[name] = self.counts.get(name, 0) + 1
        if stall.seconds < STALL_SECONDS:
            return
        culprit: object = (
            request or connection or (stall.task.name if stall.task is not None else "input and output")
        )
        seconds, cpu, longest = (
            round(each * 1000) for each in (stall.seconds, stall.cpu_seconds, stall.step_seconds)
        )
        if has_waited:
            self._log_limit.log(
                log, logging.WARNING, KIND, SOURCE,
                "the event loop was held up for %d ms, and had a processor for %d ms of these: the machine is busy, or a "
                "disk is slow (in %d steps, the longest of %d ms: %s)",
                seconds, cpu, stall.steps, longest, culprit,
            )  # fmt: skip
        else:
            self._log_limit.log(
                log, logging.WARNING, KIND, SOURCE,
                "the event loop was held up for %d ms in %d steps, the longest of %d ms: %s",
                seconds, stall.steps, longest, culprit,
            )  # fmt: skip

    def _is_serving(self) -> bool:
        self._has_served = self._has_served or bool(self.connections)
        return self._has_served
