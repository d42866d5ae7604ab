"""The command `barnabas-pipeline JOB`; also what spark-submit runs (`spark-submit .../cli.py JOB ...`).

The rule: exit codes are those of `errors`; an error is one line on stderr.
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
    "doctor": ("doctor", "check everything between this machine and a load, in one line each"),
    "plan": ("tracing", "print what a load would do: offsets, commits, files and bytes; nothing is written"),
    "lineage": ("tracing", "trace rows to their records and commits, or an offset to what became of it"),
    "simulate": ("simulate", "send the events of a simulated site to a broker"),
    "infer-schema": ("infer_schema", "draft a schema file from a registry or a sample of records"),
    "load": ("load", "load topics into the lake, exactly once, in batches or as a stream"),
    "backfill": ("lake", "decode the records of some hours again, and replace their rows"),
    "compact": ("lake", "merge many small files of an hour into few large ones"),
    "audit": ("lake", "compare the lake with the log, record by record; seal complete hours"),
    "publish": ("lake", "audit a branch that was loaded, and let readers of the table see it"),
    "erase": ("lake", "remove rows by a condition, such as those of a member, so that audits know of it"),
    "retain": ("lake", "remove the rows of hours that are older than some days"),
    "redrive": ("lake", "decode dead letters again, and load those that can be decoded now"),
    "current": ("current", "keep the newest row of each key of a compacted topic or a change stream"),
    "migrate": ("migrate", "convert a lake of the earlier format, without a catalog, to an Iceberg table"),
    "mirror": ("mirror", "mirror topics of other clusters, each record once, in one run or in rounds"),
    "feed": ("derived", "make a feed for each member: the newest items that followed members voted for"),
    "rank": ("derived", "rank items by clicks per view and votes"),
    "security": ("derived", "find crawlers, vote spam and guessed passwords"),
    "monitor": ("derived", "roll up service metrics and log lines, and raise alerts"),
    "visitors": ("derived", "count views and visitors of each member's profile"),
    "report": ("derived", "write the tables of a day, from sealed hours only"),
    "demo": ("demo", "run a broker, a simulated stream and all jobs, and write an HTML report"),
}
"""Each job: the module of `commands` with its `add_<job>` and `run_<job>`, and its help text.

Jobs of `derived` without such functions, and jobs of other packages, share `add_derived` and `run_derived`.
"""


WITHOUT_JAVA = {
    "simulate",
    "redrive",
    "erase",
    "retain",
    "migrate",
    "infer-schema",
    "current",
    "plan",
    "lineage",
    "load",
    "mirror",
}
"""Jobs that may need no Java: `current`, `load` and `mirror` start a Spark session for large rounds alone, others none."""


DOCTOR = "doctor"
"""The job that reports missing packages itself."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job and return its exit code."""
    if arguments is None:  # in a separate process, the signal ends a stream like Ctrl-C
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
    if arguments[:1] == [DOCTOR] and requirements.missing():  # packages that most options need
        arguments = [word for word in arguments if word in (DOCTOR, "--json", "-h", "--help")]
    elif arguments and arguments[0] in all_jobs and arguments[0] != DOCTOR:
        asks_for_help = "-h" in arguments or "--help" in arguments
        requirements.check(needs_java=arguments[0] not in WITHOUT_JAVA and not asks_for_help)
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
    """Return the functions that add the options of a job, and run it."""
    imported = importlib.import_module(f"barnabas_pipeline.commands.{module}")
    name = job.replace("-", "_")
    if module == "derived" and not hasattr(imported, f"add_{name}"):
        return partial(imported.add_derived, name=job), imported.run_derived
    return getattr(imported, f"add_{name}"), getattr(imported, f"run_{name}")


if __name__ == "__main__":
    sys.exit(main())
