"""Settings of a broker in a cluster on ZooKeeper: what they mean, and which do not go together."""

import pytest

from barnabas.config import cluster
from barnabas.config.cluster import (
    LEADER_SELECTOR,
    RACK_SELECTOR,
    check_cluster,
    parse_connect,
    reads_from_rack,
    zookeeper_settings,
)
from barnabas.config.keeper import is_clustered
from barnabas.config.listeners import inter_broker_listener
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError

ZOOKEEPER = {"zookeeper.connect": "one,two:2182/kafka"}


def with_settings(**names: str) -> BrokerConfig:
    return BrokerConfig({**ZOOKEEPER, **{name.replace("_", "."): text for name, text in names.items()}})


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("localhost", [("localhost", 2181)], ""),
        ("a:1,b:2", [("a", 1), ("b", 2)], ""),
        (" a:1 , b/x/y/ ", [("a", 1), ("b", 2181)], "/x/y"),
        ("a:1/", [("a", 1)], ""),
        ("[::1]:7,[fe80::1]", [("::1", 7), ("fe80::1", 2181)], ""),
    ],
)
def test_addresses_of_zookeeper(text, servers, chroot):
    assert parse_connect(text) == (tuple(servers), chroot)


@pytest.mark.parametrize(
    "text", ["", "/kafka", "a:b", "a:²", "a:0", "a:70000", "a:1,,b:1", "a:1//x", "a:1/../x"]
)
def test_what_is_no_address_of_zookeeper(text):
    with pytest.raises(SettingError, match=r"zookeeper\.connect"):
        parse_connect(text)


def test_the_address_is_written_as_zookeeper_reads_it():
    assert zookeeper_settings(with_settings()).connect == "one:2181,two:2182/kafka"


def test_the_first_connection_may_take_as_long_as_a_session():
    settings = zookeeper_settings(with_settings(zookeeper_session_timeout_ms="6000"))
    assert (settings.session_timeout_ms, settings.connection_timeout_ms) == (6000, 6000)


def test_a_broker_without_zookeeper_is_alone():
    assert is_clustered(with_settings())
    assert not is_clustered(BrokerConfig({}))


def test_acls_need_somebody_whose_they_are():
    with pytest.raises(SettingError, match=r"zookeeper\.digest\.credentials"):
        check_cluster(with_settings(zookeeper_set_acl="true"))
    certificate = {"zookeeper_ssl_client_enable": "true", "zookeeper_ssl_keystore_location": "/k.pem"}
    assert zookeeper_settings(with_settings(zookeeper_set_acl="true", **certificate)).has_acls
    parsed = zookeeper_settings(with_settings(zookeeper_set_acl="true", zookeeper_digest_credentials="u:p:q"))
    assert (parsed.has_acls, parsed.digest) == (True, ("u", "p:q"))


@pytest.mark.parametrize(
    ("name", "named", "type_"),
    [("k.jks", "PEM", "PEM"), ("k.pem", "", "PEM"), ("k.p12", "", "PKCS12"), ("k.jks", "", "JKS"), ("k", "", "JKS")],
)  # fmt: skip
def test_a_store_has_the_type_that_is_named_or_that_of_its_file(name, named, type_):
    tls = {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.keystore.location": f"/{name}"}
    if named:
        tls["zookeeper.ssl.keystore.type"] = named
    store = zookeeper_settings(BrokerConfig({**ZOOKEEPER, **tls})).tls
    assert store is not None
    assert store.key_store is not None
    assert (store.key_store.type, store.trust_store, store.checks_host_name) == (type_, None, True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"broker.id.generation.enable": "false"}, "broker.id is not set"),
        ({"broker.id": "1001"}, r"numbers above reserved\.broker\.max\.id=1000"),
        ({"replica.selector.class": "com.example.Mine"}, "no such selector"),
        ({"replica.fetch.wait.max.ms": "40000"}, r"replica\.socket\.timeout\.ms=30000"),
        ({"inter.broker.listener.name": "INSIDE"}, "there are PLAINTEXT"),
        ({"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"}, "only one of"),
        ({"inter.broker.protocol.version": "4.0"}, r"a version from 0\.8 to 3\.9"),
        ({"inter.broker.protocol.version": "x"}, r"a version from 0\.8 to 3\.9"),
        ({"inter.broker.protocol.version": "3.x"}, r"a version from 0\.8 to 3\.9"),
        ({"inter.broker.protocol.version": "3.²"}, r"a version from 0\.8 to 3\.9"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(settings, words):
    with pytest.raises(SettingError, match=words):
        check_cluster(BrokerConfig({**ZOOKEEPER, **settings}))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"broker.id": "1000"},
        {"broker.id": "1001", "broker.id.generation.enable": "false"},
        {"listeners": "INSIDE://:1,OUTSIDE://:2", "inter.broker.listener.name": "inside"},
        {"inter.broker.protocol.version": "3.9-IV0"},
        {"inter.broker.protocol.version": "0.10.2-IV0"},
        {"replica.selector.class": LEADER_SELECTOR},
    ],
)
def test_what_goes_together(settings):
    check_cluster(BrokerConfig({**ZOOKEEPER, **settings}))


def test_the_listener_of_brokers_has_a_name():
    assert inter_broker_listener(BrokerConfig({})) == "PLAINTEXT"
    assert inter_broker_listener(BrokerConfig({"inter.broker.listener.name": "inside"})) == "INSIDE"


def test_consumers_read_in_their_rack_where_that_is_set():
    assert not reads_from_rack(with_settings())
    assert reads_from_rack(with_settings(replica_selector_class=RACK_SELECTOR))


@pytest.mark.parametrize("text", ["user", "user:", ":password", ":"])
def test_zookeeper_credentials_need_both_and_are_not_repeated(text):
    with pytest.raises(SettingError, match=r"=\.\.\.: it is not of the form USER:PASSWORD"):
        cluster.digest_of(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("u:p", ("u", "p")), ("u:p:q", ("u", "p:q")), ("", None), (None, None)]
)
def test_credentials_for_zookeeper_end_at_the_first_colon(text, expected):
    assert cluster.digest_of(text) == expected
