"""Comparison of two responses to one request, field by field. Pure.

The rule: fields that may differ have a row in `may_differ` with the reason; all others must be equal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from barnabas.environment.terminal import counted
from barnabas.errors import PeerError, RequestError
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import iter_batches
from barnabas.tools.inspection.errors import code_name
from barnabas.tools.tap.may_differ import MAY_DIFFER, Place
from barnabas.tools.tap.substitution import NONE_VALUES, Substitutes, paired
from barnabas.wire.ids import uuid_text

OFFSETS = "offsets"
"""Name that leaves all fields with offsets out of the comparison."""


class Difference(NamedTuple):
    """A field with another value than the recorded one."""

    path: str
    recorded: str
    live: str


def differences(
    recorded: Any,
    live: Any,
    substitutes: Substitutes,
    connection: int,
    scope: str,
    *,
    allowed: Collection[str] = (),
) -> list[Difference]:
    """Return the differences between a recorded response and a live one; `allowed` are further fields that may differ."""
    comparison = _Comparison(substitutes, (recorded, live), connection, frozenset(allowed))
    return list(comparison.structs("", scope, recorded, live))


class _Comparison:
    def __init__(
        self, substitutes: Substitutes, answers: tuple[Any, Any], connection: int, allowed: frozenset[str]
    ) -> None:
        self._substitutes = substitutes
        self._answers = answers
        self._connection = connection
        self._allowed = allowed

    def _is_left_out(self, name: str) -> bool:
        """Return whether the user allows this field to differ."""
        is_offset = name.endswith("offset") or name == "high_watermark"
        return name in self._allowed or (OFFSETS in self._allowed and is_offset)

    def structs(self, path: str, scope: str, recorded: Any, live: Any) -> Iterator[Difference]:
        for field in fields(recorded):
            name = field.name
            if self._is_left_out(name):
                continue
            old, new = getattr(recorded, name), getattr(live, name)
            row = MAY_DIFFER.get(name)
            if row is None:
                yield from self._values(f"{path}{name}", name, scope, old, new)
            elif old != new:
                places = Place(old, recorded, self._answers[0]), Place(new, live, self._answers[1])
                if not row.accepts(*places):
                    yield Difference(f"{path}{name}", _text(name, old), _text(name, new))

    def _values(self, path: str, name: str, scope: str, old: Any, new: Any) -> Iterator[Difference]:
        if name == "records":
            yield from self._records(path, old, new)
        elif isinstance(old, list) and isinstance(new, list):
            yield from self._arrays(path, name, scope, old, new)
        elif is_dataclass(old) and is_dataclass(new):
            yield from self.structs(f"{path}.", scope, old, new)
        elif self._substitutes.is_handed_out(name):
            # Assigned values differ between brokers, but both or neither must be present.
            if (old in NONE_VALUES) != (new in NONE_VALUES):
                yield Difference(path, _text(name, old), _text(name, new))
        elif _plain(old) != _plain(new):
            yield Difference(path, _text(name, old), _text(name, new))

    def _arrays(
        self, path: str, name: str, scope: str, old: list[Any], new: list[Any]
    ) -> Iterator[Difference]:
        for number, (old_entry, new_entry) in enumerate(paired(old, new)):
            place = f"{path}[{_label(old_entry if old_entry is not None else new_entry, number)}]"
            if old_entry is None or new_entry is None:
                yield Difference(place, _brief(old_entry), _brief(new_entry))
            elif is_dataclass(old_entry):
                yield from self.structs(f"{place}.", scope, old_entry, new_entry)
            else:
                yield from self._values(place, name, scope, old_entry, new_entry)

    def _records(self, path: str, old: Any, new: Any) -> Iterator[Difference]:
        """Compare records by offset, up to the end of the shorter response: the size of a fetch depends on timing.

        A record that only the live response has may have been compacted away at the time of the recording.
        """
        before, after = dict(_records_of(old)), dict(_records_of(new))
        if before and not after:
            yield Difference(path, f"{counted(len(before), 'record')}", "none")
            return
        first, last = min(after, default=0), max(after, default=-1)
        for offset in sorted(number for number in before if first <= number <= last):
            if before[offset] != after.get(offset):
                now = _record(after[offset]) if offset in after else "missing"
                yield Difference(f"{path}[offset {offset}]", _record(before[offset]), now)


_Fields = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def _records_of(data: Any) -> Iterator[tuple[int, _Fields]]:
    if data is None:
        return
    try:
        for position, header in iter_batches(data):
            if header.is_control and header.magic == 2:
                continue  # markers name epochs of the coordinator
            for record in iter_any_records(data, position):
                yield record.offset, (record.key, record.value, tuple(record.headers))
    except (PeerError, RequestError, ValueError):
        return


def _record(record: _Fields) -> str:
    key, value, headers = record
    shown = f"key {key!r:.60} value {value!r:.60}"
    return f"{shown} headers {headers!r:.60}" if headers else shown


def _label(entry: Any, number: int) -> str:
    for name in ("name", "topic", "group_id", "partition_index", "index", "api_key", "member_id"):
        value = getattr(entry, name, None)
        if isinstance(value, int | str) and value != "":
            return str(value)
    return str(number)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _text(name: str, value: Any) -> str:
    if name.endswith("error_code") and isinstance(value, int):
        return code_name(value)
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return (
            uuid_text(data)
            if len(data) == 16 and name.endswith("id")
            else f"{len(data)} bytes {data[:32].hex()}"
        )
    return repr(value)


def _brief(entry: Any) -> str:
    return "missing" if entry is None else "there"
