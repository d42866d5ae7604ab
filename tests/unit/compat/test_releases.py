"""Releases beside Apache Kafka's: what is left out on purpose, what is not, and what no longer is."""

from __future__ import annotations

from compat.releases.__main__ import NOT_SERVED, compared, excused, stale

KAFKA = {0: (3, 12), 18: (0, 4), 55: (0, 2)}


def test_only_a_key_that_is_not_served_is_left_out() -> None:
    assert compared(KAFKA, {0: (3, 12), 18: (0, 4)}) == []
    assert compared(KAFKA | {71: (0, 0)}, KAFKA | {71: (0, 0)}) == []
    assert len(compared(KAFKA, {0: (3, 12)})) == 1
    assert len(compared(KAFKA, KAFKA | {55: (0, 1)})) == 1
    assert (
        len(compared(KAFKA | {71: (0, 0)}, KAFKA)) == 1
    )  # telemetry, which is advertised where somebody asks for it
    assert len(compared(KAFKA, KAFKA | {0: (2, 12)})) == 1
    assert len(compared({0: (3, 12)}, {0: (3, 12), 80: (0, 0)})) == 1


def test_a_key_that_no_release_leaves_out_is_taken_off_the_list() -> None:
    assert excused(KAFKA, {0: (3, 12)}) == {55}
    assert stale(NOT_SERVED) == []
    assert len(stale(NOT_SERVED - {55, 64})) == 2
