"""python -m compat.rest [--version barnabas|4.x|3.9 ...] [--clients A,B]: stock clients of Confluent's REST proxy.

All clients have one REST API: `barnabas serve --http`, or `barnabas http` in front of a Kafka of the version that is named.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compat.kafka import RealKafka
from compat.matrix.clients import run
from compat.registry.__main__ import LOGS, OURS, process
from compat.rest.names import CASES

HERE = Path(__file__).resolve().parent
SECURED = (
    "--set",
    "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
    "--set",
    "super.users=User:ANONYMOUS",
)


def names() -> list[str]:
    """Return the names of all clients."""
    return sorted(path.parent.name for path in HERE.glob("*/run"))


@contextmanager
def rest(version: str) -> Iterator[str]:
    """A REST API in front of our broker, or of a Kafka of some version; gives its URL."""
    where = ("--listen", "127.0.0.1:0")
    if version != OURS:
        with (
            tempfile.TemporaryDirectory(prefix="rest-") as directory,
            RealKafka(version, 0, data=Path(directory)) as kafka,
            process("http", "--bootstrap", kafka.bootstrap, *where) as words,
        ):
            yield words["http"]
        return
    with (
        process("serve", "--ephemeral", *where, *SECURED) as broker,
        process("http", "--bootstrap", broker["bootstrap.servers"], *where) as words,
    ):
        yield words["http"]


def main() -> int:
    """Run all that is asked for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.rest", description=__doc__)
    parser.add_argument(
        "--version", action="append", help=f"{OURS}, or a version of Kafka; default: {OURS} and 4.x"
    )
    parser.add_argument("--clients", default="", metavar="A,B", help=f"of {', '.join(names())} (all)")
    options = parser.parse_args()
    chosen = options.clients.split(",") if options.clients else names()
    if not set(chosen) <= set(names()):
        parser.error(f"clients are {', '.join(names())}")
    LOGS.mkdir(parents=True, exist_ok=True)
    has_failed = False
    for version in options.version or [OURS, "4.x"]:
        with rest(version) as url:
            for client in chosen:
                verdicts = run(HERE / client / "run", url, list(CASES), {}, LOGS / f"{client}.err")
                for case, verdict in verdicts.items():
                    print(f"{version} {client} {case}: {verdict.status} {verdict.detail}", flush=True)
                    has_failed |= verdict.status == "FAIL"
    return int(has_failed)


if __name__ == "__main__":
    raise SystemExit(main())
