"""Subscriptions by expression, matched against all topics: in short steps, bounded, and rate-limited for each group.

The rule: a client determines the cost of an expression, so the CPU time of its steps is measured. An expression above the
limit is refused, and the group then waits ten times as long as it has used before its next new expression is matched
(docs/decisions/0650-expressions-rest-as-long-as-they-took.md).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from barnabas.coordinators.groups.consumer.regex import match_in_steps, matching
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.serving.loop_budget import LoopBudget

SECONDS_MAX: Final = 1.0
"""CPU time that an expression may take: a plain one takes 2 us for each topic, so 500,000 topics."""
REST_FACTOR: Final = 10
REST_SECONDS_MAX: Final = 10.0
"""Longest wait of a group for its next expression; in Kafka every group waits that long."""
FREE_SECONDS: Final = 0.005
"""After expressions that take no longer than this a group need not wait."""
AUTHORIZED_PER_TURN: Final = 50


class Matches(NamedTuple):
    """Topics that an expression matches, and a check for DESCRIBE on each: None where all may be described."""

    topics: frozenset[str]
    may_describe: Callable[[str], bool] | None


class _Turn:
    """Turn of a group: one expression at a time, and none before the time `free_at`."""

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.free_at = -math.inf
        self.seconds = 0.0
        """CPU time that the steps of the expression in hand have taken."""

    @property
    def is_over(self) -> bool:
        """True if no expression is matched, and the next one need not wait."""
        return not self.lock.locked() and self.free_at <= trio.current_time()


class ExpressionMatcher:
    """Matches expressions of all consumer groups with the topics of a cluster."""

    def __init__(self, budget: LoopBudget) -> None:
        self._budget = budget
        self._turns: OrderedDict[str, _Turn] = OrderedDict()

    async def match(
        self,
        group_id: str,
        is_known: Callable[[], Awaitable[bool]],
        expression: str,
        topics: Mapping[str, object],
        may_describe: Callable[[str], bool] | None,
    ) -> Matches | None:
        """Return the topics that match, and a `may_describe` with cached results for these.

        Waits for the group's turn, and returns None if `is_known` then returns that the group has the matches meanwhile.
        Raises INVALID_REGULAR_EXPRESSION, also if matching takes more than `SECONDS_MAX`.
        """
        while self._turns and next(iter(self._turns.values())).is_over:
            self._turns.popitem(last=False)
        turn = self._turns.setdefault(group_id, _Turn())
        self._turns.move_to_end(group_id)
        async with turn.lock:
            await trio.sleep_until(turn.free_at)
            if await is_known():
                return None
            turn.seconds = 0.0
            try:
                return await self._match(turn, expression, topics, may_describe)
            finally:
                if turn.seconds > FREE_SECONDS:
                    turn.free_at = trio.current_time() + min(turn.seconds * REST_FACTOR, REST_SECONDS_MAX)

    async def _match(
        self,
        turn: _Turn,
        expression: str,
        topics: Mapping[str, object],
        may_describe: Callable[[str], bool] | None,
    ) -> Matches:
        """Match in steps; their time is added to that of the turn."""
        described: dict[str, bool] = {}
        budget = self._budget
        steps = _steps(expression, topics, may_describe, described)
        is_done = False
        while not is_done:
            began = budget.cpu_seconds
            try:
                is_done = next(steps, True)
            finally:
                turn.seconds += budget.cpu_seconds - began
            if turn.seconds > SECONDS_MAX:
                raise RequestError(
                    ErrorCode.INVALID_REGULAR_EXPRESSION,
                    f"matching the regular expression with {len(topics):,} topics takes more than {SECONDS_MAX:g} s of CPU",
                )
            await budget.checkpoint()
        matched = matching(expression, topics)
        return Matches(matched, may_describe and partial(_may_describe, described, may_describe))


def _may_describe(described: Mapping[str, bool], may_describe: Callable[[str], bool], name: str) -> bool:
    answer = described.get(name)
    return may_describe(name) if answer is None else answer


def _steps(
    expression: str,
    topics: Mapping[str, object],
    may_describe: Callable[[str], bool] | None,
    described: dict[str, bool],
) -> Iterator[bool]:
    """Match an expression, then enter in `described` which topics of these may be described; yields False."""
    for _ in match_in_steps(expression, topics):
        yield False
    if may_describe is not None:
        for number, name in enumerate(matching(expression, topics), 1):
            described[name] = may_describe(name)
            if number % AUTHORIZED_PER_TURN == 0:
                yield False
