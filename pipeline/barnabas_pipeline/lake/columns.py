"""Columns of the tables: the event's fields with the coordinates of their record, and those of dead letters.

The rule: coordinates begin with an underscore, which no field of an event does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from barnabas_pipeline.formats.base import event_ms
from barnabas_pipeline.lake.ledger import HOUR_MS
from barnabas_pipeline.log.columns import HEADERS_TYPE, TIMESTAMP_TYPE
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Column, Integers

PARTITION = "_topic_partition"  # Iceberg has taken `_partition`
EARLIER_PARTITION = "_partition"  # in files of a lake of an earlier format
COORDINATES = [
    pa.field("_extra", pa.string()),
    pa.field("_topic_id", pa.string()),
    pa.field(PARTITION, pa.int32()),
    pa.field("_offset", pa.int64()),
    pa.field("_timestamp", TIMESTAMP_TYPE),
    pa.field("_leader_epoch", pa.int32()),
    pa.field("_key", pa.binary()),
    pa.field("_headers", HEADERS_TYPE),
]
DEAD_SCHEMA = pa.schema(
    [
        pa.field("topic_id", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("end_offset", pa.int64()),  # offset + 1, or more for a span of damaged bytes
        pa.field("timestamp", TIMESTAMP_TYPE),  # null for times outside the years 1 to 9999
        pa.field("leader_epoch", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("decoder_version", pa.int32()),
        pa.field("schema_name", pa.string()),
        pa.field("timestamp_ms", pa.int64()),  # null for a span, and in files of earlier versions
    ]
)


def lake_schema(schema: EventSchema) -> pa.Schema:
    """Return the columns of a table for events of a schema."""
    return pa.schema([*schema.arrow, *COORDINATES])


def event_hours(column: Column) -> Integers:
    """Return the hours since 1970 of event times."""
    return event_ms(column) // HOUR_MS


def span_of(column: Column) -> tuple[int, int]:
    """Return the least and the greatest value of a column."""
    bounds = pc.min_max(column).as_py()
    return bounds["min"], bounds["max"]
