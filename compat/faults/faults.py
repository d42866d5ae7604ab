"""Faults of a cluster: one function for each kind of fault, from its beginning until it is over.

The rule: at any time at most one broker is out of the cluster; a fault is repaired when its function returns, except for
replicas that have to catch up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from compat.cluster.nodes import ClusterError, wait_until
from compat.faults.hosts import HERE
from compat.faults.machines import BROKERS, SESSION_S, ZOOKEEPERS, BrokerMachine, FaultyCluster

AFTER_SESSION_S = SESSION_S + 2.0
IN_SYNC_S = 60.0


@dataclass(slots=True)
class Fault:
    """One random fault of one round."""

    cluster: FaultyCluster
    random: Random
    broker: BrokerMachine

    @property
    def others(self) -> list[int]:
        """The ids of the other brokers."""
        return [id_ for id_ in BROKERS if id_ != self.broker.broker_id]

    def pause(self, least: float, most: float) -> float:
        """Wait for a random time, and return it."""
        seconds = self.random.uniform(least, most)
        time.sleep(seconds)
        return seconds


def kill(fault: Fault) -> str:
    """SIGKILL, and a start after a while, before or after the session has ended."""
    fault.broker.kill()
    seconds = fault.pause(0, SESSION_S * 2)
    fault.broker.start()
    return f"back after {seconds:.1f} s"


def stop(fault: Fault) -> str:
    """SIGTERM and a start: no client notices."""
    fault.broker.stop()
    fault.broker.start()
    return "restarted"


def rolling_restart(fault: Fault) -> str:
    """SIGTERM and a start of each broker in turn, the next one once all replicas are in sync: no client notices."""
    for broker_id in (fault.broker.broker_id, *fault.others):
        machine = fault.cluster.brokers[broker_id]
        machine.stop()
        machine.start()
        fault.cluster.wait_in_sync(IN_SYNC_S)
    return f"{len(fault.others) + 1} brokers"


def suspend(fault: Fault) -> str:
    """SIGSTOP for longer than the session."""
    fault.broker.suspend()
    seconds = fault.pause(SESSION_S + 1, SESSION_S * 3)
    fault.broker.go_on()
    return f"for {seconds:.1f} s"


def suspend_shortly(fault: Fault) -> str:
    """SIGSTOP for shorter than the session."""
    fault.broker.suspend()
    seconds = fault.pause(0.1, SESSION_S * 0.6)
    fault.broker.go_on()
    return f"for {seconds:.1f} s"


def isolate(fault: Fault) -> str:
    """A broker is cut off from all others for longer than its session."""
    for host in (*fault.others, *ZOOKEEPERS, HERE):
        fault.cluster.network.cut(fault.broker.host, host)
    seconds = fault.pause(AFTER_SESSION_S, SESSION_S * 3)
    fault.cluster.network.heal()
    return f"for {seconds:.1f} s"


def cut_from_zookeeper(fault: Fault) -> str:
    """A broker is cut off from ZooKeeper alone, for longer than its session: clients and brokers still reach it."""
    for host in ZOOKEEPERS:
        fault.cluster.network.cut(fault.broker.host, host)
    seconds = fault.pause(AFTER_SESSION_S, SESSION_S * 3)
    fault.cluster.network.heal()
    return f"for {seconds:.1f} s"


def cut_from_brokers(fault: Fault) -> str:
    """A broker is cut off from the other brokers alone: records of its partitions wait for the end of the fault."""
    for host in fault.others:
        fault.cluster.network.cut(fault.broker.host, host)
    seconds = fault.pause(1, SESSION_S * 2)
    fault.cluster.network.heal()
    return f"for {seconds:.1f} s"


def cut_pair(fault: Fault) -> str:
    """Two brokers cannot reach each other."""
    other = fault.random.choice(fault.others)
    fault.cluster.network.cut(fault.broker.host, other)
    seconds = fault.pause(1, SESSION_S * 3)
    fault.cluster.network.heal()
    return f"from broker {other} for {seconds:.1f} s"


def cut_one_way(fault: Fault) -> str:
    """Everything that a broker sends to another one is lost; the other direction works."""
    other = fault.random.choice(fault.others)
    fault.cluster.network.cut(fault.broker.host, other, both_ways=False)
    seconds = fault.pause(1, SESSION_S * 3)
    fault.cluster.network.heal()
    return f"to broker {other} for {seconds:.1f} s"


def zookeeper_restart(fault: Fault) -> str:
    """One of three ZooKeepers is killed and started again."""
    host = fault.random.choice(ZOOKEEPERS)
    fault.cluster.zookeepers[host].kill()
    seconds = fault.pause(0.1, SESSION_S)
    fault.cluster.zookeepers[host].start()
    return f"ZooKeeper {host}, back after {seconds:.1f} s"


def quorum_lost(fault: Fault) -> str:
    """Two of three ZooKeepers are killed, for longer or shorter than the sessions."""
    hosts = fault.random.sample(ZOOKEEPERS, 2)
    for host in hosts:
        fault.cluster.zookeepers[host].kill()
    seconds = fault.pause(1, SESSION_S * 2)
    for host in hosts:
        fault.cluster.zookeepers[host].start()
    return f"ZooKeepers {hosts}, back after {seconds:.1f} s"


def _until_nothing_is_led_from(fault: Fault, disk: int) -> None:
    """Wait until the broker leads no partition with a log on a disk. Raises ClusterError."""
    names = {path.name for path in fault.broker.log_dirs[disk].glob("*-*")}
    if not names:
        return

    def left() -> list[str]:
        return sorted(names.intersection(fault.cluster.led_by(fault.broker.broker_id)))

    wait_until(
        lambda: not left(),
        f"others lead what broker {fault.broker.broker_id} has on the disk that failed",
        lambda: str(left()),
        seconds=30,
    )


def disk_full(fault: Fault) -> str:
    """One of a broker's two disks is full: its log dir goes offline, others lead; then there is room, and a restart."""
    number = fault.random.randrange(len(fault.broker.disks))
    disk = fault.broker.disks[number]
    names = {path.name for path in fault.broker.log_dirs[number].glob("*-*")}
    disk.fill()
    try:
        _until_nothing_is_led_from(fault, number)
        fault.pause(0, 1)
    finally:
        disk.free()
    (fault.broker.stop if fault.random.random() < 0.5 else fault.broker.kill)()
    fault.broker.start()
    return f"disk {number}, {len(names)} partitions"


def disk_broken(fault: Fault) -> str:
    """One of a broker's two disks fails every read and write; then it is mended, and the broker restarted."""
    number = fault.random.randrange(len(fault.broker.disks))
    fault.broker.disks[number].break_down()
    _until_nothing_is_led_from(fault, number)
    fault.pause(0, 1)
    fault.broker.kill()
    fault.broker.disks[number].mend()
    fault.broker.start()
    return f"disk {number}"


def disk_slow(fault: Fault) -> str:
    """One of a broker's two disks does not answer for a while."""
    number = fault.random.randrange(len(fault.broker.disks))
    fault.broker.disks[number].freeze()
    try:
        seconds = fault.pause(0.5, SESSION_S * 2)
    finally:
        fault.broker.disks[number].thaw()
    return f"disk {number} for {seconds:.1f} s"


Kind = Callable[[Fault], str]
KINDS: dict[str, Kind] = {
    kind.__name__.replace("_", "-"): kind
    for kind in (
        kill, stop, suspend, suspend_shortly, isolate, cut_from_zookeeper, cut_from_brokers, cut_pair, cut_one_way,
        zookeeper_restart, quorum_lost, disk_full, disk_broken, disk_slow, rolling_restart,
    )
}  # fmt: skip
NEEDS_FAILING_DISKS = {"disk-broken", "disk-slow"}
BY_NAME = {"rolling-restart"}
"""Kinds that are made up of others, and drawn only where they are asked for."""
AFTER_KINDS = {"kill", "suspend", "isolate", "cut-from-zookeeper"}
"""Kinds after which others take over once the session has ended."""

HANGING_KINDS = {"suspend", "isolate"}
"""Those of them in which clients wait for answers that never come, until their own request time-outs."""

__all__ = [
    "AFTER_KINDS", "BY_NAME", "HANGING_KINDS", "IN_SYNC_S", "KINDS", "NEEDS_FAILING_DISKS", "ClusterError", "Fault",
]  # fmt: skip
