"""Messages to files: which module a message goes to, and the text of every generated file.

The rule: the output is a function of the schemas alone; the same schemas give the same bytes everywhere.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from codegen.emit import Formats, class_alias, value_source
from codegen.emit_decode import emit_decoder
from codegen.emit_encode import emit_encoder
from codegen.model import Field, FieldType, Message, SchemaError, snake
from codegen.plan import plans_by_layout, structs_of

TOPICS = {
    "consumer_offsets": "__consumer_offsets",
    "transaction_state": "__transaction_state",
    "share_group_state": "__share_group_state",
}
"""Folders of `schemas/records` and the internal topics of which they define the records."""

FRAMED = {
    "metadata": ("metadata_records", "the metadata log"),
    "remote_log_metadata": ("records", "__remote_log_metadata"),
}
"""Folders of records that have a key in a frame: where their code goes, and the log that they are in."""

PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
    "records": "bytes | bytearray | memoryview | FileRegion",
}

PRIMITIVES = (
    "BOOLS", "FLOAT64S", "INT8S", "INT16S", "INT32S", "INT64S", "NO_LIMIT", "UINT16S", "UINT32S", "UUIDS", "UVARINT",
    "ZERO_UUID", "Buffer", "Chunk", "FileRegion", "NullFieldError", "UnsupportedFieldError", "bad_tag_size",
    "cut_short", "encode_string_length", "encode_uvarint", "join", "new", "null_value", "read_tags",
    "read_unknown_tags", "read_uvarint", "string_length", "too_many_entries", "write_tags",
)  # fmt: skip
"""Names that generated code may take from `wire.primitives`."""

CODEC_NAMES = {
    "request": "REQUEST",
    "response": "RESPONSE",
    "coordinator-key": "KEY",
    "coordinator-value": "VALUE",
    "data": "CODEC",
    "metadata": "CODEC",
}


@dataclass(frozen=True)
class Module:
    """One generated module: its path below `generated/` and the messages in it."""

    path: str
    messages: tuple[Message, ...]

    @property
    def name(self) -> str:
        """The module's own name, as in `offset_commit`."""
        return Path(self.path).stem


def render_all(messages: list[Message], errors: list[dict[str, Any]]) -> dict[str, str]:
    """Every generated file: path below `generated/` -> text."""
    modules = group(messages)
    files = {module.path: render_module(module) for module in modules}
    files["index.py"] = _template("index.py.j2").render(
        apis=api_rows(modules), topics=topic_rows(modules), metadata=metadata_rows(modules)
    )
    files["errors.py"] = _template("errors.py.j2").render(errors=errors)
    files["__init__.py"] = _template("init.py.j2").render(
        about="Codecs, made from `schemas/`; see `wire.registry`."
    )
    files["records/__init__.py"] = _template("init.py.j2").render(
        about="Records of the internal topics: `KEY`, `VALUE` and both as `RECORD`; `CODEC` of those that are framed."
    )
    files["data/__init__.py"] = _template("init.py.j2").render(
        about="Payloads inside other things: group protocols, control records, files. Each has `CODEC`."
    )
    files["metadata_records/__init__.py"] = _template("init.py.j2").render(
        about="Records of the metadata log of a KRaft quorum. Each has `CODEC`; `wire.metadata_records` has the frame."
    )
    return files


def group(messages: list[Message]) -> list[Module]:
    """Requests with their responses, keys with their values, everything else on its own."""
    by_path: dict[str, list[Message]] = {}
    for message in messages:
        by_path.setdefault(module_path(message), []).append(message)
    order = {"request": 0, "coordinator-key": 0}
    return [
        Module(
            path,
            tuple(
                sorted(by_path[path], key=lambda definition: (order.get(definition.kind, 1), definition.name))
            ),
        )
        for path in sorted(by_path)
    ]


def module_path(message: Message) -> str:
    """Path of the message's code, below `generated/`."""
    if message.kind == "header":
        return "headers.py"
    if message.kind == "data":
        return f"data/{snake(message.name)}.py"
    if message.kind == "metadata":
        return f"{_framed(message)[0]}/{snake(base_name(message))}.py"
    if message.kind in ("request", "response"):
        return f"{snake(base_name(message))}.py"
    return f"records/{snake(base_name(message))}.py"


def base_name(message: Message) -> str:
    """The name of what the message is one half of: `ProduceRequest` -> `Produce`."""
    suffix = {
        "request": "Request",
        "response": "Response",
        "coordinator-key": "Key",
        "coordinator-value": "Value",
        "metadata": "Record",
    }
    if not message.name.endswith(suffix[message.kind]):
        raise SchemaError(message.where, f"the name of a {message.kind} ends in {suffix[message.kind]}")
    return message.name.removesuffix(suffix[message.kind])


def render_module(module: Module) -> str:
    """The text of one module."""
    formats = Formats()
    codecs = [_codec(message, formats) for message in module.messages]
    classes = [_classes(message) for message in module.messages]
    body = "\n".join(line for codec in codecs for line in codec["functions"])
    return _template("module.py.j2").render(
        imports=[name for name in PRIMITIVES if re.search(rf"\b{name}\b", body + str(classes))],
        sources=[_source(message) for message in module.messages],
        about=_module_about(module),
        records=_records(module),
        messages=classes,
        aliases=[line for message in module.messages for line in _aliases(message)],
        structs=formats.lines(),
        codecs=codecs,
        has_factories="field(default_factory" in str(classes),
    )


def api_rows(modules: list[Module]) -> list[dict[str, Any]]:
    """The rows of the index of APIs, by key."""
    rows = []
    for module in modules:
        by_kind = {message.kind: message for message in module.messages}
        if "request" not in by_kind:
            continue
        if "response" not in by_kind:
            raise SchemaError(by_kind["request"].where, "has no response")
        request, response = by_kind["request"], by_kind["response"]
        rows.append(
            {
                "key": request.api_key,
                "name": base_name(request),
                "module": module.name,
                "request": (request.versions.first, request.versions.last),
                "response": (response.versions.first, response.versions.last),
                "flexible": request.flexible.first if request.flexible else None,
                "unstable": request.latest_unstable,
                "listeners": request.listeners,
            }
        )
    return sorted(rows, key=lambda row: row["key"])


def topic_rows(modules: list[Module]) -> dict[str, dict[int, str]]:
    """Internal topic -> type of record -> module."""
    rows: dict[str, dict[int, str]] = {topic: {} for topic in TOPICS.values()}
    for module in modules:
        message = module.messages[0]
        if message.kind == "coordinator-key":
            assert message.api_key is not None
            rows[_topic(message)][message.api_key] = module.name
    return {topic: dict(sorted(types.items())) for topic, types in rows.items()}


def metadata_rows(modules: list[Module]) -> dict[int, tuple[str, str]]:
    """Key of a metadata record -> its name without `Record`, and its module."""
    messages = [(module.messages[0], module.name) for module in modules]
    rows = {
        message.api_key: (base_name(message), name)
        for message, name in messages
        if module_path(message).startswith("metadata_records/") and message.api_key is not None
    }
    return dict(sorted(rows.items()))


def _topic(message: Message) -> str:
    folder = message.path.parent.name
    if folder not in TOPICS:
        raise SchemaError(message.where, f"no internal topic is known for the folder {folder!r}")
    return TOPICS[folder]


def _framed(message: Message) -> tuple[str, str]:
    folder = message.path.parent.name
    if folder not in FRAMED:
        raise SchemaError(message.where, f"no log is known for the folder {folder!r}")
    return FRAMED[folder]


def _source(message: Message) -> str:
    parts = message.path.parts
    return "/".join(parts[parts.index("schemas") :]) if "schemas" in parts else message.path.name


def _module_about(module: Module) -> str:
    """Purpose of the module, in a line."""
    message = module.messages[0]
    span = f"v{message.versions}" if message.versions.first == message.versions.last else (
        f"v{message.versions.first}-v{message.versions.last}"
    )  # fmt: skip
    if message.kind == "request":
        return f"{base_name(message)}: API key {message.api_key}, {span}."
    if message.kind == "coordinator-key":
        return f"{base_name(message)}: record type {message.api_key} of {_topic(message)}."
    if message.kind == "metadata":
        return f"{message.name}: key {message.api_key} in {_framed(message)[1]}, {span}."
    if message.kind == "header":
        return "The headers of requests and responses."
    return f"{message.name}, {span}."


def _records(module: Module) -> dict[str, Any] | None:
    message = module.messages[0]
    if message.kind != "coordinator-key":
        return None
    if len(module.messages) != 2:
        raise SchemaError(message.where, "has no value")
    value = module.messages[1]
    return {"type": message.api_key, "topic": _topic(message), "key": message.name, "value": value.name}


def _codec(message: Message, formats: Formats) -> dict[str, Any]:
    stem = snake(message.name)
    functions: list[str] = []
    decoders = ["None"] * (message.versions.last + 1)
    encoders = ["None"] * (message.versions.last + 1)
    for plan, versions in plans_by_layout(message):
        decoder, encoder = f"decode_{stem}_v{versions[0]}", f"encode_{stem}_v{versions[0]}"
        functions += ["", "", *emit_decoder(message, plan, decoder, formats)]
        functions += ["", "", *emit_encoder(message, plan, encoder, versions, formats)]
        for version in versions:
            decoders[version], encoders[version] = decoder, encoder
    return {
        "table": f"{snake(message.name).upper()}" if message.kind == "header" else CODEC_NAMES[message.kind],
        "message": message.name,
        "functions": functions,
        "decoders": decoders,
        "encoders": encoders,
        "flexible": message.flexible.first if message.flexible else None,
        "records": any(field.type.name == "records" for _, field in message.all_fields()),
    }


def _aliases(message: Message) -> list[str]:
    return [f"{class_alias(message, name)} = {message.name}.{name}" for name in _used_structs(message)]


def _used_structs(message: Message) -> list[str]:
    """The structs that occur in any version, in order of definition."""
    used = {plan.struct for plan, _ in plans_by_layout(message) for plan in structs_of(plan)}
    return [name for name in message.structs if name in used]


def _classes(message: Message) -> dict[str, Any]:
    nested = [
        {
            "name": name,
            "about": _struct_about(message, name),
            "fields": [_attribute(message, field) for field in message.structs[name].fields],
        }
        for name in _used_structs(message)
    ]
    return {
        "name": message.name,
        "about": message.about or f"{message.name}.",
        "nested": nested,
        "fields": [_attribute(message, field) for field in message.fields],
    }


def _struct_about(message: Message, name: str) -> str:
    """The description of a struct: its own, or that of the field that defines it."""
    if message.structs[name].about:
        return message.structs[name].about
    field = next(field for _, field in message.all_fields() if field.type.name == name)
    noun = "An item" if field.type.array else "The value"
    return f"{noun} of `{field.attribute}`: {field.about[:1].lower()}{field.about[1:]}"


def _attribute(message: Message, field: Field) -> dict[str, str]:
    kind = field.type
    source = value_source(message, field)
    if source == "[]":
        default = "field(default_factory=list)"
    elif kind.is_struct and not kind.array and source != "None":
        default = f"field(default_factory=lambda: {message.name}.{kind.name}())"
    else:
        default = source
    return {
        "name": field.attribute,
        "type": python_type(message, field),
        "default": default,
        "about": field.about,
        "versions": str(field.versions & message.versions),
    }


def python_type(message: Message, field: Field) -> str:
    """The annotation of a field's attribute."""
    kind = field.type
    element = _element_type(message, kind)
    text = f"list[{element}]" if kind.array else element
    optional = field.nullable or (field.has_default and field.default is None and kind.name != "uuid")
    return f"{text} | None" if optional or kind.name == "records" else text


def _element_type(message: Message, kind: FieldType) -> str:
    if kind.is_struct:
        return f"{message.name}.{kind.name}"
    return PYTHON_TYPES.get(kind.name, "int")


def load_errors(path: Path) -> list[dict[str, Any]]:
    """The rows of `errors.json`."""
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["errors"]
    return rows


def _template(name: str) -> jinja2.Template:
    return _ENVIRONMENT.get_template(name)


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
    autoescape=False,
)
