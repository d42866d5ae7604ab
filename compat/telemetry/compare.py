"""Client telemetry (KIP-714) on Apache Kafka with a receiver and on Barnabas: python -m compat.telemetry.compare.

The exit code is 1 when an answer differs in a way that is not known.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from compat.kafka import KafkaError, release
from compat.kafka.releases import fetch
from compat.kit import examples
from compat.kit.known import differences_of, judge
from compat.kit.sides import Side, StartError, both
from compat.telemetry.known_differences import KNOWN
from compat.telemetry.scenarios import BYTES_MAX, INTERVAL_S, SCENARIOS, Client, subscribe, until_wanted

RECEIVER = Path(__file__).with_name("receiver") / "compat" / "Receiver.java"
TELEMETRY = (71, 72)


def main() -> int:
    """Compare; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.telemetry.compare", description=__doc__)
    parser.add_argument("--version", default="4.x", help="which Kafka (default: the newest here)")
    parser.add_argument("--verbose", action="store_true", help="show every answer, Kafka's and ours")
    examples.add_option(parser)
    options = parser.parse_args()
    settings = {
        "metric.reporters": "compat.Receiver",  # has Kafka serve telemetry
        "telemetry.enable": "true",  # has Barnabas serve it
        "telemetry.max.bytes": str(BYTES_MAX),
    }
    with tempfile.TemporaryDirectory(prefix="receiver-") as classes:
        _compile(options.version, classes)
        with both(settings, options.version, classpath=classes) as sides:
            answers = [_all_answers(side) for side in sides]
    differences = [
        values
        for label in dict.fromkeys([*answers[0], *answers[1]])
        for values in differences_of(label, answers[0].get(label), answers[1].get(label))
    ]
    for label in answers[0] if options.verbose else ():
        print(f"{label}: Kafka {answers[0][label]}, Barnabas {answers[1].get(label)}")
    if options.keep_examples:
        examples.keep("telemetry", differences, KNOWN)
    bad = judge(differences, KNOWN)
    print(f"{len(answers[0])} answers, {len(differences)} differences, {bad} of them not as known")
    return 1 if bad else 0


def _compile(version: str, classes: str) -> None:
    jars = fetch(release(version))
    command = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", classes, str(RECEIVER)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KafkaError(f"javac does not compile {RECEIVER.name}:\n{done.stderr}")


def _all_answers(side: Side) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    with side.connect() as connection:
        served = connection.ask("ApiVersions", 3, {"ClientSoftwareName": "k", "ClientSoftwareVersion": "1"})
    for entry in served["ApiKeys"]:
        if entry["ApiKey"] in TELEMETRY:
            answers[f"served: {entry['ApiKey']}"] = entry
    assert subscribe(side, "base", {"metrics": "b.", "interval.ms": str(int(INTERVAL_S * 1000))}) == 0
    until_wanted(side, ["b."])
    for number, scenario in enumerate(SCENARIOS):
        client = Client(side, number)
        scenario(client)
        client.disconnect()
        answers |= {f"{scenario.__name__}: {label}": answer for label, answer in client.answers.items()}
    return answers


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KafkaError, StartError) as error:
        sys.exit(f"error: {error}")
