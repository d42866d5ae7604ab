"""Faults that come at the one moment at which a bug of replication or of a controller would show.

The rule: each begins with a cluster that is in sync, picks a partition that is written to, and brings about one condition:
a follower that lags behind and is elected next, an ISR that has changed while its leader has not heard of it, a controller
that has been succeeded. What was acknowledged is owed all the same, as after any other fault.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import trio

from tests.simulation.clients import PARTITIONS, TOPIC
from tests.simulation.cluster_faults import LISTENING_S, ClusterFaults

LAG_MAX_S = 3.0
"""`replica.lag.time.max.ms`; a lagging replica is noticed after as much again at most."""
SESSION_S = 6.0
CONTROLLERS_MAX = 12
TOLD_S_MAX = 0.5
"""By then brokers have mostly heard what the controller has decided."""


@dataclass(frozen=True, slots=True)
class Target:
    """A partition that is written to; `heir` is the follower that is elected when the leader is lost."""

    path: str
    leader: int
    heir: int
    other: int


class WorstMoments(ClusterFaults):
    """The faults of one history. The methods are named in `WORST`."""

    async def target(self, *controllers: str) -> Target:
        """Wait until all is in sync, and draw a partition of which one of these is the controller: leader, heir, other.

        Sessions of controllers are ended until one fits; after some of them any partition will do, as the same two brokers
        may take turns while everything else goes on.
        """
        for tries in count(1):
            await self.until_settled()
            targets = [self._target_of(index) for index in range(PARTITIONS)]
            if controllers and tries <= CONTROLLERS_MAX:
                targets = [
                    target
                    for target in targets
                    if self.controller() in [getattr(target, controller) for controller in controllers]
                ]
            if targets:
                return self.random.choice(targets)
            if self.controller():
                self.expire(self.controller())
        raise AssertionError("it is tried until there is one")

    def _target_of(self, index: int) -> Target:
        path = f"/brokers/topics/{TOPIC}/partitions/{index}/state"
        topic = json.loads(self.zookeeper.data(f"/brokers/topics/{TOPIC}") or b"")
        leader = self.state(path)["leader"]
        heir, other = (id_ for id_ in topic["partitions"][str(index)] if id_ != leader)
        return Target(path, leader, heir, other)

    def isr(self, target: Target) -> list[int]:
        """The in-sync replicas of a partition."""
        return list(self.state(target.path)["isr"])

    async def until_isr(self, target: Target, broker_id: int, *, is_in: bool) -> None:
        """Wait until a broker is in the ISR of a partition, or out of it, but not for ever."""
        await self.until_change(lambda: (broker_id in self.isr(target)) is is_in)

    async def lose_leader(self, target: Target) -> None:
        """End the leader's session, and wait until the next leader knows that it is one."""
        self.expire(target.leader)
        await self._next_leader(target.path, target.leader)
        await trio.sleep(self.random.uniform(0, TOLD_S_MAX))

    async def lose_leader_again(self, target: Target) -> None:
        """End the session of the current leader."""
        leader = self.state(target.path)["leader"]
        if leader > 0:
            self.expire(leader)
            await self._next_leader(target.path, leader)

    async def pause(self, seconds_max: float) -> None:
        """Let the clients go on for a while."""
        await trio.sleep(self.random.uniform(0, seconds_max))

    async def recover(self) -> None:
        """Heal the network, and wait until all is in sync."""
        self.network.heal()
        await self.until_in_sync()

    def cut_between(self, first: int, other: int, *, both_ways: bool = True) -> None:
        """Cut two brokers off from each other, or what the first one sends to the other."""
        self.network.cut(self.host(first), self.host(other), both_ways=both_ways)

    @contextmanager
    def cut_when_joining(self, target: Target) -> Iterator[None]:
        """Cut the leader off from its heir at the moment at which ZooKeeper has the heir in the ISR."""

        def observe(path: str, data: bytes | None) -> None:
            if path == target.path and data is not None and target.heir in json.loads(data)["isr"]:
                self.cut_between(target.leader, target.heir)

        with self.zookeeper.observed(observe):
            yield

    # --- replicas -------------------------------------------------------------------------------------------

    async def lose_leader_of_lagging(self) -> None:
        """Let the heir lag behind, in sync or just not any more, and lose the leader."""
        target = await self.target()
        self.cut_between(target.leader, target.heir)
        await self.pause(self.random.choice((LAG_MAX_S, 2 * LAG_MAX_S)))
        await self.lose_leader(target)
        await self.recover()

    async def lose_leader_of_lagging_controller(self) -> None:
        """... where the heir is the controller, which does not hear that it lags behind."""
        target = await self.target("heir")
        self.cut_between(target.leader, target.heir)
        await trio.sleep(LAG_MAX_S)
        await self.pause(1.2 * LAG_MAX_S)
        await self.lose_leader(target)
        await self.recover()

    async def lose_two_leaders(self) -> None:
        """Lose the leader and the heir, which the other follower cannot reach."""
        target = await self.target()
        self.cut_between(target.heir, target.other)
        await self.pause(0.5)
        await self.lose_leader(target)
        await self.pause(0.1)
        await self.lose_leader_again(target)
        await self.recover()

    async def lose_leader_of_joining(self) -> None:
        """Let the heir fall out of the ISR and come back, and lose the leader before it gives the heir anything more."""
        target = await self.target()
        self.cut_between(target.leader, target.heir)
        await self.until_isr(target, target.heir, is_in=False)
        await self.pause(1.0)
        await self._join_and_lose(target)

    async def lose_leader_of_joining_controller(self) -> None:
        """... where the heir is the controller, so that the leader does not hear that the heir is in the ISR."""
        target = await self.target("heir")
        self.cut_between(target.heir, target.leader, both_ways=False)
        await self.until_isr(target, target.heir, is_in=False)
        await self._join_and_lose(target)

    async def _join_and_lose(self, target: Target) -> None:
        with self.cut_when_joining(target):
            self.network.heal()
            await self.until_isr(target, target.heir, is_in=True)
            await self.pause(1.0)
            await self.lose_leader(target)
        await self.recover()

    async def leave_with_more(self) -> None:
        """Let a leader write on alone, lose its session, and come back when others have led for a while."""
        target = await self.target()
        self.cut_between(target.leader, target.heir)
        self.cut_between(target.leader, target.other)
        await self.pause(LAG_MAX_S / 2)
        await self.lose_leader(target)
        await self.pause(1.0)
        await self.recover()

    # --- controllers ----------------------------------------------------------------------------------------

    async def power_of_controller(self) -> None:
        """Cut the power of the controller and leader, and start it at once: its absence was not noticed."""
        target = await self.target("leader")
        machine = self.machines[target.leader]
        machine.cut_power(self.random)
        await self._start(machine)
        await self.until_in_sync()

    async def disk_of_controller(self) -> None:
        """... and start it on a disk that is empty."""
        target = await self.target("leader")
        machine = self.machines[target.leader]
        machine.lose_disk()
        await self._start(machine)
        await self.until_in_sync()

    async def stop_of_starting(self) -> None:
        """... and stop it while it waits for others to take over, before it is started again."""
        target = await self.target("leader")
        machine = self.machines[target.leader]
        machine.cut_power(self.random)
        await machine.start_and_stop(self.random.uniform(0, SESSION_S))
        await self._start(machine)
        await self.until_in_sync()

    async def late_requests(self) -> None:
        """Hold back what a controller tells a broker until another controller has told it something newer."""
        target = await self.target("heir", "other")
        controller = self.controller()
        self.cut_between(controller, self.random.choice(self.others(controller)), both_ways=False)
        await self.lose_leader(target)
        await self.pause(0.2)
        self.expire(controller)
        await self._next_controller(controller)
        await self.lose_leader_again(target)
        await self.pause(0.5)
        await self.recover()

    async def two_controllers(self) -> None:
        """Have a controller sleep while another one takes over, and both hear that leaders are lost."""
        target = await self.target()
        controller = self.controller()
        session = self.machines[controller].session
        if session is None:
            return
        session.disconnect()
        await self._next_controller(controller)
        await self.pause(0.5)
        session.connect_soon()
        await self.pause(1.0)
        for _ in range(3):
            await self.lose_leader_again(target)
            await self.pause(0.5)
        await self.recover()

    async def _next_controller(self, before: int) -> None:
        await self.until_change(
            lambda: self.controller() not in (0, before), seconds_max=SESSION_S + LISTENING_S
        )


WORST = (
    "lose_leader_of_lagging", "lose_leader_of_lagging_controller", "lose_two_leaders", "lose_leader_of_joining",
    "lose_leader_of_joining_controller", "leave_with_more", "power_of_controller", "disk_of_controller",
    "stop_of_starting", "late_requests", "two_controllers",
)  # fmt: skip

__all__ = ["WORST", "WorstMoments"]
