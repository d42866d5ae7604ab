"""Tables of current rows: what a dict would have, whatever portions the events come in and wherever a run dies."""

from __future__ import annotations

import json
import random
import signal
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.expressions import EqualTo

from barnabas_pipeline import faults
from barnabas_pipeline.cli import main
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import Decimal, Field
from barnabas_pipeline.lake import iceberg
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
    truth,
)
from .tables import catalog, local_place
from .test_faults import run_cli

POINTS = [name for name in faults.POINTS if name.startswith("current.")]


class DiedError(Exception):
    """A process was killed."""


def topic(tmp_path: Path, schema: Any, *partitions: list[Event]) -> Topic:
    return Topic(local_place(tmp_path), schema, list(partitions))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("schema", "shape", "made"),
    [(PAIRS, BY_RECORD_KEY, pairs), (CHANGES, BY_ID, envelopes)],
    ids=["plain", "debezium"],
)
@pytest.mark.parametrize("seed", range(6))
def test_rows_are_those_of_a_dict_wherever_a_run_dies(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    schema: Any,
    shape: Shape,
    made: Any,
    count: int,
) -> None:
    """Keys are in all partitions at random, and times go back; each run may die at any step, and the next goes on."""
    rng = random.Random(f"{seed} {count} {schema.name}")
    source = topic(tmp_path, schema, *(made(rng, 60, 8, skew=True) for _ in range(count)))
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
        found = current(source, shape)
        found.round()
        assert rows_of(found) == truth(one[: ends[n]] for n, one in enumerate(source.partitions)), (
            f"seed {seed}"
        )
        assert not current(source, None).round(), "there is nothing more to apply"
    assert found.check().differences == 0
    assert found.table.applied.ends == ends
    assert found.table.applied.version <= found.events.state().version
    again = current(source, None, rebuild=True)
    again.round()
    assert rows_of(again) == rows_of(found)
    assert again.check().differences == 0


# --- keys -----------------------------------------------------------------------------------------------------------


def test_without_a_format_of_keys_the_bytes_of_the_records_key_are_the_key(tmp_path: Path) -> None:
    source = topic(
        tmp_path, replace(PAIRS, key=()), [Event({"n": 1}, "a"), Event({"n": 2}, "b"), Event(None, "a")]
    )
    source.load()
    found = current(source)
    found.round()
    assert rows_of(found, "n") == {b"b": (2,)}


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
    "names", [*((one.name,) for one in KEYS), tuple(one.name for one in KEYS), ("name", "number")]
)
def test_keys_are_of_any_plain_type_and_of_several_fields(tmp_path: Path, names: tuple[str, ...]) -> None:
    def event(n: int, value: int) -> Event:
        held = {
            "day": f"2026-11-{n + 1:02}",
            "price": f"{n}.50",
            "name": f"n{n}",
            "at": n,
            "took": n,
        }
        return Event({**held, "raw": b64encode(bytes([n])).decode(), "number": n, "value": value})

    schema = EventSchema("keys", "_timestamp", (*KEYS, Field("value", "long")))
    source = topic(tmp_path, schema, [event(n % 20, n) for n in range(50)])
    source.load({0: 30})
    shape = Shape(names, "none", 4)
    current(source, shape).round()
    source.load()
    found = current(source, shape)
    found.round()
    table = catalog(found.events.place).load_table(found.table.place.name)
    rows = table.scan().to_arrow()
    assert sorted(rows["value"].to_pylist()) == [*range(30, 50)]
    assert found.check().differences == 0
    assert len(found.table.files()) > 1, "they are in several buckets"
    if len(names) == 1:
        asked = EqualTo(names[0], rows[names[0]][0].as_py())
        one = table.scan(asked)
        assert (one.to_arrow().num_rows, len(list(one.plan_files()))) == (1, 1), (
            "a reader opens the key's bucket only"
        )


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
        (
            EventSchema("t", "_timestamp", (CHANGES.fields[0], CHANGES.fields[2])),
            BY_ID,
            "has no `before`",
        ),
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


# --- events that are none -------------------------------------------------------------------------------------------


def test_events_without_a_key_are_counted_and_tombstones_that_were_refused_end_a_run(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": 1}, "a"), Event({"n": 2}), Event({"n": 3})])
    source.load()
    found = current(source)
    found.round()
    assert (rows_of(found, "n"), found.summary.lost) == ({"a": (1,)}, 2)
    dead_tombstones(source, 2)
    with pytest.raises(UsageError, match="2 null values are dead letters, whose rows would stay"):
        current(source).round()
    assert rows_of(found, "n") == {"a": (1,)}


def test_what_debezium_does_not_say_is_counted(tmp_path: Path) -> None:
    strange = [{"op": "x", "after": {"id": 1}}, {"op": "c", "after": None}, {"op": "m"}, {"after": {"id": 2}}]
    source = topic(tmp_path, CHANGES, [Event(one) for one in strange])
    source.load()
    found = current(source, BY_ID)
    found.round()
    assert (rows_of(found), found.summary.lost) == ({}, 3), "m is a message beside the tables"


def test_values_that_an_update_has_not_touched_stay(tmp_path: Path) -> None:
    def update(n: int, text: str = UNAVAILABLE) -> Event:
        return Event({"op": "u", "after": {"id": 1, "n": n, "text": text}})

    first = Event({"op": "c", "after": {"id": 1, "n": 0, "text": "long"}})
    source = topic(tmp_path, CHANGES, [first, update(1), update(2), update(3, "other"), update(4), update(5)])
    for end in (2, 3, 6):
        source.load({0: end})
        found = current(source, BY_ID)
        found.round()
        assert rows_of(found) == {1: (end - 1, "long" if end < 4 else "other")}
        assert found.check().differences == 0
    stranger = [update(7), Event({"op": "d", "before": {"id": 1}}), update(8)]
    source.partitions[0] += stranger
    source.load()
    found = current(source, BY_ID)
    found.round()
    assert rows_of(found) == {1: (8, UNAVAILABLE)}, "nobody has told the value of this row"


@pytest.mark.parametrize("count", [1, 2])
def test_a_truncation_alone_empties_buckets_that_have_no_changes(tmp_path: Path, count: int) -> None:
    rows = [Event({"op": "c", "after": {"id": n}}, None, n) for n in range(20)]
    source = topic(tmp_path, CHANGES, rows, *([] for _ in range(1, count)))
    source.load()
    current(source, BY_ID).round()
    source.partitions[-1].append(Event({"op": "t"}, None, 99))
    source.load()
    found = current(source, BY_ID)
    found.round()
    assert (rows_of(found), found.table.files()) == ({}, {})
    source.partitions[0].append(Event({"op": "r", "after": {"id": 1, "n": 1}}, None, 100))
    source.load()
    found.round()
    assert rows_of(found) == {1: (1, None)}


def test_debezium_by_the_key_of_the_record_whose_json_has_a_schema_too(tmp_path: Path) -> None:
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
        found = current(source, shape)
        found.round()
        assert (rows_of(found, "n"), found.summary.lost) == (rows, 0)
        assert found.check().differences == 0


# --- other events ---------------------------------------------------------------------------------------------------


def test_a_column_that_events_gain_is_gained(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": 1, "text": "a"}, "a"), Event({"n": 2, "more": 5}, "b")])
    source.load({0: 1})
    current(source).round()
    source.load(schema=replace(PAIRS, fields=(*PAIRS.fields, Field("more", "long"))))
    found = current(source)
    found.round()
    assert rows_of(found, "n", "more") == {"a": (1, None), "b": (2, 5)}
    assert found.check().differences == 0


def test_a_topic_that_was_made_again_begins_with_no_rows(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": 1}, "a"), Event({"n": 2}, "b")])
    source.load()
    current(source).round()
    source.topic_id, source.partitions = "other", [[Event({"n": 3}, "b")]]
    source.load(kind="restart")
    found = current(source)
    found.round()
    assert (rows_of(found, "n"), found.summary.rebuilt) == ({"b": (3,)}, "the topic was made again")


@pytest.mark.parametrize("kind", ["redrive", "backfill"])
def test_events_that_are_others_now_are_applied_again(tmp_path: Path, kind: str) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": 1}, "a"), Event({"n": 2}, "a")])
    source.load()
    current(source).round()
    source.partitions[0][1] = Event({"n": 3}, "a")
    state = source.table.refresh()
    made = source.load(kind="seal")
    made = replace(made, version=state.version + 2, kind=kind, previous=source.table.state().digest)
    made = replace(made, previous_path=source.table.state().path, partitions={}, after={})
    made.remove = [one.path for one in source.table.pieces()]
    made.add = list(source._written(0, range(2)))
    source.table.commit(made)
    found = current(source)
    found.round()
    assert (rows_of(found, "n"), found.summary.rebuilt) == ({"a": (3,)}, kind)


def test_with_a_second_partition_deletions_are_remembered(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": 1}, "a", 1), Event(None, "a", 9)])
    source.load()
    found = current(source)
    found.round()
    assert found.table.applied.gone is None
    source.partitions.append([Event({"n": 2}, "a", 5), Event({"n": 3}, "b", 5)])
    source.load()
    found = current(source)
    found.round()
    assert (rows_of(found, "n"), found.summary.rebuilt) == ({"b": (3,)}, "partitions were added")
    assert found.table.applied.gone
    source.partitions[1].append(Event({"n": 4}, "a", 8))
    source.load()
    found = current(source)
    found.round()
    assert (rows_of(found, "n"), found.summary.rebuilt) == ({"b": (3,)}, ""), "older than the deletion"
    source.partitions[1].append(Event({"n": 5}, "a", 9))
    source.load()
    found.round()
    assert rows_of(found, "n") == {"b": (3,), "a": (5,)}


def test_a_table_of_events_that_was_rolled_back_is_applied_again(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": n}, "a") for n in range(3)])
    for end in (1, 2, 3):
        source.load({0: end})
    current(source).round()
    events = catalog(source.place).load_table(source.place.name)
    events.manage_snapshots().rollback_to_snapshot(events.snapshots()[0].snapshot_id).commit()
    source.table.refresh()
    found = current(source)
    found.round()
    assert (rows_of(found, "n"), found.summary.rebuilt) == (
        {"a": (0,)},
        "the table of events was rolled back",
    )


# --- others, and the catalog ----------------------------------------------------------------------------------------


def test_of_two_runs_at_once_the_second_goes_on_from_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = topic(tmp_path, PAIRS, pairs(random.Random(1), 40, 5))
    source.load({0: 10})
    current(source).round()
    source.load({0: 20})
    slow = current(source)

    def meanwhile(name: str) -> None:
        if name == "current.after_buckets":
            monkeypatch.undo()
            source.load()
            assert current(source).round()

    monkeypatch.setattr(faults, "point", meanwhile)
    assert not slow.round(), "the other has applied all"
    assert rows_of(slow) == truth(source.partitions)
    assert slow.table.applied.version == 2


@pytest.mark.parametrize("is_late", [True, False], ids=["after it has happened", "before"])
def test_a_commit_counts_once_whatever_the_catalog_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    source = topic(tmp_path, PAIRS, pairs(random.Random(2), 40, 5))
    source.load({0: 10})
    current(source).round()
    source.load()
    found = current(source)
    kind = type(iceberg.open_catalog(source.place))
    commit_table, left = kind.commit_table, [CommitStateUnknownException("timeout"), TimeoutError("read")]

    def commit(self: Any, *more: Any) -> Any:
        done = commit_table(self, *more) if is_late or not left else None
        if left:
            raise left.pop()
        return done

    monkeypatch.setattr(kind, "commit_table", commit)
    assert found.round()
    monkeypatch.undo()
    assert rows_of(found) == truth(source.partitions)
    assert (found.table.applied.version, found.check().differences) == (2, 0)


def test_a_check_names_what_differs_and_a_rebuild_mends_it(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": n, "text": f"t{n}"}, f"k{n}") for n in range(9)])
    source.load()
    found = current(source)
    found.round()
    table = catalog(source.place).load_table(found.table.place.name)
    table.delete("_key == 'k3'")
    changed = table.scan("_key == 'k4'").to_arrow()
    table.overwrite(changed.set_column(1, changed.schema.field(1), [[-1]]), "_key == 'k4'")
    report = found.check()
    assert report.differences == 2
    assert min(report.examples).split(", should be")[0].endswith("is not there")
    again = current(source, None, rebuild=True)
    again.round()
    assert again.check().differences == 0
    assert again.summary.rebuilt == "asked for"


def test_old_files_go_when_no_snapshot_names_them(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, *(pairs(random.Random(n), 60, 5) for n in range(2)))
    for end in range(10, 61, 10):
        source.load({0: end, 1: end})
        found = current(source, keep_snapshots=2)
        found.round()
    assert len(found.table.iceberg.snapshots()) == 2
    assert found.table.vacuum(3600) == 0, "they are young"
    assert found.table.vacuum(0) > 10
    assert rows_of(current(source, None) if found.round() else found) == truth(source.partitions)
    assert current(source).check().differences == 0
    directory = Path(found.table.place.location.removeprefix("file://"))
    kept = {Path(path).name for path in (found.table.applied.gone or {}).values()}
    assert {one.name for one in (directory / "gone").iterdir()} >= kept


# --- the command ----------------------------------------------------------------------------------------------------


def command(source: Topic, *more: str) -> list[str]:
    lake = source.place.location.rpartition("/")[0]
    return ["current", "--topic", "logins", "--lake", lake, "--json", *more]


def test_a_run_that_is_killed_anywhere_is_exact_after_the_next(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, pairs(random.Random(3), 60, 8), pairs(random.Random(4), 60, 8))
    for n, name in enumerate(POINTS, 1):
        source.load({0: 12 * n, 1: 12 * n})
        done = run_cli(*command(source, "--key-from", "record-key", "--buckets", "2"), fault=name)
        assert done.returncode == -signal.SIGKILL, f"{name}:\n{done.stderr[-2000:]}"
    source.load()
    done = run_cli(*command(source))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["lost"], summary["dead"], summary["rows"]) == (0, 0, len(truth(source.partitions)))
    assert rows_of(current(source, None)) == truth(source.partitions)
    assert json.loads(run_cli(*command(source, "--check")).stdout)["differences"] == 0


def test_exit_codes_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": 1}, "a"), Event({"n": 2})])
    assert main(command(source, "--key", "n", "--key-from", "record-key")) == 4
    assert main(command(source, "--buckets", "2")) == 4
    assert main(command(source, "--key", "n", "--buckets", "0")) == 4
    assert main(command(source, "--trigger", "sometimes")) == 4
    assert main(command(source, "--check")) == 4, "there is no table"
    source.load()
    capsys.readouterr()
    assert main(command(source, "--key-from", "record-key")) == 0
    assert json.loads(capsys.readouterr().out)["lost"] == 1
    assert main(command(source, "--strict", "--vacuum-hours", "0")) == 2, "an event has no key"
    assert main(command(source, "--check")) == 0
    catalog(source.place).load_table(f"{source.place.name}__current").delete("n == 1")
    assert main(command(source, "--check")) == 3


def test_a_job_that_follows_waits_for_the_first_load(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": 1}, "a")])
    found = current(source, waits=True)
    assert not found.round()
    source.load()
    assert found.round()
    assert rows_of(found, "n") == {"a": (1,)}
