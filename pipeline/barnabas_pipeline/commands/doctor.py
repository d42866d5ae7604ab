"""doctor: checks of the prerequisites of a load on this machine.

The rule: see `commands`; modules that need a package are not imported if it is missing, as the doctor reports that.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, cast

from barnabas_pipeline import requirements
from barnabas_pipeline.jobs.doctor import FORMATS, HDFS, Checkup, Line, checks, exit_code

if TYPE_CHECKING:
    from barnabas_pipeline.commands.arguments import DoctorArguments, TopicArguments


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Add the options of doctor: the options of load, none required; no options if packages are missing."""
    if requirements.missing():
        parser.add_argument("--json", action="store_true")
        return
    from barnabas_pipeline.commands import common, lake, topics

    common.add_log(parser, topics.add_topics)
    lake.add_table(parser, is_lake_required=False)
    lake.add_schema(parser)
    common.add_range(parser)
    lake.add_commits(parser)
    common.add_spark(parser)
    parser.add_argument("--no-spark", action="store_true", help="start no Spark session")


def run_doctor(args: DoctorArguments) -> int:
    """Run the checks in order, and print a line for each. Returns the exit code of the worst."""
    checkup = Checkup() if requirements.missing() else _checkup(args)
    lines: list[Line] = []
    for line in checks(checkup):
        lines.append(line)
        if not args.json:
            print(f"{line.status:8} {line.name:24} {line.detail}", flush=True)
    code = exit_code(lines)
    if args.json:
        print(json.dumps({"job": "doctor", "exit_code": code, "checks": [line._asdict() for line in lines]}))
    return code


def _checkup(args: DoctorArguments) -> Checkup:
    from barnabas_pipeline.commands import common, lake, topics

    checkup = Checkup()
    if args.bootstrap or args.log_dir:
        checkup.log = common.cluster_options(args)
    names = topics.names_in(args.topic)
    if args.lake:
        from barnabas_pipeline.lake.iceberg import CATALOG, Lake, Place

        settings, each = lake.settings_of(args), cast("TopicArguments", args)
        names = list(dict.fromkeys([*names, *settings.names]))
        properties = tuple(sorted(common.pairs(args.catalog_property).items()))
        checkup.lake = Lake(args.lake, args.catalog or CATALOG, properties)

        def place_of(topic: str) -> Place:
            return lake.place(settings.of(topic, each))

        checkup.place_of = place_of
        if checkup.log is not None:
            checkup.options_of = lambda topic: lake.load_options(settings.of(topic, each))
        _add_formats(checkup, [settings.of(name, each) for name in names] or [each])
        if args.lake.lower().startswith(("hdfs:", "viewfs:")):
            checkup.extras = (*checkup.extras, HDFS)
    checkup.topics = tuple(names)
    conf = common.pairs(args.conf)
    checkup.jars = tuple(conf[name] for name in ("spark.jars",) if name in conf)
    if not args.no_spark:
        checkup.spark = lambda: common.spark_session(args, "doctor")
    return checkup


def _add_formats(checkup: Checkup, chosen: list[TopicArguments]) -> None:
    """Add the extra that formats need, and the registry of their schemas."""
    from barnabas_pipeline.commands.formats import registry_of
    from barnabas_pipeline.formats.registry import ADDRESS, ask

    names = {name for args in chosen for name in (args.format, args.key_format) if name}
    url = next((args.registry for args in chosen if args.registry), "")
    is_binary = bool(names & {"avro", "protobuf"})
    if is_binary or url:
        checkup.extras = (FORMATS,)
    url = url or (os.environ.get(ADDRESS, "") if is_binary else "")
    if url:

        def registry() -> str:
            asked = registry_of(chosen[0], url)
            subjects = ask(asked.client().subjects)
            return f"{asked.to_dict()['url']} has {len(subjects):,} subjects"

        checkup.registry = registry
