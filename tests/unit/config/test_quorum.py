"""Settings of a broker in a KRaft quorum: which go together, and the sentence for those that do not."""

import pytest

from barnabas.config.cluster import check_cluster
from barnabas.config.keeper import Keeper, is_clustered, keeper_of
from barnabas.config.loading import BrokerConfig
from barnabas.config.quorum_broker import quorum_settings
from barnabas.config.setting import SettingError
from barnabas.config.without_effect import judge

GOOD = {
    "process.roles": "broker",
    "node.id": "3",
    "controller.quorum.bootstrap.servers": "a:1,b:2",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092",
    "log.dirs": "/data,/more",
}


def config_of(**changes):
    pairs = {**GOOD, **{name.replace("_", "."): value for name, value in changes.items()}}
    pairs = {name: value for name, value in pairs.items() if value is not None}
    return BrokerConfig(pairs, dict.fromkeys(pairs, "file"))


def test_broker_role_alone_is_one_of_a_quorum():
    config = config_of()
    assert keeper_of(config) is Keeper.QUORUM
    assert is_clustered(config)
    assert judge(config, config.sources).refusals == []
    quorum = quorum_settings(config)
    assert quorum.bootstrap == (("a", 1), ("b", 2))
    assert (quorum.listener, quorum.protocol, quorum.log_dir) == ("CONTROLLER", "PLAINTEXT", "/data")


def test_static_voters_are_asked_where_no_servers_are_named():
    quorum = quorum_settings(
        config_of(controller_quorum_bootstrap_servers=None, controller_quorum_voters="1@a:1,2@[::1]:2")
    )
    assert quorum.static_voters == {1: ("a", 1), 2: ("::1", 2)}
    assert quorum.bootstrap == (("a", 1), ("::1", 2))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"controller_quorum_bootstrap_servers": None}, "controller.quorum.bootstrap.servers=HOST:PORT"),
        (
            {"controller_quorum_voters": "3@a:1"},
            "node.id=3: controller.quorum.voters has a controller of that id",
        ),
        ({"controller_quorum_voters": "a:1"}, "not of the form ID@HOST:PORT"),
        ({"controller_quorum_bootstrap_servers": "a"}, "'a' is not of the form HOST:PORT"),
        ({"controller_listener_names": None}, "needs controller.listener.names"),
        ({"controller_listener_names": "PLAINTEXT"}, "must not have a listener of that name"),
        ({"controller_quorum_auto_join_enable": "true"}, "auto.join.enable=true is for controllers"),
        ({"node_id": None}, "process.roles=broker needs node.id"),
        ({"listener_security_protocol_map": "PLAINTEXT:PLAINTEXT"}, "add CONTROLLER:PLAINTEXT"),
    ],
)
def test_settings_that_do_not_go_together_stop_the_start(changes, text):
    config = config_of(**changes)
    with pytest.raises(SettingError, match=text):
        check_cluster(config)
    assert any(text in refusal for refusal in judge(config, config.sources).refusals)


def test_both_roles_without_other_controllers_are_a_broker_alone():
    alone = {"controller_quorum_bootstrap_servers": None, "controller_quorum_voters": None}
    assert keeper_of(config_of(process_roles="broker,controller", **alone)) is Keeper.ITSELF


def test_zookeeper_and_roles_exclude_each_other():
    config = config_of(zookeeper_connect="localhost:2181")
    assert keeper_of(config) is Keeper.ZOOKEEPER
    assert any("remove one of the two settings" in line for line in judge(config, config.sources).refusals)
