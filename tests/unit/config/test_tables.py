"""The tables of settings: complete, well-formed, and true about what the broker acts on."""

import re
from pathlib import Path

import pytest

import barnabas
from barnabas.config import broker, client_metrics, group, tables, topic
from barnabas.config.setting import KINDS, Setting

SERVER = Path(barnabas.__file__).parent
EVERY = [tables.setting(name) for name in tables.names()]
NAMED = {value.name for value in vars(broker).values() if isinstance(value, Setting)}


def test_there_is_one_row_per_name():
    names = list(tables.names())
    assert len(names) == len(set(names))
    assert len(names) > 400


@pytest.mark.parametrize("row", [*EVERY, *topic.ROWS, *client_metrics.ROWS], ids=lambda row: row.name)
def test_a_row_is_well_formed(row):
    assert row.kind.name in KINDS
    assert row.importance in ("high", "medium", "low")
    assert row.changes in ("", "broker", "cluster", "internal")
    assert row.effect == "" or row.effect in tables.WITHOUT_EFFECT
    assert row.doc.endswith(".")
    assert row.doc[0].isupper()
    assert len(row.doc) < 120
    if row.default is not None:
        row.check(row.default)
        assert row.parse(row.format(row.default)) == row.default


def test_every_reason_is_used():
    used = {row.effect for row in [*EVERY, *topic.ROWS, *client_metrics.ROWS]} | {"limits"}  # of one listener
    assert used - {""} == set(tables.WITHOUT_EFFECT)


def test_what_is_said_to_have_an_effect_is_read_by_the_broker():
    read = set(NAMED)
    for row in topic.ROWS:
        if not row.effect or row.acts_in_cluster:
            read.update(row.broker_names)
    for bounded in group.rows().values():
        if not bounded.setting.effect:
            read.update(bounded.setting.broker_names)
            read.update(bound.name for bound in (bounded.least, bounded.largest) if bound)
    acted_upon = {row.name for row in EVERY if not row.effect or row.acts_in_cluster}
    assert acted_upon - read == set(), (
        "name them in config/broker.py, or say in their rows why they have no effect"
    )
    assert read - acted_upon == set(), "empty the effect in their rows, or take them out of config/broker.py"


def test_what_has_a_name_in_the_code_is_used():
    sources = [
        path.read_text()
        for path in SERVER.rglob("*.py")
        if path.name != "broker.py" and "generated" not in path.parts
    ]
    used = set(re.findall(r"\b[A-Z][A-Z_]+\b", "\n".join(sources)))
    bounds = {bound.name for row in group.rows().values() for bound in (row.least, row.largest) if bound}
    unused = {
        value.name
        for name, value in vars(broker).items()
        if isinstance(value, Setting) and name not in used and value.name not in bounds
    }
    assert unused == set(), "named in config/broker.py, and read nowhere"


def test_default_has_the_same_limits_as_its_topic_setting():
    for row in topic.ROWS:
        for name in row.broker_names[:1]:
            default = tables.setting(name)
            assert default.kind is row.kind
            assert default.default in (row.default, None), name


def test_a_setting_of_one_listener_is_the_setting_unset():
    setting = tables.find("listener.name.internal.max.connections")
    assert setting.default is None
    assert setting.base == "max.connections"
    assert setting.parse("7") == 7
    assert tables.find("listener.name.internal.plain.sasl.jaas.config").sensitive
    assert tables.find("listener.name.internal") is None
    assert tables.find("listener.name.internal.no.such") is None


def test_what_nobody_knows_is_not_found():
    assert tables.find("no.such.setting") is None
    assert not tables.belongs_to_plugin("no.such.setting")
    assert tables.belongs_to_plugin("rsm.config.bucket")


def test_hidden_settings_are_known_but_not_listed():
    listed = set(tables.listed())
    for name in ("log.initial.task.delay.ms", "zookeeper.connect", "leader.replication.throttled.rate"):
        assert tables.find(name) is not None
    assert "zookeeper.connect" not in listed
    assert "internal.metadata.delete.delay.millis" not in listed
    assert {"log.dirs", "node.id", "ssl.keystore.password"} <= listed


def test_settings_of_clusters_are_listed_in_a_cluster():
    alone, in_cluster = set(tables.listed()), set(tables.listed(in_cluster=True))
    assert alone < in_cluster
    assert {"zookeeper.connect", "controlled.shutdown.max.retries"} <= in_cluster - alone
    assert "zookeeper.clientCnxnSocket" not in in_cluster
