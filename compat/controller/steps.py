"""All requests to both controllers, in order.

The rule: first the steps about the quorum, while both leaders have the same epoch; then those with one unfenced broker, so
that both place replicas alike; last those about several brokers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from compat.controller import edges, states
from compat.controller.requests import (
    FORWARDED_APIS,
    OF_BROKERS,
    OF_LEAVING,
    OF_QUORUM,
    RIGHT,
    SPREAD,
    TOKEN,
    TOPIC,
    created,
    heartbeat,
    newest,
    registration,
)
from compat.kit.compare import Step
from compat.kit.mutation import Right, resolved, steps_of
from compat.kit.wire import Values

FORWARDED = "User:ANONYMOUS"
DENIED = ("alice", "User:bob")
"""Users without a permission: one that has logged in, one with forwarded requests."""


def step(
    label: str, api: str, version: int, values: Values, user: str = "", *, settles: bool = False
) -> Step:
    """Return a step; values from earlier responses are filled in when it is sent."""
    return Step(label, api, version, lambda seen: resolved(values, seen), user, settles)


def steps() -> Iterator[Step]:
    """Yield all steps."""
    yield step("quorum", "DescribeQuorum", 2, states.QUORUM)
    yield from _of(OF_QUORUM)
    yield from states.of_quorum()
    yield from _broker(1)
    yield step(f"topic {TOPIC}", *created(TOPIC, [1], [1]))
    yield step(TOKEN, "CreateDelegationToken", 3, {"MaxLifetimeMs": -1}, FORWARDED)
    yield from _of(RIGHT)
    yield from edges.of_one_broker()
    yield from _broker(2, dirs=2)
    yield step(f"topic {SPREAD}", *created(SPREAD, [1, 2], [2, 1], [1, 2]))
    yield step("broker 3", "BrokerRegistration", 4, registration(3, "3"))
    yield from _of(OF_BROKERS)
    yield from states.of_brokers()
    yield from _of(OF_LEAVING)


def static_steps() -> Iterator[Step]:
    """Yield the steps for a quorum with its voters in the settings."""
    yield from states.of_static_quorum()


def _broker(broker: int, *, dirs: int = 1) -> Iterator[Step]:
    yield step(f"broker {broker}", "BrokerRegistration", 4, registration(broker, str(broker), dirs=dirs))
    yield step(f"broker {broker} is there", "BrokerHeartbeat", 2, heartbeat(broker))


def _of(rights: tuple[Right, ...]) -> Iterator[Step]:
    for right in rights:
        yield from steps_of(right)
    for right in rights:
        if right.api in FORWARDED_APIS:
            asked = replace(newest(right), kind=f"{right.kind} forwarded".strip())
            yield from steps_of(asked, "mutated", FORWARDED)
    for right in rights:
        version = right.versions[1]
        name = f"denied-{right.api.lower()}{right.kind}".replace(" ", "-")
        for user in DENIED:
            label = " ".join(("denied", right.api, *right.kind.split(), f"to {user}"))
            yield step(label, right.api, version, right.values(name), user)


def numbered(all_steps: Iterator[Step]) -> list[Step]:
    """Return the steps as a list. Raises ValueError if two have the same label."""
    by_label: dict[str, Any] = {}
    for each in all_steps:
        while each.label in by_label:
            each = replace(each, label=f"{each.label} again")
        by_label[each.label] = each
    return list(by_label.values())
