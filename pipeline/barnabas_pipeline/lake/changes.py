"""Changes of rows by key: read from events, and merged into the present rows.

The rule: a row follows from the set of events, not from their batches. Events of a partition are ordered by offset. Those
of a key that were sent to several partitions are ordered by their moment, then by partition. A moment is the record's
timestamp and, within a millisecond, the PostgreSQL LSN that Debezium reports; if that is lower than an earlier moment of
the key in that partition, it is the earlier moment. A truncation has the latest moment of its whole partition, and removes
all rows with earlier moments. The moment of a deleted row is kept (`gone`) where the topic has several partitions, since an
older event of another partition may still arrive. With one partition no older event arrives, and no moment is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import BucketTransform

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import Field, Record, arrow_type
from barnabas_pipeline.formats.base import TOMBSTONE
from barnabas_pipeline.lake.columns import COORDINATES, PARTITION
from barnabas_pipeline.lake.pyiceberg_internals import schema_without_ids
from barnabas_pipeline.log.columns import TIMESTAMP_TYPE
from barnabas_pipeline.schema import KEY_COLUMN, EventSchema

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Column, Integers, Mask

PLAIN, DEBEZIUM = "none", "debezium"
ENVELOPES = (PLAIN, DEBEZIUM)
RECORD_KEY = "_key"
BUCKET = "_bucket"
CHANGED_AT = "_changed_at"
OFFSET = "_offset"
EXTRA = "_extra"
DELETED = pa.field("_deleted", pa.bool_())
UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's placeholder for a value that an update did not change, and that PostgreSQL did not write to its log."""
FLAT_DELETED = "__deleted"
NO_BUCKET = -1
"""The bucket of events without a key, or with an operation unknown to the envelope."""
_HASHES = (1 << 31) - 1
LSN = "_source_lsn"
_ORDER = (pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64()), pa.field(CHANGED_AT, TIMESTAMP_TYPE))
_EVENT = {coordinate.name: coordinate for coordinate in COORDINATES}


class Moment(NamedTuple):
    """The place of a truncation in the order of events: time in us since 1970, LSN of the source, partition and offset."""

    time_us: int
    lsn: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Shape:
    """Key, envelope and number of buckets of a table. `key` names fields of the value; empty: the record's key."""

    key: tuple[str, ...]
    envelope: str
    buckets: int


@dataclass(frozen=True, slots=True)
class Form:
    """Columns of a table of current rows, by its shape and the schema of the events."""

    shape: Shape
    schema: EventSchema

    def checked(self) -> Form:
        """Return the form itself. Raises UsageError if events of its schema are not changes of this shape."""
        held = {field.name: field.type for field in self.schema.fields}
        if self.is_debezium and (held.get("op") is None or not isinstance(held.get("after"), Record)):
            raise UsageError(
                f"schema {self.schema.name} is no envelope of Debezium: it needs op, and a record `after`"
            )
        if self.is_debezium and self.shape.key and not isinstance(held.get("before"), Record):
            raise UsageError(f"schema {self.schema.name} has no `before`, which has the key of a deleted row")
        names = self.value.names
        for name in self.shape.key:
            if name not in names:
                raise UsageError(f"the key {name} is none of the fields {', '.join(names)}")
        for name, kind in self.key_types.items():
            if name in names and self.value.field(name).type != kind:
                raise UsageError(
                    f"field {name} has one type in the key of records, and another in their value"
                )
            table = schema_without_ids(pa.schema([(name, kind)]))
            if not BucketTransform(1).can_transform(table.find_field(name).field_type):
                raise UsageError(f"field {name} is {kind}, which cannot be a key")
        return self

    @property
    def is_debezium(self) -> bool:
        """Return whether events are envelopes."""
        return self.shape.envelope == DEBEZIUM

    @property
    def has_lsn(self) -> bool:
        """Return whether events have an LSN of PostgreSQL, in the field `lsn` of `source`."""
        source = next((field.type for field in self.schema.fields if field.name == "source"), None)
        inner = source.fields if isinstance(source, Record) else ()
        return self.is_debezium and any((field.name, field.type) == ("lsn", "long") for field in inner)

    @property
    def order(self) -> list[pa.Field]:
        """The columns that identify the last event of a row."""
        return [*_ORDER, *([pa.field(LSN, pa.int64())] if self.has_lsn else [])]

    @property
    def value(self) -> pa.Schema:
        """The columns that come from the value."""
        fields = self.schema.fields
        if self.is_debezium:
            kind = next(field.type for field in fields if field.name == "after")
            assert isinstance(kind, Record)
            fields = kind.fields
        return pa.schema([pa.field(field.name, arrow_type(field.type)) for field in fields])

    @property
    def key_types(self) -> dict[str, pa.DataType]:
        """The types of the key's columns, by name."""
        if self.shape.key:
            return {name: self.value.field(name).type for name in self.shape.key}
        if not self.schema.key:
            return {RECORD_KEY: pa.binary()}
        return {_named(field, self.schema.key): arrow_type(field.type) for field in self.schema.key}

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key's columns."""
        return tuple(self.key_types)

    @property
    def arrow(self) -> pa.Schema:
        """All columns: the key, the value, unknown fields as JSON, and the last event."""
        keys = [pa.field(name, kind) for name, kind in self.key_types.items()]
        others = [field for field in self.value if field.name not in self.key_types]
        bucket = [pa.field(BUCKET, pa.int32())] if len(keys) > 1 else []
        return pa.schema([*keys, *others, _EVENT[EXTRA], *self.order, *bucket])

    @property
    def gone(self) -> pa.Schema:
        """The columns that are kept of a deleted row: its key, and its last event."""
        return pa.schema([*(pa.field(name, kind) for name, kind in self.key_types.items()), *self.order])

    @property
    def read(self) -> pa.Schema:
        """The columns of events that changes are derived from."""
        names = ("op", "before", "after", "source") if self.is_debezium else self.value.names
        fields = [field for field in self.schema.arrow if field.name in (*names, KEY_COLUMN)]
        return pa.schema(
            [
                *fields,
                *(
                    coordinate
                    for coordinate in COORDINATES
                    if coordinate.name not in ("_leader_epoch", "_headers")
                ),
            ]
        )


def _named(field: Field, key: tuple[Field, ...]) -> str:
    """Return the column of a field of records' keys; a key that is a single value has no name."""
    return RECORD_KEY if len(key) == 1 and field.name == "value" else field.name


# --- from events ----------------------------------------------------------------------------------------------------


def within(table: pa.Table, topic_id: str, ranges: Mapping[int, tuple[int, int]]) -> pa.Table:
    """Return the rows of events of one incarnation at offsets within [start, end) of their partition.

    Rows of other engines, which may have no coordinates, are excluded.
    """
    table = table.filter(pc.and_(pc.is_valid(table[PARTITION]), pc.is_valid(table[OFFSET])))
    partition, offset = table[PARTITION].to_numpy(), table[OFFSET].to_numpy()
    low, high = np.zeros((2, max([*ranges, *np.unique(partition).tolist()], default=0) + 1), np.int64)
    for number, (start, end) in ranges.items():
        low[number], high[number] = start, end
    keep = (offset >= low[partition]) & (offset < high[partition])
    return table.filter(pc.and_(pa.array(keep), pc.equal(table["_topic_id"], topic_id)))


def changes(form: Form, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield (bucket, changes) of events; bucket NO_BUCKET has events that are not changes."""
    events = _Events(form, table)
    parts = [
        events.changes_of(events.upserts, deleted=False),
        events.changes_of(events.deletes, deleted=True),
    ]
    if events.moved is not None:
        parts.append(events.changes_of(events.moved, deleted=True, key=events.earlier_keys))
    rows = pa.concat_tables(parts)
    whole = np.ones(len(rows), bool)
    for name in form.keys:
        whole &= rows[name].is_valid().to_numpy()
    lost = events.unknown + int((~whole).sum())
    if lost:
        yield NO_BUCKET, pa.table({"lost": [lost]})
    rows = rows.filter(pa.array(whole))
    bucket = buckets_of(form, rows)
    if BUCKET in rows.schema.names:
        rows = rows.set_column(rows.schema.get_field_index(BUCKET), BUCKET, pa.array(bucket, pa.int32()))
    order = np.argsort(bucket, kind="stable")
    edges = np.flatnonzero(np.diff(bucket[order], prepend=-2, append=-2))
    for start, end in pairwise(edges):
        yield int(bucket[order[start]]), rows.take(pa.array(order[start:end]))


class _Events:
    """Events by operation, as masks: `upserts`, `deletes`, and `moved` for updates that change the key of a row."""

    def __init__(self, form: Form, table: pa.Table) -> None:
        self.form = form
        self.table = table
        self.moved: Mask | None = None
        self.earlier_keys: dict[str, Column] = {}
        extra = table[EXTRA]
        tombstone = _mask(pc.equal(extra, TOMBSTONE))
        if not form.is_debezium:
            tombstone |= _flattened_deletes(table)
        self.extra = pc.if_else(pa.array(tombstone), pa.scalar(None, pa.string()), extra)
        if not form.is_debezium:
            self.upserts, self.deletes, self.unknown = ~tombstone, tombstone, 0
            self.values = [{name: table[name] for name in form.value.names}]
        else:
            self._read_envelopes(tombstone)
        self.keys = {name: self._key(name) for name in form.keys}

    def _read_envelopes(self, tombstone: Mask) -> None:
        operation = self.table["op"]
        self.values = [
            {name: pc.struct_field(struct, name) for name in struct.type.names}
            for struct in (
                self.table[side] for side in ("after", "before") if side in self.table.column_names
            )
            if pa.types.is_struct(struct.type)
        ]
        writes = _mask(pc.is_in(operation, pa.array(["c", "u", "r"])))
        self.upserts = writes & self.table["after"].is_valid().to_numpy()
        # a tombstone follows a delete and is redundant; without the record's key it does not identify a row
        self.deletes = _mask(pc.equal(operation, "d")) | (tombstone if not self.form.shape.key else False)
        understood = (
            self.upserts | self.deletes | tombstone | _mask(pc.is_in(operation, pa.array(["t", "m"])))
        )
        self.unknown = int((~understood).sum())
        keys = self.form.shape.key
        if keys and set(keys) <= self.values[1].keys():  # a checked form with such a key has `before`
            self.earlier_keys = {name: self.values[1][name] for name in keys}
            differs = np.zeros(len(self.table), bool)
            for name, earlier in self.earlier_keys.items():
                differs |= _mask(pc.not_equal(self.values[0][name], earlier))
            self.moved = self.upserts & differs

    def _key(self, name: str) -> Column:
        places = [values[name] for values in self.values if name in values] if self.form.shape.key else []
        fields = self.form.schema.key
        places += [
            pc.struct_field(self.table[KEY_COLUMN], field.name)
            for field in fields
            if _named(field, fields) == name
        ]
        if not places:
            return self.table[RECORD_KEY]
        kind = self.form.key_types[name]
        return pc.coalesce(*(column for column in places if column.type == kind))

    def changes_of(self, mask: Mask, *, deleted: bool, key: Mapping[str, Column] | None = None) -> pa.Table:
        """Return the changes of the events in a mask, as upserts or deletes; `key`: columns in place of the present key."""
        rows = pa.array(np.flatnonzero(mask))
        columns = {
            **self.values[0],
            **self.keys,
            **(key or {}),
            EXTRA: self.extra,
            PARTITION: self.table[PARTITION],
            OFFSET: self.table[OFFSET],
            CHANGED_AT: self.table["_timestamp"],
            BUCKET: pa.nulls(len(self.table), pa.int32()),  # filled in when all changes have keys
        }
        if self.form.has_lsn:
            columns[LSN] = pc.struct_field(self.table["source"], "lsn")
        schema = self.form.arrow
        changed = pa.table([columns[name].take(rows) for name in schema.names], schema=schema)
        return changed.append_column(DELETED, pa.array(np.full(len(rows), deleted)))


def _flattened_deletes(table: pa.Table) -> Mask:
    """Return the mask of deletes in events that Debezium has flattened, by `__deleted`, a field or in `_extra`."""
    if FLAT_DELETED in table.column_names:
        return _mask(pc.equal(table[FLAT_DELETED].cast(pa.string()), "true"))
    mask = _mask(pc.match_substring(table[EXTRA], f'"{FLAT_DELETED}"'))
    for row in np.flatnonzero(mask).tolist():
        mask[row] = json.loads(table[EXTRA][row].as_py()).get(FLAT_DELETED) in ("true", True)
    return mask


def _mask(column: Column) -> Mask:
    return pc.fill_null(column, False).to_numpy(zero_copy_only=False)


def buckets_of(form: Form, table: pa.Table) -> Integers:
    """Return the bucket of each row: Iceberg's bucket of a one-column key, else a hash of the columns' buckets."""
    names = form.keys
    modulus = form.shape.buckets if len(names) == 1 else _HASHES
    hashes = np.zeros(len(table), np.int64)
    for name in names:
        kind = schema_without_ids(table.schema).find_field(name).field_type
        column = table[name].combine_chunks()
        hashes = (hashes * 31 + BucketTransform(modulus).pyarrow_transform(kind)(column).to_numpy()) % _HASHES
    return hashes % form.shape.buckets


# --- into rows ------------------------------------------------------------------------------------------------------


def merge(
    form: Form,
    rows: pa.Table,
    gone: pa.Table,
    changed: pa.Table,
    truncated: Sequence[Moment],
    *,
    is_moving: bool,
) -> tuple[pa.Table, pa.Table]:
    """Merge changes into the rows of a bucket and its kept deletions (`gone`); returns (rows, gone) after the merge.

    `truncated`: all truncations among the changes, and the last earlier one. `is_moving`: keys may be in several
    partitions.
    """
    columns = form.arrow.append(DELETED)
    parts = [rows.append_column(DELETED, pa.array(np.zeros(len(rows), bool))), changed]
    if len(gone):
        parts.append(_widened(gone.append_column(DELETED, pa.array(np.ones(len(gone), bool))), columns))
    every = pa.concat_tables([part.select(columns.names) for part in parts]).combine_chunks()
    if not len(every):
        return every.select(form.arrow.names), every.select(form.gone.names)
    code = _codes(every, form.keys)
    partition, offset = every[PARTITION].to_numpy(), every[OFFSET].to_numpy()
    moment: Integers = np.zeros(len(every), np.int64)
    ends: Integers = np.zeros(len(truncated), np.int64)
    if is_moving:
        times, lsns, moment, ends = _moments(form, every, truncated)
        moment = _rising(moment, ends, code, partition, offset, truncated)
        for name, values, kind in ((CHANGED_AT, times, TIMESTAMP_TYPE), (LSN, lsns, pa.int64())):
            at = every.schema.get_field_index(name)
            every = every if at < 0 else every.set_column(at, name, pa.array(values[moment]).cast(kind))
    order = np.lexsort((offset, partition, moment, code))
    last = order[np.flatnonzero(np.diff(code[order], append=-1))]
    is_deleted = every[DELETED.name].to_numpy()
    if form.is_debezium:
        every = _filled(form, every, code, order, is_deleted)
    for end, truncation in sorted(zip(ends.tolist(), truncated, strict=True))[-1:]:
        before = (partition[last] < truncation.partition) | (
            (partition[last] == truncation.partition) & (offset[last] < truncation.offset)
        )
        last = last[(moment[last] > end) | ((moment[last] == end) & ~before)]
    kept, deleted = last[~is_deleted[last]], last[is_deleted[last]]
    merged = every.take(pa.array(kept)).select(form.arrow.names)
    return (
        merged.sort_by([(name, "ascending") for name in form.keys]),
        every.take(pa.array(deleted if is_moving else deleted[:0])).select(form.gone.names),
    )


def _widened(table: pa.Table, columns: pa.Schema) -> pa.Table:
    arrays = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in columns
    ]
    return pa.table(arrays, schema=columns)


def _codes(table: pa.Table, keys: Sequence[str]) -> Integers:
    """Return a number for each row; numbers are equal where keys are."""
    code = np.zeros(len(table), np.int64)
    for name in keys:
        encoded = table[name].combine_chunks().dictionary_encode()
        code = code * len(encoded.dictionary) + encoded.indices.to_numpy()
        if len(keys) > 1:
            code = np.unique(code, return_inverse=True)[1]
    return code


def _moments(
    form: Form, every: pa.Table, truncated: Sequence[Moment]
) -> tuple[Integers, Integers, Integers, Integers]:
    """Number all moments in rising order: (times by number, LSNs by number, numbers of events, numbers of truncations)."""
    told = pc.fill_null(every[LSN], 0).to_numpy() if form.has_lsn else np.zeros(len(every), np.int64)
    time = np.append(
        every[CHANGED_AT].cast(pa.int64()).to_numpy(), [truncation.time_us for truncation in truncated]
    )
    lsn = np.append(told, [truncation.lsn for truncation in truncated])
    order = np.lexsort((lsn, time))
    time, lsn = time[order].astype(np.int64), lsn[order].astype(np.int64)
    is_new = np.append(True, (np.diff(time) != 0) | (np.diff(lsn) != 0))
    number = np.empty_like(order)
    number[order] = np.cumsum(is_new) - 1
    return time[is_new], lsn[is_new], number[: len(every)], number[len(every) :]


def _rising(
    moment: Integers,
    ends: Integers,
    code: Integers,
    partition: Integers,
    offset: Integers,
    truncated: Sequence[Moment],
) -> Integers:
    """Return the moments of events, raised so that none decreases within a key and partition, or after a truncation."""
    moment = moment.copy()
    for end, truncation in zip(ends.tolist(), truncated, strict=True):
        after = (partition == truncation.partition) & (offset > truncation.offset)
        moment[after] = np.maximum(moment[after], end)
    order = np.lexsort((offset, partition, code))
    begins = np.diff(code[order], prepend=-1) != 0
    begins |= np.diff(partition[order], prepend=-1) != 0
    rising = np.empty_like(moment)
    rising[order] = np.maximum.accumulate((np.cumsum(begins) << 32) | moment[order]) & 0xFFFF_FFFF
    return rising


def _filled(form: Form, every: pa.Table, code: Integers, order: Integers, is_deleted: Mask) -> pa.Table:
    """Replace values that an update did not send (UNAVAILABLE) by the earlier values of the row."""
    place = np.arange(len(order))
    for name in form.value.names:
        kind = every.schema.field(name).type
        if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            continue
        told = pa.scalar(UNAVAILABLE if pa.types.is_string(kind) else UNAVAILABLE.encode(), kind)
        open_ = _mask(pc.equal(every[name], told)) & ~is_deleted
        if not open_.any():
            continue
        source = np.maximum.accumulate(np.where(open_[order], -1, place))
        earlier = order[source]
        fits = open_[order] & (source >= 0) & (code[earlier] == code[order]) & ~is_deleted[earlier]
        taken = np.arange(len(order))
        taken[order] = np.where(fits, earlier, order)
        at = every.schema.get_field_index(name)
        every = every.set_column(at, name, every[name].take(pa.array(taken)))
    return every
