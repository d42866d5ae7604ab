"""Choice of brokers for new replicas: racks and brokers take turns, those that are fenced come last."""

from collections import Counter
from random import Random

import pytest

from barnabas.cluster.kraft.controller.placement import UsableBroker, place, usable_brokers
from barnabas.errors import RequestError
from barnabas.testing.simulation.world import SimulatedEntropy
from barnabas.wire.generated.errors import ErrorCode
from tests.support.active_image import ActiveImage, log_dir


class First:
    """Entropy that always draws 0."""

    def below(self, limit):
        return 0


def brokers(*ids, rack=None, is_fenced=False):
    return [UsableBroker(broker_id, rack, is_fenced) for broker_id in ids]


def test_partitions_begin_one_broker_further_each():
    assert place(brokers(0, 1, 2), 3, 2, First()) == [(0, 1), (1, 2), (2, 0)]


def test_racks_take_turns():
    usable = [*brokers(0, 1, rack="a"), *brokers(2, 3, rack="b"), *brokers(4, 5, rack="c")]
    assert place(usable, 4, 3, First()) == [(0, 2, 4), (3, 5, 1), (4, 0, 2), (1, 3, 5)]


def test_brokers_without_a_rack_are_a_rack():
    assert place([*brokers(1, rack="a"), *brokers(0)], 2, 2, First()) == [(0, 1), (1, 0)]


@pytest.mark.parametrize("seed", range(30))
def test_replicas_are_spread_whatever_is_drawn(seed):
    random = Random(seed)
    usable = [
        UsableBroker(number, random.choice([None, "a", "b", "c"]), random.random() < 0.3)
        for number in range(9)
    ]
    alive = {broker.id for broker in usable if not broker.is_fenced}
    racks = {broker.id: broker.rack for broker in usable}
    for factor in range(1, 10):
        placed = place(usable, 100, factor, SimulatedEntropy(random))
        for replicas in placed:
            assert len(set(replicas)) == factor
            assert replicas[0] in alive, "a leader that is not fenced"
            assert len({racks[replica] for replica in replicas}) == min(factor, len(set(racks.values())))
        leaders = Counter(replicas[0] for replicas in placed)
        assert set(leaders) == alive


@pytest.mark.parametrize("seed", range(5))
def test_leaders_are_balanced_between_brokers(seed):
    placed = place(brokers(*range(5)), 100, 3, SimulatedEntropy(Random(seed)))
    assert set(Counter(replicas[0] for replicas in placed).values()) == {20}


def test_fenced_brokers_come_last_within_a_rack():
    usable = [*brokers(0, 1), *brokers(2, is_fenced=True)]
    assert all(2 not in replicas for replicas in place(usable, 10, 2, First()))
    assert all(replicas[2] == 2 for replicas in place(usable, 10, 3, First()))


def test_single_broker_has_all_partitions():
    assert place(brokers(4), 3, 1, First()) == [(4,)] * 3


@pytest.mark.parametrize(
    ("usable", "factor"),
    [([], 1), (brokers(1, is_fenced=True), 1), (brokers(1, 2), 3), (brokers(1), 0), (brokers(1), -1)],
)
def test_impossible_factor_is_refused(usable, factor):
    with pytest.raises(RequestError) as refusal:
        place(usable, 1, factor, First())
    assert refusal.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_usable_brokers_have_a_dir_and_are_not_shutting_down():
    active = ActiveImage().start(1, 2, 3, 4, dirs=2)
    active.register(5)
    active.beat(2, cordoned=[log_dir(2, 0), log_dir(2, 1)])
    active.beat(3, cordoned=[log_dir(3, 0)])
    active.create("t", (4, 1))
    active.beat(4, stop=True)
    assert usable_brokers(active.image) == (
        UsableBroker(1, None, False),
        UsableBroker(3, None, False),
        UsableBroker(5, None, True),
    )
