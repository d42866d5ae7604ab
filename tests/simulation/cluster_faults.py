"""Faults of the brokers of a simulated cluster: one method for each kind, from its beginning to its end.

The rule: whatever is drawn, a partition keeps a member of its ISR with all that was acknowledged. So at most one broker
is down at a time, and power, which takes what was not synced, is cut only where all replicas are in sync and no
session has just ended.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any

import trio

from barnabas.testing.simulation.broker import SimulatedBroker
from barnabas.testing.simulation.clock import Waiters
from barnabas.testing.simulation.network import SimulatedNetwork
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper
from tests.simulation.clients import TOPIC

MOMENT_S = 0.001
SETTLED_S = 1.0
"""Time that all must have been in sync before power is cut: by then the controller has dealt with what came before."""
CLOCK_STEP_MS_MAX = 30_000
LISTENING_S = 10.0


class ClusterFaults:
    """The faults of one history. The methods are named in `HARSH`."""

    def __init__(
        self,
        random: Random,
        machines: Mapping[int, SimulatedBroker],
        zookeeper: SimulatedZooKeeper,
        network: SimulatedNetwork,
        note: Callable[[str], None],
    ) -> None:
        self.random = random
        self.machines = machines
        self.zookeeper = zookeeper
        self.network = network
        self.note = note
        self.topic_ids: dict[str, str] = {}
        """The ids of topics with znodes rewritten without them."""
        self._decoded: dict[bytes, Any] = {}  # of what is looked at again and again

    # --- what ZooKeeper says --------------------------------------------------------------------------------

    def state(self, path: str) -> Any:
        """The state of a partition by its path, None where there is none yet. Not to be changed."""
        data = self.zookeeper.data(path)
        if data is None:
            return None
        state = self._decoded.get(data)
        if state is None:
            state = self._decoded[data] = json.loads(data)
        return state

    def states(self) -> dict[str, Any]:
        """The state of each partition by its path."""
        paths = [path for path in self.zookeeper.tree.nodes if path.endswith("/state")]
        return {path: self.state(path) for path in sorted(paths)}

    def is_in_sync(self) -> bool:
        """Say whether all partitions have a leader, and all their replicas are in sync."""
        count = len(self.machines)
        return all(
            (state := self.state(path))["leader"] >= 0 and len(state["isr"]) == count
            for path in self.zookeeper.tree.nodes
            if path.endswith("/state")
        )

    async def until_in_sync(self) -> None:
        """Wait until all replicas are in sync: only then another broker may be lost too."""
        while not self.is_in_sync():
            await trio.sleep(0.1)

    async def until_change(self, holds: Callable[[], object], *, seconds_max: float = LISTENING_S) -> None:
        """Wait for changes in ZooKeeper until something holds, but not for ever."""
        changed = Waiters()
        with self.zookeeper.observed(lambda *_: changed.wake()), trio.move_on_after(seconds_max):
            while not holds():
                await changed.wait()

    async def until_settled(self) -> None:
        """Wait until all replicas have been in sync, and the sessions the same, for a while."""
        since, seen = trio.current_time(), ""
        while trio.current_time() - since < SETTLED_S:
            sessions = [machine.session and machine.session.session_id for machine in self.machines.values()]
            now = f"{self.states()} {sessions}"
            if now != seen or not self.is_in_sync():
                since, seen = trio.current_time(), now
            await trio.sleep(0.1)

    def controller(self) -> int:
        """The controller's id, 0 for none."""
        data = self.zookeeper.data("/controller")
        return int(json.loads(data)["brokerid"]) if data else 0

    def some_leader(self) -> tuple[str, int]:
        """Draw a partition, and return its path and its leader, 0 for none."""
        states = self.states()
        if not states:
            return "", 0
        written = [path for path in sorted(states) if f"/{TOPIC}/" in path]
        path = self.random.choice(written if written and self.random.random() < 0.7 else sorted(states))
        return path, max(states[path]["leader"], 0)

    def victim(self) -> int:
        """Draw a broker: a leader, the controller, or any."""
        any_broker = self.random.choice(list(self.machines))
        of = self.random.random()
        if of < 0.4:
            return self.some_leader()[1] or any_broker
        return (self.controller() or any_broker) if of < 0.6 else any_broker

    def others(self, broker_id: int) -> list[int]:
        """The other brokers, in an order that is drawn."""
        others = [id_ for id_ in self.machines if id_ != broker_id]
        self.random.shuffle(others)
        return others

    def host(self, broker_id: int) -> str:
        """The name of a broker's host."""
        return self.machines[broker_id].host

    # --- single faults --------------------------------------------------------------------------------------

    async def end_and_start(self, broker_id: int, how: str) -> None:
        """Kill or stop a broker, or cut its power, and start it after a while."""
        machine = self.machines[broker_id]
        if how == "power":
            await self.until_settled()
            machine.cut_power(self.random)
        elif how == "kill":
            machine.kill()
        else:
            await machine.stop()
        await trio.sleep(self.random.choice((0.0, self.random.uniform(0, 10))))
        await self._start(machine)

    async def _start(self, machine: SimulatedBroker) -> None:
        machine.disk.fault = None
        await machine.start()
        self.note(f"{machine.host} serves again")

    def expire(self, broker_id: int) -> None:
        """End a broker's session."""
        session = self.machines[broker_id].session
        if session is not None:
            self.zookeeper.expire(session)

    async def kill(self) -> None:
        """Kill a broker, and start it."""
        await self.end_and_start(self.victim(), "kill")
        await self.until_in_sync()

    async def power(self) -> None:
        """Cut a broker's power, and start it."""
        await self.end_and_start(self.victim(), "power")
        await self.until_in_sync()

    async def stop(self) -> None:
        """Stop a broker, and start it."""
        await self.end_and_start(self.victim(), "stop")
        await self.until_in_sync()

    async def expire_some(self) -> None:
        """End sessions one soon after the other."""
        for broker_id in self.random.sample(list(self.machines), self.random.randint(1, len(self.machines))):
            self.expire(broker_id)
            await trio.sleep(self.random.choice((0.0, self.random.uniform(0, 0.1))))

    async def chase(self) -> None:
        """End the session of a leader, and of its successor as soon as there is one."""
        path, leader = self.some_leader()
        for _ in range(self.random.randint(2, 3)):
            if not leader:
                return
            self.expire(leader)
            leader = await self._next_leader(path, leader)
            await trio.sleep(self.random.choice((0.0, self.random.uniform(0, 0.005))))

    async def _next_leader(self, path: str, before: int) -> int:
        def next_leader() -> int:
            leader = (self.state(path) or {"leader": -1})["leader"]
            return 0 if leader in (-1, before) else int(leader)

        if not next_leader():
            await self.until_change(next_leader)
            await trio.sleep(self.random.uniform(0, MOMENT_S))
        return next_leader()

    async def disconnect(self) -> None:
        """Keep a broker from ZooKeeper, for longer or shorter than its session."""
        session = self.machines[self.victim()].session
        if session is not None:
            session.disconnect()
            await trio.sleep(self.random.uniform(0, 12))
            session.connect_soon()

    async def zookeeper_down(self) -> None:
        """Have no ZooKeeper for a while."""
        self.zookeeper.stop()
        await trio.sleep(self.random.uniform(0, 10))
        self.zookeeper.start()

    async def cut(self) -> None:
        """Cut two brokers off from each other, in one direction or in both."""
        broker_id = self.victim()
        other = self.random.choice(self.others(broker_id))
        self.network.cut(self.host(broker_id), self.host(other), both_ways=self.random.random() < 0.5)
        await trio.sleep(self.random.uniform(0, 8))
        self.network.heal()

    async def isolate(self) -> None:
        """Cut a broker off from the others and from ZooKeeper, but not from clients: it leads on and does not know."""
        broker_id = self.victim()
        for other in self.others(broker_id):
            self.network.cut(self.host(broker_id), self.host(other))
        session = self.machines[broker_id].session
        if session is not None:
            session.disconnect()
        await trio.sleep(self.random.uniform(0, 12))
        self.network.heal()
        if session is not None:
            session.connect_soon()

    async def split(self) -> None:
        """Leave a leader one of its followers, and take the other one and ZooKeeper from it."""
        _, leader = self.some_leader()
        if not leader:
            return
        _, lost = self.others(leader)
        self.network.cut(self.host(leader), self.host(lost), both_ways=self.random.random() < 0.7)
        await trio.sleep(self.random.uniform(0, 5))
        session = self.machines[leader].session
        if session is not None:
            session.disconnect()
            await trio.sleep(self.random.uniform(4, 9))
            session.connect_soon()
        self.network.heal()

    async def clock(self) -> None:
        """Let a broker's wall clock jump."""
        self.machines[self.victim()].clock.step(self.random.randint(-CLOCK_STEP_MS_MAX, CLOCK_STEP_MS_MAX))

    async def disk(self) -> None:
        """Have a broker's writes fail: it ends by itself, or is killed, and comes back on a disk that works."""
        broker_id = self.victim()
        machine = self.machines[broker_id]
        number = self.random.choice((errno.EIO, errno.ENOSPC))

        def fault(asked: str, _: str) -> OSError | None:
            return OSError(number, "the disk fails") if asked in ("write", "sync") else None

        machine.disk.fault = fault
        await trio.sleep(self.random.uniform(0, 5))
        machine.kill()
        await self._start(machine)
        await self.until_in_sync()

    async def rewritten(self) -> None:
        """Let an old tool rewrite znodes of topics."""
        await self.rewrite_topics(self.random)

    async def rewrite_topics(self, random: Random) -> None:
        """Rewrite znodes of topics without their ids, as tools before Kafka 2.8 do, and maybe have another controller."""
        changes_controller = random.random() < 0.6
        if changes_controller and random.random() < 0.5:
            self._depose()
            await trio.sleep(random.choice((0.0, random.uniform(0, 0.05))))
        prefix = "/brokers/topics/"
        # Of a topic that no controller has seen yet nobody knows the id, and no log is there that could be lost.
        led = () if self.zookeeper.is_down else self.states()
        topics = sorted({path.partition("/partitions/")[0] for path in led})
        for path in random.sample(topics, random.randint(min(1, len(topics)), len(topics))):
            data = json.loads(self.zookeeper.data(path) or b"{}")
            if "topic_id" in data:
                self.topic_ids.setdefault(path.removeprefix(prefix), data["topic_id"])
                rewritten = {"version": 1, "partitions": data["partitions"]}
                self.zookeeper.tree.set_data(path, json.dumps(rewritten).encode(), -1)
        if changes_controller:
            await trio.sleep(random.choice((0.0, random.uniform(0, 0.05))))
            self._depose()

    def _depose(self) -> None:
        """Remove the znode of the controller, as an operator does to get another one."""
        if not self.zookeeper.is_down and self.zookeeper.data("/controller") is not None:
            self.zookeeper.tree.delete("/controller", -1)

    def lost_topic_ids(self) -> list[str]:
        """Return the topics with znodes that have another id than before they were rewritten, or none."""
        lost = []
        for topic, topic_id in self.topic_ids.items():
            data = self.zookeeper.data(f"/brokers/topics/{topic}")
            now = json.loads(data).get("topic_id") if data is not None else "no such topic"
            if now != topic_id:
                lost.append(f"{topic}: {topic_id} is {now} now")
        return lost

    # --- several --------------------------------------------------------------------------------------------

    async def burst(self) -> None:
        """Let small things happen around one large thing, all within a moment."""
        small = [self.expire_some, self.clock, self.chase, self.cut, self.disconnect]
        async with trio.open_nursery() as nursery:
            for fault in self.random.sample(small, 2):
                nursery.start_soon(self._after, self.random.uniform(0, 0.2), fault)
            nursery.start_soon(
                self._after, self.random.uniform(0, 0.2), self.random.choice((self.kill, self.stop))
            )

    async def _after(self, seconds: float, fault: Callable[[], Awaitable[None]]) -> None:
        await trio.sleep(seconds)
        await fault()


HARSH = (
    "kill", "power", "stop", "expire_some", "chase", "disconnect", "zookeeper_down", "cut", "isolate", "split", "clock",
    "disk", "burst",
)  # fmt: skip

__all__ = ["HARSH", "ClusterFaults"]
