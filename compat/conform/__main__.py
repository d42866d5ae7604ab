"""Judge several brokers by the wire suite, side by side: python -m compat.conform [NAME ...].

Without names those without logins are judged, and docs/conformance is written if it is by all cases. With names and
--write, it is written with the results of earlier runs for the others.

The exit code is 1 if Apache Kafka or Barnabas fails a case; failures of others are only reported.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnabas.testing.running import import_path
from compat.conform.brokers import BROKERS, ROOT, SECURED, SKIPPED, TOOLS, Broker
from compat.conform.tables import page
from compat.kafka import KafkaError
from compat.peers.programs import UnavailableError

KEPT = TOOLS / "results"
PAGE = ROOT / "docs" / "conformance" / "README.md"
CLUSTERS = ("barnabas-cluster", "barnabas-zookeeper")
MUST_PASS = ("kafka-4", "kafka-3.9", "barnabas", *CLUSTERS, "kafka-4-secured", "barnabas-secured")
WITHOUT_LOGINS = tuple(name for name in BROKERS if name not in SECURED)
ELSEWHERE = "Three brokers of ours on ZooKeeper have [a page of their own](cluster.md).\n"
PAGES = {
    PAGE: (tuple(name for name in WITHOUT_LOGINS if name not in CLUSTERS), ELSEWHERE),
    PAGE.with_name("cluster.md"): (CLUSTERS, ""),
}
"""Brokers on each page, and the rest of its head."""
SEED = 1


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m compat.conform", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"one of {', '.join(BROKERS)} (default: {', '.join(WITHOUT_LOGINS)})",
    )
    parser.add_argument(
        "--random", type=int, default=20, metavar="N", help="how many random walks (default: 20)"
    )
    parser.add_argument("--seed", type=int, default=SEED, help=f"seed of random choices (default: {SEED})")
    parser.add_argument(
        "--timeout", type=float, default=20.0, help="seconds that an answer may take (default: 20)"
    )
    parser.add_argument("--select", action="append", default=[], metavar="PATTERN", help="only such cases")
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the page of those that are named, of the others as they were kept",
    )
    options = parser.parse_args()
    if options.write and options.select:
        parser.error("--write needs all cases")
    results: dict[str, tuple[str, dict[str, Any]]] = {}
    for name in options.names or WITHOUT_LOGINS:
        try:
            with BROKERS[name]() as broker:  # type: ignore[attr-defined]
                print(f"{broker.what} at {broker.address}", flush=True)
                results[name] = broker.what, _judge(broker, options, SKIPPED.get(name, ()))
                if not options.select:
                    KEPT.mkdir(parents=True, exist_ok=True)
                    (KEPT / f"{name}.json").write_text(json.dumps(results[name]), encoding="utf-8")
        except (KafkaError, UnavailableError) as error:
            print(f"{name}: {error}", file=sys.stderr)
    if options.write or (not options.names and not options.select):
        for path, (names, more) in PAGES.items():
            if results.keys() & names:
                judged = [results[name] if name in results else _kept(name) for name in names]
                path.parent.mkdir(exist_ok=True)
                path.write_text(page([case for case in judged if case is not None], more), encoding="utf-8")
    failed = [name for name in MUST_PASS if name in results and results[name][1]["summary"]["failed"]]
    return 1 if failed else 0


def _kept(name: str) -> tuple[str, dict[str, Any]] | None:
    """Return the results of the last whole run for a broker; None if there was none."""
    path = KEPT / f"{name}.json"
    if not path.exists():
        return None
    what, results = json.loads(path.read_text(encoding="utf-8"))
    return what, results


def _judge(broker: Broker, options: argparse.Namespace, skipped: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="conform-") as directory:
        results = Path(directory) / "results.json"
        command = [
            sys.executable,
            "-m",
            "barnabas",
            "conform",
            broker.address,
            "--quiet",
            "--json",
            str(results),
        ]
        for rule in broker.properties:
            command += ["--property", rule]
        command += [
            "--seed",
            str(options.seed),
            "--random",
            str(options.random),
            "--timeout",
            str(options.timeout),
        ]
        for pattern in options.select:
            command += ["--select", pattern]
        for pattern in skipped:
            command += ["--skip", pattern]
        environment = {**os.environ, "PYTHONPATH": f"{import_path()}{os.pathsep}{ROOT}"}
        done = subprocess.run(command, env=environment, check=False)
        if not results.exists():
            raise UnavailableError(f"no results (exit code {done.returncode})")
        loaded: dict[str, Any] = json.loads(results.read_text())
        return loaded | {"skipped": list(skipped)}


if __name__ == "__main__":
    sys.exit(main())
