"""Routes over a cluster in one process: its nodes, their ends and starts, cuts, and leaders."""

from __future__ import annotations

from barnabas.tools.control.node_group import ClusterNode, NodeError, NodeGroup, group_of
from barnabas.tools.control.routes.base import Call, ControlError, Route


async def show_cluster(call: Call) -> object:
    """Return all nodes."""
    return _group(call).described()


async def kill_node(call: Call) -> object:
    """End a node as by `kill -9`."""
    await _node(call).host.go_down(is_clean=False)
    return _group(call).described()


async def stop_node(call: Call) -> object:
    """Stop a node cleanly."""
    await _node(call).host.go_down(is_clean=True)
    return _group(call).described()


async def start_node(call: Call) -> object:
    """Start a node that is down."""
    await _group(call).start(_node(call))
    return _group(call).described()


async def isolate_node(call: Call) -> object:
    """Cut a node off from all others, and from clients if that is asked for."""
    node, with_clients = _node(call), (call.body or {}).get("clients", False)
    if not isinstance(with_clients, bool):
        raise ControlError(400, "clients: true or false expected")
    _group(call).links.isolate(node.node_id)
    if with_clients:
        node.host.cut_off_clients()
    return _group(call).described()


async def rejoin_node(call: Call) -> object:
    """Reconnect a node to the others."""
    node = _node(call)
    _group(call).links.rejoin(node.node_id)
    node.host.let_clients_in()
    return _group(call).described()


async def move_leader(call: Call) -> object:
    """Have a broker lead a partition."""
    leader = call.body.get("leader")
    if not isinstance(leader, int) or isinstance(leader, bool):
        raise ControlError(400, "leader: the number of a broker expected")
    if not call.path["partition"].isdecimal():
        raise ControlError(400, "the number of a partition is expected in the path")
    await _group(call).move_leader(call.path["topic"], int(call.path["partition"]), leader)
    return None


async def show_leaders(call: Call) -> object:
    """Return the leaders of a topic."""
    leaders = _group(call).leaders(call.path["topic"])
    return {"leaders": {str(index): leader for index, leader in leaders.items()}}


async def create_replicated_topic(call: Call) -> object:
    """Make a topic."""
    body = call.body or {}
    partitions, replicas = (body.get(name, -1) for name in ("partitions", "replicas"))
    if any(not isinstance(number, int) or isinstance(number, bool) for number in (partitions, replicas)):
        raise ControlError(400, "partitions, replicas: whole numbers expected")
    settings = body.get("settings", {})
    if not isinstance(settings, dict):
        raise ControlError(400, "settings: an object expected")
    texts = {name: None if value is None else str(value) for name, value in settings.items()}
    await _group(call).create_topic(call.path["topic"], partitions, replicas, texts)
    return await show_leaders(call)


def _group(call: Call) -> NodeGroup:
    group = group_of(call.host)
    if group is None:
        raise ControlError(409, "this broker is alone: `barnabas test-server --brokers 3` starts a cluster")
    return group


def _node(call: Call) -> ClusterNode:
    return _group(call).node(call.path["node"])


def status_of(error: Exception) -> int | None:
    """Return the HTTP status for an error of these routes, None for another error."""
    return error.status if isinstance(error, NodeError) else None


_NODE = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "roles": {"type": "array", "items": {"enum": ["broker", "controller"]}},
        "bootstrap": {"type": "string", "description": "host:port of the node, for clients of a broker."},
        "control_url": {"type": ["string", "null"], "description": "The control API of this node."},
        "running": {"type": "boolean"},
        "isolated": {"type": "boolean"},
    },
}
_CLUSTER = {
    "type": "object",
    "properties": {
        "bootstrap": {"type": "string", "description": "For a client's bootstrap.servers: all brokers."},
        "controller": {
            "type": ["integer", "null"],
            "description": "The active controller, as far as it is known.",
        },
        "nodes": {"type": "array", "items": _NODE},
    },
}
_ISOLATE = {
    "type": "object",
    "properties": {
        "clients": {
            "type": "boolean",
            "description": "Whether clients do not reach it either: theirs are broken off, new ones not answered (false).",
        }
    },
    "additionalProperties": False,
}
_LEADER = {
    "type": "object",
    "properties": {"leader": {"type": "integer", "description": "A broker that has a replica."}},
    "required": ["leader"],
    "additionalProperties": False,
}
_TOPIC = {
    "type": "object",
    "properties": {
        "partitions": {"type": "integer", "description": "Number of partitions (num.partitions)."},
        "replicas": {"type": "integer", "description": "Copies of each (default.replication.factor)."},
        "settings": {"type": "object", "description": "Settings of the topic."},
    },
    "additionalProperties": False,
}
_LEADERS = {
    "type": "object",
    "properties": {
        "leaders": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "description": "The leader of each partition by its number, -1 for none.",
        }
    },
}
_OF_NODE = "/v1/cluster/nodes/{node}"

ROUTES = (
    Route("GET", "/v1/cluster", show_cluster, "The nodes of a cluster, and its active controller", answer=_CLUSTER),
    Route("POST", f"{_OF_NODE}/kill", kill_node, "End a node as by kill -9; it stays down", answer=_CLUSTER),
    Route("POST", f"{_OF_NODE}/stop", stop_node, "Stop a node cleanly; it stays down", answer=_CLUSTER),
    Route(
        "POST", f"{_OF_NODE}/start", start_node, "Start a node that is down; answered when it serves again",
        answer=_CLUSTER,
    ),
    Route(
        "POST", f"{_OF_NODE}/isolate", isolate_node,
        "Cut a node off from all others: nothing arrives in either direction", body=_ISOLATE, answer=_CLUSTER,
    ),
    Route("POST", f"{_OF_NODE}/rejoin", rejoin_node, "Let a node reach the others again", answer=_CLUSTER),
    Route(
        "POST", "/v1/cluster/topics/{topic}", create_replicated_topic,
        "Make a topic; answered when all brokers know its leaders", body=_TOPIC, answer=_LEADERS,
    ),
    Route("GET", "/v1/cluster/leaders/{topic}", show_leaders, "The leader of each partition", answer=_LEADERS),
    Route(
        "PUT", "/v1/cluster/leaders/{topic}/{partition}", move_leader,
        "Have a replica lead a partition; answered when all brokers know it", body=_LEADER,
    ),
)  # fmt: skip
