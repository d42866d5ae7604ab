"""Several clusters in one console: each has its own page, sessions and rights under its name.

The rule: clusters share nothing, so that an unavailable one delays only its own visitors.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

import h11

from barnabas.console.http import CLUSTERS_PATH, ConsoleService
from barnabas.network.http import HttpReader, HttpService

_PREFIX = CLUSTERS_PATH.encode()


class Clusters(HttpService):
    """Services of clusters by their names, that of a single one by the empty name."""

    idle_seconds_max = ConsoleService.idle_seconds_max

    def __init__(self, services: Mapping[str, ConsoleService]) -> None:
        self._services = {name.encode(): service for name, service in services.items()}
        self._first = next(iter(self._services.values()))

    def _chosen(self, target: bytes) -> tuple[ConsoleService | None, bytes]:
        """Return the service that a target names, and the target as that knows it."""
        if b"" in self._services:
            return self._services[b""], target
        name, slash, rest = target.removeprefix(_PREFIX).partition(b"/")
        if not slash or not target.startswith(_PREFIX):
            return None, target
        return self._services.get(unquote_to_bytes(name)), b"/" + rest

    async def answer(self, reader: HttpReader, request: h11.Request, body: bytes) -> bool:
        """Send the response to a request; false if the connection ends with it."""
        service, target = self._chosen(request.target)
        if service is None:
            return await self._first.lead(reader, request)
        return await service.answer(reader, _of(request, target), body)

    async def refuse(self, reader: HttpReader, status: int, reason: str) -> bool:
        """Send the response to a malformed request, the last one of a connection."""
        return await self._first.refuse(reader, status, reason)

    def body_bytes_max(self, request: h11.Request) -> int:
        """Return how large the body of a request may be."""
        service, target = self._chosen(request.target)
        return (service or self._first).body_bytes_max(_of(request, target))


def _of(request: h11.Request, target: bytes) -> h11.Request:
    return h11.Request(
        method=request.method, target=target, headers=request.headers, http_version=request.http_version
    )
