"""Output of records: by a format string like kcat's, or as lines of JSON.

The rule: values are printed as raw bytes, except control sequences at a terminal; null is empty, or the text of `-Z`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, repeat
from typing import Any, NamedTuple, cast

from barnabas.client import ConsumedRecord
from barnabas.commands.output import date_text
from barnabas.commands.parsing import unescaped
from barnabas.commands.schemas import Json
from barnabas.environment.terminal import visible_data, visible_json
from barnabas.records.record import Record
from barnabas.tools.inspection.plain_records import plain, plain_headers

Entry = ConsumedRecord | Record
"""A record, from the consumer or from its batch."""


class Lines(NamedTuple):
    """Records of one batch, to be printed."""

    topic: str
    partition: int
    leader_epoch: int
    records: Sequence[Entry]


Render = Callable[[Lines], bytes]
Column = Callable[[Lines], Iterable[bytes]]
"""Text of one place of the format, for each record."""


def formatter(text: str, null: bytes, *, is_shown: bool = False) -> Render:
    """Return a function that prints records as a format says. Raises ValueError for one that is none.

    %s value, %k key, %S and %K their sizes (-1 for null), %t topic, %p partition, %o offset, %T timestamp in ms,
    %D timestamp as ISO 8601, %h headers, %e leader epoch, %% a percent sign; \\n \\t \\r \\0 \\xHH.
    `is_shown`: it goes to a terminal, which is not to obey what is in keys, values and headers.
    """
    columns: list[Column] = []
    ends: list[bytes] = []
    for literal, directive in re.findall(r"([^%]*)(?:%(.?))?", text, re.S):
        if literal:
            ends.append(unescaped(literal))
            columns.append(_constant(ends[-1]))
        if directive:
            column = _column(directive, null)
            columns.append(_shown(column) if is_shown and directive in "skh" else column)
    if re.search(r"(?<!%)(?:%%)*%$", text):
        raise ValueError("it ends with a single %")

    def render(lines: Lines) -> bytes:
        return b"".join(chain.from_iterable(zip(*[column(lines) for column in columns], strict=True)))

    def render_joined(lines: Lines) -> bytes:
        return ends[0].join(columns[0](lines)) + (ends[0] if lines.records else b"")

    # the default, a value and its end: the fastest way
    is_plain = len(columns) == 2 and len(ends) == 1 and re.match("%[^%]", text) is not None
    return render_joined if is_plain else render


def _shown(column: Column) -> Column:
    return lambda lines: map(visible_data, column(lines))


def _constant(data: bytes) -> Column:
    return lambda lines: repeat(data, len(lines.records))


def _column(directive: str, null: bytes) -> Column:
    columns: dict[str, Column] = {
        "s": lambda lines: _without_nulls([record.value for record in lines.records], null),
        "k": lambda lines: _without_nulls([record.key for record in lines.records], null),
        "S": lambda lines: [b"%d" % _size(record.value) for record in lines.records],
        "K": lambda lines: [b"%d" % _size(record.key) for record in lines.records],
        "t": lambda lines: _constant(lines.topic.encode())(lines),
        "p": lambda lines: _constant(b"%d" % lines.partition)(lines),
        "o": lambda lines: [b"%d" % record.offset for record in lines.records],
        "T": lambda lines: [b"%d" % _time_ms(record) for record in lines.records],
        "D": lambda lines: [date_text(_time_ms(record)).encode() for record in lines.records],
        "e": lambda lines: _constant(b"%d" % lines.leader_epoch)(lines),
        "h": lambda lines: [
            b",".join(
                name.encode("utf-8", "surrogateescape") + b"=" + (null if value is None else value)
                for name, value in record.headers
            )
            for record in lines.records
        ],
        "%": _constant(b"%"),
    }
    if directive not in columns:
        raise ValueError(f"there is no %{directive}; there are {' '.join('%' + name for name in columns)}")
    return columns[directive]


def _without_nulls(column: list[bytes | None], null: bytes) -> Iterable[bytes]:
    if None in column:
        return [null if data is None else data for data in column]
    return cast(list[bytes], column)


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _time_ms(record: Entry) -> int:
    return record.timestamp if isinstance(record, Record) else record.timestamp_ms


def lines_of(records: Iterable[ConsumedRecord]) -> Iterator[Lines]:
    """Yield records grouped by topic, partition and leader epoch, in their order."""
    for place, group in groupby(
        records, lambda record: (record.topic, record.partition, record.leader_epoch)
    ):
        yield Lines(*place, list(group))


def json_lines(lines: Lines) -> bytes:
    """Return records as lines of JSON."""
    return b"".join([_json_line(lines, record) for record in lines.records])


def _json_line(lines: Lines, record: Entry) -> bytes:
    value = {
        "topic": lines.topic,
        "partition": lines.partition,
        "offset": record.offset,
        "timestamp": _time_ms(record),
        "key": _plain(record.key),
        "value": _plain(record.value),
        "headers": plain_headers(record.headers),
    }
    return visible_json(value).encode("utf-8", "surrogateescape") + b"\n"


def _plain(data: bytes | None) -> Any:
    """Return a key or value for JSON: decoded by a schema, or text, or base64."""
    return data.value if isinstance(data, Json) else plain(data)


def header_matches(name: str, pattern: Any, record: Entry) -> bool:
    """Return whether a record has a header with this name, and with a value that matches the pattern."""
    return any(
        key == name and (pattern is None or pattern.search(value or b"") is not None)
        for key, value in record.headers
    )
