"""Keys and values with a schema: what is read as JSON, what is written of it, and by which schema."""

from __future__ import annotations

import json
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client import ClientSettings, ConsumedRecord
from barnabas.commands.connection import Connecting
from barnabas.commands.errors import CommandError
from barnabas.commands.produce import _encoded
from barnabas.commands.records_in import Parsed
from barnabas.commands.records_out import json_lines, lines_of
from barnabas.commands.schemas import Decoding, Json, registry_of
from barnabas.registry.client import RegistryClient
from barnabas.registry.decoding import DecodedText
from barnabas.registry.errors import RegistryError, SchemaError
from tests.support.certificates import signed
from tests.support.registries import standin


class Takes:
    """A serializer that takes values of some types."""

    def __init__(self, *types: type) -> None:
        self.types = types

    async def encode(self, text: str) -> bytes:
        value = json.loads(text)
        if type(value) not in self.types:
            raise SchemaError(f"{value!r} is no {self.types[0].__name__}")
        return json.dumps(value).encode()


def decoding_by(decode_many: Any) -> Decoding:
    """Reading with a deserializer that decodes so."""
    client: Any = None
    decoding = Decoding(client)
    decoding._deserializer = SimpleNamespace(decode_many=decode_many)  # type: ignore[assignment]
    return decoding


# --- writing -------------------------------------------------------------------------------------------------------


async def encoding(records: list[Parsed], key: Any, value: Any) -> list[Parsed]:
    async def given() -> Any:
        for record in records:
            yield record

    async with aclosing(given()) as source, aclosing(_encoded(source, (key, value))) as written:
        return [record async for record in written]


async def test_a_record_that_does_not_fit_its_schema_is_numbered() -> None:
    with pytest.raises(CommandError, match=r"^record 2: 'x' is no int$"):
        await encoding([Parsed(b"1"), Parsed(b"x")], None, Takes(int))


# --- reading -------------------------------------------------------------------------------------------------------


async def test_record_is_read_by_schemas_of_its_key_and_value() -> None:
    schema_id = b"\0\0\0\0\1"
    records = [
        ConsumedRecord("t", 1, 7, 5, schema_id + b"\x06key", b"plain"),
        ConsumedRecord("t", 1, 8, 5, None, schema_id + b"\x0avalue"),
        ConsumedRecord("t", 1, 9, 5, schema_id + b"\x06k", schema_id + b"\x02v"),
        ConsumedRecord("t", 1, 10, 5, schema_id + b"\x02k", b"plain"),
    ]
    schema = {"schema": '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'}
    async with (
        standin({"/schemas/ids/1": schema}) as registry,
        Decoding(RegistryClient(registry.url)) as decoding,
    ):
        (first, second, last), reasons = await decoding.records(records)
    assert (first.key, first.value, first.offset) == (b'{"a": "key"}', b"plain", 7)
    assert (second.key, second.value) == (None, b'{"a": "value"}')
    assert (last.key, last.value, last.offset) == (b'{"a": "k"}', b"plain", 10)
    assert json.loads(json_lines(*lines_of([first])))["key"] == {"a": "key"}
    assert json.loads(json_lines(*lines_of([second])))["value"] == {"a": "value"}
    assert len(reasons) == 1
    assert reasons[0].startswith("t partition 1 offset 9: the data does not fit its schema")
    assert Json.of("ä") == '"ä"'.encode()
    assert Json.of(None) == b"null"


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (SchemaError("no such field"), "no such field"),
        (RegistryError(404, 40403, "Schema 7 not found"), "Schema 7 not found (40403)"),
    ],
)
async def test_records_around_an_unreadable_one_are_read(failure: Exception, text: str) -> None:
    async def decode_many(payloads: list[bytes], *, chars_max: int) -> Any:
        texts = (
            DecodedText(json.dumps(data.decode()), is_cut=False, format="AVRO", schema_id=1)
            for data in payloads
        )
        return [failure if data == b"bad" else text for data, text in zip(payloads, texts, strict=True)]

    decoding = decoding_by(decode_many)
    pairs = [(None, b"a"), (None, b"bad"), (b"bad", b"b"), (b"c", None)]
    records, reasons = await decoding.records(
        [ConsumedRecord("t", 1, offset, 5, key, value) for offset, (key, value) in enumerate(pairs)]
    )
    assert [(record.offset, record.key, record.value) for record in records] == [
        (0, None, b'"a"'), (3, b'"c"', None),
    ]  # fmt: skip
    assert reasons == [f"t partition 1 offset 1: {text}", f"t partition 1 offset 2: {text}"]


async def test_a_registry_that_is_not_there_ends_the_reading() -> None:
    async def decode_many(payloads: list[bytes], *, chars_max: int) -> Any:
        return [RegistryError(0, 0, "http://r cannot be asked") for _ in payloads]

    decoding = decoding_by(decode_many)
    with pytest.raises(CommandError, match=r"^t partition 1 offset 9: http://r cannot be asked$"):
        await decoding.records([ConsumedRecord("t", 1, 9, 5, None, b"x")])


# --- the registry --------------------------------------------------------------------------------------------------


def at(url: str | None, typed: dict[str, str] | None = None, **properties: str) -> Any:
    arguments = {name.replace("_", "."): text for name, text in properties.items()}
    return registry_of(url, Connecting([], ClientSettings(), arguments, typed or {}))


def test_registry_trusts_the_clients_authorities_by_default(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "ab"]
    for file in files:
        file.write_text(signed({"CN": file.name}).pem)
    ours, other = map(str, files)

    def trusted(url: str, typed: dict[str, str] | None = None, **properties: str) -> list[str]:
        tls = at(url, typed, **properties).tls
        if tls is None:
            return []
        return [dict(part for (part,) in cert["subject"])["commonName"] for cert in tls.get_ca_certs()]

    assert trusted("https://r:1", ssl_ca_location=ours) == ["a"]
    assert trusted("https://r:1", ssl_ca_location=ours, schema_registry_ssl_ca_location=other) == ["b"]
    assert trusted("https://r:1", {"schema.registry.ssl.ca.location": other}, ssl_ca_location=ours) == ["b"]
    assert trusted("http://r:1", ssl_ca_location=ours) == []
