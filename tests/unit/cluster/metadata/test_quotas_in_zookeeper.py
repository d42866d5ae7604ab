"""Client quotas in ZooKeeper: Kafka's layout, shared with what else a user's znode has and with other brokers."""

import json
import logging

from barnabas.cluster.metadata.access_changes import ClientQuotaChanged
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.serving.quotas.entities import QuotaEntity
from tests.support.zookeeper_stores import Cluster, settled

SCRAM = "salt=c2FsdA==,stored_key=eA==,server_key=eQ==,iterations=4096"


def changed(entity, **quotas):
    return lambda _: [ClientQuotaChanged(entity, tuple(quotas.items()))]


async def put_by_kafka(cluster, path, settings):
    """Write a znode and a notification as a broker of Kafka's does."""
    session = cluster.server.session()
    current = cluster.server.dump().get(f"/config/{path}")
    data = resources.encode_config(settings)
    if current is None:
        await session.create(f"/config/{path}", data, parents=True)
    else:
        await session.set(f"/config/{path}", data)
    change = resources.encode_config_change(path)
    await session.create("/config/changes/config_change_", change, sequence=True, parents=True)
    await settled(3)


def notified(cluster):
    return [
        json.loads(data)["entity_path"]
        for path, data in cluster.server.dump().items()
        if path.startswith("/config/changes/")
    ]


async def test_quotas_are_kept_where_kafka_looks_for_them(autojump_clock):
    cluster = Cluster()
    async with cluster.store() as store:
        await store.change(changed(QuotaEntity("al ice", "my*app"), producer_byte_rate=1000.0))
        await store.change(changed(QuotaEntity("", ""), request_percentage=2.5))
        await store.change(changed(QuotaEntity(client_id="app"), controller_mutation_rate=3.0))
        await store.change(changed(QuotaEntity(ip="10.0.0.1"), connection_creation_rate=9.0))
        assert cluster.znode("/config/users/al%20ice/clients/my%2Aapp") == {
            "version": 1,
            "config": {"producer_byte_rate": "1000"},
        }
        assert cluster.znode("/config/users/<default>/clients/<default>")["config"] == {
            "request_percentage": "2.5"
        }
        assert cluster.znode("/config/clients/app")["config"] == {"controller_mutation_rate": "3.0"}
        assert cluster.znode("/config/ips/10.0.0.1")["config"] == {"connection_creation_rate": "9"}
        assert notified(cluster) == [
            "users/al%20ice/clients/my%2Aapp",
            "users/<default>/clients/<default>",
            "clients/app",
            "ips/10.0.0.1",
        ]


async def test_the_credentials_of_a_user_stay_when_quotas_change(autojump_clock):
    cluster = Cluster()
    await put_by_kafka(cluster, "users/alice", {"SCRAM-SHA-256": SCRAM})
    async with cluster.store() as store:
        await store.change(changed(QuotaEntity("alice"), producer_byte_rate=1000.0))
        config = cluster.znode("/config/users/alice")["config"]
        assert config == {"SCRAM-SHA-256": SCRAM, "producer_byte_rate": "1000"}
        await store.change(changed(QuotaEntity("alice")))
        assert cluster.znode("/config/users/alice")["config"] == {"SCRAM-SHA-256": SCRAM}
        assert store.image.quotas == {}


async def test_what_another_broker_changes_is_followed(autojump_clock):
    cluster = Cluster()
    async with cluster.store() as store, cluster.store(2) as other:
        await put_by_kafka(cluster, "users/alice/clients/app", {"producer_byte_rate": "10"})
        assert store.image.quotas == {QuotaEntity("alice", "app"): {"producer_byte_rate": 10.0}}
        await other.change(changed(QuotaEntity("alice", "app"), producer_byte_rate=20.0))
        await settled(3)
        assert store.image.quotas == {QuotaEntity("alice", "app"): {"producer_byte_rate": 20.0}}
        await other.change(changed(QuotaEntity("alice", "app")))
        await settled(3)
        assert store.image.quotas == {}


async def test_change_is_decided_again_after_a_conflict(autojump_clock):
    cluster = Cluster()
    async with cluster.store() as store:
        session = cluster.server.session()
        await session.create(
            "/config/users/alice", resources.encode_config({"producer_byte_rate": "10"}), parents=True
        )
        assert store.image.quotas == {}  # nobody has notified of it

        def decide(image):
            before = image.quotas.get(QuotaEntity("alice"), {})
            yield ClientQuotaChanged(
                QuotaEntity("alice"), tuple({**before, "consumer_byte_rate": 5.0}.items())
            )

        await store.change(decide)
        assert cluster.znode("/config/users/alice")["config"] == {
            "producer_byte_rate": "10",
            "consumer_byte_rate": "5",
        }


async def test_a_value_that_is_no_number_is_logged_and_left_out(autojump_clock, caplog):
    cluster = Cluster()
    await put_by_kafka(
        cluster, "clients/app", {"producer_byte_rate": "fast", "consumer_byte_rate": "1", "other": "x"}
    )
    with caplog.at_level(logging.ERROR):
        async with cluster.store() as store:
            assert store.image.quotas == {QuotaEntity(client_id="app"): {"consumer_byte_rate": 1.0}}
    assert "/config/clients/app: the value of producer_byte_rate cannot be read" in caplog.text
