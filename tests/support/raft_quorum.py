"""Quorums of running nodes: tasks, disks and steps are real, connections are calls with encoded messages."""

import trio

from barnabas.client import ClientSettings
from barnabas.cluster.kraft.follower import ControllerError, RefusedError
from barnabas.cluster.kraft.raft.running import taking_part
from barnabas.errors import StorageError
from barnabas.testing.simulation.world import run_world
from barnabas.wire import registry
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from tests.support.raft_nodes import Recording, formatted_disk, settings_of, supported_levels


class Wires:
    """Calls between nodes, encoded as on the wire."""

    def __init__(self):
        self.nodes = {}
        self.cut = set()
        self.refused = set()
        """Senders and targets between which connections are refused."""

    def of(self, node_id):
        return Peer(self, node_id)


class Peer:
    def __init__(self, wires, node_id):
        self.wires, self.node_id = wires, node_id

    async def run(self):
        await trio.sleep_forever()

    async def ask(self, key, address, message):
        wires, target = self.wires, int(address[0][1:])
        await trio.sleep(0.002)
        node = wires.nodes.get(target)
        if wires.cut & {target, self.node_id}:
            raise ControllerError("not reached")
        if node is None or (self.node_id, target) in wires.refused:
            raise RefusedError("nothing listens there")
        if isinstance(message, ApiVersionsRequest):
            return supported_levels()
        info = registry.info(registry.key_of(type(message).__name__.removesuffix("Request")))
        version = info.max_stable_version
        with trio.move_on_after(2):
            request = recoded(registry.request_codec(info.key), message, version)
            try:
                response = await node.answer(info.key, version, request)
            except StorageError as error:
                raise ControllerError("it has ended") from error
            if wires.nodes.get(target) is node and not wires.cut & {target, self.node_id}:
                return recoded(registry.response_codec(info.key), response, version)
        raise ControllerError("no answer")


def recoded(codec, message, version):
    """Return a message after encoding and decoding."""
    return codec.decode_whole(codec.encode_bytes(message, version), version)


class Quorum:
    def __init__(self, world, nodes=(1, 2, 3), *, is_static=False):
        self.world, self.nodes, self.is_static = world, nodes, is_static
        self.wires = Wires()
        self.disks = {number: formatted_disk(number, () if is_static else nodes) for number in nodes}
        self.listeners = {}
        self.scopes = {}
        self.lives = 0

    async def serve(self, number, task_status=trio.TASK_STATUS_IGNORED):
        joins = not self.is_static
        quorum, settings = settings_of(number, self.nodes, is_static=self.is_static, joins=joins)
        self.lives += 1
        environment = self.world.environment(f"n{number}-{self.lives}", self.disks[number])
        with trio.CancelScope() as scope:
            self.scopes[number] = scope
            async with taking_part(
                quorum, settings, environment, ClientSettings(), peers=self.wires.of(number)
            ) as node:
                self.listeners[number] = Recording()
                node.listen(self.listeners[number])
                self.wires.nodes[number] = node
                task_status.started()
                await trio.sleep_forever()

    def cut_power(self, number):
        """End a node by a power cut: its disk loses unsynced data."""
        self.disks[number] = self.disks[number].crash(self.world.random)
        del self.wires.nodes[number]
        self.scopes[number].cancel()

    async def leader(self):
        while True:
            for number, node in self.wires.nodes.items():
                calls = self.listeners[number].calls
                if calls and calls[-1][0] == "leader" and number not in self.wires.cut:
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
