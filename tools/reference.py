"""Print the pages of `docs/reference/` from the tables they describe: `python -m tools.reference [--check]`.

With --check nothing is written; the exit code is 1 when a page is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from barnabas import apis
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


PAGES: dict[str, Callable[[], str]] = {"apis.md": api_page}


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
