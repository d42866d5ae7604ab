"""Schemas of Protobuf: parsed by proto-schema-parser, resolved by protobuf's own descriptors, compared by our own rules.

The rule: a schema keeps its original text; a descriptor, which some clients send, is converted to text.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError

from barnabas.registry.errors import SchemaError
from barnabas.registry.formats import Dependency
from barnabas.registry.formats.protobuf_compatibility import breaks
from barnabas.registry.formats.protobuf_counting import ValueCounter
from barnabas.registry.formats.protobuf_known import descriptor_of
from barnabas.registry.formats.protobuf_printing import printed
from barnabas.registry.formats.protobuf_text import read

OWN_NAME = "default.proto"
INDEX_MAX = 10_000


def parse(text: str, dependencies: Sequence[Dependency], *, is_new: bool) -> ProtobufSchema:
    """Understand a schema, which is text or a descriptor in base64. Raises SchemaError."""
    files = dict(dependencies)
    pool = _Pool(files)
    for name in files:
        pool.add(_file(files[name], name))
    own = next(
        name for name in (OWN_NAME, *(f"{number}.proto" for number in range(len(files)))) if name not in files
    )
    file = _file(text, own, is_new=is_new)
    pool.add(file)
    resolved = descriptor_pb2.FileDescriptorProto()
    pool.descriptors.FindFileByName(own).CopyToProto(resolved)
    for field in ("dependency", "public_dependency", "weak_dependency"):  # imports of missing files, too
        resolved.ClearField(field)
        getattr(resolved, field).extend(getattr(file, field))
    return ProtobufSchema(text if _is_text(text) else printed(resolved), resolved, pool.descriptors)


def _is_text(text: str) -> bool:
    return any(letter in text for letter in ' {};"\n')


def _file(text: str, name: str, *, is_new: bool = False) -> Any:
    """Return the descriptor of a file, without source locations."""
    if _is_text(text):
        return read(text, name, is_new=is_new)
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise SchemaError("it is neither text of a .proto file nor a descriptor in base64") from None
    file.name = name
    file.ClearField("source_code_info")
    return file


class _Pool:
    """Descriptors of files and their imports."""

    def __init__(self, files: dict[str, str]) -> None:
        """`files` are texts by the names under which they may be imported."""
        self.descriptors = descriptor_pool.DescriptorPool()
        self._files = files
        self._added: set[str] = set()

    def add(self, file: Any) -> None:
        """Add a file, after those that it imports. Raises SchemaError.

        A missing import is ignored, as by Confluent's registry: types that need it cannot be resolved, unless a reference
        under another name defines them.
        """
        if file.name in self._added:
            return
        self._added.add(file.name)
        missing = []
        for name in file.dependency:
            if name not in self._added:
                needed = _file(self._files[name], name) if name in self._files else descriptor_of(name)
                if needed is None:
                    missing.append(name)
                else:
                    self.add(needed)
        try:
            self.descriptors.AddSerializedFile(_without(file, missing).SerializeToString())
        except (TypeError, ValueError) as error:
            hint = f"; it imports {', '.join(missing)}, which is not among its references" if missing else ""
            raise SchemaError(f"{file.name}: {error}{hint}") from None


def _without(file: Any, missing: Sequence[str]) -> Any:
    """Return a file without its missing imports."""
    if not missing:
        return file
    changed = type(file).FromString(file.SerializeToString())
    for field in ("dependency", "public_dependency", "weak_dependency"):
        changed.ClearField(field)
    for number, name in enumerate(file.dependency):
        if name not in missing:
            if number in file.public_dependency:
                changed.public_dependency.append(len(changed.dependency))
            changed.dependency.append(name)
    return changed


class ProtobufSchema:
    """A schema of Protobuf: one file."""

    def __init__(self, text: str, file: Any, pool: Any) -> None:
        self.text = text
        self.file = file
        self.pool = pool
        self.canonical = printed(file)
        self._counters: dict[str, ValueCounter] = {}

    def normalized(self) -> str:
        """Return the text with fields by number and options by name."""
        return printed(self.file, is_normal=True)

    def descriptor(self) -> Any:
        """Return the file with all that it refers to."""
        return self.pool.FindFileByName(self.file.name)

    def serialized(self) -> str:
        """Return the descriptor in base64."""
        return b64encode(self.file.SerializeToString()).decode()

    def breaks(self, writer: ProtobufSchema) -> list[str]:
        """Say why data of `writer` cannot always be read."""
        return breaks(writer.descriptor(), self.descriptor())

    def decode(self, payload: bytes) -> Any:
        """Return the message as JSON, by the names of its fields. Raises SchemaError."""
        path, rest = _read_path(payload)
        try:
            descriptor = self._message(path)
            if descriptor.full_name not in self._counters:
                self._counters[descriptor.full_name] = ValueCounter(descriptor)
            self._counters[descriptor.full_name].check(rest)
            message = message_factory.GetMessageClass(descriptor)()
            message.ParseFromString(rest)
            return json_format.MessageToDict(
                message, always_print_fields_with_no_presence=True, preserving_proto_field_name=True,
                descriptor_pool=self.pool,
            )  # fmt: skip
        except SchemaError:
            raise
        except (DecodeError, json_format.Error, TypeError, ValueError, KeyError) as error:
            raise SchemaError(f"the data does not fit its schema: {error or type(error).__name__}") from None

    def encode(self, value: Any) -> bytes:
        """Return the file's first message, from JSON. Raises SchemaError."""
        message = message_factory.GetMessageClass(self._message([0]))()
        try:
            json_format.ParseDict(value, message, descriptor_pool=self.pool)
            data: bytes = message.SerializeToString()
            return b"\0" + data
        except Exception as error:  # ParseDict is not made for values of any kind
            raise SchemaError(f"the value does not fit the schema: {error or type(error).__name__}") from None

    def _message(self, path: Iterable[int]) -> Any:
        """Return a message by its number, that in it, and so on. Raises SchemaError."""
        within = self.file.message_type
        name = self.file.package
        for number in path:
            if not 0 <= number < len(within):
                raise SchemaError("the data is of a message that its schema does not have")
            name = f"{name}.{within[number].name}" if name else within[number].name
            within = within[number].nested_type
        return self.pool.FindMessageTypeByName(name)


def _read_path(payload: bytes) -> tuple[list[int], bytes]:
    """Split a payload into the path of its message and the message. Raises SchemaError."""
    count, at = _varint(payload, 0)
    if count == 0:
        return [0], payload[at:]
    if not 0 < count <= INDEX_MAX:
        raise SchemaError("the data does not say which message it is")
    path = []
    for _ in range(count):
        number, at = _varint(payload, at)
        path.append(number)
    return path, payload[at:]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 35:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise SchemaError("the data does not say which message it is")
