"""Settings that are not acted upon: what stops the start, what is warned of, and what real files of Kafka contain."""

from __future__ import annotations

import pytest

from barnabas.cli import USAGE_ERROR, main
from barnabas.config import tables
from barnabas.config.loading import BrokerConfig
from barnabas.config.without_effect import Verdict, judge
from tests.support.whole_steps import parse_properties

MORE = {
    "controller.quorum.bootstrap.servers": "one:9093,two:9093",
    "transaction.state.log.min.isr": "3",
    "share.coordinator.state.topic.min.isr": "3",
}
EVERY = [tables.setting(name) for name in tables.names()]


def judged(settings: dict[str, str]) -> Verdict:
    return judge(BrokerConfig(settings), dict.fromkeys(settings, "file:1"))


def other_value(row) -> str:
    """A text that asks for something else than the default does."""
    if row.name in MORE:
        return MORE[row.name]
    if row.kind.name == "boolean":
        return "false" if row.default else "true"
    if row.kind.name in ("int", "short", "long", "double"):
        low = row.allowed.rpartition("..")[0].rpartition(", ")[2] or "0"
        return next(text for text in (low, str(int(float(low)) + 1)) if row.parse(text) != row.default)
    if row.allowed and row.allowed not in ("+", "replicas", "counts"):
        for choice in row.allowed.replace("/", "|").split("|"):
            if row.parse(choice) != row.default:
                return choice
    return "1:1" if row.allowed == "replicas" else "some.thing"


@pytest.mark.parametrize("row", [row for row in EVERY if row.effect], ids=lambda row: row.name)
def test_setting_without_effect_stops_the_start_or_warns(row):
    verdict = judged({row.name: other_value(row)})
    if row.name == "zookeeper.connect":  # which makes the broker one of a cluster
        assert (verdict.refusals, verdict.ignored) == ([], [])
    elif row.name == "process.roles":  # which makes it one of a quorum, whose controllers are not named
        assert "needs the controllers of its cluster" in verdict.refusals[0]
    elif row.stops:
        (line,) = verdict.refusals
        assert line.startswith(f"file:1: {row.name}=")
        assert verdict.ignored == []
    else:
        assert (verdict.refusals, verdict.ignored) == ([], [row.name])


@pytest.mark.parametrize("row", EVERY, ids=lambda row: row.name)
def test_a_default_that_is_written_out_asks_for_nothing(row):
    if row.default is None or row.name.endswith(("replication.factor", ".min.isr")):
        return
    verdict = judged({row.name: row.format(row.default)})
    assert (verdict.refusals, verdict.ignored) == ([], [])


def test_no_secret_and_no_plugin_is_given_in_vain():
    for row in EVERY:
        if row.effect and row.kind.name in ("password", "class"):
            assert row.stops, row.name


def test_a_secret_is_not_shown():
    name = "sasl.oauthbearer.assertion.private.key.passphrase"
    (line,) = judged({name: "hunter2"}).refusals
    assert "hunter2" not in line
    assert f"{name}=...: " in line


@pytest.mark.parametrize(
    "name",
    [
        "default.replication.factor", "offsets.topic.replication.factor", "transaction.state.log.replication.factor",
        "share.coordinator.state.topic.replication.factor", "transaction.state.log.min.isr",
        "share.coordinator.state.topic.min.isr",
    ],
)  # fmt: skip
def test_replication_above_one_stops_the_start_even_by_default(name):
    (line,) = judged({name: "3"}).refusals
    assert (
        f"{name}=3: there is one broker, and so one copy of each record; set it to 1, or join a cluster"
        in line
    )
    assert judged({name: "1"}).refusals == judged({name: "1"}).ignored == []


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"process.roles": "broker,controller", "node.id": "1", "controller.quorum.voters": "1@h:9093"}, False),
        ({"process.roles": "controller,broker", "controller.quorum.bootstrap.servers": "h:9093"}, False),
        ({"node.id": "3", "controller.quorum.voters": "3@h:9093"}, False),
        ({"process.roles": "broker"}, True),  # without controllers to ask
        ({"process.roles": "controller"}, True),
        ({"node.id": "2", "controller.quorum.voters": "1@h:9093"}, True),
        ({"node.id": "1", "controller.quorum.voters": "1@h:9093,2@h2:9093"}, True),
        ({"controller.quorum.bootstrap.servers": "h:9093,h2:9093"}, True),
    ],
)  # fmt: skip
def test_one_node_in_both_roles_starts_and_a_cluster_does_not(settings, refused):
    assert bool(judged(settings).refusals) is refused


def test_a_setting_of_one_listener_is_judged_as_the_setting():
    assert judged({"listener.name.plaintext.ssl.provider": "Other"}).refusals
    assert judged({"listener.name.plaintext.max.connections.per.ip": "5"}).refusals
    assert judged({"listener.name.plaintext.num.network.threads": "5"}).ignored


def test_a_listener_that_is_not_opened_needs_no_protection():
    verdict = judged(
        {"controller.listener.names": "CONTROLLER", "listener.name.controller.ssl.provider": "Other"}
    )
    assert verdict.refusals == []
    assert verdict.ignored == ["listener.name.controller.ssl.provider"]


def test_settings_of_plugins_are_warned_of():
    assert judged({"rsm.config.bucket": "b"}).ignored == ["rsm.config.bucket"]


TIERED = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
}


def test_settings_of_tiered_stores_count_when_it_is_on():
    verdict = judged({**TIERED, "rsm.config.dir": "/d", "rlmm.config.remote.log.metadata.topic.min.isr": "1"})
    assert (verdict.refusals, verdict.ignored) == ([], [])


@pytest.mark.parametrize(
    "settings",
    [
        {"process.roles": "broker", "node.id": "4", "controller.quorum.voters": "1@h:9093"},
        {"zookeeper.connect": "h:2181"},
        {
            "process.roles": "controller",
            "node.id": "1",
            "controller.quorum.voters": "1@h:9093",
            "listeners": "CONTROLLER://:9093",
            "remote.log.storage.manager.class.name": "",
        },
    ],
    ids=["quorum", "zookeeper", "controller"],
)
def test_nodes_of_a_cluster_start_with_tiered_storage(settings):
    texts = {name: text for name, text in {**TIERED, **settings}.items() if text}
    refusals = judged(texts).refusals
    assert not any("remote.log" in refusal for refusal in refusals)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"remote.log.storage.manager.class.name": ""}, "names no store"),
        ({"remote.log.metadata.manager.class.name": "org.example.Other"}, "org.example.Other"),
        ({"log.local.retention.bytes": "11", "log.retention.bytes": "10"}, "Value must not be more than"),
        ({"rlmm.config.remote.log.metadata.topic.num.partitions": "x"}, "num.partitions=x"),
    ],
)
def test_tiered_storage_that_cannot_be_had_stops_the_start(settings, reason):
    texts = {name: text for name, text in {**TIERED, **settings}.items() if text}
    assert any(reason in refusal for refusal in judged(texts).refusals)


# What the files that Kafka ships set, without their comments.
KRAFT_COMBINED = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
STATIC_VOTERS = KRAFT_COMBINED.replace(
    "controller.quorum.bootstrap.servers=localhost:9093", "controller.quorum.voters=1@localhost:9093"
)
BROKER_ALONE = (
    KRAFT_COMBINED.replace("broker,controller", "broker")
    .replace("node.id=1", "node.id=2")
    .replace(",CONTROLLER://:9093", "")
    .replace(",CONTROLLER://localhost:9093", "")
)
WITH_ZOOKEEPER = """
broker.id=0
num.network.threads=3
log.dirs=/tmp/kafka-logs
offsets.topic.replication.factor=1
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""


@pytest.mark.parametrize("text", [KRAFT_COMBINED, STATIC_VOTERS], ids=["bootstrap servers", "voters"])
def test_kafkas_file_for_a_single_node_starts_with_one_warning(text):
    verdict = judged(parse_properties(text))
    assert verdict.refusals == []
    assert verdict.ignored[0] == "process.roles"
    assert verdict.ignored[2] == "inter.broker.listener.name"
    assert len(verdict.ignored) == 3


def test_kafka_file_of_a_broker_with_controllers_starts():
    verdict = judged(parse_properties(BROKER_ALONE))
    assert (verdict.refusals, verdict.ignored) == ([], [])


def test_kafkas_file_for_zookeeper_joins_a_cluster():
    verdict = judged(parse_properties(WITH_ZOOKEEPER))
    assert (verdict.refusals, verdict.ignored) == ([], [])


IN_QUORUM = {
    "process.roles": "broker",
    "node.id": "3",
    "controller.quorum.bootstrap.servers": "h:1",
    "controller.listener.names": "CONTROLLER",
}
KEEPERS = {
    "quorum": IN_QUORUM,
    "controller": {**IN_QUORUM, "process.roles": "controller", "listeners": "CONTROLLER://:1"},
}


@pytest.mark.parametrize("row", [row for row in EVERY if row.acts_in_cluster], ids=lambda row: row.name)
def test_setting_that_acts_in_a_cluster_is_accepted_there(row):
    keeper = KEEPERS.get(row.effect, {"zookeeper.connect": "localhost:2181"})
    settings = {**keeper, row.name: other_value(row)}
    verdict = judged(settings)
    assert verdict.ignored == []
    # `some.thing` is no address, no class and no listener; the error says so, and not that nothing acts on it.
    assert not any("alone" in line for line in verdict.refusals)


@pytest.mark.parametrize(
    ("socket", "tls", "ignored"),
    [
        ("Netty", "true", False), ("Netty", "false", False), ("NIO", "false", False), ("NIO", "true", True),
        ("X", "true", True),
    ],
)  # fmt: skip
def test_other_zookeeper_socket_class_is_warned_of(socket, tls, ignored):
    name = "zookeeper.clientCnxnSocket"
    settings = {name: f"org.apache.zookeeper.ClientCnxnSocket{socket}", "zookeeper.ssl.client.enable": tls}
    assert judged({"zookeeper.connect": "localhost:2181", **settings}).ignored == [name] * ignored
    assert name in judged(settings).ignored  # without a ZooKeeper


def test_more_than_one_copy_can_be_had_in_a_cluster():
    settings = {"zookeeper.connect": "localhost:2181", "default.replication.factor": "3"}
    assert judged(settings).refusals == judged(settings).ignored == []


def test_every_setting_that_stops_the_start_is_named_at_once(capsys):
    options = ["--set", "client.quota.callback.class=A", "--set", "ssl.provider=Other"]
    assert main(["serve", *options]) == USAGE_ERROR
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("barnabas: --set: client.quota.callback.class=A: ")
    assert second.startswith("barnabas: --set: ssl.provider=Other: ")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (
            "authorizer.class.name=com.example.Other",
            "one of org.apache.kafka.metadata.authorizer.StandardAuthorizer, ",
        ),
        ("super.users=User:a;alice", "'alice' is none"),
        ("allow.everyone.if.no.acl.found=maybe", "true or false expected"),
    ],
)
def test_unknown_authorizer_or_bad_super_users_stop_the_start(capsys, setting, expected):
    assert main(["serve", "--set", setting]) == USAGE_ERROR
    (line,) = capsys.readouterr().err.splitlines()
    assert setting.partition("=")[0] in line
    assert expected in line


PEERS = {"security.inter.broker.protocol": "SASL_SSL", "sasl.mechanism.inter.broker.protocol": "PLAIN"}


@pytest.mark.parametrize(
    ("settings", "is_ignored"),
    [
        ({"registry.listener": "127.0.0.1:1", "listeners": "SASL_SSL://h:1"}, False),
        ({"registry.listener": "127.0.0.1:1", "listeners": "SASL_SSL://h:1,PLAINTEXT://h:2"}, True),
        ({"registry.listener": "127.0.0.1:1", "listeners": "A://h:1", "listener.security.protocol.map": "A:SSL"}, False),
        ({"registry.listener": "127.0.0.1:1", "listeners": "A://h:1", "listener.security.protocol.map": "A"}, True),
        ({"http.listener": "127.0.0.1:1", "listeners": "SASL_SSL://h:1"}, False),
        ({"listeners": "SASL_SSL://h:1"}, True),
    ],
)  # fmt: skip
def test_a_registry_that_logs_in_obeys_settings_of_peers(settings, is_ignored):
    verdict = judged({**settings, **PEERS})
    assert verdict.refusals == []
    assert sorted(set(verdict.ignored) & set(PEERS)) == (sorted(PEERS) if is_ignored else [])
