"""mirror: from a topic of one cluster to a topic of another.

The rule: see `commands`.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from barnabas_pipeline.commands import common
from barnabas_pipeline.errors import EXIT_DONE
from barnabas_pipeline.log.model import READ_UNCOMMITTED, LogOptions
from barnabas_pipeline.progress import summarize


def add_mirror(parser: argparse.ArgumentParser) -> None:
    """Options of mirror."""
    common.add_log(parser)
    parser.add_argument("--to-bootstrap", required=True, metavar="HOST:PORT,...")
    parser.add_argument("--to-topic", metavar="NAME", help="default: the same name")
    parser.add_argument(
        "--to-client", action="append", default=[], metavar="NAME=VALUE", help="producer setting"
    )
    common.add_spark(parser)


def run_mirror(args: Any) -> int:
    """Mirror what is there now."""
    from barnabas_pipeline.jobs.mirror import mirror

    target = LogOptions(
        topic=args.to_topic or args.topic,
        bootstrap=args.to_bootstrap,
        isolation=READ_UNCOMMITTED,
        client=tuple(sorted(common.pairs(args.to_client).items())),
    )
    source = common.log_options(args)
    spark = common.spark_session(args, f"mirror {args.topic}")
    summarize("mirror", asdict(mirror(spark, source, target)), as_json=args.json)
    return EXIT_DONE
