"""`make hostile`: every attack on a broker, a table, and exit code 1 when a promise was broken.

See the README beside this file.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from compat.hostile.attack import Attack, NoAnswer, PeerClosed
from compat.hostile.attacks import ATTACKS
from compat.hostile.trial import Result, Victim, quiet_beside, run
from compat.kafka import KafkaError
from compat.matrix.brokers import ApacheKafka, Barnabas, BrokerError

SECONDS, SHORT_SECONDS = 4.0, 0.4
SETTINGS = {
    "log.segment.delete.delay.ms": "60000",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
}


def main(argv: list[str]) -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.hostile", description=__doc__)
    parser.add_argument("attacks", nargs="*", metavar="NAME", help="only these (patterns allowed)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0, help="repeat with other seeds for so long")
    parser.add_argument("--short", action="store_true", help="less state and less time for each")
    parser.add_argument(
        "--against", default="", metavar="HOST:PORT", help="a broker that runs, or kafka, kafka-3.9"
    )
    parser.add_argument("--list", action="store_true", help="list the attacks")
    options = parser.parse_args(argv)
    chosen = [
        attack
        for attack in ATTACKS
        if not options.attacks or any(fnmatch(attack.name, p) for p in options.attacks)
    ]
    if options.list or not chosen:
        for attack in ATTACKS:
            print(f"{attack.name:32}{attack.sends}")
        return 0 if options.list else 2
    _allow_open_files()
    directory = Path(tempfile.mkdtemp(prefix="barnabas-hostile-"))
    began, seed, broken = time.monotonic(), options.seed, 0
    try:
        while True:
            print(f"seed {seed}, {len(chosen)} attacks, output in {directory}", flush=True)
            broken += _round(chosen, options.against, directory, seed, is_short=options.short)
            seed += 1
            if time.monotonic() - began > options.minutes * 60:
                break
    except (BrokerError, KafkaError, RuntimeError, PeerClosed, NoAnswer, OSError) as error:
        print(f"error: {error}")
        return 1
    print(f"{broken} attacks broke a promise, {time.monotonic() - began:.0f} s")
    if not broken:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if broken else 0


def _round(chosen: list[Attack], against: str, directory: Path, seed: int, *, is_short: bool) -> int:
    """Every chosen attack once; returns how many broke a promise."""
    print(HEAD, flush=True)
    seconds = SHORT_SECONDS if is_short else SECONDS
    waiting = sorted(chosen, key=lambda attack: (attack.settings, attack.leaves_state))  # few brokers
    broken = 0
    while waiting:
        with _victim(against, directory, dict(waiting[0].settings)) as victim, quiet_beside(victim) as quiet:
            settings = waiting[0].settings
            while waiting and waiting[0].settings == settings:
                attack = waiting.pop(0)
                result = run(attack, victim, quiet, seed=seed, seconds=seconds, is_short=is_short)
                print(row(result), flush=True)
                broken += bool(result.broken)
                if (attack.leaves_state or result.broken) and not result.skipped:
                    break
    return broken


@contextmanager
def _victim(against: str, directory: Path, settings: dict[str, str]) -> Iterator[Victim]:
    """A broker to attack. Raises BrokerError, KafkaError."""
    if ":" in against:
        host, _, port = against.rpartition(":")
        yield Victim(host.strip("[]"), int(port), is_own=False)
        return
    place = Path(tempfile.mkdtemp(dir=directory))
    values = {**SETTINGS, **settings}
    broker: ApacheKafka | Barnabas
    if against.startswith("kafka"):
        values.pop("metrics.listener", None)
        broker = ApacheKafka(place, against.removeprefix("kafka").lstrip("-") or "4.x", values)
    else:
        broker = Barnabas(place, values)
    broker.start()
    try:
        host, _, port = broker.bootstrap.rpartition(":")
        if isinstance(broker, Barnabas):
            yield Victim(host, int(port), broker.pid, broker.log, broker.metrics)
        else:
            yield Victim(host, int(port))
    finally:
        try:
            broker.stop()
        except BrokerError as error:
            print(f"after the last attack: {error}", flush=True)
        shutil.rmtree(place / "data", ignore_errors=True)


HEAD = (
    f"{'attack':32}{'quiet: requests':>16}{'p50 ms':>8}{'p99 ms':>9}{'max ms':>9}"
    f"{'MB before':>10}{'peak':>6}{'after':>6}{'log KB':>7}{'s':>6}  verdict"
)


def row(result: Result) -> str:
    """One line of the table."""
    name = f"{result.attack.name:32}"
    if result.skipped:
        return f"{name}skipped: {result.skipped}"
    verdict = "; ".join(result.broken) or "ok"
    return (
        f"{name}{result.count:>16}{result.p50_ms:>8.2f}{result.p99_ms:>9.2f}{result.max_ms:>9.1f}"
        f"{result.rss_before_mb:>10.0f}{result.rss_peak_mb:>6.0f}{result.rss_after_mb:>6.0f}"
        f"{result.log_bytes / 1024:>7.0f}{result.seconds:>6.1f}  {verdict}"
    )


def _allow_open_files() -> None:
    """As many sockets as the system lets this process have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
