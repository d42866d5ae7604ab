"""Protobuf's rules of change: whether data of an older schema means the same by a newer one.

The rule: fields are their numbers; names are free. Verdicts and their names are those of Confluent's registry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

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
"""Scalar types by how they are written: those of one kind can be read as each other."""
Change = tuple[str, str]
"""A kind of change, and its place."""


def changes(before: Any, after: Any) -> list[Change]:
    """Return all changes of a file that matter, or might."""
    found = [] if before.package == after.package else [("PACKAGE_CHANGED", "#/")]
    messages = [list(one.message_types_by_name.values()) for one in (before, after)]
    enums = [list(one.enum_types_by_name.values()) for one in (before, after)]
    return [*found, *_Comparing().types((messages[0], messages[1]), (enums[0], enums[1]), "#")]


def breaks(before: Any, after: Any) -> list[str]:
    """Say which changes keep old data from being read."""
    return [
        f"{{errorType:'{kind}', description:'{_sentence(kind)}', path:'{path}'}}"
        for kind, path in changes(before, after)
        if kind not in HARMLESS
    ]


def _sentence(kind: str) -> str:
    return kind.capitalize().replace("_", " ")


class _Comparing:
    """One comparison; a pair of messages that is being compared is not looked at again within itself."""

    def __init__(self) -> None:
        self._pairs: set[tuple[str, str]] = set()

    def types(
        self, messages: tuple[list[Any], list[Any]], enums: tuple[list[Any], list[Any]], path: str
    ) -> Iterator[Change]:
        """Yield changes of messages and enums that stand beside each other."""
        old, new = ({one.name: one for one in side if not _is_entry(one)} for side in messages)
        places = [{name: number for number, name in enumerate(side)} for side in (old, new)]
        for name in [*old, *(one for one in new if one not in old)]:
            where = f"{path}/{name}"
            if name not in new:
                yield "MESSAGE_REMOVED", where
            elif name not in old:
                yield "MESSAGE_ADDED", where
            else:
                yield from self.messages(old[name], new[name], where)
                if places[0][name] != places[1][name]:
                    yield "MESSAGE_MOVED", where
        before, after = ({one.name: one for one in side} for side in enums)
        for name in [*before, *(one for one in after if one not in before)]:
            where = f"{path}/{name}"
            if name not in after:
                yield "ENUM_REMOVED", where
            elif name not in before:
                yield "ENUM_ADDED", where
            else:
                yield from _enum(before[name], after[name], where)

    def messages(self, old: Any, new: Any, path: str) -> Iterator[Change]:
        """Yield changes of a message and of what is declared in it."""
        pair = old.full_name, new.full_name
        if pair in self._pairs:
            return
        self._pairs.add(pair)
        yield from self._fields(old, new, path)
        nested = list(old.nested_types), list(new.nested_types)
        yield from self.types(nested, (list(old.enum_types), list(new.enum_types)), path)
        self._pairs.discard(pair)

    def _fields(self, old: Any, new: Any, path: str) -> Iterator[Change]:
        before, after = (
            {field.number: (field, _one_of(field)) for field in side.fields} for side in (old, new)
        )
        groups = [dict.fromkeys(one for _, one in side.values() if one) for side in (before, after)]
        yield from _exclusions(before, after, path)
        for name in sorted({*groups[0], *groups[1]}):
            if name not in groups[1]:
                yield "ONEOF_REMOVED", f"{path}/{name}"
            elif name not in groups[0]:
                yield "ONEOF_ADDED", f"{path}/{name}"
        gone = {
            name
            for name in groups[0]
            if name not in groups[1]
            and not any(one == name and number in after for number, (_, one) in before.items())
        }
        for number in sorted({*before, *after}):
            if number not in after:
                field, group = before[number]
                if group is None:
                    kind = "REQUIRED_FIELD_REMOVED" if field.is_required else "FIELD_REMOVED"
                    yield kind, f"{path}/{number}"
                elif group not in gone:
                    yield "ONEOF_FIELD_REMOVED", f"{path}/{group}/{number}"
            elif number not in before:
                field, group = after[number]
                if group is not None:
                    yield "ONEOF_FIELD_ADDED", f"{path}/{group}/{number}"
                else:
                    kind = "REQUIRED_FIELD_ADDED" if field.is_required else "FIELD_ADDED"
                    yield kind, f"{path}/{number}"
            else:
                (field, was), (other, group) = before[number], after[number]
                where = f"{path}/{number}" if group is None else f"{path}/{group}/{number}"
                if was is not None and group is None:
                    yield "ONEOF_FIELD_MOVED_TO_TOP_LEVEL", where
                if field.name != other.name:
                    yield "FIELD_NAME_CHANGED", where
                yield from self._type(field, other, where)

    def _type(self, old: Any, new: Any, path: str, *, is_of_map: bool = False) -> Iterator[Change]:
        kinds = [_kind(one) for one in (old, new)]
        if kinds[0] != kinds[1]:
            yield "FIELD_KIND_CHANGED", path
        elif kinds[0] == "map":
            for name in ("key", "value"):
                inner = [one.message_type.fields_by_name[name] for one in (old, new)]
                yield from self._type(inner[0], inner[1], path, is_of_map=True)
        elif kinds[0] == "scalar":
            ways = [_KINDS[one.type] for one in (old, new)]
            if ways[0] != ways[1]:
                yield "FIELD_SCALAR_KIND_CHANGED", path
            elif not is_of_map and _label(old) != _label(new) and None not in (_label(old), _label(new)):
                is_text = ways[0] == _TEXT
                yield f"FIELD_{'STRING_OR_BYTES' if is_text else 'NUMERIC'}_LABEL_CHANGED", path
        else:
            yield from self._named(old.message_type, new.message_type, path)

    def _named(self, old: Any, new: Any, path: str) -> Iterator[Change]:
        names = [_local(one) for one in (old, new)]
        if names[0] != names[1]:
            yield "FIELD_NAMED_TYPE_CHANGED", path
            return
        is_elsewhere = [one.file.name for one in (old, new)]
        if is_elsewhere[0] == is_elsewhere[1] and old.file.serialized_pb == new.file.serialized_pb:
            return
        found = list(self.messages(old, new, f"#/{names[0].replace('.', '/')}"))
        if any(kind not in HARMLESS for kind, _ in found):
            yield from found
            yield "FIELD_NAMED_TYPE_CHANGED", path


def _exclusions(before: dict[int, Any], after: dict[int, Any], path: str) -> Iterator[Change]:
    """Yield where fields that could be set together no longer can."""
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
            yield (
                "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if is_many else "FIELD_MOVED_TO_EXISTING_ONEOF",
                f"{path}/{name}",
            )


def _enum(old: Any, new: Any, path: str) -> Iterator[Change]:
    before, after = ({value.number: value.name for value in one.values} for one in (old, new))
    for number in sorted({*before, *after}):
        if number not in after:
            yield "ENUM_CONST_REMOVED", f"{path}/{number}"
        elif number not in before:
            yield "ENUM_CONST_ADDED", f"{path}/{number}"
        elif before[number] != after[number]:
            yield "ENUM_CONST_CHANGED", f"{path}/{number}"


def _is_entry(message: Any) -> bool:
    return bool(message.GetOptions().map_entry)


def _one_of(field: Any) -> str | None:
    """Return the oneof that the text puts a field into."""
    group = field.containing_oneof
    if group is None or (len(group.fields) == 1 and group.name == f"_{field.name}"):
        return None
    return str(group.name)


def _kind(field: Any) -> str:
    if field.message_type is None:
        return "scalar"
    return "map" if _is_entry(field.message_type) else "message"


def _label(field: Any) -> str | None:
    if field.is_repeated:
        return "repeated"
    if field.is_required:
        return "required"
    return "optional" if field.has_presence and _one_of(field) is None else None


def _local(message: Any) -> str:
    """Return the name of a message within its package."""
    package = message.file.package
    name = str(message.full_name)
    return name.removeprefix(f"{package}.") if package else name
