"""`python -m compat.truncation`: see the README beside this file."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer

from barnabas.records.batch import iter_batches
from compat.kafka import KafkaError, release
from compat.kafka.process import java_command
from compat.matrix.brokers import Barnabas, BrokerError

READ, LEFT, NEW = 20, 15, 10
CLIENTS = ("4.x", "3.9")
PROGRAM = Path(__file__).with_name("Truncated.java")
EXPECTED = {
    "none": ["truncated to 15"],
    "earliest": [f"{LEFT + n} new {n}" for n in range(NEW)],
}
"""Lines that the client prints after it has read the first records, by `auto.offset.reset`."""


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 when each client has learned what is lost."""
    parser = argparse.ArgumentParser(prog="python -m compat.truncation", description=__doc__)
    parser.add_argument("--clients", default=",".join(CLIENTS), help="releases of the Java client")
    options = parser.parse_args(argv)
    failed = 0
    for version in options.clients.split(","):
        for reset, expected in EXPECTED.items():
            try:
                verdict = _run(version, reset)
            except (KafkaError, BrokerError) as error:
                print(f"FAIL kafka-clients {version}: {error}")
                return 1
            is_right = verdict == expected
            failed += not is_right
            print(
                f"{'ok' if is_right else 'FAIL'} kafka-clients {release(version).version}, "
                f"auto.offset.reset={reset}: {'; '.join(verdict)}"
            )
    return 1 if failed else 0


def _run(version: str, reset: str) -> list[str]:
    """Have a client read, take the last records away, write others; returns what it prints then."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="truncation-")))
        broker = Barnabas(directory, {"num.partitions": "1"})
        stack.callback(broker.end)
        broker.start()
        for first in range(0, READ, READ - LEFT):
            _produce(broker, [f"old {first + n}" for n in range(READ - LEFT)])
        command = java_command(release(version), str(PROGRAM), broker.bootstrap, reset, str(READ + NEW))
        log = stack.enter_context((directory / "client.log").open("w"))
        client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        stack.callback(client.wait)
        stack.callback(client.kill)
        assert client.stdout is not None
        for n in range(READ):
            assert client.stdout.readline().split()[0] == str(n)
        broker.stop("kill")
        (path,) = (directory / "data" / "t-0").glob("*.log")
        (at,) = (at for at, header in iter_batches(path.read_bytes()) if header.base_offset == LEFT)
        os.truncate(path, at)
        broker.start()
        _produce(broker, [f"new {n}" for n in range(NEW)])
        return client.stdout.read().splitlines()


def _produce(broker: Barnabas, values: Sequence[str]) -> None:
    """Write values as one batch."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 100})
    for value in values:
        producer.produce("t", value, partition=0)
    assert not producer.flush(60)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
