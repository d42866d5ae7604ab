"""The supported releases of Kafka, and their jars from Maven Central.

The rule: a release is one small pom; its jars are fetched once, into `.tools/kafka/`, and nowhere else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from compat.kit.locks import locked

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
JARS = ROOT / ".tools" / "kafka"
FETCH_TIMEOUT_S = 600


class KafkaError(Exception):
    """Apache Kafka cannot be fetched, started or used; the message is for the user."""


@dataclass(frozen=True)
class Release:
    """One line of Kafka: its pom, the exact version, and whether it still runs on ZooKeeper."""

    line: str
    version: str
    zookeeper: bool

    @property
    def name(self) -> str:
        """The release without its patch, as in `4.4`."""
        return self.version.rpartition(".")[0]

    @property
    def pom(self) -> Path:
        return HERE / f"kafka-{self.line}.xml"

    @property
    def jars(self) -> Path:
        return JARS / self.version

    def logging_options(self) -> list[str]:
        """JVM options that send warnings to standard error; both generations of log4j are told."""
        return [
            f"-Dlog4j.configuration=file:{HERE / 'log4j.properties'}",
            f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}",
        ]


def _pinned(line: str) -> str:
    head, _, tail = (HERE / f"kafka-{line}.xml").read_text().partition("<kafka.version>")
    assert head, line
    return tail.partition("</kafka.version>")[0]


def release(name: str) -> Release:
    """The release for `4`, `4.x`, `4.4`, `3.9`, `3.x`, `2.6` or an exact version. Raises KafkaError."""
    line = {"2": "2.6", "3": "3.9"}.get(name.partition(".")[0], "4")
    if name in {"4", "4.x", "4.4", "3.x", "3.9", "2.6"}:
        version = _pinned(line)
    elif name.startswith(("2.6.", "3.9.", "4.")):
        version = name
    else:
        raise KafkaError(
            f"no such release here: {name!r} (4.x, 4.4, 3.9, 2.6, or an exact 2.6.z, 3.9.z or 4.y.z)"
        )
    return Release(line, version, zookeeper=not line.startswith("4"))


def fetch(release: Release) -> Path:
    """The directory with the release's jars, fetched with Maven when it is not there yet. Raises KafkaError."""
    require("java", "a JDK 17 (Debian: apt-get install openjdk-17-jdk-headless)")
    return fetched_jars(release.pom, release.jars, f"-Dkafka.version={release.version}")


def require(program: str, how: str) -> None:
    """Raise KafkaError if a program is missing; the message tells how to get it."""
    if not shutil.which(program):
        raise KafkaError(f"{program} is missing; install {how}")


def fetched_jars(pom: Path, jars: Path, *options: str) -> Path:
    """Return the directory with what a pom depends on, which Maven fills once. Raises KafkaError."""
    done = jars / "done"
    if not done.exists():
        require("mvn", "Maven (Debian: apt-get install maven)")
        with locked(jars.with_name(f"{jars.name}.lock")):
            if not done.exists():  # while this waited, another process may have fetched it
                shutil.rmtree(jars, ignore_errors=True)
                jars.mkdir(parents=True)
                maven(pom, jars, *options)
                done.touch()
    return jars


def maven(pom: Path, jars: Path, *options: str) -> None:
    """Copy what a pom depends on into `jars`. Raises KafkaError with Maven's own errors."""
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    done = subprocess.run(
        [*command, *options],
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_S,
        check=False,
        env={**os.environ, "MAVEN_OPTS": "-Xmx256m"},
    )
    if done.returncode:
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise KafkaError(f"Maven cannot fetch what {pom.name} names:\n" + "\n".join(errors[:4]))
