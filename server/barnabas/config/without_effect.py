"""Settings that stop the start, and settings that only cause a warning. Pure.

The rule: a setting for safety or durability that has no effect here stops the start, and so do contradictory settings,
with a line for each. A setting that only tunes something that works differently here is named in one warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.config import broker, tables
from barnabas.config.authorizer import super_users
from barnabas.config.keeper import Keeper, is_on_zookeeper, keeper_of
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import Setting, SettingError

ONE_COPY = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "share.coordinator.state.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.min.isr",
    "transaction.state.log.min.isr",
)
"""Each asks for copies of records when it is set to more than 1, which needs a cluster; their defaults do not ask, since a
broker that is alone must work."""

OF_REGISTRY = (
    broker.INTER_BROKER_LISTENER_NAME.name,
    broker.SECURITY_INTER_BROKER_PROTOCOL.name,
    broker.SASL_MECHANISM_INTER_BROKER_PROTOCOL.name,
)
"""They say also how a registry beside a broker that is alone connects to it, unless a listener has no logins."""

ROLES = "process.roles"
VOTERS = "controller.quorum.voters"
CONTROLLERS = "controller.quorum.bootstrap.servers"
ZOOKEEPER_SOCKET = "zookeeper.clientCnxnSocket"
ZOOKEEPER_TLS_SOCKET = "org.apache.zookeeper.ClientCnxnSocketNetty"
ZOOKEEPER_PLAIN_SOCKET = "org.apache.zookeeper.ClientCnxnSocketNIO"
_BOTH_ROLES = {"broker", "controller"}
_LISTENER = "listener.name."
_TIERED = broker.REMOTE_LOG_STORAGE_SYSTEM_ENABLE
_OF_STORES = "rlmm.config.", "rsm.config."


class Verdict:
    """`refusals`: a line for each setting that stops the start. `ignored`: the names of the others."""

    def __init__(self) -> None:
        self.refusals: list[str] = []
        self.ignored: list[str] = []


def judge(config: BrokerConfig, origins: Mapping[str, str]) -> Verdict:
    """Return the settings that stop the start and those without effect; `origins` has the origin of each."""
    verdict = Verdict()
    keeper = keeper_of(config)
    in_cluster = keeper is not Keeper.ITSELF
    is_told_to_registry = _registry_logs_in(config)
    is_tiered = config.get(_TIERED)
    controllers = {name.lower() for name in config.controller_listener_names()}
    for name, origin in origins.items():
        row = config.find(name)
        if row is None:
            if tables.belongs_to_plugin(name) and not (is_tiered and name.startswith(_OF_STORES)):
                verdict.ignored.append(name)
            continue
        if in_cluster and (row.acts_with(keeper.value) or name in ONE_COPY):
            continue
        if is_told_to_registry and name in OF_REGISTRY:
            continue
        value = config.value_of(name)
        if keeper is Keeper.ZOOKEEPER and name == ZOOKEEPER_SOCKET and _is_zookeeper_socket(config, value):
            continue
        problem = _problem(config, row, value, controllers)
        if problem:
            verdict.refusals.append(f"{origin}: {problem}")
        elif row.effect and name not in ONE_COPY and differs(row, value):
            verdict.ignored.append(name)
    checks: list[Callable[[BrokerConfig], object]] = [super_users]
    if in_cluster:
        from barnabas.config.cluster import check_cluster  # not needed by a broker that is alone

        checks.append(check_cluster)
    if is_tiered:
        from barnabas.config.tiered import check_tiered

        checks.append(lambda config: check_tiered(config, origins.get(_TIERED.name, "the settings")))
    for check in checks:
        try:
            check(config)
        except SettingError as error:
            verdict.refusals.append(str(error))
    return verdict


def _registry_logs_in(config: BrokerConfig) -> bool:
    """Return whether a schema registry or a REST API is served beside a broker that requires it to log in."""
    if not config.get(broker.REGISTRY_LISTENER) and not config.get(broker.HTTP_LISTENER):
        return False
    try:
        protocols = config.listener_security_protocols()
    except SettingError:
        return False  # the start reports the error
    names = [text.partition("://")[0].strip().upper() for text in config.listeners()]
    return all(protocols.get(name, name) != "PLAINTEXT" for name in names)


def _is_zookeeper_socket(config: BrokerConfig, name: str) -> bool:
    """Return whether the class is supported: Kafka requires Netty's for TLS, and ZooKeeper's default has no TLS."""
    has_tls = config.get(broker.ZOOKEEPER_SSL_CLIENT_ENABLE)
    return name == ZOOKEEPER_TLS_SOCKET or (name == ZOOKEEPER_PLAIN_SOCKET and not has_tls)


def differs(row: Setting[Any], value: Any) -> bool:
    """Return whether a value requests something that the setting's default does not."""
    default = tables.setting(row.base).default if row.base else row.default
    return value != default and value not in (None, "", ())


def explain(row: Setting[Any], value: object) -> str:
    """Return the reason why a setting is refused."""
    return f"{row.name}={'...' if row.sensitive else value}: {tables.WITHOUT_EFFECT[row.effect]}"


def _problem(config: BrokerConfig, row: Setting[Any], value: Any, controllers: set[str]) -> str:
    """Return why this setting stops the start, and the remedy; empty if it does not."""
    advice = "remove the setting to start without it"
    if row.name in ONE_COPY:
        if value > 1:
            return (
                f"{row.name}={value}: there is one broker, and so one copy of each record; set it to 1, or join a "
                "cluster with process.roles=broker or zookeeper.connect"
            )
        return ""
    if row.name in (ROLES, VOTERS, CONTROLLERS):
        return _asks_for_a_cluster(config, row.name, value)
    if not row.stops or not differs(row, value):
        return ""
    if row.base and row.name.removeprefix(_LISTENER).partition(".")[0].lower() in controllers:
        return ""  # that listener is not opened
    return f"{explain(row, row.format(value))}; {advice}"


def _asks_for_a_cluster(config: BrokerConfig, name: str, value: Any) -> str:
    """Return the problem of a KRaft setting: they may only describe this node, in both roles; empty if valid."""
    node = config.get(broker.NODE_ID)
    single = f"for a single node remove the setting, or set {ROLES}=broker,controller and {VOTERS}={node}@HOST:PORT"
    shown = ",".join(value or ())
    if value and is_on_zookeeper(config):
        return f"{name}={shown}: with zookeeper.connect there are no nodes of KRaft; remove one of the two settings"
    if name == ROLES and value and set(value) != _BOTH_ROLES:
        return f"{name}={shown}: a node of a quorum has {name}=broker or {name}=controller, and {single}"
    if name == VOTERS and any(voter.partition("@")[0].strip() != str(node) for voter in value):
        return f"{name}={shown}: there is one node, {node}, and no quorum of controllers; {single}"
    if name == CONTROLLERS and len(value) > 1:
        return f"{name}={shown}: there is one node, {node}, and no quorum of controllers; {single}"
    return ""
