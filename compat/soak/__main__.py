"""`python -m compat.soak`: see the README beside this file."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from compat.matrix.brokers import ApacheKafka, Barnabas, Broker
from compat.soak import transfers, wordcounts
from compat.soak.transfers import Figures, LostError


def main(given: list[str]) -> int:
    """Returns the exit code: 0 when every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m compat.soak", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("transfers", "wordcount"), default="transfers")
    parser.add_argument("--against", choices=("barnabas", "kafka"), default="barnabas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30, help="how often something is killed")
    parser.add_argument("--records", type=int, default=20_000, help="orders, or words")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument(
        "--group-protocol", choices=("classic", "streams"), default="classic", help="of the word count"
    )
    options = parser.parse_args(given)
    directory = Path(tempfile.mkdtemp(prefix="barnabas-soak-"))
    settings = wordcounts.SETTINGS if options.what == "wordcount" else {}
    broker: Broker = (
        Barnabas(directory, settings)
        if options.against == "barnabas"
        else ApacheKafka(directory, "4.x", settings)
    )
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
    return transfers.run(broker, directory, **common, orders=options.records, workers=options.workers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
