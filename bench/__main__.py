"""`python -m bench`: measure Barnabas side by side with its peers; a table, and all values as JSON."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from bench.arms import Arm
from bench.peers import Peer, parse_peer
from bench.procfs import describe_machine
from bench.report import table, write_json
from bench.rounds import FAILURES, Outcome, run_scenario
from bench.scenarios import ALL, choose
from bench.tools import ROOT, BenchError, UnavailablePeerError, build

ROUNDS, QUICK_ROUNDS = 5, 2
PEERS = "barnabas,kafka,mock,kfake,tansu"


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="shorter runs, two rounds: numbers to look at, not to keep"
    )
    parser.add_argument(
        "--scenario", action="append", default=[], metavar="NAME", help="only these (patterns allowed)"
    )
    parser.add_argument(
        "--peers", default=PEERS,
        help="name[=label][@checkout or version][+setting=value]...; ratios are those of the first",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, help=f"measured rounds (default {ROUNDS})")
    parser.add_argument(
        "--data", type=Path, default=ROOT / ".data", metavar="DIR",
        help="where the brokers keep their data; a tmpfs (/dev/shm) takes the disk out of the comparison",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value there")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run; returns the exit code."""
    arguments = _arguments(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: terminated"))  # no broker is left behind
    if arguments.list:
        for scenario in ALL:
            print(f"{scenario.name:24}{scenario.title}")
        return 0
    try:
        return _run(arguments)
    except FAILURES as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1


def _run(arguments: argparse.Namespace) -> int:
    scenarios = choose(arguments.scenario)
    peers = _peers(arguments.peers)
    labels = [peer.label for peer in peers]
    if len(set(labels)) != len(labels):
        raise BenchError("two peers have the same name; label them: barnabas=before@../old")
    build()
    rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else ROUNDS)
    machine = describe_machine()
    directory = arguments.data.resolve() / f"bench-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    arms = [Arm(peer, directory, quick=arguments.quick) for peer in peers]
    outcomes: list[Outcome] = []
    failed: list[str] = []
    try:
        for scenario in scenarios:
            print(scenario.title, file=sys.stderr, flush=True)
            begun = time.monotonic()
            try:
                outcomes.append(run_scenario(scenario, arms, rounds, _say))
            except FAILURES as error:
                failed.append(f"{scenario.name}: {error}")
                for arm in arms:
                    _say(arm.outputs())
                    arm.stop_shared()  # the others are measured with fresh brokers
                _say(f"bench: {failed[-1]}")
            _say(f"  ({time.monotonic() - begun:.0f} s)")
    except BaseException:
        for arm in arms:
            _say(arm.outputs())
        raise
    finally:
        for arm in arms:
            arm.stop_shared()
        shutil.rmtree(directory, ignore_errors=True)
        described = {peer.label: peer.describe() for peer in peers}
        _print(outcomes, described, machine, rounds, with_targets=peers[0].has_targets)
        if arguments.json:
            write_json(arguments.json, outcomes, described, machine)
    for outcome in outcomes:
        for label, reason in outcome.missing.items():
            _say(f"bench: not measured: {outcome.scenario.name} of {label}: {reason}")
    for failure in failed:
        print(f"bench: not measured: {failure}", file=sys.stderr)
    return 1 if failed else 0


def _peers(specs: str) -> list[Peer]:
    """Return the peers; prints the unavailable ones, and skips them. Raises BenchError."""
    peers = []
    for spec in specs.split(","):
        try:
            peers.append(parse_peer(spec))
        except UnavailablePeerError as error:
            _say(f"bench: without {spec}: {error}")
    return peers


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print(
    outcomes: list[Outcome],
    peers: dict[str, str],
    machine: dict[str, str],
    rounds: int,
    *,
    with_targets: bool,
) -> None:
    if not outcomes:
        return
    print(f"{datetime.now(UTC):%Y-%m-%d}, " + ", ".join(f"{name} {value}" for name, value in machine.items()))
    for label, description in peers.items():
        print(f"- {label}: {description}")
    print(f"\nMedians of up to {rounds} rounds; ratios are medians (and spans) of those within each round.\n")
    print(table(outcomes, list(peers), with_targets=with_targets))


if __name__ == "__main__":
    sys.exit(main())
