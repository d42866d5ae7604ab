"""No request keeps the event loop for long that has as many entries as it may: of any API, version and array.

make turns                all versions: half an hour
make turns ARGS=Fetch     the requests of an API
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.wide_turns import names_of_the_day

ROOT = Path(__file__).resolve().parents[3]
RUN_TIMEOUT_S = 3_000


@pytest.fixture(scope="module")
def turns() -> dict[str, dict[str, Any]]:
    """By API the longest turn that a wide request made."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'server'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.wide_turns"],
        capture_output=True, text=True, cwd=ROOT, env=environment, timeout=RUN_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr[-4000:]
    figures: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return figures


@pytest.mark.slow
@pytest.mark.parametrize("name", names_of_the_day())
def test_widest_request_takes_short_turns(turns: dict[str, dict[str, Any]], name: str) -> None:
    worst = turns[name]
    assert worst["lines"] <= worst["limit"], (
        f"{name} {worst['case']}: {worst['lines']:,} lines in {worst['where']}"
    )
