"""The page of docs/conformance: brokers side by side, and the deviations of each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

Judged = tuple[str, dict[str, Any]]
"""A broker's description, and its results as `barnabas conform --json` writes them."""
REASONS_MAX = 12

HEAD = """# Brokers by the wire suite

Written by `make conform`. `barnabas conform` asks each broker from outside; what a broker does not advertise is not
applicable to it. A case is one rule with its source: `barnabas conform ADDR --list` prints all of them. What the suite
is, and how to run it: [how-to](../how-to/test-your-broker.md).
"""


def page(judged: Sequence[Judged], more: str = "") -> str:
    """Return the page; `more` ends its head."""
    lines = [HEAD + more, *_summary(judged), "", *_by_group(judged)]
    for what, results in judged:
        lines += ["", *_differences(what, results)]
    return "\n".join(lines) + "\n"


def _summary(judged: Sequence[Judged]) -> Iterator[str]:
    yield "| broker | looks like | passed | failed | not applicable |"
    yield "|---|---|---|---|---|"
    for what, results in judged:
        counts = results["summary"]
        yield f"| {what} | {results['release']} | {counts['passed']} | {counts['failed']} | {counts['not applicable']} |"


def _by_group(judged: Sequence[Judged]) -> Iterator[str]:
    yield "## By API and suite"
    yield ""
    yield "Passed of those that apply; – where none does."
    yield ""
    yield f"| | {' | '.join(what for what, _ in judged)} |"
    yield f"|---|{'---|' * len(judged)}"
    groups = dict.fromkeys(case["id"].partition("/")[0] for _, results in judged for case in results["cases"])
    for group in groups:
        cells = []
        for _, results in judged:
            mine = [case["verdict"] for case in results["cases"] if case["id"].partition("/")[0] == group]
            passed, failed = mine.count("passed"), mine.count("failed")
            cells.append(
                "–"
                if not passed + failed
                else f"{passed}"
                if not failed
                else f"**{passed} of {passed + failed}**"
            )
        yield f"| {group} | {' | '.join(cells)} |"


def _differences(what: str, results: dict[str, Any]) -> Iterator[str]:
    yield f"## {what}"
    yield ""
    failed = [case for case in results["cases"] if case["verdict"] == "failed"]
    if results.get("skipped"):
        patterns = ", ".join(f"`{pattern}`" for pattern in results["skipped"])
        yield f"Not run, as they end the process: {patterns}."
        yield ""
    for line in results["left"]:
        yield f"Left behind: {_without_names(line)}"
        yield ""
    if not failed:
        yield "Keeps every rule that applies."
        return
    groups: dict[tuple[str, str], list[str]] = {}
    for case in failed:
        name = re.sub(r"/v\d+/", "/", case["id"])
        groups.setdefault((name, _without_names(case["reason"])), []).append(case["id"])
    by_name: dict[str, list[tuple[str, list[str]]]] = {}
    for (name, reason), ids in groups.items():
        by_name.setdefault(name, []).append((reason, ids))
    yield "| case | versions | what is seen | rule |"
    yield "|---|---|---|---|"
    rules = {re.sub(r"/v\d+/", "/", case["id"]): case["rule"] for case in failed}
    for name, seen in by_name.items():
        for reason, ids in seen[:REASONS_MAX]:
            versions = [int(match[1]) for id_ in ids if (match := re.search(r"/v(\d+)/", id_))]
            yield f"| {name} | {_spans(versions)} | {_cell(reason)} | {_cell(rules[name])} |"


def _spans(versions: Sequence[int]) -> str:
    """Versions as ranges."""
    spans: list[list[int]] = []
    for version in sorted(versions):
        if spans and version == spans[-1][1] + 1:
            spans[-1][1] = version
        else:
            spans.append([version, version])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def _without_names(text: str) -> str:
    """Replace names that differ from run to run."""
    text = re.sub(r"conform-[0-9a-f]{6}(-\w+)*", "NAME", text)
    return re.sub(r"\b\d{6,}\b", "N", text)


def _cell(text: str) -> str:
    text = text.replace("|", "\\|").replace("\n", " ")
    return text if len(text) <= 240 else f"{text[:240]}..."
