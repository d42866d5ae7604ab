"""Kafka's settings of a node that observes a KRaft quorum, typed and checked. Pure.

The rule: with controller.quorum.bootstrap.servers and controller.quorum.voters both, the servers are asked first, and the
voters tell addresses of leaders; the voters themselves are in the log or in the settings of the controllers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.client import Endpoint, parse_bootstrap
from barnabas.cluster.kraft.contacts import Address
from barnabas.cluster.kraft.durable_log import LogSettings
from barnabas.config import broker
from barnabas.config.cluster import controller_listener
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError

VOTERS = "controller.quorum.voters"
BOOTSTRAP = "controller.quorum.bootstrap.servers"


class QuorumSettings(NamedTuple):
    """How a quorum is observed; times in ms."""

    node_id: int
    log_dir: str
    bootstrap: tuple[Address, ...]
    static_voters: Mapping[int, Address]
    fetch_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    fetch_bytes_max: int
    snapshot_bytes_max: int
    log: LogSettings
    listener: str = ""
    """The listener by which controllers are reached, of those in the records of voters."""


def quorum_settings(config: BrokerConfig) -> QuorumSettings:
    """Return the settings of a broker that observes. Raises SettingError."""
    value = config.value_of
    voters = static_voters(value(VOTERS) or ())
    bootstrap = tuple(_servers(value(BOOTSTRAP) or ()))
    node_id = config.get(broker.NODE_ID)
    if not config.is_node_id_set:
        raise SettingError("node.id is not set: a broker of a KRaft cluster needs one of its own")
    if node_id in voters:
        raise SettingError(
            f"node.id={node_id} is one of {VOTERS}: a broker needs an id that no controller has"
        )
    if not bootstrap and not voters:
        raise SettingError(
            f"neither {BOOTSTRAP} nor {VOTERS} is set: name the controllers, as in {BOOTSTRAP}=HOST:PORT"
        )
    return QuorumSettings(
        node_id=node_id,
        log_dir=value("metadata.log.dir") or config.log_dirs[0],
        bootstrap=bootstrap or tuple(voters.values()),
        static_voters=voters,
        fetch_timeout_ms=value("controller.quorum.fetch.timeout.ms"),
        request_timeout_ms=value("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=value("controller.quorum.retry.backoff.ms"),
        fetch_bytes_max=value("controller.quorum.fetch.max.bytes"),
        snapshot_bytes_max=value("controller.quorum.fetch.snapshot.max.bytes"),
        log=_log_settings(value),
        listener=controller_listener(config),
    )


def _log_settings(value: Any) -> LogSettings:
    return LogSettings(
        segment_bytes=value("internal.metadata.log.segment.bytes") or value("metadata.log.segment.bytes"),
        segment_ms=value("metadata.log.segment.ms"),
        retention_bytes=value("metadata.max.retention.bytes"),
        retention_ms=value("metadata.max.retention.ms"),
        snapshot_bytes=value("metadata.log.max.record.bytes.between.snapshots"),
        snapshot_interval_ms=value("metadata.log.max.snapshot.interval.ms"),
        delete_delay_ms=value("internal.metadata.delete.delay.millis"),
        batch_bytes_max=value("internal.metadata.max.batch.size.in.bytes"),
    )


def static_voters(texts: Sequence[str]) -> dict[int, Address]:
    """Read `id@host:port`, one for each voter. Raises SettingError."""
    voters: dict[int, Address] = {}
    for text in texts:
        voter_id, at, address = text.strip().partition("@")
        if not at or not voter_id.isdecimal():
            raise SettingError(f"{VOTERS}={','.join(texts)}: {text!r} is not id@host:port")
        (endpoint,) = _parsed(VOTERS, address)
        voters[int(voter_id)] = endpoint
    return voters


def _servers(texts: Sequence[str]) -> list[Endpoint]:
    return _parsed(BOOTSTRAP, ",".join(texts)) if texts else []


def _parsed(name: str, text: str) -> list[Endpoint]:
    try:
        return parse_bootstrap(text)
    except ValueError as error:
        raise SettingError(f"{name}: {error}") from None
