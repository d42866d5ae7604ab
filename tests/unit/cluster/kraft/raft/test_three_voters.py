"""Three voters over a simulated network of their own: one leads, all have its log, another takes over."""

import pytest
import trio

from barnabas.client import ClientSettings
from barnabas.cluster.kraft.follower import ControllerError
from barnabas.cluster.kraft.raft.running import taking_part
from barnabas.errors import StorageError
from barnabas.testing.simulation.world import run_world
from barnabas.wire import registry
from tests.support.raft_nodes import Recording, describe_request, formatted_disk, record, settings_of

LISTENED = ("CONTROLLER", 9093)


class Wires:
    """Calls between nodes, encoded as on the wire."""

    def __init__(self):
        self.nodes = {}
        self.cut = set()

    def of(self, node_id):
        return Peer(self, node_id)


class Peer:
    def __init__(self, wires, node_id):
        self.wires, self.node_id = wires, node_id

    async def run(self):
        await trio.sleep_forever()

    async def ask(self, key, address, message):
        target = int(address[0][1:])
        await trio.sleep(0.002)
        node = self.wires.nodes.get(target)
        if node is None or {target, self.node_id} & self.wires.cut:
            raise ControllerError("not reached")
        name = type(message).__name__.removesuffix("Request")
        info = registry.info(registry.key_of(name))
        version = info.max_stable_version
        with trio.move_on_after(2):
            response = await node.answer(info.key, version, message)
            if not {target, self.node_id} & self.wires.cut:
                return response
        raise ControllerError("no answer")


class Quorum:
    def __init__(self, world, nodes=(1, 2, 3), *, is_static=False):
        self.world, self.nodes, self.is_static = world, nodes, is_static
        self.wires = Wires()
        self.disks = {number: formatted_disk(number, () if is_static else nodes) for number in nodes}
        self.listeners = {number: Recording() for number in nodes}
        self.scopes = {}
        self.lives = 0

    async def serve(self, number, task_status=trio.TASK_STATUS_IGNORED):
        quorum, settings = settings_of(number, self.nodes, is_static=self.is_static)
        self.lives += 1
        environment = self.world.environment(f"n{number}-{self.lives}", self.disks[number])
        with trio.CancelScope() as scope:
            self.scopes[number] = scope
            async with taking_part(
                quorum, settings, environment, ClientSettings(), peers=self.wires.of(number)
            ) as node:
                node.listen(self.listeners[number])
                self.wires.nodes[number] = node
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    self.wires.nodes.pop(number, None)

    async def leader(self):
        while True:
            for node in self.wires.nodes.values():
                if node._announced is not None and node.node_id not in self.wires.cut:
                    return node
            await trio.sleep(0.01)


def run(work, seed=1, **options):
    async def main(world):
        quorum = Quorum(world, **options)
        async with trio.open_nursery() as nursery:
            for number in quorum.nodes:
                await nursery.start(quorum.serve, number)
            await work(quorum, nursery)
            nursery.cancel_scope.cancel()

    run_world(seed, main, seconds_max=600)


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
        assert second is not first and second.epoch > epoch
        offset = second.append(second.epoch, [record(3)])
        await second.wait_committed(offset, second.epoch)
        while quorum.listeners[first.node_id].calls[-1] != ("resigned", epoch):
            await trio.sleep(0.1)
        quorum.wires.cut.clear()
        while first.applied_offset < offset:
            await trio.sleep(0.1)
        assert lost <= offset
        assert first.image == second.image
        assert sorted(first.image.topics) == sorted(second.image.topics) and len(first.image.topics) == 2

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
