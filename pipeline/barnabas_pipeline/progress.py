"""Progress bars while a job works, and a summary when it is done.

The rule: bars go to stderr and only if that is a terminal; the summary goes to stdout, as text or as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import TextIO

WIDTH = 30


class Bar:
    """A progress bar: call it with (done, all)."""

    def __init__(self, label: str, *, file: TextIO | None = None, shown: bool | None = None) -> None:
        self._label = label
        self._file = sys.stderr if file is None else file
        self._shown = self._file.isatty() if shown is None else shown
        self._began = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Draw the bar."""
        if not self._shown:
            return
        fraction = done / total if total else 1.0
        filled = int(WIDTH * fraction)
        rate = done / max(time.monotonic() - self._began, 1e-9)
        line = f"{self._label:10} [{'#' * filled}{'.' * (WIDTH - filled)}] {fraction:4.0%} {done:,}/{total:,} {rate:,.0f}/s"
        self._file.write(f"\r{line}" + ("\n" if done >= total else ""))
        self._file.flush()


def summarize(job: str, facts: Mapping[str, object], *, as_json: bool) -> None:
    """Print a job's summary."""
    if as_json:
        print(json.dumps({"job": job, **facts}, default=str))
        return
    print(job)
    for name, value in facts.items():
        if isinstance(value, float):
            text = f"{value:,.4g}"
        elif isinstance(value, int) and not isinstance(value, bool):
            text = f"{value:,}"
        elif isinstance(value, (dict, list)):
            text = json.dumps(value, default=str)
        else:
            text = str(value)
        print(f"  {name.replace('_', ' '):20} {text}")
