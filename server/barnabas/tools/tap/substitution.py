"""Values that a broker assigns and clients send back: recorded ones, replaced by those of the live broker. Pure.

The rule: values are replaced by the name of their field; the rest of a request stays unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from barnabas.errors import PeerError, RequestError
from barnabas.records.batch import (
    CRC_OFFSET,
    PRODUCER_EPOCH_OFFSET,
    PRODUCER_ID_OFFSET,
    compute_crc,
    iter_batches,
    read_header,
)
from barnabas.wire.primitives import ZERO_UUID

NONE_VALUES: frozenset[Any] = frozenset((None, "", -1, ZERO_UUID))
"""Values that mean that there is none."""
_KINDS = {
    "producer_id": "producer id",
    "member_id": "member id",
    "leader": "member id",  # of JoinGroup
    "topic_id": "topic id",
    "producer_epoch": "producer epoch",
    "generation_id": "generation",
    "generation_id_or_member_epoch": "generation",
    "member_epoch": "generation",
    "session_id": "session id",
    "leader_epoch": "leader epoch",
    "current_leader_epoch": "leader epoch",
    "last_fetched_epoch": "leader epoch",
    "committed_leader_epoch": "leader epoch",
    "partition_leader_epoch": "leader epoch",
}
_NAMES = (
    "name",
    "topic",
    "group_id",
    "member_id",
    "topic_id",
    "key",
    "node_id",
    "broker_id",
    "resource_name",
)
_NODE_LISTS = ("replicas", "broker_ids")
"""Fields of requests with ids of brokers."""
_BROKER_RESOURCES = (4, 8)
"""Resources that are named by a broker's id: its settings, its loggers."""
_NUMBERS = ("partition_index", "index", "partition", "partition_id")


class Substitutes:
    """Recorded values and their substitutes; session ids belong to a connection, generations to a group."""

    def __init__(self, nodes: Mapping[int, int] | None = None) -> None:
        """`nodes` maps recorded ids of brokers to their substitutes."""
        self._nodes = dict(nodes or {})
        self._live: dict[tuple[str, Any, Any], Any] = {}

    def learn(self, connection: int, scope: str, recorded: Any, live: Any) -> None:
        """Compare two responses to one request, and remember assigned values; `scope` is the request's group."""
        self._learn(connection, scope, recorded, live)

    def _learn(self, connection: int, scope: str, recorded: Any, live: Any) -> None:
        if type(recorded) is not type(live):
            return
        scope = _scope(recorded, scope)
        for field in fields(recorded):
            old, new = getattr(recorded, field.name), getattr(live, field.name)
            kind = _KINDS.get(field.name)
            if kind is not None and isinstance(old, int | str | bytes):
                if old not in NONE_VALUES and new not in NONE_VALUES:
                    self._live[kind, _owner(kind, connection, scope), old] = new
            elif isinstance(old, list) and isinstance(new, list):
                for old_entry, new_entry in paired(old, new):
                    if is_dataclass(old_entry) and new_entry is not None:
                        self._learn(connection, scope, old_entry, new_entry)
            elif is_dataclass(old) and is_dataclass(new):
                self._learn(connection, scope, old, new)

    def live(self, name: str, connection: int, scope: str, value: Any) -> Any:
        """Return the substitute for the recorded value of a field; the value itself without one."""
        kind = _KINDS.get(name)
        if kind is None or not isinstance(value, int | str | bytes):
            return value
        return self._live.get((kind, _owner(kind, connection, scope), value), value)

    def is_handed_out(self, name: str) -> bool:
        """Return whether a broker assigns the fields of this name."""
        return name in _KINDS

    def apply(self, connection: int, scope: str, message: Any) -> None:
        """Replace the values in a request, including its record batches."""
        scope = _scope(message, scope)
        for field in fields(message):
            name = field.name
            value = getattr(message, name)
            if isinstance(value, list):
                for item in value:
                    if is_dataclass(item):
                        self.apply(connection, scope, item)
                if name == "topic_ids":
                    setattr(message, name, [self.live("topic_id", connection, scope, item) for item in value])
                elif name in _NODE_LISTS:
                    setattr(message, name, [self._nodes.get(item, item) for item in value])
            elif is_dataclass(value):
                self.apply(connection, scope, value)
            elif name == "records" and value is not None:
                setattr(message, name, self._with_producers(connection, scope, value))
            elif name == "resource_name" and getattr(message, "resource_type", 0) in _BROKER_RESOURCES:
                if value.isdecimal():
                    message.resource_name = str(self._nodes.get(int(value), int(value)))
            else:
                setattr(message, name, self.live(name, connection, scope, value))

    def _with_producers(self, connection: int, scope: str, records: Any) -> Any:
        """Return record batches with the producer ids and epochs of the live broker."""
        data = bytearray(records)
        try:
            for position, header in iter_batches(bytes(data)):
                if header.magic != 2 or not header.has_producer_id:
                    continue
                producer_id = self.live("producer_id", connection, scope, header.producer_id)
                epoch = self.live(
                    "producer_epoch", connection, str(header.producer_id), header.producer_epoch
                )
                data[position + PRODUCER_ID_OFFSET : position + PRODUCER_ID_OFFSET + 8] = (
                    producer_id.to_bytes(8, "big")
                )
                data[position + PRODUCER_EPOCH_OFFSET : position + PRODUCER_EPOCH_OFFSET + 2] = (
                    epoch.to_bytes(2, "big")
                )
                crc = compute_crc(data, position, read_header(data, position))
                data[position + CRC_OFFSET : position + CRC_OFFSET + 4] = crc.to_bytes(4, "big")
        except (PeerError, RequestError, ValueError):
            return records  # damaged batches were damaged in the recording
        return bytes(data)


def _scope(message: Any, outer: str) -> str:
    """Return the scope of a struct's generations, epochs and similar values: a producer, a group, a topic, ..."""
    producer = getattr(message, "producer_id", None)
    if isinstance(producer, int) and producer >= 0:
        return str(producer)
    group = getattr(message, "group_id", None)
    if isinstance(group, str) and group:
        return group
    for name in ("name", "topic"):
        text = getattr(message, name, None)
        if isinstance(text, str) and text and "Topic" in type(message).__name__:
            return text
    for name in _NUMBERS:
        number = getattr(message, name, None)
        if isinstance(number, int) and not isinstance(number, bool):
            return f"{outer}-{number}"
    return outer


def _owner(kind: str, connection: int, scope: str) -> Any:
    if kind in ("producer id", "member id", "topic id"):
        return None
    return connection if kind == "session id" else scope


def paired(recorded: list[Any], live: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of corresponding entries of two arrays, by name or number, else by position; None for a missing one."""
    names = [_key(item) for item in recorded]
    if recorded and all(name is not None for name in names) and len(set(names)) == len(names):
        others = {_key(item): item for item in live}
        for name, entry in zip(names, recorded, strict=True):
            yield entry, others.pop(name, None)
        for other in others.values():
            yield None, other
        return
    for number in range(max(len(recorded), len(live))):
        yield (
            recorded[number] if number < len(recorded) else None,
            live[number] if number < len(live) else None,
        )


def _key(entry: Any) -> Any:
    if not is_dataclass(entry):
        return None
    for name in (
        "api_key",
        "partition_index",
        "index",
        "partition",
        "name",
        "topic",
        "group_id",
        "key",
        "resource_name",
    ):
        value = getattr(entry, name, None)
        if isinstance(value, int | str) and value not in ("", None):
            return name, value
    return None
