"""A client for schema registries: Confluent's and compatible ones.

    client = RegistryClient("http://localhost:8081")
    schema = await client.schema(7)

The rule: the schemas of ids and of versions never change, so they are cached.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import quote

import trio

from barnabas.registry.errors import RegistryError
from barnabas.registry.rest import TIMEOUT_S, RestClient
from barnabas.registry.schemas import Registered, Schema

T = TypeVar("T")

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
CACHED_MAX = 10_000
"""Cached schemas by id, and as many by version."""


class RegistryClient(RestClient):
    """A client of one registry with the HTTP API of Confluent's, 8.1. Each request has a separate connection.

    Schemas by id and by version are cached, 1,000 of each. All calls raise RegistryError, with the registry's status and
    code, or 0 and 0 if no registry responded.
    """

    content_type = CONTENT_TYPE

    def __init__(
        self,
        url: str,
        *,
        user: str = "",
        password: str = "",
        token: str = "",
        tls: ssl.SSLContext | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Create a client without a connection yet; the options are those of RestClient.

        Raises ValueError for an invalid URL.
        """
        super().__init__(url, user=user, password=password, token=token, tls=tls, timeout_s=timeout_s)
        self._by_id: dict[int, Schema] = {}
        self._by_version: dict[tuple[str, int], Registered] = {}
        self._asking: dict[object, trio.Event] = {}

    async def schema(self, schema_id: int, subject: str = "") -> Schema:
        """Return the schema with an id.

        An id counts within a context: `subject` (as `:.CONTEXT:NAME`) names one other than the default, and is not cached.
        Raises RegistryError, with code 40403 for an unknown id.
        """
        if subject or schema_id not in self._by_id:
            query = f"?subject={_quoted(subject)}" if subject else ""
            path = f"/schemas/ids/{schema_id}{query}"
            if subject:
                return Schema.of(await self.ask("GET", path))
            return await self._once(self._by_id, schema_id, lambda: self._read(path, Schema.of))
        return self._by_id[schema_id]

    async def version(self, subject: str, version: int) -> Registered:
        """Return a version of a subject by its number, also a deleted one, as references of others may lead to it.

        Raises RegistryError, with code 40401 for an unknown subject and 40402 for an unknown version.
        """
        path = f"/subjects/{_quoted(subject)}/versions/{version}?deleted=true"
        return await self._once(self._by_version, (subject, version), lambda: self._read(path, _registered))

    async def latest(self, subject: str) -> Registered:
        """Return the newest version of a subject that is not deleted. Raises RegistryError."""
        return await self._read(f"/subjects/{_quoted(subject)}/versions/latest", _registered)

    async def subjects(self) -> list[str]:
        """Return the names of all subjects that are not deleted, in order. Raises RegistryError."""
        subjects: list[str] = await self.ask("GET", "/subjects")
        return subjects

    async def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Return the id of a schema in a subject; registers it as the newest version unless a version has it already.

        With `normalize` the registry compares and keeps the schema in its normal form. Raises RegistryError, with status
        409 for a schema that breaks the subject's compatibility level, and code 42201 for an invalid one.
        """
        path = f"/subjects/{_quoted(subject)}/versions"
        response = await self.ask("POST", f"{path}?normalize=true" if normalize else path, schema.plain())
        return int(response["id"])

    async def lookup(self, subject: str, schema: Schema, *, normalize: bool = False) -> Registered:
        """Return the version of a subject with this schema. Raises RegistryError, with code 40403 if none has it."""
        path = f"/subjects/{_quoted(subject)}"
        return _registered(
            await self.ask("POST", f"{path}?normalize=true" if normalize else path, schema.plain())
        )

    async def _read(self, path: str, read: Callable[[Any], T]) -> T:
        value = await self.ask("GET", path)
        try:
            return read(value)
        except (ValueError, KeyError, TypeError) as error:
            raise RegistryError(
                0, 0, f"{self.url} has no schema in its response to {path}: {error}"
            ) from None

    async def _once(self, results: dict[Any, T], key: Any, ask: Callable[[], Awaitable[T]]) -> T:
        """Return a cached result, or call `ask`: once, also for other tasks that need it meanwhile."""
        while key not in results:
            place = (id(results), key)
            if (others := self._asking.get(place)) is not None:
                await others.wait()
                continue
            self._asking[place] = trio.Event()
            try:
                result = await ask()
                if len(results) >= CACHED_MAX:
                    del results[next(iter(results))]
                results[key] = result
            finally:
                self._asking.pop(place).set()
        return results[key]


def _registered(value: Any) -> Registered:
    return Registered(value["subject"], int(value["version"]), int(value["id"]), Schema.of(value))


def _quoted(text: str) -> str:
    return quote(text, safe="")
