"""Settings of a controller of a KRaft quorum: which go together, and the sentence for those that do not."""

import pytest

from barnabas.config.cluster import check_cluster
from barnabas.config.controller import advertised_controllers, controller_settings
from barnabas.config.keeper import Keeper, is_clustered, is_controller, is_in_quorum, keeper_of
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError
from barnabas.config.without_effect import judge

GOOD = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.voters": "1@a:9093,2@b:9093",
    "controller.listener.names": "CONTROLLER,OTHER",
    "listeners": "CONTROLLER://:9093,OTHER://[::1]:0",
    "log.dirs": "/data,/more",
    "broker.session.timeout.ms": "6000",
    "controller.quorum.election.timeout.ms": "700",
}


def config_of(**changes):
    pairs = {**GOOD, **{name.replace("_", "."): value for name, value in changes.items()}}
    pairs = {name: value for name, value in pairs.items() if value is not None}
    return BrokerConfig(pairs, dict.fromkeys(pairs, "file"))


def test_controller_role_alone_is_a_voter():
    config = config_of()
    verdict = judge(config, config.sources)
    assert keeper_of(config) is Keeper.CONTROLLER
    assert is_clustered(config)
    assert (verdict.refusals, verdict.ignored) == ([], [])
    settings = controller_settings(config)
    assert settings.quorum.static_voters == {1: ("a", 9093), 2: ("b", 9093)}
    assert (settings.quorum.node_id, settings.quorum.log_dir, settings.quorum.listener) == (
        1,
        "/data",
        "CONTROLLER",
    )
    assert settings.protocols == {"CONTROLLER": "PLAINTEXT", "OTHER": "PLAINTEXT"}
    assert (settings.election_timeout_ms, settings.append_linger_ms, settings.joins_by_itself) == (
        700,
        25,
        False,
    )


def test_listener_without_other_address_is_advertised_as_it_is():
    config = config_of(advertised_listeners="CONTROLLER://c.example:19093")
    assert advertised_controllers(config) == {"CONTROLLER": ("c.example", 19093), "OTHER": ("::1", 0)}
    assert advertised_controllers(config_of())["CONTROLLER"] == ("", 9093)


def test_protocols_come_from_the_map():
    config = config_of(listener_security_protocol_map="CONTROLLER:SASL_SSL,OTHER:SSL")
    assert controller_settings(config).protocols == {"CONTROLLER": "SASL_SSL", "OTHER": "SSL"}
    assert controller_settings(config).quorum.protocol == "SASL_SSL"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"controller_quorum_voters": None}, "process.roles=controller needs the controllers of its cluster"),
        (
            {"controller_quorum_voters": "2@b:9093"},
            "node.id=1: controller.quorum.voters has no controller of that id",
        ),
        ({"controller_listener_names": None}, "process.roles=controller needs controller.listener.names"),
        ({"controller_listener_names": "CONTROLLER"}, "listeners has OTHER, which is not among"),
        ({"controller_listener_names": "CONTROLLER,OTHER,X"}, "X: listeners has no listener of that name"),
        ({"listeners": None}, "process.roles=controller needs listeners=CONTROLLER://HOST:PORT"),
        ({"node_id": None}, "process.roles=controller needs node.id"),
        ({"listener_security_protocol_map": "CONTROLLER:PLAINTEXT"}, "add OTHER:PLAINTEXT"),
        (
            {"controller_quorum_auto_join_enable": "true"},
            "auto.join.enable=true: with controller.quorum.voters",
        ),
        ({"listeners": "CONTROLLER://0.0.0.0:9093,OTHER://[::1]:0"}, "nodes cannot connect to 0.0.0.0"),
        ({"advertised_listeners": "X://a:1"}, "listeners has no listener of that name"),
        ({"advertised_listeners": "OTHER://a"}, "not of the form NAME://HOST:PORT"),
    ],
)
def test_settings_that_do_not_go_together_stop_the_start(changes, text):
    config = config_of(**changes)
    with pytest.raises(SettingError, match=r".") as caught:
        check_cluster(config)
    assert text in str(caught.value)


COMBINED = {
    "process_roles": "broker,controller",
    "listeners": "PLAINTEXT://a:9092,CONTROLLER://a:9093",
    "controller_listener_names": "CONTROLLER",
    "listener_security_protocol_map": None,
}


def test_node_of_both_roles_beside_others_is_combined():
    config = config_of(**COMBINED)
    assert keeper_of(config) is Keeper.COMBINED
    assert is_in_quorum(config)
    assert not is_controller(config)
    assert judge(config, config.sources).refusals == []
    assert list(advertised_controllers(config)) == ["CONTROLLER"]
    assert config.listeners() == ("PLAINTEXT://a:9092",)


def test_lone_node_is_combined_on_a_dir_of_a_controller():
    config = config_of(**COMBINED | {"controller_quorum_voters": "1@a:9093"})
    assert keeper_of(config) is Keeper.ITSELF
    config.has_metadata_log = True
    assert keeper_of(config) is Keeper.COMBINED
    assert judge(config, config.sources).refusals == []


def test_settings_set_while_a_lone_node_runs_are_of_both_roles():
    config = config_of(**COMBINED | {"controller_quorum_voters": "1@a:9093"})
    config.has_metadata_log = True
    changed = config.with_dynamic({"message.max.bytes": "1000"}, {})
    assert keeper_of(changed) is Keeper.COMBINED
    assert changed.is_node_id_set


def test_node_of_both_roles_that_is_no_voter_stops_the_start():
    config = config_of(**COMBINED | {"controller_quorum_voters": "2@b:9093"})
    assert any("has no controller of that id" in line for line in judge(config, config.sources).refusals)
