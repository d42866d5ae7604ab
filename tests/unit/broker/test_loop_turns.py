"""No request, of any API and version, keeps the event loop for long: counted in lines, not in time.

make turns                ten times the state: half an hour
make turns ARGS=Fetch     each request of an API
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from barnabas.serving.release import KAFKA_4
from tests.support.loop_meter import LINES_MAX
from tests.support.worst_inputs import ROWS

ROOT = Path(__file__).resolve().parents[3]
RUN_TIMEOUT_S = 3_000

TOO_LONG: dict[str, str] = {}
"""APIs with a worst input that still keeps the loop for longer, and why."""


@pytest.fixture(scope="module")
def turns() -> dict[str, dict[str, Any]]:
    """By API the longest turn that its worst inputs made."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'server'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.loop_turns"],
        capture_output=True, text=True, cwd=ROOT, env=environment, timeout=RUN_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr[-4000:]
    figures: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _parameters() -> list[Any]:
    marks = {name: pytest.mark.xfail(reason=reason) for name, reason in TOO_LONG.items()}
    return [pytest.param(name, marks=marks.get(name, ())) for name in sorted(ROWS)]


def test_every_served_api_has_a_worst_input() -> None:
    assert ROWS.keys() == {api.name for api in KAFKA_4.apis.values() if not api.member_only}


@pytest.mark.slow
@pytest.mark.parametrize("name", _parameters())
def test_the_worst_input_of_an_api_takes_short_turns(turns: dict[str, dict[str, Any]], name: str) -> None:
    worst = turns[name]
    assert worst["lines"] <= LINES_MAX, (
        f"{name} {worst['case']}: {worst['lines']:,} lines in {worst['where']}"
    )
