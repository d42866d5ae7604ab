"""Ownership of the log dirs: their locks, and the content of their meta.properties.

The rule: a log dir is locked before anything in it is used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from barnabas.errors import StorageError
from barnabas.log import logdir
from barnabas.log.disk import Disk, Lock
from barnabas.log.format import names
from barnabas.log.format.properties import MetaProperties

log = logging.getLogger(__name__)


class Ownership:
    """The locks and properties of the open log dirs. With a node id, dirs of another broker are refused."""

    def __init__(self, disk: Disk, node_id: int | None) -> None:
        self.meta: dict[str, MetaProperties] = {}
        self._disk = disk
        self._expected_node_id = node_id
        self._locks: dict[str, Lock] = {}

    def take(self, path: str) -> None:
        """Create a dir if necessary, and lock it unless it is locked.

        Raises StorageError if another broker holds the lock, OSError.
        """
        if path in self._locks:
            return
        logdir.make_dir(self._disk, path)
        try:
            self._locks[path] = self._disk.lock(f"{path}/{names.LOCK}")
        except BlockingIOError as error:
            cause = OSError(
                "another broker is using it (its .lock file is held); give each broker a dir of its own"
            )
            raise StorageError(path, cause) from error

    def read(self, path: str) -> None:
        """Read the properties of a locked dir. Raises StorageError if it belongs to another broker, OSError."""
        meta = logdir.read_meta(self._disk, path)
        if meta is not None:
            logdir.check_node_id(path, meta, self._expected_node_id)
            self.meta[path] = meta

    def check(self, online: Iterable[str]) -> None:
        """Raise StorageError if these dirs contradict each other."""
        logdir.check_meta({path: self.meta[path] for path in online if path in self.meta})

    def write(
        self,
        online: Iterable[str],
        cluster_id: str,
        node_id: int,
        log_counts: Mapping[str, int] | None = None,
        *,
        on_zookeeper: bool = False,
    ) -> None:
        """Write this broker as the owner of these dirs, each with a directory id (KIP-858). Raises StorageError.

        A dir with logs but without the file is reported, by `log_counts`. With `on_zookeeper` version 0 is written, the
        only one that Kafka accepts in a cluster on ZooKeeper.
        """
        for path in online:
            count = log_counts[path] if log_counts is not None and path not in self.meta else 0
            if count:
                log.error(
                    "%s/%s is gone from a dir with %d logs. It is written again, with cluster.id=%s, node.id=%d and "
                    "another directory.id; no record is lost. If the cluster had another id, put a copy of the file back, "
                    "and start again",
                    path, names.META_PROPERTIES, count, cluster_id, node_id,
                )  # fmt: skip
            before = self.meta.get(path, MetaProperties())
            directory_id = before.directory_id or self._disk.unique_id()
            meta = before._replace(cluster_id=cluster_id, node_id=node_id, directory_id=directory_id)
            if on_zookeeper:
                meta = meta._replace(version=0)
            self.meta[path] = meta
            data = meta.encode()
            if data != before.encode():
                try:
                    self._disk.replace(f"{path}/{names.META_PROPERTIES}", data, sync=True)
                except OSError as error:
                    raise StorageError(path, error) from error

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the log dirs belong to, None if they are new."""
        return next((meta.cluster_id for meta in self.meta.values() if meta.cluster_id), None)

    @property
    def node_id(self) -> int | None:
        """The broker that the log dirs belong to, None if they are new."""
        return next((meta.node_id for meta in self.meta.values() if meta.node_id is not None), None)

    def check_in_place(self, path: str) -> None:
        """Check, in any thread, that a log dir is still the directory that was locked. Raises StorageError."""
        lock = self._locks.get(path)
        if lock is not None:
            logdir.check_in_place(path, lock)

    def is_emptied(self, path: str) -> bool:
        """Return whether the contents of a dir were removed."""
        return path in self.meta and logdir.is_emptied(self._disk, path)

    def forget(self, path: str) -> None:
        """Release a dir that has failed."""
        self.meta.pop(path, None)
        lock = self._locks.pop(path, None)
        if lock is not None:
            lock.release()

    def release(self) -> None:
        """Release all dirs."""
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()
