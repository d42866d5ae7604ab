"""migrate: a lake of the earlier format becomes an Iceberg table.

The rule: see `commands`.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas_pipeline.commands import common
from barnabas_pipeline.commands.lake import add_table, place
from barnabas_pipeline.errors import EXIT_DONE
from barnabas_pipeline.progress import summarize

if TYPE_CHECKING:
    from barnabas_pipeline.commands.arguments import MigrateArguments


def add_migrate(parser: argparse.ArgumentParser) -> None:
    """Add the options of migrate."""
    parser.add_argument("--topic", required=True)
    parser.add_argument(
        "--from",
        dest="source",
        required=True,
        type=common.directory,
        metavar="DIR",
        help="lake of the earlier format",
    )
    add_table(parser)
    parser.add_argument("--json", action="store_true")


def run_migrate(args: MigrateArguments) -> int:
    """Migrate one topic. Returns the exit code."""
    from barnabas_pipeline.jobs.migrate import migrate

    summary = migrate(Path(args.source) / args.topic, place(args))
    summarize("migrate", asdict(summary), as_json=args.json)
    return EXIT_DONE
