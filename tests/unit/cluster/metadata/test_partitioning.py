"""The partition of an internal topic that keeps an id: the one of Kafka."""

from __future__ import annotations

import pytest

from barnabas.cluster.metadata.partitioning import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(2**31)),
        ("my-group", -1_906_497_762),
        ("\u20ac", 0x20AC),
        ("\U0001f600", 31 * 0xD83D + 0xDE00),
    ],
)
def test_the_hash_is_javas(text: str, number: int) -> None:
    assert java_hash(text) == number


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
def test_a_negative_hash_counts_by_its_absolute_value_and_the_least_one_as_none(
    text: str, count: int, partition: int
) -> None:
    assert partition_for(text, count) == partition
