"""The systemd unit under a systemd: started, killed, started again with its record, stopped."""

import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from tests.support.systems import linux_only

from .conftest import ROOT

CANNOT = 77
SECONDS_MAX = 400


@pytest.mark.e2e
@pytest.mark.slow
@linux_only
def test_the_unit_starts_comes_back_after_a_kill_and_stops() -> None:
    sources = Path(barnabas.__file__).parents[1]
    tried = subprocess.run(
        ["sh", "deploy/try-unit.sh", sys.executable, sources],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    if tried.returncode == CANNOT:
        pytest.skip(tried.stdout.splitlines()[-1])
    assert tried.returncode == 0, tried.stdout
    assert tried.stdout.endswith("PASS\n")
