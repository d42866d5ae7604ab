"""Rules of merging changes into rows: which event is the last one, what deletions and truncations leave, untold values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from barnabas_pipeline.field_types import Field, Record
from barnabas_pipeline.lake import changes
from barnabas_pipeline.lake.changes import DEBEZIUM, PLAIN, UNAVAILABLE, Form, Moment, Shape, merge

from .changing import BY_ID, CHANGES, PAIRS, ROW, at

PLACE = ("_topic_partition", "_offset", "_changed_at")
OP, BEFORE = CHANGES.fields[:2]

# --- which one is last ------------------------------------------------------------------------------------------------

BY_N = Form(Shape(("n",), PLAIN, 2), PAIRS)
FORM = Form(BY_ID, CHANGES)


def table_of(form: Form, schema: Any, *rows: dict[str, Any]) -> Any:
    """Rows as they are kept, or changes: of partition 0 and of the beginning, unless they say otherwise."""
    base = {"_topic_partition": 0, "_changed_at": 0}
    given = [{**base, **one} for one in rows]
    given = [{**one, "_changed_at": at(one["_changed_at"])} for one in given]
    return pa.Table.from_pylist(given, schema)


def merged(
    form: Form,
    changed: list[dict[str, Any]],
    *,
    rows: list[dict[str, Any]] | None = None,
    gone: list[dict[str, Any]] | None = None,
    truncated: list[Moment] | None = None,
    is_moving: bool = True,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    schema = form.arrow.append(changes.DELETED)
    found, left = merge(
        form,
        table_of(form, form.arrow, *(rows or [])),
        table_of(form, form.gone, *(gone or [])),
        table_of(form, schema, *({"_deleted": False, **one} for one in changed)),
        truncated or [],
        is_moving=is_moving,
    )
    assert (found.schema, left.schema) == (form.arrow, form.gone)
    return found.to_pylist(), left.to_pylist()


def event(
    offset: int, time_us: int, partition: int = 0, lsn: int | None = None, **more: Any
) -> dict[str, Any]:
    place = {"_offset": offset, "_changed_at": time_us, "_topic_partition": partition, "_source_lsn": lsn}
    return {"id": 1, "text": f"{partition}/{offset}", **place, **more}


EARLIER_AND_LATER = [
    (event(90, 5, lsn=9), event(10, 6, partition=1, lsn=3)),
    (event(90, 5, partition=1, lsn=3), event(10, 5, lsn=9)),
    (event(90, 5, partition=1), event(10, 5, lsn=1)),  # one that tells nothing comes first
    (event(90, 5, lsn=9), event(10, 5, partition=1, lsn=9)),
    (event(10, 5, lsn=9), event(11, 5, lsn=9)),
    (event(10, 7, lsn=9), event(11, 5, lsn=3)),  # within a partition the offset counts, whatever went back
]


@pytest.mark.parametrize(("earlier", "later"), EARLIER_AND_LATER)
def test_of_two_events_of_a_key_the_later_one_has_the_row_wherever_they_come_from(
    earlier: dict[str, Any], later: dict[str, Any]
) -> None:
    for rows, changed in (
        ([], [earlier, later]),
        ([], [later, earlier]),
        ([earlier], [later]),
        ([later], [earlier]),
    ):
        found, left = merged(FORM, changed, rows=rows)
        assert [one["text"] for one in found] == [later["text"]]
        assert left == []


@pytest.mark.parametrize(("earlier", "later"), EARLIER_AND_LATER)
@pytest.mark.parametrize("is_deleted", [(False, True), (True, False), (True, True)])
def test_a_deletion_is_an_event_as_others_and_is_remembered(
    earlier: dict[str, Any], later: dict[str, Any], is_deleted: tuple[bool, bool]
) -> None:
    pair = [{**one, "_deleted": gone} for one, gone in zip((earlier, later), is_deleted, strict=True)]
    for changed in (pair, pair[::-1]):
        found, left = merged(FORM, changed)
        assert [one["text"] for one in found] == ([] if is_deleted[1] else [later["text"]])
        assert [one["_offset"] for one in left] == ([later["_offset"]] if is_deleted[1] else [])
    if is_deleted == (False, True):
        kept = {name: later[name] for name in ("id", *PLACE, "_source_lsn")}
        found, left = merged(FORM, [earlier], gone=[kept])
        assert (found, [one["_offset"] for one in left]) == ([], [later["_offset"]])


def test_with_one_partition_the_offset_counts_alone_and_nothing_is_remembered() -> None:
    changed = [event(11, 3), event(12, 1, lsn=1), event(10, 7, lsn=9)]
    found, left = merged(FORM, changed, is_moving=False)
    assert [(one["_offset"], one["_changed_at"], one["_source_lsn"]) for one in found] == [(12, at(1), 1)]
    found, left = merged(FORM, [*changed, event(13, 0, _deleted=True)], is_moving=False)
    assert (found, left) == ([], [])


def test_a_moment_that_went_back_is_the_latest_one_of_its_key_and_partition() -> None:
    changed = [
        event(10, 7, lsn=4),
        event(11, 5, lsn=9),
        event(12, 7, lsn=3),
        event(10, 6, partition=1, id=2),
        event(11, 2, partition=1, id=2),
        event(30, 1, partition=1, id=3),
        event(10, 9, partition=2, id=3),
    ]
    found, _ = merged(FORM, changed)
    assert [(one["id"], one["_offset"], one["_changed_at"], one["_source_lsn"]) for one in found] == [
        (1, 12, at(7), 4),
        (2, 11, at(6), 0),
        (3, 10, at(9), 0),
    ]


@pytest.mark.parametrize("is_moving", [True, False])
@pytest.mark.parametrize("order", [1, -1])
def test_a_truncation_ends_all_that_comes_before_it_in_its_partition(is_moving: bool, order: int) -> None:
    changed = [event(n, 5, id=n) for n in (8, 9, 11, 12)][::order]
    found, left = merged(FORM, changed, truncated=[Moment(5, 0, 0, 10)], is_moving=is_moving)
    assert [one["id"] for one in found] == [11, 12]
    assert left == []


@pytest.mark.parametrize(
    ("one", "is_kept"),
    [
        (event(99, 4, partition=2), False),
        (event(1, 6, partition=0), True),
        (event(99, 5, partition=2, lsn=2), False),
        (event(1, 5, partition=0, lsn=4), True),
        (event(99, 5, partition=0, lsn=3), False),
        (event(1, 5, partition=2, lsn=3), True),
        (event(9, 5, partition=1, lsn=3), False),
        (event(11, 5, partition=1, lsn=3), True),
        (event(11, 1, partition=1, lsn=0), True),  # after it in its partition, whatever its time says
    ],
)
def test_a_truncation_is_in_the_order_of_moments_then_of_partitions(
    one: dict[str, Any], is_kept: bool
) -> None:
    beside = event(500, 50, partition=3, id=77)
    found, left = merged(FORM, [beside, one], truncated=[Moment(5, 3, 1, 10)])
    assert [row["id"] for row in found] == ([1, 77] if is_kept else [77])
    assert left == []
    _, left = merged(FORM, [beside, {**one, "_deleted": True}], truncated=[Moment(5, 3, 1, 10)])
    assert len(left) == is_kept, "nothing is remembered of what came before"


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_truncations_the_latest_counts_for_all(order: int) -> None:
    truncated = [Moment(5, 9, 1, 90), Moment(6, 1, 0, 10), Moment(6, 0, 2, 50)][::order]
    changed = [
        event(91, 5, partition=1, id=1),
        event(92, 7, partition=1, id=2),
        event(11, 1, partition=0, id=3),
        event(51, 1, partition=2, id=4),
        event(9, 6, partition=0, id=5),
    ]
    found, _ = merged(FORM, changed, truncated=truncated)
    assert [one["id"] for one in found] == [2, 3]
    assert found[1]["_changed_at"] == at(6), "not before the truncation that it comes after"
    assert found[1]["_source_lsn"] == 1


def test_rows_are_sorted_by_all_columns_of_the_key() -> None:
    form = Form(Shape(("text", "n"), PLAIN, 2), PAIRS)
    keys = [("b", 1), ("a", 2), ("b", 0), ("a", 1), ("", 3), ("a", 3), ("b", 2)]
    changed = [{"text": text, "n": n, "_offset": at_} for at_, (text, n) in enumerate(keys)]
    changed += [{"text": "a", "n": 2, "_offset": 50}, {"text": "b", "n": 3, "_offset": 51, "_deleted": True}]
    found, left = merged(form, changed)
    assert [(one["text"], one["n"]) for one in found] == sorted(keys)
    assert [one["_offset"] for one in found if (one["text"], one["n"]) == ("a", 2)] == [50]
    assert [(one["text"], one["n"], one["_offset"]) for one in left] == [("b", 3, 51)]


def test_of_nothing_comes_nothing() -> None:
    for is_moving in (True, False):
        assert merged(BY_N, [], is_moving=is_moving) == ([], [])
        assert merged(BY_N, [], truncated=[Moment(1, 2, 3, 4)], is_moving=is_moving) == ([], [])


# --- values that an update has not told -------------------------------------------------------------------------------

BYTES = Form(
    Shape(("id",), DEBEZIUM, 2),
    replace(CHANGES, fields=(OP, BEFORE, Field("after", Record((*ROW, Field("raw", "bytes"), Field("num", "int")))))),
)  # fmt: skip
OPEN = UNAVAILABLE.encode()


@pytest.mark.parametrize("is_moving", [True, False])
def test_a_value_that_was_not_told_is_the_last_one_that_was_told_of_the_row(is_moving: bool) -> None:
    def change(offset: int, number: int, text: str | None, raw: bytes | None, **more: Any) -> dict[str, Any]:
        return {"_offset": offset, "id": number, "text": text, "raw": raw, "n": offset, **more}

    rows = [change(1, 1, "one", b"1"), change(2, 2, "two", b"2")]
    changed = [
        change(19, 5, UNAVAILABLE, OPEN),
        change(11, 1, UNAVAILABLE, b"11"),
        change(12, 1, UNAVAILABLE, OPEN),
        change(13, 2, None, OPEN),
        change(14, 2, UNAVAILABLE, OPEN),
        change(15, 3, UNAVAILABLE, b"15"),
        change(16, 4, "four", b"16"),
        change(17, 4, "gone", b"17", _deleted=True),
        change(18, 4, UNAVAILABLE, OPEN),
    ]
    for order in (1, -1):
        found, _ = merged(BYTES, changed[::order], rows=rows, is_moving=is_moving)
        assert [(one["id"], one["n"], one["text"], one["raw"]) for one in found] == [
            (1, 12, "one", b"11"),
            (2, 14, None, b"2"),
            (3, 15, UNAVAILABLE, b"15"),  # nobody has told it
            (4, 18, UNAVAILABLE, OPEN),  # those of the row that was deleted are not this one's
            (5, 19, UNAVAILABLE, OPEN),
        ]


def test_without_an_envelope_such_a_text_is_one_as_others() -> None:
    rows = [{"_offset": 1, "n": 1, "text": "told"}]
    found, _ = merged(BY_N, [{"_offset": 2, "n": 1, "text": UNAVAILABLE}], rows=rows)
    assert [one["text"] for one in found] == [UNAVAILABLE]
