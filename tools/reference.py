"""Print the pages of `docs/reference/` from the tables they describe: `python -m tools.reference [--check]`.

With --check nothing is written; the exit code is 1 when a page is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from barnabas import apis
from barnabas.config import client_metrics, group, tables, topic
from barnabas.config.setting import Setting
from barnabas.wire import registry

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
BANNER = "<!-- Printed by `make gen` from the tables in the code: edits are lost. -->\n\n"


def api_page() -> str:
    """Which APIs are served, in which versions, and by which module."""
    lines = [
        "# APIs\n",
        "What ApiVersions advertises is this table: `server/barnabas/apis.py`. *Published* counts every version that",
        "Apache Kafka has ever defined; a dash in *served* means that the API is neither advertised nor answered",
        "(see [not-implemented](not-implemented.md)).\n",
        "| key | API | published | served | handler |",
        "|--:|---|---|---|---|",
    ]
    for key in sorted(registry.keys()):
        info = registry.info(key)
        api = apis.SERVED.get(key)
        served = f"{api.min_version}-{api.max_version}" if api else "-"
        handler = f"`handlers/{api.module}.py`" if api else ""
        published = f"{info.request_min_version}-{info.request_max_version}"
        lines.append(f"| {key} | {info.name} | {published} | {served} | {handler} |")
    return "\n".join(lines) + "\n"


def configuration_page() -> str:
    """Every setting: of the broker by subject, of topics, groups and client metrics."""
    count = sum(1 for _ in tables.names())
    acts = sum(1 for name in tables.names() if not tables.setting(name).effect)
    lines = [
        "# Configuration\n",
        f"The broker knows {count} settings of its own by the names, types, defaults and bounds of Apache Kafka 4.3, and",
        f"those of Kafka 3 that are gone; {acts} of them change what it does. Any other is accepted, so that a file which",
        "was written for Kafka works as it is, and *effect* says why it changes nothing. What the columns mean:\n",
        "- *default*: a dash where there is none. Where it differs from Kafka's, the reason is in",
        "  [decision 30](../decisions/0030-defaults.md).",
        "- *changes*: when a new value counts: after a *restart*, or while the broker runs for all of the *cluster* or for",
        "  one *broker* (IncrementalAlterConfigs).",
        "- *effect*: *yes*, or *none* and the reason.\n",
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
        effect = f"none: {tables.WITHOUT_EFFECT[row.effect]}" if row.effect else "yes"
        shown = (f"`{row.name}`", row.kind.name, default, allowed, changes, effect, row.doc)
        lines.append("| " + " | ".join(text.replace("|", "\\|") for text in shown) + " |")
    return [*lines, ""]


PAGES: dict[str, Callable[[], str]] = {"apis.md": api_page, "configuration.md": configuration_page}


def main() -> int:
    """Write the pages, or check them; returns the exit code."""
    check = "--check" in sys.argv[1:]
    stale = []
    for name, page in PAGES.items():
        path, text = REFERENCE / name, BANNER + page()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for name in stale:
        print(f"docs/reference/{name} {'is out of date: run make gen' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
