"""Descriptors as text of .proto files.

The rule: equal descriptors give the same text, however the schema was written; type names are fully qualified. The layout
is that of Confluent's registry: declarations of a kind are grouped, after a blank line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import descriptor_pb2, text_format

from barnabas.registry.formats.protobuf_text import ENUM_NUMBER_MAX, FIELD_NUMBER_MAX, SCALARS

_FIELD = descriptor_pb2.FieldDescriptorProto
_NAMES = {number: name for name, number in SCALARS.items()}
_LABELS = {_FIELD.LABEL_REQUIRED: "required ", _FIELD.LABEL_REPEATED: "repeated "}
_PROTO2 = 'syntax = "proto2";'
_INDENT = "  "
_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", "'": "\\'",
    '"': '\\"',
}  # fmt: skip


def printed(file: Any, *, is_normal: bool = False) -> str:
    """Return the text of a file with resolved types.

    `is_normal` sorts fields by number and options by name, prints each reservation separately, and omits the syntax of
    proto2, as it is the default.
    """
    return _Printer(file, is_normal=is_normal).text()


Lines = list[str]


class _Printer:
    """Prints the lines of a file."""

    def __init__(self, file: Any, *, is_normal: bool) -> None:
        self._file = file
        self._is_normal = is_normal
        self._maps: list[set[str]] = [set()]
        """Names of map entries in the messages that are being printed."""
        self._is_proto2 = file.syntax in ("", "proto2")

    def text(self) -> str:
        file = self._file
        head = self._syntax()
        if file.package:
            head.append(f"package {file.package};")
        groups = _groups(file.extension)
        messages = [message for message in file.message_type if message.name not in groups]
        types = [line for message in messages for line in self._message(message)]
        types += [line for enum in file.enum_type for line in self._enum(enum)]
        sections = [
            self._imports(),
            self._statements(file.options),
            types,
            self._extensions(file.extension, file.message_type),
            [line for service in file.service for line in self._service(service)],
        ]
        lines = [*head, *_after_blank(sections)] or [_PROTO2]
        return "".join(f"{line}\n" for line in lines)

    def _syntax(self) -> Lines:
        file = self._file
        if file.syntax == "editions":
            return [f'edition = "{descriptor_pb2.Edition.Name(file.edition).removeprefix("EDITION_")}";']
        if self._is_proto2 and self._is_normal:
            return []
        return [_PROTO2 if self._is_proto2 else f'syntax = "{file.syntax}";']

    def _imports(self) -> Lines:
        plain, public = [], []
        for number, name in enumerate(self._file.dependency):
            if number in self._file.public_dependency:
                public.append(f"import public {_quoted(name)};")
            else:
                word = "weak " if number in self._file.weak_dependency else ""
                plain.append(f"import {word}{_quoted(name)};")
        return [*self._sorted(plain), *self._sorted(public)]

    def _message(self, message: Any, head: str = "") -> Lines:
        return _block(head or f"message {message.name}", self._body(message))

    def _body(self, message: Any) -> list[Lines]:
        """Return the sections of a message."""
        nested = {inner.name: inner for inner in message.nested_type}
        hidden = _implied(message) | _groups(message.field) | _groups(message.extension)
        self._maps.append(hidden)
        fields = self._by_number(message.field)
        plain = [field for field in fields if not _is_member(field)]
        types = [
            line for inner in message.nested_type if inner.name not in hidden for line in self._message(inner)
        ]
        types += [line for inner in message.enum_type for line in self._enum(inner)]
        sections = [
            self._reserved(message, FIELD_NUMBER_MAX, is_open=True),
            self._statements(message.options),
            self._fields((field for field in plain if field.type != _FIELD.TYPE_GROUP), nested),
            self._one_ofs(message, fields, nested),
            self._fields((field for field in plain if field.type == _FIELD.TYPE_GROUP), nested),
            self._extension_ranges(message),
            self._extensions(message.extension, message.nested_type),
            types,
        ]
        self._maps.pop()
        return sections

    def _reserved(self, declared: Any, last: int, *, is_open: bool) -> Lines:
        """Return the names and numbers that a message, with exclusive ends, or an enum reserves."""
        ranges = [(inner.start, inner.end - is_open) for inner in declared.reserved_range]
        lines = [
            f"reserved {_range(begin, end, last)};"
            for begin, end in (sorted(ranges) if self._is_normal else ranges)
        ]
        return lines + [f"reserved {_quoted(name)};" for name in self._sorted(declared.reserved_name)]

    def _extension_ranges(self, message: Any) -> Lines:
        ranges = (
            sorted(message.extension_range, key=lambda it: it.start)
            if self._is_normal
            else message.extension_range
        )
        return [
            f"extensions {_range(inner.start, inner.end - 1, FIELD_NUMBER_MAX)}{self._bracketed(inner.options, [])};"
            for inner in ranges
        ]

    def _one_ofs(self, message: Any, fields: Iterable[Any], nested: dict[str, Any]) -> Lines:
        members: dict[int, list[Any]] = {}
        for field in fields:
            if _is_member(field):
                members.setdefault(field.oneof_index, []).append(field)
        lines: Lines = []
        for number in members if self._is_normal else sorted(members):
            declared = message.oneof_decl[number]
            plain = (field for field in members[number] if field.type != _FIELD.TYPE_GROUP)
            groups = (field for field in members[number] if field.type == _FIELD.TYPE_GROUP)
            sections = [
                self._statements(declared.options),
                self._fields(plain, nested, is_member=True),
                self._fields(groups, nested, is_member=True),
            ]
            lines += _block(f"oneof {declared.name}", sections)
        return lines

    def _fields(self, fields: Iterable[Any], nested: dict[str, Any], *, is_member: bool = False) -> Lines:
        return [line for field in fields for line in self._field(field, nested, is_member=is_member)]

    def _field(self, field: Any, nested: dict[str, Any], *, is_member: bool = False) -> Lines:
        inner = nested.get(field.type_name.rpartition(".")[2]) if field.type_name else None
        more = []
        if field.HasField("default_value"):
            more.append(f"default = {_default(field)}")
        if field.HasField("json_name") and field.json_name != _json_name(field.name):
            more.append(f"json_name = {_quoted(field.json_name)}")
        options = self._bracketed(field.options, more)
        if inner is not None and inner.name in self._maps[-1] and inner.options.map_entry:
            key, value = inner.field
            return f"map<{_type(key)}, {_type(value)}> {field.name} = {field.number}{options};".split("\n")
        label = "" if is_member else self._label(field)
        if field.type == _FIELD.TYPE_GROUP and inner is not None:
            return self._message(inner, f"{label}group {inner.name} = {field.number}")
        return f"{label}{_type(field)} {field.name} = {field.number}{options};".split("\n")

    def _label(self, field: Any) -> str:
        if field.label == _FIELD.LABEL_OPTIONAL:
            has_label = self._is_proto2 or field.proto3_optional or field.type == _FIELD.TYPE_GROUP
            return "optional " if has_label else ""
        return _LABELS[field.label]

    def _enum(self, enum: Any) -> Lines:
        values = list(enum.value)
        if self._is_normal:  # the first is the default, which order may not change
            values[1:] = sorted(values[1:], key=lambda it: (it.number, it.name))
        lines = self._reserved(enum, ENUM_NUMBER_MAX, is_open=False) + self._statements(enum.options)
        for value in values:
            lines += f"{value.name} = {value.number}{self._bracketed(value.options, [])};".split("\n")
        return _block(f"enum {enum.name}", [lines])

    def _extensions(self, fields: Iterable[Any], beside: Iterable[Any]) -> Lines:
        nested = {inner.name: inner for inner in beside}
        extended: list[tuple[str, list[Any]]] = []
        for field in fields:
            same = [of_name for name, of_name in extended if name == field.extendee]
            if same and (self._is_normal or extended[-1][0] == field.extendee):
                same[-1].append(field)
            else:
                extended.append((field.extendee, [field]))
        return [
            line
            for name, of_name in extended
            for line in _block(f"extend {name}", [self._fields(self._by_number(of_name), nested)])
        ]

    def _service(self, service: Any) -> Lines:
        methods: Lines = []
        for method in service.method:
            request, response = (
                f"({'stream ' if streams else ''}{name})"
                for streams, name in (
                    (method.client_streaming, method.input_type),
                    (method.server_streaming, method.output_type),
                )
            )
            head = f"rpc {method.name} {request} returns {response}"
            options = self._statements(method.options)
            methods += [f"{head} {{", *_indented(options), "};"] if options else [f"{head};"]
        return _block(f"service {service.name}", [self._statements(service.options), methods])

    def _by_number(self, fields: Iterable[Any]) -> list[Any]:
        return sorted(fields, key=lambda field: field.number) if self._is_normal else list(fields)

    def _statements(self, options: Any) -> Lines:
        return [line for text in self._options(options) for line in f"option {text};".split("\n")]

    def _bracketed(self, options: Any, more: list[str]) -> str:
        texts = self._options(options, more)
        if len(texts) < 2:
            return f" [{texts[0]}]" if texts else ""
        return " [\n" + ",\n".join(f"{_INDENT}{text}".replace("\n", f"\n{_INDENT}") for text in texts) + "\n]"

    def _options(self, options: Any, more: Iterable[str] = ()) -> list[str]:
        texts: list[str] = []
        for field, value in options.ListFields():
            if field.name == "uninterpreted_option":
                texts += [_uninterpreted(item) for item in value]
            elif field.is_extension:
                continue
            elif field.message_type is not None and not field.is_repeated:
                texts += [f"{field.name}.{item}" for item in self._options(value)]
            else:
                for item in value if field.is_repeated else (value,):
                    texts.append(f"{field.name} = {_value(field, item)}")
        texts += more
        return sorted(texts, key=_option_name) if self._is_normal else texts

    def _sorted(self, texts: Iterable[str]) -> list[str]:
        return sorted(set(texts)) if self._is_normal else list(texts)


def _block(head: str, sections: Iterable[Lines]) -> Lines:
    """Return a head with its sections, which blank lines part, in braces."""
    lines = _after_blank([*_indented(section)] for section in sections)[1:]
    return [f"{head} {{", *lines, "}"] if lines else [f"{head} {{}}"]


def _after_blank(sections: Iterable[Lines]) -> Lines:
    """Return the lines of sections that have some, each after a blank line."""
    return [line for section in sections if section for line in ("", *section)]


def _option_name(text: str) -> str:
    return text.partition(" = ")[0].replace("(", "").replace(")", "")


def _is_member(field: Any) -> bool:
    """Return whether a field is in an explicit oneof."""
    return bool(field.HasField("oneof_index") and not field.proto3_optional)


def _implied(message: Any) -> set[str]:
    """Return the entries of maps that need not be messages of the text: they stand behind all others.

    Data names messages by their numbers among all. Compilers put an entry where its field is, so that it may be counted.
    """
    names = set()
    for inner in reversed(message.nested_type):
        if not inner.options.map_entry:
            break
        names.add(inner.name)
    return names


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


def _default(field: Any) -> str:
    if field.type == _FIELD.TYPE_STRING:
        return _quoted(field.default_value)
    value = str(field.default_value)
    return f'"{value}"' if field.type == _FIELD.TYPE_BYTES else value  # bytes are escaped already


def _quoted(text: str) -> str:
    return f'"{"".join(_escaped(letter) for letter in text)}"'


def _escaped(letter: str) -> str:
    return _ESCAPES.get(letter) or (f"\\{ord(letter):03o}" if letter < " " else letter)


def _json_name(name: str) -> str:
    """Return the default JSON name of a field."""
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


def _uninterpreted(option: Any) -> str:
    name = ".".join(f"({part.name_part})" if part.is_extension else part.name_part for part in option.name)
    if option.HasField("string_value"):
        return f"{name} = {_quoted(option.string_value.decode('utf-8', 'replace'))}"
    if option.HasField("aggregate_value"):
        return f"{name} = {{ {option.aggregate_value} }}"
    for field in ("identifier_value", "positive_int_value", "negative_int_value", "double_value"):
        if option.HasField(field):
            return f"{name} = {getattr(option, field)}"
    return f"{name} = true"
