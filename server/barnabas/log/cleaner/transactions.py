"""Detection of batches of aborted transactions, and of markers of transactions that have no batches left.

The rule: the caller passes batches in the order of the log, beginning where no transaction is open; a marker may be
removed once no batch of its transaction is left before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.records.batch import BatchHeader
from barnabas.records.control import ControlType


class TransactionTracker:
    """Follows the transactions through a log.

    `aborted` collects those that still need an entry in the index.
    """

    __slots__ = ("_aborted_soon", "_committed", "_open_aborted", "aborted")

    def __init__(self) -> None:
        self.aborted: list[AbortedTransaction] = []
        self._aborted_soon: list[tuple[int, AbortedTransaction]] = []  # by first offset, not reached yet
        # By producer: the transaction that will be aborted, and whether a batch of it was seen.
        self._open_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        # Producers with batches of a transaction that will be committed.
        self._committed: set[int] = set()

    def expect(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Announce the aborted transactions of the following batches."""
        for transaction in transactions:
            heappush(self._aborted_soon, (transaction.first_offset, transaction))

    def see_batch(self, header: BatchHeader) -> bool:
        """Note a data batch; returns whether it belongs to an aborted transaction."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        transaction = self._open_aborted.get(header.producer_id)
        if transaction is None:
            self._committed.add(header.producer_id)
            return False
        self._open_aborted[header.producer_id] = transaction[0], True
        return True

    def see_marker(self, header: BatchHeader, control_type: ControlType | None) -> bool:
        """Note a control batch (None: it is empty); returns whether its transaction has no batches left."""
        self._reach(header.last_offset)
        producer_id = header.producer_id
        if control_type is None:
            return True
        if control_type is ControlType.ABORT:
            transaction = self._open_aborted.pop(producer_id, None)
            if transaction is not None and transaction[1]:
                self.aborted.append(transaction[0])
                return False
            return True
        if control_type is ControlType.COMMIT:
            if producer_id in self._committed:
                self._committed.discard(producer_id)
                return False
            return True
        return False

    def take_aborted(self) -> list[AbortedTransaction]:
        """Return the transactions collected in `aborted`, and empty it."""
        taken, self.aborted = self.aborted, []
        return taken

    def _reach(self, offset: int) -> None:
        soon = self._aborted_soon
        while soon and soon[0][0] <= offset:
            transaction = heappop(soon)[1]
            self._open_aborted.setdefault(transaction.producer_id, (transaction, False))
