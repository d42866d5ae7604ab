"""The settings that the broker acts upon, each by a name that code can use.

The rule: what is here has an empty effect in `config/tables`, or acts in a cluster, and the other way round; only
defaults of topics and groups are read through `config/topic.py` and `config/group.py` instead.
"""

from __future__ import annotations

from barnabas.config.setting import Setting
from barnabas.config.tables import setting


def _whole(name: str) -> Setting[int]:
    return setting(name)


def _number(name: str) -> Setting[float]:
    return setting(name)


def _flag(name: str) -> Setting[bool]:
    return setting(name)


def _text(name: str) -> Setting[str]:
    return setting(name)


def _words(name: str) -> Setting[tuple[str, ...]]:
    return setting(name)


def _optional_text(name: str) -> Setting[str | None]:
    return setting(name)


def _optional_words(name: str) -> Setting[tuple[str, ...] | None]:
    return setting(name)


NODE_ID = _whole("node.id")
BROKER_ID = _whole("broker.id")
LISTENERS = _words("listeners")
ADVERTISED_LISTENERS = _optional_words("advertised.listeners")
LISTENER_SECURITY_PROTOCOL_MAP = _text("listener.security.protocol.map")
CONTROLLER_LISTENER_NAMES = _optional_words("controller.listener.names")
BROKER_RACK = _optional_text("broker.rack")
LOG_DIRS = _optional_words("log.dirs")
LOG_DIR = _words("log.dir")
NUM_PARTITIONS = _whole("num.partitions")
DEFAULT_REPLICATION_FACTOR = _whole("default.replication.factor")
AUTO_CREATE_TOPICS_ENABLE = _flag("auto.create.topics.enable")
DELETE_TOPIC_ENABLE = _flag("delete.topic.enable")
SOCKET_REQUEST_MAX_BYTES = _whole("socket.request.max.bytes")
QUEUED_MAX_REQUEST_BYTES = _whole("queued.max.request.bytes")
CONNECTIONS_MAX_IDLE_MS = _whole("connections.max.idle.ms")
MAX_CONNECTIONS = _whole("max.connections")
MAX_CONNECTIONS_PER_IP = _whole("max.connections.per.ip")
MAX_CONNECTIONS_PER_IP_OVERRIDES = _text("max.connections.per.ip.overrides")
REPLICA_LAG_TIME_MAX_MS = _whole("replica.lag.time.max.ms")
FETCH_MAX_BYTES = _whole("fetch.max.bytes")
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = _whole("max.incremental.fetch.session.cache.slots")
GROUP_MIN_SESSION_TIMEOUT_MS = _whole("group.min.session.timeout.ms")
GROUP_MAX_SESSION_TIMEOUT_MS = _whole("group.max.session.timeout.ms")
GROUP_INITIAL_REBALANCE_DELAY_MS = _whole("group.initial.rebalance.delay.ms")
GROUP_MAX_SIZE = _whole("group.max.size")
GROUP_CONSUMER_SESSION_TIMEOUT_MS = _whole("group.consumer.session.timeout.ms")
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS = _whole("group.consumer.min.session.timeout.ms")
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS = _whole("group.consumer.max.session.timeout.ms")
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS = _whole("group.consumer.heartbeat.interval.ms")
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = _whole("group.consumer.min.heartbeat.interval.ms")
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = _whole("group.consumer.max.heartbeat.interval.ms")
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS = _whole("group.consumer.assignment.interval.ms")
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = _whole("group.consumer.min.assignment.interval.ms")
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = _whole("group.consumer.max.assignment.interval.ms")
GROUP_CONSUMER_MAX_SIZE = _whole("group.consumer.max.size")
GROUP_CONSUMER_ASSIGNORS = _words("group.consumer.assignors")
GROUP_CONSUMER_MIGRATION_POLICY = _text("group.consumer.migration.policy")
GROUP_STREAMS_SESSION_TIMEOUT_MS = _whole("group.streams.session.timeout.ms")
GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS = _whole("group.streams.min.session.timeout.ms")
GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS = _whole("group.streams.max.session.timeout.ms")
GROUP_STREAMS_HEARTBEAT_INTERVAL_MS = _whole("group.streams.heartbeat.interval.ms")
GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS = _whole("group.streams.min.heartbeat.interval.ms")
GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS = _whole("group.streams.max.heartbeat.interval.ms")
GROUP_STREAMS_MAX_SIZE = _whole("group.streams.max.size")
GROUP_STREAMS_NUM_STANDBY_REPLICAS = _whole("group.streams.num.standby.replicas")
GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS = _whole("group.streams.initial.rebalance.delay.ms")
GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS = _whole("group.streams.assignment.interval.ms")
GROUP_STREAMS_MIN_ASSIGNMENT_INTERVAL_MS = _whole("group.streams.min.assignment.interval.ms")
GROUP_STREAMS_MAX_ASSIGNMENT_INTERVAL_MS = _whole("group.streams.max.assignment.interval.ms")
GROUP_STREAMS_MAX_STANDBY_REPLICAS = _whole("group.streams.max.standby.replicas")
GROUP_SHARE_ASSIGNMENT_INTERVAL_MS = _whole("group.share.assignment.interval.ms")
GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS = _whole("group.share.min.assignment.interval.ms")
GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS = _whole("group.share.max.assignment.interval.ms")
GROUP_SHARE_SESSION_TIMEOUT_MS = _whole("group.share.session.timeout.ms")
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS = _whole("group.share.min.session.timeout.ms")
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS = _whole("group.share.max.session.timeout.ms")
GROUP_SHARE_HEARTBEAT_INTERVAL_MS = _whole("group.share.heartbeat.interval.ms")
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS = _whole("group.share.min.heartbeat.interval.ms")
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS = _whole("group.share.max.heartbeat.interval.ms")
GROUP_SHARE_MAX_SIZE = _whole("group.share.max.size")
GROUP_SHARE_DELIVERY_COUNT_LIMIT = _whole("group.share.delivery.count.limit")
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT = _whole("group.share.min.delivery.count.limit")
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT = _whole("group.share.max.delivery.count.limit")
GROUP_SHARE_RECORD_LOCK_DURATION_MS = _whole("group.share.record.lock.duration.ms")
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS = _whole("group.share.min.record.lock.duration.ms")
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS = _whole("group.share.max.record.lock.duration.ms")
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS = _whole("group.share.partition.max.record.locks")
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS = _whole("group.share.min.partition.max.record.locks")
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS = _whole("group.share.max.partition.max.record.locks")
GROUP_SHARE_MAX_SHARE_SESSIONS = _whole("group.share.max.share.sessions")
SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT = _whole(
    "share.coordinator.snapshot.update.records.per.snapshot"
)
SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS = _whole("share.coordinator.state.topic.num.partitions")
SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS = _whole("share.coordinator.state.topic.prune.interval.ms")
SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR = _whole("share.coordinator.state.topic.replication.factor")
SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES = _whole("share.coordinator.state.topic.segment.bytes")
SHARE_COORDINATOR_WRITE_TIMEOUT_MS = _whole("share.coordinator.write.timeout.ms")
OFFSETS_TOPIC_NUM_PARTITIONS = _whole("offsets.topic.num.partitions")
OFFSETS_TOPIC_REPLICATION_FACTOR = _whole("offsets.topic.replication.factor")
OFFSETS_TOPIC_SEGMENT_BYTES = _whole("offsets.topic.segment.bytes")
OFFSET_METADATA_MAX_BYTES = _whole("offset.metadata.max.bytes")
OFFSETS_COMMIT_TIMEOUT_MS = _whole("offsets.commit.timeout.ms")
OFFSETS_RETENTION_MINUTES = _whole("offsets.retention.minutes")
OFFSETS_RETENTION_CHECK_INTERVAL_MS = _whole("offsets.retention.check.interval.ms")
TRANSACTION_MAX_TIMEOUT_MS = _whole("transaction.max.timeout.ms")
TRANSACTIONAL_ID_EXPIRATION_MS = _whole("transactional.id.expiration.ms")
TRANSACTION_REMOVE_EXPIRED_INTERVAL_MS = _whole("transaction.remove.expired.transaction.cleanup.interval.ms")
TRANSACTION_PARTITION_VERIFICATION_ENABLE = _flag("transaction.partition.verification.enable")
TRANSACTION_STATE_LOG_NUM_PARTITIONS = _whole("transaction.state.log.num.partitions")
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = _whole("transaction.state.log.replication.factor")
TRANSACTION_STATE_LOG_SEGMENT_BYTES = _whole("transaction.state.log.segment.bytes")
LOG_RETENTION_CHECK_INTERVAL_MS = _whole("log.retention.check.interval.ms")
NUM_RECOVERY_THREADS_PER_DATA_DIR = _whole("num.recovery.threads.per.data.dir")
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = _whole("log.flush.offset.checkpoint.interval.ms")
LOG_CLEANER_ENABLE = _flag("log.cleaner.enable")
LOG_CLEANER_THREADS = _whole("log.cleaner.threads")
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = _number("log.cleaner.io.max.bytes.per.second")
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND: Setting[int | None] = setting(
    "replica.alter.log.dirs.io.max.bytes.per.second"
)
LOG_CLEANER_BACKOFF_MS = _whole("log.cleaner.backoff.ms")
LOG_CLEANER_DEDUPE_BUFFER_SIZE = _whole("log.cleaner.dedupe.buffer.size")
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR = _number("log.cleaner.io.buffer.load.factor")
PRODUCER_ID_EXPIRATION_MS = _whole("producer.id.expiration.ms")
MAX_REQUEST_PARTITION_SIZE_LIMIT = _whole("max.request.partition.size.limit")
SASL_ENABLED_MECHANISMS = _words("sasl.enabled.mechanisms")
SASL_JAAS_CONFIG = _optional_text("sasl.jaas.config")
SASL_SERVER_MAX_RECEIVE_SIZE = _whole("sasl.server.max.receive.size")
CONNECTIONS_MAX_REAUTH_MS = _whole("connections.max.reauth.ms")
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS = _whole("connection.failed.authentication.delay.ms")
METRICS_LISTENER = _text("metrics.listener")
TELEMETRY_ENABLE: Setting[bool | None] = setting("telemetry.enable")
TELEMETRY_MAX_BYTES = _whole("telemetry.max.bytes")
TELEMETRY_RETAINED_SERIES = _whole("telemetry.retained.series")
TELEMETRY_RETAINED_BYTES = _whole("telemetry.retained.bytes")
TELEMETRY_CLIENT_RETAINED_SERIES = _whole("telemetry.client.retained.series")
TELEMETRY_CLIENT_RETAINED_BYTES = _whole("telemetry.client.retained.bytes")

# --- in a cluster -------------------------------------------------------------------------------------------------

ZOOKEEPER_CONNECT = _optional_text("zookeeper.connect")
ZOOKEEPER_SESSION_TIMEOUT_MS = _whole("zookeeper.session.timeout.ms")
ZOOKEEPER_CONNECTION_TIMEOUT_MS: Setting[int | None] = setting("zookeeper.connection.timeout.ms")
ZOOKEEPER_MAX_IN_FLIGHT_REQUESTS = _whole("zookeeper.max.in.flight.requests")
ZOOKEEPER_SET_ACL = _flag("zookeeper.set.acl")
ZOOKEEPER_DIGEST_CREDENTIALS = _optional_text("zookeeper.digest.credentials")
ZOOKEEPER_SSL_CLIENT_ENABLE = _flag("zookeeper.ssl.client.enable")
ZOOKEEPER_SSL_KEYSTORE_LOCATION = _optional_text("zookeeper.ssl.keystore.location")
ZOOKEEPER_SSL_KEYSTORE_PASSWORD = _optional_text("zookeeper.ssl.keystore.password")
ZOOKEEPER_SSL_KEYSTORE_TYPE = _optional_text("zookeeper.ssl.keystore.type")
ZOOKEEPER_SSL_TRUSTSTORE_LOCATION = _optional_text("zookeeper.ssl.truststore.location")
ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD = _optional_text("zookeeper.ssl.truststore.password")
ZOOKEEPER_SSL_TRUSTSTORE_TYPE = _optional_text("zookeeper.ssl.truststore.type")
ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = _text("zookeeper.ssl.endpoint.identification.algorithm")
BROKER_ID_GENERATION_ENABLE = _flag("broker.id.generation.enable")
RESERVED_BROKER_MAX_ID = _whole("reserved.broker.max.id")
INTER_BROKER_LISTENER_NAME = _optional_text("inter.broker.listener.name")
INTER_BROKER_PROTOCOL_VERSION = _text("inter.broker.protocol.version")
REQUEST_TIMEOUT_MS = _whole("request.timeout.ms")
CONTROLLER_SOCKET_TIMEOUT_MS = _whole("controller.socket.timeout.ms")
CONTROLLED_SHUTDOWN_ENABLE = _flag("controlled.shutdown.enable")
CONTROLLED_SHUTDOWN_MAX_RETRIES = _whole("controlled.shutdown.max.retries")
CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS = _whole("controlled.shutdown.retry.backoff.ms")
AUTO_LEADER_REBALANCE_ENABLE = _flag("auto.leader.rebalance.enable")
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = _whole("leader.imbalance.check.interval.seconds")
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE = _whole("leader.imbalance.per.broker.percentage")
NUM_REPLICA_FETCHERS = _whole("num.replica.fetchers")
REPLICA_FETCH_BACKOFF_MS = _whole("replica.fetch.backoff.ms")
REPLICA_FETCH_MAX_BYTES = _whole("replica.fetch.max.bytes")
REPLICA_FETCH_MIN_BYTES = _whole("replica.fetch.min.bytes")
REPLICA_FETCH_RESPONSE_MAX_BYTES = _whole("replica.fetch.response.max.bytes")
REPLICA_FETCH_WAIT_MAX_MS = _whole("replica.fetch.wait.max.ms")
REPLICA_SOCKET_TIMEOUT_MS = _whole("replica.socket.timeout.ms")
REPLICA_SELECTOR_CLASS = _optional_text("replica.selector.class")
REPLICATION_QUOTA_WINDOW_NUM = _whole("replication.quota.window.num")
REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = _whole("replication.quota.window.size.seconds")
LEADER_REPLICATION_THROTTLED_RATE: Setting[int | None] = setting("leader.replication.throttled.rate")
FOLLOWER_REPLICATION_THROTTLED_RATE: Setting[int | None] = setting("follower.replication.throttled.rate")
TRANSACTION_STATE_LOG_MIN_ISR = _whole("transaction.state.log.min.isr")
SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR = _whole("share.coordinator.state.topic.min.isr")
