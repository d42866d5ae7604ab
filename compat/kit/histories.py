"""Random histories of requests, run on two brokers concurrently, and the first difference of their responses.

    def history(run: HistoryRun) -> None:
        with run.connect() as connection:
            for number, random in run.steps(8, 30):
                run.note("produce", connection.ask("Produce", 9, ...))

    main("compat.log.histories", __doc__, SETTINGS, {"plain": history}, KNOWN)

The rule: the random choices of a step depend only on the seed, the kind of history and the number of the step, never on a
response. Only the first unknown difference of a history is shown: others may follow from it. Such a history is run again
before it counts, since busy brokers respond late. A seed repeats its history.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from random import Random
from typing import Any, NoReturn

from compat.kafka import KafkaError
from compat.kit.known import Difference, KnownDifference, differences_between, judge
from compat.kit.sides import Side, StartError, both
from compat.kit.wire import Connection, Values, WireError

SETTLE_S = 10.0
POLL_S = 0.05
AGAIN = 1
"""Number of times that a history that differs is run again."""
SHOWN_BEFORE = 8
"""Answers that are shown before a difference."""
COMING = (3, 6, 14, 15, 16, 51)
"""Codes of transient errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, those of loading coordinators, and
CONCURRENT_TRANSACTIONS."""


@dataclass
class HistoryRun:
    """A history on one broker: its random choices, and the notes on responses, in order."""

    side: Side
    name: str
    seed: str
    notes: list[tuple[str, Any]] = field(default_factory=list)
    _connections: list[Connection] = field(default_factory=list)

    def random(self, what: object) -> Random:
        """Return a random generator that depends on the history and on `what`."""
        return Random(f"{self.seed} {what}")

    def steps(self, least: int, most: int) -> Iterator[tuple[int, Random]]:
        """Yield the number of each step with its draws; the history has `least` to `most` of them."""
        for number in range(self.random("steps").randint(least, most)):
            yield number, self.random(number)

    def note(self, label: str, *values: Any) -> None:
        """Store values of a response for the comparison."""
        self.notes.append((label, list(values)))

    def connect(self) -> Connection:
        """Return a new connection, closed when the history ends."""
        self._connections.append(self.side.connect())
        return self._connections[-1]

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            connection.close()


History = Callable[[HistoryRun], None]


def settled(ask: Callable[[], Any], code_of: Callable[[Any], int]) -> Any:
    """Repeat a request until its code is not transient; returns the last response after 10 s."""
    give_up = time.monotonic() + SETTLE_S
    while True:
        answer = ask()
        if code_of(answer) not in COMING or time.monotonic() > give_up:
            return answer
        time.sleep(POLL_S)


def create_topic(connection: Connection, name: str, settings: Mapping[str, str]) -> int:
    """Create a topic of one partition, wait for its leader, and return the error code."""
    configs = [{"Name": key, "Value": value} for key, value in settings.items()]
    topic = {"Name": name, "NumPartitions": 1, "ReplicationFactor": 1, "Configs": configs}
    answer = connection.ask("CreateTopics", 5, {"Topics": [topic], "timeoutMs": 9000})
    settled(
        lambda: described_topic(connection, name), lambda described: described["Partitions"][0]["ErrorCode"]
    )
    code: int = answer["Topics"][0]["ErrorCode"]
    return code


def described_topic(connection: Connection, name: str) -> Values:
    """Return a topic's entry in Metadata; a partition with UNKNOWN_TOPIC_OR_PARTITION while it does not exist."""
    asked = {"Topics": [{"Name": name}], "AllowAutoTopicCreation": False}
    topic: Values = connection.ask("Metadata", 12, asked)["Topics"][0]
    return topic if topic["Partitions"] else topic | {"Partitions": [{"ErrorCode": 3}]}


def await_coordinator(connection: Connection, key: str, kind: int) -> None:
    """Wait until a group (`kind` 0) or a transactional id (1) has its coordinator."""
    settled(
        lambda: connection.ask("FindCoordinator", 4, {"KeyType": kind, "CoordinatorKeys": [key]}),
        lambda answer: answer["Coordinators"][0]["ErrorCode"],
    )


def run_history(history: History, sides: Sequence[Side], kind: str, seed: int, turn: int) -> list[HistoryRun]:
    """Run one history on both brokers concurrently."""
    name = f"{kind}-{seed}-{turn}".replace(" ", "-")
    runs = [HistoryRun(side, name, f"{kind} {seed}") for side in sides]

    def act(run: HistoryRun) -> None:
        try:
            history(run)
        except (KeyError, IndexError, TypeError, ConnectionError, WireError) as error:
            run.note("the history breaks off", f"{type(error).__name__}: {error}")
        finally:
            run.close()

    with ThreadPoolExecutor(len(runs)) as pool:
        list(pool.map(act, runs))
    return runs


def compared(
    kind: str, seed: int, runs: Sequence[HistoryRun], known_differences: Sequence[KnownDifference]
) -> tuple[list[Difference], Difference | None]:
    """Return the known differences between both sides before the first unknown one, and the latter."""
    theirs, ours = (run.notes for run in runs)
    nothing: tuple[str, Any] = ("the end", [])
    covered = []
    for number in range(max(len(theirs), len(ours))):
        pair = [notes[number] if number < len(notes) else nothing for notes in (theirs, ours)]
        label = f"{kind}, seed {seed}: {pair[0][0]}"
        for values in differences_between("", *map(list, pair)):
            difference = Difference(label, *values, whole=(pair[0], pair[1]), step=str(number))
            if not any(row.covers(difference) for row in known_differences):
                return covered, difference
            covered.append(difference)
    return covered, None


def show(difference: Difference, runs: Sequence[HistoryRun]) -> None:
    """Print the notes before a difference, and both values."""
    number = int(difference.step)
    for label, values in runs[0].notes[max(number - SHOWN_BEFORE, 0) : number]:
        print(f"    {label}: {values}")
    for run, (label, values) in zip(runs, difference.whole, strict=True):
        print(f"    {run.side.name}: {label}: {values}")


def main(
    prog: str,
    doc: str | None,
    settings: Mapping[str, str],
    histories: Mapping[str, History],
    known_differences: Sequence[KnownDifference],
    *,
    count: int,
) -> NoReturn:
    """Compare `count` histories of each kind, and end the process: with 1 when there is a difference that is not known."""
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=doc)
    parser.add_argument("--version", default="4.x", help="which Kafka (default: the newest here)")
    parser.add_argument("--kind", action="append", choices=histories, help="only this one; may be repeated")
    parser.add_argument("--count", type=int, default=count, help=f"histories of each kind (default: {count})")
    parser.add_argument(
        "--seed",
        type=int,
        default=int(date.today().strftime("%Y%m%d")),
        help="the first seed (default: the day)",
    )
    options = parser.parse_args()
    kinds = options.kind or list(histories)
    seeds = range(options.seed, options.seed + options.count)
    differences: list[Difference] = []
    answers = 0
    try:
        with both(settings, options.version) as sides:
            for kind in kinds:
                for seed in seeds:
                    for turn in range(1 + AGAIN):
                        runs = run_history(histories[kind], sides, kind, seed, turn)
                        covered, unknown = compared(kind, seed, runs, known_differences)
                        if unknown is None:
                            break
                    answers += len(runs[0].notes)
                    differences += covered
                    if unknown is not None:
                        differences.append(unknown)
                        show(unknown, runs)
    except (KafkaError, StartError) as error:
        sys.exit(f"error: {error}")
    bad = judge(differences, known_differences, complete=False)
    print(
        f"{len(kinds) * len(seeds)} histories of {', '.join(kinds)} from seed {options.seed}, {answers} answers, "
        f"{len(differences)} differences, {bad} of them not as known"
    )
    sys.exit(1 if bad else 0)
