"""Filter for batches of aborted transactions, for a reader with read_committed of a fetch response.

The rule: the response names the aborted transactions in it; a producer's batches are hidden from the first offset of
such a transaction up to the marker that ends it. The reader skips control batches itself.
"""

from collections.abc import Iterable
from typing import Protocol

from barnabas.records.batch import BatchHeader, read_records
from barnabas.records.control import ControlType, parse_type
from barnabas.records.varint import Buffer


class AbortedTransaction(Protocol):
    """An aborted transaction, as Fetch names it."""

    producer_id: int
    first_offset: int


class AbortedBatches:
    """Filter of one response; its batches are shown to `hides` in their order, each once."""

    __slots__ = ("_aborting", "_coming")

    def __init__(self, transactions: Iterable[AbortedTransaction] | None) -> None:
        self._coming = sorted(
            ((transaction.first_offset, transaction.producer_id) for transaction in transactions or ()),
            reverse=True,
        )
        self._aborting: set[int] = set()

    def hides(self, buf: Buffer, pos: int, header: BatchHeader) -> bool:
        """Return whether the batch at `pos` holds records of an aborted transaction. Raises as `read_records`."""
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._aborting.add(self._coming.pop()[1])
        if not header.is_transactional or header.producer_id not in self._aborting:
            return False
        if not header.is_control:
            return True
        for record in read_records(buf, pos):
            if parse_type(record.key) is ControlType.ABORT:
                self._aborting.discard(header.producer_id)
        return False
