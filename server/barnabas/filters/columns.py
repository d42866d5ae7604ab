"""Columns: the value of a path in each record, as a short text. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from barnabas.filters.errors import FilterLimitError
from barnabas.filters.nodes import Hit, Operand, Steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.filters.values import Fields

COLUMNS_MAX = 10
VALUES_MAX = 20
"""Values of a record that one column shows."""
CHARS_MAX = 200
"""Characters of them."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: a path or field, and its text as the name."""

    name: str
    operand: Operand

    def text(self, record: Fields) -> str | None:
        """Return its values in a record, with commas between them; None for none, or where there are too many steps."""
        texts = []
        try:
            for hit in islice(self.operand.hits(record, Steps()), VALUES_MAX):
                texts.append(_text(hit))
                if hit.path is None:
                    break  # the whole: its JSON would say it again
        except FilterLimitError:
            return None
        text = ", ".join(texts)
        return None if not texts else text if len(text) <= CHARS_MAX else f"{text[:CHARS_MAX]} ..."


def _text(hit: Hit) -> str:
    value: Any = hit.value
    return value[: CHARS_MAX + 1] if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def texts_of(columns: Sequence[Column], record: Fields) -> dict[str, str | None]:
    """Return the texts of columns in a record, by their names."""
    return {column.name: column.text(record) for column in columns}
