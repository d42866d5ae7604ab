"""Every setting of the broker, one row each, in tables by subject.

A row is plain data: (name, type, default, allowed, importance, changes, effect, description).

    default     text as in a configuration file; None where Kafka has no default
    allowed     "" for anything of the type; "1..9", "0.." or "-1, 1..9" for numbers; "a|b" for one of these (each
                item of a list), "a/b" the same in any case; "+" for a text that is not empty; "replicas" for
                partition:broker items, "counts" for address:count items
    importance  Kafka's: high, medium, low
    changes     "" at a restart only; "broker" or "cluster" while the broker runs, for one or for all (KIP-226);
                "internal" is at a restart only, and not shown unless it is set
    effect      "" when the broker acts on it, else the key of the reason in WITHOUT_EFFECT; "!" before it where safety
                or durability may rely on it, so that a value other than the default stops the start.
                `zookeeper` (for what Kafka 4 no longer has) is acted upon by a broker with zookeeper.connect, `quorum`
                by one with process.roles=broker, `controller` by a node with process.roles=controller, which acts on
                `quorum` too, `cluster` by all of them

Names, types, defaults and bounds are those of Apache Kafka 4.4; a default that differs is named in
docs/decisions/0030-defaults.md.

The rule: a setting that the broker acts on has an empty effect (or `cluster`) and a name in `config/broker.py`; tests
compare the two. A table is read when a name is looked up that the tables before it lack. A setting that Kafka does not have
is a row of the table `own`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from barnabas.config.setting import Setting

Row = tuple[str, str, str | None, str, str, str, str, str]

TABLES = (
    "network", "own", "log", "groups", "transactions", "topics", "share", "limits", "replication", "controller",
    "tls", "sasl", "tiered", "retired",
)  # fmt: skip
"""Those that every start needs come first."""

WITHOUT_EFFECT = {
    "cluster": "it is about a cluster, and without process.roles=broker or zookeeper.connect a broker is alone",
    "controller": "it is about controllers of a KRaft quorum, and without process.roles=controller this node is none",
    "fixed": "what it would change is fixed here",
    "jvm": "there is no Java virtual machine to load it into",
    "kerberos": "the Kerberos library renews tickets after half of their life",
    "kraft": "metadata is kept without KRaft",
    "limits": "this limit is not enforced",
    "metrics": "no such metrics are kept",
    "oauth": "tokens are asked for with a client id and secret, or read from a file, when they are needed",
    "purgatory": "a request that waits is forgotten as soon as it is answered",
    "quorum": "it is about a KRaft quorum of controllers, and without process.roles there is none",
    "quotas": "the rate of moves between log directories is limited without samples",
    "removed": "Kafka 4 has no such setting",
    "sasl": "what a login to other brokers takes, and when it is renewed, is fixed here",
    "sockets": "left to the operating system",
    "threads": "one event loop does this work",
    "tiered": "stores are part of the broker, and need no class path, listener, timers or threads of this kind",
    "warmup": "streams groups have no warm-up tasks, nor have they in Kafka 4.4",
    "zookeeper": "it is about a cluster on ZooKeeper, and without zookeeper.connect a broker is alone",
}

_UNLISTED = frozenset((
    "follower.replication.throttled.rate",
    "group.consumer.assignor.offload.enable",
    "group.share.assignor.offload.enable",
    "group.streams.assignor.offload.enable",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
))  # fmt: skip
_OPEN_PREFIXES = ("config.providers.", "metrics.jmx.", "rlmm.config.", "rsm.config.")
LISTENER_PREFIX = "listener.name."
_MECHANISMS = ("gssapi.", "oauthbearer.", "plain.", "scram-sha-256.", "scram-sha-512.")


_rows: dict[str, Row] = {}
_unread = list(TABLES)
_settings: dict[str, Setting[Any]] = {}


def find(name: str) -> Setting[Any] | None:
    """Return the broker setting with this name, None if it does not exist.

    `listener.name.NAME.X` is X for one listener, `listener.name.NAME.MECHANISM.X` for one SASL mechanism of it.
    """
    if name in _settings:
        return _settings[name]
    while name not in _rows and _unread:
        _read_table()
    row = _rows.get(name)
    result = Setting.of_row(row) if row is not None else _for_listener(name)
    if result is not None:  # a name that does not exist is not cached: clients may ask for any number
        _settings[name] = result
    return result


def _read_table() -> None:
    module = import_module(f"{__name__}.{_unread.pop(0)}")
    _rows.update((row[0], row) for row in module.ROWS)


def _for_listener(name: str) -> Setting[Any] | None:
    if not name.startswith(LISTENER_PREFIX):
        return None
    inner = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    for mechanism in _MECHANISMS:
        inner = inner.removeprefix(mechanism)
    base = find(inner) if inner and not inner.startswith(LISTENER_PREFIX) else None
    return base and base.for_listener(name)


def setting(name: str) -> Setting[Any]:
    """The broker setting called `name`. Raises KeyError."""
    result = find(name)
    if result is None:
        raise KeyError(name)
    return result


def names() -> Iterator[str]:
    """The names of all settings, table by table."""
    while _unread:
        _read_table()
    yield from _rows


def listed(*, in_cluster: bool = False) -> list[str]:
    """The names of the settings that are shown even if they are not set; for a broker in a cluster these are more."""
    return [name for name in names() if is_listed(name, in_cluster=in_cluster)]


def is_listed(name: str, *, in_cluster: bool = False) -> bool:
    """Return whether a setting is shown when it is not set."""
    row = find(name)
    return (
        row is not None
        and row.changes != "internal"
        and not is_gone(row, in_cluster=in_cluster)
        and name not in _UNLISTED
        and name not in own_names()
    )


@cache
def own_names() -> frozenset[str]:
    """Return the names of the settings that Kafka does not have."""
    return frozenset(row[0] for row in import_module(f"{__name__}.own").ROWS)


def is_gone(setting: Setting[Any], *, in_cluster: bool) -> bool:
    """Return whether Kafka 4 has no such setting and this broker does not act on it: then it counts as unknown."""
    return setting.is_removed and not (in_cluster and setting.acts_in_cluster)


def belongs_to_plugin(name: str) -> bool:
    """Return whether a name belongs to plugins, so that it is not reported as unknown."""
    return name.startswith(_OPEN_PREFIXES)
