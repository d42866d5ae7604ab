"""Scenarios run against two brokers: a few clients, some of which wait, and all of their responses.

    def first_join(run: ScenarioRun) -> None:
        run.ask("anna joins", "JoinGroup", "anna", GroupId=run.group, ...)

    differences = compare([Scenario("first join", first_join)], kafka, barnabas)

The rule: a scenario uses values of its responses, such as member ids, and its own names, so that scenarios do not
interfere; random values are compared by the order of first occurrence. A scenario that differs is run again with few others
before it counts: busy brokers respond late.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from compat.kit.forms import Forms
from compat.kit.known import Difference, KnownDifference, differences_between
from compat.kit.sides import Side
from compat.kit.wire import Connection, Values, WireError

ANSWER_WITHIN_S = 0.3
"""Time after which a request without an answer counts as waiting for something else to happen."""
SETTLE_S = 10.0
AGAIN = 1
"""Number of times that a scenario that differs is run again."""
SCENARIOS_CONCURRENT = 12
AGAIN_CONCURRENT = 4
RANDOM_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|^[A-Za-z0-9_-]{22}$")


class ScenarioError(Exception):
    """A scenario cannot continue after a response."""


Versions = dict[str, tuple[int, int]]
"""By API the oldest and newest version that both brokers serve."""


@dataclass(frozen=True)
class Scenario:
    """A scenario, run in the newest version of each API, and in versions that are `backs` older."""

    name: str
    act: Callable[[ScenarioRun], None]
    backs: Sequence[int] = (0,)

    def at_the_ends(self) -> Scenario:
        """The same in the newest version and the oldest alone."""
        return Scenario(self.name, self.act, sorted({self.backs[0], self.backs[-1]}))


@dataclass
class Pending:
    """A request without an answer yet."""

    label: str
    api: str
    version: int
    connection: Connection
    is_open: bool = True


@dataclass
class ScenarioRun:
    """A scenario on one broker: sends requests, and stores responses by label."""

    side: Side
    name: str
    back: int
    versions: Versions
    answers: dict[str, Any] = field(default_factory=dict)
    requests: int = 0
    _random: dict[str, str] = field(default_factory=dict)
    _topics: dict[bytes, str] = field(default_factory=dict)
    _forms: Forms = field(init=False)
    _open: list[Connection] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._forms = Forms(self.side.ports)
        for topic_id, name in self._topics.items():
            self._forms.learn({"TopicId": topic_id, "Name": name})

    @property
    def group(self) -> str:
        """A group's name, or a transactional id, that is this scenario's alone."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()) + f"-{self.back}"

    def version(self, api: str) -> int:
        """The version of an API that this run speaks."""
        oldest, newest = self.versions[api]
        return max(oldest, newest - self.back)

    # --- asking ---------------------------------------------------------------------------------------------

    def ask(
        self, label: str, api: str, who: str = "kit", *, version: int | None = None, **values: Any
    ) -> Values:
        """Ask as a client id and keep the answer."""
        return self.end(self.begin(label, api, who, version=version, within_s=0, **values))

    def begin(
        self,
        label: str,
        api: str,
        who: str = "kit",
        *,
        version: int | None = None,
        within_s: float = ANSWER_WITHIN_S,
        **values: Any,
    ) -> Pending:
        """Send a request, and wait a while for a response, which `end` returns."""
        self.requests += 1
        connection = self.side.connect(who)
        self._open.append(connection)
        version = self.version(api) if version is None else version
        connection.send(api, version, values)
        connection.is_answered(within_s)
        return Pending(label, api, version, connection)

    def end(self, pending: Pending) -> Values:
        """Wait for the response and return it. A closed connection, or a timeout, counts as a response, too."""
        try:
            answer = pending.connection.receive(pending.api, pending.version)
        except WireError as error:
            answer = {"connection": str(error)}
        pending.connection.close()
        pending.is_open = False
        self.note(pending.label, answer)
        return answer

    def waits(self, pending: Pending) -> bool:
        """Return whether a response is pending; noted for the comparison."""
        waits = not pending.connection.is_answered(0)
        self.note(f"{pending.label}: must wait", waits)
        return waits

    def until(
        self, label: str, api: str, is_so: Callable[[Values], bool], who: str = "kit", **values: Any
    ) -> Values:
        """Ask again until it is so, or for too long; the last answer is kept."""
        give_up = time.monotonic() + SETTLE_S
        while True:
            before = len(self.answers)
            answer = self.ask(label, api, who, **values)
            if is_so(answer) or time.monotonic() > give_up:
                return answer
            for tried in list(self.answers)[before:]:
                del self.answers[tried]
            time.sleep(0.05)

    def note(self, label: str, what: Any) -> None:
        """Keep something for the comparison."""
        count = sum(key.split(" #")[0] == label for key in self.answers)
        self.answers[f"{label} #{count + 1}" if count else label] = self._normal(what)

    def close(self) -> None:
        """Close open connections."""
        for connection in self._open:
            connection.close()

    # --- topics ---------------------------------------------------------------------------------------------

    def topic(self, name: str, partitions: int = 3) -> bytes:
        """A topic of that name, made if it is not there; returns its id."""
        topic = {"Name": name, "NumPartitions": partitions, "ReplicationFactor": 1}
        self.look("CreateTopics", 5, Topics=[topic], timeoutMs=9000)
        give_up = time.monotonic() + SETTLE_S
        while True:
            answer = self.look("Metadata", 12, Topics=[{"Name": name}], AllowAutoTopicCreation=False)
            described = answer["Topics"][0]
            ready = not described["ErrorCode"] and not any(p["ErrorCode"] for p in described["Partitions"])
            if ready or time.monotonic() > give_up:
                break
            time.sleep(0.05)
        topic_id: bytes = described["TopicId"]
        self._topics[topic_id] = name
        self._forms.learn({"TopicId": topic_id, "Name": name})
        return topic_id

    def look(self, api: str, version: int, **values: Any) -> Values:
        """Send a request, and return the response without a note."""
        with self.side.connect() as connection:
            return connection.ask(api, version, values)

    # --- comparison -----------------------------------------------------------------------------------------

    def _normal(self, value: Any, name: str = "") -> Any:
        """Lists in an order of their own, ids that are random by when they were first seen, the rest by its form."""
        if isinstance(value, dict):
            return {key: self._normal(item, key) for key, item in value.items()}
        if isinstance(value, list):
            # Random values must not affect the order of their first occurrence.
            items = sorted(value, key=lambda item: RANDOM_ID.sub("", json.dumps(item, default=repr)))
            return sorted((self._normal(item, name) for item in items), key=lambda item: json.dumps(item))
        if name == "ProducerId" and isinstance(value, int) and value >= 0:
            return self._named(str(value), "producer")
        if name == "BaseOffset" and isinstance(value, int) and value >= 0:
            return "an offset"  # other scenarios write to the same partitions
        value = self._forms.of(name, value)
        if isinstance(value, bytes):
            return value.decode("latin-1")
        if isinstance(value, str):
            return RANDOM_ID.sub(lambda match: self._named(match[0], "id"), value)
        return value

    def _named(self, value: str, kind: str) -> str:
        return self._random.setdefault(value, f"<{kind} {len(self._random) + 1}>")


def common_versions(*sides: Side) -> Versions:
    """The versions that all of them serve, by API."""
    from compat.kit.wire import API

    names = {int(path.name[:3]): path.name[4:-12] for path in API.glob("*_*Request.json")}
    versions: Versions = {}
    for number, side in enumerate(sides):
        with side.connect() as connection:
            keys = connection.ask("ApiVersions", 0, {})["ApiKeys"]
        served = {names[key["ApiKey"]]: (key["MinVersion"], key["MaxVersion"]) for key in keys}
        versions = both_serve(versions, served) if number else served
    return versions


def both_serve(first: Versions, other: Versions) -> Versions:
    """The versions that are in both, by API."""
    shared = {
        name: (max(low, other[name][0]), min(high, other[name][1]))
        for name, (low, high) in first.items()
        if name in other
    }
    return {name: (low, high) for name, (low, high) in shared.items() if low <= high}


@dataclass
class Result:
    """Findings of a comparison, and the number of scenarios and answers."""

    differences: list[Difference]
    scenarios: int
    answers: int


def compare(
    scenarios: Iterable[Scenario],
    theirs: Side,
    ours: Side,
    known_differences: Sequence[KnownDifference],
    versions: Versions,
) -> Result:
    """Run all scenarios against both brokers, some concurrently."""
    runs = [(scenario, back) for scenario in scenarios for back in scenario.backs]
    result = Result([], len(runs), 0)

    def compared(scenario: Scenario, back: int, turn: int) -> tuple[list[Difference], int]:
        name = scenario.name if not turn else f"{scenario.name} again {turn}"
        both = [ScenarioRun(side, name, back, versions) for side in (theirs, ours)]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda run: _act(scenario, run), both))
        label = f"{scenario.name} -{back}" if len(scenario.backs) > 1 else scenario.name
        return list(_compare(label, *both)), len(both[0].answers)

    def unknown(differences: list[Difference]) -> bool:
        return not all(
            any(entry.covers(difference) for entry in known_differences) for difference in differences
        )

    with ThreadPoolExecutor(SCENARIOS_CONCURRENT) as pool:
        results = list(pool.map(lambda run: compared(run[0], run[1], 0), runs))
    for turn in range(1, AGAIN + 1):
        again = [number for number, (differing, _) in enumerate(results) if unknown(differing)]
        with ThreadPoolExecutor(AGAIN_CONCURRENT) as pool:
            repeated = list(pool.map(lambda number: compared(*runs[number], turn), again))  # noqa: B023
        for number, repetition in zip(again, repeated, strict=True):
            results[number] = repetition
    for differing, answers in results:
        result.differences += differing
        result.answers += answers
    return result


def _act(scenario: Scenario, run: ScenarioRun) -> None:
    try:
        scenario.act(run)
    except (KeyError, IndexError, TypeError, ConnectionError, WireError, ScenarioError) as error:
        run.note("the scenario breaks off", f"{type(error).__name__}: {error}")
    finally:
        run.close()
        with suppress(WireError):  # a busy broker responds too late, and nothing depends on it
            # Keep lists of all groups short.
            run.look("DeleteGroups", 1, GroupsNames=[run.group])


def _compare(label: str, theirs: ScenarioRun, ours: ScenarioRun) -> Iterable[Difference]:
    answers = theirs.answers, ours.answers
    for what in dict.fromkeys([*theirs.answers, *ours.answers]):
        pair = theirs.answers.get(what, "nothing"), ours.answers.get(what, "nothing")
        for values in differences_between("", *pair):
            yield Difference(f"{label}: {what}", *values, whole=pair, answers=answers, step=what)
