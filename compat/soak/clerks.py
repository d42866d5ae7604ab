"""The workers of the transfers, each with another client: BOOTSTRAP NAME ACKNOWLEDGED-FILE, as worker.py says it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from compat.clients.shared.setup import Client, go
from compat.kafka.process import LIGHT_JVM
from compat.kit.java import built

HERE = Path(__file__).resolve().parent


def _java() -> list[str]:
    path = built(HERE / "java-worker", "soak-java-worker")
    return ["java", *LIGHT_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", path, "Worker"]


def _franz_go() -> list[str]:
    client = Client(str(HERE / "franz-go-worker" / "main.go"))
    client.place.mkdir(parents=True, exist_ok=True)
    return go(client)[0]


CLIENTS: Mapping[str, Callable[[], list[str]]] = {
    "librdkafka": lambda: [sys.executable, "-m", "compat.soak.worker"],
    "java": _java,
    "franz-go": _franz_go,
}
"""The command of each client's worker; it is built first, if need be. Raises KafkaError or SetupError."""
