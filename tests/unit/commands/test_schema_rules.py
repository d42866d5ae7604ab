"""Keys and values with a schema: what is read as JSON, what is written of it, and by which schema."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from barnabas.client import ClientSettings, ConsumedRecord
from barnabas.commands import produce
from barnabas.commands.connection import Connecting
from barnabas.commands.errors import CommandError
from barnabas.commands.produce import _encoded, _encoding, _registry
from barnabas.commands.records_in import Parsed
from barnabas.commands.records_out import json_line
from barnabas.commands.schemas import Decoding, Json, encoded, explained, registry_of, serializer_of
from barnabas.registry.client import RegistryClient
from barnabas.registry.decoding import DecodedText
from barnabas.registry.encoding import Serializer
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


@pytest.mark.parametrize(
    ("types", "data", "written"),
    [
        ((dict,), b'{"a": 1}', b'{"a": 1}'),
        ((str,), b"ann", b'"ann"'),
        ((str,), b'"ann"', b'"ann"'),
        ((str,), b"5", b'"5"'),
        ((str,), b"true", b'"true"'),
        ((str,), b"null", b'"null"'),
        ((int, str), b"5", b"5"),
        ((str,), b"[" * 200_000, json.dumps("[" * 200_000).encode()),
    ],
)
async def test_what_is_no_json_or_does_not_fit_as_such_is_a_text(
    types: tuple[type, ...], data: bytes, written: bytes
) -> None:
    taker: Any = Takes(*types)
    assert await encoded(taker, data) == written


@pytest.mark.parametrize(
    ("types", "data", "said"),
    [
        ((int,), b"ann", "'ann' is no int"),
        ((dict,), b"5", "^5 is no dict"),
        ((str,), b'{"a": 1}', "{'a': 1} is no str"),
        ((str,), b"[1]", "1. is no str"),
        ((int,), b'"5"', "'5' is no int"),
        ((str,), b"\xff", "can't decode"),
    ],
)
async def test_what_does_not_fit_is_told_as_it_was_meant(
    types: tuple[type, ...], data: bytes, said: str
) -> None:
    taker: Any = Takes(*types)
    with pytest.raises(ValueError, match=said):
        await encoded(taker, data)


@pytest.mark.parametrize("error", [RegistryError(404, 40401, "gone"), SchemaError("gone")])
def test_what_a_registry_or_a_schema_refuses_is_told_with_its_place(error: Exception) -> None:
    with pytest.raises(CommandError, match=r"^here: gone"), explained("here"):
        raise error
    with pytest.raises(KeyError), explained("here"):
        raise KeyError("x")


# --- writing -------------------------------------------------------------------------------------------------------


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Calls by which serializers were asked for."""
    noted: list[tuple[Any, ...]] = []

    def note(kind: str) -> Any:
        async def of(*given: Any) -> tuple[Any, ...]:
            noted.append((kind, *given))
            return noted[-1]

        return of

    for kind in ("of_latest", "of_id", "of_schema"):
        monkeypatch.setattr(Serializer, kind, note(kind))
    return noted


@pytest.mark.parametrize(("suffix", "kind"), [(".avsc", "AVRO"), (".json", "JSON"), (".proto", "PROTOBUF")])
async def test_a_schema_is_the_latest_or_that_of_an_id_or_of_a_file(
    made: list[tuple[Any, ...]], tmp_path: Path, suffix: str, kind: str
) -> None:
    client: Any = object()
    sandbox: Any = object()
    await serializer_of(client, "t-value", "latest", sandbox)
    await serializer_of(client, "t-value", "12", sandbox)
    file = tmp_path / f"schema{suffix}"
    file.write_text("the schema")
    await serializer_of(client, "t-value", str(file), sandbox)
    assert made[:2] == [("of_latest", client, "t-value", sandbox), ("of_id", client, 12, sandbox)]
    name, asked, subject, schema, _ = made[2]
    assert (name, asked, subject, schema.format, schema.text) == (
        "of_schema",
        client,
        "t-value",
        kind,
        "the schema",
    )


async def test_a_file_that_is_no_schema_is_named(tmp_path: Path) -> None:
    client: Any = None
    with pytest.raises(CommandError, match=r"^x\.xsd: a schema's file ends with \.avsc, \.json, \.proto"):
        await serializer_of(client, "s", "x.xsd", client)
    with pytest.raises(CommandError, match=r"gone\.json: No such file or directory$"):
        await serializer_of(client, "s", str(tmp_path / "gone.json"), client)
    (tmp_path / "odd.json").write_bytes(b"\xff")
    with pytest.raises(CommandError, match=r"odd\.json: .*can't decode"):
        await serializer_of(client, "s", str(tmp_path / "odd.json"), client)


@pytest.mark.parametrize(
    ("options", "subjects"),
    [
        ({}, [None, None]),
        ({"key_schema": "1"}, ["t-key 1", None]),
        ({"value_schema": "2"}, [None, "t-value 2"]),
        ({"key_schema": "1", "value_schema": "2"}, ["t-key 1", "t-value 2"]),
    ],
)
async def test_keys_and_values_have_schemas_of_their_own(
    options: dict[str, str], subjects: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def of(client: Any, subject: str, wanted: str, _: Any) -> str:
        assert client == "client"
        return f"{subject} {wanted}"

    monkeypatch.setattr(produce, "serializer_of", of)
    registry = SimpleNamespace(client=lambda: "client")
    monkeypatch.setattr(produce, "registry_of", lambda *_: registry)
    connecting: Any = None
    given = {"registry": "r", "key_schema": None, "value_schema": None, **options}
    chosen = _registry(connecting, given)
    assert chosen is (registry if options else None)
    async with AsyncExitStack() as stack:
        assert list(await _encoding("t", chosen, given, stack)) == subjects
    monkeypatch.setattr(produce, "registry_of", lambda *_: None)
    if options:
        with pytest.raises(click.UsageError, match="--key-schema and --value-schema need --registry"):
            _registry(connecting, given)


async def encoding(records: list[Parsed], key: Any, value: Any) -> list[Parsed]:
    async def given() -> Any:
        for one in records:
            yield one

    async with aclosing(given()) as source, aclosing(_encoded(source, (key, value))) as written:
        return [one async for one in written]


async def test_only_what_has_a_schema_and_is_not_null_is_written_by_it() -> None:
    records = [Parsed(b"v", b"k", [("h", b"1")], 5), Parsed(None, None), Parsed(b"w", None)]
    assert await encoding(records, None, None) == records
    text = Takes(str)
    written = await encoding(records, None, text)
    assert written == [Parsed(b'"v"', b"k", [("h", b"1")], 5), Parsed(None, None), Parsed(b'"w"', None)]
    assert [(one.key, one.value) for one in await encoding(records, text, None)] == [
        (b'"k"', b"v"), (None, None), (None, b"w"),
    ]  # fmt: skip


async def test_a_record_that_does_not_fit_its_schema_is_numbered() -> None:
    with pytest.raises(CommandError, match=r"^record 2: 'x' is no int$"):
        await encoding([Parsed(b"1"), Parsed(b"x")], None, Takes(int))


# --- reading -------------------------------------------------------------------------------------------------------


async def test_a_record_is_read_by_the_schemas_that_its_key_and_value_name() -> None:
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
    assert json.loads(json_line(first))["key"] == {"a": "key"}
    assert json.loads(json_line(second))["value"] == {"a": "value"}
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

    client: Any = None
    decoding = Decoding(client)
    decoding._deserializer = SimpleNamespace(decode_many=decode_many)  # type: ignore[assignment]
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

    client: Any = None
    decoding = Decoding(client)
    decoding._deserializer = SimpleNamespace(decode_many=decode_many)  # type: ignore[assignment]
    with pytest.raises(CommandError, match=r"^t partition 1 offset 9: http://r cannot be asked$"):
        await decoding.records([ConsumedRecord("t", 1, 9, 5, None, b"x")])


# --- the registry --------------------------------------------------------------------------------------------------


def at(url: str | None, typed: dict[str, str] | None = None, **properties: str) -> Any:
    given = {name.replace("_", "."): text for name, text in properties.items()}
    return registry_of(url, Connecting([], ClientSettings(), given, typed or {}))


def test_a_registry_is_that_of_the_option_or_of_the_settings_or_none() -> None:
    assert at(None) is None
    assert at("", schema_registry_url="http://a:1") is None
    assert at(None, schema_registry_url="http://a:1").url == "http://a:1"
    assert at("http://b:1", schema_registry_url="http://a:1").url == "http://b:1"
    with pytest.raises(click.UsageError, match=r"^--registry: "):
        at("nowhere")
    with pytest.raises(click.UsageError, match=r"^--registry: "):
        at("http://a:1", schema_registry_nothing="x")


def test_a_registry_with_tls_trusts_whom_the_client_trusts_unless_it_is_told(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "ab"]
    for file in files:
        file.write_text(signed({"CN": file.name}).pem)
    ours, other = map(str, files)

    def trusted(url: str, typed: dict[str, str] | None = None, **properties: str) -> list[str]:
        tls = at(url, typed, **properties).tls
        if tls is None:
            return []
        return [dict(part for (part,) in one["subject"])["commonName"] for one in tls.get_ca_certs()]

    assert trusted("https://r:1", ssl_ca_location=ours) == ["a"]
    assert trusted("https://r:1", ssl_ca_location=ours, schema_registry_ssl_ca_location=other) == ["b"]
    assert trusted("https://r:1", {"schema.registry.ssl.ca.location": other}, ssl_ca_location=ours) == ["b"]
    assert trusted("http://r:1", ssl_ca_location=ours) == []
