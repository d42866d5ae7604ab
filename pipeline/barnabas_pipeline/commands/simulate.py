"""simulate: send the events of a simulated site.

The rule: see `commands`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas_pipeline.commands import common, formats
from barnabas_pipeline.errors import EXIT_DONE, UsageError
from barnabas_pipeline.progress import Bar, summarize

if TYPE_CHECKING:
    from barnabas_pipeline.commands.arguments import DemoArguments, SimulateArguments, ValuesArguments
    from barnabas_pipeline.formats.registry import Registry
    from barnabas_pipeline.simulate.bad import Values


def add_simulate(parser: argparse.ArgumentParser) -> None:
    """Add the options of simulate."""
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT,...")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--hours",
        type=float,
        default=4.0,
        help="hours of simulated time, which end now unless --start is given",
    )
    parser.add_argument("--start", type=common.parse_time, metavar="TIME")
    parser.add_argument("--rate", type=float, default=0, metavar="N", help="events per second; 0: no limit")
    parser.add_argument(
        "--late", type=float, default=0.02, metavar="FRACTION", help="fraction of late events"
    )
    parser.add_argument(
        "--bad", type=float, default=0, metavar="FRACTION", help="fraction of malformed events"
    )
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--prefix", default="", help="prefix of the names of topics")
    add_values(parser)
    parser.add_argument("--truth", metavar="FILE", help="file to write the truth of the simulation to")
    parser.add_argument(
        "--client",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="producer setting; may be repeated",
    )
    parser.add_argument("--json", action="store_true")


def add_values(parser: argparse.ArgumentParser) -> None:
    """Add the options for the encoding of values."""
    parser.add_argument("--format", choices=("json", "avro"), default="json", help="format of values")
    parser.add_argument("--registry", metavar="URL", help="registry for the schemas of --format avro")
    formats.add_registry_login(parser)


def values_of(args: ValuesArguments | DemoArguments, prefix: str, registry: Registry | None) -> Values:
    """Return the encoder of events. Raises UsageError, IncompleteError."""
    from barnabas_pipeline.simulate.bad import JSON
    from barnabas_pipeline.simulate.model import KINDS

    if args.format == "json":
        return JSON
    if registry is None:
        raise UsageError("--format avro needs --registry URL")
    from barnabas_pipeline.simulate.avro import AvroValues

    return AvroValues(registry, prefix, KINDS)


def run_simulate(args: SimulateArguments) -> int:
    """Create the topics, send all events, write the truth. Returns the exit code."""
    from barnabas_pipeline.simulate import produce
    from barnabas_pipeline.simulate.model import HOUR_MS, KINDS, LATE_HOURS_MAX, Simulation, Site

    start = args.start
    if start is None:
        # The last late events are delivered about now.
        span = int((args.hours + LATE_HOURS_MAX) * HOUR_MS)
        start = (int(time.time() * 1000) - span) // HOUR_MS * HOUR_MS
    site = Site(seed=args.seed, events=args.events, start_ms=start, hours=args.hours, late_fraction=args.late)
    simulation = Simulation(site)
    events = simulation.events()
    if args.truth:
        Path(args.truth).write_text(simulation.truth.to_json())
    produce.create_topics(args.bootstrap, [args.prefix + kind for kind in KINDS], args.partitions, {})
    bar = Bar("simulate")
    spoilt = produce.send(
        args.bootstrap,
        events,
        values=values_of(
            args, args.prefix, formats.registry_of(args, args.registry) if args.registry else None
        ),
        prefix=args.prefix,
        rate_per_second=args.rate,
        bad_fraction=args.bad,
        seed=args.seed,
        config=common.pairs(args.client),
        progress=lambda done: bar(done, len(events)),
    )
    counts = {kind: sum(event.kind == kind for event in events) for kind in KINDS}
    facts = {"events": len(events), **counts, "bad": dict(spoilt), "start": start, "seed": args.seed}
    summarize("simulate", facts, as_json=args.json)
    return EXIT_DONE
