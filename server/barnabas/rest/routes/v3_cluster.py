"""Routes of v3: the cluster and its brokers."""

from __future__ import annotations

from typing import Any

from barnabas.client.admin import BrokerInfo, ClusterInfo
from barnabas.rest.base import V3, Call, Route
from barnabas.rest.errors import RestError
from barnabas.rest.resources import at, cluster_of, collection, related, resource
from barnabas.rest.routes.v3_topics import replica_rows


def _cluster(call: Call, cluster: ClusterInfo) -> dict[str, Any]:
    identity = cluster.cluster_id
    fields: dict[str, Any] = {"cluster_id": identity}
    if cluster.controller_id >= 0:
        fields["controller"] = related(call, *at(identity, "brokers", cluster.controller_id))
    fields |= {
        "acls": related(call, *at(identity, "acls")),
        "brokers": related(call, *at(identity, "brokers")),
        "broker_configs": related(call, *at(identity, "broker-configs")),
        "consumer_groups": related(call, *at(identity, "consumer-groups")),
        "topics": related(call, *at(identity, "topics")),
        "partition_reassignments": related(
            call, *at(identity, "topics", "-", "partitions", "-", "reassignment")
        ),
    }
    return resource(call, "KafkaCluster", at(identity), [("kafka", identity)], fields)


async def list_clusters(call: Call) -> object:
    """Return the cluster, in a list."""
    cluster = await call.backend.admin.describe_cluster()
    return collection(call, "KafkaCluster", ("v3", "clusters"), [_cluster(call, cluster)])


async def show_cluster(call: Call) -> object:
    """Return the cluster."""
    await cluster_of(call)
    return _cluster(call, await call.backend.admin.describe_cluster())


def _broker(call: Call, cluster_id: str, broker: BrokerInfo) -> dict[str, Any]:
    segments = at(cluster_id, "brokers", broker.broker_id)
    return resource(
        call, "KafkaBroker", segments, [("kafka", cluster_id), ("broker", broker.broker_id)],
        {
            "cluster_id": cluster_id,
            "broker_id": broker.broker_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "configs": related(call, *segments, "configs"),
            "partition_replicas": related(call, *segments, "partition-replicas"),
        },
    )  # fmt: skip


async def list_brokers(call: Call) -> object:
    """Return all brokers."""
    cluster_id = await cluster_of(call)
    cluster = await call.backend.admin.describe_cluster()
    data = [_broker(call, cluster_id, broker) for broker in cluster.brokers]
    return collection(call, "KafkaBroker", at(cluster_id, "brokers"), data)


async def broker_of(call: Call) -> BrokerInfo:
    """Return the broker of the path. Raises RestError, ClientError."""
    number = call.number("broker_id")
    for broker in (await call.backend.admin.describe_cluster()).brokers:
        if broker.broker_id == number:
            return broker
    raise RestError(404, 404, f"there is no broker {number}")


async def show_broker(call: Call) -> object:
    """Return a broker."""
    cluster_id = await cluster_of(call)
    return _broker(call, cluster_id, await broker_of(call))


async def list_replicas(call: Call) -> object:
    """Return the replicas that a broker has."""
    cluster_id = await cluster_of(call)
    broker = await broker_of(call)
    data: list[dict[str, Any]] = []
    async for page in call.backend.admin.pages():
        for topic in page:
            for partition in topic.partitions:
                if broker.broker_id in partition.replicas:
                    data += replica_rows(call, cluster_id, topic.name, partition, [broker.broker_id])
    segments = at(cluster_id, "brokers", broker.broker_id, "partition-replicas")
    return collection(call, "KafkaReplica", segments, data)


_BROKER = "/v3/clusters/{cluster_id}/brokers/{broker_id}"
ROUTES = (
    Route("GET", "/v3/clusters", list_clusters, "The cluster, in a list", V3),
    Route("GET", "/v3/clusters/{cluster_id}", show_cluster, "The cluster", V3),
    Route("GET", "/v3/clusters/{cluster_id}/brokers", list_brokers, "Brokers", V3),
    Route("GET", _BROKER, show_broker, "A broker", V3),
    Route("GET", f"{_BROKER}/partition-replicas", list_replicas, "Replicas that a broker has", V3),
)
