"""A page with plots of a load, rewritten while it runs.

The rule: a page is complete at any time, and reloads itself until the load has ended.
"""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas_pipeline import charts
from barnabas_pipeline.jobs.loading import Watcher

if TYPE_CHECKING:
    from barnabas_pipeline.errors import PipelineError
    from barnabas_pipeline.jobs.loading import Commit, Load, LoadRound
    from barnabas_pipeline.jobs.streams import Stream

EVERY_SECONDS = 2.0
POINTS_MAX = 1_000
TOPICS_MAX = 6  # topics with a line of their own: the ones with the greatest lag
Points = deque[tuple[float, float]]


class Page(Watcher):
    """A page at `path` with figures of a running load."""

    def __init__(self, path: Path, load: Load, where: str) -> None:
        """`where` is the location of the tables, as text."""
        self._path = path
        self._load = load
        self._where = where
        self._behind: dict[str, Points] = {}
        self._rate: dict[str, Points] = {
            "rows": deque(maxlen=POINTS_MAX),
            "dead letters": deque(maxlen=POINTS_MAX),
        }
        self._events: deque[tuple[str, str, str]] = deque(maxlen=20)
        self._counts = dict.fromkeys(self._rate, 0)
        self._counted_at = self._written_at = time.monotonic()

    def joined(self, topic: str) -> None:
        """Add a line for the topic."""
        self._behind.setdefault(topic, deque(maxlen=POINTS_MAX))

    def failed(self, topic: str, error: PipelineError, *, is_over: bool) -> None:
        """Note the failure as an event."""
        self._note(topic, f"{'left out' if is_over else 'tried again'}: {error}")

    def recovered(self, topic: str) -> None:
        """Note the recovery as an event."""
        self._note(topic, "recovered")

    def committed(self, commit: Commit) -> None:
        """Count the commit's rows and dead letters."""
        self._counts["rows"] += commit.summary.loaded
        self._counts["dead letters"] += commit.summary.dead

    def ended(self, done: LoadRound) -> None:  # noqa: ARG002 (a watcher's)
        """Record the present figures, and write the page, if EVERY_SECONDS have passed."""
        now = time.monotonic()
        if now - self._written_at >= EVERY_SECONDS:
            self._take(now)
            self.write(is_running=True)

    def write(self, *, is_running: bool) -> None:
        """Write the page with the recorded figures."""
        self._written_at = time.monotonic()
        page = charts.page(
            "Load",
            f"Tables in {self._where}",
            self._facts(),
            self.sections(),
            again_seconds=5 if is_running else 0,
        )
        new = self._path.with_name(f".{self._path.name}.new")
        new.write_text(page, encoding="utf-8")
        os.replace(new, self._path)

    def end(self) -> None:
        """Write the page for the last time."""
        self._take(time.monotonic())
        self.write(is_running=False)

    def sections(self) -> list[tuple[str, str]]:
        """Return the sections of the page, with their HTML."""
        last = {topic: points[-1][1] if points else 0 for topic, points in self._behind.items()}
        shown = sorted(last, key=lambda topic: (-last[topic], topic))[:TOPICS_MAX]
        behind = {topic: list(self._behind[topic]) for topic in sorted(shown)}
        rate = {name: list(points) for name, points in self._rate.items()}
        rows = [
            {
                "topic": name, "behind": sum(stream.behind.values()), "loaded": stream.summary.loaded,
                "dead": stream.summary.dead, "commits": stream.summary.commits, "state": _state(stream),
            }
            for name, stream in sorted(self._load.streams.items())
        ]  # fmt: skip
        sections = [
            ("Behind", charts.lines(behind, "Offsets that are not loaded yet (UTC)", unit="offsets")),
            ("Rate", charts.lines(rate, "Rows and dead letters a second (UTC)", unit="1/s")),
            ("Topics", charts.table(rows)),
        ]
        if self._events:
            names = ("time", "topic", "event")
            rows = [dict(zip(names, event, strict=True)) for event in reversed(self._events)]
            sections.append(("Events", charts.table(rows)))
        return sections

    def _facts(self) -> dict[str, object]:
        summary = self._load.summary
        return {
            "topics": len(self._load.streams), "rows": summary.loaded, "dead letters": summary.dead,
            "commits": summary.commits, "failing": len(self._load.failures),
            "as of": time.strftime("%H:%M:%S", time.gmtime()) + " UTC",
        }  # fmt: skip

    def _take(self, now: float) -> None:
        moment_ms = time.time() * 1000
        for topic, stream in self._load.streams.items():
            self.joined(topic)
            self._behind[topic].append((moment_ms, sum(stream.behind.values())))
        for name, count in self._counts.items():
            self._rate[name].append((moment_ms, count / max(now - self._counted_at, 1e-3)))
            self._counts[name] = 0
        self._counted_at = now

    def _note(self, topic: str, text: str) -> None:
        self._events.append((time.strftime("%H:%M:%S", time.gmtime()), topic, text))


def _state(stream: Stream) -> str:
    if stream.error is None:
        return "well"
    return f"{'left out' if stream.is_over else 'tried again'}: {stream.error}"
