"""`python -m bench.profile produce|fetch|latency|SCENARIO`: where a broker's time goes under one kind of load.

SCENARIO is a name that `python -m bench --list` prints, of a scenario with one broker for all rounds; they are repeated for
the seconds asked for.

The rule: the broker runs unchanged; py-spy samples it from outside. If py-spy lacks permission (no ptrace),
`--cprofile` runs it under cProfile, which skews its shares towards small functions.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from bench.arms import Arm
from bench.peers import Running
from bench.peers.barnabas import Barnabas
from bench.scenarios import ALL
from bench.scenarios.base import Scenario
from bench.scenarios.throughput import LARGE, QUEUE
from bench.tools import ROOT, BenchError, build, loadgen

MODES = ("produce", "fetch", "latency")
SECONDS = 5
RATE = 1000  # samples a second
TOP = 30
SPY_VENV = ROOT / ".tools" / "py-spy"


class _ProfiledBarnabas(Barnabas):
    """Barnabas under cProfile, which writes its numbers at the end of the process."""

    def command(self, data: Path, port: int) -> list[str]:
        return ["-m", "cProfile", "-o", f"{data}.prof", *super().command(data, port)]


def _spy() -> str:
    """py-spy, from the PATH or installed into .tools."""
    program = shutil.which("py-spy")
    if program:
        return program
    spy = SPY_VENV / "bin" / "py-spy"
    if not spy.exists():
        print("installing py-spy", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(SPY_VENV)], check=True)
        subprocess.run([str(SPY_VENV / "bin" / "pip"), "install", "--quiet", "py-spy"], check=True)
    return str(spy)


def _load(
    mode: str, running: Running, size: int, seconds: float, options: dict[str, object]
) -> dict[str, float]:
    topic = "profiled"
    if mode == "latency":
        return loadgen(
            mode, running.bootstrap, client={"acks": 1}, topic=topic, size=size, count=int(seconds * 10_000)
        )
    client = {**QUEUE, "acks": 1, **options}
    if mode == "produce":
        return loadgen(mode, running.bootstrap, client=client, topic=topic, size=size, seconds=seconds)
    count = int(seconds * 1.5e9 / max(size, 300))
    return loadgen("consume", running.bootstrap, client=options, topic=topic, size=size, count=count)


def _prepare(mode: str, running: Running, size: int, seconds: float) -> None:
    running.create_topic("profiled")
    if mode == "fetch":
        count = int(seconds * 1.5e9 / max(size, 300)) + 1000
        loadgen(
            "produce", running.bootstrap, client={**QUEUE, **LARGE}, topic="profiled", size=size, count=count
        )
    else:
        _load(mode, running, size, 1, {})


def _print_samples(raw: Path) -> None:
    """Self and total shares of each function, from py-spy's collapsed stacks."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    samples = 0
    for line in raw.read_text().splitlines():
        stack, count = line.rsplit(" ", 1)
        frames = stack.split(";")
        samples += int(count)
        own[frames[-1]] += int(count)
        for frame in set(frames):
            total[frame] += int(count)
    print(f"{samples} samples\n{'self':>7}{'total':>7}  function (file:line)")
    for frame, hits in own.most_common(TOP):
        print(f"{hits / samples:7.1%}{total[frame] / samples:7.1%}  {frame}")
    print(f"\n{'total':>7}  function")
    for frame, hits in total.most_common(TOP):
        print(f"{hits / samples:7.1%}  {frame}")


def _measured(scenario: Scenario, arm: Arm, seconds: float) -> str:
    """Repeat a scenario's rounds; returns the figures of the last."""
    until, number = time.monotonic() + seconds, 0
    while True:
        figures = scenario.measure(arm, number)
        number += 1
        if time.monotonic() >= until:
            return ", ".join(f"{key} {value:,.1f}" for key, value in figures.items())


@contextmanager
def _loaded(
    arguments: argparse.Namespace, arm: Arm, options: dict[str, object]
) -> Iterator[tuple[Running, Callable[[], object]]]:
    """Yield a warm broker, and the function that loads it."""
    scenario = next((scenario for scenario in ALL if scenario.name == arguments.mode), None)
    if scenario is None:
        with arm.fresh() as running:
            _prepare(arguments.mode, running, arguments.size, arguments.seconds)
            yield running, lambda: _load(arguments.mode, running, arguments.size, arguments.seconds, options)
        return
    scenario.prepare(arm)
    try:
        scenario.measure(arm, -1)
        yield arm.running, lambda: _measured(scenario, arm, arguments.seconds)
    finally:
        scenario.finish(arm)
        arm.stop_shared()


def _profile(arguments: argparse.Namespace, arm: Arm, options: dict[str, object]) -> None:
    with _loaded(arguments, arm, options) as (running, load):
        if arguments.cprofile:
            print(load())
            profile = f"{running.data}.prof"
        else:
            raw = running.data.with_name("samples")
            command = [_spy(), "record", "--format", "raw", "--rate", str(RATE), "--output", str(raw)]
            command += ["--duration", "3600", "--pid", str(running.pid)]
            command += ["--native"] if arguments.native else []
            command += [] if arguments.lines else ["--function"]
            spy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            print(load())
            spy.send_signal(signal.SIGINT)
            if spy.wait(60) or not raw.exists():
                assert spy.stderr is not None
                raise BenchError(f"py-spy failed; try --cprofile:\n{spy.stderr.read().decode()}")
            _print_samples(raw)
            return
    import pstats

    pstats.Stats(profile).sort_stats("tottime").print_stats(TOP)


def main(argv: list[str] | None = None) -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("mode", choices=[*MODES, *(scenario.name for scenario in ALL)], metavar="MODE")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a record")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--native", action="store_true", help="C functions too (slows the broker down)")
    parser.add_argument("--lines", action="store_true", help="tell lines apart, not only functions")
    parser.add_argument("--cprofile", action="store_true", help="use cProfile instead of py-spy")
    parser.add_argument("-X", action="append", default=[], metavar="NAME=VALUE", help="librdkafka settings")
    arguments = parser.parse_args(argv)
    build()
    directory = ROOT / ".data" / f"profile-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    peer = (_ProfiledBarnabas if arguments.cprofile else Barnabas)("barnabas", {}, None)
    arm = Arm(peer, directory, quick=False)
    try:
        _profile(arguments, arm, dict(pair.split("=", 1) for pair in arguments.X))
    except BenchError as error:
        print(f"bench.profile: {error}\n{arm.outputs()}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
