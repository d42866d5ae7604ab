"""Rates of replication as Kafka's SimpleRate measures them, and which partitions are throttled."""

from __future__ import annotations

import pytest

from barnabas.cluster.replication.quota import Rate, throttled_partitions
from barnabas.cluster.replication.read_replica import ReadReplica, preferred_replica


def test_a_rate_counts_whole_samples_since_the_oldest_began() -> None:
    rate = Rate(samples=11, sample_ms=1000)
    assert rate.per_second(0) == 0
    rate.count(5000, 0)
    assert rate.per_second(1) == 5000  # one sample is taken to have passed
    assert rate.per_second(2000) == 2500
    rate.count(5000, 2000)
    assert rate.per_second(4000) == 2500
    assert rate.per_second(10_999) == pytest.approx(10_000 / 10.999)
    assert rate.per_second(11_000) == pytest.approx(5000 / 9)  # the oldest is forgotten
    assert rate.per_second(13_000) == 0


@pytest.mark.parametrize(
    ("replicas", "partitions"),
    [
        ((), set()),
        (("*",), None),
        (("0:1", "1:2", "2:1"), {0, 2}),
        (("0:11", " 3:1 "), {3}),
        (("00:001", "9999999999:1"), {0, 9_999_999_999}),
        ((f"0:{'1' * 5000}", f"{'1' * 5000}:1", "4:1", "", "5", "5:", ":1", "٣:1", "-1:1"), {4}),
    ],
)
def test_which_partitions_are_throttled_on_broker_1(
    replicas: tuple[str, ...], partitions: set[int] | None
) -> None:
    assert throttled_partitions(replicas, 1) == partitions


@pytest.mark.parametrize(
    ("rack", "followers", "preferred"),
    [
        ("b", [(10, 5, 2), (10, 6, 3)], 3),
        ("b", [(11, 5, 2), (10, 6, 3)], 2),
        ("b", [(10, 5, 2), (10, 5, 3)], 3),
        ("a", [(10, 5, 2)], None),
        ("c", [(10, 5, 2)], None),
        ("", [(10, 5, 2)], None),
        ("b", [], None),
    ],
)
def test_consumer_reads_in_its_rack_if_the_leader_is_not_there(
    rack: str, followers: list[tuple[int, int, int]], preferred: int | None
) -> None:
    racks = {1: "a", 2: "b", 3: "b"}
    assert preferred_replica(rack, 1, [ReadReplica(*values) for values in followers], racks.get) == preferred
