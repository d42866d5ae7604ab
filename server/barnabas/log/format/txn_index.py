"""The transaction index of a segment: the transactions with their abort marker in it (KIP-98).

The rule: entries are in the order of their markers, so last offsets and last stable offsets rise.

    entry = version int16 (0), producer id int64, first offset int64, last offset int64 (the marker),
            last stable offset int64 (just after the marker was written)
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from barnabas.log.format import CorruptFileError

VERSION = 0
_ENTRY = Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size


class AbortedTransaction(NamedTuple):
    """A transaction of one producer that was aborted in this partition; `last_offset` is its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode(transactions: Iterable[AbortedTransaction]) -> bytes:
    """Encode entries for the end of the file."""
    return b"".join(_ENTRY.pack(VERSION, *transaction) for transaction in transactions)


def decode(data: bytes, base_offset: int) -> list[AbortedTransaction]:
    """Decode a file's content.

    Raises CorruptFileError if it is malformed, or not of the segment at `base_offset`.
    """
    if len(data) % ENTRY_SIZE:
        raise CorruptFileError(f"{len(data)} bytes are no whole number of transaction index entries")
    transactions: list[AbortedTransaction] = []
    last_offset = base_offset - 1
    for version, *fields in _ENTRY.iter_unpack(data):
        transaction = AbortedTransaction(*fields)
        if version != VERSION:
            raise CorruptFileError(f"transaction index version {version} is unknown")
        if not last_offset < transaction.last_offset or transaction.first_offset > transaction.last_offset:
            raise CorruptFileError(f"{transaction} does not belong after offset {last_offset}")
        last_offset = transaction.last_offset
        transactions.append(transaction)
    return transactions
