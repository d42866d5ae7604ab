"""Groups and transactions, state by state, on Apache Kafka and on Barnabas: python -m compat.groups.compare.

The exit code is 1 when an answer differs in a way that is not known.
"""

from __future__ import annotations

import argparse
import re
import sys
import time

from compat.groups import classic, forgotten, members, offsets, sequences, transactions
from compat.groups.known_differences import KNOWN
from compat.kafka import KafkaError, release
from compat.kit import examples
from compat.kit.known import judge
from compat.kit.scenarios import common_versions, compare
from compat.kit.sides import NEWEST, Side, StartError, both

SUBJECTS = {
    "classic": classic.scenarios,
    "offsets": offsets.scenarios,
    "forgotten": forgotten.scenarios,
    "members": members.scenarios,
    "transactions": transactions.scenarios,
    "sequences": sequences.scenarios,
}
SETTINGS = {
    "num.partitions": "3",
    "group.max.size": "3",
    "group.consumer.max.size": "3",
    "group.streams.max.size": "3",
    "group.share.max.size": "3",
    # Kafka would batch assignments for a second; 0 makes them immediate, so that the order of events is the same.
    "group.consumer.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "group.streams.initial.rebalance.delay.ms": "0",
}


UNSTABLE = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}
"""Of the newest release: InitProducerId v6 (KIP-939)."""
COMING = (14, 15, 16)
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""


def await_coordinators(side: Side) -> None:
    """Have the internal topics made, and wait until every partition of them has its coordinator."""
    names = [f"waiting-{number}" for number in range(32)]
    give_up = time.monotonic() + 60
    with side.connect() as connection:
        for kind in (0, 1):
            values = {"KeyType": kind, "CoordinatorKeys": names}
            while any(
                described["ErrorCode"]
                for described in connection.ask("FindCoordinator", 4, values)["Coordinators"]
            ):
                if time.monotonic() > give_up:
                    raise StartError(f"{side.name} has no coordinators")
                time.sleep(0.1)
        while any(
            code in COMING
            for group in names
            for code in (
                connection.ask("Heartbeat", 4, {"GroupId": group})["ErrorCode"],
                connection.ask("InitProducerId", 4, {"TransactionalId": group, "TransactionTimeoutMs": 1000})[
                    "ErrorCode"
                ],
            )
        ):
            if time.monotonic() > give_up:
                raise StartError(f"{side.name} has no coordinators")
            time.sleep(0.1)


def main() -> int:
    """Compare; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.groups.compare", description=__doc__)
    parser.add_argument("--version", default="4.x", help="which Kafka (default: the newest here)")
    parser.add_argument("--subject", action="append", choices=SUBJECTS, help="only this one; may be repeated")
    parser.add_argument("--only", default="", metavar="REGEX", help="only scenarios whose name matches")
    parser.add_argument("--all-versions", action="store_true", help="not only the newest and the oldest")
    parser.add_argument(
        "--each", action="store_true", help="show every difference, not only one of each kind"
    )
    examples.add_option(parser)
    options = parser.parse_args()
    subjects = options.subject or list(SUBJECTS)
    chosen = [
        scenario
        for name in subjects
        for scenario in SUBJECTS[name]()
        if re.search(options.only, scenario.name)
    ]
    scenarios = [scenario if options.all_versions else scenario.at_the_ends() for scenario in chosen]
    started = time.monotonic()
    is_old = options.version.startswith("3")  # it has other bounds for groups of members with epochs
    settings = {key: value for key, value in SETTINGS.items() if not (is_old and ".share." in key)}
    if release(options.version).name == NEWEST:
        settings |= UNSTABLE
    with both(settings, options.version) as (kafka, barnabas):
        for side in (kafka, barnabas):
            await_coordinators(side)
        versions = common_versions(kafka, barnabas)
        result = compare(scenarios, kafka, barnabas, KNOWN, versions)
    if options.keep_examples:
        examples.keep("groups", result.differences, KNOWN)
    all_asked = not options.only and not options.subject
    bad = judge(result.differences, KNOWN, complete=all_asked, together=not options.each)
    print(
        f"{result.scenarios} scenarios, {result.answers} answers, {len(result.differences)} differences, "
        f"{bad} of them not as known; {time.monotonic() - started:.0f} s"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KafkaError, StartError) as error:
        sys.exit(f"error: {error}")
