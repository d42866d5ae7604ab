"""Slips that are planted in the broker's code, to see that a random comparison with a model notices each of them.

The rule: a slip takes the place of one function, for the time of one search. What is compiled cannot be replaced: there the
test runs once more, in a process that runs the sources.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.support.effort import daily
from tests.support.sources import failure_in_sources, is_source

Slip = tuple[Any, str, Any]
"""A class or module, the name of an attribute, and its replacement."""
DAILY_SHARE = 12
SEARCH = settings(
    max_examples=10_000,  # of those that are noticed few are needed
    stateful_step_count=40,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
)


def unnoticed(machine: type[RuleBasedStateMachine], slips: Mapping[str, Slip], test: str) -> list[str]:
    """Return the slips that random histories of `machine` do not notice.

    An ordinary run searches for one of twelve, chosen by the day, `make nightly` for all. `test` is the node id of the
    caller, which is run again with the sources if one of the holders is compiled.
    """
    if not all(is_source(holder, name) for holder, name, _ in slips.values()):
        failure = failure_in_sources(test)
        return [failure] if failure else []
    if misfits := [name for name, slip in slips.items() if not fits(*slip)]:
        return [f"{name}: takes other arguments than the function that it replaces" for name in misfits]
    return [name for name in daily(slips, DAILY_SHARE) if not _is_noticed(machine, slips[name])]


def fits(holder: Any, name: str, slip: Any) -> bool:
    """Return whether a slip takes all arguments of the replaced function, as a TypeError would count as noticed."""
    function = inspect.getattr_static(holder, name)
    if not (inspect.isfunction(function) and inspect.isfunction(slip)):
        return True
    parameters = inspect.signature(function).parameters
    keywords = {key for key, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY}
    try:
        inspect.signature(slip).bind(*parameters.keys() - keywords, **dict.fromkeys(keywords))
    except TypeError:
        return False
    return True


class FittingPatch:
    """A MonkeyPatch that checks that replacements fit."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def setattr(self, holder: Any, name: str, slip: Any) -> None:
        """Replace a function by a slip, which must fit."""
        assert fits(holder, name, slip), f"the slip of {name} takes other arguments"
        self._patch.setattr(holder, name, slip)


def planted(slip: Slip) -> AbstractContextManager[Any]:
    """Replace a function by a slip within the block."""
    return mock.patch.object(*slip)


def _is_noticed(machine: type[RuleBasedStateMachine], slip: Slip) -> bool:
    with planted(slip):
        try:
            run_state_machine_as_test(machine, settings=SEARCH)
        except AssertionError:
            return True
    return False
