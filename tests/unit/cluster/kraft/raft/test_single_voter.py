"""A voter that is alone: leads at once, commits what it appends, and keeps it."""

import json

import pytest
import trio

from barnabas.client import ClientSettings
from barnabas.cluster.kraft.raft.ports import NotLeaderError
from barnabas.cluster.kraft.raft.running import taking_part
from barnabas.testing.simulation.world import run_world
from tests.support.programs import run_with
from tests.support.raft_nodes import (
    DIR,
    Recording,
    describe_request,
    fetch_request,
    formatted_disk,
    record,
    settings_of,
)


def run(work):
    run_world(1, work, seconds_max=600)


async def led(node):
    listener = Recording()
    node.listen(listener)
    while not listener.calls:
        await trio.sleep(0.01)
    return listener


@pytest.mark.parametrize("is_static", [True, False])
@run_with(run)
async def test_single_voter_commits_and_keeps_its_records(world, is_static):
    disk = formatted_disk(1, () if is_static else (1,))
    quorum, settings = settings_of(1, [1], is_static=is_static)
    for life in range(2):
        environment = world.environment(f"n{life}", disk)
        async with taking_part(quorum, settings, environment, ClientSettings()) as node:
            listener = await led(node)
            epoch = life + 1
            assert node.leader_id == 1
            assert node.epoch == epoch
            assert listener.calls == [("leader", epoch, node.end_offset)]
            assert node.leadership.kraft_version == (0 if is_static else 1)
            offset = node.append(epoch, [record(2 * life), record(2 * life + 1)])
            await node.wait_committed(offset, epoch)
            while node.applied_offset < offset:
                await trio.sleep(0.01)
            assert len(node.image.topics) == 2 * life + 2
            with pytest.raises(NotLeaderError):
                node.append(epoch - 1, [record(9)])
    state = json.loads(disk.read(f"{DIR}/__cluster_metadata-0/quorum-state"))
    assert (state["leaderId"], state["leaderEpoch"], state["data_version"]) == (1, 2, 0 if is_static else 1)


@run_with(run)
async def test_fetch_of_an_observer_waits_for_records(world):
    quorum, settings = settings_of(1, [1])
    environment = world.environment("n", formatted_disk(1, (1,)))
    async with taking_part(quorum, settings, environment, ClientSettings()) as node:
        await led(node)
        response = await node.answer(1, 17, fetch_request(0, epoch=1, last_epoch=0, replica_id=7))
        partition = response.responses[0].partitions[0]
        assert partition.error_code == 0
        assert partition.high_watermark == node.end_offset == 3
        assert partition.records
        answers = []

        async def wait():
            answers.append(
                await node.answer(1, 17, fetch_request(3, epoch=1, last_epoch=1, replica_id=7, wait_ms=500))
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(0.1)
            assert not answers
            node.append(1, [record(1)])
            await trio.sleep(0.1)
            assert answers[0].responses[0].partitions[0].records


@run_with(run)
async def test_describe_quorum_names_voters_and_observers(world):
    quorum, settings = settings_of(1, [1])
    environment = world.environment("n", formatted_disk(1, (1,)))
    async with taking_part(quorum, settings, environment, ClientSettings()) as node:
        await led(node)
        await node.answer(1, 17, fetch_request(3, epoch=1, last_epoch=1, replica_id=7))
        response = await node.answer(55, 2, describe_request())
        partition = response.topics[0].partitions[0]
        assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 1, 3)
        assert [voter.replica_id for voter in partition.current_voters] == [1]
        assert [(entry.replica_id, entry.log_end_offset) for entry in partition.observers] == [(7, 3)]
        assert [(entry.node_id, entry.listeners[0].host) for entry in response.nodes] == [(1, "c1")]
