"""Credentials and delegation tokens: in the image, and as a login looks them up."""

from dataclasses import replace

import pytest

from barnabas.cluster.kraft.takeover import changes_of
from barnabas.cluster.metadata.access_changes import (
    DelegationTokenChanged,
    DelegationTokenRemoved,
    ScramCredentialChanged,
)
from barnabas.cluster.metadata.credentials import ClusterCredentials
from barnabas.cluster.metadata.image import ClusterImage
from barnabas.environment.real import OsEntropy, OsThreads
from barnabas.security import scram, tokens
from barnabas.security.tokens import Token
from barnabas.serving.loop_budget import LoopBudget

ALICE = scram.credential(scram.SCRAM_SHA_256, "secret", b"salt", 4096)
TOKEN = Token("id-1", "User:alice", "User:bob", ("User:carol",), 1_000, 2_000, 3_000)
CHANGES = [
    ScramCredentialChanged("alice", "SCRAM-SHA-256", ALICE),
    ScramCredentialChanged("alice", "SCRAM-SHA-512", ALICE),
    ScramCredentialChanged("alice", "SCRAM-SHA-512", None),
    DelegationTokenChanged(TOKEN),
    DelegationTokenRemoved("id-2"),
]


class Metadata:
    """A store of which only the image is asked."""

    def __init__(self, image):
        self.image = image


def credentials(image, *, metadata=None, secret_key="key", now_ms=1_500):
    return ClusterCredentials(
        metadata or Metadata(image), secret_key, clock_ms=lambda: now_ms, entropy=OsEntropy(), threads=OsThreads(),
        budget=LoopBudget(),
    )  # fmt: skip


def test_an_image_is_made_of_its_changes():
    image = ClusterImage("c").apply(CHANGES)
    assert image.scram == {"alice": {"SCRAM-SHA-256": ALICE}}
    assert image.tokens == {"id-1": TOKEN}
    again = ClusterImage("c").apply(changes_of(image))
    assert (again.scram, again.tokens) == (image.scram, image.tokens)


def test_a_user_without_credentials_is_no_user():
    image = ClusterImage("c").apply([*CHANGES, ScramCredentialChanged("alice", "SCRAM-SHA-256", None)])
    assert image.scram == {}
    assert credentials(image).scram("SCRAM-SHA-256", "alice") is None


def test_a_login_finds_what_the_newest_image_has():
    held = credentials(ClusterImage("c").apply(CHANGES))
    assert held.scram("SCRAM-SHA-256", "alice") is ALICE
    assert held.scram("SCRAM-SHA-512", "alice") is None
    assert held.scram("SCRAM-SHA-256", "mallory") is None
    assert held.token("id-1") is TOKEN


@pytest.mark.parametrize("now_ms", [2_001, 3_001])
def test_a_token_that_has_expired_is_not_there_for_a_login(now_ms):
    assert credentials(ClusterImage("c").apply(CHANGES), now_ms=now_ms).token("id-1") is None


async def test_without_a_secret_key_there_are_no_tokens():
    held = credentials(ClusterImage("c").apply(CHANGES), secret_key=None)
    assert not held.has_tokens
    assert held.token("id-1") is None
    assert await held.token_scram("SCRAM-SHA-256", "id-1") is None


async def test_holder_of_a_token_logs_in_with_its_hmac_in_base64():
    held = credentials(ClusterImage("c").apply(CHANGES))
    credential = await held.token_scram("SCRAM-SHA-512", "id-1")
    password = tokens.token_password(tokens.token_hmac("key", "id-1"))
    assert credential == scram.credential(scram.SCRAM_SHA_512, password, credential.salt, 4096)
    assert await held.token_scram("SCRAM-SHA-512", "id-1") is credential
    assert await held.token_scram("SCRAM-SHA-512", "id-2") is None
    assert await held.token_scram("PLAIN", "id-1") is None


async def test_a_token_is_found_by_its_hmac_until_it_is_removed():
    metadata = Metadata(ClusterImage("c").apply(CHANGES))
    held = credentials(None, metadata=metadata)
    mac = tokens.token_hmac("key", "id-1")
    assert await held.token_with(mac) is TOKEN
    assert await held.token_with(b"another") is None
    later = replace(TOKEN, expires_ms=2_500)
    metadata.image = metadata.image.apply([DelegationTokenChanged(later)])
    assert await held.token_with(mac) is later
    metadata.image = metadata.image.apply([DelegationTokenRemoved("id-1")])
    assert await held.token_with(mac) is None
