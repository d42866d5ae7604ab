"""The pace of a connection: the expected time of its next request, and the way of waiting for it.

| State | The next request | Way of waiting |
|---|---|---|
| IDLE | may take long to arrive | with all idle connections: a loop iteration wakes as many as it has time for |
| ACTIVE | arrived soon after the last response | by Trio; with other active ones while many are active |
| BUSY_POLLING | arrived immediately, and no other connection sent anything | polled without a loop iteration |

    IDLE --soon--> ACTIVE --immediately, alone--> BUSY_POLLING
    ACTIVE, BUSY_POLLING --late, or nothing for a while--> IDLE
    BUSY_POLLING --not immediately, or others sent something--> ACTIVE

The first request is not counted: thousands of new connections may send theirs together. So a new connection is IDLE.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Final, NamedTuple

UNCOUNTED_BYTES_MAX: Final = 4096
"""Requests up to this size are small, and not counted among the memory of requests: each connection may hold one."""
ACTIVE_SECONDS: Final = 1.0
"""A connection is active if its last request came so soon after the response before it."""
OTHERS_SECONDS: Final = 0.1
"""Time after taking turns for which each of the connections counts as one among others."""
BUSY_POLL_WITHIN_SECONDS: Final = 0.000_4
"""A request that came so soon after the response before it lets its connection busy-poll for the next one."""
BUSY_POLL_SECONDS: Final = 0.000_3
"""For how long it busy-polls, before it waits for an iteration of the event loop."""
BUSY_POLL_AFTER_LARGE_SECONDS: Final = 0.000_05
"""For how long after a request that was not small: the client needs longer for the next one, and the core to make it."""
BUSY_POLLS_SKIPPED_MAX: Final = 63
"""Requests that a connection waits for as any other after it has polled in vain: 1, 3, 7 ... up to this many."""


class BusyPoll(NamedTuple):
    """When and for how long connections busy-poll."""

    within_s: float = BUSY_POLL_WITHIN_SECONDS
    for_s: float = BUSY_POLL_SECONDS
    after_large_s: float = BUSY_POLL_AFTER_LARGE_SECONDS


BUSY_POLL: Final = BusyPoll()


class State(IntEnum):
    """States of a connection between two requests."""

    IDLE = 0
    ACTIVE = 1
    BUSY_POLLING = 2


class Arrivals:
    """Arrivals on all connections: the connection that sent last, and the time at which it changed."""

    __slots__ = ("changed_s", "last_id")

    def __init__(self) -> None:
        self.last_id = 0
        self.changed_s = -math.inf
        """Time at which a connection last sent data after another one."""

    def is_alone(self, connection_id: int, now_s: float) -> bool:
        """Note an arrival; returns whether the preceding arrival was on the same connection."""
        if self.last_id == connection_id:
            return True
        self.last_id, self.changed_s = connection_id, now_s
        return False

    def are_mixed(self, now_s: float) -> bool:
        """Return whether another connection has sent something within OTHERS_SECONDS, too."""
        return now_s - self.changed_s < OTHERS_SECONDS


class Pace:
    """State of one connection."""

    __slots__ = ("_busy_poll", "_skip", "_skip_next", "is_small", "state")

    def __init__(self, busy_poll: BusyPoll = BUSY_POLL) -> None:
        self._busy_poll = busy_poll
        self.state = State.IDLE
        self.is_small = True
        """The last request was small."""
        self._skip = 0
        self._skip_next = 0

    def arrived(self, waited_s: float, *, is_first: bool, is_alone: bool) -> None:
        """Note bytes that arrived this many seconds after the last ones, or after the response to them."""
        if is_first or waited_s >= ACTIVE_SECONDS:
            self.state = State.IDLE
        elif is_alone and waited_s < self._busy_poll.within_s:
            self.state = State.BUSY_POLLING
        else:
            self.state = State.ACTIVE

    def expect_nothing_soon(self) -> bool:
        """Count it as idle, as it has sent nothing for a while; return whether that is new."""
        was, self.state = self.state, State.IDLE
        return was is not State.IDLE

    @property
    def may_poll(self) -> bool:
        """Return whether the connection may busy-poll now, if there is time."""
        return self.state is State.BUSY_POLLING and not self._skip

    @property
    def poll_seconds(self) -> float:
        """Return for how long to busy-poll for the next request, 0 where it is waited for as any other; counts as a try."""
        if self.state is not State.BUSY_POLLING:
            return 0.0
        if self._skip:
            self._skip -= 1
            return 0.0
        return self._busy_poll.for_s if self.is_small else self._busy_poll.after_large_s

    def polled(self, *, is_found: bool) -> None:
        """Note whether busy-polling detected a request: after each failure more requests are awaited without it."""
        if is_found:
            self._skip_next = 0
        else:
            self._skip = self._skip_next = min(2 * self._skip_next + 1, BUSY_POLLS_SKIPPED_MAX)
