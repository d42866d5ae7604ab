"""The nodes of a cluster in one process: each with its host, and a test's actions on all of them.

The rule: actions on a node are events that befall a real one: its process ends, its network is cut, its leaders are moved
by requests of Kafka's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from barnabas.broker.app import Broker
from barnabas.broker.controller_node import ControllerNode
from barnabas.broker.quorum_joining import QuorumParticipation
from barnabas.tools.control.links import Links
from barnabas.tools.control.waiting import NotYetError, until
from barnabas.tools.seeding.local_requests import LocalRequests
from barnabas.tools.seeding.planting import error_name
from barnabas.wire.generated.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.elect_leaders import ElectLeadersRequest
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import PartitionInfo
    from barnabas.tools.control.host import Host
    from barnabas.tools.seeding.looking import JsonObject

PREFERRED = 0
TIMEOUT_MS = 10_000
CREATE_VERSION, REASSIGN_VERSION, ELECT_VERSION = 7, 0, 2


class NodeError(Exception):
    """An action on a node or a partition failed: `status` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class ClusterNode(NamedTuple):
    """A node of a cluster."""

    node_id: int
    roles: tuple[str, ...]
    host: Host


class NodeGroup:
    """All nodes of one cluster, by number."""

    def __init__(self, control_urls: Mapping[str, str]) -> None:
        """`control_urls` are the control APIs of nodes by their bootstrap addresses, of the nodes that have one."""
        self.nodes: dict[int, ClusterNode] = {}
        self.links = Links()
        self.control_urls = control_urls

    def add(self, node: ClusterNode) -> None:
        """Take a node in."""
        self.nodes[node.node_id] = node
        self.nodes = dict(sorted(self.nodes.items()))
        _groups[node.host] = self

    def node(self, text: str) -> ClusterNode:
        """Return a node by its number. Raises NodeError."""
        node = self.nodes.get(int(text)) if text.isdecimal() else None
        if node is None:
            raise NodeError(
                404, f"there is no node {text}; there are: {', '.join(map(str, sorted(self.nodes)))}"
            )
        return node

    @property
    def bootstrap(self) -> str:
        """`host:port` of each broker, with commas between them."""
        return ",".join(node.host.bootstrap for node in self.nodes.values() if "broker" in node.roles)

    def active_controller(self) -> int | None:
        """Return the controller that leads the quorum, as known to running, connected nodes; None without a leader."""
        leaders = [
            _leader_of_quorum(node.host.node)
            for node in self.nodes.values()
            if node.node_id not in self.links.isolated
        ]
        return next((leader for leader in leaders if leader >= 0), None)

    def described(self) -> JsonObject:
        """Return the cluster as JSON."""
        return {
            "bootstrap": self.bootstrap,
            "controller": self.active_controller(),
            "nodes": [
                {
                    "id": node.node_id,
                    "roles": list(node.roles),
                    "bootstrap": node.host.bootstrap,
                    "control_url": self.control_urls.get(node.host.bootstrap),
                    "running": node.host.node is not None,
                    "isolated": node.node_id in self.links.isolated,
                }
                for node in self.nodes.values()
            ],
        }

    async def start(self, node: ClusterNode) -> None:
        """Start a node that is down, and return when it serves. Raises NotRunningError."""
        node.host.come_back()
        await node.host.running_node()

    async def move_leader(self, topic: str, index: int, leader: int) -> None:
        """Make a replica lead a partition: it becomes the preferred leader, and is elected. Raises NodeError."""
        broker = self._asked()
        partition = _partition(broker, topic, index)
        if leader not in partition.replicas:
            places = ", ".join(map(str, partition.replicas))
            raise NodeError(409, f"{topic}-{index} has no replica on broker {leader}: it is on {places}")
        requests = LocalRequests(broker)
        if partition.replicas[0] != leader:
            others = [replica for replica in partition.replicas if replica != leader]
            await _reassign(requests, topic, index, [leader, *others])
        if partition.leader != leader:
            await self._wait_until_in_sync(broker, topic, index, leader)
            await _elect(requests, topic, index)
        await self._wait_until(topic, lambda leaders: leaders.get(index) == leader)

    async def create_topic(
        self, topic: str, partitions: int, replicas: int, settings: Mapping[str, str | None]
    ) -> None:
        """Make a topic (-1 for the brokers' defaults), and wait until all brokers know its leaders. Raises NodeError."""
        request = CreateTopicsRequest
        creatable = request.CreatableTopic(
            topic,
            partitions,
            replicas,
            configs=[request.CreatableTopicConfig(name, value) for name, value in settings.items()],
        )
        response = await LocalRequests(self._asked()).ask(
            request([creatable], timeout_ms=TIMEOUT_MS), CREATE_VERSION
        )
        for result in response.topics:
            _check([result.error_code], f"creating {topic}", result.error_message or "")

        def has_leaders(leaders: Mapping[int, int]) -> bool:
            return bool(leaders) and -1 not in leaders.values()

        await self._wait_until(topic, has_leaders)

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leader of each partition, -1 for none. Raises NodeError."""
        leaders = _leaders(self._asked(), topic)
        if not leaders:
            raise NodeError(404, f"there is no topic {topic}")
        return leaders

    async def _wait_until_in_sync(self, broker: Broker, topic: str, index: int, replica: int) -> None:
        """Wait until a replica has caught up. Raises NodeError."""

        async def look() -> tuple[bool, None, str]:
            isr = _partition(broker, topic, index).isr
            return (
                replica in isr,
                None,
                f"the in-sync replicas of {topic}-{index} are {', '.join(map(str, isr))}",
            )

        await _until(look)

    async def _wait_until(self, topic: str, is_so: Callable[[Mapping[int, int]], bool]) -> None:
        """Wait until all brokers that run, and are not cut off, know leaders of a topic that are so. Raises NodeError."""

        async def look() -> tuple[bool, None, str]:
            leaders = [_leaders(broker, topic) for broker in self._reachable()]
            return (
                all(map(is_so, leaders)),
                None,
                f"the leaders of {topic}, as the brokers know them: {leaders}",
            )

        await _until(look)

    def _reachable(self) -> list[Broker]:
        """Return the brokers that run and are not isolated."""
        return [
            node.host.broker
            for node in self.nodes.values()
            if node.host.broker is not None and node.node_id not in self.links.isolated
        ]

    def _asked(self) -> Broker:
        """Return a broker that can be asked. Raises NodeError."""
        for broker in self._reachable():
            return broker
        raise NodeError(503, "no broker runs that reaches the others")


async def _until(look: Callable[[], Awaitable[tuple[bool, None, str]]]) -> None:
    """Repeat a check until it succeeds. Raises NodeError."""
    try:
        await until(look, TIMEOUT_MS)
    except NotYetError as error:
        raise NodeError(408, str(error)) from None


def _leader_of_quorum(node: Broker | ControllerNode | None) -> int:
    """Return the active controller as a node knows it, -1 if it knows none."""
    if isinstance(node, ControllerNode):
        return node.peers.controller_id
    if node is not None and isinstance(node.participation, QuorumParticipation):
        return node.participation.active_controller
    return -1


_groups: WeakKeyDictionary[Host, NodeGroup] = WeakKeyDictionary()


def group_of(host: Host) -> NodeGroup | None:
    """Return the cluster of a node, if all of it is in this process."""
    return _groups.get(host)


def _leaders(broker: Broker, topic: str) -> dict[int, int]:
    """Return the leaders of a topic's partitions in a broker's metadata; empty for an unknown topic."""
    info = broker.services.metadata.image.topics.get(topic)
    return {index: partition.leader for index, partition in enumerate(info.partitions)} if info else {}


def _partition(broker: Broker, topic: str, index: int) -> PartitionInfo:
    partition = broker.services.metadata.image.partition(topic, index)
    if partition is None:
        raise NodeError(404, f"there is no partition {topic}-{index}")
    return partition


async def _reassign(requests: LocalRequests, topic: str, index: int, replicas: list[int]) -> None:
    request = AlterPartitionReassignmentsRequest
    response = await requests.ask(
        request(
            TIMEOUT_MS,
            topics=[request.ReassignableTopic(topic, [request.ReassignablePartition(index, replicas)])],
        ),
        REASSIGN_VERSION,
    )
    codes = [partition.error_code for answer in response.responses for partition in answer.partitions]
    _check([response.error_code, *codes], f"reassigning {topic}-{index}")


async def _elect(requests: LocalRequests, topic: str, index: int) -> None:
    request = ElectLeadersRequest
    response = await requests.ask(
        request(PREFERRED, [request.TopicPartitions(topic, [index])], TIMEOUT_MS), ELECT_VERSION
    )
    codes = [
        partition.error_code
        for answer in response.replica_election_results
        for partition in answer.partition_result
    ]
    _check([response.error_code, *codes], f"electing the leader of {topic}-{index}")


def _check(codes: list[int], doing: str, message: str = "") -> None:
    for code in codes:
        if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
            raise NodeError(409, f"{doing}: {error_name(code)}{f' ({message})' if message else ''}")
