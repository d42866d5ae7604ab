"""python -m compat.kafka start|stop|fetch|tool."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from compat.kafka import KafkaError, RealKafka, release, run_tool
from compat.kafka.process import JavaProcess
from compat.kafka.releases import fetch
from compat.kafka.tools import TOOLS


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m compat.kafka", description="Apache Kafka as an oracle.")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start", help="start a broker in the background and wait until it is ready")
    start.add_argument("--version", default="4.x", help="4.x, 3.9 or an exact version")
    start.add_argument("--mode", choices=["kraft", "zookeeper"], default="kraft")
    start.add_argument("--port", type=int, default=9092, help="0 takes a free one")
    start.add_argument("--data", type=Path, required=True, help="a directory for all that the broker keeps")
    start.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    stop = commands.add_parser("stop", help="stop the broker that was started on a directory")
    stop.add_argument("--data", type=Path, required=True)
    get = commands.add_parser("fetch", help="only fetch the jars; prints where they are")
    get.add_argument("--version", default="4.x")
    tool = commands.add_parser("tool", help="run one of Kafka's command line tools: tool NAME -- ARGUMENTS")
    tool.add_argument("--version", default="4.x")
    tool.add_argument("name", help=", ".join(TOOLS))
    tool.add_argument("arguments", nargs="*")
    options = parser.parse_args(arguments)
    if options.command == "tool":
        return run_tool(release(options.version), options.name, *options.arguments)
    if options.command == "fetch":
        print(fetch(release(options.version)))
    elif options.command == "stop":
        JavaProcess("kafka", options.data).stop()
        JavaProcess("zookeeper", options.data).stop()
    else:
        settings = dict(setting.split("=", 1) for setting in options.settings)
        kafka = RealKafka(
            options.version, options.port, data=options.data, settings=settings, mode=options.mode
        )
        kafka.start()
        print(f"bootstrap.servers={kafka.bootstrap} pid={kafka.pid} version={kafka.release.version}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KafkaError as error:
        sys.exit(f"error: {error}")
