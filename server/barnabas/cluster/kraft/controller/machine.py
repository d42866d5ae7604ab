"""The table of all work of the active controller: requests by API key, periodic work, and the first records of a leader.
Pure.

The rule: each part has its own tables; no API and no periodic work is in two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from barnabas.cluster.kraft.controller import (
    access,
    brokers,
    deletion,
    elections,
    features,
    heartbeats,
    index,
    log_dirs,
    partitions,
    producer_ids,
    quotas,
    reassignments,
    scram,
    settings,
    tokens,
    topics,
)
from barnabas.cluster.kraft.controller.active import Machine
from barnabas.cluster.kraft.controller.outcome import ControllerState, Handler, Tick
from barnabas.cluster.kraft.controller.versions import version_of

PARTS = (
    access, brokers, deletion, elections, features, heartbeats, log_dirs, partitions, producer_ids, quotas,
    reassignments, scram, settings, tokens, topics,
)  # fmt: skip
HANDLERS: Mapping[int, Handler] = MappingProxyType(
    {key: handler for part in PARTS for key, handler in part.HANDLERS.items()}
)
TICKS: Mapping[str, Tick] = MappingProxyType(
    {
        "fencing of brokers": brokers.fence_stale,
        "election of preferred leaders": elections.balance,
        "unclean election": elections.elect_unclean,
        "expiry of tokens": tokens.tick,
        "NoOp record": features.tick,
    }
)


def machine(bootstrap: Sequence[Any]) -> Machine:
    """Return the machine of a controller; `bootstrap` are the first records of a new cluster."""

    def activate(state: ControllerState, in_transaction: bool) -> tuple[Any, ...]:
        return features.activation_records(
            state.image, state.config, bootstrap, in_transaction=in_transaction
        )

    return Machine(HANDLERS, TICKS, activate, index.follow, version_of)
