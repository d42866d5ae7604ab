"""Fields of a response that differ between brokers, and the condition for each. Pure.

The rule: a row has the field, the reason, and a check of the new value; no field goes unchecked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A value in an answer: the struct that holds it, and the answer."""

    value: Any
    holder: Any
    answer: Any


class Row(NamedTuple):
    """A field that may differ."""

    reason: str
    accepts: Callable[[Place, Place], bool]
    """Gets the recorded value and the live one, which are not equal."""


def both_there(recorded: Place, live: Place) -> bool:
    """Both are present, or neither is."""
    return (recorded.value in _NONE) == (live.value in _NONE)


def both_positive(recorded: Place, live: Place) -> bool:
    """Both are above zero, or neither is."""
    return bool(recorded.value > 0) == bool(live.value > 0)


def of_an_address(recorded: Place, live: Place) -> bool:
    """Both are present, or neither is, in an address with a port: an ACL has a host, too."""
    return hasattr(live.holder, "port") and both_there(recorded, live)


def not_throttled_alone(recorded: Place, live: Place) -> bool:
    """The live answer is throttled only if the recorded one is."""
    return bool(live.value >= 0 and (recorded.value > 0 or live.value == 0))


def a_listed_broker(recorded: Place, live: Place) -> bool:
    """Both name a broker, and the live one is in the response's list, if any; or neither does."""
    return both_there(recorded, live) and _are_listed([live.value], live.answer)


def a_leader(recorded: Place, live: Place) -> bool:
    """Both have a leader, and the live one is among its replicas and the response's brokers; or neither has."""
    replicas = getattr(live.holder, "replica_nodes", None)
    is_replica = replicas is None or live.value in _NONE or live.value in replicas
    return a_listed_broker(recorded, live) and is_replica


def replicas(recorded: Place, live: Place) -> bool:
    """Both have replicas, on distinct brokers of the response's list, and the leader is among them."""
    leader = live.holder.leader_id
    return (
        bool(recorded.value) == bool(live.value)
        and (leader in _NONE or leader in live.value)
        and len(set(live.value)) == len(live.value)
        and _are_listed(live.value, live.answer)
    )


def in_sync(recorded: Place, live: Place) -> bool:
    """Return whether live replicas are in sync; all of them, if all recorded ones were."""
    if bool(recorded.value) != bool(live.value):
        return False
    all_were = set(recorded.value) == set(recorded.holder.replica_nodes)
    in_sync_now, of_all = set(live.value), set(live.holder.replica_nodes)
    return len(in_sync_now) == len(live.value) and (
        in_sync_now == of_all if all_were else in_sync_now <= of_all
    )


def offline(recorded: Place, live: Place) -> bool:
    """Live replicas are offline only where some were."""
    return set(live.value) <= set(live.holder.replica_nodes) and (bool(recorded.value) or not live.value)


def brokers(recorded: Place, live: Place) -> bool:
    """Both list brokers, or neither does; each live broker has a distinct id and an address."""
    if bool(recorded.value) != bool(live.value):
        return False
    ids = [_id_of(broker) for broker in live.value]
    return (
        len(set(ids)) == len(ids)
        and min(ids, default=0) >= 0
        and all(broker.host and broker.port > 0 for broker in live.value)
    )


_OTHER_BROKER = "it is another broker"
_OTHER_BROKERS = "the cluster has other brokers"
_TIME = "it is the time of the replay"
_SECRET = "recordings do not hold secrets"
MAY_DIFFER = {
    "throttle_time_ms": Row("other quotas; but not throttled where it was not", not_throttled_alone),
    "log_append_time_ms": Row(_TIME, both_positive),
    "issue_timestamp_ms": Row(_TIME, both_positive),
    "expiry_timestamp_ms": Row(_TIME, both_positive),
    "max_timestamp_ms": Row(_TIME, both_positive),
    "session_lifetime_ms": Row("it is what is left of a login's life", both_positive),
    "transaction_start_time_ms": Row(_TIME, both_positive),
    "cluster_id": Row("it is another cluster", both_there),
    "host": Row(_OTHER_BROKER, of_an_address),
    "port": Row(_OTHER_BROKER, both_positive),
    "node_id": Row(_OTHER_BROKER, a_listed_broker),
    "leader_id": Row(f"{_OTHER_BROKER}; but there is one, among the replicas", a_leader),
    "controller_id": Row(f"{_OTHER_BROKER}; but one that is listed", a_listed_broker),
    "replica_nodes": Row(f"{_OTHER_BROKERS}; but each is listed, and once", replicas),
    "isr_nodes": Row(f"{_OTHER_BROKERS}; but all are in sync where all were", in_sync),
    "offline_replicas": Row(f"{_OTHER_BROKERS}; but none is offline where none was", offline),
    "preferred_read_replica": Row(_OTHER_BROKERS, both_there),
    "brokers": Row(f"{_OTHER_BROKERS}; each with an id and an address", brokers),
    "node_endpoints": Row(f"{_OTHER_BROKERS}; each with an id and an address", brokers),
    "finalized_features_epoch": Row("it counts changes of the cluster", both_there),
    "coordinator_epoch": Row("it counts elections of the cluster", both_there),
    "client_host": Row("it is the address of the replay", both_there),
    "auth_bytes": Row(_SECRET, both_there),
    "hmac": Row(_SECRET, both_there),
}
"""Rows by the name of the field; `accepts` checks the values."""
_NONE: frozenset[Any] = frozenset((None, "", b"", -1))


def _are_listed(ids: Iterable[int], answer: Any) -> bool:
    """Return whether all of these ids, except negative ones, are among a response's brokers, if it lists any."""
    listed = {_id_of(broker) for broker in getattr(answer, "brokers", None) or ()}
    return not listed or all(broker_id in listed for broker_id in ids if broker_id >= 0)


def _id_of(broker: Any) -> int:
    broker_id: int = getattr(broker, "node_id", getattr(broker, "broker_id", -1))
    return broker_id
