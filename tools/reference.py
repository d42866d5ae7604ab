"""Print `docs/reference/` from the tables it describes, and examples into pages: `python -m tools.reference [--check]`.

With --check nothing is written; the exit code is 1 when a page is out of date.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from barnabas.commands.reference import page as commands_page
from barnabas.config import client_metrics, group, tables, topic
from barnabas.config.setting import Setting
from barnabas.console import routes as console_routes
from barnabas.ending import ENDS
from barnabas.mcp.tools import tools_of
from barnabas.rest import openapi as rest_openapi
from barnabas.rest import routes as rest_routes
from barnabas.serving import apis
from barnabas.serving.error_responses import top_level_response
from barnabas.serving.release import KAFKA_4
from barnabas.tools.control import openapi, routes
from barnabas.tools.faults import actions, matching, rule, sets
from barnabas.tools.faults.events import EVENTS
from barnabas.wire import registry
from barnabas.wire.extent import has_more_entries
from barnabas.wire.generated.errors import ErrorCode
from barnabas_pipeline import errors as pipeline_errors
from tools import examples

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
SERVER = ROOT / "server" / "barnabas"
BANNER = "<!-- Printed by `make gen` from the tables in the code: edits are lost. -->\n\n"


def api_page() -> str:
    """Return the page of served APIs, their versions, and their modules."""
    lines = [
        "# APIs\n",
        "What ApiVersions advertises is this table: `server/barnabas/serving/apis.py`. *Published* counts every version",
        "that Apache Kafka has ever defined; a dash in *served* means that the API is neither advertised nor answered",
        "(see [not-implemented](not-implemented.md)). With `--as-version` the APIs and versions are those of one release",
        "([decision 212](../decisions/0212-one-release-exactly.md)).",
        "Each is described below; the errors are in [errors](errors.md).\n",
        "A request has at most `max.request.entries` entries in its arrays and tagged fields; nothing is done of one with",
        "more. *Too many entries* says in which versions it is answered INVALID_REQUEST, and where the connection is",
        "closed, since an error could only be told beside each entry; *-* marks requests without arrays, *any* those",
        "that only brokers send each other.\n",
        "| key | API | published | served | too many entries | handler |",
        "|--:|---|---|---|---|---|",
    ]
    for key in sorted(registry.keys()):
        info = registry.info(key)
        api = apis.BY_KEY.get(key)
        usual = KAFKA_4.apis.get(key)
        served = f"{usual.min_version}-{usual.max_version}" if usual else "-"
        if key in apis.UNSTABLE:
            served = f"{served}; unstable: {apis.UNSTABLE[key]}"
        handler = f"`{_handler_of(api).relative_to(SERVER)}`" if api else ""
        published = f"{info.request_min_version}-{info.request_max_version}"
        entries = _too_many_entries(api) if api else ""
        lines.append(f"| {key} | {info.name} | {published} | {served} | {entries} | {handler} |")
    for key, api in sorted(apis.BY_KEY.items()):
        lines += [f"\n## {api.name} ({key})\n", _behaviour(api)]
    return "\n".join(lines) + "\n"


def _too_many_entries(api: apis.Api) -> str:
    """Outcome of a request with more entries than it may have, by versions."""
    if api.member_only:
        return "any"
    if not has_more_entries(registry.request_codec(api.key).message(), -1):  # it has no arrays at all
        return "-"
    versions = range(api.min_version, api.max_version + 1)
    told = [version for version in versions if top_level_response(api, version, 0, "") is not None]
    if not told:
        return "closed"
    answered = f"INVALID_REQUEST {told[0]}-{told[-1]}"
    return answered if len(told) == len(versions) else f"{answered}, else closed"


def _handler_of(api: apis.Api) -> Path:
    """Return the file of an API's handler: a module, or the head of a package."""
    module = SERVER / "handlers" / f"{api.module}.py"
    return module if module.exists() else SERVER / "handlers" / api.module / "__init__.py"


def _behaviour(api: apis.Api) -> str:
    """Return the served versions of an API, the docstring of its handler, and the required permissions."""
    doc = ast.get_docstring(ast.parse(_handler_of(api).read_text())) or ""
    served = f"v{api.min_version}" + (f"-v{api.max_version}" if api.max_version > api.min_version else "")
    start = f"{api.name} {served}. "
    assert doc.startswith(start), f"the docstring of handlers/{api.module} does not begin with {start!r}"
    rest = doc.removeprefix(start)
    return f"*{served}*. {rest}{_access(api)}"


def _access(api: apis.Api) -> str:
    """Return the permissions that an API requires."""
    whole = ", ".join(
        f"{permission.operation.name} on {permission.resource_type.name}" for permission in api.whole
    )
    each = ", ".join(
        f"{permission.operation.name} on {permission.resource_type.name}"
        + (f" (`{permission.named_by}`)" if permission.named_by else "")
        for permission in api.each
    )
    text = f"\n\nNeeds {whole}." if whole else ""
    return text + (f"\n\nFor what it names: {each}." if each else "")


def error_page() -> str:
    """Every error code, and the requests that are answered with it."""
    used = _uses_of_errors()
    lines = [
        "# Error codes\n",
        "All codes of the protocol, in Kafka's numbers. *Again*: whether a client may send the same request again, which",
        "stock clients then do by themselves. *Answered to*: the APIs whose handlers answer it themselves, then the parts",
        "of the broker that several APIs meet it in; a dash where nothing does. The text that comes with an error, in the",
        "versions of a response that have room for one, says what was wrong with this request.\n",
        "| code | name | again | what it says | answered to |",
        "|--:|---|---|---|---|",
    ]
    docs = _error_docs()
    for code in sorted(ErrorCode):
        where = ", ".join(used.get(code.name, ())) or "-" if code else "every request that succeeds"
        again = "yes" if code.retriable else "no"
        lines.append(f"| {int(code)} | {code.name} | {again} | {docs[code.name]} | {where} |")
    return "\n".join(lines) + "\n"


_AREAS = {
    "coordinators/groups": "groups",
    "coordinators/transactions": "transactions",
    "coordinators/share": "share groups",
    "coordinators": "coordinators",
    "cluster/replicas": "replicas",
    "cluster": "metadata",
    "log": "logs",
    "records": "records",
    "metrics": "telemetry",
    "security": "logins",
    "serving": "any request",
}
"""Parts of the broker that answer errors for handlers, in words of users, the first that fits."""


def _uses_of_errors() -> dict[str, list[str]]:
    """Return for each error code the APIs, then the parts of the broker, with modules that name it."""
    apis_used: dict[str, set[str]] = {}
    areas_used: dict[str, set[str]] = {}
    texts = {
        str(path.relative_to(SERVER).with_suffix("").as_posix()): path.read_text()
        for path in SERVER.rglob("*.py")
    }
    for part, text in texts.items():
        names = _apis_of(part, texts)
        area = next((words for place, words in _AREAS.items() if part.startswith(f"{place}/")), None)
        if not names and area is None:
            continue
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Attribute(value=ast.Name(id="ErrorCode" | "Code"), attr=code):
                    apis_used.setdefault(code, set()).update(names)
                    if area is not None:
                        areas_used.setdefault(code, set()).add(area)
    return {
        code: [*sorted(names), *(f"*{area}*" for area in sorted(areas_used.get(code, ())))]
        for code, names in apis_used.items()
    }


def _apis_of(part: str, texts: dict[str, str]) -> set[str]:
    """Return the names of the APIs of a module of `handlers/`: its own, or those of modules that import it."""
    if not part.startswith("handlers/"):
        return set()
    module = part.split("/")[1]
    if module != "shared":
        return {api.name for api in apis.BY_KEY.values() if api.module == module}
    imported = part.replace("/", ".")
    return {
        name
        for other, text in texts.items()
        if f"barnabas.{imported} import" in text and other.startswith("handlers/") and "/shared/" not in other
        for name in _apis_of(other, texts)
    }


def _error_docs() -> dict[str, str]:
    """The text below each code in the enumeration."""
    tree = ast.parse((SERVER / "wire" / "generated" / "errors.py").read_text())
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef)).body
    return {
        code.targets[0].id: text.value.value
        for code, text in pairwise(body)
        if isinstance(code, ast.Assign)
        and isinstance(code.targets[0], ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def configuration_page() -> str:
    """Every setting: of the broker by subject, of topics, groups and client metrics."""
    count = sum(1 for _ in tables.names())
    rows = [tables.setting(name) for name in tables.names()]
    acts = sum(1 for row in rows if not row.effect)
    more = sum(1 for row in rows if row.acts_in_cluster)
    lines = [
        "# Configuration\n",
        f"The broker knows {count} settings of its own by the names, types, defaults and bounds of Apache Kafka 4.4, and",
        f"those of Kafka 3 that are gone; {acts} of them change what it does, {more} more do in a cluster. A file that was",
        "written for Kafka works as it is, unless it asks for something that is not here. What the columns mean:\n",
        "- *default*: a dash where there is none. Where it differs from Kafka's, the reason is in",
        "  [decision 30](../decisions/0030-defaults.md).",
        "- *changes*: when a new value counts: after a *restart*, or while the broker runs for all of the *cluster* or for",
        "  one *broker* (IncrementalAlterConfigs).",
        "- *effect*: *yes*, *in a cluster* (where `zookeeper.connect` is set), or *none* and the reason.",
        "  *Stops the start*: somebody who sets it relies on it for safety or durability,",
        "   so the broker does not start with a value other than the default, and says which setting it is.",
        "  A change of it while the broker runs is INVALID_CONFIG. The others without effect are warned of in one line.\n",
        "Two more stop the start: without a cluster a replication factor above 1 that is set, and",
        "`process.roles`, `controller.quorum.voters` and `controller.quorum.bootstrap.servers` that describe",
        "more than this one node. A file for a single node with both roles, as Kafka ships it, starts with the warning.",
        "The reasons are in [decision 88](../decisions/0088-settings-that-ask-for-more.md).\n",
        "A setting of one listener is written `listener.name.NAME.SETTING`, in lower case. A setting that nobody knows",
        "is reported at the start with the nearest name; a value that cannot be is an error with the file and the line.\n",
    ]
    for table in tables.TABLES:
        module = import_module(f"barnabas.config.tables.{table}")
        lines += _settings(module.__doc__.partition("\n")[0], [tables.setting(row[0]) for row in module.ROWS])
    lines += _settings("Topics' own settings.", list(topic.ROWS))
    lines += _settings("Groups' own settings.", [bounded.setting for bounded in group.rows().values()])
    lines += _settings("Client metrics (KIP-714).", list(client_metrics.ROWS))
    return "\n".join(lines)


def _settings(title: str, rows: list[Setting[Any]]) -> list[str]:
    lines = [
        f"## {title.rstrip('.')}\n",
        "| setting | type | default | allowed | changes | effect | what it does |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        default = (
            "-" if row.default is None else f"`{row.format(row.default)}`" if row.default != () else "empty"
        )
        allowed = row.expected if row.allowed else ""
        changes = row.changes if row.dynamic else "restart"
        effect = (
            "yes"
            if not row.effect
            else "in a cluster"
            if row.acts_in_cluster
            else f"{'none, stops the start' if row.stops else 'none'}: {tables.WITHOUT_EFFECT[row.effect]}"
        )
        shown = (f"`{row.name}`", row.kind.name, default, allowed, changes, effect, row.doc)
        lines.append("| " + " | ".join(text.replace("|", "\\|") for text in shown) + " |")
    return [*lines, ""]


def faults_page() -> str:
    """Conditions, actions and named sets of faults."""
    lines = [
        "# Faults\n",
        "What a broker does wrong on purpose ([how to use it](../how-to/faults.md)). A rule says what it applies to",
        "(`on`), which of the matches are hit (`when`), and what is done (`do`); the short form has the same words:",
        "`WHAT -> DO`.\n",
        "## What a rule applies to: `on`\n",
        "Names are patterns with `*` and `?`; of several (a list, or with commas) one is enough.\n",
        "| Condition | Known of | |",
        "|---|---|---|",
    ]
    for name, (events, text) in matching.CONDITIONS.items():
        lines.append(f"| `{name}` | {_events(events)} | {text} |")
    lines += [
        "\n## Which matches are hit: `when`\n",
        "All of these have to hold.\n",
        "| Condition | |",
        "|---|---|",
    ]
    lines += [f"| `{name}` | {text} |" for name, text in rule.CONDITIONS.items()]
    lines += [
        "\n## What is done: `do`\n",
        "Several may stand together.\n",
        "| Action | For | |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{fault_set.name}` | {_events(fault_set.events)} | {fault_set.doc} |"
        for fault_set in actions.ACTIONS
    ]
    lines += ["\n## Named sets\n", "| Set | Parameters | |", "|---|---|---|"]
    for name, fault_set in sets.SETS.items():
        parameters = ", ".join(
            f"`{key}`" if value is None else f"`{key}`={value}" for key, value in fault_set.parameters.items()
        )
        lines.append(f"| `{name}` | {parameters} | {fault_set.doc} |")
    return "\n".join(lines) + "\n"


def _events(events: tuple[str, ...]) -> str:
    return "everything" if set(events) == set(EVENTS) else ", ".join(events)


def control_page() -> str:
    """The page of the control API, route by route."""
    lines = [
        "# Control API\n",
        "HTTP/1.1 with JSON, served by `barnabas test-server` and by `barnabas serve --control HOST:PORT`. The same as",
        "OpenAPI 3.1 is [control-api.json](control-api.json), and `GET /openapi.json` of a running broker. An error is",
        '`{"error": "text"}` with a status of 400 and above; 408 says that what was waited for has not come.\n',
        "| request | what it does | query |",
        "|---|---|---|",
    ]
    for route in routes.router().routes:
        query = "; ".join(f"`{field.name}`: {field.text}" for field in route.query)
        lines.append(f"| `{route.method} {route.path}` | {route.summary} | {query} |")
    return "\n".join(lines) + "\n"


def control_document() -> str:
    """The OpenAPI document of the control API."""
    return json.dumps(openapi.document(), indent=1, ensure_ascii=False) + "\n"


def console_page() -> str:
    """The page of the console's routes."""
    lines = [
        "# Routes of the console\n",
        "HTTP/1.1 with JSON, served by `barnabas serve --console` and by `barnabas console`: all that the page shows and",
        "does. [How to](../how-to/console.md#as-json) log in and ask. An error is",
        '`{"error": "text"}` with a status of 400 and above, and `code`, the name of Kafka\'s error, if it was',
        "the cluster that has said it.\n",
        "| request | what it does | query | body |",
        "|---|---|---|---|",
        "| `GET /api/session` | The session, begun where nobody logs in: user, views, the token of changes |  |  |",
        "| `POST /api/session` | Log in |  | `user`, `password`, `mechanism`; `token`: of the console |",
        "| `DELETE /api/session` | Log out |  |  |",
    ]
    for route in console_routes.router().routes:
        query, body = (
            "; ".join(f"`{field.name}`: {field.text}" for field in part) for part in (route.query, route.body)
        )
        lines.append(f"| `{route.method} {route.path}` | {route.summary} | {query} | {body} |")
    return "\n".join(lines) + "\n"


def http_page() -> str:
    """The page of the REST API's routes."""
    lines = [
        "# Routes of the REST API\n",
        "HTTP/1.1, served by `barnabas serve --http` and by `barnabas http` ([how to](../how-to/http.md)): what the REST",
        'proxy of Confluent has in v2 and v3, and additions. An error is `{"error_code": 40401, "message": "text"}`.',
        "Types of content with a format are `application/vnd.kafka.FORMAT.v2+json`: binary, json, avro, jsonschema,",
        "protobuf.",
    ]
    for version, title in rest_openapi.TITLES.items():
        lines += [
            f"\n## {title}\n",
            "| request | what it does | query | body | status |",
            "|---|---|---|---|--:|",
        ]
        for route in rest_routes.router().routes:
            query, body = (
                "; ".join(f"`{field.name}`: {field.text}" for field in part)
                for part in (route.query, route.body)
            )
            if route.version == version:
                request = f"`{route.method} {route.path}`"
                lines.append(f"| {request} | {route.summary} | {query} | {body} | {route.status} |")
    return "\n".join(lines) + "\n"


def agents_page() -> str:
    """The page of the tools for agents."""
    lines = [
        "# Tools for agents\n",
        "What `barnabas mcp` offers by the Model Context Protocol ([how](../how-to/agents.md)). Parameters in italics are",
        "required. Tools marked *write* are there with `--write`, those marked *control* with `--control`.\n",
        "| tool | what it does | parameters |",
        "|---|---|---|",
    ]
    for tool in tools_of(has_control=True, may_write=True).values():
        marks = [word for word, holds in (("write", tool.is_write), ("control", tool.is_control)) if holds]
        names = ", ".join(f"*{name}*" if name in tool.required else name for name in tool.properties)
        description = tool.description.replace("|", "\\|")
        lines.append(
            f"| `{tool.name}`{' *' + ', '.join(marks) + '*' if marks else ''} | {description} | {names} |"
        )
    return "\n".join(lines) + "\n"


def exit_page() -> str:
    """Exit codes, by how a process ends."""
    lines = [
        "# Exit codes\n",
        "A process that ends with 0 was asked to, or has done its work; everything else is another code. So",
        "`Restart=on-failure` of systemd and `--restart on-failure` of a container start a broker again just when",
        "nobody has stopped it. A signal that no command waits for (SIGKILL) ends it as it ends any program, with 128 +",
        "its number for a shell; so does one that comes in the moment before a server waits for it. `log` and `replay`",
        "compare, as `diff` does: 1 says that they have found something, 2 that they could not do their work. `topics`",
        "stands for all commands that ask a cluster ([commands](commands.md)); 1 is also their code where something of",
        "what was asked for failed, with a line in the column `error`.\n",
        "| how it ends | code | commands |",
        "|---|--:|---|",
    ]
    lines += [
        f"| {end.how} | {end.code} | {', '.join(f'`{command}`' for command in end.commands)} |"
        for end in (*ENDS, *pipeline_errors.ENDS)
    ]
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "agent-tools.md": agents_page,
    "apis.md": api_page,
    "commands.md": commands_page,
    "configuration.md": configuration_page,
    "errors.md": error_page,
    "exit-codes.md": exit_page,
    "faults.md": faults_page,
    "console-api.md": console_page,
    "control-api.md": control_page,
    "http-api.md": http_page,
}


def main() -> int:
    """Write the pages, or check them; returns the exit code."""
    check = "--check" in sys.argv[1:]
    texts = {REFERENCE / name: BANNER + page() for name, page in PAGES.items()}
    texts[REFERENCE / "control-api.json"] = control_document()
    texts.update(examples.pages())
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[path])
        print(f"{path.relative_to(ROOT)} {'is out of date: run make gen' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
