"""redrive: decode dead letters again, with a newer schema or decoder, and load the records that are valid now.

The rule: in one commit, a record stops being a dead letter and becomes a row; it never is both, nor neither.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas_pipeline.formats import Decoder
from barnabas_pipeline.jobs.load import LoadOptions, new_entry
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.files import TableWriter, read_dead, write_dead
from barnabas_pipeline.lake.iceberg import explained
from barnabas_pipeline.lake.ledger import DataFile, Entry
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.task import to_table
from barnabas_pipeline.log.columns import Columns
from barnabas_pipeline.log.model import TopicIdentity
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Mask


@dataclass(slots=True)
class RedriveSummary:
    """Figures of one run."""

    tried: int = 0
    resolved: int = 0
    still_dead: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


def redrive(
    options: LoadOptions, *, reasons: set[str] | None = None, since_ms: int | None = None
) -> RedriveSummary:
    """Decode the dead letters of the current incarnation again, of some reasons and not older than `since_ms`.

    Spans of damaged bytes stay dead: they hold no records. Runs on the driver: dead letters are few.
    """
    table = Table(options.root)
    state = table.loaded()
    EventSchema.from_dict(state.schema).check_evolution(options.schema)
    identity = TopicIdentity(state.cluster_id, state.topic, state.topic_id)
    job = {"name": "redrive", "id": uuid.uuid4().hex, "decoder": options.decoder.limits()}
    entry = new_entry(table, "redrive", identity, options.schema, job)
    summary = RedriveSummary()
    dead = [entry for entry in table.files().dead.values() if entry.topic_id == state.topic_id]
    if dead:
        table.prepare(options.schema)
    with explained():
        for file in sorted(dead, key=lambda file: file.path):
            _redrive(
                table,
                file,
                entry,
                options,
                summary,
                lambda letters: chosen_letters(letters, reasons, since_ms),
            )
    summary.still_dead = summary.tried - summary.resolved
    if entry.add:
        table.commit(entry)
    DeadLetters(table).publish()
    for file in table.files().dead.values():
        for reason, count in file.reasons.items():
            summary.reasons[reason] = summary.reasons.get(reason, 0) + count
    return summary


def _redrive(
    table: Table,
    file: DataFile,
    entry: Entry,
    options: LoadOptions,
    summary: RedriveSummary,
    choose: Callable[[pa.Table], Mask],
) -> None:
    """Decode the chosen letters of a file, and note the outcome in the entry."""
    letters = read_dead(table.io, file.path)
    chosen = choose(letters)
    summary.tried += int(chosen.sum())
    good, rows = decode_again(letters, chosen, options.decoder, file.topic_id, file.partition)
    if not good.any():
        return
    writer = TableWriter(table.layout, options.schema, file.topic_id, file.partition)
    writer.write(rows)
    entry.add += writer.close()
    offsets = letters["offset"].to_numpy()[good].tolist()
    entry.redriven.setdefault(str(file.partition), []).extend(offsets)
    entry.dead_remove.append(file.path)
    remaining = letters.filter(pa.array(~good))
    if remaining.num_rows:
        entry.dead_add.append(write_dead(table.layout, remaining, file.topic_id, file.partition))
    summary.resolved += len(offsets)


def chosen_letters(letters: pa.Table, reasons: set[str] | None, since_ms: int | None) -> Mask:
    """Return the mask of dead letters to decode again: of some reasons, and not older than `since_ms`."""
    single = pc.equal(pc.subtract(letters["end_offset"], letters["offset"]), 1)
    times = letters["timestamp_ms"]
    chosen = pc.and_(single, pc.is_valid(times))  # spans have no timestamp
    if reasons is not None:
        chosen = pc.and_(chosen, pc.is_in(letters["reason"], pa.array(sorted(reasons))))
    if since_ms is not None:
        chosen = pc.and_(chosen, pc.fill_null(pc.greater_equal(times, since_ms), False))
    return chosen.to_numpy()


def decode_again(
    letters: pa.Table, chosen: Mask, decoder: Decoder, topic_id: str, partition: int
) -> tuple[Mask, pa.Table]:
    """Return (mask over all letters: true for valid records, their rows)."""
    picked = np.flatnonzero(chosen)
    part = letters.take(pa.array(picked)).combine_chunks()
    columns = Columns(
        part["offset"].to_numpy(),
        part["timestamp_ms"].to_numpy(),
        np.zeros(len(picked), np.int32),
        part["leader_epoch"].to_numpy().astype(np.int32),
        *(
            pa.concat_arrays(part[name].chunks) if len(picked) else pa.array([], part[name].type)
            for name in _BYTES
        ),
    )
    rows, bad = to_table(columns, decoder, topic_id, partition)
    good = np.zeros(len(letters), bool)
    good[picked] = True
    good[picked[[refusal.row for refusal in bad]]] = False
    return good, rows


_BYTES = ("key", "value", "headers")
