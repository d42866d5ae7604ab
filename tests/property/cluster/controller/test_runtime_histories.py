"""Controllers on a ZooKeeper that delays, loses and expires: each state follows from the last, and all comes right."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from random import Random

import pytest
import trio
import trio.testing

from barnabas.cluster.metadata.ports import AcceptedState, ElectionType, ProposedState
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.session import (
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
    ZooKeeperError,
)
from barnabas.errors import RequestError
from barnabas.testing.simulation.zookeeper import ZooKeeperWeather
from tests.support.controller_cluster import Cluster, running
from tests.support.effort import examples

BROKERS = (1, 2, 3, 4)
STEPS = 40


class StateLog:
    """Checks each state that is written against the one before it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.last: dict[str, znodes.PartitionState] = {}
        self.broken: list[str] = []
        self.tree = cluster.zookeeper.tree
        self.multi = self.tree.multi
        self.tree.multi = self.checked

    def checked(self, operations: Sequence[Operation], session_id: int) -> object:
        stats = self.multi(operations, session_id)
        for operation in operations:
            if isinstance(operation, Create | SetData) and operation.path.endswith("/state"):
                topic, _, index, _ = operation.path.removeprefix(f"{znodes.TOPICS}/").split("/")
                new = znodes.decode_state(topic, int(index), operation.data)
                if isinstance(operation, Create):
                    self.last.pop(operation.path, None)
                try:
                    self.check(operation.path, self.last.get(operation.path), new)
                except AssertionError as error:
                    self.broken.append(str(error))
                self.last[operation.path] = new
        return stats

    def check(self, path: str, old: znodes.PartitionState | None, new: znodes.PartitionState) -> None:
        what = f"{path}: {old} became {new}"
        assert new.isr, what
        assert new.leader == -1 or new.leader in new.isr, what
        if old is not None:
            assert new.controller_epoch >= old.controller_epoch, f"a zombie wrote: {what}"
            assert new.leader_epoch >= old.leader_epoch, what
            assert new.leader == old.leader or new.leader_epoch > old.leader_epoch, what
            if not new.is_recovering or new.leader in old.isr:
                assert new.leader in (-1, *old.isr), f"an unclean election that is not one: {what}"


class History:
    """One history."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.random = cluster.random
        self.made = 0
        self.log = StateLog(cluster)

    async def run(self) -> None:
        moves = (
            self.expired, self.expired, self.disconnected, self.killed, self.stopped, self.started, self.started,
            self.topic_made, self.topic_made, self.topic_deleted, self.reassigned, self.cancelled, self.elected,
            self.proposed, self.proposed, self.proposed, self.log_dir_failed, self.shut_down, self.without_servers,
            self.controller_removed, self.controller_removed,
        )  # fmt: skip
        for _ in range(STEPS):
            move = self.random.choice(moves)
            with trio.move_on_after(20):
                await move()
            assert not self.log.broken
            await trio.sleep(self.random.choice((0, 0.01, 0.1, 1)))
        await self.comes_right()

    def broker(self):
        return self.random.choice(list(self.cluster.brokers.values())) if self.cluster.brokers else None

    async def expired(self) -> None:
        broker = self.broker()
        if broker is not None:
            self.cluster.zookeeper.expire(broker.session)

    async def disconnected(self) -> None:
        broker = self.broker()
        if broker is not None:
            broker.session.disconnect()
            broker.session.connect_soon()

    async def killed(self) -> None:
        broker = self.broker()
        if broker is not None:
            broker.stop(kill=True)

    async def stopped(self) -> None:
        broker = self.broker()
        if broker is not None:
            broker.stop()

    async def started(self) -> None:
        absent = [id_ for id_ in BROKERS if id_ not in self.cluster.brokers]
        if absent:
            self.cluster.start(self.random.choice(absent))

    async def controller_removed(self) -> None:
        """Remove /controller, as operators do: the controller goes on until it hears of that."""
        await self.by_admin(lambda: self.cluster.admin.delete(znodes.CONTROLLER))

    async def without_servers(self) -> None:
        self.cluster.zookeeper.stop()
        await trio.sleep(self.random.uniform(0, 10))
        self.cluster.zookeeper.start()

    async def by_admin(self, write) -> None:
        """Make a write until it is known to have happened."""
        while True:
            try:
                await self.cluster.admin.wait_connected()
                await write()
            except (NodeExistsError, NoNodeError):
                return
            except ZooKeeperError:
                continue
            return

    def replicas(self) -> tuple[int, ...]:
        return tuple(self.random.sample(BROKERS, self.random.randint(1, 3)))

    async def topic_made(self) -> None:
        self.made += 1
        replicas = [self.replicas() for _ in range(self.random.randint(1, 3))]
        await self.by_admin(lambda: self.cluster.create_topic(f"t{self.made}", *replicas))

    def topics(self) -> list[str]:
        nodes = self.cluster.zookeeper.dump()
        return [
            path.removeprefix(f"{znodes.TOPICS}/")
            for path in nodes
            if path.count("/") == 3 and znodes.TOPICS in path
        ]

    def partition(self) -> tuple[str, int] | None:
        topics = self.topics()
        if not topics:
            return None
        topic = self.random.choice(topics)
        data = self.cluster.zookeeper.dump()[znodes.topic_path(topic)]
        return topic, self.random.choice(list(znodes.decode_topic(topic, data).partitions))

    async def topic_deleted(self) -> None:
        topics = self.topics()
        if topics and self.random.random() < 0.5:
            name = self.random.choice(topics)
            await self.by_admin(lambda: self.cluster.delete_topic(name))

    async def reassigned(self) -> None:
        partition = self.partition()
        if partition is not None:
            targets = {partition: self.replicas()}
            await self.cluster.ask(lambda ctl: ctl.alter_reassignments(targets, keeps_factor=False))

    async def cancelled(self) -> None:
        moving = await self.cluster.ask(lambda controller: controller.reassignments(None))
        targets = dict.fromkeys(moving)
        await self.cluster.ask(lambda controller: controller.alter_reassignments(targets, keeps_factor=False))

    async def elected(self) -> None:
        kind = self.random.choice(list(ElectionType))
        await self.cluster.ask(lambda controller: controller.elect_leaders(kind, None, 1000))

    async def proposed(self) -> None:
        leading = [
            (broker, partition)
            for broker in self.cluster.brokers.values()
            for partition, (leader, _, _) in broker.believes.items()
            if leader == broker.id
        ]
        if leading:
            await self.propose(*self.random.choice(leading))

    async def propose(self, broker, partition, *, all_join: bool = False) -> None:
        """Have a leader ask for an ISR; as a real one it does not have what an old controller let it have."""
        _, leader_epoch, version = broker.believes[partition]
        try:
            replicas = self.cluster.assignment(*partition).replicas
        except KeyError:
            return
        isr = [id_ for id_ in replicas if id_ == broker.id or all_join or self.random.random() < 0.6]
        if all_join:
            isr = [id_ for id_ in isr if partition not in self.cluster.brokers[id_].broken]
        proposal = ProposedState(
            partition[0], None, partition[1], leader_epoch, version, tuple((id_, -1) for id_ in isr)
        )
        if broker.id not in replicas:
            return
        try:
            (answer,) = await self.cluster.ask(
                lambda controller: controller.alter_partitions(broker.id, broker.epoch, [proposal])
            )
        except RequestError:
            return
        before = broker.believes.get(partition)
        if isinstance(answer, AcceptedState) and before is not None and before[1] == answer.leader_epoch:
            broker.believes[partition] = (before[0], before[1], max(before[2], answer.partition_epoch))

    async def log_dir_failed(self) -> None:
        broker = self.broker()
        if broker is not None:
            broker.broken |= {part for part in broker.believes if self.random.random() < 0.3}
            path = f"{znodes.LOG_DIR_EVENTS}/{znodes.LOG_DIR_EVENT_PREFIX}"
            data = znodes.encode_log_dir_event(broker.id)
            await self.by_admin(lambda: self.cluster.admin.create(path, data, sequence=True))

    async def shut_down(self) -> None:
        broker = self.broker()
        if broker is not None:
            try:
                await self.cluster.ask(lambda ctl: ctl.controlled_shutdown(broker.id, broker.epoch))
            except RequestError:
                return
            if broker.id in self.cluster.brokers:
                broker.stop()

    # --- the end --------------------------------------------------------------------------------------------

    async def comes_right(self) -> None:
        """All brokers are started once more, nothing is lost any more, and all replicas catch up."""
        cluster = self.cluster
        weather = cluster.zookeeper.weather
        weather.lost_answer_probability = weather.lost_request_probability = 0
        for node in list(cluster.brokers.values()):
            node.stop()
        for id_ in BROKERS:
            cluster.start(id_)
        for _ in range(200):
            await trio.sleep(1)
            assert not self.log.broken
            wrong = self.wrong()
            if not wrong:
                return
            for broker in cluster.brokers.values():
                for partition, (leader, _, _) in list(broker.believes.items()):
                    if leader == broker.id:
                        await self.propose(broker, partition, all_join=True)
        raise AssertionError(wrong)

    def wrong(self) -> list[str]:
        """The faults in the final state."""
        cluster, nodes, wrong = self.cluster, self.cluster.zookeeper.dump(), []
        wrong += [f"{path} is left" for path in nodes if path.startswith(f"{znodes.DELETE_TOPICS}/")]
        wrong += [f"{b.id} knows {b.brokers}" for b in cluster.brokers.values() if b.brokers != set(BROKERS)]
        partitions = set()
        for topic in self.topics():
            for index, assignment in znodes.decode_topic(
                topic, nodes[znodes.topic_path(topic)]
            ).partitions.items():
                partition = (topic, index)
                partitions.add(partition)
                state = cluster.state(topic, index)
                if (
                    state is None
                    or assignment.adding
                    or assignment.removing
                    or set(state.isr) != set(assignment.replicas)
                ):
                    wrong.append(f"{partition}: {state} {assignment}")
                    continue
                for broker in cluster.brokers.values():
                    believes = broker.believes.get(partition)
                    expected = (
                        (state.leader, state.leader_epoch) if broker.id in assignment.replicas else None
                    )
                    if (believes and believes[:2]) != expected:
                        wrong.append(f"broker {broker.id} believes {believes} of {partition}: {state}")
                    if broker.metadata.get(partition) != state.leader:
                        wrong.append(f"broker {broker.id} has other metadata of {partition}")
        wrong += [
            f"broker {b.id} knows of others"
            for b in cluster.brokers.values()
            if set(b.metadata) != partitions
        ]
        return wrong


async def one_history(seed: int) -> None:
    random = Random(seed)
    rough = random.choice((0.0, 0.02, 0.1))
    weather = ZooKeeperWeather(
        request_max_s=random.choice((0.0, 0.01)),
        answer_max_s=random.choice((0.0, 0.01)),
        watch_max_s=random.choice((0.0, 0.05, 1.0)),
        reconnect_max_s=random.choice((0.1, 3.0)),
        session_timeout_s=6.0,
    )
    async with running(*BROKERS[:2], seed=seed, weather=weather) as cluster:
        weather.lost_request_probability = weather.lost_answer_probability = rough
        cluster.delay_max_s = random.choice((0.0, 0.1, 2.0))
        await History(cluster).run()


@pytest.mark.parametrize("block", range(5))
def test_histories_of_several_controllers(block: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "barnabas")
    for seed in range(block * examples(4), (block + 1) * examples(4)):
        try:
            trio.run(one_history, seed, clock=trio.testing.MockClock(autojump_threshold=0))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
