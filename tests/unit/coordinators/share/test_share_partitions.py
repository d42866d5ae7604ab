"""A share partition's state counts for the leadership and the time of the group in which it was read."""

import pytest
import trio

from barnabas.cluster.metadata.changes import PartitionChanged
from barnabas.coordinators.share.acquisition import AcquireRequest
from barnabas.coordinators.share.partitions import SharePartitions
from barnabas.coordinators.share.records import ShareState
from barnabas.coordinators.share.settings import ShareSettings
from tests.support.broker import ask_for_topic, broker_to_ask


class States:
    """A share coordinator that keeps one state; `meanwhile` happens while an answer of it is on its way."""

    def __init__(self):
        self.start_offset = 5
        self.asked = []
        self.written = []
        self.meanwhile = None

    async def write_state(self, key, write):
        self.written.append(write)

    async def read_state(self, key, leader_epoch):
        self.asked.append(leader_epoch)
        state = ShareState(state_epoch=7, leader_epoch=leader_epoch, start_offset=self.start_offset)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return state


@pytest.fixture
async def ask(tmp_path):
    async with broker_to_ask(tmp_path) as asked:
        await ask_for_topic(asked, partitions=1)
        yield asked


def partitions_of(ask, states):
    services = ask.services
    return SharePartitions(
        services.metadata,
        services.replicas,
        states,
        services.step_runner,
        services.clock_ms,
        services.clock_ms,
        ShareSettings(record_lock_ms=30_000, deliveries_max=5, records_in_flight_max=2000),
    )


def key_of(ask):
    return "g", ask.services.metadata.image.topics["t"].id, 0


async def test_state_of_an_earlier_leader_epoch_is_read_again(ask):
    states = States()
    partitions = partitions_of(ask, states)

    async def lead_anew():
        def next_epoch(image):
            info = image.topics["t"].partitions[0]
            return [PartitionChanged("t", 0, info._replace(leader_epoch=info.leader_epoch + 1))]

        await ask.services.metadata.change(next_epoch)
        states.start_offset = 9  # what another leader has written in between

    states.meanwhile = lead_anew
    with trio.fail_after(5):
        shared = await partitions.load(key_of(ask))
    assert shared.records.next_offset == 9
    assert shared.is_current
    assert states.asked == [0, 1]


@pytest.mark.parametrize("change", ["group", "all"])
async def test_state_begun_again_during_the_read_is_read_again(ask, change):
    states = States()
    partitions = partitions_of(ask, states)

    async def begin_again():
        states.start_offset = 0
        if change == "group":
            partitions.forget_group("g")
        else:
            partitions.unload()

    states.meanwhile = begin_again
    with trio.fail_after(5):
        shared = await partitions.load(key_of(ask))
    assert shared.records.next_offset == 0
    assert states.asked == [0, 0]


async def test_state_is_written_with_both_of_its_epochs(ask):
    states = States()
    partitions = partitions_of(ask, states)
    shared = await partitions.load(key_of(ask))
    shared.records.acquire(AcquireRequest("a", 10), [(5, 9)], 0)
    group_id, topic_id, index = key_of(ask)
    assert await partitions.release(group_id, "a", [(topic_id, index)]) == {(topic_id, index): None}
    (written,) = states.written
    assert (written.state_epoch, written.leader_epoch) == (7, shared.leader_epoch)
    assert [(batch.first, batch.last) for batch in written.batches] == [(5, 9)]
