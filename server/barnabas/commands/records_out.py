"""Records as they are printed: by a format string of kcat's, or as lines of JSON.

The rule: values are printed as the bytes that they are, but for what a terminal would obey; a null is nothing, or what
`-Z` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from barnabas.client import ConsumedRecord
from barnabas.commands.output import date_text
from barnabas.commands.parsing import unescaped
from barnabas.commands.schemas import Json
from barnabas.environment.terminal import visible_data, visible_json
from barnabas.tools.inspection.plain_records import plain, plain_headers

DEFAULT_FORMAT = "%s\\n"
Piece = Callable[[ConsumedRecord], bytes]


def formatter(text: str, null: bytes, *, is_shown: bool = False) -> Piece:
    """Return a function that prints a record as a format says. Raises ValueError for one that is none.

    %s value, %k key, %S and %K their sizes (-1 for null), %t topic, %p partition, %o offset, %T timestamp in ms,
    %D timestamp as ISO 8601, %h headers, %e leader epoch, %% a percent sign; \\n \\t \\r \\0 \\xHH.
    `is_shown`: it goes to a terminal, which is not to obey what is in keys, values and headers.
    """
    pieces: list[Piece] = []
    for literal, directive in re.findall(r"([^%]*)(?:%(.?))?", text, re.S):
        if literal:
            pieces.append(_constant(unescaped(literal)))
        if directive:
            piece = _piece(directive, null)
            pieces.append(_shown(piece) if is_shown and directive in "skh" else piece)
    if re.search(r"(?<!%)(?:%%)*%$", text):
        raise ValueError("it ends with a single %")
    return lambda record: b"".join([piece(record) for piece in pieces])


def _shown(piece: Piece) -> Piece:
    return lambda record: visible_data(piece(record))


def _constant(data: bytes) -> Piece:
    return lambda record: data  # noqa: ARG005


def _piece(directive: str, null: bytes) -> Piece:
    pieces: dict[str, Piece] = {
        "s": lambda record: null if record.value is None else record.value,
        "k": lambda record: null if record.key is None else record.key,
        "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
        "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "T": lambda record: b"%d" % record.timestamp_ms,
        "D": lambda record: date_text(record.timestamp_ms).encode(),
        "e": lambda record: b"%d" % record.leader_epoch,
        "h": lambda record: b",".join(
            name.encode("utf-8", "surrogateescape") + b"=" + (null if value is None else value)
            for name, value in record.headers
        ),
        "%": lambda record: b"%",  # noqa: ARG005
    }
    if directive not in pieces:
        raise ValueError(f"there is no %{directive}; there are {' '.join('%' + piece for piece in pieces)}")
    return pieces[directive]


def json_line(record: ConsumedRecord) -> bytes:
    """Return a record as a line of JSON."""
    value = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _plain(record.key),
        "value": _plain(record.value),
        "headers": plain_headers(record.headers),
    }
    return visible_json(value).encode("utf-8", "surrogateescape") + b"\n"


def _plain(data: bytes | None) -> Any:
    """Return a key or value for JSON: what a schema says, or text, or base64."""
    return data.value if isinstance(data, Json) else plain(data)


def header_matches(name: str, pattern: Any, record: ConsumedRecord) -> bool:
    """Say whether a record has a header with this name, and a value that the pattern finds something in."""
    return any(
        key == name and (pattern is None or pattern.search(value or b"") is not None)
        for key, value in record.headers
    )
