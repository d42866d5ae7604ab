"""Opens the batches of a response: checksums, aborted transactions and markers; records one after the other. Pure.

The rule: damage is reported when it is reached; earlier records are good.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.client.errors import DamagedRecordsError
from barnabas.client.values import FetchedRecords, TopicPartition
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import BatchHeader, check_crc, iter_batches
from barnabas.records.committed import AbortedBatches
from barnabas.records.errors import RecordsError
from barnabas.records.record import Record
from barnabas.records.varint import Buffer


class OpenedBatch(NamedTuple):
    """Records of one batch, in the order of the log."""

    topic: str
    partition: int
    leader_epoch: int
    """Epoch of the leader that appended them; -1 if unknown."""
    records: list[Record]


@dataclass(slots=True)
class _Aborted:
    producer_id: int
    first_offset: int


def readable_batches(
    place: TopicPartition,
    data: Buffer,
    batches: Iterable[tuple[int, BatchHeader]],
    aborted: AbortedBatches,
    *,
    checks_crcs: bool,
) -> Iterator[tuple[BatchHeader, Iterator[Record]]]:
    """Yield batches with records for a program, except aborted ones.

    Raises DamagedRecordsError; iterating over the records raises RecordsError.
    """
    for position, header in batches:
        if checks_crcs and not check_crc(data, position, header):
            raise DamagedRecordsError(f"{place} at {header.base_offset}: a batch does not fit its checksum")
        try:
            if aborted.hides(data, position, header) or header.is_control:
                continue
            records = iter_any_records(data, position)
        except RecordsError as error:
            raise damaged(place, header.base_offset, error) from error
        yield header, records


def opened(fetched: FetchedRecords, end: int, *, checks_crcs: bool = True) -> Iterator[OpenedBatch]:
    """Yield the batches of a response with their records from the requested offset up to `end`.

    Raises DamagedRecordsError, after the records before the damage.
    """
    place = TopicPartition(fetched.topic, fetched.partition)
    aborted = AbortedBatches([_Aborted(*pair) for pair in fetched.aborted])
    at = fetched.offset
    try:
        batches = iter_batches(fetched.data)
        for header, records in readable_batches(
            place, fetched.data, batches, aborted, checks_crcs=checks_crcs
        ):
            at = header.base_offset
            if header.magic == 2 and header.base_offset >= fetched.offset and header.next_offset <= end:
                whole = list(records)
            else:
                whole = [record for record in records if fetched.offset <= record.offset < end]
            if whole:
                yield OpenedBatch(*place, header.leader_epoch, whole)
    except RecordsError as error:
        raise damaged(place, at, error) from error


def damaged(place: TopicPartition, offset: int, error: RecordsError) -> DamagedRecordsError:
    """Return the error of a batch that cannot be read."""
    return DamagedRecordsError(f"{place} at {offset}: {error.message}")
