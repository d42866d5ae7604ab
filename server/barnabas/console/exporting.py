"""Records as files that are saved: JSON lines, or CSV for a spreadsheet. Pure.

The rule: what a producer has sent is never a formula. A spreadsheet takes a cell for one by its first character, so such a
cell begins with an apostrophe.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")
_FULL_WIDTH = ("\uff1d", "\uff0b", "\uff0d", "\uff20")


def cell(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA + _FULL_WIDTH) else text


def as_csv(records: Iterable[Mapping[str, Any]]) -> bytes:
    """Return records, as `decoding.Decoding` makes them, as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for one in records:
        headers = {header["name"]: header["value"]["text"] for header in one["headers"]}
        writer.writerow(
            [
                one["partition"],
                one["offset"],
                "" if one["timestamp"] is None else one["timestamp"],
                cell(one["key"]["text"]),
                cell(one["value"]["text"]),
                cell(json.dumps(headers, ensure_ascii=False)) if headers else "",
            ]
        )
    return out.getvalue().encode("utf-8", "replace")


def as_json_lines(records: Iterable[Mapping[str, Any]]) -> bytes:
    """Return records as lines of JSON."""
    return "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in records).encode("utf-8", "replace")
