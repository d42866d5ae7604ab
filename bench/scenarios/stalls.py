"""Latencies of a client that sends little, beside the attacks of `compat.hostile`, on each broker alike.

The client is a separate process that sends one small record, fetches it and pauses for a millisecond; its latencies are
those of both requests during the attack.
"""

from __future__ import annotations

import sys

from bench.arms import Arm
from bench.peers import Running
from bench.scenarios.base import Metric, Scenario, Target
from compat.hostile.attack import Attack, NoAnswer
from compat.hostile.attack import Target as Attacked
from compat.hostile.attacks import ATTACKS
from compat.hostile.trial import Victim, quiet_beside, run

SECONDS, QUICK_SECONDS = 3.0, 1.0
# fmt: off
CHOSEN = [
    "5000-connections", "half-frames", "full-frames-unfinished", "churn", "slow-readers",
    "pipelined-list-offsets", "pipelined-metadata", "pipelined-hello", "pipelined-fetch",
    "bulk-produce", "pipelined-small-produce", "pipelined-mixed", "zero-deltas", "zero-deltas-many-partitions",
    "bomb-gzip-v2", "bomb-zstd-v2", "recompress-to-zstd", "fetch-v11-unread", "list-offsets-by-time",
    "waiting-fetches", "maximal-arrays", "auto-created-topics", "create-9999-partitions",
    "create-and-delete", "many-groups", "compaction",
]
# fmt: on
"""Attacks that both brokers serve, one or two of each kind."""


class Stalls(Scenario):
    """One attack; the broker is a separate one if the attack has lasting effects."""

    metrics = (
        Metric("p50_ms", "p50", "ms"),
        Metric("p99_ms", "p99", "ms"),
        Metric("max_ms", "max", "ms", targets=(Target(50), Target(1.0, "kafka"))),
    )
    warmups = 1  # a JVM compiles in it
    rounds_max = 3

    def __init__(self, attack: Attack) -> None:
        self.name = f"stalls-{attack.name}"
        self.title = f"a quiet client beside {attack.sends}"
        self.attack = attack

    def serves(self, arm: Arm) -> bool:
        return arm.peer.keeps_data

    def measure(self, arm: Arm, round_number: int) -> dict[str, float]:
        if self.attack.settings:
            return self._beside(arm, arm.with_settings(dict(self.attack.settings)), round_number)
        if self.attack.leaves_state:
            with arm.fresh() as running:
                return self._beside(arm, running, round_number)
        try:
            return self._beside(arm, arm.running, round_number)
        except NoAnswer as error:  # this attack or the previous one was too much: the next gets a new broker
            print(f"  {arm.label}: the broker does not answer any more ({error})", file=sys.stderr)
            arm.stop_shared()
            return {}

    def _beside(self, arm: Arm, running: Running, round_number: int) -> dict[str, float]:
        host, _, port = running.bootstrap.rpartition(":")
        victim = Victim(host, int(port), is_own=bool(self.attack.settings))
        seconds = QUICK_SECONDS if arm.quick else SECONDS
        with quiet_beside(victim) as quiet:
            result = run(self.attack, victim, quiet, seed=round_number, seconds=seconds, is_short=arm.quick)
        for broken in result.broken:  # `make hostile` judges; here it explains a number
            print(f"  {arm.label}: {broken}", file=sys.stderr)
        if result.skipped or not result.count:
            return {}
        return {"p50_ms": result.p50_ms, "p99_ms": result.p99_ms, "max_ms": result.max_ms}


def _nothing(target: Attacked) -> None:
    target.begin()
    target.wait()


NOTHING = Attack("nothing", "nobody else", "", _nothing)
SCENARIOS: list[Scenario] = [
    Stalls(NOTHING),
    *(Stalls(attack) for attack in ATTACKS if attack.name in CHOSEN),
]
