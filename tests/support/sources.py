"""Tests that replace parts of compiled modules run again, in a separate process that runs the sources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
IN_SOURCES = "BARNABAS_TEST_IN_SOURCES"
"""Set in such a process, which starts no other."""


def is_source(holder: Any, name: str) -> bool:
    """Return whether a class or module is interpreted, so that its attributes can be replaced."""
    module = holder if isinstance(holder, ModuleType) else sys.modules[holder.__module__]
    assert hasattr(holder, name), f"{holder} has no {name}"
    return str(module.__file__).endswith(".py")


def failure_in_sources(test: str) -> str:
    """Run the test of this node id with the sources; returns its output if it fails, an empty string otherwise."""
    assert IN_SOURCES not in os.environ, f"{test} runs the sources, and takes them for compiled"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment[IN_SOURCES] = "yes"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode else ""
