"""The command `barnabas-pipeline JOB`; also what spark-submit runs (`spark-submit .../cli.py JOB ...`).

The rule: exit codes are those of `errors`; whatever is wrong is one line on stderr.
"""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Sequence

from barnabas.environment import output
from barnabas_pipeline import requirements
from barnabas_pipeline.commands.common import Parser
from barnabas_pipeline.errors import EXIT_DATA_LOSS, EXIT_DEFECT, EXIT_INCOMPLETE, EXIT_USAGE, PipelineError

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
    "monitor": ("derived", "roll-ups of service metrics, and alerts"),
    "report": ("derived", "the tables of a day, from sealed hours only"),
    "demo": ("demo", "a broker, a simulated stream, and all jobs; ends with an HTML report"),
}
"""Each job: the module of `commands` that has its `add_<job>` and `run_<job>`, and what it does."""


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
    if arguments and arguments[0] in JOBS:
        asks_for_help = "-h" in arguments or "--help" in arguments
        requirements.check(needs_java=arguments[0] not in WITHOUT_SPARK and not asks_for_help)
    for job, (module, text) in JOBS.items():
        sub = jobs.add_parser(job, help=text, description=text)
        if job in arguments[:1]:
            getattr(importlib.import_module(f"barnabas_pipeline.commands.{module}"), f"add_{_name(job)}")(sub)
    args = parser.parse_args(arguments)
    chosen = importlib.import_module(f"barnabas_pipeline.commands.{JOBS[args.job][0]}")
    return int(getattr(chosen, f"run_{_name(args.job)}")(args))


def _name(job: str) -> str:
    return job.replace("-", "_")


if __name__ == "__main__":
    sys.exit(main())
