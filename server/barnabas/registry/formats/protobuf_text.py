"""Text of .proto files as descriptors.

The rule: this reads as protoc does, and the descriptor pool of the protobuf library says whether names and numbers make
sense.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf import descriptor_pb2, text_encoding
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from barnabas.registry.errors import SchemaError

SCALARS = {
    name: getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32",
        "sfixed32", "sfixed64", "sint32", "sint64",
    )
}  # fmt: skip
_LABELS = {
    ast.FieldCardinality.OPTIONAL: descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    ast.FieldCardinality.REQUIRED: descriptor_pb2.FieldDescriptorProto.LABEL_REQUIRED,
    ast.FieldCardinality.REPEATED: descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED,
    None: descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
}
FIELD_NUMBER_MAX = 536870911
ENUM_NUMBER_MAX = 2**31 - 1
_TOKEN = re.compile(
    r"""
    (?P<number>0[xX][0-9a-fA-F]+|0[0-7]+)(?![0-9A-Za-z_.])
    | [0-9A-Za-z_.]+
    | "(?:[^"\\\n]|\\.)*+"? | '(?:[^'\\\n]|\\.)*+'?
    | //[^\n]* | /\*(?:.*?\*/|.*)
    """,
    re.VERBOSE | re.DOTALL,
)
"""Numbers in another base than ten, and all that they may be mistaken for; each place is looked at once."""
_JOINED = re.compile(r"""(["'])\s*\1""")


class _Errors(ErrorListener):  # type: ignore[misc]
    def syntaxError(  # noqa: N802
        self,
        recognizer: Any,  # noqa: ARG002
        offendingSymbol: Any,  # noqa: ARG002, N803
        line: int,
        column: int,
        msg: str,
        e: Any,  # noqa: ARG002
    ) -> None:
        raise SchemaError(f"Syntax error in {line}:{column}: {msg}")


def _strictly(part: Any) -> None:
    part.removeErrorListeners()
    part.addErrorListener(_Errors())


def read(text: str, name: str, *, is_new: bool = False) -> Any:
    """Return the descriptor of a file; types are named as the text does.

    `is_new` refuses fields of proto2 without a label, which were taken for optional ones. Raises SchemaError.
    """
    try:
        file = Parser(setup_lexer=_strictly, setup_parser=_strictly).parse(_with_decimal_numbers(text))
        return _Reading(file, is_new=is_new).descriptor(name)
    except SchemaError:
        raise
    except (
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
    ) as error:  # of the parser, for what it cannot express
        raise SchemaError(f"it cannot be read: {error}") from None


def _with_decimal_numbers(text: str) -> str:
    """Return a text whose hexadecimal and octal numbers are decimal ones, which are all that the parser knows."""
    return _TOKEN.sub(_decimal, text)


def _decimal(token: re.Match[str]) -> str:
    number = token["number"]
    if number is None:
        return token[0]
    return str(int(number, 16 if number[1] in "xX" else 8))


class _Reading:
    """One file."""

    def __init__(self, file: ast.File, *, is_new: bool) -> None:
        self._file = file
        self._is_proto3 = file.syntax == "proto3"
        self._needs_labels = is_new and file.syntax in (None, "proto2") and file.edition is None

    def descriptor(self, name: str) -> Any:
        file = self._file
        found = descriptor_pb2.FileDescriptorProto(name=name)
        if file.edition is not None:
            found.syntax = "editions"
            try:
                found.edition = descriptor_pb2.Edition.Value(f"EDITION_{file.edition}")
            except ValueError:
                raise SchemaError(f"there is no edition {file.edition}") from None
        elif file.syntax not in (None, "proto2", "proto3"):
            raise SchemaError(f"there is no syntax {file.syntax}")
        elif self._is_proto3:
            found.syntax = "proto3"
        for one in file.file_elements:
            if isinstance(one, ast.Package):
                found.package = one.name
            elif isinstance(one, ast.Import):
                if one.public or one.weak:
                    kept = found.public_dependency if one.public else found.weak_dependency
                    kept.append(len(found.dependency))
                found.dependency.append(one.name)
            elif isinstance(one, ast.Message):
                self._message(found.message_type.add(), one.name, one.elements)
            elif isinstance(one, ast.Enum):
                self._enum(found.enum_type.add(), one)
            elif isinstance(one, ast.Extension):
                self._extension(found, found.message_type, one)
            elif isinstance(one, ast.Service):
                self._service(found.service.add(), one)
            elif isinstance(one, ast.Option):
                _set_option(found.options, one)
        return found

    def _message(self, found: Any, name: str, elements: list[Any]) -> None:
        found.name = name
        optional: list[Any] = []
        maps: list[Any] = []
        for one in elements:
            if isinstance(one, ast.Field):
                self._check_label(one)
                field = self._field(found.field.add(), one)
                if self._is_proto3 and one.cardinality is ast.FieldCardinality.OPTIONAL:
                    optional.append(field)
            elif isinstance(one, ast.MapField):
                maps.append(self._map(found, one))
            elif isinstance(one, ast.Group):
                self._check_label(one)
                self._group(found.field.add(), found.nested_type, one)
            elif isinstance(one, ast.OneOf):
                self._one_of(found, one)
            elif isinstance(one, ast.Message):
                self._message(found.nested_type.add(), one.name, one.elements)
            elif isinstance(one, ast.Enum):
                self._enum(found.enum_type.add(), one)
            elif isinstance(one, ast.Extension):
                self._extension(found, found.nested_type, one)
            elif isinstance(one, ast.Reserved):
                found.reserved_name.extend(map(_text, one.names))
                for begin, end in _ranges(one.ranges, FIELD_NUMBER_MAX):
                    found.reserved_range.add(start=begin, end=end + 1)
            elif isinstance(one, ast.ExtensionRange):
                for begin, end in _ranges(one.ranges, FIELD_NUMBER_MAX):
                    added = found.extension_range.add(start=begin, end=end + 1)
                    for option in one.options:
                        _set_option(added.options, option)
            elif isinstance(one, ast.Option):
                _set_option(found.options, one)
        found.nested_type.extend(maps)  # behind the messages of the text, which data names by their numbers
        for field in optional:  # each is alone in a oneof, after those of the text
            field.proto3_optional = True
            field.oneof_index = len(found.oneof_decl)
            found.oneof_decl.add(name=f"_{field.name}")

    def _check_label(self, one: ast.Field | ast.Group) -> None:
        if self._needs_labels and one.cardinality is None:
            raise SchemaError(f"{one.name} of proto2 is required, optional or repeated")

    def _field(self, found: Any, one: ast.Field) -> Any:
        found.name, found.number, found.label = one.name, one.number, _LABELS[one.cardinality]
        _set_type(found, one.type)
        for option in one.options:
            if option.name == "json_name":
                found.json_name = _text(option.value)
            elif option.name == "default":
                found.default_value = _default(found, option.value)
            else:
                _set_option(found.options, option)
        return found

    def _map(self, message: Any, one: ast.MapField) -> Any:
        """Add the field of a map; returns the message of its entries."""
        if one.key_type not in SCALARS or one.key_type in ("double", "float", "bytes"):
            raise SchemaError(f"the key of a map is no {one.key_type}")
        name = "".join(part[:1].upper() + part[1:] for part in one.name.split("_")) + "Entry"
        entry = descriptor_pb2.DescriptorProto(name=name)
        entry.options.map_entry = True
        for number, (part, kind) in enumerate((("key", one.key_type), ("value", one.value_type)), 1):
            field = entry.field.add(name=part, number=number, label=_LABELS[None])
            _set_type(field, kind)
        repeated = ast.FieldCardinality.REPEATED
        field = self._field(
            message.field.add(), ast.Field(one.name, one.number, name, repeated, options=one.options)
        )
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
        return entry

    def _group(self, found: Any, beside: Any, one: ast.Group) -> None:
        found.name, found.number, found.label = one.name.lower(), one.number, _LABELS[one.cardinality]
        found.type, found.type_name = descriptor_pb2.FieldDescriptorProto.TYPE_GROUP, one.name
        self._message(beside.add(), one.name, one.elements)

    def _one_of(self, message: Any, one: ast.OneOf) -> None:
        number = len(message.oneof_decl)
        declared = message.oneof_decl.add(name=one.name)
        for element in one.elements:
            if isinstance(element, ast.Option):
                _set_option(declared.options, element)
                continue
            if isinstance(element, ast.Field):
                field = self._field(message.field.add(), element)
            elif isinstance(element, ast.Group):
                field = message.field.add()
                self._group(field, message.nested_type, element)
            else:
                continue
            field.oneof_index = number

    def _extension(self, found: Any, beside: Any, one: ast.Extension) -> None:
        for element in one.elements:
            if isinstance(element, ast.Field | ast.Group):
                self._check_label(element)
            if isinstance(element, ast.Field):
                self._field(found.extension.add(extendee=one.typeName), element)
            elif isinstance(element, ast.Group):
                self._group(found.extension.add(extendee=one.typeName), beside, element)

    def _enum(self, found: Any, one: ast.Enum) -> None:
        found.name = one.name
        for element in one.elements:
            if isinstance(element, ast.EnumValue):
                value = found.value.add(name=element.name, number=element.number)
                for option in element.options:
                    _set_option(value.options, option)
            elif isinstance(element, ast.EnumReserved):
                found.reserved_name.extend(map(_text, element.names))
                for begin, end in _ranges(element.ranges, ENUM_NUMBER_MAX):
                    found.reserved_range.add(start=begin, end=end)
            elif isinstance(element, ast.Option):
                _set_option(found.options, element)

    def _service(self, found: Any, one: ast.Service) -> None:
        found.name = one.name
        for element in one.elements:
            if isinstance(element, ast.Method):
                method = found.method.add(
                    name=element.name,
                    input_type=element.input_type.type,
                    output_type=element.output_type.type,
                )
                if element.input_type.stream:
                    method.client_streaming = True
                if element.output_type.stream:
                    method.server_streaming = True
                for option in element.elements:
                    if isinstance(option, ast.Option):
                        _set_option(method.options, option)
            elif isinstance(element, ast.Option):
                _set_option(found.options, element)


def _set_type(field: Any, name: str) -> None:
    if name in SCALARS:
        field.type = SCALARS[name]
    else:
        field.type_name = name


def _ranges(texts: list[str], last: int) -> list[tuple[int, int]]:
    found = []
    for text in texts:
        begin, to, end = (part.strip() for part in text.partition("to"))
        found.append((int(begin, 0), last if end == "max" else int(end if to else begin, 0)))
    return found


def _text(value: Any) -> str:
    """Return a literal as text, its escapes resolved."""
    if not isinstance(value, str):
        raise SchemaError(f"{value!r} is no text")
    return str(text_encoding.CUnescape(_JOINED.sub("", value)).decode("utf-8", "replace"))


def _default(field: Any, value: Any) -> str:
    if isinstance(value, ast.Identifier):
        return str(value.name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if field.type == descriptor_pb2.FieldDescriptorProto.TYPE_STRING:
        return _text(value)
    if field.type == descriptor_pb2.FieldDescriptorProto.TYPE_BYTES and isinstance(value, str):
        return str(text_encoding.CEscape(text_encoding.CUnescape(_JOINED.sub("", value)), as_utf8=False))
    return str(value)


def _set_option(options: Any, one: ast.Option) -> None:
    """Set an option that protobuf itself has; any other stays uninterpreted, as it is written."""
    first, _, rest = one.name.partition(".")
    field = options.DESCRIPTOR.fields_by_name.get(first)
    if field is not None and field.message_type is not None and rest in field.message_type.fields_by_name:
        _set_option(
            getattr(options, first), replace(one, name=rest)
        )  # as features.field_presence of an edition
        return
    scalar = not isinstance(one.value, ast.MessageLiteral | list)
    if field is not None and field.message_type is None and scalar and field.name != "uninterpreted_option":
        try:
            if field.enum_type is not None:
                value: Any = field.enum_type.values_by_name[one.value.name].number
            else:
                value = _text(one.value) if isinstance(one.value, str) else one.value
            if field.is_repeated:
                getattr(options, one.name).append(value)
            else:
                setattr(options, one.name, value)
        except (KeyError, TypeError, AttributeError, ValueError):
            raise SchemaError(f"the option {one.name} does not take {one.value!r}") from None
        return
    kept = options.uninterpreted_option.add()
    for part in re.findall(r"\([^()]*\)|[^.()]+", one.name):
        is_extension = part.startswith("(")
        kept.name.add(name_part=part.strip("()"), is_extension=is_extension)
    _set_value(kept, one.value)


def _set_value(kept: Any, value: Any) -> None:
    if isinstance(value, bool):
        kept.identifier_value = "true" if value else "false"
    elif isinstance(value, ast.Identifier):
        kept.identifier_value = value.name
    elif isinstance(value, int):
        if value >= 0:
            kept.positive_int_value = value
        else:
            kept.negative_int_value = value
    elif isinstance(value, float):
        kept.double_value = value
    elif isinstance(value, str):
        kept.string_value = text_encoding.CUnescape(_JOINED.sub("", value))
    else:
        kept.aggregate_value = _literal(value)


def _literal(value: Any) -> str:
    """Return a message, or a part of one, as protobuf's text has it."""
    if isinstance(value, ast.MessageLiteral):
        fields = [one for one in value.elements if isinstance(one, ast.MessageLiteralField)]
        return " ".join(f"{one.name}: {_wrapped(one.value)}" for one in fields)
    return _wrapped(value)


def _wrapped(value: Any) -> str:
    if isinstance(value, ast.MessageLiteral):
        return f"{{ {_literal(value)} }}"
    if isinstance(value, list):
        return f"[{', '.join(_wrapped(one) for one in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, ast.Identifier):
        return str(value.name)
    return f'"{value}"' if isinstance(value, str) else str(value)
