"""A few kills under idempotent producers: every record that was sent is there, in order, once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .conftest import ROOT

pytestmark = pytest.mark.e2e


def test_what_was_acknowledged_survives_kills() -> None:
    # In a process of its own: kafka-python leaves sockets behind whose broker was killed.
    command = [sys.executable, "-m", "compat.crash", "--seed", "1", "--rounds", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS kills 4, clean_stops 0, sent " in done.stdout
