"""Consumers learn what a broker has lost of that which they have read, whenever its power is cut or a log cut off."""

from __future__ import annotations

import pytest

from barnabas.broker import storage
from barnabas.testing.simulation.broker import quiet_logs
from tests.simulation.lost_tails import judged

COUNT = 15
FOUND_AT = 8
SEEDS_MAX = 60


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logs():
        yield


@pytest.mark.parametrize("seed", range(COUNT))
def test_no_member_resumes_behind_replaced_records(seed):
    history, broken = judged(seed)
    assert not broken, f"python -m tests.simulation --lost-tails --seed {seed}"
    assert history.finals


def test_histories_have_readers_that_go_back():
    assert any("what it read is lost" in event for seed in range(5) for event in judged(seed)[0].events)


def test_start_in_the_previous_leader_epoch_is_noticed(monkeypatch):
    monkeypatch.setattr(storage, "begin_epoch", lambda *_: [])
    assert any(judged(seed)[1] for seed in range(FOUND_AT, FOUND_AT + SEEDS_MAX))
