"""The processes of one cluster on this machine, with a report when each is ready and when it has ended.

The rule: standard output is for people, one line for each event; programs read the line with `bootstrap.servers=`, which
is printed when every node serves.
"""

from __future__ import annotations

import argparse
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import trio

from barnabas.tools.localcluster.children import READY, STOP_SECONDS, Child, ending, ready_address
from barnabas.tools.localcluster.ports import is_free
from barnabas.tools.localcluster.process_group import ProcessGroup

MakeChild = Callable[[str, Sequence[str], Path], Child]


def say(text: str) -> None:
    """Report an event."""
    print(text, flush=True)


class Cluster(ProcessGroup):
    """Brokers, and the processes that keep their metadata. Lifecycle: `run`."""

    def __init__(
        self, options: argparse.Namespace, directory: Path, *, make_child: MakeChild = Child
    ) -> None:
        """`make_child` stands for processes in tests."""
        super().__init__()
        self._make_child = make_child
        self._options = options
        self._directory = directory
        self._brokers: dict[int, Child] = {}
        self._addresses: dict[int, str] = {}

    def say_stopping(self, name: str, *, at_once: bool) -> None:
        """Report a signal."""
        say("stopping at once" if at_once else f"stopping on {name}")

    def children(self) -> list[Child]:
        """Return the brokers."""
        return [*self._brokers.values()]

    def say_ready(self, metadata: str) -> None:
        """Tell that all brokers serve."""
        servers = ",".join(address for _, address in sorted(self._addresses.items()))
        say(f"barnabas cluster is ready: {READY}{servers} {metadata} dir={self._directory}")
        say("Ctrl-C stops it.")

    async def start_broker(self, broker_id: int, command: Sequence[str], nursery: trio.Nursery) -> None:
        """Start a broker, and wait until it serves. Raises ChildError."""
        child = self._brokers[broker_id] = self.child(f"broker {broker_id}", command)
        address = await self.start_child(child, self._brokers, READY, nursery)
        self._addresses[broker_id] = address
        self._address_file(broker_id).write_text(f"{address}\n")

    def child(self, name: str, command: Sequence[str]) -> Child:
        """Return a process that is not started yet, with a log in the cluster's directory."""
        return self._make_child(name, command, self._directory / f"{name.replace(' ', '-')}.log")

    async def start_child(
        self, child: Child, alike: Mapping[int, Child], ready: str, nursery: trio.Nursery
    ) -> str:
        """Start one of several nodes, and wait until it serves; returns its address. Raises ChildError."""
        child.start(reads_output=True)
        nursery.start_soon(self._watch, child, alike)
        address = await ready_address(child, ready)
        say(f"{child.name} is ready: {address} pid={child.pid} log={child.output}")
        return address

    def port(self, broker_id: int) -> int:
        """Return a broker's port: as in the options, or that of its last start if it is free, else 0."""
        if self._options.port:
            port: int = self._options.port + broker_id - 1
            return port
        try:
            port = int(self._address_file(broker_id).read_text().rpartition(":")[2])
        except (OSError, ValueError):
            return 0
        return port if is_free(port) else 0

    def rack(self, broker_id: int) -> str | None:
        """Return a broker's rack, None if it has none."""
        racks = [rack for rack in self._options.racks.split(",") if rack]
        return racks[(broker_id - 1) % len(racks)] if racks else None

    def _address_file(self, broker_id: int) -> Path:
        return self._directory / f"broker-{broker_id}.address"

    async def _watch(self, child: Child, alike: Mapping[int, Child]) -> None:
        code = await child.wait()
        if self.is_stopping:
            return
        remaining = sum(not other.ended.is_set() for other in alike.values())
        say(
            f"{child.name} has ended ({ending(code)}), {remaining} of {len(alike)} are left; "
            f"its log is {child.output}; this starts it again:\n  {shlex.join(child.command)}"
        )
        if all(broker.ended.is_set() for broker in self._brokers.values()):
            self.fail()

    async def stop_children(self, children: Sequence[Child]) -> None:
        """Stop processes at the same time."""
        async with trio.open_nursery() as nursery:
            for child in children:
                nursery.start_soon(self._stop_child, child)

    async def _stop_child(self, child: Child) -> None:
        if child.ended.is_set() or not child.has_started:
            return
        in_time = await child.stop(STOP_SECONDS)
        say(
            f"{child.name} has stopped"
            if in_time
            else f"{child.name} was killed: it did not stop in {STOP_SECONDS:.0f} s"
        )
        if child.code not in (0, 143, -signal.SIGTERM):  # a Java virtual machine ends with 143 on SIGTERM
            self.has_failed = True
