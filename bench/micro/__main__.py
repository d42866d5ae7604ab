"""`python -m bench.micro [GROUP ...]`: time the parts of a request's way, and of a log's life, alone."""

from __future__ import annotations

import argparse
import sys

from bench.micro import (
    acls,
    cold,
    compaction,
    controllers,
    coordinators,
    crowd,
    echo,
    imports,
    log,
    lookups,
    opening,
    partitions,
    records,
    recovery,
    requests,
    starts,
    wire,
)
from bench.micro.timing import HEADER
from bench.tools import ROOT, code_of

GROUPS = {
    "imports": imports,
    "starts": starts,
    "wire": wire,
    "records": records,
    "log": log,
    "recovery": recovery,
    "lookups": lookups,
    "cold": cold,
    "compaction": compaction,
    "opening": opening,
    "partitions": partitions,
    "requests": requests,
    "coordinators": coordinators,
    "controllers": controllers,
    "echo": echo,
    "crowd": crowd,
    "acls": acls,
}


def main(argv: list[str] | None = None) -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.micro", description=__doc__)
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="all by default")
    chosen = parser.parse_args(argv).groups or list(GROUPS)
    sys.path.insert(0, str(code_of(ROOT)))
    print(HEADER)
    for group in chosen:
        for timing in GROUPS[group].run():
            print(timing.row(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
