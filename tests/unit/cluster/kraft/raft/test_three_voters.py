"""Three voters: one leads, all have its log, another takes over; what was acknowledged survives power cuts."""

from itertools import count

import pytest
import trio

from barnabas.cluster.kraft.directory import DIRECTORY
from barnabas.cluster.kraft.keeping import LogKeeper
from barnabas.cluster.kraft.raft.messages import Asker
from barnabas.cluster.kraft.raft.ports import NotLeaderError
from barnabas.cluster.kraft.raft.values import ReplicaKey
from barnabas.log.format.quorum_state import QUORUM_STATE, QuorumState
from tests.support.raft_nodes import (
    CLUSTER,
    DIR,
    describe_request,
    directory_id,
    formatted_disk,
    record,
    voter,
)
from tests.support.raft_quorum import run


@pytest.mark.parametrize("is_static", [True, False])
def test_three_voters_elect_one_and_share_its_log(is_static):
    async def work(quorum, nursery):
        leader = await quorum.leader()
        offset = leader.append(leader.epoch, [record(1)])
        await leader.wait_committed(offset, leader.epoch)
        while any(node.applied_offset < offset for node in quorum.wires.nodes.values()):
            await trio.sleep(0.01)
        assert {node.leader_id for node in quorum.wires.nodes.values()} == {leader.node_id}
        response = await leader.answer(55, 2, describe_request())
        voters = response.topics[0].partitions[0].current_voters
        assert [voter.log_end_offset for voter in voters] == [offset + 1] * 3

    run(work, is_static=is_static)


def test_another_voter_leads_when_the_leader_is_cut_off():
    async def work(quorum, nursery):
        first = await quorum.leader()
        epoch = first.epoch
        await first.wait_committed(first.append(epoch, [record(1)]), epoch)
        lost = first.append(epoch, [record(2)])
        quorum.wires.cut.add(first.node_id)
        second = await quorum.leader()
        assert second is not first
        assert second.epoch > epoch
        offset = second.append(second.epoch, [record(3)])
        await second.wait_committed(offset, second.epoch)
        while quorum.listeners[first.node_id].calls[-1] != ("resigned", epoch):
            await trio.sleep(0.1)
        quorum.wires.cut.clear()
        while first.applied_offset < offset:
            await trio.sleep(0.1)
        assert lost <= offset
        assert first.image == second.image
        assert sorted(first.image.topics) == sorted(second.image.topics)
        assert len(first.image.topics) == 2

    run(work)


@pytest.mark.parametrize("is_static", [True, False])
def test_ended_leader_is_followed_before_the_fetch_timeout(is_static):
    async def work(quorum, nursery):
        first = await quorum.leader()
        epoch = first.epoch
        await first.wait_committed(first.append(epoch, [record(1)]), epoch)
        await trio.sleep(3)
        quorum.cut_power(first.node_id)
        with trio.fail_after(1):
            second = await quorum.leader()
        assert second.epoch == epoch + 1

    run(work, is_static=is_static)


def test_voter_that_alone_is_refused_disturbs_no_leader():
    async def work(quorum, nursery):
        leader = await quorum.leader()
        epoch = leader.epoch
        follower = next(node for node in quorum.wires.nodes.values() if node is not leader)
        quorum.wires.refused.add((follower.node_id, leader.node_id))
        await trio.sleep(20)
        assert {node.epoch for node in quorum.wires.nodes.values()} == {epoch}
        quorum.wires.refused.clear()
        offset = leader.append(epoch, [record(1)])
        while follower.applied_offset < offset:
            await trio.sleep(0.1)
        assert follower.epoch == epoch

    run(work)


def test_leader_that_resigns_is_followed_by_another():
    async def work(quorum, nursery):
        first = await quorum.leader()
        epoch = first.epoch
        with trio.fail_after(3):
            first.resign(epoch)
            while (second := await quorum.leader()) is first:
                await trio.sleep(0.01)
        assert second.epoch > epoch

    run(work)


async def until_voters_are(quorum, *keys):
    with trio.fail_after(60):
        while True:
            leader = await quorum.leader()
            voters = {(voter.id, voter.directory_id) for voter in leader.leadership.voters}
            if voters == set(keys) and leader.high_watermark == leader.end_offset:
                return leader
            await trio.sleep(0.1)


def test_node_joins_and_a_new_directory_takes_an_old_place():
    async def work(quorum, nursery):
        await quorum.leader()
        keys = {number: (number, directory_id(number)) for number in (1, 2, 3, 4)}
        quorum.disks[4] = formatted_disk(4)
        await nursery.start(quorum.serve, 4)
        leader = await until_voters_are(quorum, *keys.values())
        lost = next(number for number in (1, 2, 3) if number != leader.node_id)
        quorum.cut_power(lost)
        keys[lost] = (lost, bytes([77]) * 16)
        quorum.disks[lost] = formatted_disk(lost, directory=keys[lost][1])
        await nursery.start(quorum.serve, lost)
        await until_voters_are(quorum, *keys.values())

    run(work)


# --- power cuts ---------------------------------------------------------------------------------------------------------


async def through_power_cuts(quorum, nursery, *, cuts=12):
    """Have nodes lose their power while records are acknowledged; what was is in the image of all at the end."""
    random, acknowledged = quorum.world.random, []

    async def produce():
        for number in count():
            leader = await quorum.leader()
            try:
                epoch = leader.epoch
                await leader.wait_committed(leader.append(epoch, [record(number)]), epoch)
                acknowledged.append(f"topic-{number}")
            except NotLeaderError:
                pass
            await trio.sleep(random.uniform(0, 0.1))

    nursery.start_soon(produce)
    for _ in range(cuts):
        await trio.sleep(random.uniform(0.1, 3))
        victims = [number for number in quorum.wires.nodes if random.random() < 0.5]
        for number in victims:
            quorum.cut_power(number)
        await trio.sleep(random.uniform(0, 0.5))
        for number in victims:
            await nursery.start(quorum.serve, number)
    while True:
        leader = await quorum.leader()
        target = leader.end_offset
        with trio.move_on_after(20):
            while any(node.applied_offset < target for node in quorum.wires.nodes.values()):
                await trio.sleep(0.1)
            break
    assert len(acknowledged) > cuts
    for node in quorum.wires.nodes.values():
        missing = [
            name
            for name in acknowledged[:-20]
            if name not in {topic.name for topic in node.image.topics.values()}
        ]
        assert not missing, f"node {node.node_id} lacks {missing}"


@pytest.mark.parametrize("seed", range(2))
def test_acknowledged_records_survive_power_cuts(seed):
    run(through_power_cuts, seed)


def test_a_log_that_is_not_synced_is_noticed():
    async def planted(keeper):
        return 1 << 40

    def run_all():
        for seed in range(5):
            run(through_power_cuts, seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogKeeper, "sync", planted)
        with pytest.raises(Exception):  # noqa: B017, PT011 - of whatever is seen first
            run_all()


def test_a_vote_is_on_disk_before_it_is_answered():
    async def work(quorum, nursery):
        leader = await quorum.leader()
        follower = next(node for node in quorum.wires.nodes.values() if node is not leader)
        sender = Asker(CLUSTER, ReplicaKey(leader.node_id, directory_id(leader.node_id)), ())
        request = sender.vote(voter(follower.node_id), 9, 8, 1_000, pre_vote=False)
        response = await follower.answer(52, 2, request)
        disk = quorum.disks[follower.node_id].crash()
        assert response.topics[0].partitions[0].vote_granted
        state = QuorumState.decode(disk.read(f"{DIR}/{DIRECTORY}/{QUORUM_STATE}"))
        assert (state.leader_epoch, state.voted_id) == (9, leader.node_id)

    run(work)
