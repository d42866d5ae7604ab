"""A schema registry as decoders use it: Barnabas' own or any that is compatible with Confluent's.

The rule: a schema that the registry does not have is the record's fault; without an answer from
the registry the job is incomplete.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import trio

from barnabas.registry.client import RegistryClient
from barnabas.registry.client_settings import CA, CERTIFICATE, KEY, PREFIX, USER_INFO, RegistryAt, is_same
from barnabas.registry.client_settings import TOKEN as BEARER_TOKEN
from barnabas.registry.decoding import parsed_of
from barnabas.registry.errors import RegistryError, SchemaError
from barnabas.registry.schemas import Registered, Schema
from barnabas_pipeline.errors import IncompleteError, UsageError

if TYPE_CHECKING:
    from barnabas.registry.formats import Parsed

T = TypeVar("T")
ASK_AGAIN_SECONDS = 60
"""Seconds until an id that was missing in the registry is requested again."""
TRIES = 3
USER, PASSWORD, TOKEN = "BARNABAS_REGISTRY_USER", "BARNABAS_REGISTRY_PASSWORD", "BARNABAS_REGISTRY_TOKEN"
ADDRESS = "BARNABAS_REGISTRY"
STRATEGIES = ("topic", "record", "topic-record")


@dataclass(frozen=True, slots=True)
class Registry:
    """Address of a registry, and files for TLS. User, password and token are from the environment, and stored nowhere."""

    url: str = field(repr=False)
    ca: str = ""
    cert: str = ""
    key: str = ""
    login: tuple[str, str] = field(default=("", ""), repr=False)
    token: str = field(default="", repr=False)
    asked: RegistryClient | None = field(default=None, repr=False, compare=False)
    """A client to use instead of the process's shared client."""

    def to_dict(self) -> dict[str, str]:
        """Return the form stored in manifests, without the login."""
        named = {"url": RegistryClient(self.url).url, "ca": self.ca, "cert": self.cert, "key": self.key}
        return {name: text for name, text in named.items() if text}

    @classmethod
    def at(
        cls,
        url: str,
        *,
        ca: str = "",
        cert: str = "",
        key: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Registry:
        """Return a registry, with the login of the environment unless that names another registry. Raises UsageError."""
        told: Mapping[str, str] = os.environ if environment is None else environment
        try:
            if told.get(ADDRESS) and not is_same(told[ADDRESS], url):
                told = {}
            login = told.get(USER, ""), told.get(PASSWORD, "")
            registry = cls(url, ca, cert, key, login, told.get(TOKEN, ""))
            _client(registry)
        except ValueError as error:
            raise UsageError(f"--registry: {error}") from None
        return registry

    def client(self) -> RegistryClient:
        """Return the client that the process shares for this registry."""
        return self.asked or _client(self)

    def schema(self, schema_id: int) -> Schema | None:
        """Return the schema of an id, None if the registry does not have it. Raises IncompleteError."""
        return self._parsed(schema_id)[0]

    def understood(self, schema_id: int) -> tuple[Schema, Parsed] | None:
        """Return the schema of an id, and its parsed form with all references.

        None if the id does not exist, or the schema is invalid. Raises IncompleteError.
        """
        schema, parsed = self._parsed(schema_id)
        return None if schema is None or parsed is None else (schema, parsed)

    def _parsed(self, schema_id: int) -> tuple[Schema | None, Parsed | None]:
        return SCHEMAS.of(self, schema_id, lambda: ask(_schema_of, self.client(), schema_id))

    def references(self, schema: Schema) -> dict[str, str]:
        """Return the texts of a schema's references, each after its own references. Raises IncompleteError."""
        return ask(_references, self.client(), schema)

    def latest(self, subject: str) -> Registered:
        """Return the newest version of a subject. Raises UsageError if it does not exist, IncompleteError."""
        registered = ask(_latest, self.client(), subject)
        if registered is None:
            raise UsageError(f"{self.to_dict()['url']} has no subject {subject!r}")
        return registered


class Schemas:
    """Cache of schemas by registry and id, with their parsed forms; missing schemas are requested again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._cached: dict[tuple[Registry, int], tuple[float, Schema | None, Parsed | None]] = {}

    def of(
        self, registry: Registry, schema_id: int, look_up: Callable[[], tuple[Schema | None, Parsed | None]]
    ) -> tuple[Schema | None, Parsed | None]:
        """Return (schema, parsed form) of an id, from the cache or by `look_up`. Raises IncompleteError."""
        cached = self._cached.get((registry, schema_id))
        if cached is not None and cached[0] > self._clock():
            return cached[1], cached[2]
        schema, parsed = look_up()
        self.put(registry, schema_id, schema, parsed)
        return schema, parsed

    def put(self, registry: Registry, schema_id: int, schema: Schema | None, parsed: Parsed | None) -> None:
        """Store the registry's response."""
        until = float("inf") if schema is not None else self._clock() + ASK_AGAIN_SECONDS
        self._cached[registry, schema_id] = (until, schema, parsed)


SCHEMAS = Schemas()
_ASKING = threading.Lock()


@lru_cache(64)
def _client(registry: Registry) -> RegistryClient:
    user, password = registry.login
    settings = {CA: registry.ca, CERTIFICATE: registry.cert, KEY: registry.key, BEARER_TOKEN: registry.token}
    if user:
        settings[USER_INFO] = f"{user}:{password}"
    address = RegistryAt.of(
        {f"{PREFIX}{name}": text for name, text in settings.items() if text}, registry.url
    )
    if address is None:
        raise ValueError("an address is expected: http://HOST:PORT")
    return address.client()


def ask(
    question: Callable[..., Awaitable[T]], *arguments: object, sleep: Callable[[float], None] = time.sleep
) -> T:
    """Run a request in a separate event loop, TRIES times if the registry does not answer. Raises IncompleteError.

    One thread at a time, since a client shares answers between tasks, and its tasks belong to one event loop.
    """
    for tries_left in reversed(range(TRIES)):
        try:
            with _ASKING:
                return trio.run(question, *arguments)
        except RegistryError as error:
            if (400 <= error.status < 500 and error.status != 429) or not tries_left:
                raise IncompleteError(f"the schema registry: {error}") from None
            sleep(0.2 * (TRIES - tries_left))
    raise AssertionError


async def _schema_of(client: RegistryClient, schema_id: int) -> tuple[Schema | None, Parsed | None]:
    try:
        schema = await client.schema(schema_id)
    except RegistryError as error:
        if error.status == 404:
            return None, None
        raise
    try:
        return schema, await parsed_of(client, schema)
    except SchemaError:
        return schema, None


async def _references(client: RegistryClient, schema: Schema) -> dict[str, str]:
    texts: dict[str, str] = {}

    async def collect(referring: Schema) -> None:
        for needed in referring.references:
            if needed.name not in texts:
                inner = (await client.version(needed.subject, needed.version)).schema
                await collect(inner)
                texts.setdefault(needed.name, inner.text)

    await collect(schema)
    return texts


async def _latest(client: RegistryClient, subject: str) -> Registered | None:
    try:
        return await client.latest(subject)
    except RegistryError as error:
        if error.status == 404:
            return None
        raise


def subject_of(strategy: str, topic: str, record: str, *, is_key: bool = False) -> str:
    """Return the subject of a topic's values or keys. Raises UsageError."""
    if strategy == "topic":
        return f"{topic}-{'key' if is_key else 'value'}"
    if not record:
        raise UsageError(f"--subjects {strategy} needs --record, the full name of the record or message")
    return record if strategy == "record" else f"{topic}-{record}"
