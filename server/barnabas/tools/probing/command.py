"""`barnabas probe`: examine a broker and report."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import trio

from barnabas.client.errors import ClientError
from barnabas.ending import DONE, FAILED, USAGE_ERROR
from barnabas.environment.terminal import visible, visible_lines
from barnabas.tools.probing.exchanges import ExchangeError
from barnabas.tools.probing.honoured import Status
from barnabas.tools.probing.options import OptionError, add_target, target_of
from barnabas.tools.probing.probe import Report, probe
from barnabas.tools.probing.text import lines_of


def main(arguments: Sequence[str], *, examine: Callable[..., Coroutine[Any, Any, Report]] = probe) -> int:
    """Run the command; returns the exit code."""
    options = parser().parse_args(arguments)
    if options.html:
        from barnabas.tools.probing import pages  # before the broker is asked: the extra may be missing
    try:
        report = trio.run(_probe, options, examine)
    except OptionError as error:
        print(f"barnabas probe: {visible_lines(str(error))}", file=sys.stderr)
        return USAGE_ERROR
    except (ClientError, ExchangeError) as error:
        print(f"barnabas probe: {visible_lines(str(error))}", file=sys.stderr)
        return FAILED
    if options.html:
        pages.write(options.html, card(report))
    if options.json:
        print(json.dumps(report.as_json(), indent=1))
    else:
        for line in lines_of(report):
            print(visible(line))
    return DONE


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    parser = argparse.ArgumentParser(
        prog="barnabas probe",
        description="Look at any Kafka broker: what it advertises and truly serves, its limits, habits and times, and "
        "what clients can do with it. Nothing is changed unless --write is given.",
    )  # fmt: skip
    add_target(parser)
    parser.add_argument(
        "--write", action="store_true", help="also make a topic, append to it, commit, and remove it again"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--html", metavar="FILE", help="write the report as one HTML file")
    return parser


async def _probe(options: argparse.Namespace, examine: Callable[..., Coroutine[Any, Any, Report]]) -> Report:
    return await examine(target_of(options), writes=options.write)


def card(report: Report) -> str:
    """Return the report as an HTML page."""
    from barnabas.tools.inspection.errors import code_name
    from barnabas.tools.probing import pages
    from barnabas.tools.probing.needs import USES
    from barnabas.wire import registry

    classes = {Status.HONOURED: "", Status.NOT_TRIED: "quiet"}
    apis = []
    for key in sorted(report.advertised):
        verdicts = [verdict for verdict in report.verdicts if verdict.key == key]
        errors = dict.fromkeys(code for verdict in verdicts for code in verdict.errors)
        apis.append(
            {
                "key": key,
                "name": registry.name_of(key) if registry.is_known(key) else "?",
                "verdicts": verdicts,
                "classes": [classes.get(verdict.status, "bad") for verdict in verdicts],
                "errors": ", ".join(map(code_name, errors)),
            }
        )
    tried = [verdict for verdict in report.verdicts if verdict.status is not Status.NOT_TRIED]
    values = {
        "report": report,
        "apis": apis,
        "uses": list(USES),
        "tried": len(tried),
        "honoured": sum(verdict.status is Status.HONOURED for verdict in tried),
    }
    return pages.render("barnabas.tools.probing", "card.html.j2", values)
