"""`make fuzz`: hostile input for every target, round after round, until it is stopped or so much was sent.

python -m compat.fuzz                          # all targets in turn, without end
python -m compat.fuzz login --count 1000000    # one target, so many inputs
python -m compat.fuzz --seconds 60             # all together for a minute
python -m compat.fuzz login --seed 7 --rounds 1    # repeat a round
python -m compat.fuzz --list
"""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from compat.fuzz import live, pure, requests, simulated
from compat.fuzz.target import Finding, RunRound, Target

TARGETS: list[Target] = [*simulated.TARGETS, *live.TARGETS, requests.TARGET, *pure.TARGETS]
ROUND_INPUTS = 20_000
FOUND = Path(__file__).resolve().parents[2] / ".data" / "fuzz"


@dataclass
class Running:
    """A running target: the number of inputs so far, and the findings."""

    target: Target
    run_round: RunRound
    close: Callable[[], list[Finding]]
    inputs: int = 0
    rounds: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)


def main(argv: list[str]) -> int:
    """Run; returns 1 if anything was found."""
    parser = argparse.ArgumentParser(
        prog="python -m compat.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="only these (patterns allowed)")
    parser.add_argument(
        "--seed", type=int, default=None, help="of the first round; the next one's is one more"
    )
    parser.add_argument("--count", type=int, default=0, help="inputs of each target, at least")
    parser.add_argument("--rounds", type=int, default=0, help="rounds of each target")
    parser.add_argument("--seconds", type=float, default=0, help="for all together")
    parser.add_argument("--inputs", type=int, default=ROUND_INPUTS, help=f"of a round ({ROUND_INPUTS})")
    parser.add_argument("--found", type=Path, default=FOUND, help="where inputs go that show something")
    parser.add_argument("--list", action="store_true", help="list the targets")
    options = parser.parse_args(argv)
    chosen = [
        candidate
        for candidate in TARGETS
        if not options.targets or any(fnmatch(candidate.name, name) for name in options.targets)
    ]
    if options.list or not chosen:
        for candidate in TARGETS:
            print(f"{candidate.name:16}{candidate.takes}")
        return 0 if options.list else 2
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    seed = random.randrange(2**32) if options.seed is None else options.seed
    ends = time.monotonic() + options.seconds if options.seconds else float("inf")
    running = [Running(target, *target.open()) for target in chosen]
    try:
        while running and time.monotonic() < ends:
            for run in list(running):
                if _is_done(run, options.count, options.rounds) or time.monotonic() >= ends:
                    continue
                _play(run, seed + run.rounds, options.inputs, options.found)
            if all(_is_done(run, options.count, options.rounds) for run in running):
                break
    except KeyboardInterrupt:
        print("stopped")
    findings = 0
    for run in running:
        last = run.close()
        _report(run, seed, last, options.found)
        run.findings += last
        findings += len(run.findings)
        rate = run.inputs / run.seconds if run.seconds else 0
        print(
            f"{run.target.name:16}{run.inputs:>12,} inputs{rate:>10,.0f}/s  {len(run.findings)} findings",
            flush=True,
        )
    return 1 if findings else 0


def _is_done(run: Running, count: int, rounds: int) -> bool:
    """Return whether a target has had enough inputs or rounds; False without a bound."""
    return bool((count and run.inputs >= count) or (rounds and run.rounds >= rounds))


def _play(run: Running, seed: int, inputs: int, directory: Path) -> None:
    began = time.monotonic()
    result = run.run_round(random.Random(f"{seed} {run.target.name}"), inputs)
    run.seconds += time.monotonic() - began
    run.rounds += 1
    run.inputs += result.inputs
    _report(run, seed, result.findings, directory)
    run.findings += result.findings


def _report(run: Running, seed: int, findings: list[Finding], directory: Path) -> None:
    for finding in findings:
        print(f"{run.target.name} --seed {seed}: {finding.text}", flush=True)
        if finding.data:
            directory.mkdir(parents=True, exist_ok=True)
            name = f"{run.target.name}-{hashlib.sha256(finding.data).hexdigest()[:12]}"
            (directory / name).write_bytes(finding.data)
            print(f"    {len(finding.data)} bytes in {directory / name}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
