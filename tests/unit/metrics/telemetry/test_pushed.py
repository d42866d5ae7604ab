"""Metrics that clients push are kept within bounds: sums of differences, and an end for silent clients."""

import pytest

from barnabas.metrics.telemetry.payload import COUNTER, GAUGE, HISTOGRAM, Distribution, Point
from barnabas.metrics.telemetry.pushed import Bounds, PushedMetrics

NOW_MS = 1_700_000_000_000
ONE, TWO = b"1" * 16, b"2" * 16


def take(pushed, *points, client=ONE, at_ms=0, lifetime_ms=60_000):
    return pushed.take(
        client, {"client_id": "c"}, (), points, now_ms=NOW_MS + at_ms, lifetime_ms=lifetime_ms
    ).series


def test_differences_are_added_up_and_totals_replaced():
    pushed = PushedMetrics()
    for total in (5.0, 7.0):
        series = take(
            pushed,
            Point("sent", COUNTER, (), 5.0, delta=True),
            Point("all", COUNTER, (), total),
            Point("now", GAUGE, (), total),
        )
    assert series == {("sent", COUNTER, ()): 10.0, ("all", COUNTER, ()): 7.0, ("now", GAUGE, ()): 7.0}


def test_labels_tell_series_apart_in_any_order():
    pushed = PushedMetrics()
    series = take(
        pushed,
        Point("x", GAUGE, (("a", "1"), ("b", "2")), 1.0),
        Point("x", GAUGE, (("b", "2"), ("a", "1")), 2.0),
        Point("x", GAUGE, (("a", "2"), ("b", "2")), 3.0),
    )
    assert sorted(series.values()) == [2.0, 3.0]


def test_histograms_are_added_up_by_buckets():
    pushed = PushedMetrics()
    for _ in range(2):
        series = take(
            pushed, Point("h", HISTOGRAM, (), Distribution(3, 6.0, ((1.0, 1.0), (5.0, 2.0))), delta=True)
        )
    assert series["h", HISTOGRAM, ()] == Distribution(6, 12.0, ((1.0, 2.0), (5.0, 4.0)))
    series = take(pushed, Point("h", HISTOGRAM, (), Distribution(1, 1.0, ((2.0, 1.0),)), delta=True))
    assert series["h", HISTOGRAM, ()] == Distribution(7, 13.0)


def test_a_client_that_is_silent_is_forgotten():
    pushed = PushedMetrics()
    take(pushed, Point("x", GAUGE, (), 1.0))
    take(pushed, Point("x", GAUGE, (), 1.0), client=TWO, at_ms=1)
    pushed.expire(NOW_MS + 59_999)
    assert len(pushed.clients) == 2
    pushed.expire(NOW_MS + 60_000)
    assert list(pushed.clients) == [TWO]
    pushed.expire(NOW_MS + 60_001)
    assert pushed.size_bytes == 0


MANY = [Point(f"metric.{number}", GAUGE, (("label", "v" * 20),), 1.0) for number in range(80)]
CLIENTS = [bytes([number]) * 16 for number in range(1, 6)]


@pytest.mark.parametrize("bounds", [Bounds(size_bytes=100_000), Bounds(series=170)])
def test_memory_is_freed_of_the_longest_silent_first(bounds):
    pushed = PushedMetrics(bounds)
    for client in CLIENTS:
        take(pushed, *MANY, client=client)
        assert pushed.size_bytes <= bounds.size_bytes
        assert pushed.series_count <= bounds.series
    assert list(pushed.clients) == CLIENTS[-2:]
    assert pushed.evicted == 3
    assert pushed.evicted_series == 3 * 80


@pytest.mark.parametrize("bounds", [Bounds(client_size_bytes=40_000), Bounds(client_series=64)])
def test_crowded_client_loses_its_longest_silent_series(bounds):
    pushed = PushedMetrics(bounds)
    for number in range(1000):
        series = take(pushed, Point("again", GAUGE, (), 1.0), Point(f"metric.{number}", GAUGE, (), 1.0))
        assert len(series) <= bounds.client_series
        assert pushed.clients[ONE].size_bytes <= bounds.client_size_bytes
    assert {"again", "metric.999", "metric.990"} <= {name for name, _, _ in series}
    assert "metric.0" not in {name for name, _, _ in series}
    assert pushed.evicted_series == 1001 - len(series)
    assert not pushed.evicted


def test_what_is_counted_is_what_there_is():
    pushed = PushedMetrics(Bounds(client_series=70, series=200))
    for client in CLIENTS * 2:
        take(pushed, *MANY, client=client)
        take(
            pushed,
            Point("h", HISTOGRAM, (), Distribution(3, 6.0, ((1.0, 1.0), (5.0, 2.0))), delta=True),
            Point("h", HISTOGRAM, (), Distribution(1, 1.0, ((2.0, 1.0),)), delta=True),
            client=client,
        )
        assert pushed.series_count == sum(len(client.series) for client in pushed.clients.values())
        assert pushed.size_bytes == sum(client.size_bytes for client in pushed.clients.values())
    pushed.expire(NOW_MS + 60_000)
    assert (pushed.series_count, pushed.size_bytes) == (0, 0)
