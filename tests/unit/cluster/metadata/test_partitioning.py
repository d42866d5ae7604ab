"""The partition of an internal topic that keeps an id: the one of Kafka."""

from __future__ import annotations

import pytest

from barnabas.cluster.metadata.partitioning import partition_for


@pytest.mark.parametrize(
    ("text", "count", "partition"),
    [
        ("polygenelubricants", 50, 0),
        ("my-group", 50, 12),
        ("zzzzzzzz", 50, 12),
        ("\U0001f600g", 50, 22),
        ("hello", 50, 22),
        ("hello", 1, 0),
        ("a", 97, 0),
        ("a", 98, 97),
    ],
)
def test_negative_hash_counts_by_its_absolute_value(text: str, count: int, partition: int) -> None:
    assert partition_for(text, count) == partition
