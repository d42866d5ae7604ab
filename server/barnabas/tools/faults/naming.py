"""Topics, partitions and groups in a request or an answer, whatever its API.

The rule: they are derived from the declarations of the generated structs; only exceptions have a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from barnabas.wire.primitives import ZERO_UUID

NameOf = Callable[[bytes], str | None]
"""The name of the topic with an id."""

_TOPIC_LISTS = frozenset(("topics", "topic_names", "subscribed_topic_names"))
_GROUP_LISTS = frozenset(("groups", "group_ids", "groups_names"))
_PARTITION_FIELDS = ("partition_index", "partition", "index", "partition_id")
_GROUP_KEY_TYPE = 0
"""FindCoordinator's key type for groups."""


def topic_of(struct: Any, name_of: NameOf) -> str | None:
    """Return the topic of a struct; None if it has none."""
    for name in ("topic", "topic_name", "name"):
        topic = getattr(struct, name, None)
        if topic and isinstance(topic, str) and (name != "name" or "Topic" in type(struct).__name__):
            return topic
    topic_id = getattr(struct, "topic_id", ZERO_UUID)
    return name_of(topic_id) if topic_id != ZERO_UUID else None


def partition_of(entry: Any) -> int | None:
    """Return the number of the partition that an entry of a list is about."""
    if isinstance(entry, int) and not isinstance(entry, bool):
        return entry
    for name in _PARTITION_FIELDS:
        number = getattr(entry, name, None)
        if isinstance(number, int):
            return number
    return None


def partition_lists(struct: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield the lists of a struct that hold one entry for each partition, with their names."""
    for field in fields(struct):
        entries = getattr(struct, field.name)
        if isinstance(entries, list) and "partition" in field.name:
            yield field.name, entries


def topic_partitions(message: Any, name_of: NameOf) -> Iterator[tuple[str, int | None]]:
    """Yield the topics of a message, with each partition of theirs that it names, or None where it names none."""
    if not is_dataclass(message):
        return
    topic = topic_of(message, name_of)
    if topic is not None:
        has_partitions = False
        for _, entries in partition_lists(message):  # one by one: a caller may have had enough of them
            for entry in entries:
                has_partitions = True
                yield topic, partition_of(entry)
        if not has_partitions:
            yield topic, partition_of(message)
    for field in fields(message):
        inner = getattr(message, field.name)
        if isinstance(inner, list):
            for entry in inner:
                if isinstance(entry, str):
                    if field.name in _TOPIC_LISTS:
                        yield entry, None
                elif topic is None or not isinstance(entry, int):
                    yield from topic_partitions(entry, name_of)
        elif is_dataclass(inner):
            yield from topic_partitions(inner, name_of)


def groups(message: Any) -> Iterator[str]:
    """Yield the groups that a message names."""
    if getattr(message, "key_type", None) == _GROUP_KEY_TYPE:
        yield from (message.coordinator_keys or [message.key])
        return
    name = getattr(message, "group_id", None)
    if isinstance(name, str) and name:
        yield name
    for field in fields(message):
        entries = getattr(message, field.name)
        if field.name in _GROUP_LISTS and isinstance(entries, list):
            for entry in entries:
                name = entry if isinstance(entry, str) else getattr(entry, "group_id", None)
                if name:
                    yield name
