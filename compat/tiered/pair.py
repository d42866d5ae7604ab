"""A broker of Apache Kafka and one of ours in a quorum, with one store in a directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from compat.cluster.nodes import KAFKA, OURS
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


def pair(
    directory: Path, *, is_quorum_ours: bool, settings: Mapping[str, str] | None = None
) -> QuorumCluster:
    """Return the cluster, with its store below `directory`; `settings` are those of brokers beside `BOTH`."""
    store = directory / "store"
    store.mkdir()
    cluster = QuorumCluster(
        directory,
        KINDS,
        settings={**BOTH, "rsm.config.dir": str(store), **(settings or {})},
        controller_settings={
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": STORE,
            "min.insync.replicas": "1",
        },
        our_controllers=(1,) if is_quorum_ours else (),
    )
    jars = {"remote.log.storage.manager.class.path": local_jars()}
    cluster.own = dict.fromkeys(cluster.of_kind(KAFKA), jars)
    return cluster
