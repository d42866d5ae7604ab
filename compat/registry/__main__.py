"""python -m compat.registry [--version barnabas|4.x|3.9 ...] [--only WORDS]: stock clients of registries against ours."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas.testing import RunningBroker
from barnabas.testing.running import import_path
from compat.kafka import RealKafka

HERE = Path(__file__).resolve().parent
OURS = "barnabas"
CLIENTS = ("franz-go-schemas", "kafkajs-schemas")
SECONDS_MAX = 600


@contextmanager
def broker(name: str) -> Iterator[str]:
    """A broker of ours, or a Kafka of some version, for the length of the block; its address."""
    if name == OURS:
        with RunningBroker() as running:
            yield running.bootstrap
    else:
        with (
            tempfile.TemporaryDirectory(prefix="registry-") as directory,
            RealKafka(name, 0, data=Path(directory)) as kafka,
        ):
            yield kafka.bootstrap


@contextmanager
def registry(bootstrap: str) -> Iterator[str]:
    """A registry in a process of its own; its URL."""
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "registry",
        "--bootstrap",
        bootstrap,
        "--listen",
        "127.0.0.1:0",
    ]
    environment = {**os.environ, "PYTHONPATH": import_path()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            words = dict(word.split("=", 1) for word in line.split() if "=" in word)
            yield words["registry"]
        finally:
            process.terminate()


def run(bootstrap: str, only: str) -> int:
    """Run the clients, and return how many have failed."""
    failed = 0
    for client in CLIENTS:
        if only not in client:
            continue
        with registry(bootstrap) as url:  # a new one each time: it finds what the last one has written
            done = subprocess.run([HERE / client / "run", url], check=False, timeout=SECONDS_MAX)
        failed += done.returncode != 0
        print(f"  {client:20} {'ok' if done.returncode == 0 else 'FAILED'}", flush=True)
    return failed


def main() -> int:
    """Run all that is asked for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.registry", description=__doc__)
    parser.add_argument(
        "--version", action="append", help=f"{OURS}, or a version of Kafka; default: {OURS} and 4.x"
    )
    parser.add_argument("--only", default="", help="clients whose names have this in them")
    options = parser.parse_args()
    failed = 0
    for name in options.version or [OURS, "4.x"]:
        with broker(name) as bootstrap:
            print(f"a registry that {name} keeps, at {bootstrap}", flush=True)
            failed += run(bootstrap, options.only)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
