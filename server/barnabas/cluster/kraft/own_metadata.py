"""The metadata of a broker that is a cluster by itself: a log of records, and the resulting image of the broker.

The rule: the image of the quorum is built at a start and for a snapshot, and then dropped: a running broker needs only
its own image; the rest is in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from barnabas.cluster.kraft.controller.versions import version_of
from barnabas.cluster.kraft.image import EMPTY, QuorumImage
from barnabas.cluster.kraft.own_log import Message, OwnLog
from barnabas.cluster.kraft.own_log_place import LogPlace, Node
from barnabas.cluster.kraft.recording import Recorder
from barnabas.cluster.kraft.state import MetadataLogError
from barnabas.cluster.kraft.translation import UntranslatableError, access_changes, binding
from barnabas.cluster.kraft.values import Broker, Endpoint
from barnabas.cluster.metadata.changes import (
    ConfigChanged,
    LogDirsRegistered,
    ProducerIdsAllocated,
    TopicCreated,
)
from barnabas.cluster.metadata.image import (
    BrokerInfo,
    Change,
    ClusterImage,
    Draft,
    PartitionInfo,
    TopicInfo,
)
from barnabas.errors import StorageError


class OwnContent(NamedTuple):
    """Content of the log; `deleted` and `lost` are those of `LogContent`."""

    image: ClusterImage
    deleted: frozenset[bytes] = frozenset()
    lost: tuple[str, ...] = ()


class OwnMetadata:
    """The log, and the recorder of changes. Lifecycle: `open`, `lead`, then `keep` any number of times, `close`.

    Methods block on the disk: call them in a thread, one at a time.
    """

    def __init__(self, place: LogPlace) -> None:
        self._log = OwnLog(*place)
        self._image = EMPTY  # the image at the start, dropped by `lead`
        self._first_records: tuple[Any, ...] = ()

    def open(self, *, may_lose: bool = True) -> OwnContent:
        """Open or create the log, and read it. Raises StorageError. `may_lose` is as in `OwnLog.open`."""
        try:
            content = self._log.open(may_lose=may_lose)
            self._image, self._first_records = content.image, content.first_records
            return OwnContent(image_alone(content.image), content.deleted, content.lost)
        except (MetadataLogError, UntranslatableError) as error:
            raise StorageError(self._log.log_dir, OSError(str(error))) from error

    def lead(self, node: Node, broker: BrokerInfo) -> Iterator[None]:
        """Take over the log as its leader; returns the steps of a snapshot, none if the log is short.

        Raises StorageError if the log belongs to several brokers.
        """
        image, self._image = self._image, EMPTY
        _require_alone(self._log.log_dir, image, node.id)
        self._level = image.metadata_version
        self._recorder = Recorder(
            _registration(image, broker, node),
            self._level,
            {binding(acl): acl_id for acl_id, acl in image.acls.items()},
        )
        self._log.lead(node.id, node.directory_id, node.controller)
        return self._log.begin_snapshot(image) if self._log.is_long else iter(())

    @property
    def end_offset(self) -> int:
        """Offset of the next record."""
        return self._log.end_offset

    def check(self, change: Change) -> None:
        """Raise UNSUPPORTED_VERSION for a change that has no records at the log's metadata.version."""
        self._recorder.check(change)

    def keep(self, image: ClusterImage, groups: Sequence[Sequence[Change]]) -> None:
        """Write the records of changes to the image of the log; each group counts completely or not at all.

        Raises StorageError; then none of the changes counts.
        """
        draft = Draft(image)
        messages: list[list[Message]] = [[(record, 0) for record in self._first_records]]
        for changes in groups:
            group: list[Message] = []
            for change in changes:
                records = self._recorder.records(draft, change, self._log.end_offset)
                group += ((record, version_of(record, self._level)) for record in records)
                draft.add(change)
            messages.append(group)
        self._log.append([group for group in messages if group], self._level)
        self._first_records = ()

    @property
    def wants_snapshot(self) -> bool:
        """True if enough bytes were written since the last snapshot for the next one."""
        return self._log.wants_snapshot

    def snapshot_steps(self) -> Iterator[None]:
        """Make a snapshot, in steps of some milliseconds. Raises StorageError, OSError."""
        try:
            yield from self._log.snapshot_steps()
        except MetadataLogError as error:
            raise StorageError(self._log.log_dir, OSError(str(error))) from error

    def close(self) -> None:
        """Close the log."""
        self._log.close()


def image_alone(image: QuorumImage) -> ClusterImage:
    """Return the image of a broker that is alone, without registered brokers."""
    changes: list[Change] = []
    for topic in image.topics.values():
        partitions = tuple(
            PartitionInfo(
                partition.leader,
                partition.replicas,
                partition.isr,
                partition.leader_epoch,
                partition.partition_epoch,
            )
            for _, partition in image.partitions_of(topic)
        )
        changes.append(TopicCreated(TopicInfo(topic.name, topic.id, partitions)))
    for (kind, name), settings in image.settings.items():
        changes.append(ConfigChanged(kind, name, tuple(sorted(settings.items()))))
    changes += (LogDirsRegistered(broker.id, frozenset(broker.log_dirs)) for broker in image.brokers.values())
    if image.producer_ids is not None:
        changes.append(ProducerIdsAllocated(image.producer_ids))
    if image.acls or image.quotas or image.users or image.tokens:
        changes += access_changes(image)
    latest = max((partition.leader_epoch for partition in image.partitions.values()), default=0)
    return ClusterImage("").apply(changes)._replace(latest_epoch=latest)


def _require_alone(log_dir: str, image: QuorumImage, node_id: int) -> None:
    """Raise StorageError if partitions also have replicas on other registered brokers."""
    others = {
        replica
        for partition in image.partitions.values()
        if len(partition.replicas) > 1
        for replica in partition.replicas
    } & (image.brokers.keys() - {node_id})
    if others:
        named = ", ".join(map(str, sorted(others)))
        raise StorageError(
            log_dir,
            OSError(
                f"the metadata are those of a cluster: partitions are on the brokers {named} too. A broker that is alone "
                "cannot go on with them: start it with the settings of the cluster's controllers"
            ),
        )


def _registration(image: QuorumImage, broker: BrokerInfo, node: Node) -> Broker:
    protocols = dict(node.protocols)
    before = image.brokers.get(broker.id)
    return Broker(
        broker.id,
        before.epoch if before is not None else -1,
        before.incarnation_id if before is not None else node.directory_id,
        tuple(
            Endpoint(name, host, port, protocols.get(name, 0))
            for name, (host, port) in broker.endpoints.items()
        ),
        rack=broker.rack,
    )
