"""After the start, whatever is asked for the first time is imported in a thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_event_loop_imports_nothing() -> None:
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT / "server"), str(ROOT)]))
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.loop_imports"],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {}
