"""python -m compat.trio_client [--version 4.x|3.9 ...] [--bootstrap HOST:PORT] [--only WORDS]."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from barnabas.testing import RunningBroker
from compat.kafka import RealKafka
from compat.trio_client.checks import CHECKS

OURS = "barnabas"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
}


@contextmanager
def broker(name: str) -> Iterator[str]:
    """A broker of ours, or a Kafka of some version, for the length of the block; its address."""
    if name == OURS:
        with RunningBroker(SETTINGS) as running:
            yield running.bootstrap
    else:
        with tempfile.TemporaryDirectory(prefix="trio-client-") as directory:
            kafka = RealKafka(name, 0, data=Path(directory), settings=SETTINGS)
            try:
                kafka.start()
                yield kafka.bootstrap
            finally:
                kafka.stop()


def run(bootstrap: str, only: str) -> int:
    """Run the checks, print a line for each, and return how many have failed."""
    failed = 0
    for name, check in CHECKS.items():
        if only not in name:
            continue
        began = time.monotonic()
        try:
            verdict = trio.run(check, bootstrap)
        except Exception as error:
            failed += 1
            verdict = f"FAILED: {type(error).__name__}: {error}"
            traceback.print_exc()
        print(f"  {name:28} {time.monotonic() - began:6.1f} s  {verdict}", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m compat.trio_client", description=__doc__)
    parser.add_argument(
        "--version", action="append", help=f"{OURS}, or a version of Kafka; default: {OURS} and 4.x"
    )
    parser.add_argument("--bootstrap", help="a broker that runs already, instead")
    parser.add_argument("--only", default="", help="checks whose names have this in them")
    options = parser.parse_args()
    if options.bootstrap:
        return bool(run(options.bootstrap, options.only))
    failed = 0
    for name in options.version or [OURS, "4.x"]:
        with broker(name) as bootstrap:
            print(f"{name} at {bootstrap}", flush=True)
            failed += run(bootstrap, options.only)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
