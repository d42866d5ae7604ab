"""The rules of the schema language, beyond what `parse` refuses.

The rule: every complaint names the file and the field, and says what to do instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen.model import OPEN_END, Field, Message, SchemaError, Struct, Versions
from codegen.plan import StructArray, StructPlan, plan_message, structs_of

INTEGER_RANGES = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}


def check_messages(messages: list[Message]) -> None:
    """Check each message and what they are together. Raises SchemaError for the first rule that is broken."""
    for message in messages:
        check_message(message)
    _check_together(messages)


def check_message(message: Message) -> None:
    """Check one message on its own. Raises SchemaError."""
    _check_head(message)
    _check_struct(message, Struct(message.name, message.versions, message.fields, "", message.where))
    for struct in message.structs.values():
        _check_struct(message, struct)
    for version in message.versions:
        for plan in structs_of(plan_message(message, version)):
            _check_arrays(message, plan, version)


def _check_head(message: Message) -> None:
    where = message.where
    keyed = message.kind in ("request", "response", "coordinator-key", "coordinator-value", "metadata")
    if keyed and (not isinstance(message.api_key, int) or message.api_key < 0):
        raise SchemaError(where, f"a {message.kind} needs an apiKey")
    if message.versions.last >= OPEN_END:
        raise SchemaError(where, "validVersions must have an end")
    if message.flexible and message.flexible.last != OPEN_END:
        raise SchemaError(where, "flexibleVersions must be open (`3+`) or `none`: a format does not go back")
    if message.kind == "coordinator-key" and message.versions != Versions(0, 0):
        raise SchemaError(where, "a coordinator-key has the version 0 only: its type id is the apiKey")


def _check_struct(message: Message, struct: Struct) -> None:
    names = {"unknown_tagged_fields"}
    for field in struct.fields:
        if field.attribute in names:
            raise SchemaError(field.where, f"the struct {struct.name} already has a field of that name")
        names.add(field.attribute)
        _check_field(message, field)
    _check_tags(struct)


def _check_field(message: Message, field: Field) -> None:
    where = field.where
    if not field.versions:
        raise SchemaError(where, "has neither versions nor taggedVersions")
    if field.nullable:
        if field.type.is_fixed and not field.type.array:
            raise SchemaError(where, f"a {field.type} cannot be null")
        if not field.nullable & field.versions:
            raise SchemaError(
                where, f"nullableVersions {field.nullable} lie outside of versions {field.versions}"
            )
    _check_default(message, field)
    if field.tagged:
        _check_tagged(message, field)
    elif field.tag is not None:
        raise SchemaError(where, "has a tag but no taggedVersions")
    if field.flexible is not None and field.type.name not in ("string", "bytes"):
        raise SchemaError(
            where, f"flexibleVersions of a field is for strings and bytes, not for {field.type}"
        )
    if field.type.array and field.type.name == "records":
        raise SchemaError(where, "an array of records has no encoding")


def _check_default(message: Message, field: Field) -> None:
    default = field.default
    if field.has_default and default is None and not field.nullable.covers(field.versions & message.versions):
        raise SchemaError(
            field.where,
            f"the default is null, but only versions {field.nullable} of {field.versions} can be null",
        )
    if field.type.array or isinstance(default, bool):
        return
    if field.type.name in INTEGER_RANGES and isinstance(default, int):
        lowest, highest = INTEGER_RANGES[field.type.name]
        if not lowest <= default <= highest:
            raise SchemaError(field.where, f"the default {default} does not fit into {field.type}")
    if field.type.name in ("bytes", "records") and default:
        raise SchemaError(field.where, f"the default of {field.type} can only be empty or null")


def _check_tagged(message: Message, field: Field) -> None:
    where = field.where
    if field.tag is None:
        raise SchemaError(where, "has taggedVersions but no tag")
    if field.tagged.last != OPEN_END:
        raise SchemaError(where, f"taggedVersions {field.tagged} must be open: a tag is never given up")
    if not field.versions.covers(field.tagged):
        raise SchemaError(where, f"taggedVersions {field.tagged} go beyond versions {field.versions}")
    if not message.flexible.covers(field.tagged & message.versions):
        raise SchemaError(where, f"taggedVersions {field.tagged} are not all flexible ({message.flexible})")
    if field.type.name == "records":
        raise SchemaError(
            where, "records cannot be tagged: they are sent from files, and a tag needs their size first"
        )


def _check_tags(struct: Struct) -> None:
    """In every version the tags of a struct are distinct; over all versions they are 0, 1, 2, ..."""
    tagged = [field for field in struct.fields if field.tag is not None]
    by_tag: dict[int, Field] = {}
    for field in tagged:
        assert field.tag is not None
        if field.tag in by_tag:
            raise SchemaError(field.where, f"the tag {field.tag} belongs to {by_tag[field.tag].name}")
        by_tag[field.tag] = field
    for expected, tag in enumerate(sorted(by_tag)):
        if tag != expected:
            raise SchemaError(
                by_tag[tag].where, f"has tag {tag}, but no field of {struct.name} has tag {expected}"
            )


def _check_arrays(message: Message, plan: StructPlan, version: int) -> None:
    """An item of an array takes at least a byte, or a peer could claim any number of them."""
    for step in plan.steps:
        array = step.tail
        if isinstance(array, StructArray) and array.element.size_min == 0:
            raise SchemaError(
                f"{message.where}: {array.name}",
                f"an item of {array.element.struct} takes no bytes in version {version}",
            )


def _check_together(messages: list[Message]) -> None:
    names: dict[str, Message] = {}
    keys: dict[tuple[str, str, int], Message] = {}
    for message in messages:
        if message.name in names:
            raise SchemaError(message.where, f"{names[message.name].where} already defines {message.name}")
        names[message.name] = message
        if message.api_key is not None:
            key = (message.kind, message.path.parent.name, message.api_key)
            if key in keys:
                raise SchemaError(
                    message.where, f"{keys[key].where} already has the apiKey {message.api_key}"
                )
            keys[key] = message
    for message in messages:
        for field, other in _pairs(message):
            if other not in names:
                raise SchemaError(message.where, f"there is no {other} for this {field}")
    _check_pairs(messages, names)


def _pairs(message: Message) -> Iterator[tuple[str, str]]:
    pairs = {
        "request": ("Request", "Response"),
        "response": ("Response", "Request"),
        "coordinator-key": ("Key", "Value"),
        "coordinator-value": ("Value", "Key"),
    }
    if message.kind in pairs:
        mine, other = pairs[message.kind]
        yield message.kind, message.name.removesuffix(mine) + other


def _check_pairs(messages: list[Message], names: dict[str, Message]) -> None:
    for message in messages:
        if message.kind != "request":
            continue
        response = names[message.name.removesuffix("Request") + "Response"]
        if response.api_key != message.api_key:
            raise SchemaError(
                response.where, f"has the apiKey {response.api_key}, its request {message.api_key}"
            )
        if response.versions != message.versions:
            raise SchemaError(
                response.where, f"has versions {response.versions}, its request {message.versions}"
            )
        if response.flexible.first != message.flexible.first:
            raise SchemaError(response.where, "request and response become flexible in different versions")
