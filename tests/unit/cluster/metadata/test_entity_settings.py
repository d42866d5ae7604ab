"""Znodes of users, client ids and addresses: whose they are, what they say that is new, and what cannot be read."""

from __future__ import annotations

import math
from typing import Any

import pytest

from barnabas.cluster.metadata.access_changes import ClientQuotaChanged, ScramCredentialChanged
from barnabas.cluster.metadata.changes import ProducerIdsAllocated
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.cluster.zookeeper import entity_settings
from barnabas.cluster.zookeeper.entity_settings import CLIENTS, IPS, USERS
from barnabas.security import scram
from barnabas.serving.quotas.entities import QuotaEntity

EMPTY = ClusterImage("c")
ALICE = QuotaEntity("alice")
SHA256, SHA512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
CREDENTIAL = scram.ScramCredential(b"salt", b"stored", b"server", 4096)
OTHER = scram.ScramCredential(b"pepper", b"stored", b"server", 8192)
TEXT = scram.to_text(CREDENTIAL)


@pytest.mark.parametrize(
    ("entity", "key"),
    [
        (QuotaEntity("alice"), (USERS, "alice")),
        (QuotaEntity("a b/c"), (USERS, "a%20b%2Fc")),
        (QuotaEntity(""), (USERS, "<default>")),
        (QuotaEntity("alice", "app"), (USERS, "alice/clients/app")),
        (QuotaEntity("alice", ""), (USERS, "alice/clients/<default>")),
        (QuotaEntity("", "app"), (USERS, "<default>/clients/app")),
        (QuotaEntity("", ""), (USERS, "<default>/clients/<default>")),
        (QuotaEntity(client_id="a/b"), (CLIENTS, "a%2Fb")),
        (QuotaEntity(client_id=""), (CLIENTS, "<default>")),
        (QuotaEntity(ip="1.2.3.4"), (IPS, "1.2.3.4")),
        (QuotaEntity(ip=""), (IPS, "<default>")),
    ],
)
def test_each_entity_with_quotas_has_a_znode_and_back(entity: QuotaEntity, key: tuple[int, str]) -> None:
    assert entity_settings.key_of_quotas(entity) == key
    assert entity_settings.quota_entity(key) == entity


@pytest.mark.parametrize(
    "name", ["", "/clients/app", "alice/clients/", "alice/other/app", "alice/clients/a/b"]
)
def test_a_path_that_is_no_entitys_has_no_quotas(name: str) -> None:
    assert entity_settings.quota_entity((USERS, name)) is None


@pytest.mark.parametrize(
    ("user", "name"), [("alice", "alice"), ("a b", "a%20b"), ("<default>", "%3Cdefault%3E"), ("ü", "%C3%BC")]
)
def test_each_user_has_a_znode_and_back(user: str, name: str) -> None:
    assert entity_settings.key_of_user(user) == (USERS, name)
    assert entity_settings.user_of((USERS, name)) == user


@pytest.mark.parametrize(
    "key", [(USERS, "<default>"), (USERS, "alice/clients/app"), (CLIENTS, "alice"), (IPS, "alice")]
)
def test_others_have_no_credentials(key: tuple[int, str]) -> None:
    assert entity_settings.user_of(key) is None


@pytest.mark.parametrize(
    ("kind", "key"),
    [("users", (USERS, "x")), ("clients", (CLIENTS, "x")), ("ips", (IPS, "x")), ("topics", None), ("", None)],
)
def test_types_of_entities(kind: str, key: tuple[int, str] | None) -> None:
    assert entity_settings.key_of(kind, "x") == key


def quota(**quotas: float) -> ClientQuotaChanged:
    return ClientQuotaChanged(ALICE, tuple(quotas.items()))


LIMITED = EMPTY.apply([quota(producer_byte_rate=10.0), ScramCredentialChanged("alice", SHA256, CREDENTIAL)])


@pytest.mark.parametrize(
    ("image", "settings", "expected"),
    [
        (EMPTY, {}, []),
        (EMPTY, {"producer_byte_rate": "10"}, [quota(producer_byte_rate=10.0)]),
        (
            EMPTY, {"request_percentage": "2.5", "consumer_byte_rate": "1"},
            [quota(consumer_byte_rate=1.0, request_percentage=2.5)],
        ),
        (EMPTY, {"producer_byte_rate": "x", "strange": "1"}, []),
        (EMPTY, {"producer_byte_rate": "nan"}, []),
        (EMPTY, {"connection_creation_rate": "5"}, []),
        (EMPTY, {SHA256: TEXT}, [ScramCredentialChanged("alice", SHA256, CREDENTIAL)]),
        (EMPTY, {SHA512: TEXT, SHA256: "?"}, [ScramCredentialChanged("alice", SHA512, CREDENTIAL)]),
        (LIMITED, {"producer_byte_rate": "10.0", SHA256: TEXT}, []),
        (LIMITED, {SHA256: TEXT}, [quota()]),
        (LIMITED, {"producer_byte_rate": "10"}, [ScramCredentialChanged("alice", SHA256, None)]),
        (LIMITED, {"producer_byte_rate": "10", SHA256: "?"}, []),
        (
            LIMITED, {"producer_byte_rate": "11", SHA256: scram.to_text(OTHER)},
            [quota(producer_byte_rate=11.0), ScramCredentialChanged("alice", SHA256, OTHER)],
        ),
    ],
)  # fmt: skip
def test_what_a_znode_says_that_is_new(
    image: ClusterImage, settings: dict[str, str], expected: list[Change]
) -> None:
    assert list(entity_settings.changes(image, (USERS, "alice"), settings)) == expected
    after = image.apply(expected)
    assert list(entity_settings.changes(after, (USERS, "alice"), settings)) == []


@pytest.mark.parametrize(
    ("key", "settings", "names"),
    [
        ((USERS, "alice"), {"producer_byte_rate": "1", "consumer_byte_rate": "x", "strange": "y"}, ["consumer_byte_rate"]),
        ((USERS, "alice"), {SHA256: "?", SHA512: TEXT}, [SHA256]),
        ((USERS, "alice"), {SHA256: "?", SHA512: "?", "producer_byte_rate": "nan"}, ["producer_byte_rate", SHA256, SHA512]),
        ((USERS, "<default>"), {SHA256: "?", "producer_byte_rate": "x"}, ["producer_byte_rate"]),
        ((CLIENTS, "app"), {SHA256: "?", "request_percentage": ""}, ["request_percentage"]),
        ((IPS, "1.2.3.4"), {"connection_creation_rate": "x", "producer_byte_rate": "x"}, ["connection_creation_rate"]),
        ((USERS, "alice"), {}, []),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(
    key: tuple[int, str], settings: dict[str, str], names: list[str]
) -> None:
    assert list(entity_settings.unreadable(key, settings)) == names


@pytest.mark.parametrize(
    ("change", "held", "expected"),
    [
        (quota(producer_byte_rate=10.0), {}, {"producer_byte_rate": "10", "consumer_byte_rate": None}),
        (quota(producer_byte_rate=10.0), {"producer_byte_rate": "1e1"}, {"producer_byte_rate": "1e1"}),
        (quota(producer_byte_rate=11.0), {"producer_byte_rate": "1e1"}, {"producer_byte_rate": "11"}),
        (quota(), {"producer_byte_rate": "5"}, {"producer_byte_rate": None, "request_percentage": None}),
    ],
)
def test_quotas_set_and_remove_settings(
    change: Change, held: dict[str, str], expected: dict[str, Any]
) -> None:
    found = entity_settings.update(change, held)
    assert found is not None
    assert found[0] == (USERS, "alice")
    assert found[1].keys() == ALICE.known_quotas.keys()
    assert {name: found[1][name] for name in expected} == expected


def test_a_credential_sets_or_removes_one_setting_and_other_changes_none() -> None:
    set_one = ScramCredentialChanged("a b", SHA256, CREDENTIAL)
    assert entity_settings.update(set_one, {}) == ((USERS, "a%20b"), {SHA256: TEXT})
    removed = ScramCredentialChanged("a b", SHA512, None)
    assert entity_settings.update(removed, {}) == ((USERS, "a%20b"), {SHA512: None})
    assert entity_settings.update(ProducerIdsAllocated(1), {}) is None


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("producer_byte_rate", 10.0, "10"), ("producer_byte_rate", 10.4, "10"),
        ("consumer_byte_rate", 2.0**70, str(2**63 - 1)),
        ("connection_creation_rate", 3.0, "3"), ("request_percentage", 2.5, "2.5"), ("request_percentage", 3.0, "3.0"),
        ("controller_mutation_rate", math.inf, "Infinity"),
    ],
)  # fmt: skip
def test_limits_are_written_as_kafka_reads_them(name: str, value: float, text: str) -> None:
    assert entity_settings.number_text(name, value) == text


def test_what_is_known_has_these_znodes() -> None:
    image = LIMITED.apply([ClientQuotaChanged(QuotaEntity(ip=""), (("connection_creation_rate", 1.0),))])
    assert sorted(entity_settings.known(image)) == [(IPS, "<default>"), (USERS, "alice"), (USERS, "alice")]
