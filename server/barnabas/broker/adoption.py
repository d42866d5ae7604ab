"""Logs without a topic: logs of another broker in a log dir become part of this cluster.

The rule: a log dir holds the records of its topics, not their settings. So nothing may be lost by a guess: user topics
are retained without limit until an operator sets their retention, and no producer id that is in use is allocated again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.changes import (
    ConfigChanged,
    EpochBegun,
    LogDirsRegistered,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
)
from barnabas.cluster.metadata.image import (
    TOPIC,
    Change,
    ClusterImage,
    PartitionInfo,
    TopicInfo,
)
from barnabas.cluster.metadata.internal_topics import SHAPES, TRANSACTION_TOPIC
from barnabas.cluster.replicas.lost_dirs import LOST, present_dirs
from barnabas.coordinators.transactions.producer_ids import BLOCK_SIZE
from barnabas.records.errors import CorruptRecordsError
from barnabas.wire.errors import DecodeError
from barnabas.wire.ids import new_uuid

if TYPE_CHECKING:
    from barnabas.cluster.replicas.own_logs import OwnLogs
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Entropy
    from barnabas.log.manager import LogManager
    from barnabas.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

KEPT_WHOLE = {"retention.ms": "-1", "retention.bytes": "-1"}


def lead_all(me: int, image: ClusterImage) -> list[Change]:
    """Make this broker, the only one, the leader of the partitions that are assigned to a broker with another id.

    Such partitions exist after the log dirs were handed over from that broker, or from Apache Kafka, which has no leader
    once it has stopped; otherwise their topics could not be reached. Their next leader epoch is that of `begin_epoch`.
    """
    changes: list[Change] = [
        PartitionChanged(
            topic.name, index, info.with_sole_replica(me)._replace(leader_epoch=info.leader_epoch)
        )
        for topic in image.topics.values()
        for index, info in enumerate(topic.partitions)
        if info.leader not in image.brokers
    ]
    if changes:
        log.warning("broker %d now leads %d partitions that another broker led", me, len(changes))
    return changes


def begin_epoch(logs: LogManager, image: ClusterImage) -> list[Change]:
    """Begin a leader epoch for all partitions that none of them has had.

    Records that consumers have read may be lost: by recovery, by a tool, or with the disk. New records at their offsets are
    in a later epoch, so consumers detect the end of their epoch (KIP-320).
    """
    image_epochs = [info.leader_epoch for topic in image.topics.values() for info in topic.partitions]
    if not image_epochs and not len(logs):
        return []
    log_epochs = [log.epochs.latest for log in logs]
    return [EpochBegun(max(image.latest_epoch, *image_epochs, *log_epochs) + 1)]


def set_aside_deleted(logs: LogManager, own_logs: OwnLogs, topic_ids: Collection[bytes]) -> None:
    """Set aside remaining logs of deleted topics, as Apache Kafka does, so that they are not adopted.

    Such logs remain after a crash during the deletion, or if the log dir was offline then.
    """
    for partition_log in logs:
        if partition_log.topic_id in topic_ids:
            own_logs.set_aside(partition_log, "that topic was deleted")


def set_aside_copies(logs: LogManager, own_logs: OwnLogs, image: ClusterImage) -> None:
    """Set aside the logs that have the id of another topic, as the directory was copied under another name.

    Two topics with one id could not be distinguished: a write or a deletion by id would reach the wrong topic. The metadata
    determines which topic has the id; if it has neither topic, it is the first one by name.
    """
    names = dict(image.names_by_id)
    unknown = [log for log in logs if log.topic not in image.topics and log.topic_id is not None]
    for partition_log in sorted(unknown, key=lambda part: (part.topic, part.partition)):
        assert partition_log.topic_id is not None
        owner = names.setdefault(partition_log.topic_id, partition_log.topic)
        if owner != partition_log.topic:
            own_logs.set_aside(partition_log, f"that is the id of topic {owner}")


def adopt_logs(
    all_logs: LogManager,
    broker_id: int,
    config: BrokerConfig,
    image: ClusterImage,
    lost_lines: int = 0,
    *,
    entropy: Entropy,
) -> list[Change]:
    """Create topics for logs without a topic, with partitions up to the highest log.

    `lost_lines` is the number of unreadable places of the metadata: unknown blocks of producer ids may have been
    allocated there, so as many blocks are skipped.
    """
    logs_by_topic: dict[str, list[PartitionLog]] = {}
    grown: dict[str, int] = {}
    for partition_log in all_logs:
        topic = image.topics.get(partition_log.topic)
        if topic is None:
            logs_by_topic.setdefault(partition_log.topic, []).append(partition_log)
        elif partition_log.topic_id == topic.id and partition_log.partition >= len(topic.partitions):
            count = grown.get(topic.name, 0)
            grown[topic.name] = max(count, partition_log.partition + 1)
    me = (broker_id,)
    changes: list[Change] = []
    for name, count in sorted(grown.items()):
        now = len(image.topics[name].partitions)
        log.warning("topic %s has %d partitions, not %d: logs of the others were found", name, count, now)
        changes.append(PartitionsAdded(name, tuple(PartitionInfo(me[0], me, me) for _ in range(count - now))))
    has_gaps = False
    for name, logs in sorted(logs_by_topic.items()):
        count = max(log.partition for log in logs) + 1
        ids = Counter(log.topic_id for log in logs if log.topic_id)  # one of them may be damaged
        topic_id = ids.most_common(1)[0][0] if ids else new_uuid(entropy)
        changes.append(
            TopicCreated(
                TopicInfo(name, topic_id, tuple(PartitionInfo(broker_id, me, me) for _ in range(count)))
            )
        )
        shape = SHAPES.get(name)
        settings = shape.settings(config) if shape else KEPT_WHOLE
        changes.append(ConfigChanged(TOPIC, name, tuple(settings.items())))
        log.warning(
            "adopting topic %s with %d partitions, whose logs were found on disk; how it was set is not known: it has %s",
            name, count, ", ".join(f"{key}={value}" for key, value in settings.items()),
        )  # fmt: skip
        missing = sorted(set(range(count)) - {log.partition for log in logs})
        if missing:
            log.warning(
                "no log was found of partitions %s of topic %s: they are offline until they are found, or given up",
                ", ".join(map(str, missing)), name,
            )  # fmt: skip
            has_gaps = True
    logs_to_read = (
        list(all_logs) if lost_lines else [part for logs in logs_by_topic.values() for part in logs]
    )
    last = max((producer_id for part in logs_to_read for producer_id in _producer_ids(part)), default=-1)
    next_id = max(last + 1, image.next_producer_id) + lost_lines * BLOCK_SIZE
    if next_id > image.next_producer_id:
        changes.append(ProducerIdsAllocated(next_id))
    if has_gaps:
        registered = image.log_dirs.get(broker_id, frozenset())
        changes.append(LogDirsRegistered(broker_id, registered | present_dirs(all_logs) | {LOST}))
    return changes


def _producer_ids(partition_log: PartitionLog) -> Iterator[int]:
    """Yield the ids of the producers that have written to a log, and the largest id of its transactional ids.

    After damage in the log of a partition of `__transaction_state`, one more block of ids may be in use.
    """
    yield from (entry.producer_id for entry in partition_log.producers.snapshot())
    if partition_log.topic != TRANSACTION_TOPIC:
        return
    from barnabas.coordinators.runtime.entries import read_entries
    from barnabas.coordinators.transactions.records import parse_key, parse_transaction

    last = 0
    try:
        for entry in read_entries(partition_log):
            for key, value in entry.records:
                if value is not None:
                    with suppress(DecodeError):  # the coordinator says which ones, when it reads them
                        transaction = parse_transaction(parse_key(key), value)
                        last = max(last, transaction.producer_id, transaction.next_producer_id)
    except CorruptRecordsError as error:
        log.warning("%s: %s", partition_log.dir, error.message)
        last += BLOCK_SIZE
    yield last
