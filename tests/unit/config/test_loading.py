"""Settings of a broker are read from files, names of the node, dynamic settings, and defaults of topics."""

import pytest

from barnabas.config import broker, topic
from barnabas.config.keeper import is_clustered
from barnabas.config.loading import (
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    STATIC_BROKER_CONFIG,
    BrokerConfig,
    explain_unknown,
    parse_pairs,
)
from barnabas.config.properties import parse_lines
from barnabas.config.setting import SettingError
from tests.support.whole_steps import parse_properties


def test_a_bad_value_is_named_with_its_place():
    with pytest.raises(
        SettingError, match=r"server.properties:3: num.partitions=0: a whole number from 1 on"
    ):
        BrokerConfig({"num.partitions": "0"}, {"num.partitions": "server.properties:3"})


def test_unknown_settings_are_kept_apart():
    config = BrokerConfig({"num.partition": "3", "rsm.config.bucket": "b", "log.dirs": "/a"})
    assert config.unknown == ["num.partition"]
    assert explain_unknown("num.partition") == "unknown setting 'num.partition'; did you mean num.partitions?"
    assert explain_unknown("xyzzy") == "unknown setting 'xyzzy'"


@pytest.mark.parametrize("number", [0, 7])
@pytest.mark.parametrize("name", ["node.id", "broker.id"])
def test_the_node_has_two_names(name, number):
    config = BrokerConfig({name: str(number)})
    assert config.get(broker.NODE_ID) == config.get(broker.BROKER_ID) == number
    assert config.is_node_id_set
    assert config.texts_of("broker.id") == config.texts_of("node.id") == [(str(number), STATIC_BROKER_CONFIG)]


def test_the_two_names_of_the_node_must_agree():
    with pytest.raises(SettingError, match=r"broker.id=2 and node.id=3 must be the same"):
        BrokerConfig({"broker.id": "2", "node.id": "3"})


def test_a_generated_broker_id_is_none_at_all():
    for settings in ({"broker.id": "-1"}, {}):
        config = BrokerConfig(settings)
        assert config.get(broker.NODE_ID) == config.get(broker.BROKER_ID) == 1
        assert not config.is_node_id_set
    config = BrokerConfig({"broker.id": "-1", "node.id": "4"})
    assert config.get(broker.BROKER_ID) == 4


def test_the_nearest_dynamic_setting_counts():
    config = BrokerConfig({"message.max.bytes": "1000"})
    config.set_dynamic({"message.max.bytes": "2000"}, {"message.max.bytes": "3000"})
    assert config.value_of("message.max.bytes") == 3000
    assert config.texts_of("message.max.bytes") == [
        ("3000", DYNAMIC_BROKER_CONFIG), ("2000", DYNAMIC_DEFAULT_BROKER_CONFIG), ("1000", STATIC_BROKER_CONFIG),
    ]  # fmt: skip
    config.set_dynamic({"message.max.bytes": "2000"}, {})
    assert config.value_of("message.max.bytes") == 2000
    config.set_dynamic({}, {})
    assert config.value_of("message.max.bytes") == 1000


@pytest.mark.parametrize(
    ("settings", "value", "name"),
    [
        ({}, 604_800_000, None),
        ({"log.retention.hours": "2"}, 7_200_000, "log.retention.hours"),
        ({"log.retention.hours": "2", "log.retention.minutes": "5"}, 300_000, "log.retention.minutes"),
        ({"log.retention.minutes": "5", "log.retention.ms": "9"}, 9, "log.retention.ms"),
        ({"log.retention.hours": "-1"}, -1, "log.retention.hours"),
    ],
)
def test_a_topics_default_is_from_the_most_exact_setting(settings, value, name):
    assert BrokerConfig(settings).topic_default(topic.SETTINGS["retention.ms"]) == (value, name)


def test_log_directories():
    assert BrokerConfig({}).log_dirs == ("/tmp/kafka-logs",)
    assert BrokerConfig({"log.dir": "/a"}).log_dirs == ("/a",)
    assert BrokerConfig({"log.dir": "/a", "log.dirs": "/b, /c"}).log_dirs == ("/b", "/c")


def test_listeners_names_have_protocols():
    config = BrokerConfig({"listener.security.protocol.map": "internal:PLAINTEXT, OUT:ssl"})
    assert config.listener_security_protocols() == {"INTERNAL": "PLAINTEXT", "OUT": "SSL"}
    with pytest.raises(SettingError, match="NAME:PROTOCOL"):
        BrokerConfig({"listener.security.protocol.map": "x"}).listener_security_protocols()


def test_pairs():
    assert parse_pairs(["a=b", " c = d=e "]) == {"a": "b", "c": "d=e"}
    with pytest.raises(SettingError, match="key=value"):
        parse_pairs(["a"])


def test_properties_files():
    text = "# note\n! note\na=1\r\n  b : two words \nc\\ d e\\\n   f\\tg\n\nh\\u00e4=\\\\\nlast"
    assert list(parse_lines(text)) == [
        (3, "a", "1"), (4, "b", "two words"), (5, "c d", "ef\tg"), (8, "hä", "\\"), (9, "last", ""),
    ]  # fmt: skip
    assert parse_properties("a=1\na=2") == {"a": "2"}


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("\\\n#a=1\nb=2", [(3, "b", "2")]),
        ("\\\n  !a=1", []),
        ("a=\\\n#1", [(1, "a", "#1")]),
        ("a=1\\\n\nb=2", [(1, "a", "1"), (3, "b", "2")]),
        ("\\\n\n#a\nb=2", [(4, "b", "2")]),
        ("a=1\\", [(1, "a", "1")]),
        ("a=1\\\\\n#b", [(1, "a", "1\\")]),
        ("a=1\\\\\\\n 2", [(1, "a", "1\\2")]),
        ("a=1\r\nb=2\rc=3", [(1, "a", "1"), (2, "b", "2"), (3, "c", "3")]),
    ],
)
def test_lines_go_on_where_javas_do(text, entries):
    assert list(parse_lines(text)) == entries


def test_a_broken_escape_is_explained():
    with pytest.raises(SettingError, match=r"line 2: \\u12 is no character"):
        parse_properties("a=1\nb=\\u12")


def test_dynamic_setting_without_a_value_has_no_effect():
    config = BrokerConfig({"message.max.bytes": "1000"})
    [error] = config.set_dynamic({}, {"message.max.bytes": "-1", "max.connections": "7"})
    assert "message.max.bytes=-1" in str(error)
    assert config.value_of("message.max.bytes") == 1000
    assert config.value_of("max.connections") == 7
    with pytest.raises(SettingError, match=r"message\.max\.bytes=-1"):
        config.with_dynamic({}, {"message.max.bytes": "-1"})


def test_static_setting_has_no_effect_on_a_running_broker():
    config = BrokerConfig({"node.id": "3"})
    config.set_dynamic({"zookeeper.connect": "a:1"}, {"node.id": "4", "message.max.bytes": "7"})
    assert not is_clustered(config)
    assert config.value_of("node.id") == 3
    assert config.value_of("message.max.bytes") == 7
    assert config.texts_of("zookeeper.connect") == [("a:1", 3)]
