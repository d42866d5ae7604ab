"""A client that creates, alters and deletes topics while brokers and controllers come and go, and a check of all changes.

The rule: a change must survive once a broker has confirmed it; a request without a response is repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from barnabas.cluster.kraft.image import QuorumImage
from compat.cluster.load import QUICK
from compat.cluster.nodes import ClusterError

SETTING = "retention.ms"
TOPIC = 2
KEPT = 5
"""Number of topics after which the oldest is deleted."""
PAUSE_S = 0.5
ANSWER_S = 15.0
TEMPORARY = (
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_CONTROLLER,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.INVALID_REPLICATION_FACTOR,
)
"""Errors while brokers and controllers are unavailable; a broker may not see yet a topic that was created by another."""
Asked = Callable[[], Mapping[Any, "Future[Any]"]]


class Changes:
    """Makes topics change-0, change-1, ..., alters a setting of each, and deletes the oldest; a context manager."""

    def __init__(self, bootstrap: str) -> None:
        self.values: dict[str, int] = {}
        """The value of the setting that was acknowledged last, by topic."""
        self.leaving: set[str] = set()
        """Topics being deleted, since before the first request."""
        self.deleted: set[str] = set()
        self.count = 0
        """Number of changes that were acknowledged."""
        self.errors: list[str] = []
        self._admin = AdminClient({**QUICK, "bootstrap.servers": bootstrap})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Changes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def check(self, read: Callable[[], QuorumImage]) -> None:
        """See that each change acknowledged so far is in the image that is read now. Raises ClusterError."""
        values, deleted = dict(self.values), set(self.deleted)
        image = read()
        if self.errors:
            raise ClusterError(f"{len(self.errors)} changes are refused, the first: {self.errors[0]}")
        values = {name: value for name, value in values.items() if name not in self.leaving}
        settings = {name: image.settings.get((TOPIC, name), {}).get(SETTING, "0") for name in values}
        undone = [
            *(f"{name} is lost" for name in values if image.topic(name) is None),
            *(f"{name} is back" for name in deleted if image.topic(name) is not None),
            *(
                f"{name}: {SETTING} is {settings[name]} after {value}"
                for name, value in values.items()
                if int(settings[name]) < value
            ),
        ]
        if undone:
            raise ClusterError(f"{len(undone)} committed changes are undone: {', '.join(undone)}")

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(PAUSE_S):
            name, oldest = f"change-{number}", f"change-{number - KEPT}"
            first, second = 1000, 1000 + number + 1
            topic = NewTopic(name, num_partitions=1, replication_factor=3, config={SETTING: str(first)})
            entry = ConfigEntry(SETTING, str(second), incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
            if self._is_made(
                lambda topic=topic: self._admin.create_topics([topic], request_timeout=ANSWER_S),
                KafkaError.TOPIC_ALREADY_EXISTS,
            ):
                self.values[name] = first
            if self._is_made(
                lambda resource=resource: self._admin.incremental_alter_configs(
                    [resource], request_timeout=ANSWER_S
                )
            ):
                self.values[name] = second
            if oldest in self.values:
                self.leaving.add(oldest)
                if self._is_made(
                    lambda oldest=oldest: self._admin.delete_topics([oldest], request_timeout=ANSWER_S),
                    KafkaError.UNKNOWN_TOPIC_OR_PART,
                ):
                    del self.values[oldest]
                    self.deleted.add(oldest)
            number += 1

    def _is_made(self, ask: Asked, made_before: int | None = None) -> bool:
        """Repeat a request until the change is made; False if it is refused, or the client is stopped.

        The error `made_before` means that it was made already: brokers also repeat requests when a controller disappears.
        """
        while not self._stop.is_set():
            try:
                for future in ask().values():
                    future.result()
            except KafkaException as exception:
                error = exception.args[0]
                if error.code() == made_before:
                    break
                is_local = error.code() < 0  # the client's own: no broker has answered
                if not (is_local or error.retriable() or error.code() in TEMPORARY):
                    self.errors.append(str(error))
                    return False
                self._stop.wait(PAUSE_S)
            else:
                break
        else:
            return False
        self.count += 1
        return True
