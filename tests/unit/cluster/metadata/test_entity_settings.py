"""Znodes of users, client ids and addresses: their entities, what they say that is new, and what cannot be read."""

from __future__ import annotations

import pytest

from barnabas.cluster.metadata.image import ClusterImage
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
    "name", ["", "/clients/app", "alice/clients/", "alice/other/app", "alice/clients/a/b"]
)
def test_a_path_that_is_no_entitys_has_no_quotas(name: str) -> None:
    assert entity_settings.quota_entity((USERS, name)) is None


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
