"""redrive: decode dead letters again, with a newer schema or decoder, and load those that are good now.

The rule: in one commit, a record stops being a dead letter and becomes a row; it never is both, nor neither.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas_pipeline.decode import Decoder
from barnabas_pipeline.jobs.load import LoadOptions, new_manifest
from barnabas_pipeline.lake.files import HourWriter, read_dead, write_dead
from barnabas_pipeline.lake.iceberg import publisher
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.task import to_table
from barnabas_pipeline.log.columns import Columns
from barnabas_pipeline.log.model import TopicIdentity
from barnabas_pipeline.schema import EventSchema


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
    """Try the dead letters of the current incarnation, those of some reasons and not older than `since_ms`.

    Spans of damaged bytes stay dead: they hold no records. Runs on the driver: dead letters are few.
    """
    table = Table(options.root)
    state = table.state()
    EventSchema.from_dict(state.schema).check_evolution(options.schema)
    identity = TopicIdentity(state.cluster_id, state.topic, state.topic_id)
    job = {"name": "redrive", "id": uuid.uuid4().hex, "decoder": options.decoder.limits()}
    manifest = new_manifest(table, "redrive", identity, options.schema, job)
    summary = RedriveSummary()
    for file in sorted(state.dead.values(), key=lambda file: file.path):
        if file.topic_id != state.topic_id:
            continue
        letters = read_dead(table.path(file.path))
        chosen = _choose(letters, reasons, since_ms)
        summary.tried += int(chosen.sum())
        good, rows = _decode(letters, chosen, options.decoder, state.topic_id, file.partition)
        if not good.any():
            continue
        writer = HourWriter(Path(options.root), options.schema, state.topic_id, file.partition)
        writer.write(rows)
        manifest.add += writer.close()
        offsets = letters["offset"].to_numpy()[good].tolist()
        manifest.redriven.setdefault(str(file.partition), []).extend(offsets)
        manifest.dead_remove.append(file.path)
        left = letters.filter(pa.array(~good))
        if left.num_rows:
            manifest.dead_add.append(write_dead(table.root, left, file.topic_id, file.partition))
        summary.resolved += len(offsets)
    summary.still_dead = summary.tried - summary.resolved
    if manifest.add:
        table.commit(manifest)
    publisher(table, options.iceberg)()
    for file in table.state().dead.values():
        for reason, count in file.reasons.items():
            summary.reasons[reason] = summary.reasons.get(reason, 0) + count
    return summary


def _choose(letters: Any, reasons: set[str] | None, since_ms: int | None) -> Any:
    single = pc.equal(pc.subtract(letters["end_offset"], letters["offset"]), 1)
    times = letters["timestamp_ms"]
    chosen = pc.and_(single, pc.is_valid(times))  # spans have no timestamp
    if reasons is not None:
        chosen = pc.and_(chosen, pc.is_in(letters["reason"], pa.array(sorted(reasons))))
    if since_ms is not None:
        chosen = pc.and_(chosen, pc.fill_null(pc.greater_equal(times, since_ms), False))
    return chosen.to_numpy()


def _decode(letters: Any, chosen: Any, decoder: Decoder, topic_id: str, partition: int) -> tuple[Any, Any]:
    """Return a mask over all letters, true for those that are good now, and their rows."""
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
    good[picked[[one.row for one in bad]]] = False
    return good, rows


_BYTES = ("key", "value", "headers")
