"""Table of the tools: a name, its purpose, its route, and an example of its arguments. Pure.

The rule: parameters are those of the route, with its words; this table adds their types, and facts that the route lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote

from barnabas.console.base import Parameter
from barnabas.console.base import Route as ConsoleRoute
from barnabas.console.routes import router as console_router
from barnabas.tools.control.routes import router as control_router
from barnabas.tools.control.routes.base import Route as ControlRoute

Schema = dict[str, Any]
"""A JSON schema."""
INTEGER: Schema = {"type": "integer"}
BOOLEAN: Schema = {"type": "boolean"}
TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
SETTINGS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
PAYLOAD: Schema = {"description": 'a text, null, {"base64": text}, or a JSON value where a schema writes it'}
TYPES: dict[str, Schema] = {
    **dict.fromkeys(
        ("page", "size", "limit", "offset", "time", "until", "partitions", "replication", "count", "value",
         "producer_id", "older", "newer", "version"),
        INTEGER,
    ),
    **dict.fromkeys(
        ("internal", "unhealthy", "committed", "open", "regex", "case", "check", "execute"), BOOLEAN
    ),
    "set": SETTINGS,
    "settings": SETTINGS,
    "offsets": {"type": "object", "additionalProperties": {"type": "array", "items": INTEGER}},
    "remove": TEXTS,
    "topics": TEXTS,
    "records": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "key": PAYLOAD,
                "value": PAYLOAD,
                "headers": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"name": TEXT, "value": PAYLOAD}},
                },
                "partition": INTEGER,
                "timestamp": INTEGER | {"description": "ms since 1970"},
            },
        },
    },
    "from": {"enum": ["newest", "oldest", "offset", "time"]},
    "as": {"enum": ["auto", "json", "text", "hex", "registry"]},
    "in": {"enum": ["anywhere", "key", "value", "headers"]},
    "order": {"enum": ["asc", "desc"]},
    "to": {"enum": ["earliest", "latest", "offset", "time", "shift"]},
}  # fmt: skip
"""Types of the console's parameters by their names; those that are not here are texts."""
BEFORE_OFFSETS: Schema = {"type": "object", "additionalProperties": INTEGER}
FILTERS = (
    "A filter compares decoded values: `$.total > 60 and $.customer = \"ann\"`, `key.id = 7`, `$.items[0].sku = \"a\"`, "
    "`headers.source = \"app\"`, `partition = 3`, `offset >= 100`, with and, or, not and parentheses."
)  # fmt: skip


class Tool(NamedTuple):
    """A tool as agents see it, and the request that it is."""

    name: str
    description: str
    method: str
    path: str
    properties: Mapping[str, Schema]
    """Parameters by their names: those of the path, of the query and of the body."""
    required: tuple[str, ...]
    in_query: frozenset[str]
    is_write: bool
    is_destructive: bool
    is_control: bool
    """True if the control API answers it, and not the console."""

    @property
    def input_schema(self) -> Schema:
        """Schema of the arguments."""
        return {
            "type": "object",
            "properties": dict(self.properties),
            "required": list(self.required),
            "additionalProperties": False,
        }

    def request(self, arguments: Mapping[str, Any]) -> tuple[str, dict[str, str], dict[str, Any]]:
        """Return path, query and body of the request with arguments that fit the schema."""
        path, query, body = self.path, {}, {}
        for name, value in arguments.items():
            if f"{{{name}}}" in self.path:
                path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
            elif name in self.in_query:
                query[name] = str(value).lower() if isinstance(value, bool) else str(value)
            else:
                body[name] = value
        return path, query, body


class _Row(NamedTuple):
    """A tool by a request of the console; `required` are parameters without which it cannot be called."""

    name: str
    request: str
    description: str
    required: tuple[str, ...] = ()
    example: str = ""
    is_destructive: bool = False


_CONSOLE = (
    _Row(
        "cluster_overview",
        "GET /api/overview",
        "The cluster in numbers: brokers, topics, partitions, groups, what is unhealthy",
    ),
    _Row("list_brokers", "GET /api/brokers", "Brokers, the controller, log dirs and features"),
    _Row("describe_quorum", "GET /api/quorum", "The quorum of KRaft controllers: leader, voters, observers"),
    _Row(
        "broker_settings",
        "GET /api/brokers/{broker}/settings",
        "Settings of a broker, and where each comes from",
    ),
    _Row(
        "list_topics",
        "GET /api/topics",
        "Topics: partitions, records, bytes, health",
        example='{"filter": "orders"}',
    ),
    _Row(
        "describe_topic",
        "GET /api/topics/{topic}",
        "A topic: partitions with leaders, replicas in sync, first and next offsets",
    ),
    _Row(
        "topic_settings", "GET /api/topics/{topic}/settings", "Settings of a topic, and where each comes from"
    ),
    _Row("topic_groups", "GET /api/topics/{topic}/groups", "Groups that read a topic, the largest lag first"),
    _Row(
        "topic_producers",
        "GET /api/topics/{topic}/producers",
        "Idempotent producers of a topic, open transactions first",
    ),
    _Row(
        "read_records",
        "GET /api/topics/{topic}/records",
        "A page of records, decoded by the registry where they have a schema. "
        "`older` and `newer` of the answer are `before` and `after` of the next call",
        example='{"topic": "orders", "from": "newest", "limit": 5}',
    ),
    _Row("read_record", "GET /api/topics/{topic}/records/{partition}/{offset}", "One record in full"),
    _Row(
        "search_records",
        "GET /api/topics/{topic}/search",
        "Records that hold a text or meet a filter, the newest first. " + FILTERS,
        example='{"topic": "orders", "where": "$.total > 60", "limit": 20}',
    ),
    _Row(
        "list_groups",
        "GET /api/groups",
        "Groups of every kind: state, members, lag",
        example='{"state": "Stable"}',
    ),
    _Row(
        "describe_group",
        "GET /api/groups/{group}",
        "A group: members, assignments, committed offsets, lag of each partition",
    ),
    _Row(
        "list_transactions",
        "GET /api/transactions",
        "Transactional ids; open ones with their age",
        example='{"open": true}',
    ),
    _Row("list_acls", "GET /api/acls", "ACLs"),
    _Row("list_users", "GET /api/users", "Users with SCRAM passwords; the passwords are not shown"),
    _Row("list_quotas", "GET /api/quotas", "Quotas of users, clients and addresses"),
    _Row("list_subjects", "GET /api/subjects", "Subjects of the schema registry"),
    _Row(
        "describe_subject",
        "GET /api/subjects/{subject}",
        "A subject: versions, compatibility, the text of a schema",
    ),
    _Row(
        "compare_schemas",
        "GET /api/subjects/{subject}/compare",
        "Two versions of a subject: differences line by line, and the verdict of each compatibility level",
    ),
    _Row(
        "produce_records",
        "POST /api/topics/{topic}/records",
        "Append records to a topic",
        ("records",),
        example='{"topic": "orders", "records": [{"key": "7", "value": "{\\"total\\": 61}"}]}',
    ),
    _Row(
        "redrive_dead_letters",
        "POST /api/topics/{topic}/redrive",
        "Send dead letters again; without `execute` it tells what would be sent",
        ("offsets",),
        example='{"topic": "dlq.billing", "offsets": {"0": [17, 18]}}',
    ),
    _Row(
        "create_topic", "POST /api/topics", "Create a topic", ("name",), '{"name": "orders", "partitions": 3}'
    ),
    _Row("add_partitions", "POST /api/topics/{topic}/partitions", "Give a topic more partitions", ("count",)),
    _Row(
        "change_topic_settings",
        "PATCH /api/topics/{topic}/settings",
        "Change settings of a topic",
        example='{"topic": "orders", "set": {"retention.ms": "60000"}}',
    ),
    _Row(
        "change_broker_settings",
        "PATCH /api/brokers/{broker}/settings",
        "Change dynamic settings of a broker",
    ),
    _Row(
        "delete_records",
        "POST /api/topics/{topic}/trim",
        "Delete the records before offsets",
        is_destructive=True,
    ),
    _Row(
        "delete_topic",
        "DELETE /api/topics/{topic}",
        "Delete a topic with all its records",
        ("confirm",),
        is_destructive=True,
    ),
    _Row(
        "tombstone_record",
        "POST /api/topics/{topic}/records/{partition}/{offset}/tombstone",
        "Append a tombstone with the key of a record",
        is_destructive=True,
    ),
    _Row(
        "reset_group_offsets",
        "POST /api/groups/{group}/offsets",
        "Set the committed offsets of a group without members; without `execute` it tells what would be set",
        ("to",),
        '{"group": "billing", "to": "earliest"}',
        is_destructive=True,
    ),
    _Row(
        "delete_group",
        "DELETE /api/groups/{group}",
        "Delete a group without members",
        ("confirm",),
        is_destructive=True,
    ),
    _Row(
        "abort_transaction",
        "POST /api/transactions/abort",
        "Abort a transaction that hangs in a partition",
        ("topic", "partition", "producer_id", "confirm"),
        is_destructive=True,
    ),
    _Row(
        "register_schema",
        "POST /api/subjects/{subject}",
        "Register a schema; with `check` it only tells if it is compatible",
        ("schema",),
    ),
)
_CONTROL = (
    "show_broker", "list_connections", "list_requests", "wait_for_request", "wait_records", "wait_group", "wait_lag",
    "list_faults", "list_fault_sets", "show_clock", "list_snapshots", "show_cluster", "show_leaders",
    "add_fault", "use_fault_set", "change_fault", "remove_fault", "remove_faults", "advance_clock", "freeze_clock",
    "resume_clock", "drive_clock", "restart_broker", "close_connection", "take_snapshot", "restore_snapshot", "reset",
    "plant_seeds", "kill_node", "stop_node", "start_node", "isolate_node", "rejoin_node", "move_leader",
)  # fmt: skip
"""Handlers of the control API that are tools by their own names."""
_DESTROYING = frozenset(("restart_broker", "restore_snapshot", "reset", "kill_node"))


@cache
def tools_of(*, has_control: bool, may_write: bool) -> Mapping[str, Tool]:
    """Return the tools by name, in order: `has_control` adds those of a test broker, `may_write` those that change data."""
    tools = [*map(_of_console, _CONSOLE), *(_control_tools() if has_control else ())]
    return {tool.name: tool for tool in tools if may_write or not tool.is_write}


def _of_console(row: _Row) -> Tool:
    method, _, path = row.request.partition(" ")
    route: ConsoleRoute = next(
        route for route in console_router().routes if (route.method, route.path) == (method, path)
    )
    in_path = [Parameter(name, "") for name in _names_in(path)]
    properties = {
        parameter.name: _typed(row.name, parameter) for parameter in (*in_path, *route.query, *route.body)
    }
    return Tool(
        row.name, _described(row.description, row.example), method, path, properties,
        (*_names_in(path), *row.required), frozenset(parameter.name for parameter in route.query),
        is_write=method != "GET", is_destructive=row.is_destructive, is_control=False,
    )  # fmt: skip


def _typed(tool: str, parameter: Parameter) -> Schema:
    """Return the schema of a parameter of the console."""
    schema = TYPES.get(parameter.name, TEXT)
    if (tool, parameter.name) == ("delete_records", "before"):
        schema = BEFORE_OFFSETS
    return schema | {"description": parameter.text} if parameter.text else schema


def _described(description: str, example: str) -> str:
    return f"{description}. Example: {example}" if example else description


def _control_tools() -> Iterable[Tool]:
    routes: dict[str, ControlRoute] = {route.handler.__name__: route for route in control_router().routes}
    for name in _CONTROL:
        route = routes[name]
        body = dict(route.body or {})
        in_path = _names_in(route.path)
        properties = {
            **dict.fromkeys(in_path, TEXT),
            **{query.name: {"type": query.kind, "description": query.text} for query in route.query},
            **body.get("properties", {}),
        }
        yield Tool(
            name, f"Test broker: {route.summary}", route.method, route.path, properties,
            (*in_path, *body.get("required", ())), frozenset(query.name for query in route.query),
            is_write=route.method != "GET", is_destructive=name in _DESTROYING, is_control=True,
        )  # fmt: skip


def _names_in(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]
