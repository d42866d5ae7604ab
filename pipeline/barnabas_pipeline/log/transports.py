"""Opening a topic by its transport.

The rule: a transport is imported when it is used.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

from barnabas.client import ClientError
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.log.model import READ_COMMITTED, READ_UNCOMMITTED, Log, LogOptions

if TYPE_CHECKING:
    from barnabas.client.blocking import BlockingClient as SharedClient


def open_log(options: LogOptions, *, client: SharedClient | None = None, topic_id: str = "") -> Log:
    """Open a topic by its transport; `client` and `topic_id` as `WireLog` has them. Raises UsageError."""
    if options.isolation not in (READ_COMMITTED, READ_UNCOMMITTED):
        raise UsageError(f"isolation is {READ_COMMITTED} or {READ_UNCOMMITTED}, not {options.isolation!r}")
    if options.transport == "disk":
        if not options.log_dirs:
            raise UsageError("transport disk needs the log dirs")
        from barnabas_pipeline.log.disk import DiskLog

        return DiskLog(options)
    if options.transport == "wire":
        if not options.bootstrap:
            raise UsageError("transport wire needs bootstrap servers")
        from barnabas_pipeline.log.wire import WireLog

        return WireLog(options, client=client, topic_id=topic_id)
    raise UsageError(f"transport is wire or disk, not {options.transport!r}")


def _ask_for_metadata(client: SharedClient, topics: list[str]) -> None:
    client.run(lambda asked: asked.metadata(topics))


class Logs(AbstractContextManager["Logs"]):
    """Topics that several threads read; topics of a cluster share connections."""

    def __init__(self) -> None:
        self._clients: dict[tuple[object, ...], SharedClient] = {}
        self._lock = threading.Lock()

    def expect(self, topics: Iterable[LogOptions]) -> None:
        """Ask each cluster for the metadata of all topics that will be read, with one request."""
        names: dict[SharedClient, set[str]] = {}
        for options in topics:
            if (client := self._client(options)) is not None:
                names.setdefault(client, set()).add(options.topic)
        for client, mine in names.items():
            with suppress(ClientError):  # the reader of the topic gets the error
                _ask_for_metadata(client, sorted(mine))

    def open(self, options: LogOptions, topic_id: str) -> Log:
        """Open an incarnation of a topic. Raises UsageError."""
        return open_log(options, client=self._client(options), topic_id=topic_id)

    def _client(self, options: LogOptions) -> SharedClient | None:
        if options.transport != "wire" or not options.bootstrap:
            return None
        from barnabas_pipeline.log.wire import open_client

        key = (options.bootstrap, options.client)
        with self._lock:
            if key not in self._clients:
                self._clients[key] = open_client(options)
            return self._clients[key]

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.close()
