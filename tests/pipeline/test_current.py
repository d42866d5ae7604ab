"""Tables of current rows: what a dict would have, whatever portions the events come in and wherever a run dies."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.transforms import BucketTransform

from barnabas_pipeline import faults
from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.field_types import Decimal, Field, Record
from barnabas_pipeline.jobs.current import CurrentRows
from barnabas_pipeline.lake.changes import UNAVAILABLE, Shape
from barnabas_pipeline.schema import EventSchema

from .changing import (
    BY_ID,
    BY_RECORD_KEY,
    CHANGES,
    PAIRS,
    Event,
    Topic,
    current,
    dead_tombstones,
    envelopes,
    pairs,
    rows_of,
    topic,
    truth,
)
from .tables import catalog
from .topics import Here

POINTS = [name for name in faults.POINTS if name.startswith("current.")]


class DiedError(Exception):
    """A process was killed."""


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("schema", "shape", "events_of"),
    [(PAIRS, BY_RECORD_KEY, pairs), (CHANGES, BY_ID, envelopes)],
    ids=["plain", "debezium"],
)
@pytest.mark.parametrize("seed", range(4))
def test_rows_are_those_of_a_dict_wherever_a_run_dies(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    schema: Any,
    shape: Shape,
    events_of: Any,
    count: int,
) -> None:
    """Keys are in all partitions at random, and times go back; each run may die at any step, and the next goes on."""
    rng = random.Random(f"{seed} {count} {schema.name}")
    source = topic(tmp_path, schema, *(events_of(rng, 60, 8, skew=True) for _ in range(count)))
    ends = dict.fromkeys(range(count), 0)
    died = []
    while any(ends[n] < len(source.partitions[n]) for n in ends):
        ends = {n: min(len(source.partitions[n]), ends[n] + rng.choice([0, 1, 9, 25])) for n in ends}
        source.load(ends)
        point = rng.choice([*POINTS, ""])

        def die(name: str, point: str = point) -> None:
            if name == point:
                raise DiedError(name)

        with monkeypatch.context() as patch:
            patch.setattr(faults, "point", die)
            try:
                current(source, shape).round()
            except DiedError:
                died.append(point)
        job = current(source, shape)
        job.round()
        assert rows_of(job) == truth(events[: ends[n]] for n, events in enumerate(source.partitions)), (
            f"seed {seed}"
        )
        assert not current(source, None).round().has_done, "there is nothing more to apply"
    assert job.check().differences == 0
    assert job.table.applied.ends == ends
    assert job.table.applied.version <= job.events.state().version
    again = current(source, None, rebuild=True)
    again.round()
    assert rows_of(again) == rows_of(job)
    assert again.check().differences == 0


@pytest.mark.parametrize("count", [1, 2])
def test_tasks_of_some_files_give_the_same_rows(tmp_path: Path, count: int) -> None:
    rng = random.Random(9)
    source = topic(tmp_path, CHANGES, *(envelopes(rng, 120, 20, skew=True) for _ in range(count)))
    for part in (50, 90, 120):
        source.load(dict.fromkeys(range(count), part))
        job = current(source, BY_ID, spark=Here, in_process_rows_max=0)
        job.round()
        assert rows_of(job) == truth(events[:part] for events in source.partitions)
        assert job.check().differences == current(source, None).check().differences == 0
    assert (
        current(source, None, spark=Here, in_process_rows_max=240 + job.table.rows - 1).check().differences
        == 0
    )
    failing = current(source, None, rebuild=True, spark=lambda: Here(_fail), in_process_rows_max=0)
    with pytest.raises(IncompleteError, match="a task could not read or write: the disk is full"):
        failing.round()


def _fail() -> None:
    raise RuntimeError("of a task:\nOSError: the disk is full")


# --- keys -----------------------------------------------------------------------------------------------------------


def test_undecoded_record_key_identifies_rows_by_its_bytes(tmp_path: Path) -> None:
    source = topic(
        tmp_path, replace(PAIRS, key=()), [Event({"n": 1}, "a"), Event({"n": 2}, "b"), Event(None, "a")]
    )
    source.load()
    job = current(source)
    job.round()
    assert rows_of(job, "n") == {b"b": (2,)}


KEYS = (
    Field("day", "date"),
    Field("price", Decimal(9, 2)),
    Field("name", "string"),
    Field("at", "timestamp_us"),
    Field("took", "time_us"),
    Field("raw", "bytes"),
    Field("number", "int"),
)


@pytest.mark.parametrize(
    "names", [*((key.name,) for key in KEYS), tuple(key.name for key in KEYS), ("name", "number")]
)
def test_keys_are_of_any_plain_type_and_of_several_fields(tmp_path: Path, names: tuple[str, ...]) -> None:
    def event(n: int, value: int) -> Event:
        held = {"day": f"2026-11-{n + 1:02}", "price": f"{n}.50", "name": f"n{n}", "at": n, "took": n}
        return Event({**held, "raw": b64encode(bytes([n])).decode(), "number": n, "value": value})

    schema = EventSchema("keys", "_timestamp", (*KEYS, Field("value", "long")))
    source = topic(tmp_path, schema, [event(n % 20, n) for n in range(50)])
    source.load({0: 30})
    shape = Shape(names, "none", 4)
    current(source, shape).round()
    source.load()
    job = current(source, shape)
    job.round()
    table = catalog(job.events.place).load_table(job.table.place.name)
    rows = table.scan().to_arrow()
    assert sorted(rows["value"].to_pylist()) == [*range(30, 50)]
    assert job.check().differences == 0
    assert len(job.table.files()) > 1, "they are in several buckets"
    for name in names:
        for row in range(20):
            scan = table.scan(EqualTo(name, rows[name][row].as_py()))
            assert scan.to_arrow()["value"].to_pylist() == [rows["value"][row].as_py()], "none is hidden"
            assert len(names) > 1 or len(list(scan.plan_files())) == 1, "a reader opens the key's bucket only"
    for bucket, files in job.table.files().items() if len(names) > 1 else ():
        planned = {task.file.file_path for task in table.scan(EqualTo("_bucket", bucket)).plan_files()}
        assert planned == {file.path for file in files}, "so it may, of several, by the bucket"


@pytest.mark.parametrize(
    ("schema", "shape", "text"),
    [
        (PAIRS, Shape(("x",), "none", 2), "the key x is none of the fields n, text"),
        (PAIRS, Shape((), "debezium", 2), "no envelope of Debezium"),
        (
            EventSchema("t", "_timestamp", (Field("f", "double"),)),
            Shape(("f",), "none", 2),
            "f is double, which cannot be a key",
        ),
        (
            EventSchema("t", "_timestamp", (Field("id", "long"),), (Field("id", "string"),)),
            Shape((), "none", 2),
            "field id has one type in the key of records, and another in their value",
        ),
        (EventSchema("t", "_timestamp", (CHANGES.fields[0], CHANGES.fields[2])), BY_ID, "has no `before`"),
    ],
)
def test_a_key_that_cannot_be_is_a_usage_error(
    tmp_path: Path, schema: EventSchema, shape: Shape, text: str
) -> None:
    source = topic(tmp_path, schema, [])
    source.load()
    with pytest.raises(UsageError, match=text):
        current(source, shape).round()


def test_a_table_keeps_how_it_was_made(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": 1}, "a")])
    with pytest.raises(UsageError, match="load the topic first"):
        current(source).round()
    source.load()
    with pytest.raises(UsageError, match="say by --key or --key-from"):
        current(source, None).round()
    current(source).round()
    with pytest.raises(UsageError, match=r"is made with Shape.*, not with"):
        current(source, Shape(("n",), "none", 3)).round()
    other = current(source, Shape(("n",), "none", 5), name="barnabas.by_n")
    other.round()
    assert catalog(source.place).load_table("barnabas.by_n").scan().to_arrow()["n"].to_pylist() == [1]


def repartitioned(source: Topic, job: CurrentRows, count: int) -> None:
    """Do as another engine that partitions the table in another way, and then writes all rows again."""
    table = catalog(source.place).load_table(job.table.place.name)
    rows = table.scan().to_arrow()
    with table.update_spec() as update:
        update.remove_field(table.spec().fields[0].name)
        for column in ("_key", "n")[:count]:
            update.add_field(column, BucketTransform(5), f"{column}_by_5")
    if count:
        table.overwrite(rows)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_table_with_foreign_partitioning_is_refused(tmp_path: Path, count: int) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": n}, f"k{n % 30}") for n in range(60)])
    source.load({0: 30})
    job = current(source)
    job.round()
    repartitioned(source, job, count)
    source.load()
    for act in (current(source).round, current(source).check):
        with pytest.raises(UsageError, match="was partitioned in another way: --rebuild into a new table"):
            act()
    other = current(source, name="barnabas.other")
    other.round()
    assert rows_of(other) == truth(source.partitions)


# --- events that are none -------------------------------------------------------------------------------------------


def test_events_without_a_key_are_counted(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": 1}, "a"), Event({"n": 2}), Event({"n": 3})])
    source.load()
    job = current(source)
    job.round()
    assert (rows_of(job, "n"), job.summary.lost) == ({"a": (1,)}, 2)
    dead_tombstones(source, 2)
    with pytest.raises(UsageError, match="2 null values are dead letters, whose rows would stay"):
        current(source).round()
    assert rows_of(job, "n") == {"a": (1,)}


def test_what_debezium_does_not_say_is_counted(tmp_path: Path) -> None:
    strange = [{"op": "x", "after": {"id": 1}}, {"op": "c", "after": None}, {"op": "m"}, {"after": {"id": 2}}]
    source = topic(tmp_path, CHANGES, [Event(value) for value in strange])
    source.load()
    job = current(source, BY_ID)
    job.round()
    assert (rows_of(job), job.summary.lost) == ({}, 3), "m is a message beside the tables"


def test_values_that_an_update_has_not_touched_stay(tmp_path: Path) -> None:
    def update(n: int, text: str = UNAVAILABLE) -> Event:
        return Event({"op": "u", "after": {"id": 1, "n": n, "text": text}})

    first = Event({"op": "c", "after": {"id": 1, "n": 0, "text": "long"}})
    source = topic(tmp_path, CHANGES, [first, update(1), update(2), update(3, "other"), update(4), update(5)])
    for end in (2, 3, 6):
        source.load({0: end})
        job = current(source, BY_ID)
        job.round()
        assert rows_of(job) == {1: (end - 1, "long" if end < 4 else "other")}
        assert job.check().differences == 0
    stranger = [update(7), Event({"op": "d", "before": {"id": 1}}), update(8)]
    source.partitions[0] += stranger
    source.load()
    job = current(source, BY_ID)
    job.round()
    assert rows_of(job) == {1: (8, UNAVAILABLE)}, "nobody has told the value of this row"


@pytest.mark.parametrize("count", [1, 2])
def test_truncation_empties_buckets_without_changes(tmp_path: Path, count: int) -> None:
    rows = [Event({"op": "c", "after": {"id": n}}, None, n) for n in range(20)]
    source = topic(tmp_path, CHANGES, rows, *([] for _ in range(1, count)))
    source.load()
    current(source, BY_ID).round()
    source.partitions[-1].append(Event({"op": "t"}, None, 99))
    source.load()
    job = current(source, BY_ID)
    job.round()
    assert (rows_of(job), job.table.files()) == ({}, {})
    source.partitions[0].append(Event({"op": "r", "after": {"id": 1, "n": 1}}, None, 100))
    source.load()
    job.round()
    assert rows_of(job) == {1: (1, None)}


@pytest.mark.parametrize("source", [None, (Field("lsn", "string"),), (Field("lsn", "long"),)])
@pytest.mark.parametrize("count", [1, 2])
def test_events_without_lsn_are_ordered_by_timestamp(tmp_path: Path, source: Any, count: int) -> None:
    fields = CHANGES.fields[:3] + ((Field("source", Record(source)),) if source else ())
    rng = random.Random(7)
    parts = [envelopes(rng, 60, 6) for _ in range(count)]
    for changed in (event for part in parts for event in part if event.value is not None):
        assert changed.value is not None
        changed.value.pop("source", None)
    events = topic(tmp_path, replace(CHANGES, fields=fields), *parts)
    for end in (25, 60):
        events.load(dict.fromkeys(range(count), end))
        job = current(events, BY_ID)
        job.round()
        assert rows_of(job) == truth(events[:end] for events in events.partitions)
        assert job.check().differences == 0


def test_debezium_rows_by_a_record_key_with_a_schema(tmp_path: Path) -> None:
    def event(value: dict[str, Any] | None, key: int) -> Event:
        return Event(value, json.dumps({"schema": {"type": "struct"}, "payload": {"id": key}}))

    events = [event({"op": "c", "after": {"id": n, "n": n}}, n) for n in range(4)]
    events += [event({"op": "d", "before": None}, 1), event(None, 1), event(None, 2), Event({"op": "t"})]
    events += [
        event({"op": "r", "after": {"id": 3, "n": 9}}, 3),
        event({"op": "c", "after": {"id": 5, "n": 5}}, 5),
    ]
    source = topic(tmp_path, replace(CHANGES, key=(Field("id", "long"),)), events)
    source.key_format = "connect-json"
    shape = Shape((), "debezium", 2)
    for end, rows in ((5, {0: (0,), 2: (2,), 3: (3,)}), (7, {0: (0,), 3: (3,)}), (10, {3: (9,), 5: (5,)})):
        source.load({0: end})
        job = current(source, shape)
        job.round()
        assert (rows_of(job, "n"), job.summary.lost) == (rows, 0)
        assert job.check().differences == 0


# --- other events ---------------------------------------------------------------------------------------------------


def test_a_column_that_events_gain_is_gained(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": 1, "text": "a"}, "a"), Event({"n": 2, "more": 5}, "b")])
    source.load({0: 1})
    current(source).round()
    source.load(schema=replace(PAIRS, fields=(*PAIRS.fields, Field("more", "long"))))
    job = current(source)
    job.round()
    assert rows_of(job, "n", "more") == {"a": (1, None), "b": (2, 5)}
    assert job.check().differences == 0


def test_a_topic_that_was_made_again_begins_with_no_rows(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": 1}, "a"), Event({"n": 2}, "b")])
    source.load()
    current(source).round()
    source.topic_id, source.partitions = "other", [[Event({"n": 3}, "b")]]
    source.load(kind="restart")
    job = current(source)
    job.round()
    assert (rows_of(job, "n"), job.summary.rebuilt) == ({"b": (3,)}, "the topic was made again")


@pytest.mark.parametrize("kind", ["redrive", "backfill"])
def test_events_that_are_others_now_are_applied_again(tmp_path: Path, kind: str) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": 1}, "a"), Event({"n": 2}, "a")])
    source.load()
    current(source).round()
    source.partitions[0][1] = Event({"n": 3}, "a")
    state = source.table.refresh()
    entry = source.load(kind="seal")
    entry = replace(entry, version=state.version + 2, kind=kind, previous=source.table.state().digest)
    entry = replace(entry, previous_path=source.table.state().path, partitions={}, after={})
    entry.remove = [piece.path for piece in source.table.pieces()]
    entry.add = list(source._written(0, range(2)))
    source.table.commit(entry)
    job = current(source)
    job.round()
    assert (rows_of(job, "n"), job.summary.rebuilt) == ({"a": (3,)}, kind)


def test_with_a_second_partition_deletions_are_remembered(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": 1}, "a", 1), Event(None, "a", 9)])
    source.load()
    job = current(source)
    job.round()
    assert job.table.applied.gone is None
    source.partitions.append([Event({"n": 2}, "a", 5), Event({"n": 3}, "b", 5)])
    source.load()
    job = current(source)
    job.round()
    assert (rows_of(job, "n"), job.summary.rebuilt) == ({"b": (3,)}, "partitions were added")
    assert job.table.applied.gone
    source.partitions[1].append(Event({"n": 4}, "a", 8))
    source.load()
    job = current(source)
    job.round()
    assert (rows_of(job, "n"), job.summary.rebuilt) == ({"b": (3,)}, ""), "older than the deletion"
    source.partitions[1].append(Event({"n": 5}, "a", 9))
    source.load()
    job.round()
    assert rows_of(job, "n") == {"b": (3,), "a": (5,)}


def test_rolled_back_events_are_applied_again(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": n}, "a") for n in range(3)])
    for end in (1, 2, 3):
        source.load({0: end})
    current(source).round()
    events = catalog(source.place).load_table(source.place.name)
    events.manage_snapshots().rollback_to_snapshot(events.snapshots()[0].snapshot_id).commit()
    source.table.refresh()
    job = current(source)
    job.round()
    assert (rows_of(job, "n"), job.summary.rebuilt) == ({"a": (0,)}, "the table of events was rolled back")
