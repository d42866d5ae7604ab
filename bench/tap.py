"""`python -m bench.tap`: a broker, the same through `barnabas tap`, and the same with `serve --tap` and with `--control`.

The rule: arms follow each other within a round, in an order that rotates, on topics of their own; a ratio is taken within a
round, and the median over the rounds is shown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from bench.procfs import describe_machine
from bench.scenarios.throughput import LARGE, QUEUE
from bench.tools import BenchError, build, code_of, loadgen

ROOT = Path(__file__).resolve().parents[1]
DIRECT, THROUGH, OWN, CONTROLLED = "direct", "through the tap", "serve --tap", "serve --control"
TARGETS = {THROUGH: 0.5, OWN: 0.9, CONTROLLED: 0.97}
LOADS: dict[str, tuple[int, dict[str, Any]]] = {
    "produce 100 B": (100, {"acks": 1}),
    "produce 1 KB": (1024, {"acks": 1}),
    "produce 1 KB, 16 KB batches": (1024, {"acks": 1, "batch.size": 16_384}),
    "consume 1 KB": (1024, {}),
}
WAIT_S = 60


@contextmanager
def _process(log: Path, *arguments: str) -> Iterator[str]:
    """Run a `barnabas` command for the length of the block; yields its ready line."""
    environment = {**os.environ, "PYTHONPATH": str(code_of(ROOT))}
    command = [sys.executable, "-m", "barnabas", *arguments]
    with log.open("w+") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            while True:
                text = log.read_text()
                ready = [line for line in text.splitlines() if "is ready" in line]
                if ready:
                    break
                if process.poll() is not None:
                    raise BenchError(f"{' '.join(command)}\n{text}")
                time.sleep(0.05)
            yield ready[0]
        finally:
            process.terminate()
            process.wait(WAIT_S)


def _bootstrap(line: str) -> str:
    return dict(word.split("=", 1) for word in line.split() if "=" in word)["bootstrap.servers"]


def _measure(load: str, bootstrap: str, own: str, topic: str, total_bytes: int) -> float:
    """Return the rate in MB/s; `own` is the broker's address without a tap, for creating topics."""
    size, client = LOADS[load]
    admin = AdminClient({"bootstrap.servers": own})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S)
    count = total_bytes // size
    if load.startswith("consume"):
        loadgen("produce", own, client={**QUEUE, **LARGE}, topic=topic, size=size, count=count)
        result = loadgen("consume", bootstrap, topic=topic, size=size, count=count)
    else:
        result = loadgen(
            "produce", bootstrap, client={**QUEUE, **client}, topic=topic, size=size, count=count
        )
    admin.delete_topics([topic])[topic].result(WAIT_S)
    return float(result["bytes_per_s"]) / 1e6


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.tap", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=200_000_000, help="how much is sent in a run")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()), help="where the logs are")
    parser.add_argument("--load", default="", help="only loads whose names hold this")
    parser.add_argument("--arm", default="", help="beside the broker alone, only arms whose names hold this")
    options = parser.parse_args()
    build()
    print(describe_machine())
    directory = Path(tempfile.mkdtemp(dir=options.data, prefix="bench-tap-"))
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> str:
            return stack.enter_context(_process(directory / f"{name}.log", *arguments))

        serve = ("serve", "--listen", "127.0.0.1:0", "--data")
        plain = _bootstrap(start("plain", *serve, str(directory / "plain")))
        arms = {DIRECT: (plain, plain)}
        if options.arm in THROUGH:
            tapped = start("tap", "tap", plain, "--listen", "127.0.0.1:0")
            arms[THROUGH] = tapped.partition("is ready: ")[2].split()[0], plain
        for arm, more in ((OWN, ("--tap",)), (CONTROLLED, ("--control", "127.0.0.1:0"))):
            if options.arm in arm:
                address = _bootstrap(start(arm.replace(" ", ""), *serve, str(directory / arm), *more))
                arms[arm] = address, address
        for load in LOADS:
            if options.load in load:
                _rounds(load, arms, options.rounds, options.bytes)
    subprocess.run(["rm", "-rf", str(directory)], check=True)
    return 0


def _rounds(load: str, arms: dict[str, tuple[str, str]], rounds: int, total_bytes: int) -> None:
    names = list(arms)
    rates: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):  # the first round is discarded
        for name in names[number % len(names) :] + names[: number % len(names)]:
            rate = _measure(
                load, *arms[name], f"t-{number}-{names.index(name)}-{abs(hash(load)) % 10_000}", total_bytes
            )
            if number:
                rates[name].append(rate)
    print(f"{load}: {DIRECT} {statistics.median(rates[DIRECT]):.0f} MB/s", end="")
    for name in names[1:]:
        target = TARGETS[name]
        ratios = [rate / other for rate, other in zip(rates[name], rates[DIRECT], strict=True)]
        middle = statistics.median(ratios)
        verdict = "yes" if middle >= target else "NO"
        print(
            f"; {name} {middle:.2f} ({min(ratios):.2f}-{max(ratios):.2f}), target {target}: {verdict}", end=""
        )
    print(flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(str(error))
