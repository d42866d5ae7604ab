"""python -m compat.cluster.quorum_faults: nodes of a quorum that hang, are killed or cut off, with a ledger.

Controllers share one host, each broker has its own: a network namespace, so that it can lose its controllers, the other
brokers, or all. Meanwhile records are produced, and topics made, altered and deleted. After each fault all brokers are
unfenced, all replicas in sync and all acknowledged changes committed; at the end each acknowledged record is there once,
and replicas have the same bytes. Nothing is changed on the machine (`compat/faults/hosts.py`).
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from compat.cluster import checks, tools
from compat.cluster.changes import Changes
from compat.cluster.load import Load, check, read_all
from compat.cluster.nodes import ClusterError, KafkaError, wait_until
from compat.cluster.quorum import MIXES, OUR_CONTROLLERS
from compat.cluster.quorum_nodes import CONTROLLER_SETTINGS, VERSION, Place, QuorumCluster
from compat.faults.hosts import HERE, HostError, Network, address, enter_namespaces
from compat.kafka import release
from compat.kafka.releases import fetch
from compat.matrix.brokers import BrokerError

SESSION_S = 9.0
CONTROLLERS = 253
"""The last part of the controllers' address, which is this process's second address."""
PARTITIONS = 6
TOPIC = "ledger"
RATE = 500.0
DELETED_MEANWHILE = re.compile(
    r" change-\d+-0 had the log of a topic with the id \S+, but the cluster has no such topic"
)
"""Logged by a starting broker for a topic that was deleted while it was down: it keeps the log, and warns its operator."""
RESUMED = 500
"""Records that must be acknowledged after each fault."""


@dataclass(slots=True)
class Fault:
    """A randomly chosen fault."""

    cluster: QuorumCluster
    network: Network
    random: Random
    broker_id: int

    @property
    def epoch(self) -> int:
        """The epoch of the broker's registration."""
        return self.cluster.image().brokers[self.broker_id].epoch

    @property
    def pid(self) -> int:
        """The broker's process."""
        pid = self.cluster.nodes[self.broker_id].pid
        assert pid is not None
        return pid

    def wait(self, *, fenced: bool) -> float:
        """Wait until the controllers have fenced, or unfenced, the broker; returns the seconds. Raises ClusterError."""
        state = "fenced" if fenced else "unfenced"
        return wait_until(
            lambda: (self.broker_id not in self.cluster.live()) == fenced,
            f"broker {self.broker_id} is {state}",
        )

    def cut(self, *hosts: int) -> None:
        """Isolate the broker from hosts, in both directions if these are more than an address."""
        for host in hosts:
            self.network.cut(self.broker_id, host, both_ways=host != CONTROLLERS)

    def fenced_and_back(self, begin: Callable[[], None], end: Callable[[], None]) -> str:
        """Have the session end, and see that the next heartbeat continues it with the same epoch. Raises ClusterError."""
        epoch = self.epoch
        begin()
        try:
            after = self.wait(fenced=True)
            time.sleep(self.random.uniform(0, 3))
        finally:
            end()
        back = self.wait(fenced=False)
        if self.epoch != epoch:
            raise ClusterError(f"broker {self.broker_id} has epoch {self.epoch} after {epoch}")
        return f"fenced after {after:.1f} s, unfenced {back:.1f} s after the end, epoch {epoch} still"


def suspended(fault: Fault) -> str:
    """SIGSTOP for longer than the session, and SIGCONT."""
    pid = fault.pid
    return fault.fenced_and_back(lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT))


def restarted_within_session(fault: Fault) -> str:
    """SIGKILL and an immediate start: registration is refused until the old session has expired, then has a new epoch."""
    epoch, begun = fault.epoch, time.monotonic()
    fault.cluster.nodes[fault.broker_id].kill()
    fault.cluster.start(fault.broker_id)
    wait_until(lambda: fault.epoch > epoch, "the broker has a new epoch")
    fault.wait(fenced=False)
    return f"unfenced {time.monotonic() - begun:.1f} s after the kill, epoch {fault.epoch} after {epoch}"


def cut_from_controllers(fault: Fault) -> str:
    """The controllers cannot be reached, for longer than the session: clients and brokers can."""
    return fault.fenced_and_back(lambda: fault.cut(CONTROLLERS), fault.network.heal)


def isolated(fault: Fault) -> str:
    """No host can be reached, for longer than the session."""
    hosts = [host for host in (*fault.cluster.kinds, CONTROLLERS, HERE) if host != fault.broker_id]
    return fault.fenced_and_back(lambda: fault.cut(*hosts), fault.network.heal)


def cut_from_brokers(fault: Fault) -> str:
    """The other brokers cannot be reached; controllers and clients can."""
    fault.cut(*(host for host in fault.cluster.kinds if host != fault.broker_id))
    seconds = fault.random.uniform(3, SESSION_S)
    time.sleep(seconds)
    fault.network.heal()
    return f"for {seconds:.1f} s"


def controller_killed(fault: Fault) -> str:
    """The active controller is killed, and started once another leads, or immediately if it is the only one."""
    quorum = fault.cluster.quorum
    leader, begun = quorum.leader(), time.monotonic()
    leader.process.kill()
    if len(quorum.nodes) > 1:
        next_leader = quorum.leader(but=leader.id)
        seconds = time.monotonic() - begun
        leader.start()
    else:
        leader.start()
        next_leader = quorum.leader()
        seconds = time.monotonic() - begun
    return f"{leader.id} killed, {next_leader.id} leads after {seconds:.1f} s"


def controller_suspended(fault: Fault) -> str:
    """SIGSTOP of the active controller until another leads, or for some seconds if it is the only one; then SIGCONT."""
    quorum = fault.cluster.quorum
    leader, begun = quorum.leader(), time.monotonic()
    pid = leader.process.pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        if len(quorum.nodes) > 1:
            next_leader = quorum.leader(but=leader.id)
            outcome = f"{next_leader.id} leads after {time.monotonic() - begun:.1f} s"
        else:
            time.sleep(fault.random.uniform(1, SESSION_S))
            outcome = f"for {time.monotonic() - begun:.1f} s"
    finally:
        os.kill(pid, signal.SIGCONT)
    return f"{leader.id} hangs, {outcome}"


KINDS: dict[str, Callable[[Fault], str]] = {
    kind.__name__.replace("_", "-"): kind
    for kind in (
        suspended, restarted_within_session, cut_from_controllers, isolated, cut_from_brokers, controller_killed,
        controller_suspended,
    )
}  # fmt: skip


def in_sync(cluster: QuorumCluster, load: Load, changes: Changes) -> None:
    """Wait until all is as before a fault, and records and changes are acknowledged. Raises ClusterError."""
    for broker_id in cluster.kinds:
        wait_until(lambda broker_id=broker_id: broker_id in cluster.live(), f"broker {broker_id} is unfenced")
    cluster.wait_in_sync(TOPIC, 3)
    here = len(load.acknowledged)
    wait_until(
        lambda: len(load.acknowledged) > here + RESUMED or bool(load.errors), "records are acknowledged again"
    )
    count = changes.count
    wait_until(lambda: changes.count > count or bool(changes.errors), "changes are acknowledged again")
    changes.check(cluster.image)


def run(options: argparse.Namespace, directory: Path) -> None:
    """All rounds. Raises ClusterError, KafkaError, BrokerError, HostError, RuntimeError."""
    network = Network()
    network.alias(CONTROLLERS)
    random = Random(options.seed)
    kinds = [kind for kind in options.kinds.split(",") if kind] or list(KINDS)

    def place(broker_id: int, port: int) -> Place:
        network.add(broker_id)
        return Place(address(broker_id), port, network.prefix(broker_id))

    try:
        with QuorumCluster(
            directory, MIXES[options.mix], version=options.version, controllers=options.controllers,
            controller_settings={**CONTROLLER_SETTINGS, "broker.session.timeout.ms": str(int(SESSION_S * 1000))},
            controllers_host=address(CONTROLLERS), place=place,
            our_controllers=OUR_CONTROLLERS[options.quorum],
        ) as cluster:  # fmt: skip
            tools.run(
                cluster, "topics", "--create", "--topic", TOPIC, "--partitions", str(PARTITIONS),
                "--replication-factor", "3", "--config", "min.insync.replicas=2",
            )  # fmt: skip
            load, changes = Load(cluster.bootstrap, TOPIC, PARTITIONS, rate=RATE), Changes(cluster.bootstrap)
            end = time.monotonic() + 60 * options.minutes
            with load, changes:
                in_sync(cluster, load, changes)
                for number in itertools.count():
                    if number >= options.rounds and time.monotonic() > end:
                        break
                    kind = kinds[number % len(kinds)]
                    fault = Fault(cluster, network, random, random.choice(sorted(cluster.kinds)))
                    begun = time.monotonic()
                    outcome = KINDS[kind](fault)
                    in_sync(cluster, load, changes)
                    print(
                        f"{number + 1:3} {kind} broker {fault.broker_id}: {outcome}; longest pause "
                        f"{load.longest_pause(begun):.1f} s, {time.monotonic() - begun:.0f} s in all",
                        flush=True,
                    )
            check(load, read_all(cluster.bootstrap, TOPIC, PARTITIONS))
            changes.check(cluster.image)
            print(
                f"{len(load.acknowledged)} records acknowledged, none lost, none twice; {changes.count} changes of "
                "metadata acknowledged, none undone",
                flush=True,
            )
            print(f"the same bytes: {checks.identical_replicas(cluster)}", flush=True)
            complaints = [
                f"broker {broker_id}: {line}"
                for broker_id, lines in cluster.complaints().items()
                for line in lines
                if not DELETED_MEANWHILE.search(line)
            ]
            if complaints:
                raise ClusterError(
                    f"brokers have logged {len(complaints)} errors, the first: {complaints[0]}"
                )
    finally:
        network.close()


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 when every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m compat.cluster.quorum_faults", description=__doc__)
    parser.add_argument("--version", default=VERSION, help="which Kafka (default: %(default)s)")
    parser.add_argument("--mix", default="two-of-ours", help="which brokers (default: %(default)s)")
    parser.add_argument("--controllers", type=int, choices=(1, 3), default=1)
    parser.add_argument(
        "--quorum",
        choices=OUR_CONTROLLERS,
        default="kafka",
        help="whose the controllers are (default: %(default)s)",
    )
    parser.add_argument("--minutes", type=float, default=0.0, help="go on for as long (default: %(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=len(KINDS), help="how many faults (default: %(default)s)"
    )
    parser.add_argument("--kinds", default="", help=f"only these, in turn, of {', '.join(KINDS)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, help="where to keep everything (default: a temporary directory)")
    options = parser.parse_args(argv)
    try:
        fetch(release(options.version))  # in the namespaces there is no way to anywhere else
        enter_namespaces("compat.cluster.quorum_faults", argv)
    except HostError as error:
        is_required = os.environ.get("CI") == "true"
        print(f"{'FAIL' if is_required else 'SKIP'}: {error}")
        return 1 if is_required else 0
    directory = Path(tempfile.mkdtemp(prefix="quorum-faults-", dir=options.dir))
    print(
        f"seed {options.seed}, {options.mix}, Kafka {options.version}, {options.controllers} controllers "
        f"({options.quorum}), in {directory}",
        flush=True,
    )
    try:
        run(options, directory)
    except (ClusterError, KafkaError, BrokerError, HostError, RuntimeError) as error:
        print(f"FAIL {error}")
        return 1
    print("PASS")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
