"""The index of partitions: what depends on a broker is found without a look at all partitions."""

import pytest

from barnabas.cluster.kraft.controller import index
from barnabas.cluster.kraft.controller.brokers import fence_stale
from barnabas.cluster.kraft.controller.outcome import ControllerState, at_once
from barnabas.cluster.kraft.image import Change
from barnabas.config.loading import BrokerConfig
from barnabas.testing.simulation.world import SimulatedEntropy
from tests.support.active_image import ActiveImage


class Sealed(dict):
    """Partitions that can be looked up, and no longer be walked through."""

    is_sealed = False

    def items(self):
        assert not self.is_sealed, "all partitions were looked at"
        return super().items()

    __iter__ = values = keys = items


def test_fencing_looks_at_the_partitions_of_the_broker_alone():
    active = ActiveImage().start(1, 2, 3)
    active.create("t", (1, 2))
    topic_id, template = active.key("t")[0], active.partition("t")
    other = template._replace(replicas=(2, 3), isr=(2, 3), leader=2)
    partitions = Sealed(
        {(topic_id, number): template if number % 10 == 0 else other for number in range(20_000)}
    )
    image = active.image._replace(partitions=partitions)
    state = ControllerState(active.state.config, active.state.entropy, 9, image=image, monotonic_ms=0)
    assert at_once(fence_stale(state)) == ()
    index.index_of(state)
    Sealed.is_sealed = True
    state.monotonic_ms = 9_001
    records = at_once(fence_stale(state))
    Sealed.is_sealed = False
    assert len(records) == 2_001
    assert {record.leader for record in records[:-1]} == {2}


def test_index_of_another_image_is_made_anew():
    active = ActiveImage().start(1, 2)
    active.create("t", (1, 2))
    before = active.image
    active.stop_hearing(1)
    assert index.index_of(active.state).in_isr(1) == ()
    active.state.image = before
    assert index.index_of(active.state).in_isr(1) == (active.key("t"),)


def test_index_does_not_follow_changes_of_another_image():
    state = ControllerState(BrokerConfig({}), SimulatedEntropy(None), 9)
    other = ActiveImage().start(1)
    other.create("t", (1,))
    index.index_of(state)
    at_once(index.follow(state, other.image, [Change("topic", b"x", None, None)]))
    state.image = other.image
    assert index.index_of(state).leads(1)


@pytest.mark.parametrize(("name", "expected"), [("a_b", "a.b"), ("a.b", "a.b"), ("a-b", None), ("ab", None)])
def test_index_finds_topics_with_similar_names(name, expected):
    active = ActiveImage().start(1)
    active.create("a.b", (1,))
    active.create("ab", (1,))
    assert index.index_of(active.state).similar_topic(name) == expected
