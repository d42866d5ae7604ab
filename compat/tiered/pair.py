"""A broker of Apache Kafka and one of ours in one cluster, with one store in a directory.

A quorum with a controller of either kind; or a ZooKeeper, with Kafka 3.9, and a broker is the controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from compat.cluster import nodes, quorum_nodes
from compat.cluster.nodes import KAFKA, OURS, Brokers, Cluster
from compat.cluster.quorum_nodes import QuorumCluster
from compat.tiered.answers import STORE
from compat.tiered.java import local_jars

KINDS: Final = (KAFKA, OURS)
SEGMENT_BYTES: Final = 1 << 20
"""As small as Kafka 4 allows."""
METADATA_PARTITIONS: Final = 5
BOTH: Final = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": STORE,
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.replication.factor": str(len(KINDS)),
    "rlmm.config.remote.log.metadata.topic.min.isr": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": str(METADATA_PARTITIONS),
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "min.insync.replicas": "1",
}


def kafka_version(*, has_zookeeper: bool) -> str:
    """Return the release of Kafka in such a cluster."""
    return nodes.VERSION if has_zookeeper else quorum_nodes.VERSION


def pair(
    directory: Path,
    controller: str = KAFKA,
    *,
    has_zookeeper: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Brokers:
    """Return the cluster, with its store below `directory`; `settings` are those of brokers beside `BOTH`.

    `controller` is the kind of the quorum's controller; with a ZooKeeper the first broker to start is the controller.
    """
    store = directory / "store"
    store.mkdir()
    settings = {**BOTH, "rsm.config.dir": str(store), **(settings or {})}
    jars = {"remote.log.storage.manager.class.path": local_jars(kafka_version(has_zookeeper=has_zookeeper))}
    if has_zookeeper:
        own = {broker_id: jars for broker_id, kind in enumerate(KINDS, 1) if kind == KAFKA}
        return Cluster(directory, KINDS, settings, own=own)
    cluster = QuorumCluster(
        directory,
        KINDS,
        settings=settings,
        controller_settings={
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": STORE,
            "min.insync.replicas": "1",
        },
        our_controllers=(1,) if controller == OURS else (),
    )
    cluster.own = dict.fromkeys(cluster.of_kind(KAFKA), jars)
    return cluster
