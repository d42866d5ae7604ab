"""Metrics that stock clients push, compared with the broker's own counts.

    python -m compat.telemetry.clients

Starts Barnabas with a metrics endpoint, has the Java client and then franz-go produce and consume while they push, and
reads the endpoint. The exit code is 1 when a figure is missing, or is not what it must be.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from compat.kafka import free_port
from compat.kit.sides import Side
from compat.matrix.brokers import Barnabas
from compat.telemetry.scenarios import subscribe

RUN = Path(__file__).with_name("run")
FRANZ_GO = Path(__file__).parents[1] / "clients" / "franz-go" / "run"
FRANZ_GO_CASE = "consume-group"
TIMEOUT_S = 600
LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="([^"]*)"')
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def main() -> int:
    """Run; returns the exit code."""
    metrics = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(prefix="telemetry-") as directory:
        broker = Barnabas(Path(directory), {"metrics.listener": metrics})
        broker.start()
        try:
            command = [str(RUN), broker.bootstrap, "push"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            print(done.stdout.strip())
            go = _franz_go(broker.bootstrap)
            print(go.stdout.strip())
            with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=TIMEOUT_S) as answer:
                shown = _samples(answer.read().decode())
        finally:
            broker.stop()
    match = re.search(r"PASS push (\d+) records", done.stdout)
    if match is None or f"PASS {FRANZ_GO_CASE}" not in go.stdout:
        print(done.stderr, go.stderr)
        return 1
    topic = next(
        dict(labels)["topic"]
        for name, labels in shown
        if name.endswith("messagesin_total") and "push-" in str(labels)
    )
    appended = _value(shown, "kafka_server_brokertopicmetrics_messagesin_total", topic=topic)
    checks = {
        "the producer's records are those that were appended": (
            _value(shown, "org_apache_kafka_producer_record_send_total", client_id="java-producer", topic=""),
            appended,
        ),
        "the consumer's records are those that it has read": (
            _value(shown, "org_apache_kafka_consumer_fetch_manager_records_consumed_total", topic=""),
            float(match[1]),
        ),
    }
    for what, (pushed, expected) in checks.items():
        print(f"{'ok' if pushed == expected else 'WRONG'}: {what}: {pushed} pushed, {expected} known")
    opened = [
        value
        for (name, labels), value in shown.items()
        if name == "org_apache_kafka_producer_connection_creation_total" and ("client_id", "kgo") in labels
    ]
    print(
        f"{'ok' if sum(opened) else 'WRONG'}: clients of franz-go say how many connections they have opened: {opened}"
    )
    names = {name for name, _ in shown if name.startswith("org_apache_kafka_")}
    print(
        f"{len(names)} metrics of {len({dict(labels).get('client_id') for _, labels in shown} - {None})} clients"
    )
    return 0 if sum(opened) and all(pushed == expected for pushed, expected in checks.values()) else 1


def _franz_go(bootstrap: str) -> subprocess.CompletedProcess[str]:
    """Its own case of the matrix, under a subscription; it knows no `*`."""
    side = Side("Barnabas", int(bootstrap.rpartition(":")[2]))
    assert subscribe(side, "go", {"metrics": "org.apache.kafka.", "interval.ms": "200"}) == 0
    command = [str(FRANZ_GO), bootstrap, FRANZ_GO_CASE]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def _samples(text: str) -> Samples:
    matches = (LINE.fullmatch(line) for line in text.splitlines() if not line.startswith("#"))
    return {(m[1], frozenset(LABEL.findall(m[2] or ""))): float(m[3]) for m in matches if m}


def _value(samples: Samples, metric: str, **labels: str) -> float | None:
    """The value of the only sample with these labels; a label that is empty must not be there."""
    values = [
        value
        for (name, matching), value in samples.items()
        if name == metric and all(dict(matching).get(key, "") == label for key, label in labels.items())
    ]
    return values[0] if len(values) == 1 else None


if __name__ == "__main__":
    sys.exit(main())
