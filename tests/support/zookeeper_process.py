"""Our own ZooKeeper server in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from barnabas.testing.running import import_path

ROOT = Path(__file__).parents[2]


def own_zookeeper_command(directory: Path, *options: str) -> list[str]:
    """Return the command of a server on a free port of localhost, with its data in `directory`."""
    where = ["--listen", "127.0.0.1:0", "--data", str(directory)]
    return [sys.executable, "-m", "barnabas", "zookeeper", *where, *options]


@contextmanager
def own_zookeeper(directory: Path, options: Sequence[str] = ()) -> Iterator[str]:
    """Start a server with its data in `directory` for the length of the block; yields its HOST:PORT."""
    command = own_zookeeper_command(directory, *options)
    environment = {**os.environ, "PYTHONPATH": import_path(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        yield server.stdout.readline().partition("zookeeper.connect=")[2].split()[0]
        server.terminate()
