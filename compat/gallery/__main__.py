"""python -m compat.gallery NAME...: show bugs of released clients, from a clean start.

Each program runs with the version that has the bug, where it has to be shown, and with a later one without it, where it
must not be. The exit code is 1 if one of the two is otherwise, and 2 if a program has no verdict.
"""

from __future__ import annotations

import argparse
import sys

from compat.gallery import catalogue, page
from compat.gallery.catalogue import Bug, CatalogueError
from compat.gallery.installing import InstallError
from compat.gallery.showing import NOT_SHOWN, SHOWN, Outcome, ShowError, show
from compat.matrix.brokers import BrokerError

FAILED, NO_VERDICT = 1, 2


def main(argv: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.gallery", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="bugs; `all` for all of them")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument(
        "--version", default="", help="run this version of the client alone; says what it shows"
    )
    parser.add_argument(
        "--write", action="store_true", help=f"write {page.PAGE.name}, from the last run of each, at its end"
    )
    options = parser.parse_args(argv)
    try:
        chosen = catalogue.names() if options.names == ["all"] else options.names
        bugs = [catalogue.bug(name) for name in chosen]
    except CatalogueError as error:
        parser.error(str(error))
    if options.list or not (bugs or options.write):
        for name in catalogue.names():
            bug = catalogue.bug(name)
            print(f"{name:28} {bug.client} {bug.broken}: {bug.title}")
        return 0
    code = 0
    for bug in bugs:
        outcome, outcomes = _shown(bug, options.version)
        code = max(code, outcome)
        if outcome == 0 and not options.version:
            page.keep(bug, outcomes)
    if options.write:
        everything = [catalogue.bug(name) for name in catalogue.names()]
        if missing := page.missing(everything):
            print(f"not written: {', '.join(missing)} must be run first", file=sys.stderr)
            return max(code, NO_VERDICT)
        page.write(everything)
    return code


def _shown(bug: Bug, only: str) -> tuple[int, list[Outcome]]:
    """Run a bug with its versions; returns the exit code and the outcome of each run."""
    print(f"{bug.name}: {bug.title}\n  {bug.issue}", flush=True)
    code, outcomes = 0, []
    for version in (only,) if only else bug.versions:
        try:
            outcome = show(bug, version)
        except (ShowError, InstallError, BrokerError) as error:
            print(f"  {bug.client} {version}: no verdict: {error}", flush=True)
            code = NO_VERDICT
            continue
        expected = SHOWN if version == bug.broken else NOT_SHOWN
        is_right = bool(only) or outcome.verdict == expected
        sign = "" if is_right else f"  [expected: {expected}]"
        print(
            f"  {bug.client} {version}: {outcome.verdict}: {outcome.text} ({outcome.seconds:.1f} s){sign}",
            flush=True,
        )
        if not is_right:
            code = max(code, FAILED)
        outcomes.append(outcome)
    return code, outcomes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
