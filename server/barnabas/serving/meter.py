"""Counts of requests, their errors, their bytes and their time. Pure: the caller passes the seconds in.

The rule: the counters are bounded by APIs, versions, error codes, listeners, and existing topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple

from barnabas.wire.structs import struct_of

TOPICS_PER_TURN = 500


class RequestCounts:
    """The requests of one API in one version."""

    __slots__ = ("bytes_in", "bytes_out", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.bytes_in = 0
        self.bytes_out = 0


class RequestMeter:
    """All that was answered since the broker started."""

    def __init__(self, topic_name: Callable[[bytes], str | None]) -> None:
        self.requests: dict[tuple[str, int], RequestCounts] = {}
        self.errors: dict[tuple[str, int], int] = {}
        self.fetched_bytes: dict[str, int] = {}
        self._topic_name = topic_name

    def answered(
        self,
        name: str,
        version: int,
        codes: Mapping[int, int],
        bytes_in: int,
        bytes_out: int,
        seconds: float,
    ) -> None:
        """Count a request of `bytes_in` answered in `bytes_out`, with these numbers of error codes."""
        counts = self.requests.get((name, version))
        if counts is None:
            counts = self.requests[name, version] = RequestCounts()
        counts.count += 1
        counts.seconds += seconds
        counts.bytes_in += bytes_in
        counts.bytes_out += bytes_out
        errors = self.errors
        for code, count in codes.items():
            errors[name, code] = errors.get((name, code), 0) + count

    def fetched(self, response: Any) -> None:
        """Count the bytes of records in a response of Fetch."""
        for _ in self.fetched_in_steps(response):
            pass

    def fetched_in_steps(self, response: Any) -> Iterator[None]:
        """Do the same some topics at a time, for responses with very many."""
        for number, topic in enumerate(response.responses, 1):
            size = sum([len(partition.records or b"") for partition in topic.partitions])
            name = (topic.topic or self._topic_name(topic.topic_id)) if size else None
            if name:
                self.fetched_bytes[name] = self.fetched_bytes.get(name, 0) + size
            if number % TOPICS_PER_TURN == 0:
                yield

    def forget_topics(self, exists: Callable[[str], bool]) -> None:
        """Remove the counts of topics that no longer exist."""
        for name in [name for name in self.fetched_bytes if not exists(name)]:
            del self.fetched_bytes[name]


class Places(NamedTuple):
    """Places of error codes in a struct: `here` if it has one itself, `inside` for its fields with error codes."""

    here: bool
    inside: tuple[tuple[str, Places], ...]


def count_error_codes(response: Any) -> dict[int, int]:
    """Return how often each error code is in a response, 0 for success: one per topic, partition or group."""
    counts: dict[int, int] = {}
    _count_codes(response, places_of(type(response)), counts)
    return counts


def _count_codes(value: Any, places: Places, counts: dict[int, int]) -> None:
    if places.here:
        code = value.error_code
        counts[code] = counts.get(code, 0) + 1
    for name, inner in places.inside:
        inner_value = getattr(value, name)
        if not isinstance(inner_value, list):
            if inner_value is not None:
                _count_codes(inner_value, inner, counts)
        elif inner.inside:
            for item in inner_value:
                _count_codes(item, inner, counts)
        else:
            for code in map(_error_code_of, inner_value):
                counts[code] = counts.get(code, 0) + 1


_error_code_of = attrgetter("error_code")
_known: dict[type[Any], Places] = {}


def places_of(struct: type[Any]) -> Places:
    """The places of error codes in a generated struct, read off its declaration once."""
    places = _known.get(struct)
    if places is None:
        places = _known[struct] = _look_for_places(struct)
    return places


def _look_for_places(struct: type[Any]) -> Places:
    inside = []
    here = False
    for field in fields(struct):
        here = here or field.name == "error_code"
        nested = struct_of(struct, field)
        if nested is not None:
            places = places_of(nested)
            if places.here or places.inside:
                inside.append((field.name, places))
    return Places(here, tuple(inside))
