"""`python -m compat.truncation`: see the README beside this file."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer

from barnabas.records.batch import iter_batches
from barnabas.testing.running import import_path
from compat.kafka import KafkaError, release
from compat.kafka.releases import fetch

READ, LEFT, NEW = 20, 15, 10
CLIENTS = ("4.x", "3.9")
PROGRAM = Path(__file__).with_name("Truncated.java")
EXPECTED = {
    "none": ["truncated to 15"],
    "earliest": [f"{LEFT + n} new {n}" for n in range(NEW)],
}
"""Lines that the client prints after it has read the first records, by `auto.offset.reset`."""


def main(given: Sequence[str]) -> int:
    """Returns the exit code: 0 when each client has learned what is lost."""
    parser = argparse.ArgumentParser(prog="python -m compat.truncation", description=__doc__)
    parser.add_argument("--clients", default=",".join(CLIENTS), help="releases of the Java client")
    options = parser.parse_args(given)
    failed = 0
    for version in options.clients.split(","):
        for reset, expected in EXPECTED.items():
            try:
                said = _run(version, reset)
            except KafkaError as error:
                print(f"FAIL kafka-clients {version}: {error}")
                return 1
            is_right = said == expected
            failed += not is_right
            print(
                f"{'ok' if is_right else 'FAIL'} kafka-clients {release(version).version}, "
                f"auto.offset.reset={reset}: {'; '.join(said)}"
            )
    return 1 if failed else 0


def _run(version: str, reset: str) -> list[str]:
    """Have a client read, take the last records away, write others; returns what it prints then."""
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="truncation-")))
        with socket.socket() as chosen:
            chosen.bind(("127.0.0.1", 0))
            port = chosen.getsockname()[1]
        broker = _start(data, port)
        stack.callback(broker.wait)
        stack.callback(broker.kill)
        for first in range(0, READ, READ - LEFT):
            _produce(port, [f"old {first + n}" for n in range(READ - LEFT)])
        jars = f"{fetch(release(version))}/*"
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = ["java", *options, "-cp", jars, str(PROGRAM), f"127.0.0.1:{port}", reset, str(READ + NEW)]
        log = stack.enter_context((data / "client.log").open("w"))
        client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        stack.callback(client.wait)
        stack.callback(client.kill)
        assert client.stdout is not None
        for n in range(READ):
            assert client.stdout.readline().split()[0] == str(n)
        broker.send_signal(signal.SIGKILL)
        broker.wait()
        (path,) = (data / "t-0").glob("*.log")
        (at,) = (at for at, header in iter_batches(path.read_bytes()) if header.base_offset == LEFT)
        os.truncate(path, at)
        again = _start(data, port)
        stack.callback(again.wait)
        stack.callback(again.kill)
        _produce(port, [f"new {n}" for n in range(NEW)])
        return client.stdout.read().splitlines()


def _start(data: Path, port: int) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "serve",
        "--data",
        str(data),
        "--listen",
        f"127.0.0.1:{port}",
    ]
    with (data / "broker.log").open("a") as log:
        broker = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": import_path()}
        )
    until = time.monotonic() + 60
    while broker.poll() is None and time.monotonic() < until:
        with socket.socket() as tried:
            if not tried.connect_ex(("127.0.0.1", port)):
                return broker
        time.sleep(0.05)
    raise KafkaError(f"the broker does not start:\n{(data / 'broker.log').read_text()}")


def _produce(port: int, values: Sequence[str]) -> None:
    """Write values as one batch."""
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 100})
    for value in values:
        producer.produce("t", value, partition=0)
    assert not producer.flush(60)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
