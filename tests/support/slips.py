"""Slips that are planted in the broker's code, to see that a random comparison with a model notices each of them.

The rule: a slip takes the place of one function, for the time of one search. What is compiled cannot be replaced: there the
test runs once more, in a process that runs the sources.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest import mock

from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

Slip = tuple[Any, str, Any]
"""Holder, name, and what takes the place of what it holds under that name."""
ROOT = Path(__file__).resolve().parents[2]
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

    `test` is the node id of the caller: where one of the holders is compiled it runs once more, with the sources.
    """
    if not all(_is_source(holder, name) for holder, name, _ in slips.values()):
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        return [done.stdout] if done.returncode else []
    return [name for name, slip in slips.items() if not _is_noticed(machine, slip)]


def _is_source(holder: Any, name: str) -> bool:
    held = holder.__dict__[name]
    return isinstance(held, FunctionType | property | classmethod | staticmethod)


def _is_noticed(machine: type[RuleBasedStateMachine], slip: Slip) -> bool:
    with mock.patch.object(*slip):
        try:
            run_state_machine_as_test(machine, settings=SEARCH)
        except AssertionError:
            return True
    return False
