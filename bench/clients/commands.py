"""`python -m bench.clients.commands`: the command line beside kcat: CPU of a process, from its start to its end.

The rule: each run is a separate process, imports included; the first run of each is discarded. Output goes to /dev/null.
kcat is found on the PATH (Debian: kcat), or by the variable KCAT; without it, only ours are measured.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median

from confluent_kafka import Producer

from bench.peers.barnabas import Barnabas
from bench.procfs import describe_machine
from bench.tools import ROOT, BenchError, code_of

TOPIC = "small"
RECORDS, RECORD_BYTES = 200_000, 60
SHELL_ASKS = {"_BARNABAS_COMPLETE": "bash_complete"}


def cpu_ms(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Run a command; returns its CPU, of user and system, in ms. Raises BenchError."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **environment}
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BenchError(f"{' '.join(command)} ended with {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def rows(bootstrap: str) -> list[tuple[str, list[str], dict[str, str], list[str]]]:
    """Return tasks: ours with its variables, and kcat's, empty where it has none."""
    at = ["--bootstrap", bootstrap]

    def tab(*words: str) -> dict[str, str]:
        line = " ".join(["barnabas", *words])
        return {**SHELL_ASKS, "COMP_WORDS": line, "COMP_CWORD": str(len(words))}

    return [
        ("list topics", ["topics", "list", *at], {}, ["-L"]),
        ("list groups", ["groups", "list", *at], {}, []),
        (
            f"print {RECORDS:,} records of {RECORD_BYTES} B",
            ["consume", TOPIC, *at],
            {},
            ["-C", "-e", "-q", "-t", TOPIC],
        ),
        ("print one record", ["consume", TOPIC, "-n", "1", *at], {}, ["-C", "-q", "-c", "1", "-t", TOPIC]),
        ("help", ["--help"], {}, ["-h"]),
        ("help of a command", ["topics", "--help"], {}, []),
        ("complete a command", [], tab("to"), []),
        ("complete an option", [], tab("topics", "list", "--prof"), []),
    ]


def fill(bootstrap: str) -> None:
    """Write the records that are read."""
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": RECORDS + 1})
    for number in range(RECORDS):
        producer.produce(TOPIC, (b"%d " % number).ljust(RECORD_BYTES, b"."))
    if producer.flush(60):
        raise BenchError("not all records were written")


@contextmanager
def _filled_broker() -> Iterator[str]:
    """Start a broker with the records that are read; yields its address."""
    with tempfile.TemporaryDirectory(prefix="bench-commands-") as directory:
        running = Barnabas("barnabas", {}, None).start(Path(directory, "log"))
        try:
            running.create_topic(TOPIC)
            fill(running.bootstrap)
            yield running.bootstrap
        finally:
            running.stop()


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.clients.commands", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--code", type=Path, help="where barnabas is imported from (default: this wheel)")
    parser.add_argument(
        "--bootstrap", help=f"a broker that has the topic {TOPIC!r} (default: one is started)"
    )
    options = parser.parse_args()
    kcat = os.environ.get("KCAT") or shutil.which("kcat")
    code = {"PYTHONPATH": str(options.code or code_of(ROOT))}
    with nullcontext(options.bootstrap) if options.bootstrap else _filled_broker() as bootstrap:
        print("| ms of CPU | barnabas | kcat |\n| --- | --- | --- |")
        for task, words, variables, theirs in rows(bootstrap):
            ours = [sys.executable, "-m", "barnabas", *words]
            cells = [_measured(ours, {**code, **variables}, options.rounds)]
            at = [] if theirs == ["-h"] else ["-b", bootstrap]
            cells.append(_measured([kcat, *at, *theirs], {}, options.rounds) if kcat and theirs else "-")
            print(f"| {task} | {' | '.join(cells)} |", flush=True)
    print("\n" + ", ".join(f"{name} {value}" for name, value in describe_machine().items()))
    return 0


def _measured(command: Sequence[str], environment: Mapping[str, str], rounds: int) -> str:
    return _cell([cpu_ms(command, environment) for _ in range(rounds + 1)])


def _cell(values: list[float]) -> str:
    values = values[1:]
    return f"{median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(str(error))
