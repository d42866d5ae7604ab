"""Slips that are planted in the broker's code, to see that a random comparison with a model notices each of them.

The rule: a slip takes the place of one function, for the time of one search. What is compiled cannot be replaced: there the
test runs once more, in a process that runs the sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.support.effort import daily
from tests.support.sources import failure_in_sources, is_source

Slip = tuple[Any, str, Any]
"""Holder, name, and what takes the place of what it holds under that name."""
DAILY_SHARE = 12
SEARCH = settings(
    max_examples=1_000,
    stateful_step_count=40,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
)


def unnoticed(machine: type[RuleBasedStateMachine], slips: Mapping[str, Slip], test: str) -> list[str]:
    """Return the slips that random histories of `machine` do not fail for.

    On an ordinary day one of twelve is searched for, each day others, in `make nightly` each of them. `test` is the node id
    of the caller: where one of the holders is compiled it runs once more, with the sources.
    """
    if not all(is_source(holder, name) for holder, name, _ in slips.values()):
        failure = failure_in_sources(test)
        return [failure] if failure else []
    return [name for name in daily(slips, DAILY_SHARE) if not _is_noticed(machine, slips[name])]


def planted(slip: Slip) -> AbstractContextManager[Any]:
    """Have a slip in the code within the block."""
    return mock.patch.object(*slip)


def _is_noticed(machine: type[RuleBasedStateMachine], slip: Slip) -> bool:
    with planted(slip):
        try:
            run_state_machine_as_test(machine, settings=SEARCH)
        except AssertionError:
            return True
    return False
