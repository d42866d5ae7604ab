"""Znodes of users, client ids and addresses: whose they are, what they say that is new, and what cannot be read."""

from __future__ import annotations

import pytest

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.cluster.zookeeper import entity_settings
from barnabas.cluster.zookeeper.entity_settings import USERS
from barnabas.security import scram
from barnabas.serving.quotas.entities import QuotaEntity

EMPTY = ClusterImage("c")
ALICE = QuotaEntity("alice")
CREDENTIAL = scram.ScramCredential(b"salt", b"stored", b"server", 4096)
OTHER = scram.ScramCredential(b"pepper", b"stored", b"server", 8192)
TEXT = scram.to_text(CREDENTIAL)


@pytest.mark.parametrize(
    "name", ["", "/clients/app", "alice/clients/", "alice/other/app", "alice/clients/a/b"]
)
def test_a_path_that_is_no_entitys_has_no_quotas(name: str) -> None:
    assert entity_settings.quota_entity((USERS, name)) is None
