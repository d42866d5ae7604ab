"""One arm of the comparison: a peer with a separate directory, its shared broker, and fresh ones on demand.

The rule: all arms use the same disk, and an arm ends all processes that it starts.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from pathlib import Path

from bench.peers import Peer, Running
from bench.secured import Secured


class Arm:
    """A peer under measurement. With `quick`, scenarios do less work."""

    def __init__(self, peer: Peer, directory: Path, *, quick: bool) -> None:
        self.peer = peer
        self.quick = quick
        self._directory = directory / peer.label
        self._shared: Running | None = None
        self._others: dict[str, Running] = {}  # by the settings that the shared broker lacks
        self._made = 0
        self._directory.mkdir(parents=True)

    @property
    def label(self) -> str:
        return self.peer.label

    @property
    def running(self) -> Running:
        """The broker that load scenarios share, so that all are equally warm; started on first use."""
        if self._shared is None:
            self._shared = self.peer.start(self.new_data())
        return self._shared

    def secured(self, protocol: str) -> Running:
        """Return the broker that scenarios with TLS or a login share; started on first use."""

        def secure(peer: Peer, directory: Path) -> None:
            peer.secured = Secured.of(protocol, directory)

        return self._other(protocol, secure)

    def with_settings(self, settings: Mapping[str, str]) -> Running:
        """Return the broker shared by scenarios with settings besides the peer's; started on first use."""
        if not settings:
            return self.running

        def add(peer: Peer, _: Path) -> None:
            peer.settings = {**peer.settings, **settings}

        return self._other(" ".join(f"{name}={value}" for name, value in settings.items()), add)

    def _other(self, key: str, change: Callable[[Peer, Path], None]) -> Running:
        """Return the shared broker of a key, started on first use.

        `change` adjusts a copy of the peer, and may write files to the directory that it gets.
        """
        running = self._others.get(key)
        if running is None:
            directory, peer = self._data(), copy(self.peer)
            change(peer, directory)
            peer.format(directory / "log")
            running = self._others[key] = peer.start(directory / "log")
        return running

    def _data(self) -> Path:
        self._made += 1
        return self._directory / f"data-{self._made}"

    def store(self) -> Path:
        """Return the directory of a remote store beside the data, created if missing."""
        store = self._directory / "store"
        store.mkdir(exist_ok=True)
        return store

    def new_data(self) -> Path:
        """Make a formatted, empty data directory."""
        data = self._data()
        self.peer.format(data)
        return data

    @contextmanager
    def fresh(self) -> Iterator[Running]:
        """Start a broker on an empty directory, and remove both at the end.

        Returns when that is on the disk: a file system that frees gigabytes holds up the next writer for 100 ms.
        """
        with self.on(data := self.new_data()) as running:
            yield running
        shutil.rmtree(data, ignore_errors=True)
        os.sync()

    @contextmanager
    def on(self, data: Path) -> Iterator[Running]:
        """Start a broker on a directory, and end it."""
        running = self.peer.start(data)
        try:
            yield running
        finally:
            running.stop()

    def outputs(self) -> str:
        """Return the last output of the arm's brokers."""
        return "".join(
            f"--- {path}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted([*self._directory.glob("*.out"), *self._directory.glob("*/log.out")])
            if path.stat().st_size
        )

    def stop_shared(self) -> None:
        """End the shared brokers, if there are any."""
        shared = [*self._others.values(), *([self._shared] if self._shared is not None else ())]
        self._others, self._shared = {}, None
        for running in shared:
            running.stop()
            shutil.rmtree(running.data, ignore_errors=True)
