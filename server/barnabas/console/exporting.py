"""Records as files to save: JSON lines, or CSV for a spreadsheet. Pure.

The rule: data of a producer never becomes a formula. A spreadsheet recognizes a formula by the first character, so such a
cell begins with an apostrophe.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")
_FULL_WIDTH = ("\uff1d", "\uff0b", "\uff0d", "\uff20")


def cell(text: str) -> str:
    """Return a text that no spreadsheet interprets as a formula."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA + _FULL_WIDTH) else text


def csv_heading(columns: Sequence[str] = ()) -> bytes:
    """Return the line with the names of columns; `columns` are those that a request adds."""
    return _line((*COLUMNS, *map(cell, columns)))


def csv_row(record: Mapping[str, Any]) -> bytes:
    """Return a record of `decoding.record_as_json` as a line of CSV; a problem replaces its value."""
    headers = {header["name"]: header["value"]["text"] for header in record["headers"]}
    value = record["value"]
    return _line(
        (
            record["partition"],
            record["offset"],
            "" if record["timestamp"] is None else record["timestamp"],
            cell(record["key"]["text"]),
            cell(value["text"] or value.get("problem", "")),
            cell(json.dumps(headers, ensure_ascii=False)) if headers else "",
            *(cell(text or "") for text in record.get("columns", {}).values()),
        )
    )


def _line(cells: Sequence[Any]) -> bytes:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerow(cells)
    return out.getvalue().encode("utf-8", "replace")
