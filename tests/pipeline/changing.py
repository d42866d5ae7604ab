"""Topics of changes without a broker: events as `load` commits them, and rows by key as a dict has them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from barnabas_pipeline import formats
from barnabas_pipeline.field_types import Field, Record
from barnabas_pipeline.jobs.current import CurrentOptions, CurrentRows
from barnabas_pipeline.lake.changes import DEBEZIUM, PLAIN, Shape
from barnabas_pipeline.lake.files import TableWriter
from barnabas_pipeline.lake.iceberg import Place
from barnabas_pipeline.lake.ledger import Entry, PartitionCommit
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.task import to_table
from barnabas_pipeline.log.columns import HEADERS_TYPE, Columns
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema

BEGAN_MS = 1_763_650_800_000
KEPT = {"tombstones": "keep"}
PAIRS = EventSchema(
    "pairs", NO_EVENT_TIME, (Field("n", "long"), Field("text", "string")), (Field("value", "string"),)
)
ROW = (Field("id", "long"), Field("n", "long"), Field("text", "string"))
CHANGES = EventSchema(
    "changes",
    NO_EVENT_TIME,
    (
        Field("op", "string"),
        Field("before", Record(ROW)),
        Field("after", Record(ROW)),
        Field("source", Record((Field("lsn", "long"),))),
    ),
)
BY_RECORD_KEY = Shape((), PLAIN, 3)
BY_ID = Shape(("id",), DEBEZIUM, 3)


@dataclass(frozen=True)
class Event:
    """A record: its value (None: a tombstone), its key, its time in ms after the beginning."""

    value: dict[str, Any] | None
    key: str | None = None
    time_ms: int = 0


@dataclass
class Topic:
    """A topic of a few partitions, and the table of its events."""

    place: Place
    schema: EventSchema
    partitions: list[list[Event]]
    topic_id: str = "id"
    key_format: str = "string"
    table: Table = field(init=False)

    def __post_init__(self) -> None:
        self.table = Table(self.place)

    @property
    def decoding(self) -> dict[str, Any]:
        return {**KEPT, "key": {"format": self.key_format}} if self.schema.key else KEPT

    def load(
        self, ends: dict[int, int] | None = None, *, kind: str = "load", schema: EventSchema | None = None
    ) -> Entry:
        """Commit the events up to some offsets, as a load does."""
        self.schema = schema or self.schema
        self.table.refresh()
        self.table.prepare(self.schema)
        state = self.table.state()
        entry = Entry(
            state.version + 1, kind, "c", self.place.name, self.topic_id, state.digest, state.path,
            {"name": kind}, self.schema.to_dict(),
        )  # fmt: skip
        loaded_ends = state.ends if state.topic_id in ("", self.topic_id) else {}
        for partition, events in enumerate(self.partitions):
            start, end = loaded_ends.get(partition, 0), (ends or {}).get(partition, len(events))
            entry.partitions[str(partition)] = PartitionCommit(start, end, 0, end, end - start, 0, 0, 0, 0)
            entry.add += self._written(partition, range(start, end))
        self.table.commit(entry)
        return entry

    def _written(self, partition: int, offsets: range) -> Any:
        writer = TableWriter(self.table.layout, self.schema, self.topic_id, partition)
        if len(offsets):
            writer.write(self.rows(partition, offsets))
        return writer.close()

    def rows(self, partition: int, offsets: range) -> Any:
        """The rows of some events, as a load decodes them."""
        events = [self.partitions[partition][n] for n in offsets]
        values = [None if e.value is None else json.dumps(e.value).encode() for e in events]
        count = len(events)
        columns = Columns(
            np.array(offsets, np.int64),
            np.array([BEGAN_MS + e.time_ms for e in events], np.int64),
            np.zeros(count, np.int32),
            np.zeros(count, np.int32),
            pa.array([None if e.key is None else e.key.encode() for e in events], pa.binary()),
            pa.array(values, pa.binary()),
            pa.array([[]] * count, HEADERS_TYPE),
        )
        table, bad = to_table(columns, formats.restore(self.schema, self.decoding), self.topic_id, partition)
        assert not bad, bad
        return table


def topic(tmp_path: Path, schema: EventSchema, *partitions: list[Event]) -> Topic:
    """A topic with some events in its partitions, of which none is loaded."""
    from .tables import local_place

    return Topic(local_place(tmp_path), schema, list(partitions))


def dead_tombstones(source: Topic, count: int) -> None:
    """Commit null values as dead letters, as a load does that does not keep them."""
    from barnabas_pipeline.lake.columns import DEAD_SCHEMA
    from barnabas_pipeline.lake.files import write_dead

    table = source.table
    state = table.refresh()
    start = state.ends[0]
    entry = Entry(
        state.version + 1, "load", "c", source.place.name, source.topic_id, state.digest, state.path,
        {"name": "load"}, source.schema.to_dict(),
    )  # fmt: skip
    entry.partitions["0"] = PartitionCommit(start, start + count, 0, start + count, 0, count, 0, 0, 0)
    letters = [
        {"topic_id": source.topic_id, "partition": 0, "offset": start + n, "end_offset": start + n + 1,
         "reason": "empty", "timestamp_ms": BEGAN_MS} for n in range(count)
    ]  # fmt: skip
    entry.dead_add = [
        write_dead(table.layout, pa.Table.from_pylist(letters, DEAD_SCHEMA), source.topic_id, 0)
    ]
    table.commit(entry)


def no_spark() -> Any:
    raise AssertionError("Spark was not to be started")


def current(topic: Topic, shape: Shape | None = BY_RECORD_KEY, **more: Any) -> CurrentRows:
    """The table of current rows of a topic, as another process opens it."""
    return CurrentRows(CurrentOptions(topic.place, more.pop("spark", no_spark), shape, **more))


def rows_of(current: CurrentRows, *names: str) -> dict[Any, Any]:
    """The rows by key, as a stock reader sees them."""
    from .tables import catalog

    table = catalog(current.events.place).load_table(current.table.place.name).scan().to_arrow()
    key = "_key" if "_key" in table.column_names else "id"
    rows = {row[key]: tuple(row[name] for name in names or ("n", "text")) for row in table.to_pylist()}
    assert len(rows) == table.num_rows, "a key is there once"
    return rows


def at(time_us: int) -> datetime:
    """A time by its microseconds since 1970."""
    return datetime.fromtimestamp(time_us / 1_000_000, UTC)


# --- the truth ------------------------------------------------------------------------------------------------------


def truth(partitions: Iterable[list[Event]]) -> dict[Any, Any]:
    """The rows by key of all events, one after the other in the order that is promised, in a dict."""
    ordered: list[tuple[Any, int, int, Event]] = []
    last: dict[Any, Any] = {}
    parts = list(partitions)
    for partition, events in enumerate(parts):
        latest = truncated = (-1, 0)
        for offset, change in enumerate(events):
            moment = change.time_ms, ((change.value or {}).get("source") or {}).get("lsn", 0)
            latest = max(latest, moment)
            if change.value is not None and change.value.get("op") == "t":
                truncated = latest
                ordered.append((latest, partition, offset, change))
                continue
            for key in keys_of(change):
                last[partition, key] = max(last.get((partition, key), moment), truncated, moment)
                ordered.append((last[partition, key], partition, offset, _about(change, key)))
    ordered.sort(key=lambda row: row[2:3] if len(parts) == 1 else row[:3])
    rows: dict[Any, Any] = {}
    for _, _, _, event in ordered:
        _apply(rows, event)
    return rows


def keys_of(event: Event) -> list[Any]:
    if event.value is None or "op" not in event.value:
        return [event.key]
    sides = (event.value.get("before"), event.value.get("after"))
    return list(dict.fromkeys(side["id"] for side in sides if side))


def _about(event: Event, key: Any) -> Event:
    """The part of an event that is about one key: an update may be a delete of one and an insert of another."""
    after = (event.value or {}).get("after")
    if event.value is None or "op" not in event.value or (after and after["id"] == key):
        return event
    return Event({"op": "d", "before": {"id": key}})


def _apply(rows: dict[Any, Any], event: Event) -> None:
    value = event.value
    if value is None:
        rows.pop(event.key, None)
    elif "op" not in value:
        rows[event.key] = (value.get("n"), value.get("text"))
    elif value["op"] == "t":
        rows.clear()
    elif value["op"] == "d":
        rows.pop(value["before"]["id"], None)
    else:
        after = value["after"]
        rows[after["id"]] = (after.get("n"), after.get("text"))


def pairs(seed: random.Random, count: int, keys: int, *, skew: bool = False) -> list[Event]:
    """Upserts and tombstones of a few keys."""
    events = []
    for n in range(count):
        value = None if seed.random() < 0.25 else {"n": seed.randrange(1000), "text": f"v{n}"}
        events.append(Event(value, f"k{seed.randrange(keys)}", seed.randrange(50) if skew else n))
    return events


def envelopes(seed: random.Random, count: int, keys: int, *, skew: bool = False) -> list[Event]:
    """Changes of a table as Debezium tells them: updates of keys and truncations among them."""
    events = []
    for n in range(count):
        key, other = seed.randrange(keys), seed.randrange(keys)
        after = {"id": key, "n": seed.randrange(1000), "text": f"v{n}"}
        kind = seed.choices("crudkt", (4, 1, 6, 3, 1, 0.3))[0]
        time_ms = seed.randrange(50) if skew else n
        match kind:
            case "c" | "r" | "u":
                value: dict[str, Any] = {"op": kind, "before": None, "after": after}
            case "d":
                value = {"op": "d", "before": {"id": key, "n": None, "text": None}, "after": None}
            case "k":
                value = {"op": "u", "before": {"id": other, "n": None, "text": None}, "after": after}
            case _:
                value = {"op": "t", "before": None, "after": None}
        if seed.random() < 0.8:
            value["source"] = {"lsn": seed.randrange(1000)}
        events.append(Event(value, None, time_ms))
        if kind == "d" and seed.random() < 0.5:
            events.append(Event(None, None, time_ms))
    return events
