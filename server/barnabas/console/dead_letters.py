"""Dead letters: records with headers that name the record that could not be processed, and the reason. Pure.

The rule: a dead letter is recognised by its headers, whatever the name of its topic, and a redrive removes only those
headers. They are foreign input, so this runs in a child process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Headers = Sequence[tuple[str, bytes | None]]
NAME_CHARS_MAX = 249
"""Length of a topic's name."""
TEXT_CHARS_MAX = 300
"""Characters of a reason, and of the name of a reader."""


class Vocabulary(NamedTuple):
    """Names of the headers of one kind of writer; each begins with `prefix`."""

    prefix: str
    kind: str
    """Kind of the reader that gave the record up."""
    reader: str
    reason: str
    origin: str = ""
    """Beginning of the names of topic, partition and offset, after the prefix."""
    is_binary: bool = False
    """True if partition and offset are big-endian numbers, not text."""
    keeps_headers: bool = True
    """True if a dead letter has the headers of its record, too."""


SHARE = Vocabulary("__dlq.errors.", "share group", "group", "message", keeps_headers=False)
VOCABULARIES = (
    SHARE,
    Vocabulary("__connect.errors.", "connector", "connector.name", "exception.message"),
    Vocabulary("__streams.errors.", "Kafka Streams", "", "message"),
    Vocabulary(
        "kafka_dlt-", "group", "original-consumer-group", "exception-message", "original-", is_binary=True
    ),
)
"""Those of share groups (KIP-1191), sink connectors (KIP-298), Kafka Streams (KIP-1034) and Spring for Apache Kafka."""


class Letter(NamedTuple):
    """Origin of a dead letter: a record of `topic`; partition or offset is -1 if the headers do not name it."""

    topic: str
    partition: int
    offset: int
    kind: str
    reader: str
    reason: str
    headers: list[tuple[str, bytes | None]]
    """Headers of the record itself."""
    keeps_headers: bool

    @property
    def is_placed(self) -> bool:
        """True if the headers name the record itself, and not its topic alone."""
        return self.partition >= 0 and self.offset >= 0

    def as_json(self) -> dict[str, Any]:
        """Return the fields for the page."""
        return {
            "topic": self.topic,
            "partition": self.partition if self.partition >= 0 else None,
            "offset": self.offset if self.offset >= 0 else None,
            "kind": self.kind,
            "reader": self.reader,
            "reason": self.reason,
        }


def letter_of(headers: Headers) -> Letter | None:
    """Return the origin that headers name; None for a record that is no dead letter."""
    values = dict(headers)
    for vocabulary in VOCABULARIES:
        origin = f"{vocabulary.prefix}{vocabulary.origin}"
        topic = _text(values.get(f"{origin}topic"), NAME_CHARS_MAX)
        if topic:
            return Letter(
                topic,
                _number(values, f"{origin}partition", 4, is_binary=vocabulary.is_binary),
                _number(values, f"{origin}offset", 8, is_binary=vocabulary.is_binary),
                vocabulary.kind,
                _text(values.get(f"{vocabulary.prefix}{vocabulary.reader}"), TEXT_CHARS_MAX),
                _text(values.get(f"{vocabulary.prefix}{vocabulary.reason}"), TEXT_CHARS_MAX),
                [header for header in headers if not header[0].startswith(vocabulary.prefix)],
                vocabulary.keeps_headers,
            )
    return None


def _text(value: bytes | None, chars_max: int) -> str:
    return (value or b"")[: 4 * chars_max].decode("utf-8", "replace")[:chars_max]


def _number(values: Mapping[str, bytes | None], name: str, size: int, *, is_binary: bool) -> int:
    value = values.get(name) or b""
    if is_binary:
        return int.from_bytes(value, "big", signed=True) if len(value) == size else -1
    return int(value) if value.isdigit() and len(value) < 20 else -1
