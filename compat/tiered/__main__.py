"""`python -m compat.tiered`: see the README beside this file."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from compat.kafka import KafkaError
from compat.tiered import broker, exchange, plugin, records
from compat.tiered.java import Oracle, local_jars
from tests.support.effort import SEED

COUNT = 100


def main(argv: Sequence[str]) -> int:
    """Return the exit code: 0 when nothing differs."""
    parser = argparse.ArgumentParser(prog="python -m compat.tiered", description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT, help="records and histories")
    parser.add_argument("--plugin", type=Path, help=f"a checkout of {plugin.REPOSITORY} at {plugin.VERSION}")
    parser.add_argument("--write-golden", action="store_true", help=f"write {records.GOLDEN.name}")
    parser.add_argument("--no-broker", action="store_true", help="classes only, no broker of Kafka's")
    options = parser.parse_args(argv)
    try:
        classpath = plugin.built(options.plugin.resolve()) if options.plugin else ""
        with Oracle(classpath) as oracle, tempfile.TemporaryDirectory(prefix="tiered-") as folder:
            if options.write_golden:
                records.golden(oracle)
            failed = _report("records and histories", records.compare(oracle, options.seed, options.count))
            failed += _report("stores in a directory", exchange.local(oracle, Path(folder), options.seed))
            if options.plugin:
                failed += _report("stores of the plug-in", exchange.aiven(oracle, Path(folder), options.seed))
            if not options.no_broker:
                failed += _report(
                    "a broker with Kafka's store", broker.run(oracle, "directory", local_jars())
                )
                if options.plugin:
                    failed += _report("a broker with the plug-in", broker.run(oracle, "aiven", classpath))
    except KafkaError as error:
        print(f"error: {error}")
        return 1
    return 1 if failed else 0


def _report(what: str, differences: Iterator[str]) -> int:
    count = 0
    for text in differences:
        count += 1
        if count <= 20:
            print(f"  {text[:500]}")
    print(f"{what}: {count} differences", flush=True)
    return count


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
