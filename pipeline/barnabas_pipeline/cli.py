"""The command `barnabas-pipeline JOB`; also what spark-submit runs (`spark-submit .../cli.py JOB ...`).

The rule: exit codes are those of `errors`; whatever is wrong is one line on stderr.
"""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from barnabas.environment import output
from barnabas_pipeline import requirements
from barnabas_pipeline.commands.arguments import BY_JOB, DerivedArguments
from barnabas_pipeline.commands.common import Parser
from barnabas_pipeline.errors import EXIT_DATA_LOSS, EXIT_DEFECT, EXIT_INCOMPLETE, EXIT_USAGE, PipelineError

if TYPE_CHECKING:
    import argparse

JOBS = {
    "simulate": ("simulate", "send the events of a simulated site to a broker"),
    "infer-schema": ("infer_schema", "draft a schema file, from a registry or from a sample of records"),
    "load": ("load", "from topics into the lake, exactly once, in batches or as a stream"),
    "backfill": ("lake", "replace the rows of some hours by what the log says of them, decoded again"),
    "compact": ("lake", "many small files of an hour become few large ones"),
    "audit": ("lake", "compare the lake with the log, record by record; seal complete hours"),
    "redrive": ("lake", "decode dead letters again, and load those that can be decoded now"),
    "current": ("current", "the newest row of each key, out of a compacted topic or a change stream"),
    "migrate": ("migrate", "a lake of the earlier format, without a catalog, becomes an Iceberg table"),
    "mirror": ("mirror", "topics of other clusters into one, each record once, once or in rounds"),
    "feed": ("derived", "for each member the newest items that those they follow voted for"),
    "rank": ("derived", "items by clicks per view and votes"),
    "security": ("derived", "verdicts on crawlers, spammers, and those who guess passwords"),
    "monitor": ("derived", "roll-ups of service metrics and log lines, and alerts"),
    "visitors": ("derived", "how often each member's profile was seen, and by how many"),
    "report": ("derived", "the tables of a day, from sealed hours only"),
    "demo": ("demo", "a broker, a simulated stream, and all jobs; ends with an HTML report"),
}
"""Each job: the module of `commands` that has its `add_<job>` and `run_<job>`, and what it does.

Those of `derived` that it has no functions for share `add_derived` and `run_derived`, with those of other packages.
"""


WITHOUT_SPARK = {"simulate", "redrive", "migrate", "infer-schema", "current"}
"""Jobs that start no Spark session, and so need no Java; `current` does for much at a time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job and return its exit code."""
    if arguments is None:  # a process of its own
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends a stream as Ctrl-C does
    try:
        code = _run(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
        return code
    except PipelineError as error:
        names = {EXIT_DATA_LOSS: "data loss", EXIT_DEFECT: "defect", EXIT_USAGE: "usage"}
        what = names.get(error.exit_code, "incomplete")
        print(f"{what}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INCOMPLETE
    except OSError as error:
        text = output.explain(error)
        if text is None:
            raise
        print(f"incomplete: {text}", file=sys.stderr)
        return EXIT_INCOMPLETE


def _run(arguments: list[str]) -> int:
    parser = Parser(prog="barnabas-pipeline", description="Barnabas' data pipeline on Apache Spark.")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB", parser_class=Parser)
    all_jobs = JOBS | {
        entry_point.name: (
            "derived",
            f"a job of {entry_point.dist.name if entry_point.dist else entry_point.value}",
        )
        for entry_point in entry_points(group="barnabas_pipeline.jobs")
        if entry_point.name not in JOBS
    }
    if arguments and arguments[0] in all_jobs:
        asks_for_help = "-h" in arguments or "--help" in arguments
        requirements.check(needs_java=arguments[0] not in WITHOUT_SPARK and not asks_for_help)
    for job, (module, text) in all_jobs.items():
        sub = jobs.add_parser(job, help=text, description=text)
        if job in arguments[:1]:
            _functions(job, module)[0](sub)
    kind = BY_JOB.get(arguments[0], DerivedArguments) if arguments else DerivedArguments
    args = parser.parse_args(arguments, kind())
    chosen = str(vars(args)["job"])
    return _functions(chosen, all_jobs[chosen][0])[1](args)


def _functions(
    job: str, module: str
) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[object], int]]:
    """Return what adds the options of a job, and what runs it."""
    imported = importlib.import_module(f"barnabas_pipeline.commands.{module}")
    name = job.replace("-", "_")
    if module == "derived" and not hasattr(imported, f"add_{name}"):
        return partial(imported.add_derived, name=job), imported.run_derived
    return getattr(imported, f"add_{name}"), getattr(imported, f"run_{name}")


if __name__ == "__main__":
    sys.exit(main())
