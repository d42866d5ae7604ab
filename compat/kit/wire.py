"""Requests and responses of any version as plain dicts, read straight from `schemas/`, and a blocking connection.

    with Connection("127.0.0.1", 9092) as kafka:
        answer = kafka.ask("DescribeConfigs", 4, {"Resources": [...]})

The rule: fields have the schema's names; fields missing from a request have their defaults.
"""

from __future__ import annotations

import socket
import struct
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from codegen.model import FIXED_FORMATS, FIXED_SIZES, Field, FieldType, Message, Struct
from codegen.parse import load_message
from compat.kit.readiness import is_readable

API = Path(__file__).resolve().parents[2] / "schemas" / "api"
API_VERSIONS = 18
TIMEOUT_S = 15
ZERO_UUID = bytes(16)
Values = dict[str, Any]


class WireError(Exception):
    """The broker closed the connection, or its bytes do not fit the schema."""


@cache
def message(name: str) -> Message:
    """The definition called `name`, such as `FetchRequest`. Raises KeyError."""
    for path in API.glob(f"*_{name}.json"):
        loaded = load_message(path)
        if loaded is not None:
            return loaded
    raise KeyError(f"there is no message {name}")


class Connection:
    """A connection to a broker, with one request at a time."""

    def __init__(self, host: str, port: int, client_id: str = "kit") -> None:
        self._socket = socket.create_connection((host, port), TIMEOUT_S)
        self._client_id = client_id
        self._correlation_id = 0

    def ask(self, api: str, version: int, values: Values) -> Values:
        """Ask an API by its name; returns the response's fields. Raises WireError."""
        self.send(api, version, values)
        return self.receive(api, version)

    def send(self, api: str, version: int, values: Values) -> None:
        """Send a request and do not wait for its answer."""
        self._correlation_id += 1
        body = encode_frame(
            api, version, values, client_id=self._client_id, correlation_id=self._correlation_id
        )
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def is_answered(self, within_s: float) -> bool:
        """Return whether a response begins to arrive, or the connection is closed, within that time."""
        return is_readable(self._socket, within_s)

    def receive(self, api: str, version: int) -> Values:
        """Receive the response; returns its fields. Raises WireError."""
        response = message(f"{api}Response")
        answer = self._receive(struct.unpack(">i", self._receive(4))[0])
        start = 5 if version in response.flexible and response.api_key != API_VERSIONS else 4
        return decode(response, version, answer, start)

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            try:
                part = self._socket.recv(size - len(received))
            except TimeoutError:
                raise WireError(f"no answer in {TIMEOUT_S} s") from None
            except ConnectionError as error:
                raise WireError("the broker closed the connection") from error
            if not part:
                raise WireError("the broker closed the connection")
            received += part
        return bytes(received)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def encode_frame(
    api: str, version: int, values: Values, *, client_id: str = "kit", correlation_id: int = 1
) -> bytes:
    """The frame of a request without its size: header and body."""
    request = message(f"{api}Request")
    assert request.api_key is not None
    client = client_id.encode()
    head = struct.pack(">hhih", request.api_key, version, correlation_id, len(client)) + client
    return head + (b"\0" if version in request.flexible else b"") + encode(request, version, values)


def encode(definition: Message, version: int, values: Values) -> bytes:
    """The bytes of a message."""
    return Writer(definition, version).struct(definition, values)


def decode(definition: Message, version: int, data: bytes, start: int = 0) -> Values:
    """The fields of a message. Raises WireError when bytes are missing or left over."""
    reader = _Reader(definition, version, data, start)
    try:
        values = reader.struct(definition)
    except (struct.error, IndexError) as error:
        raise WireError(f"{definition.name} v{version} is cut short: {error}") from error
    if reader.position != len(data):
        raise WireError(f"{definition.name} v{version}: {len(data) - reader.position} bytes are left over")
    return values


class _Walker:
    """The common part of reading and writing: the fields that there are in this version."""

    def __init__(self, definition: Message, version: int) -> None:
        self.definition = definition
        self.version = version
        self.flexible = version in definition.flexible

    def present(self, fields: tuple[Field, ...], *, tagged: bool) -> list[Field]:
        return [
            field
            for field in fields
            if self.version in field.versions and (self.version in field.tagged) == tagged
        ]

    def compact(self, field: Field) -> bool:
        return self.flexible if field.flexible is None else self.version in field.flexible


class Writer(_Walker):
    """Writes the fields of a message in one version."""

    def struct(self, shape: Message | Struct, values: Values) -> bytes:
        names = {field.name for field in shape.fields}
        assert names >= values.keys(), f"{shape.name} has no {values.keys() - names}"
        out = b"".join(
            self.field(field, values.get(field.name, _default(field)))
            for field in self.present(shape.fields, tagged=False)
        )
        if not self.flexible:
            return out
        tags = [field for field in self.present(shape.fields, tagged=True) if field.name in values]
        out += uvarint(len(tags))
        for field in sorted(tags, key=lambda field: field.tag or 0):
            data = self.field(field, values[field.name])
            out += uvarint(field.tag or 0) + uvarint(len(data)) + data
        return out

    def field(self, field: Field, value: Any) -> bytes:
        if not field.type.array:
            return self.value(field, field.type, value)
        length = -1 if value is None else len(value)
        head = uvarint(length + 1) if self.compact(field) else struct.pack(">i", length)
        element = FieldType(field.type.name, array=False)
        return head + b"".join(self.value(field, element, item) for item in value or ())

    def value(self, field: Field, kind: FieldType, value: Any) -> bytes:
        if kind.is_struct:
            shape = self.definition.structs[kind.name]
            if not field.type.array and self.version in field.nullable:
                return b"\xff" if value is None else b"\x01" + self.struct(shape, value)
            return self.struct(shape, value)
        if kind.is_fixed:
            return struct.pack(">" + FIXED_FORMATS[kind.name], value)
        data = value.encode() if isinstance(value, str) else value
        length = -1 if data is None else len(data)
        if self.compact(field):
            head = uvarint(length + 1)
        else:
            head = struct.pack(">h" if kind.name == "string" else ">i", length)
        return head + (data or b"")


class _Reader(_Walker):
    def __init__(self, definition: Message, version: int, data: bytes, position: int) -> None:
        super().__init__(definition, version)
        self.data = data
        self.position = position

    def struct(self, shape: Message | Struct) -> Values:
        values = {field.name: self.field(field) for field in self.present(shape.fields, tagged=False)}
        if self.flexible:
            tagged = {field.tag: field for field in self.present(shape.fields, tagged=True)}
            for _ in range(self.uvarint()):
                tag, size = self.uvarint(), self.uvarint()
                end = self.position + size
                if tag in tagged:
                    values[tagged[tag].name] = self.field(tagged[tag])
                self.position = end
        return values

    def field(self, field: Field) -> Any:
        if not field.type.array:
            return self.value(field, field.type)
        length = self.uvarint() - 1 if self.compact(field) else self.fixed(">i")
        element = FieldType(field.type.name, array=False)
        return None if length < 0 else [self.value(field, element) for _ in range(length)]

    def value(self, field: Field, kind: FieldType) -> Any:
        if kind.is_struct:
            absent = not field.type.array and self.version in field.nullable and self.fixed(">b") < 0
            return None if absent else self.struct(self.definition.structs[kind.name])
        if kind.is_fixed:
            return self.fixed(">" + FIXED_FORMATS[kind.name], FIXED_SIZES[kind.name])
        if self.compact(field):
            length = self.uvarint() - 1
        else:
            length = self.fixed(">h" if kind.name == "string" else ">i")
        if length < 0:
            return None
        data = self.data[self.position : self.position + length]
        if len(data) < length:
            raise IndexError(f"{field.name} has {length} bytes")
        self.position += length
        return data.decode() if kind.name == "string" else data

    def fixed(self, form: str, size: int = 0) -> Any:
        value = struct.unpack_from(form, self.data, self.position)[0]
        self.position += size or struct.calcsize(form)
        return value

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


def uvarint(number: int) -> bytes:
    """A number in as few bytes as it needs, 7 bits in each."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _default(field: Field) -> Any:
    if field.has_default:
        return field.default
    if field.type.array:
        return []
    if field.type.is_struct:
        return {}
    return {"string": "", "bool": False, "bytes": b"", "uuid": ZERO_UUID}.get(field.type.name, 0)
