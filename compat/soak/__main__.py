"""`python -m compat.soak`: see the README beside this file."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from compat.matrix.brokers import ApacheKafka, Barnabas, BarnabasCluster, Broker
from compat.soak import transfers, wordcounts
from compat.soak.clerks import CLIENTS
from compat.soak.transfers import Figures, LostError


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 when every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m compat.soak", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("transfers", "wordcount"), default="transfers")
    parser.add_argument("--against", choices=("barnabas", "kafka"), default="barnabas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30, help="how often something is killed")
    parser.add_argument("--records", type=int, default=20_000, help="orders, or words")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument(
        "--brokers", type=int, default=1, help="more than one: `barnabas cluster`, killed as a whole"
    )
    parser.add_argument(
        "--pauses",
        action="store_true",
        help="of transfers: brokers of a cluster are paused for a while, nobody is killed",
    )
    parser.add_argument(
        "--clients", default="librdkafka", metavar="A,B", help=f"of transfers: {', '.join(CLIENTS)}"
    )
    parser.add_argument(
        "--group-protocol", choices=("classic", "streams"), default="classic", help="of the word count"
    )
    options = parser.parse_args(argv)
    directory = Path(tempfile.mkdtemp(prefix="barnabas-soak-"))
    settings = wordcounts.SETTINGS if options.what == "wordcount" else {}
    broker: Broker
    if options.against == "kafka":
        broker = ApacheKafka(directory, "4.x", settings)
    elif options.brokers > 1:
        broker = BarnabasCluster(directory, options.brokers, settings)
    else:
        broker = Barnabas(directory, settings)
    print(f"seed {options.seed}, {options.rounds} rounds, logs in {directory}", flush=True)
    try:
        figures = _run(options, broker, directory)
    except LostError as error:
        print(f"FAIL seed {options.seed}: {error}; see {directory}")
        return 1
    print("PASS", ", ".join(f"{name} {value:.1f}" if isinstance(value, float) else f"{name} {value}"
                            for name, value in asdict(figures).items()))  # fmt: skip
    return 0


def _run(options: argparse.Namespace, broker: Broker, directory: Path) -> Figures:
    common = {"seed": options.seed, "rounds": options.rounds}
    if options.what == "wordcount":
        return wordcounts.run(
            broker,
            directory,
            **common,
            words=options.records,
            instances=options.workers,
            protocol=options.group_protocol,
        )
    return transfers.run(
        broker,
        directory,
        **common,
        orders=options.records,
        workers=options.workers,
        clients=options.clients.split(","),
        replicas=min(options.brokers, 3),
        pauses=options.pauses,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
