"""A cluster controlled by a test: its nodes, which can be killed, isolated and restarted, and its leaders.

The rule: as with one broker, every method is one request of the control API; refused requests raise
ControlFailedError, expired timeouts TimeoutError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from barnabas.testing.broker import Control, KafkaBroker


class Node(NamedTuple):
    """A node of a cluster, as it is now."""

    id: int
    roles: tuple[str, ...]
    """`broker`, `controller` or both."""
    bootstrap: str
    is_running: bool
    is_isolated: bool


class KafkaCluster:
    """A cluster under test. `bootstrap` is for a client's bootstrap.servers: all brokers.

    Brokers have the numbers 1, 2, 3, ...; controllers that are no brokers 101, 102, ...
    """

    def __init__(self, control: Control) -> None:
        self._control = control
        self._first = KafkaBroker("", control)
        self.bootstrap: str = self.control("GET", "/v1/cluster")["bootstrap"]

    def control(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Send any request to the control API of the first broker, and return its answer.

        Raises ControlFailedError, TimeoutError.
        """
        return self._first.control(method, path, body, **query)

    def nodes(self) -> dict[int, Node]:
        """Return all nodes by number."""
        return {
            node["id"]: Node(
                node["id"], tuple(node["roles"]), node["bootstrap"], node["running"], node["isolated"]
            )
            for node in self.control("GET", "/v1/cluster")["nodes"]
        }

    def broker(self, node: int) -> KafkaBroker:
        """Return a node with its own control API: faults, recorded requests, connections, clock."""
        for answer in self.control("GET", "/v1/cluster")["nodes"]:
            if answer["id"] == node:
                return KafkaBroker(answer["bootstrap"], self._control.reach(answer))
        raise KeyError(node)

    def active_controller(self) -> int | None:
        """Return the controller that leads the quorum, None without a leader."""
        controller: int | None = self.control("GET", "/v1/cluster")["controller"]
        return controller

    # --- nodes ------------------------------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """End a node as `kill -9` does; it stays down."""
        self._do(node, "kill")

    def stop(self, node: int) -> None:
        """Stop a node cleanly, after its partitions have got other leaders; it stays down."""
        self._do(node, "stop")

    def start(self, node: int) -> None:
        """Start a node that is down, with its old data and address."""
        self._do(node, "start")

    def isolate(self, node: int, *, clients: bool = False) -> None:
        """Isolate a node from all others: no bytes arrive in either direction.

        With `clients` these cannot reach it either; without, they may continue to send requests to a former leader.
        """
        self._do(node, "isolate", {"clients": clients})

    def rejoin(self, node: int) -> None:
        """Reconnect an isolated node to the others."""
        self._do(node, "rejoin")

    def _do(self, node: int, act: str, body: Any = None) -> None:
        self.control("POST", f"/v1/cluster/nodes/{node}/{act}", body)

    # --- topics -----------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replicas: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> dict[int, int]:
        """Create a topic, and return the leader of each partition once all brokers have its metadata."""
        body: dict[str, Any] = {"settings": dict(settings or {})}
        if partitions is not None:
            body["partitions"] = partitions
        if replicas is not None:
            body["replicas"] = replicas
        return _leaders(self.control("POST", f"/v1/cluster/topics/{quote(name, safe='')}", body))

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leader of each partition, -1 for none."""
        return _leaders(self.control("GET", f"/v1/cluster/leaders/{quote(topic, safe='')}"))

    def move_leader(self, topic: str, partition: int, leader: int) -> None:
        """Make a replica the leader of a partition, by Kafka's own requests: as preferred leader, by an election."""
        path = f"/v1/cluster/leaders/{quote(topic, safe='')}/{partition}"
        self.control("PUT", path, {"leader": leader})

    # --- time -------------------------------------------------------------------------------------------------

    def advance_clock(self, seconds: float) -> None:
        """Move the clock of all nodes ahead, controllers among them."""
        self._first.advance_clock(seconds)

    def close(self) -> None:
        """End all nodes, and remove their data."""
        self._control.close()

    def __enter__(self) -> KafkaCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _leaders(answer: Mapping[str, Any]) -> dict[int, int]:
    return {int(index): leader for index, leader in answer["leaders"].items()}
