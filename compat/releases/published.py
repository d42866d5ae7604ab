"""APIs that each release of Apache Kafka has published: read from its kafka-clients, and held against our table."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from barnabas.config import releases
from compat.kafka.releases import ROOT, KafkaError, fetched_jars, require

HERE = Path(__file__).resolve().parent / "keys"
PLACE = ROOT / ".tools" / "keys"
NEWEST = {
    "0.9.0": "0.9.0.1", "0.10.0": "0.10.0.1", "0.10.1": "0.10.1.1", "0.10.2": "0.10.2.2",
    "0.11.0": "0.11.0.3", "1.0": "1.0.2", "1.1": "1.1.1", "2.0": "2.0.1", "2.1": "2.1.1",
    "2.2": "2.2.2", "2.3": "2.3.1", "2.4": "2.4.1", "2.5": "2.5.1", "2.6": "2.6.3", "2.7": "2.7.2",
    "2.8": "2.8.2", "3.0": "3.0.2", "3.1": "3.1.2", "3.2": "3.2.3", "3.3": "3.3.2", "3.4": "3.4.1",
    "3.5": "3.5.2", "3.6": "3.6.2", "3.7": "3.7.2", "3.8": "3.8.1", "3.9": "3.9.2", "4.0": "4.0.2",
    "4.1": "4.1.1", "4.2": "4.2.0", "4.3": "4.3.1", "4.4": "4.4.0",
}  # fmt: skip
"""The newest patch of each line; before 0.9 the clients' jar was a draft that brokers did not use."""


def published(version: str) -> dict[int, tuple[int, int]]:
    """Return (first, last) version by key that a release has published. Raises KafkaError."""
    require("javac", "a JDK 17 (Debian: apt-get install openjdk-17-jdk-headless)")
    command = ["java", "-cp", f"{_compiled()}:{fetched(version)}/*", "Keys"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KafkaError(f"{version} does not say what it serves: {done.stderr.strip()[-300:]}")
    return dict(_rows(done.stdout.split()))


def fetched(version: str) -> Path:
    """Return the directory with a release's kafka-clients and what it needs. Raises KafkaError."""
    return fetched_jars(HERE / "pom.xml", PLACE / version, f"-Dkafka.version={version}")


def _compiled() -> Path:
    classes = PLACE / "classes"
    source = HERE / "Keys.java"
    if (
        not (classes / "Keys.class").exists()
        or (classes / "Keys.class").stat().st_mtime < source.stat().st_mtime
    ):
        subprocess.run(["javac", "--release", "17", "-d", str(classes), str(source)], check=True)
    return classes


def _rows(words: Iterable[str]) -> Iterator[tuple[int, tuple[int, int]]]:
    for word in words:
        key, _, versions = word.partition(":")
        first, _, last = versions.partition("-")
        yield int(key), (int(first), int(last or first))


def differences(name: str) -> list[str]:
    """Return what our table says differently from a release's jar. Raises KafkaError."""
    version = NEWEST[name]
    theirs = published(version)
    ours = releases.versions_of(name)
    return [
        f"{version}: API {key}: published {theirs.get(key)}, table {ours.get(key)}"
        for key in sorted(theirs.keys() | ours.keys())
        if theirs.get(key) != ours.get(key)
    ]
