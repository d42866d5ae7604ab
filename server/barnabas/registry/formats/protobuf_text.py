"""Text of .proto files as descriptors.

The rule: texts are read as by protoc, and the descriptor pool of the protobuf library checks names and numbers.
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
"""Numbers in a base other than ten, and the tokens that could be mistaken for them; each position is scanned once."""
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
    """Return the descriptor of a file; type names are those of the text.

    `is_new` refuses fields of proto2 without a label, which older releases accepted as optional. Raises SchemaError.
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
    ) as error:  # raised by the parser for unsupported syntax
        raise SchemaError(f"it cannot be read: {error}") from None


def _with_decimal_numbers(text: str) -> str:
    """Return a text with decimal numbers for hexadecimal and octal ones, which the parser does not support."""
    return _TOKEN.sub(_decimal, text)


def _decimal(token: re.Match[str]) -> str:
    number = token["number"]
    if number is None:
        return token[0]
    return str(int(number, 16 if number[1] in "xX" else 8))


class _Reading:
    """The descriptor of one parsed file."""

    def __init__(self, file: ast.File, *, is_new: bool) -> None:
        self._file = file
        self._is_proto3 = file.syntax == "proto3"
        self._needs_labels = is_new and file.syntax in (None, "proto2") and file.edition is None

    def descriptor(self, name: str) -> Any:
        file = self._file
        descriptor = descriptor_pb2.FileDescriptorProto(name=name)
        if file.edition is not None:
            descriptor.syntax = "editions"
            try:
                descriptor.edition = descriptor_pb2.Edition.Value(f"EDITION_{file.edition}")
            except ValueError:
                raise SchemaError(f"there is no edition {file.edition}") from None
        elif file.syntax not in (None, "proto2", "proto3"):
            raise SchemaError(f"there is no syntax {file.syntax}")
        elif self._is_proto3:
            descriptor.syntax = "proto3"
        for element in file.file_elements:
            if isinstance(element, ast.Package):
                descriptor.package = element.name
            elif isinstance(element, ast.Import):
                if element.public or element.weak:
                    kept = descriptor.public_dependency if element.public else descriptor.weak_dependency
                    kept.append(len(descriptor.dependency))
                descriptor.dependency.append(element.name)
            elif isinstance(element, ast.Message):
                self._message(descriptor.message_type.add(), element.name, element.elements)
            elif isinstance(element, ast.Enum):
                self._enum(descriptor.enum_type.add(), element)
            elif isinstance(element, ast.Extension):
                self._extension(descriptor, descriptor.message_type, element)
            elif isinstance(element, ast.Service):
                self._service(descriptor.service.add(), element)
            elif isinstance(element, ast.Option):
                _set_option(descriptor.options, element)
        return descriptor

    def _message(self, message: Any, name: str, elements: list[Any]) -> None:
        message.name = name
        optional: list[Any] = []
        maps: list[Any] = []
        for element in elements:
            if isinstance(element, ast.Field):
                self._check_label(element)
                field = self._field(message.field.add(), element)
                if self._is_proto3 and element.cardinality is ast.FieldCardinality.OPTIONAL:
                    optional.append(field)
            elif isinstance(element, ast.MapField):
                maps.append(self._map(message, element))
            elif isinstance(element, ast.Group):
                self._check_label(element)
                self._group(message.field.add(), message.nested_type, element)
            elif isinstance(element, ast.OneOf):
                self._one_of(message, element)
            elif isinstance(element, ast.Message):
                self._message(message.nested_type.add(), element.name, element.elements)
            elif isinstance(element, ast.Enum):
                self._enum(message.enum_type.add(), element)
            elif isinstance(element, ast.Extension):
                self._extension(message, message.nested_type, element)
            elif isinstance(element, ast.Reserved):
                message.reserved_name.extend(map(_text, element.names))
                for begin, end in _ranges(element.ranges, FIELD_NUMBER_MAX):
                    message.reserved_range.add(start=begin, end=end + 1)
            elif isinstance(element, ast.ExtensionRange):
                for begin, end in _ranges(element.ranges, FIELD_NUMBER_MAX):
                    added = message.extension_range.add(start=begin, end=end + 1)
                    for option in element.options:
                        _set_option(added.options, option)
            elif isinstance(element, ast.Option):
                _set_option(message.options, element)
        message.nested_type.extend(maps)  # behind the messages of the text, which data names by their numbers
        for field in optional:  # each has its own oneof, after those of the text
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _check_label(self, field: ast.Field | ast.Group) -> None:
        if self._needs_labels and field.cardinality is None:
            raise SchemaError(f"{field.name} of proto2 is required, optional or repeated")

    def _field(self, descriptor: Any, field: ast.Field) -> Any:
        descriptor.name, descriptor.number, descriptor.label = (
            field.name,
            field.number,
            _LABELS[field.cardinality],
        )
        _set_type(descriptor, field.type)
        for option in field.options:
            if option.name == "json_name":
                descriptor.json_name = _text(option.value)
            elif option.name == "default":
                descriptor.default_value = _default(descriptor, option.value)
            else:
                _set_option(descriptor.options, option)
        return descriptor

    def _map(self, message: Any, map_field: ast.MapField) -> Any:
        """Add a map field; returns the message of its entries."""
        if map_field.key_type not in SCALARS or map_field.key_type in ("double", "float", "bytes"):
            raise SchemaError(f"the key of a map is no {map_field.key_type}")
        name = "".join(part[:1].upper() + part[1:] for part in map_field.name.split("_")) + "Entry"
        entry = descriptor_pb2.DescriptorProto(name=name)
        entry.options.map_entry = True
        for number, (part, kind) in enumerate(
            (("key", map_field.key_type), ("value", map_field.value_type)), 1
        ):
            field = entry.field.add(name=part, number=number, label=_LABELS[None])
            _set_type(field, kind)
        repeated = ast.FieldCardinality.REPEATED
        field = self._field(
            message.field.add(),
            ast.Field(map_field.name, map_field.number, name, repeated, options=map_field.options),
        )
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
        return entry

    def _group(self, field: Any, beside: Any, group: ast.Group) -> None:
        field.name, field.number, field.label = group.name.lower(), group.number, _LABELS[group.cardinality]
        field.type, field.type_name = descriptor_pb2.FieldDescriptorProto.TYPE_GROUP, group.name
        self._message(beside.add(), group.name, group.elements)

    def _one_of(self, message: Any, group: ast.OneOf) -> None:
        number = len(message.oneof_decl)
        declared = message.oneof_decl.add(name=group.name)
        for element in group.elements:
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

    def _extension(self, scope: Any, beside: Any, extension: ast.Extension) -> None:
        for element in extension.elements:
            if isinstance(element, ast.Field | ast.Group):
                self._check_label(element)
            if isinstance(element, ast.Field):
                self._field(scope.extension.add(extendee=extension.typeName), element)
            elif isinstance(element, ast.Group):
                self._group(scope.extension.add(extendee=extension.typeName), beside, element)

    def _enum(self, descriptor: Any, enum: ast.Enum) -> None:
        descriptor.name = enum.name
        for element in enum.elements:
            if isinstance(element, ast.EnumValue):
                value = descriptor.value.add(name=element.name, number=element.number)
                for option in element.options:
                    _set_option(value.options, option)
            elif isinstance(element, ast.EnumReserved):
                descriptor.reserved_name.extend(map(_text, element.names))
                for begin, end in _ranges(element.ranges, ENUM_NUMBER_MAX):
                    descriptor.reserved_range.add(start=begin, end=end)
            elif isinstance(element, ast.Option):
                _set_option(descriptor.options, element)

    def _service(self, descriptor: Any, service: ast.Service) -> None:
        descriptor.name = service.name
        for element in service.elements:
            if isinstance(element, ast.Method):
                method = descriptor.method.add(
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
                _set_option(descriptor.options, element)


def _set_type(field: Any, name: str) -> None:
    if name in SCALARS:
        field.type = SCALARS[name]
    else:
        field.type_name = name


def _ranges(texts: list[str], last: int) -> list[tuple[int, int]]:
    ranges = []
    for text in texts:
        begin, to, end = (part.strip() for part in text.partition("to"))
        ranges.append((int(begin, 0), last if end == "max" else int(end if to else begin, 0)))
    return ranges


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


def _set_option(options: Any, option: ast.Option) -> None:
    """Set an option that protobuf itself has; any other stays uninterpreted, as it is written."""
    first, _, rest = option.name.partition(".")
    field = options.DESCRIPTOR.fields_by_name.get(first)
    if field is not None and field.message_type is not None and rest in field.message_type.fields_by_name:
        _set_option(
            getattr(options, first), replace(option, name=rest)
        )  # as features.field_presence of an edition
        return
    scalar = not isinstance(option.value, ast.MessageLiteral | list)
    if field is not None and field.message_type is None and scalar and field.name != "uninterpreted_option":
        try:
            if field.enum_type is not None:
                value: Any = field.enum_type.values_by_name[option.value.name].number
            else:
                value = _text(option.value) if isinstance(option.value, str) else option.value
            if field.is_repeated:
                getattr(options, option.name).append(value)
            else:
                setattr(options, option.name, value)
        except (KeyError, TypeError, AttributeError, ValueError):
            raise SchemaError(f"the option {option.name} does not take {option.value!r}") from None
        return
    kept = options.uninterpreted_option.add()
    for part in re.findall(r"\([^()]*\)|[^.()]+", option.name):
        is_extension = part.startswith("(")
        kept.name.add(name_part=part.strip("()"), is_extension=is_extension)
    _set_value(kept, option.value)


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
    """Return a message, or a part of it, in protobuf's text format."""
    if isinstance(value, ast.MessageLiteral):
        fields = [element for element in value.elements if isinstance(element, ast.MessageLiteralField)]
        return " ".join(f"{field.name}: {_wrapped(field.value)}" for field in fields)
    return _wrapped(value)


def _wrapped(value: Any) -> str:
    if isinstance(value, ast.MessageLiteral):
        return f"{{ {_literal(value)} }}"
    if isinstance(value, list):
        return f"[{', '.join(_wrapped(item) for item in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, ast.Identifier):
        return str(value.name)
    return f'"{value}"' if isinstance(value, str) else str(value)
