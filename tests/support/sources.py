"""Tests that stand in for what is compiled run once more, in a process of their own that runs the sources."""

from __future__ import annotations

import os
import subprocess
import sys
from inspect import getattr_static
from pathlib import Path
from types import FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def is_source(holder: Any, name: str) -> bool:
    """Say whether what a class or module holds under a name is interpreted, so that it can be replaced."""
    return isinstance(getattr_static(holder, name), FunctionType | property | classmethod | staticmethod)


def failure_in_sources(test: str) -> str:
    """Run the test of this node id with the sources; return what is printed if it fails, nothing otherwise."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode else ""
