"""Conditions of a rule on events: the event itself, and its client, topic or file.

The rule: names are patterns in which `*` matches any text and `?` one character; a match of one name is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from barnabas.patterns import PatternError, compile_glob
from barnabas.tools.faults.actions import whole
from barnabas.tools.faults.errors import FaultError
from barnabas.tools.faults.events import CONNECT, DISK, EVENTS, REQUEST
from barnabas.wire import registry

Test = Callable[[str], bool]
_ON_REQUEST = (REQUEST,)


@dataclass(slots=True)
class Subject:
    """An event that has happened; fields that do not belong to it keep their defaults.

    `topics` and `groups` are called when a rule needs them: pairs of topic and partition, names of groups.
    """

    event: str
    now_ms: float
    api_key: int = -1
    api_version: int = -1
    client_id: str | None = None
    principal: str = ""
    listener: str = ""
    connection_id: int = 0
    topics: Callable[[], Iterable[tuple[str, int | None]]] = tuple
    groups: Callable[[], Iterable[str]] = tuple
    is_beside_clients: bool = False
    """True at the controller's listener of a node that serves clients too: a rule applies there only if it names the
    listener, or requests that are sent to controllers alone."""


@dataclass(frozen=True, slots=True)
class Match:
    """The part `on` of a rule; None matches every value."""

    event: str = REQUEST
    api_keys: frozenset[int] | None = None
    versions: tuple[tuple[int, int], ...] | None = None
    client_id: Test | None = None
    principal: Test | None = None
    listener: Test | None = None
    connections: frozenset[int] | None = None
    topic: Test | None = None
    partitions: frozenset[int] | None = None
    group: Test | None = None

    @property
    def is_partial(self) -> bool:
        """True if the rule may be about a part of a request: topics or partitions."""
        return self.topic is not None or self.partitions is not None

    def covers(self, topic: str, partition: int | None) -> bool:
        """Return whether a topic, or a partition of it, matches; a topic without a partition matches with any."""
        if self.topic is not None and not self.topic(topic):
            return False
        return self.partitions is None or partition is None or partition in self.partitions

    def fits(self, subject: Subject, *, with_topics: bool = True) -> bool:
        """Return whether the rule applies; without `with_topics`, as far as known without the topics."""
        return (
            subject.event == self.event
            and (self.api_keys is None or subject.api_key in self.api_keys)
            and (
                self.versions is None
                or any(low <= subject.api_version <= high for low, high in self.versions)
            )
            and (self.client_id is None or self.client_id(subject.client_id or ""))
            and (self.principal is None or self.principal(subject.principal))
            and (
                not subject.is_beside_clients
                or (self.api_keys is not None and subject.api_key in _of_controllers())
                if self.listener is None
                else self.listener(subject.listener)
            )
            and (self.connections is None or subject.connection_id in self.connections)
            and (self.group is None or any(map(self.group, subject.groups())))
            and (
                not with_topics
                or not self.is_partial
                or any(self.covers(*topic) for topic in subject.topics())
            )
        )


@cache
def _of_controllers() -> frozenset[int]:
    """Return the APIs that controllers serve, and brokers do not."""
    from barnabas.broker.controller_apis import CONTROLLER
    from barnabas.serving.release import IN_QUORUM

    return frozenset(CONTROLLER.apis.keys() - IN_QUORUM.apis.keys())


CONDITIONS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "event": (
        EVENTS,
        "What happens: a request (unless something else is said), a new connection, or a call of the disk.",
    ),
    "api": (_ON_REQUEST, "APIs, by Kafka's names or by their keys."),
    "version": (_ON_REQUEST, "Versions of the request: `3`, `2-8`, `9-`; in the short form `v2-8`."),
    "client_id": (_ON_REQUEST, "The client id."),
    "principal": (_ON_REQUEST, "The user that has logged in, as `User:alice`."),
    "listener": (
        (REQUEST, CONNECT),
        "The listener's name. At the controller's listener of a node that is a broker too, a rule without it applies only "
        "if it names APIs, and to those of controllers alone, as BrokerHeartbeat or Vote.",
    ),
    "connection": (_ON_REQUEST, "The connection's number, as in the control API and the log (`#3`)."),
    "topic": (
        (REQUEST, *DISK),
        "A topic that the request names. A Fetch in a session names none: its rules look at the answer.",
    ),
    "partition": ((REQUEST, *DISK), "A partition of such a topic."),
    "group": (_ON_REQUEST, "A group that the request names."),
}
"""Conditions under `on`: their events, and the meaning of each."""
NAMES = tuple(CONDITIONS)


def parse(value: Any) -> Match:
    """Read the part `on` of a rule. Raises FaultError."""
    value = {} if value is None else value
    if not isinstance(value, dict):
        raise FaultError("names and values are expected, as {api: Produce, topic: orders}", "on")
    event = value.get("event", REQUEST)
    if event not in EVENTS:
        raise FaultError(f"{event!r} is not one of {', '.join(EVENTS)}", "on.event")
    for name in value:
        if name not in CONDITIONS:
            raise FaultError(f"there is no such condition; there are {', '.join(NAMES)}", f"on.{name}")
        if event not in CONDITIONS[name][0]:
            raise FaultError(f"is not known of {event}", f"on.{name}")
    return Match(
        event,
        frozenset(_key(item) for item in _items(value["api"])) if "api" in value else None,
        tuple(_range(item) for item in _items(value["version"])) if "version" in value else None,
        _test(value, "client_id"),
        _test(value, "principal"),
        _test(value, "listener"),
        _numbers(value, "connection"),
        _test(value, "topic"),
        _numbers(value, "partition"),
        _test(value, "group"),
    )


def _items(value: Any) -> list[Any]:
    """Return the alternatives: a list's items, or those of a text with commas."""
    if isinstance(value, list):
        return value
    return [word.strip() for word in value.split(",")] if isinstance(value, str) else [value]


def _key(value: Any) -> int:
    if isinstance(value, int) and registry.is_known(value):
        return value
    text = str(value)
    if text.isdigit() and registry.is_known(int(text)):
        return int(text)
    names = [registry.name_of(key) for key in registry.keys()]  # noqa: SIM118 (a module, not a mapping)
    for name in names:
        if name.lower() == text.lower():
            return registry.key_of(name)
    near = [name for name in names if text.lower() in name.lower()][:4]
    hint = f"; did you mean {' or '.join(near)}?" if near and text else ""
    raise FaultError(f"{value!r} is not the name of an API of Kafka{hint}", "on.api")


def _range(value: Any) -> tuple[int, int]:
    low, dash, high = str(value).partition("-")
    try:
        parsed = int(low or 0), int(high or 2**15) if dash else int(low)
    except ValueError:
        parsed = (1, 0)
    if isinstance(value, bool) or parsed[0] > parsed[1]:
        raise FaultError(f"{value!r} is not a version, as 3, or a range, as 2-8 or 9-", "on.version")
    return parsed


def _numbers(value: Mapping[str, Any], name: str) -> frozenset[int] | None:
    if name not in value:
        return None
    return frozenset(whole(item, f"on.{name}", 0, 2**31) for item in _items(value[name]))


def _test(value: Mapping[str, Any], name: str) -> Test | None:
    if name not in value:
        return None
    texts = [str(item) for item in _items(value[name])]
    if not any("*" in text or "?" in text for text in texts):
        return frozenset(texts).__contains__
    try:
        fullmatch = compile_glob(texts).fullmatch
    except PatternError as error:
        raise FaultError(str(error), f"on.{name}") from None
    return lambda text: fullmatch(text) is not None
