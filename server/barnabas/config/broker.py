"""The settings of the broker, with Kafka's names and defaults.

A topic setting's default has its broker setting here too; those rows are made from the topic table.
"""

from __future__ import annotations

from typing import Any

from barnabas.config import topic
from barnabas.config.setting import BOOLEAN, DOUBLE, INT, INT_MAX, LIST, LONG, STRING, Setting

NODE_ID = Setting("node.id", INT, 1, "The broker's number in the cluster.", low=0)
LISTENERS = Setting("listeners", LIST, ("PLAINTEXT://:9092",), "Addresses to listen on, NAME://host:port.")
ADVERTISED_LISTENERS = Setting(
    "advertised.listeners", LIST, (),
    "Addresses that clients are told to use; when empty, the address that the client dialled.",
)  # fmt: skip
LISTENER_SECURITY_PROTOCOL_MAP = Setting(
    "listener.security.protocol.map", LIST,
    ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
    "Which protocol the listeners of each name speak, NAME:PROTOCOL.",
)  # fmt: skip
BROKER_RACK = Setting("broker.rack", STRING, "", "The rack or zone that the broker is in.")
LOG_DIRS = Setting("log.dirs", LIST, (), "Directories for the logs; log.dir when empty.")
LOG_DIR = Setting("log.dir", STRING, "/tmp/kafka-logs", "The directory for the logs.")

NUM_PARTITIONS = Setting("num.partitions", INT, 1, "Partitions of a topic that does not say how many.", low=1)
DEFAULT_REPLICATION_FACTOR = Setting("default.replication.factor", INT, 1, "Replicas of such a topic.", low=1)
AUTO_CREATE_TOPICS_ENABLE = Setting(
    "auto.create.topics.enable", BOOLEAN, True, "Whether asking for a topic's metadata creates it."
)
DELETE_TOPIC_ENABLE = Setting("delete.topic.enable", BOOLEAN, True, "Whether topics can be deleted.")

SOCKET_REQUEST_MAX_BYTES = Setting("socket.request.max.bytes", INT, 100 << 20, "Largest request.", low=1)
CONNECTIONS_MAX_IDLE_MS = Setting(
    "connections.max.idle.ms", LONG, 600_000, "Idle connections are closed after this time."
)
MAX_CONNECTIONS = Setting("max.connections", INT, INT_MAX, "Open connections in all.", low=0)
MAX_CONNECTIONS_PER_IP = Setting(
    "max.connections.per.ip", INT, INT_MAX, "Open connections of one address.", low=0
)
FETCH_MAX_BYTES = Setting("fetch.max.bytes", INT, 55 << 20, "Bytes in one answer to a fetch.", low=1024)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = Setting(
    "max.incremental.fetch.session.cache.slots", INT, 1000, "Fetch sessions that are remembered.", low=0
)

GROUP_MIN_SESSION_TIMEOUT_MS = Setting("group.min.session.timeout.ms", INT, 6000, "Shortest session timeout.")
GROUP_MAX_SESSION_TIMEOUT_MS = Setting(
    "group.max.session.timeout.ms", INT, 1_800_000, "Longest session timeout."
)
GROUP_INITIAL_REBALANCE_DELAY_MS = Setting(
    "group.initial.rebalance.delay.ms", INT, 3000, "How long a new group waits for more members."
)
GROUP_MAX_SIZE = Setting("group.max.size", INT, INT_MAX, "Members of one group.", low=1)
GROUP_CONSUMER_SESSION_TIMEOUT_MS = Setting(
    "group.consumer.session.timeout.ms", INT, 45_000, "Session timeout of consumer groups (KIP-848).", low=1
)
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS = Setting(
    "group.consumer.min.session.timeout.ms", INT, 45_000, "Least value for one group's own.", low=1
)
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS = Setting(
    "group.consumer.max.session.timeout.ms", INT, 60_000, "Largest value for one group's own.", low=1
)
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS = Setting(
    "group.consumer.heartbeat.interval.ms",
    INT,
    5000,
    "How often members of consumer groups are heard of.",
    low=1,
)
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = Setting(
    "group.consumer.min.heartbeat.interval.ms", INT, 5000, "Least value for one group's own.", low=1
)
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = Setting(
    "group.consumer.max.heartbeat.interval.ms", INT, 15_000, "Largest value for one group's own.", low=1
)
GROUP_CONSUMER_MAX_SIZE = Setting(
    "group.consumer.max.size", INT, INT_MAX, "Members of one consumer group.", low=1
)
GROUP_CONSUMER_ASSIGNORS = Setting(
    "group.consumer.assignors", LIST, ("uniform", "range"),
    "Assignors that members of consumer groups can ask for; the first is for those who do not.",
    choices=("uniform", "range"),
)  # fmt: skip
GROUP_CONSUMER_MIGRATION_POLICY = Setting(
    "group.consumer.migration.policy", STRING, "bidirectional",
    "Which way a group may change its protocol while it has members.",
    choices=("disabled", "upgrade", "downgrade", "bidirectional"),
)  # fmt: skip
GROUP_STREAMS_SESSION_TIMEOUT_MS = Setting(
    "group.streams.session.timeout.ms", INT, 45_000, "Session timeout of streams groups (KIP-1071).", low=1
)
GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS = Setting(
    "group.streams.min.session.timeout.ms", INT, 45_000, "Least value for one group's own.", low=1
)
GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS = Setting(
    "group.streams.max.session.timeout.ms", INT, 60_000, "Largest value for one group's own.", low=1
)
GROUP_STREAMS_HEARTBEAT_INTERVAL_MS = Setting(
    "group.streams.heartbeat.interval.ms",
    INT,
    5000,
    "How often members of streams groups are heard of.",
    low=1,
)
GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS = Setting(
    "group.streams.min.heartbeat.interval.ms", INT, 5000, "Least value for one group's own.", low=1
)
GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS = Setting(
    "group.streams.max.heartbeat.interval.ms", INT, 15_000, "Largest value for one group's own.", low=1
)
GROUP_STREAMS_MAX_SIZE = Setting(
    "group.streams.max.size", INT, INT_MAX, "Members of one streams group.", low=1
)
GROUP_STREAMS_NUM_STANDBY_REPLICAS = Setting(
    "group.streams.num.standby.replicas", INT, 0, "Copies of a stateful task in streams groups.", low=0
)
GROUP_STREAMS_MAX_STANDBY_REPLICAS = Setting(
    "group.streams.max.standby.replicas", INT, 2, "Largest value for one group's own.", low=0
)
OFFSETS_TOPIC_NUM_PARTITIONS = Setting(
    "offsets.topic.num.partitions", INT, 50, "Partitions of __consumer_offsets.", low=1
)
OFFSETS_TOPIC_REPLICATION_FACTOR = Setting(
    "offsets.topic.replication.factor",
    INT,
    3,
    "Replicas of __consumer_offsets; at most the number of brokers.",
    low=1,
)
OFFSETS_TOPIC_SEGMENT_BYTES = Setting(
    "offsets.topic.segment.bytes", INT, 100 << 20, "Segment size of __consumer_offsets.", low=1
)
OFFSET_METADATA_MAX_BYTES = Setting(
    "offset.metadata.max.bytes", INT, 4096, "Largest metadata of a committed offset."
)
OFFSETS_COMMIT_TIMEOUT_MS = Setting(
    "offsets.commit.timeout.ms", INT, 5000, "How long a group's answer waits for replicas.", low=1
)
OFFSETS_RETENTION_MINUTES = Setting(
    "offsets.retention.minutes", INT, 10080, "How long an empty group's offsets are kept.", low=1
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS = Setting(
    "offsets.retention.check.interval.ms", LONG, 600_000, "How often expired offsets are looked for.", low=1
)

TRANSACTION_MAX_TIMEOUT_MS = Setting(
    "transaction.max.timeout.ms", INT, 900_000, "Longest timeout that a transaction may have.", low=1
)
TRANSACTIONAL_ID_EXPIRATION_MS = Setting(
    "transactional.id.expiration.ms", INT, 604_800_000, "How long an idle transactional id is kept.", low=1
)
TRANSACTION_REMOVE_EXPIRED_INTERVAL_MS = Setting(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    INT,
    3_600_000,
    "How often transactional ids that are no longer used are looked for.",
    low=1,
)
TRANSACTION_PARTITION_VERIFICATION_ENABLE = Setting(
    "transaction.partition.verification.enable",
    BOOLEAN,
    True,
    "Whether a partition must be in the transaction before records of it are taken.",
)
TRANSACTION_STATE_LOG_NUM_PARTITIONS = Setting(
    "transaction.state.log.num.partitions", INT, 50, "Partitions of __transaction_state.", low=1
)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = Setting(
    "transaction.state.log.replication.factor",
    INT,
    3,
    "Replicas of __transaction_state; at most the number of brokers.",
    low=1,
)
TRANSACTION_STATE_LOG_SEGMENT_BYTES = Setting(
    "transaction.state.log.segment.bytes", INT, 100 << 20, "Segment size of __transaction_state.", low=1
)

LOG_RETENTION_CHECK_INTERVAL_MS = Setting(
    "log.retention.check.interval.ms", LONG, 300_000, "How often old segments are looked for.", low=1
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS = Setting(
    "log.flush.scheduler.interval.ms", LONG, 2**63 - 1, "How often logs that are due are forced to disk."
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = Setting(
    "log.flush.offset.checkpoint.interval.ms",
    INT,
    60_000,
    "How often recovery points are written down.",
    low=0,
)
LOG_CLEANER_ENABLE = Setting(
    "log.cleaner.enable", BOOLEAN, True, "Whether compacted topics are compacted; internal topics need it."
)
LOG_CLEANER_BACKOFF_MS = Setting(
    "log.cleaner.backoff.ms", LONG, 15_000, "How long the cleaner rests when nothing is dirty.", low=0
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE = Setting(
    "log.cleaner.dedupe.buffer.size", LONG, 128 << 20, "Most memory for the keys of one cleaning.", low=1024
)
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR = Setting(
    "log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, "How full that memory may get.", low=0.01, high=1
)
PRODUCER_ID_EXPIRATION_MS = Setting(
    "producer.id.expiration.ms", INT, 86_400_000, "How long an idle producer is remembered.", low=1
)

_OWN: tuple[Setting[Any], ...] = tuple(value for value in globals().values() if isinstance(value, Setting))

_SYNONYM_UNITS = {"log.retention.hours": 168, "log.roll.hours": 168, "log.roll.jitter.hours": 0}


def _from_topics() -> dict[str, Setting[Any]]:
    """The broker settings that are defaults of topic settings; the ones in other units are unset by default."""
    rows: dict[str, Setting[Any]] = {}
    for row in topic.ROWS:
        for name in row.broker_names:
            if name.rpartition(".")[2] in topic.UNIT_MS:
                default = _SYNONYM_UNITS.get(name)
                rows[name] = Setting(name, INT, default, f"{row.doc} (default of {row.name})", low=-1)
            elif name not in rows:
                rows[name] = Setting(
                    name, row.kind, row.default, f"{row.doc} (default of {row.name})",
                    row.low, row.high, row.choices, dynamic=True, effective=row.effective,
                )  # fmt: skip
    return rows


# Accepted so that a stock server.properties starts; there is nothing here that they could change.
_WITHOUT_EFFECT: tuple[Setting[Any], ...] = tuple(
    Setting(name, STRING, "", "Accepted; it has no effect here.", effective=False)
    for name in (
        "process.roles", "controller.quorum.voters", "controller.quorum.bootstrap.servers",
        "controller.listener.names", "inter.broker.listener.name", "num.network.threads", "num.io.threads",
        "socket.send.buffer.bytes", "socket.receive.buffer.bytes", "num.recovery.threads.per.data.dir",
        "transaction.state.log.min.isr", "transaction.state.log.load.buffer.size",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "share.coordinator.state.topic.replication.factor", "share.coordinator.state.topic.min.isr",
        "zookeeper.connect", "zookeeper.connection.timeout.ms", "metadata.log.dir", "queued.max.requests",
        "background.threads", "num.replica.fetchers", "replica.fetch.max.bytes", "controlled.shutdown.enable",
        "log.cleaner.threads", "log.cleaner.io.buffer.size", "log.cleaner.io.max.bytes.per.second",
        "group.coordinator.rebalance.protocols", "security.inter.broker.protocol",
    )
)  # fmt: skip

SETTINGS: dict[str, Setting[Any]] = {
    **_from_topics(),
    **{row.name: row for row in (*_OWN, *_WITHOUT_EFFECT)},
}
SYNONYMS = {"broker.id": "node.id"}
