"""One arm of the comparison: a peer with a directory of its own, its shared broker, and fresh ones on demand.

The rule: every arm lives on the same disk, and what an arm starts, it ends.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers import Peer, Running


class Arm:
    """A peer under measurement. `quick` asks scenarios for less work."""

    def __init__(self, peer: Peer, directory: Path, *, quick: bool) -> None:
        self.peer = peer
        self.quick = quick
        self._directory = directory / peer.label
        self._shared: Running | None = None
        self._made = 0
        self._directory.mkdir(parents=True)

    @property
    def label(self) -> str:
        return self.peer.label

    @property
    def running(self) -> Running:
        """The broker that load scenarios share, so that all are equally warm; started when asked for."""
        if self._shared is None:
            self._shared = self.peer.start(self.new_data())
        return self._shared

    def new_data(self) -> Path:
        """Make a formatted, empty data directory."""
        self._made += 1
        data = self._directory / f"data-{self._made}"
        self.peer.format(data)
        return data

    @contextmanager
    def fresh(self) -> Iterator[Running]:
        """Start a broker on an empty directory, and remove both at the end."""
        with self.on(data := self.new_data()) as running:
            yield running
        shutil.rmtree(data, ignore_errors=True)

    @contextmanager
    def on(self, data: Path) -> Iterator[Running]:
        """Start a broker on a directory, and end it."""
        running = self.peer.start(data)
        try:
            yield running
        finally:
            running.stop()

    def outputs(self) -> str:
        """The ends of what the arm's brokers have printed."""
        return "".join(
            f"--- {path}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self._directory.glob("*.out"))
            if path.stat().st_size
        )

    def stop_shared(self) -> None:
        """End the shared broker, if there is one."""
        if self._shared is not None:
            running, self._shared = self._shared, None
            running.stop()
            shutil.rmtree(running.data, ignore_errors=True)
