"""python -m compat.faults: see the README beside this file."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

from compat.clients.shared.setup import SetupError
from compat.cluster.nodes import ClusterError
from compat.faults.clients import fetch
from compat.faults.faults import KINDS
from compat.faults.hosts import HostError, enter_namespaces
from compat.faults.rounds import Rounds
from compat.kafka import KafkaError
from compat.matrix.brokers import BrokerError


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 when every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m compat.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20, help="how many faults (20)")
    parser.add_argument("--seconds", type=float, default=0, help="begin no round after so many seconds")
    parser.add_argument("--kinds", default="", help=f"only these, of {', '.join(KINDS)}")
    parser.add_argument("--rate", type=int, default=100, help="records per second of each client (100)")
    parser.add_argument("--dir", type=Path, help="where to keep everything (default: a temporary directory)")
    parser.add_argument("--figures", type=Path, help="a file to which the figures of each round are added")
    parser.add_argument(
        "--resume-within",
        type=float,
        default=1.0,
        help="fail where a client goes on later than so many s after the end of a session (1; 0: never)",
    )
    parser.add_argument("--module", default="compat.faults", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    try:
        fetch()  # in the namespaces there is no way to anywhere else
    except (KafkaError, SetupError) as error:
        print(f"FAIL: {error}")
        return 1
    try:
        enter_namespaces(options.module, argv)
    except HostError as error:
        is_required = os.environ.get("CI") == "true"
        print(f"{'FAIL' if is_required else 'SKIP'}: {error}")
        return 1 if is_required else 0
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # that servers are gone is what this is about
    directory = Path(tempfile.mkdtemp(prefix="barnabas-faults-", dir=options.dir))
    kinds = [kind for kind in options.kinds.split(",") if kind]
    print(f"seed {options.seed}, {options.rounds} rounds, everything in {directory}", flush=True)
    rounds = Rounds(directory, options.seed, kinds, options.rate, options.figures, options.resume_within)
    try:
        broken = rounds.run(options.rounds, options.seconds)
    except (ClusterError, KafkaError, BrokerError, HostError, TimeoutError) as error:
        broken = [str(error)]
    for text in broken:
        print(f"BROKEN {text}")
    if broken:
        print(f"FAIL seed {options.seed}; see {directory}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    print("PASS", rounds.summary())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
