"""Rows of PostgreSQL and of a table of current rows, side by side.

The rule: PostgreSQL says its rows as JSON; each value is read as the type that our column has, and must be equal.
"""

from __future__ import annotations

import json
import struct
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from compat.debezium.servers import Postgres


def rows_of(postgres: Postgres, table: str) -> list[dict[str, Any]]:
    """All rows of a table of PostgreSQL's."""
    text = postgres.run(f"SET timezone = 'UTC'; SELECT to_jsonb(t) FROM {table} t;")
    return [json.loads(line, parse_float=Decimal) for line in text.splitlines()]


def differences(theirs: list[dict[str, Any]], ours: list[dict[str, Any]], key: tuple[str, ...]) -> list[str]:
    """Return a line for each row that differs, with its values."""
    mine = {tuple(row[name] for name in key): row for row in ours}
    texts = [] if len(mine) == len(ours) else [f"{len(ours)} rows have {len(mine)} keys"]
    for row in theirs:
        name = tuple(row[column] for column in key)
        other = mine.pop(name, None)
        if other is None:
            texts.append(f"{name} is not there")
            continue
        texts += [
            f"{name}: {column} is {other.get(column)!r}, should be {value!r}"
            for column, value in row.items()
            if not is_same(value, other.get(column))
        ]
    return texts + [f"{name} should not be there" for name in mine]


def is_same(theirs: Any, ours: Any) -> bool:
    """Compare a value of PostgreSQL's JSON with one of our columns."""
    if theirs is None or ours is None:
        return theirs is None and ours is None
    match ours:
        case bool():
            return theirs is ours
        case Decimal():
            return Decimal(theirs) == ours
        case float():
            return ours in (float(theirs), struct.unpack("f", struct.pack("f", float(theirs)))[0])
        case datetime():
            return datetime.fromisoformat(theirs) == ours
        case date():
            return date.fromisoformat(theirs) == ours
        case time():
            return time.fromisoformat(theirs) == ours
        case bytes():
            return bytes.fromhex(theirs.removeprefix("\\x")) == ours
        case str() if isinstance(theirs, dict | list):
            return bool(json.loads(ours, parse_float=Decimal) == theirs)
    return bool(theirs == ours)
