"""A cluster on ZooKeeper for suites with clients that find brokers there.

The rule: a restart is a rolling one: each broker is restarted in turn, once all replicas are in sync again.
"""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path

from compat.cluster.nodes import KAFKA, OURS, Cluster, ClusterError, wait_until
from compat.matrix.brokers import NOTHING_ELSE, SETTINGS, Broker, BrokerError

BROKERS = 3
TOPICS_SETTINGS = {"min.insync.replicas": "1", "auto.create.topics.enable": "true"}


class ZooKeeperCluster(Broker):
    """Three brokers of one kind on a ZooKeeper of their own."""

    def __init__(self, directory: Path, *, ours: bool, settings: Mapping[str, str] = NOTHING_ELSE) -> None:
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore", "No chroot path exists")  # the first broker makes it
        kinds = (OURS if ours else KAFKA,) * BROKERS
        self._cluster = Cluster(directory, kinds, {**SETTINGS, **TOPICS_SETTINGS, **settings})
        self._next = itertools.cycle(self._cluster.kinds)
        self.bootstrap = self._cluster.bootstrap

    def start(self) -> None:
        try:
            self._cluster.__enter__()
        except ClusterError as error:
            raise BrokerError(str(error)) from error

    def stop(self, how: str = "term") -> None:
        try:
            for broker_id, node in self._cluster.nodes.items():
                if node.pid is None:
                    raise BrokerError(f"broker {broker_id} has ended by itself")
                if how == "term":
                    node.stop()
        finally:
            self._cluster.close()

    def restart(self, how: str) -> None:
        broker_id = next(self._next)
        node = self._cluster.nodes[broker_id]
        (node.stop if how == "term" else node.kill)()
        try:
            wait_until(
                lambda: broker_id not in self._cluster.live(), f"the session of broker {broker_id} ends"
            )
            self._cluster.start(broker_id)
            for topic in self._cluster.topics():
                self._cluster.wait_in_sync(topic, self._cluster.replicas(topic))
        except ClusterError as error:
            raise BrokerError(str(error)) from error

    def complaints(self) -> list[str]:
        return [line for lines in self._cluster.complaints().values() for line in lines]

    def environment(self) -> Mapping[str, str]:
        return {"COMPAT_ZOOKEEPER": self._cluster.connect}
