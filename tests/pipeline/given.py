"""Logs of given batches, for what reads a log."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.records.batch import read_any_header
from barnabas_pipeline.log.model import CorruptSpan, OffsetRange, RawBatch
from barnabas_pipeline.log.order import Order, StoredBatch


def stored(data: bytes | bytearray, *, is_aborted: bool = False) -> StoredBatch:
    """One batch, of a transaction that was aborted or not."""
    return StoredBatch(bytes(data), read_any_header(data), lambda *_: is_aborted)


class GivenLog:
    """A log of given batches, all of which are shown whatever is wanted."""

    def __init__(self, items: list[StoredBatch]) -> None:
        self.items = items

    def read(self, asked: OffsetRange) -> Iterator[RawBatch | CorruptSpan]:
        """Give them in order."""
        order = Order(asked)
        for item in self.items:
            yield from order.take(item)
        yield from order.finish(1 << 62)
