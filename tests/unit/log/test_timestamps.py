"""Looking for timestamps by steps, while the log changes."""

import random

import pytest

from barnabas.records.steps import run
from tests.support.logs import NOW_MS, Broker, append, batch


def finish(steps):
    """The result of steps that were begun."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def test_a_scan_of_many_headers_gives_way(tmp_path):
    log = Broker(tmp_path).log()
    for _ in range(5_000):
        append(log, batch(b"v"))
    append(log, batch(b"later", timestamp=NOW_MS + 5))
    assert len(list(log.timestamp_steps(NOW_MS + 3))) >= 5_000 / 250
    assert log.offset_for_timestamp(NOW_MS + 3).offset == 5_000
    # What was seen to be earlier is not looked at again, for this timestamp or any after it.
    assert len(list(log.timestamp_steps(NOW_MS + 4))) <= 1
    assert log.offset_for_timestamp(NOW_MS + 5).offset == 5_000
    assert log.offset_for_timestamp(NOW_MS + 1).offset == 5_000
    assert log.offset_for_timestamp(NOW_MS).offset == 0


def test_a_batch_of_many_records_is_looked_through_in_steps(tmp_path):
    log = Broker(tmp_path).log()
    append(log, batch(*[b"v"] * 20_000))
    append(log, batch(b"v", timestamp=NOW_MS + 5))
    log.delete_records_before(19_999)
    assert len(list(log.timestamp_steps(NOW_MS))) >= 10
    assert log.offset_for_timestamp(NOW_MS).offset == 19_999


@pytest.mark.parametrize("seed", range(5))
def test_answers_are_those_of_a_walk_over_all_records(tmp_path, seed):
    chance = random.Random(seed)
    log = Broker(tmp_path, segment_bytes=2_000, index_interval_bytes=200).log()
    stamps = []
    for _ in range(150):
        stamp = NOW_MS + chance.randrange(50)
        append(log, batch(b"v" * chance.randrange(60), timestamp=stamp))
        stamps.append(stamp)
        asked = NOW_MS + chance.randrange(55)
        place = log.offset_for_timestamp(asked)
        expected = next(((s, n, 0) for n, s in enumerate(stamps) if s >= asked), None)
        assert place == expected, f"seed {seed}"
        assert log.offset_of_max_timestamp() == (max(stamps), stamps.index(max(stamps)), 0), f"seed {seed}"


def test_segments_may_go_between_two_steps(tmp_path):
    broker = Broker(tmp_path, segment_bytes=2_000, index_interval_bytes=200)
    log = broker.log()
    for n in range(200):
        append(log, batch(b"v" * 50, timestamp=NOW_MS + n))
    begun = [log.timestamp_steps(NOW_MS + 150), log.max_timestamp_steps(), log.segment_times_steps()]
    for steps in begun:
        next(steps)
    log.delete_records_before(150)
    assert log.apply_retention(NOW_MS) > 0
    broker.manager.remove_due(NOW_MS + 10**13)
    assert finish(begun[0]).offset == 150
    assert finish(begun[1]).offset == 199
    assert finish(begun[2])[-1][1] == NOW_MS + 199
    assert run(log.timestamp_steps(NOW_MS)).offset == 150
