"""Requests and answers in which a fault affects only some topics and partitions. Pure.

The rule: other topics and partitions are handled and answered as usual.
"""

from __future__ import annotations

from copy import copy
from dataclasses import fields
from typing import Any

from barnabas.tools.faults.matching import Match
from barnabas.tools.faults.naming import NameOf, partition_lists, partition_of, topic_of

REFUSED = -1
"""High watermark and other offsets in the answer for a partition that was not read."""


def split(request: Any, match: Match, name_of: NameOf) -> tuple[Any, Any]:
    """Return the part of a request that a fault affects, and the rest; None for a part without topics."""
    hit, rest = copy(request), copy(request)
    counts = [0, 0]
    for field in fields(request):
        entries = getattr(request, field.name)
        if not isinstance(entries, list) or not any(_topic(entry, name_of) is not None for entry in entries):
            continue
        parts: tuple[list[Any], list[Any]] = ([], [])
        for entry in entries:
            for number, part in enumerate(_split_topic(entry, match, name_of)):
                if part is not None:
                    parts[number].append(part)
                    counts[number] += 1
        setattr(hit, field.name, parts[0])
        setattr(rest, field.name, parts[1])
    return (hit if counts[0] else None), (rest if counts[1] else None)


def _topic(entry: Any, name_of: NameOf) -> str | None:
    return entry if isinstance(entry, str) else topic_of(entry, name_of)


def _split_topic(entry: Any, match: Match, name_of: NameOf) -> tuple[Any, Any]:
    """Return the matching and the other part of a topic's entry; None for an empty one."""
    topic = _topic(entry, name_of)
    if topic is None or not match.covers(topic, None):
        return None, entry
    lists = (
        []
        if isinstance(entry, str)
        else [(name, partitions) for name, partitions in partition_lists(entry) if partitions]
    )
    if not lists:
        return entry, None
    parts = copy(entry), copy(entry)
    counts = [0, 0]
    for name, partitions in lists:
        for number, is_match in enumerate((True, False)):
            chosen = [
                partition
                for partition in partitions
                if match.covers(topic, partition_of(partition)) is is_match
            ]
            setattr(parts[number], name, chosen)
            counts[number] += len(chosen)
    return (parts[0] if counts[0] else None), (parts[1] if counts[1] else None)


def merge(response: Any, other: Any, name_of: NameOf) -> None:
    """Add the entries of another answer to an answer; partitions of a topic stand together."""
    for field in fields(other):
        added, present = getattr(other, field.name), getattr(response, field.name)
        if isinstance(added, list) and isinstance(present, list):
            for entry in added:
                _merge_entry(present, entry, name_of)


def _merge_entry(entries: list[Any], entry: Any, name_of: NameOf) -> None:
    topic = _topic(entry, name_of)
    for present in entries:
        if topic is not None and _topic(present, name_of) == topic:
            for name, partitions in partition_lists(entry):
                getattr(present, name).extend(partitions)
            return
    entries.append(entry)


def mark(response: Any, match: Match, code: int, name_of: NameOf) -> None:
    """Put an error code into the topics and partitions of an answer that match; they carry no records then."""
    for field in fields(response):
        entries = getattr(response, field.name)
        for entry in entries if isinstance(entries, list) else ():
            topic = None if isinstance(entry, str | int | bytes) else topic_of(entry, name_of)
            if topic is None or not match.covers(topic, None):
                continue
            partitions = [partition for _, partitions in partition_lists(entry) for partition in partitions]
            matching = [partition for partition in partitions if match.covers(topic, partition_of(partition))]
            for marked in matching if partitions else [entry]:
                _refuse(marked, code)


def _refuse(entry: Any, code: int) -> None:
    if hasattr(entry, "error_code"):
        entry.error_code = code
    if hasattr(entry, "records"):
        entry.records = b""
    for name in ("high_watermark", "last_stable_offset", "log_start_offset", "base_offset"):
        if hasattr(entry, name):
            setattr(entry, name, REFUSED)
