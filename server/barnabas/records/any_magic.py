"""Reading of records of any format: message sets of magic 0 and 1, batches of magic 2."""

from collections.abc import Iterator

from barnabas.records.batch import (
    DECOMPRESSED_BYTES_MAX,
    HEADER_SIZE_UP_TO_MAGIC,
    MAGIC_OFFSET,
    RECORD_BYTES_MAX,
    iter_records,
)
from barnabas.records.record import Record
from barnabas.records.varint import Buffer


def iter_any_records(
    buf: Buffer,
    pos: int = 0,
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> Iterator[Record]:
    """Decode the records of the batch or legacy message at `pos`; raises as the `iter_records` of its format."""
    if len(buf) - pos < HEADER_SIZE_UP_TO_MAGIC or buf[pos + MAGIC_OFFSET] == 2:
        return iter_records(
            buf, pos, decompressed_bytes_max=decompressed_bytes_max, record_bytes_max=record_bytes_max
        )
    from barnabas.records import legacy  # few logs have any

    return legacy.iter_records(
        buf, pos, decompressed_bytes_max=decompressed_bytes_max, record_bytes_max=record_bytes_max
    )
