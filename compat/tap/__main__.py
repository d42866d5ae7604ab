"""Stock clients' cases through `barnabas tap`: `python -m compat.tap [--broker 4.x] [--clients NAMES] [--cases NAMES]`.

The rule: a case passes if the client passes it, the tap has recorded and decoded all of its requests, and has reported no
anomaly. The recording is read again afterwards and must have the same requests.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnabas.testing.running import import_path
from compat.kafka.releases import KafkaError
from compat.kit.ending import end_servers_at_sigterm
from compat.matrix import clients
from compat.matrix.brokers import ApacheKafka, Barnabas, Broker

CLIENTS = ("kcat", "kafka-tools", "java", "confluent-kafka", "kafka-python", "franz-go")
CASES = (
    "create-topic", "produce-zstd", "consume-group", "consume-group-848", "commit-resume", "acks", "idempotent-produce",
    "transactions",
)  # fmt: skip
RECORDS = 2000
CASE_TIMEOUT_S = 300
"""As in the matrix: a case of the tools is several processes of Java."""


def main() -> int:
    """Run all of it; returns 1 when a verdict is not PASS or SKIP."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", default="barnabas", help="barnabas, or a version of Apache Kafka as 4.x")
    parser.add_argument("--clients", default=",".join(CLIENTS), help="names of directories of compat/clients")
    parser.add_argument("--cases", default=",".join(CASES), help="names of cases")
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory(prefix="tap-") as name:
        directory = Path(name)
        broker: Broker = (
            Barnabas(directory) if options.broker == "barnabas" else ApacheKafka(directory, options.broker)
        )
        broker.start()
        try:
            for client in options.clients.split(","):
                place = directory / f"tap-{client}"
                place.mkdir()
                failures += _run(client, options.cases.split(","), broker.bootstrap, place)
        finally:
            broker.stop()
    print(f"{failures} failures" if failures else "all passed")
    return 1 if failures else 0


def _run(client: str, cases: list[str], bootstrap: str, directory: Path) -> int:
    """Run a client's cases through a tap of its own; returns how many failed."""
    environment = {"COMPAT_RECORDS": str(RECORDS), "COMPAT_CASE_TIMEOUT_S": str(CASE_TIMEOUT_S)}
    failures = 0
    with _tap(bootstrap, directory) as address:
        verdicts = clients.run(clients.program(client), address, cases, environment, directory / "said")
    for case, verdict in verdicts.items():
        failures += verdict.status not in ("PASS", "SKIP")
        print(f"{client:16} {case:20} {verdict.status} {verdict.detail}", flush=True)
    events = [json.loads(line) for line in (directory / "tap.json").read_text().splitlines()]
    for trouble in _troubles(events, directory):
        failures += 1
        print(f"{client:16} {trouble}", flush=True)
    shown = [event for event in events if event["type"] == "exchange"]
    print(f"{client:16} {len(shown)} exchanges of {len({event['api'] for event in shown})} APIs", flush=True)
    return failures


def _troubles(events: list[dict[str, Any]], directory: Path) -> Iterator[str]:
    """Yield the problems of the tap's recording."""
    for event in events:
        for name in ("request_problem", "response_problem"):
            if name in event:
                yield f"not decoded: {event['api']} v{event['version']}: {event[name]}"
        if event["type"] in ("noted", "left_out"):
            yield f"{event['type']}: {event.get('text', event.get('lines'))}"
    again = _barnabas("tap", "--read", str(directory / "tap.pcapng"), "--json", "-")
    read = Counter(_name(json.loads(line)) for line in again.stdout.splitlines())
    if read != Counter(map(_name, events)):
        yield f"the recording differs from what was shown: {again.stderr}"


def _name(event: dict[str, Any]) -> tuple[Any, ...]:
    if event["type"] != "exchange":
        return (event["type"],)
    content = json.dumps(event["request"], sort_keys=True)  # secrets are hidden in both
    return event["type"], event["api"], event["version"], event["correlation_id"], content


def _command(*arguments: str) -> tuple[list[str], dict[str, str]]:
    return [sys.executable, "-m", "barnabas", *arguments], {**os.environ, "PYTHONPATH": import_path()}


def _barnabas(*arguments: str) -> subprocess.CompletedProcess[str]:
    command, environment = _command(*arguments)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


@contextmanager
def _tap(bootstrap: str, directory: Path) -> Iterator[str]:
    """Run a tap that writes everything; gives its address."""
    command, environment = _command(
        "tap", bootstrap, "--listen", "127.0.0.1:0", "--quiet", "--json", str(directory / "tap.json"),
        "--pcap", str(directory / "tap.pcapng"),
    )  # fmt: skip
    end_servers_at_sigterm()
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        try:
            yield line.partition("is ready: ")[2].split()[0]
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
            if process.wait(30) or "Traceback" in rest:
                print(rest, file=sys.stderr)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KafkaError, subprocess.SubprocessError) as error:
        sys.exit(str(error))
