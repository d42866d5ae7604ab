"""Logins and TLS on Apache Kafka and on Barnabas: python -m compat.security.mechanisms [--only REGEX].

The exit code is 1 when a client sees something else in a way that is not known.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from compat.kafka import KafkaError
from compat.kit import examples
from compat.kit.known import Difference, differences_of, judge
from compat.kit.sides import StartError
from compat.kit.wire import WireError
from compat.security.mechanisms import again, oauth, plain, scram, tls, turns
from compat.security.mechanisms.known_differences import KNOWN
from compat.security.mechanisms.scenarios import Act, Scenario
from compat.security.mechanisms.sides import Secured, both

SUBJECTS: Mapping[str, Callable[[], Iterator[Scenario]]] = {
    "plain": plain.scenarios,
    "scram": scram.scenarios,
    "oauth": oauth.scenarios,
    "turns": turns.scenarios,
    "again": again.scenarios,
    "tls": tls.scenarios,
}
SCENARIOS_CONCURRENT = 16
REPEATED_CONCURRENT = 4
"""A scenario that differs is run again among few others: brokers that are busy answer late."""


def compared(scenario: Scenario, sides: tuple[Secured, Secured]) -> tuple[list[Difference], int]:
    """Run a scenario with both; returns the differences, and how much was noted."""

    def with_one(side: Secured) -> dict[str, object]:
        act = Act(side)
        try:
            scenario.act(act)
        except (AssertionError, KeyError, TypeError, ValueError, OSError) as error:
            act.notes["the scenario breaks off"] = f"{type(error).__name__}: {error}"
        finally:
            act.close()
        return act.notes

    with ThreadPoolExecutor(2) as pool:
        theirs, ours = pool.map(with_one, sides)
    differences = [
        values
        for label in dict.fromkeys((*theirs, *ours))
        for values in differences_of(
            f"{scenario.name}: {label}", theirs.get(label, "nothing"), ours.get(label, "nothing")
        )
    ]
    return differences, len(theirs)


def compare(
    scenarios: Iterable[Scenario], sides: tuple[Secured, Secured], repeats: int
) -> tuple[list[Difference], int]:
    """Run all scenarios, and those that differ again; returns the differences, and how much was noted."""
    all_scenarios = list(scenarios)
    with ThreadPoolExecutor(SCENARIOS_CONCURRENT) as pool:
        results = list(pool.map(lambda scenario: compared(scenario, sides), all_scenarios))
    for _ in range(repeats):
        again = [number for number, (differing, _) in enumerate(results) if not all(map(is_known, differing))]
        with ThreadPoolExecutor(REPEATED_CONCURRENT) as pool:
            repeated = pool.map(lambda number: compared(all_scenarios[number], sides), again)
            for number, result in zip(again, repeated, strict=True):
                results[number] = result
    differences = [difference for differing, _ in results for difference in differing]
    return differences, sum(count for _, count in results)


def is_known(difference: Difference) -> bool:
    """Return whether a difference is in the list."""
    return any(one.covers(difference) for one in KNOWN)


def main() -> int:
    """Compare; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.security.mechanisms", description=__doc__)
    parser.add_argument("--version", default="4.x", help="which Kafka (default: the newest here)")
    parser.add_argument("--subject", action="append", choices=SUBJECTS, help="only this one; may be repeated")
    parser.add_argument("--only", default="", metavar="REGEX", help="only scenarios whose name matches")
    parser.add_argument(
        "--repeats", type=int, default=2, help="how often a scenario that differs is run again"
    )
    parser.add_argument("--each", action="store_true", help="show every difference, not one of each kind")
    examples.add_option(parser)
    options = parser.parse_args()
    names = options.subject or list(SUBJECTS)
    scenarios = [
        scenario for name in names for scenario in SUBJECTS[name]() if re.search(options.only, scenario.name)
    ]
    begun = time.monotonic()
    try:
        with both(options.version) as sides:
            differences, notes = compare(scenarios, sides, options.repeats)
    except (KafkaError, StartError, WireError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.keep_examples:
        examples.keep("mechanisms", differences, KNOWN)
    bad = judge(
        differences, KNOWN, complete=not options.subject and not options.only, together=not options.each
    )
    print(
        f"{len(scenarios)} scenarios, {notes} looks, {len(differences)} differences, {bad} of them not as known; "
        f"{time.monotonic() - begun:.0f} s"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
