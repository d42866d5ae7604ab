"""Credentials and delegation tokens in ZooKeeper: Kafka's znodes, written, followed and shared with others' settings."""

import json

from barnabas.cluster.metadata.access_changes import (
    DelegationTokenChanged,
    DelegationTokenRemoved,
    ScramCredentialChanged,
)
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper.store import ZooKeeperStore
from barnabas.security import scram
from barnabas.security.tokens import Token
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper
from tests.support.zookeeper_stores import Cluster, settled

ALICE = scram.credential(scram.SCRAM_SHA_256, "secret", b"salt", 4096)
TOKEN = Token("id-1", "User:alice", "User:bob", ("User:carol",), 1_000, 2_000, 3_000)


def set_alice(credential=ALICE, mechanism="SCRAM-SHA-256"):
    return lambda _: [ScramCredentialChanged("alice@x", mechanism, credential)]


async def test_credential_is_written_like_kafkas_beside_quotas():
    cluster = Cluster()
    path = "/config/users/alice%40x"
    async with cluster.store(1) as first, cluster.store(2) as two:
        await cluster.sessions[0].create(
            path, resources.encode_config({"producer_byte_rate": "1000"}), parents=True
        )
        image = await first.change(set_alice())
        assert image.scram == {"alice@x": {"SCRAM-SHA-256": ALICE}}
        assert cluster.znode(path) == {
            "version": 1,
            "config": {"producer_byte_rate": "1000", "SCRAM-SHA-256": scram.to_text(ALICE)},
        }
        await settled(3)
        assert two.image.scram == image.scram
        image = await two.change(set_alice(None))
        assert image.scram == {}
        assert cluster.znode(path)["config"] == {"producer_byte_rate": "1000"}
        await settled(3)
        assert first.image.scram == {}
    notified = [json.loads(data) for name, data in cluster.server.dump().items() if "config_change_" in name]
    assert {"version": 2, "entity_path": "users/alice%40x"} in notified


async def test_what_kafkas_tool_writes_to_the_znode_is_followed():
    cluster = Cluster()
    async with cluster.store(1) as first:
        session = cluster.sessions[0]
        await session.create(
            "/config/users/bob",
            resources.encode_config({"SCRAM-SHA-512": scram.to_text(ALICE)}),
            parents=True,
        )
        await session.create(
            "/config/changes/config_change_", resources.encode_config_change("users/bob"), sequence=True
        )
        await settled(3)
        assert first.image.scram == {"bob": {"SCRAM-SHA-512": ALICE}}


async def test_unreadable_credential_is_kept_and_not_shown(caplog):
    cluster = Cluster()
    async with cluster.store(1) as first:
        await first.change(set_alice())
        session = cluster.sessions[0]
        await session.set("/config/users/alice%40x", resources.encode_config({"SCRAM-SHA-256": "hunter2"}))
        await session.create(
            "/config/changes/config_change_", resources.encode_config_change("users/alice%40x"), sequence=True
        )
        await settled(3)
        assert first.image.scram == {"alice@x": {"SCRAM-SHA-256": ALICE}}
    assert "/config/users/alice%40x: the value of SCRAM-SHA-256 cannot be read" in caplog.text
    assert "hunter2" not in caplog.text


async def test_credentials_are_read_at_start_without_default_users():
    server = SimulatedZooKeeper()
    session = server.session()
    text = resources.encode_config({"SCRAM-SHA-256": scram.to_text(ALICE)})
    for name in ("carol", "<default>", "%3Cdefault%3E"):
        await session.create(f"/config/users/{name}", text, parents=True)
    store = ZooKeeperStore(session, 1, lambda: 0)
    await store.open("c")
    assert sorted(store.image.scram) == ["<default>", "carol"]


async def test_token_is_written_like_kafkas_and_followed():
    cluster = Cluster()
    async with cluster.store(1, has_tokens=True) as first, cluster.store(2, has_tokens=True) as two:
        image = await first.change(lambda _: [DelegationTokenChanged(TOKEN)])
        assert image.tokens == {"id-1": TOKEN}
        assert cluster.znode("/delegation_token/tokens/id-1") == {
            "version": 3, "owner": "User%3Aalice", "tokenRequester": "User%3Abob", "renewers": ["User%3Acarol"],
            "issueTimestamp": 1_000, "maxTimestamp": 3_000, "expiryTimestamp": 2_000, "tokenId": "id-1",
        }  # fmt: skip
        await settled(3)
        assert two.image.tokens == {"id-1": TOKEN}
        await two.change(lambda _: [DelegationTokenRemoved("id-1")])
        await settled(3)
        assert first.image.tokens == {}
        assert "/delegation_token/tokens/id-1" not in cluster.server.dump()
    notified = [data for name, data in cluster.server.dump().items() if "token_change_" in name]
    assert notified == [b"id-1", b"id-1"]


async def test_tokens_are_read_at_start_and_after_a_reconnect():
    server = SimulatedZooKeeper()
    other = server.session()
    await other.create(resources.token_path("id-1"), resources.encode_token(TOKEN), parents=True)
    cluster = Cluster(server)
    async with cluster.store(1, has_tokens=True) as first:
        assert first.image.tokens == {"id-1": TOKEN}
        await settled()
        cluster.sessions[0].disconnect()
        await other.delete(resources.token_path("id-1"))
        assert first.image.tokens == {"id-1": TOKEN}
        cluster.sessions[0].connect_soon()
        await settled(3)
        assert first.image.tokens == {}


async def test_without_a_secret_key_no_token_is_read():
    server = SimulatedZooKeeper()
    session = server.session()
    await session.create(resources.token_path("id-1"), resources.encode_token(TOKEN), parents=True)
    async with Cluster(server).store(1) as first:
        assert first.image.tokens == {}
