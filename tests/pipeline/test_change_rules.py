"""Rules of changes by key: the columns by the shape and the schema, which events are changes, and their buckets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import Field, Record
from barnabas_pipeline.formats.base import TOMBSTONE
from barnabas_pipeline.lake import changes
from barnabas_pipeline.lake.changes import DEBEZIUM, NO_BUCKET, PLAIN, Form, Shape, buckets_of, within
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema

from .changing import BY_ID, BY_RECORD_KEY, CHANGES, PAIRS, at


def schema_of(*fields: Field, key: tuple[Field, ...] = ()) -> EventSchema:
    return EventSchema("some", NO_EVENT_TIME, fields, key)


# --- columns ----------------------------------------------------------------------------------------------------------


OP, BEFORE, AFTER = CHANGES.fields[:3]


@pytest.mark.parametrize(
    ("shape", "schema", "why"),
    [
        (BY_ID, schema_of(BEFORE, AFTER), "schema some is no envelope of Debezium: it needs op, and a record `after`"),
        (BY_ID, schema_of(OP, BEFORE), "schema some is no envelope of Debezium: it needs op, and a record `after`"),
        (BY_ID, schema_of(OP, BEFORE, Field("after", "string")),
         "schema some is no envelope of Debezium: it needs op, and a record `after`"),
        (BY_ID, schema_of(OP, AFTER, Field("before", "string")),
         "schema some has no `before`, which has the key of a deleted row"),
        (Shape(("op",), DEBEZIUM, 2), schema_of(OP, BEFORE, AFTER), "the key op is none of the fields id, n, text"),
        (Shape(("n", "x"), PLAIN, 2), PAIRS, "the key x is none of the fields n, text"),
        (BY_RECORD_KEY, replace(PAIRS, key=(Field("text", "string"), Field("n", "int"))),
         "field n has one type in the key of records, and another in their value"),
        (BY_RECORD_KEY, replace(PAIRS, key=(Field("a", "string"), Field("f", "float"))),
         "field f is float, which cannot be a key"),
        (BY_RECORD_KEY, replace(PAIRS, key=(Field("b", "boolean"),)), "field b is bool, which cannot be a key"),
    ],
)  # fmt: skip
def test_events_that_are_no_such_changes_are_a_wrong_option(
    shape: Shape, schema: EventSchema, why: str
) -> None:
    with pytest.raises(UsageError) as raised:
        Form(shape, schema).checked()
    assert str(raised.value) == why


# --- events -----------------------------------------------------------------------------------------------------------


def events(form: Form, *rows: dict[str, Any], topic_id: str = "id") -> Any:
    """Events as they are read; each is at the next offset, in partition 2, unless it says otherwise."""
    base = {"_topic_id": topic_id, "_topic_partition": 2, "_timestamp": at(0)}
    return pa.Table.from_pylist(
        [{**base, "_offset": 100 + n, **row} for n, row in enumerate(rows)], form.read
    )


def made(form: Form, *rows: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """The changes of events by offset, and how many are lost; each is in the bucket of its key."""
    dicts, lost = [], 0
    for bucket, table in changes.changes(form, events(form, *rows)):
        if bucket == NO_BUCKET:
            lost += table["lost"][0].as_py()
            continue
        assert set(buckets_of(form, table).tolist()) == {bucket}
        dicts += table.to_pylist()
    return sorted(dicts, key=lambda row: (row["_offset"], row["_deleted"])), lost


@pytest.mark.parametrize(
    ("ranges", "kept"),
    [
        ({2: (10, 13)}, [10, 11, 12]),
        ({2: (11, 12)}, [11]),
        ({2: (11, 11)}, []),
        ({2: (0, 11), 5: (12, 99)}, [10, 13]),
        ({1: (0, 99)}, []),
        ({9: (0, 99), 2: (12, 99)}, [12]),
        ({}, []),
    ],
)
def test_events_are_selected_by_incarnation_and_range(
    ranges: dict[int, tuple[int, int]], kept: list[int]
) -> None:
    table = pa.table(
        {
            "_topic_partition": pa.array([2, 2, 2, 5, 2], pa.int32()),
            "_offset": pa.array([10, 11, 12, 13, 11], pa.int64()),
            "_topic_id": ["id", "id", "id", "id", "another"],
        }
    )
    assert within(table, "id", ranges)["_offset"].to_pylist() == kept
    assert within(table.slice(0, 0), "id", ranges).num_rows == 0


def test_plain_event_is_a_row_a_deletion_or_lost() -> None:
    form = Form(Shape((), PLAIN, 5), PAIRS)
    key = {"_key_fields": {"value": "k"}}
    rows, lost = made(
        form,
        {**key, "n": 1, "text": "a", "_extra": '{"more":1}', "_timestamp": at(7)},
        {**key, "_extra": TOMBSTONE},
        {"n": 3},
        {"_key_fields": {"value": None}, "n": 4},
        {"_key_fields": {"value": "z"}, "text": "b"},
    )
    assert lost == 2
    assert rows == [
        {"_key": "k", "n": 1, "text": "a", "_extra": '{"more":1}', "_topic_partition": 2, "_offset": 100,
         "_changed_at": at(7), "_deleted": False},
        {"_key": "k", "n": None, "text": None, "_extra": None, "_topic_partition": 2, "_offset": 101,
         "_changed_at": at(0), "_deleted": True},
        {"_key": "z", "n": None, "text": "b", "_extra": None, "_topic_partition": 2, "_offset": 104,
         "_changed_at": at(0), "_deleted": False},
    ]  # fmt: skip


def test_an_envelope_is_what_its_operation_says() -> None:
    form = Form(Shape(("id",), DEBEZIUM, 7), CHANGES)
    row, other = {"id": 1, "n": 5, "text": "a"}, {"id": 2, "n": 6, "text": "b"}
    rows, lost = made(
        form,
        {"op": "c", "after": row, "source": {"lsn": 77}},
        {"op": "r", "after": other},
        {"op": "u", "before": other, "after": row},
        {"op": "u", "before": row, "after": {**row, "n": 9}},
        {"op": "u", "before": None, "after": row},
        {"op": "d", "before": other, "after": row},
        {"_extra": TOMBSTONE},
        {"op": "t"},
        {"op": "m"},
        {"op": "x", "after": row},
        {"op": "c", "before": row},
        {"after": row},
        {"op": "d"},
    )
    assert [(change["_offset"], change["id"], change["n"], change["_deleted"]) for change in rows] == [
        (100, 1, 5, False),
        (101, 2, 6, False),
        (102, 1, 5, False),
        (102, 2, 5, True),  # the row has another key now, and that one is no more
        (103, 1, 9, False),
        (104, 1, 5, False),
        (105, 1, 5, True),
    ]
    assert lost == 4, "x, an insert of nothing, one without an operation, a delete of nobody knows which row"
    assert [change["_source_lsn"] for change in rows] == [77, *[None] * 6]


def test_tombstone_deletes_by_the_record_key() -> None:
    form = Form(Shape((), DEBEZIUM, 7), replace(CHANGES, key=(Field("id", "long"), Field("shop", "string"))))

    def key(number: int | None, shop: str | None = "s") -> dict[str, Any]:
        return {"_key_fields": {"id": number, "shop": shop}}

    rows, lost = made(
        form,
        {**key(5), "op": "c", "after": {"id": 6, "n": 1}},
        {**key(7), "op": "d", "before": {"id": 8}},
        {**key(9), "_extra": TOMBSTONE},
        {**key(9, None), "_extra": TOMBSTONE},
        {**key(None), "op": "u", "before": {"id": 1}, "after": {"id": 2}},
    )
    assert [(change["_offset"], change["id"], change["shop"], change["_deleted"]) for change in rows] == [
        (100, 5, "s", False),
        (101, 7, "s", True),
        (102, 9, "s", True),
    ]
    assert lost == 2
    assert all(0 <= change["_bucket"] < 7 for change in rows)


def test_key_fields_of_one_type_are_not_confused() -> None:
    form = Form(BY_RECORD_KEY, replace(PAIRS, key=(Field("a", "long"), Field("b", "long"))))
    changes = [
        {"_key_fields": {"a": a, "b": b}, "n": n}
        for n, (a, b) in enumerate([(1, 2), (2, 1), (None, 3), (3, None)])
    ]
    rows, lost = made(form, *changes)
    assert [(change["a"], change["b"], change["n"]) for change in rows] == [(1, 2, 0), (2, 1, 1)]
    assert lost == 2


@pytest.mark.parametrize("before", [(), (Field("before", "string"),)], ids=["none", "a text"])
def test_an_envelope_by_the_key_of_the_record_needs_no_before(before: tuple[Field, ...]) -> None:
    form = Form(Shape((), DEBEZIUM, 7), schema_of(OP, AFTER, *before, key=(Field("id", "long"),))).checked()
    key = {"_key_fields": {"id": 5}}
    rows, lost = made(form, {**key, "op": "u", "after": {"id": 6, "n": 1}}, {**key, "op": "d"})
    assert [(change["_offset"], change["id"], change["n"], change["_deleted"]) for change in rows] == [
        (100, 5, 1, False),
        (101, 5, None, True),
    ]
    assert lost == 0


@pytest.mark.parametrize("names", [("id",), ("shop", "id")])
def test_row_with_an_untold_earlier_key_keeps_its_key(names: tuple[str, ...]) -> None:
    """As Debezium does where the source's table tells only some columns of what was there before."""
    before = Field("before", Record((Field("shop", "string"),)))
    after = Field("after", Record((Field("id", "long"), Field("shop", "string"))))
    form = Form(Shape(names, DEBEZIUM, 7), schema_of(OP, before, after)).checked()
    row = {"id": 6, "shop": "s"}
    rows, lost = made(
        form, {"op": "u", "before": {"shop": "t"}, "after": row}, {"op": "d", "before": {"shop": "s"}}
    )
    assert [(change["_offset"], change["id"], change["shop"], change["_deleted"]) for change in rows] == [
        (100, 6, "s", False)
    ]
    assert lost == 1


# --- buckets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "buckets", "expected"),
    [
        (
            ("n",),
            16,
            [12, 4, 8, 3, 2, 4],
        ),  # of 34 the 3, as Iceberg's specification has it: 2017239379 mod 16
        (("text",), 16, [0, 2, 3, 9, 4, 3]),  # of "iceberg" the 9: 1210000089 mod 16
        (("n", "text"), 16, [12, 2, 3, 3, 13, 3]),
        (("text", "n"), 16, [12, 1, 11, 12, 12, 6]),
        (("n", "text"), 1, [0] * 6),
    ],
)
def test_a_key_stays_in_its_bucket_from_release_to_release(
    names: tuple[str, ...], buckets: int, expected: list[int]
) -> None:
    form = Form(Shape(names, PLAIN, buckets), PAIRS)
    numbers = [0, 1, -1, 34, 1 << 40, 1]
    table = pa.table({"n": pa.array(numbers, pa.int64()), "text": ["", "a", "b", "iceberg", "ä", "b"]})
    assert buckets_of(form, table).tolist() == expected
