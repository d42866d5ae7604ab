"""Brokers of other projects that keep records in memory: franz-go's kfake (Go) and Tansu (Rust)."""

from __future__ import annotations

import os
import subprocess
import time
from abc import abstractmethod
from pathlib import Path

from bench.peers.base import Peer, Running, free_port, spawn, wait_until_ready
from bench.tools import UnavailablePeerError
from compat.peers.programs import (
    TANSU_VERSION,
    UnavailableError,
    kfake_program,
    kfake_version,
    tansu_command,
    tansu_program,
)


class _InMemory(Peer):
    """A broker that is built before anything is measured."""

    keeps_data = False
    may_fail = True

    def __init__(self, label: str) -> None:
        """Build the program. Raises UnavailablePeerError where it cannot be built here."""
        super().__init__(label)
        try:
            self._program = self._build()
        except UnavailableError as error:
            raise UnavailablePeerError(str(error)) from error

    @abstractmethod
    def _build(self) -> Path:
        """Return the program."""


class Kfake(_InMemory):
    """franz-go's fake cluster of one broker."""

    def _build(self) -> Path:
        return kfake_program()

    def describe(self) -> str:
        return f"franz-go kfake of {kfake_version()}, in memory"

    def start(self, data: Path) -> Running:
        start = time.monotonic()
        with data.with_name(f"{data.name}.out").open("ab") as log:
            process = subprocess.Popen(
                [str(self._program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        running = Running(self, process, address, data)
        wait_until_ready(running)
        running.is_ready(since=start)
        return running


class Tansu(_InMemory):
    """One broker of Tansu."""

    def _build(self) -> Path:
        return tansu_program()

    def describe(self) -> str:
        return f"Tansu {TANSU_VERSION}, storage memory://"

    def start(self, data: Path) -> Running:
        port = free_port()
        return spawn(self, tansu_command(self._program, port), data, port, dict(os.environ))
