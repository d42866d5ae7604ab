"""Keys and values of records with a schema, as JSON: output of `consume` and input of `produce`.

The rule: the output of `consume --json --registry` is read back by `produce --input-json` with the same schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from barnabas.commands.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.client import ConsumedRecord
    from barnabas.commands.connection import Connecting
    from barnabas.registry.client import RegistryClient
    from barnabas.registry.client_settings import RegistryAt
    from barnabas.registry.decoding import DecodedText, Deserializer
    from barnabas.registry.encoding import Serializer
    from barnabas.sandbox.pool import Sandbox

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_URL = "http://localhost:8081"
"""Address of a registry, for commands that ask nothing else."""
FORMATS = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
"""Formats of schemas, by the ends of their files' names."""
TEXT_CHARS_MAX = 1 << 30
"""Length of a key or value as JSON, which a command prints whole."""
OF_RECORDS = (40301, 40401, 40402, 40403)
"""Codes with which a registry refuses what one record names, a schema or one that it refers to, not the whole command."""


class Json(bytes):
    """A key or value read by its schema: its JSON, and the text of that."""

    value: Any

    @classmethod
    def of(cls, value: Any) -> Json:
        """Return a value as JSON."""
        result = cls(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        result.value = value
        return result


def registry_option(command: F) -> F:
    """Add the option that names a registry."""
    return click.option(
        "--registry", metavar="URL", envvar="BARNABAS_REGISTRY",
        help="A schema registry, for keys and values with a schema: http://[USER:PASSWORD@]HOST:PORT. Default: the "
             "profile's schema.registry.url; \"\" for none. -X schema.registry.ssl.ca.location, "
             ".ssl.certificate.location, .basic.auth.user.info, .bearer.auth.token and the like say how it is asked.",
    )(command)  # fmt: skip


def registry_of(url: str | None, connecting: Connecting) -> RegistryAt | None:
    """Return the registry of the option, else of `schema.registry.url`, None without one. Raises click.UsageError.

    Its certificate authorities default to those of the broker's client. Settings in a profile or a file for another
    registry do not apply to that of the option.
    """
    properties = connecting.properties
    if not url and not any(name.startswith("schema.registry.") for name in properties):
        return None  # nothing of a registry is loaded
    from barnabas.registry.client_settings import CA, PREFIX, URL, RegistryAt, over

    address = properties.get(URL, "") if url is None else url
    typed = {name: text for name, text in connecting.typed.items() if name.startswith(PREFIX)}
    settings = over(properties, {**typed, URL: address})
    authorities = properties.get(CA)
    if authorities and address.startswith("https"):
        settings.setdefault(PREFIX + CA, authorities)
    if not address:
        return None
    try:
        return RegistryAt.of(settings, address)
    except ValueError as error:
        raise click.UsageError(f"--registry: {error}") from None


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Raise CommandError for errors of a registry or a schema."""
    from barnabas.registry.errors import RegistryError, SchemaError

    try:
        yield
    except (RegistryError, SchemaError) as error:
        raise CommandError(f"{what}: {error}") from None


def own_sandbox() -> Sandbox:
    """Return a sandbox for a single command: its limits are those of a large record."""
    from barnabas.sandbox.pool import Sandbox

    return Sandbox(memory_bytes=1 << 30, answer_bytes_max=1 << 28, seconds_max=60)


class Decoding:
    """Reads keys and values of records. Lifecycle: `async with`."""

    def __init__(self, client: RegistryClient) -> None:
        from barnabas.registry.decoding import Deserializer

        self._sandbox = own_sandbox()
        self._deserializer: Deserializer = Deserializer(client, self._sandbox)

    async def __aenter__(self) -> Self:
        await self._sandbox.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._sandbox.__aexit__(*error)

    async def records(self, records: Sequence[ConsumedRecord]) -> tuple[list[ConsumedRecord], list[str]]:
        """Return records, with JSON for keys and values that name a schema, and the errors of unreadable ones.

        The second list has place and reason of each record with a key or value that does not fit its schema, or names a
        missing one. Raises CommandError if the registry cannot be reached.
        """
        from barnabas.registry.errors import RegistryError, SchemaError

        payloads = [data for record in records for data in (record.key, record.value) if data is not None]
        texts = iter(await self._deserializer.decode_many(payloads, chars_max=TEXT_CHARS_MAX))
        readable, reasons = [], []
        for record in records:
            place = f"{record.topic} partition {record.partition} offset {record.offset}"
            pair = [None if data is None else (data, next(texts)) for data in (record.key, record.value)]
            try:
                key, value = (None if entry is None else _read(*entry) for entry in pair)
            except SchemaError as error:
                reasons.append(f"{place}: {error}")
            except RegistryError as error:
                if error.code not in OF_RECORDS:
                    raise CommandError(f"{place}: {error}") from None
                reasons.append(f"{place}: {error}")
            else:
                readable.append(replace(record, key=key, value=value))
        return readable, reasons


def _read(data: bytes, text: DecodedText | Exception | None) -> bytes:
    """Return a payload, or the JSON that it is by its schema. Raises RegistryError, SchemaError."""
    if isinstance(text, Exception):
        raise text
    return data if text is None else Json.of(json.loads(text.text))


async def serializer_of(client: RegistryClient, subject: str, selector: str, sandbox: Sandbox) -> Serializer:
    """Return the serializer for `latest`, the schema of an id, or that of a file. Raises CommandError."""
    from barnabas.registry.encoding import Serializer

    with explained(f"schema {selector} of {subject}"):
        if selector == "latest":
            return await Serializer.of_latest(client, subject, sandbox)
        if selector.isdecimal():
            return await Serializer.of_id(client, int(selector), sandbox)
        return await Serializer.of_schema(client, subject, schema_of_file(selector), sandbox)


def schema_of_file(name: str) -> Any:
    """Return the schema in a file, in the format of its suffix. Raises CommandError."""
    from barnabas.registry.schemas import Schema

    path = Path(name)
    if path.suffix not in FORMATS:
        raise CommandError(
            f"{name}: a schema's file ends with {', '.join(FORMATS)}; or give an id, or latest"
        )
    try:
        return Schema(FORMATS[path.suffix], path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{name}: {getattr(error, 'strerror', error)}") from None


async def encoded(serializer: Serializer, data: bytes) -> bytes:
    """Serialize JSON, or else a text, by a schema. Raises ValueError."""
    from barnabas.registry.errors import SchemaError

    text = data.decode()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return await serializer.encode(json.dumps(text))
    try:
        return await serializer.encode(text)
    except SchemaError as error:
        if isinstance(value, str | list | dict):
            raise
        try:
            return await serializer.encode(json.dumps(text))  # a text that looks like a number
        except SchemaError:
            raise error from None
