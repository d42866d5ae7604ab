"""Descriptors as text of .proto files.

The rule: the same descriptor is the same text, whatever its schema was written like; names of types are whole ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import descriptor_pb2, text_format

from barnabas.registry.formats.protobuf_text import ENUM_NUMBER_MAX, FIELD_NUMBER_MAX, SCALARS

_FIELD = descriptor_pb2.FieldDescriptorProto
_NAMES = {number: name for name, number in SCALARS.items()}
_LABELS = {_FIELD.LABEL_REQUIRED: "required ", _FIELD.LABEL_REPEATED: "repeated "}
_INDENT = "  "


def printed(file: Any, *, is_normal: bool = False) -> str:
    """Return the text of a file whose types are resolved; `is_normal` has fields by number and options by name."""
    return "\n".join(_Printer(file, is_normal=is_normal).lines()) + "\n"


class _Printer:
    """Makes the lines of one file."""

    def __init__(self, file: Any, *, is_normal: bool) -> None:
        self._file = file
        self._is_normal = is_normal
        self._maps: list[set[str]] = [set()]
        """Names of entries that are printed as maps, in the messages that are being printed."""
        self._is_proto2 = file.syntax in ("", "proto2")

    def lines(self) -> Iterator[str]:
        file = self._file
        if file.syntax == "editions":
            yield f'edition = "{descriptor_pb2.Edition.Name(file.edition).removeprefix("EDITION_")}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        imports = []
        for number, name in enumerate(file.dependency):
            word = "public " if number in file.public_dependency else ""
            imports.append(
                f"import {word or ('weak ' if number in file.weak_dependency else '')}{_quoted(name)};"
            )
        yield from sorted(imports) if self._is_normal else imports
        yield from self._statements(file.options)
        groups = _groups(file.extension)
        for one in file.message_type:
            if one.name not in groups:
                yield from self._message(one)
        for one in file.enum_type:
            yield from self._enum(one)
        yield from self._extensions(file.extension, file.message_type)
        for one in file.service:
            yield from self._service(one)

    def _message(self, one: Any, head: str = "") -> Iterator[str]:
        yield f"{head or f'message {one.name}'} {{"
        yield from _indented(self._body(one))
        yield "}"

    def _body(self, one: Any) -> Iterator[str]:
        nested = {inner.name: inner for inner in one.nested_type}
        hidden = _implied(one) | _groups(one.field) | _groups(one.extension)
        self._maps.append(hidden)
        yield from self._statements(one.options)
        for begin, end in self._sorted_ranges(one.reserved_range):
            yield f"reserved {_range(begin, end - 1, FIELD_NUMBER_MAX)};"
        if one.reserved_name:
            yield f"reserved {', '.join(_quoted(name) for name in self._sorted(one.reserved_name))};"
        for inner in one.extension_range:
            options = self._bracketed(inner.options, [])
            yield f"extensions {_range(inner.start, inner.end - 1, FIELD_NUMBER_MAX)}{options};"
        begun = set()
        fields = sorted(one.field, key=lambda field: field.number) if self._is_normal else one.field
        for field in fields:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field, nested)
            elif field.oneof_index not in begun:
                begun.add(field.oneof_index)
                declared = one.oneof_decl[field.oneof_index]
                yield f"oneof {declared.name} {{"
                yield from _indented(self._statements(declared.options))
                for member in fields:
                    if member.HasField("oneof_index") and member.oneof_index == field.oneof_index:
                        yield from _indented(self._field(member, nested, is_member=True))
                yield "}"
        for inner in one.nested_type:
            if inner.name not in hidden:
                yield from self._message(inner)
        for inner in one.enum_type:
            yield from self._enum(inner)
        yield from self._extensions(one.extension, one.nested_type)
        self._maps.pop()

    def _field(self, field: Any, nested: dict[str, Any], *, is_member: bool = False) -> Iterator[str]:
        inner = nested.get(field.type_name.rpartition(".")[2]) if field.type_name else None
        more = []
        if field.HasField("default_value"):
            is_text = field.type in (_FIELD.TYPE_STRING, _FIELD.TYPE_BYTES)
            more.append(f"default = {_quoted(field.default_value) if is_text else field.default_value}")
        if field.HasField("json_name") and field.json_name != _json_name(field.name):
            more.append(f"json_name = {_quoted(field.json_name)}")
        options = self._bracketed(field.options, more)
        if inner is not None and inner.name in self._maps[-1] and inner.options.map_entry:
            key, value = inner.field
            yield f"map<{_type(key)}, {_type(value)}> {field.name} = {field.number}{options};"
            return
        label = "" if is_member else self._label(field)
        if field.type == _FIELD.TYPE_GROUP and inner is not None:
            yield from self._message(inner, f"{label}group {inner.name} = {field.number}")
            return
        yield f"{label}{_type(field)} {field.name} = {field.number}{options};"

    def _label(self, field: Any) -> str:
        if field.label == _FIELD.LABEL_OPTIONAL:
            return "optional " if self._is_proto2 or field.proto3_optional else ""
        return _LABELS[field.label]

    def _enum(self, one: Any) -> Iterator[str]:
        yield f"enum {one.name} {{"
        yield from _indented(self._statements(one.options))
        for begin, end in self._sorted_ranges(one.reserved_range):
            yield f"{_INDENT}reserved {_range(begin, end, ENUM_NUMBER_MAX)};"
        if one.reserved_name:
            yield f"{_INDENT}reserved {', '.join(_quoted(name) for name in self._sorted(one.reserved_name))};"
        for value in sorted(one.value, key=lambda it: it.number) if self._is_normal else one.value:
            yield f"{_INDENT}{value.name} = {value.number}{self._bracketed(value.options, [])};"
        yield "}"

    def _extensions(self, fields: Iterable[Any], beside: Iterable[Any]) -> Iterator[str]:
        nested = {inner.name: inner for inner in beside}
        for field in fields:
            yield f"extend {field.extendee} {{"
            yield from _indented(self._field(field, nested))
            yield "}"

    def _service(self, one: Any) -> Iterator[str]:
        yield f"service {one.name} {{"
        yield from _indented(self._statements(one.options))
        for method in one.method:
            taken, given = (
                f"({'stream ' if streams else ''}{name})"
                for streams, name in (
                    (method.client_streaming, method.input_type),
                    (method.server_streaming, method.output_type),
                )
            )
            options = list(_indented(self._statements(method.options)))
            head = f"{_INDENT}rpc {method.name} {taken} returns {given}"
            if not options:
                yield f"{head};"
                continue
            yield f"{head} {{"
            yield from _indented(iter(options))
            yield f"{_INDENT}}}"
        yield "}"

    def _statements(self, options: Any) -> Iterator[str]:
        for one in self._options(options):
            yield f"option {one};"

    def _bracketed(self, options: Any, more: list[str]) -> str:
        found = [*more, *self._options(options)]
        return f" [{', '.join(found)}]" if found else ""

    def _options(self, options: Any) -> list[str]:
        found = []
        for field, value in options.ListFields():
            if field.name == "uninterpreted_option":
                found += [_uninterpreted(one) for one in value]
            elif field.is_extension:
                continue
            elif field.message_type is not None and not field.is_repeated:
                found += [f"{field.name}.{one}" for one in self._options(value)]
            else:
                for one in value if field.is_repeated else (value,):
                    found.append(f"{field.name} = {_value(field, one)}")
        return self._sorted(found)

    def _sorted(self, texts: Iterable[str]) -> list[str]:
        return sorted(texts) if self._is_normal else list(texts)

    def _sorted_ranges(self, ranges: Iterable[Any]) -> list[tuple[int, int]]:
        found = [(one.start, one.end) for one in ranges]
        return sorted(found) if self._is_normal else found


def _implied(message: Any) -> set[str]:
    """Return the entries of maps that need not be messages of the text: they stand behind all others.

    Data names messages by their numbers among all. Compilers put an entry where its field is, so that it may be counted.
    """
    found = set()
    for inner in reversed(message.nested_type):
        if not inner.options.map_entry:
            break
        found.add(inner.name)
    return found


def _groups(fields: Iterable[Any]) -> set[str]:
    """Return the messages that are printed with the field that they are the group of."""
    return {field.type_name.rpartition(".")[2] for field in fields if field.type == _FIELD.TYPE_GROUP}


def _indented(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield _INDENT + line


def _type(field: Any) -> str:
    return field.type_name or _NAMES[field.type]


def _range(begin: int, end: int, last: int) -> str:
    if begin == end:
        return str(begin)
    return f"{begin} to {'max' if end >= last else end}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _json_name(name: str) -> str:
    """Return the name in JSON that a field has by itself."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _value(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if field.message_type is not None:
        return f"{{ {text_format.MessageToString(value, as_one_line=True)} }}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else str(value)


def _uninterpreted(one: Any) -> str:
    name = ".".join(f"({part.name_part})" if part.is_extension else part.name_part for part in one.name)
    if one.HasField("string_value"):
        return f"{name} = {_quoted(one.string_value.decode('utf-8', 'replace'))}"
    if one.HasField("aggregate_value"):
        return f"{name} = {{ {one.aggregate_value} }}"
    for field in ("identifier_value", "positive_int_value", "negative_int_value", "double_value"):
        if one.HasField(field):
            return f"{name} = {getattr(one, field)}"
    return f"{name} = true"
