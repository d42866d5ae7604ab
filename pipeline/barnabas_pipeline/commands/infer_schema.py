"""infer-schema: draft a schema file from a registry, or from a sample of the topic's records.

The rule: the output is a draft for a person to complete; the lake is not changed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas_pipeline.commands import common, formats
from barnabas_pipeline.errors import EXIT_DONE, UsageError
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from barnabas_pipeline.commands.arguments import InferSchemaArguments

SAMPLE = 1_000
CONNECT = "connect-json"


def add_infer_schema(parser: argparse.ArgumentParser) -> None:
    """Add the options of infer-schema."""
    common.add_log(parser)
    formats.add_format(parser)
    parser.add_argument(
        "--sample", type=int, default=SAMPLE, metavar="N", help="number of records to read; default: 1000"
    )
    parser.add_argument(
        "--out", metavar="FILE", help="file to write the schema to; an existing file is not overwritten"
    )


def run_infer_schema(args: InferSchemaArguments) -> int:
    """Print a schema, or write it into a file. Returns the exit code."""
    from barnabas_pipeline.formats import connect
    from barnabas_pipeline.formats.inference import draft, sampled

    if args.format == CONNECT and not args.schema:
        drafted = connect.draft(args.topic, sampled(common.log_options(args), args.sample))
    elif args.format not in (None, "json") or args.registry or args.schema:
        drafted = formats.choose(args, dict).schema
    else:
        values = sampled(common.log_options(args), args.sample)
        drafted = draft(args.topic, values, event_time=args.event_time)
    text = json.dumps(_checked(drafted).to_dict(), indent=2, ensure_ascii=False)
    if not args.out:
        print(text)
        return EXIT_DONE
    try:
        with Path(args.out).open("x", encoding="utf-8") as file:
            file.write(f"{text}\n")
    except OSError as error:
        raise UsageError(f"{args.out}: {error.strerror}") from None
    return EXIT_DONE


def _checked(drafted: EventSchema) -> EventSchema:
    return EventSchema.from_dict(drafted.to_dict())
