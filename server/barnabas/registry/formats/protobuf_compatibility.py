"""Protobuf's rules of change: whether data of an older schema keeps its meaning in a newer one.

The rule: fields are identified by number; names may change. Verdicts and their names are those of Confluent's registry.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor, FileDescriptor

from barnabas.registry.formats.comparing import (
    Change,
    Comparison,
    Outcome,
    Rules,
    expand,
    messages,
)

HARMLESS = {
    "MESSAGE_ADDED", "MESSAGE_MOVED", "ENUM_ADDED", "ENUM_REMOVED", "ENUM_CONST_ADDED", "ENUM_CONST_CHANGED",
    "ENUM_CONST_REMOVED", "FIELD_ADDED", "FIELD_REMOVED", "FIELD_NAME_CHANGED", "FIELD_STRING_OR_BYTES_LABEL_CHANGED",
    "ONEOF_ADDED", "ONEOF_REMOVED", "ONEOF_FIELD_ADDED", "ONEOF_FIELD_MOVED_TO_TOP_LEVEL",
}  # fmt: skip
"""Changes after which old data can still be read."""
_TEXT = "text"
_KINDS = {
    FieldDescriptor.TYPE_INT32: "number", FieldDescriptor.TYPE_INT64: "number", FieldDescriptor.TYPE_UINT32: "number",
    FieldDescriptor.TYPE_UINT64: "number", FieldDescriptor.TYPE_BOOL: "number", FieldDescriptor.TYPE_ENUM: "number",
    FieldDescriptor.TYPE_SINT32: "signed", FieldDescriptor.TYPE_SINT64: "signed",
    FieldDescriptor.TYPE_STRING: _TEXT, FieldDescriptor.TYPE_BYTES: _TEXT,
    FieldDescriptor.TYPE_FIXED32: "fixed32", FieldDescriptor.TYPE_SFIXED32: "fixed32",
    FieldDescriptor.TYPE_FIXED64: "fixed64", FieldDescriptor.TYPE_SFIXED64: "fixed64",
    FieldDescriptor.TYPE_FLOAT: "float", FieldDescriptor.TYPE_DOUBLE: "double",
}  # fmt: skip
"""Kinds of scalar types by encoding: types of the same kind can be read as each other."""


def compare(before: Any, after: Any) -> Outcome:
    """Return the outcome of the comparison of two files. Raises SchemaError if that takes too many steps."""
    rules = _Rules()
    comparison = Comparison(rules.compare, _key, HARMLESS)
    rules.spend = comparison.spend
    return comparison.run(before, after)


def changes(before: Any, after: Any) -> list[Change]:
    """Return all changes of a file that matter, or might. Raises SchemaError."""
    return list(expand(compare(before, after)))


def breaks(before: Any, after: Any) -> list[str]:
    """Return the changes that prevent old data from being read, as messages."""
    return messages(compare(before, after), _told)


def _told(kind: str, path: str, _: str) -> str:
    sentence = kind.capitalize().replace("_", " ")
    return f"{{errorType:'{kind}', description:'{sentence}', path:'{path}'}}"


def _key(old: Any, new: Any) -> Hashable:
    return (old.full_name, new.full_name) if hasattr(old, "full_name") else None


class _Rules:
    """Rules of a comparison of pairs of messages, beginning with the two files."""

    def __init__(self) -> None:
        self.spend: Callable[[int], None] = lambda _: None
        self._same_files: dict[tuple[str, str], bool] = {}

    def compare(self, old: Any, new: Any, outcome: Outcome) -> Rules:
        """Compare two messages with their nested declarations, or two files."""
        if isinstance(old, FileDescriptor):
            if old.package != new.package:
                outcome.add("PACKAGE_CHANGED", "#/")
            messages = [list(side.message_types_by_name.values()) for side in (old, new)]
            enums = [list(side.enum_types_by_name.values()) for side in (old, new)]
        else:
            yield from self._fields(old, new, outcome)
            messages = [list(side.nested_types) for side in (old, new)]
            enums = [list(side.enum_types) for side in (old, new)]
        root = "#/" if isinstance(old, FileDescriptor) else ""
        yield from self._types(messages, enums, outcome, root)

    def _types(self, messages: list[Any], enums: list[Any], outcome: Outcome, root: str) -> Rules:
        """Compare messages and enums of one scope."""
        self.spend(sum(map(len, [*messages, *enums])))
        old, new = (
            {element.name: element for element in side if not _is_entry(element)} for side in messages
        )
        places = [{name: number for number, name in enumerate(side)} for side in (old, new)]
        for name in {**old, **new}:
            where = f"{root}{name}"
            if name not in new:
                outcome.add("MESSAGE_REMOVED", where)
            elif name not in old:
                outcome.add("MESSAGE_ADDED", where)
            else:
                outcome.include(where, (yield old[name], new[name]))
                if places[0][name] != places[1][name]:
                    outcome.add("MESSAGE_MOVED", where)
        before, after = ({element.name: element for element in side} for side in enums)
        for name in {**before, **after}:
            where = f"{root}{name}"
            if name not in after:
                outcome.add("ENUM_REMOVED", where)
            elif name not in before:
                outcome.add("ENUM_ADDED", where)
            else:
                self._enum(before[name], after[name], outcome, where)

    def _fields(self, old: Any, new: Any, outcome: Outcome) -> Rules:
        before, after = _fields_of(old), _fields_of(new)
        self.spend(len(before) + len(after))
        groups = [
            dict.fromkeys(group for _, group in side.values() if group is not None)
            for side in (before, after)
        ]
        _exclusions(before, after, outcome)
        for name in sorted({*groups[0], *groups[1]}):
            if name not in groups[1]:
                outcome.add("ONEOF_REMOVED", name)
            elif name not in groups[0]:
                outcome.add("ONEOF_ADDED", name)
        kept = {group for number, (_, group) in before.items() if number in after}
        gone = {name for name in groups[0] if name not in groups[1] and name not in kept}
        for number in sorted({*before, *after}):
            if number not in after:
                field, group = before[number]
                if group is None:
                    outcome.add(
                        "REQUIRED_FIELD_REMOVED" if field.is_required else "FIELD_REMOVED", str(number)
                    )
                elif group not in gone:
                    outcome.add("ONEOF_FIELD_REMOVED", f"{group}/{number}")
            elif number not in before:
                field, group = after[number]
                if group is not None:
                    outcome.add("ONEOF_FIELD_ADDED", f"{group}/{number}")
                else:
                    outcome.add("REQUIRED_FIELD_ADDED" if field.is_required else "FIELD_ADDED", str(number))
            else:
                (field, was), (other, group) = before[number], after[number]
                where = str(number) if group is None else f"{group}/{number}"
                if was is not None and was != group and was in groups[1]:
                    outcome.add("ONEOF_FIELD_REMOVED", f"{was}/{number}")
                if was is not None and group is None:
                    outcome.add("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", where)
                if field.name != other.name:
                    outcome.add("FIELD_NAME_CHANGED", where)
                yield from self._type(field, other, outcome, where)

    def _type(self, old: Any, new: Any, outcome: Outcome, path: str, *, is_of_map: bool = False) -> Rules:
        kinds = [_kind(field) for field in (old, new)]
        if kinds[0] != kinds[1]:
            outcome.add("FIELD_KIND_CHANGED", path)
        elif kinds[0] == "map":
            for name in ("key", "value"):
                inner = [field.message_type.fields_by_name[name] for field in (old, new)]
                yield from self._type(inner[0], inner[1], outcome, path, is_of_map=True)
        elif kinds[0] == "scalar":
            ways = [_KINDS[field.type] for field in (old, new)]
            if ways[0] != ways[1]:
                outcome.add("FIELD_SCALAR_KIND_CHANGED", path)
            elif not is_of_map and _label(old) != _label(new) and None not in (_label(old), _label(new)):
                is_text = ways[0] == _TEXT
                outcome.add(f"FIELD_{'STRING_OR_BYTES' if is_text else 'NUMERIC'}_LABEL_CHANGED", path)
        else:
            yield from self._named(old.message_type, new.message_type, outcome, path)

    def _named(self, old: Any, new: Any, outcome: Outcome, path: str) -> Rules:
        names = [_local(field) for field in (old, new)]
        if names[0] != names[1]:
            outcome.add("FIELD_NAMED_TYPE_CHANGED", path)
            return
        if self._are_in_same_file(old.file, new.file):
            return
        inner = yield old, new
        if not inner.fits:
            outcome.include(f"#/{names[0].replace('.', '/')}", inner)
            outcome.add("FIELD_NAMED_TYPE_CHANGED", path)

    def _are_in_same_file(self, old: Any, new: Any) -> bool:
        """Return whether two messages are declared in equal files of the same name."""
        names = old.name, new.name
        if names not in self._same_files:
            is_same = old.name == new.name and bool(old.serialized_pb == new.serialized_pb)
            self._same_files[names] = is_same
        return self._same_files[names]

    def _enum(self, old: Any, new: Any, outcome: Outcome, path: str) -> None:
        before, after = ({value.number: value.name for value in side.values} for side in (old, new))
        self.spend(len(before) + len(after))
        for number in sorted({*before, *after}):
            if number not in after:
                outcome.add("ENUM_CONST_REMOVED", f"{path}/{number}")
            elif number not in before:
                outcome.add("ENUM_CONST_ADDED", f"{path}/{number}")
            elif before[number] != after[number]:
                outcome.add("ENUM_CONST_CHANGED", f"{path}/{number}")


def _fields_of(message: Any) -> dict[int, tuple[Any, str | None]]:
    """Return the fields of a message by number, each with the oneof that the text puts it into."""
    fields = {field.number: (field, None) for field in message.fields}
    for group in message.oneofs:
        members = list(group.fields)
        if len(members) > 1 or group.name != f"_{members[0].name}":
            fields |= {field.number: (field, str(group.name)) for field in members}
    return {number: fields[number] for number in (field.number for field in message.fields)}


def _exclusions(before: dict[int, Any], after: dict[int, Any], outcome: Outcome) -> None:
    """Add where fields that could be set together no longer can."""
    groups: dict[str, list[int]] = {}
    for number, (_, group) in after.items():
        if group is not None:
            groups.setdefault(group, []).append(number)
    for name, members in groups.items():
        there = [number for number in members if number in before]
        alone = [number for number in there if before[number][1] is None]
        origins = {before[number][1] for number in there if before[number][1] is not None}
        if len(origins) + len(alone) > 1:
            is_many = len(alone) > 1
            outcome.add(
                "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if is_many else "FIELD_MOVED_TO_EXISTING_ONEOF", name
            )


def _is_entry(message: Any) -> bool:
    return bool(message.GetOptions().map_entry)


def _kind(field: Any) -> str:
    if field.message_type is None:
        return "scalar"
    return "map" if _is_entry(field.message_type) else "message"


def _label(field: Any) -> str | None:
    if field.is_repeated:
        return "repeated"
    if field.is_required:
        return "required"
    group = field.containing_oneof
    is_alone = group is None or (group.name == f"_{field.name}" and len(group.fields) == 1)
    return "optional" if field.has_presence and is_alone else None


def _local(message: Any) -> str:
    """Return the name of a message within its package."""
    package = message.file.package
    name = str(message.full_name)
    return name.removeprefix(f"{package}.") if package else name
