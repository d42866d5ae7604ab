"""Pages of rows, filtered and sorted where the rows are. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from barnabas.console.base import Parameter, Query

T = TypeVar("T")

SIZE, SIZE_MAX = 25, 200
QUERY = (
    Parameter("filter", "only those with this text in their name, in any case"),
    Parameter("sort", "the column to sort by (name)"),
    Parameter("order", "asc or desc (asc)"),
    Parameter("page", "number of the page, from 1 (1)"),
    Parameter("size", f"rows of a page, at most {SIZE_MAX} ({SIZE})"),
)


class Page(NamedTuple, Generic[T]):
    """Rows of one page, and how many there are in all."""

    rows: Sequence[T]
    total: int
    page: int
    size: int

    def as_json(self, rows: Iterable[object]) -> dict[str, Any]:
        """Return the page, with these as its rows."""
        return {"rows": list(rows), "total": self.total, "page": self.page, "size": self.size}


def page_of(
    call: Query,
    rows: Iterable[T],
    orders: Mapping[str, Callable[[T], Any]],
    name_of: Callable[[T], str],
) -> Page[T]:
    """Return the page that a request asks for; one past the end is the last. Raises ConsoleError."""
    text = call.query.get("filter", "").strip().casefold()
    if text:
        rows = [row for row in rows if text in name_of(row).casefold()]
    order = call.one_of("sort", *orders)
    is_down = call.one_of("order", "asc", "desc") == "desc"
    size = call.whole("size", SIZE, least=1, most=SIZE_MAX)
    ordered = sorted(rows, key=orders[order], reverse=is_down)
    last = max((len(ordered) + size - 1) // size, 1)
    number = min(call.whole("page", 1, least=1), last)
    return Page(ordered[(number - 1) * size : number * size], len(ordered), number, size)
