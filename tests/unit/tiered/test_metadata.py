"""Records of `__remote_log_metadata`; their bytes beside Kafka's are in test_kafkas_metadata.py."""

from dataclasses import replace
from uuid import UUID

import pytest

from barnabas.tiered.metadata import (
    MetadataRecordError,
    PartitionDelete,
    PartitionDeleteState,
    decode,
    encode,
    encode_snapshot,
    metadata_partition,
)
from barnabas.tiered.segment import SegmentState, TopicIdPartition
from barnabas.wire.errors import EncodeError
from tests.support.remote_segments import PARTITION, remote_segment, update

SEGMENT = remote_segment(7, 99, ((2, 7), (5, 40)), is_transaction_index_empty=True, custom_metadata=b"key")


@pytest.mark.parametrize(
    "record",
    [
        SEGMENT,
        replace(SEGMENT, custom_metadata=None, is_transaction_index_empty=False, max_timestamp=-1),
        *(update(SEGMENT, state, b"") for state in SegmentState),
        *(PartitionDelete(PARTITION, 4, 17, state) for state in PartitionDeleteState),
    ],
)
def test_record_is_read_as_it_was_written(record) -> None:
    assert decode(encode(record)) == record


def test_snapshot_takes_the_partition_from_its_reader() -> None:
    value = encode_snapshot(SEGMENT)
    assert decode(value, PARTITION) == SEGMENT
    with pytest.raises(MetadataRecordError, match="without the partition"):
        decode(value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"", "frame version"),
        (b"\x00" + encode(SEGMENT)[1:], "frame version 0"),
        (b"\x01\x04\x00", "no remote log metadata record with key 4"),
        (b"\x01\x00\x01" + encode(SEGMENT)[3:], "version"),
        (encode(SEGMENT) + b"\x00", "left|after"),
        (encode(SEGMENT)[:-1], "byte"),
        (encode(replace(SEGMENT, leader_epochs=())), "no leader epoch"),
        (encode(replace(SEGMENT, start_offset=-1)), "from offset -1"),
        (encode(replace(SEGMENT, end_offset=6)), "from offset 7 to 6"),
        (encode(replace(SEGMENT, state=4)), "no SegmentState 4"),
        (encode(PartitionDelete(PARTITION, 4, 17, 3)), "no PartitionDeleteState 3"),
    ],
)
def test_what_is_no_record_is_refused(value, problem) -> None:
    with pytest.raises(MetadataRecordError, match=problem):
        decode(value)


def test_leader_epochs_are_in_order_whatever_the_record_has() -> None:
    shuffled = replace(SEGMENT, leader_epochs=((5, 40), (2, 7)))
    assert decode(encode(shuffled)) == SEGMENT


def test_number_without_room_is_refused() -> None:
    with pytest.raises(EncodeError):
        encode(replace(SEGMENT, size=1 << 31))


def test_partition_of_a_segment_is_stable() -> None:
    partitions = {
        metadata_partition(TopicIdPartition("t", number, UUID(int=1 << 90)), 50) for number in range(200)
    }
    assert partitions <= set(range(50))
    assert len(partitions) > 40
