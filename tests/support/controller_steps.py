"""The controller's core with a shell that carries out its steps as a test specifies, and records them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from barnabas.cluster.controller.core import ControllerSettings, Core
from barnabas.cluster.controller.state import Assignment, Broker, ControllerState, Endpoint, PartitionState
from barnabas.cluster.controller.steps import (
    CreateStates,
    GiveWay,
    ReadReassignments,
    ReadStates,
    ReadUnclean,
    Send,
    WriteAssignment,
    WriteReassignments,
    WriteStates,
    Written,
)

ID = b"i" * 16
T = ("t", 0)
LED = PartitionState(1, (1, 2), leader_epoch=5, controller_epoch=6, version=9)


def endpoint(broker: int, port: int = 9092) -> Endpoint:
    return Endpoint("PLAINTEXT", f"h{broker}", port)


def cluster(
    count: int = 1, state: PartitionState | None = LED, replicas: tuple[int, ...] = (1, 2, 3)
) -> Core:
    """Return the core with brokers 1 to 4, registered with epochs 101 to 104, and a topic of three replicas."""
    controller_state = ControllerState(epoch=7)
    for id_ in (1, 2, 3, 4):
        controller_state.brokers[id_] = Broker(id_, 100 + id_, (endpoint(id_),))
    controller_state.add_topic("t", ID, {index: Assignment(replicas) for index in range(count)})
    if state is not None:
        controller_state.states = {("t", index): state for index in range(count)}
    return Core(ControllerSettings(broker_id=1), controller_state)


class Shell:
    """Carries out steps; the first `conflicts` writes fail, as the partition has the state `stored`."""

    def __init__(self, core: Core, *, stored: PartitionState | None = None, conflicts: int = 1) -> None:
        """Without `stored`, no write fails."""
        self.core = core
        self.stored = stored
        self.conflicts = conflicts if stored is not None else 0
        self.steps: list[Any] = []
        self.unclean: set[str] = set()
        self.order: dict[tuple[str, int], tuple[int, ...]] | None = None
        """Content of /admin/reassign_partitions."""

    def run(self, steps: Any) -> Any:
        outcome = None
        try:
            while True:
                step = steps.send(outcome)
                self.steps.append(step)
                outcome = self._outcome(step)
        except StopIteration as end:
            return end.value

    def _outcome(self, step: Any) -> Any:
        match step:
            case WriteStates(states) | CreateStates(states):
                if self.conflicts:
                    self.conflicts -= 1
                    return Written(conflicts=list(states))
                return Written({key: replace(new, version=new.version + 1) for key, new in states.items()})
            case ReadStates(keys):
                current = self.core.state.states
                return {key: self.stored or current[key] for key in keys if self.stored or key in current}
            case ReadUnclean():
                return self.unclean
            case WriteAssignment():
                return True
            case ReadReassignments():
                return self.order
            case WriteReassignments(targets):
                self.order = dict(targets) or None
        return None

    def sent(self) -> Iterator[tuple[int, Any]]:
        for step in self.steps:
            if isinstance(step, Send):
                for request in step.requests:
                    yield request.broker_id, request.request

    def receivers(self, kind: type) -> list[int]:
        return [broker for broker, request in self.sent() if isinstance(request, kind)]

    @property
    def turns(self) -> int:
        return sum(isinstance(step, GiveWay) for step in self.steps)
