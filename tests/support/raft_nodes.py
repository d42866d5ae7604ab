"""Voters on simulated disks: their formatted directories, their settings, and requests of tests."""

from barnabas.cluster.kraft.directory import DIRECTORY
from barnabas.cluster.kraft.formatting import FIRST_VOTERS, first_voters_file
from barnabas.cluster.kraft.raft.values import KRAFT_VERSIONS, RaftSettings
from barnabas.cluster.kraft.replica_values import METADATA_TOPIC_ID
from barnabas.cluster.kraft.values import Voter
from barnabas.config.metadata_log import LogSettings
from barnabas.config.quorum import QuorumSettings
from barnabas.log.format.names import CLUSTER_METADATA_TOPIC
from barnabas.log.format.properties import MetaProperties
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.wire.generated.api_versions import ApiVersionsResponse
from barnabas.wire.generated.describe_quorum import DescribeQuorumRequest
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.metadata_records.topic import TopicRecord
from barnabas.wire.metadata_records import encode_record

CLUSTER = "LeeZjg0uTUuE3sYgWjy8mA"
DIR = "/data"
LOG = LogSettings()


def directory_id(node_id):
    return bytes([node_id & 255]) * 16


def endpoints_of(node_id):
    return (("CONTROLLER", f"c{node_id}", 9093),)


def addresses_of(nodes):
    return {number: (f"c{number}", 9093) for number in nodes}


def supported_levels(lowest=0, highest=1):
    """Return the ApiVersions response of a node that supports these levels of kraft.version."""
    feature = ApiVersionsResponse.SupportedFeatureKey("kraft.version", lowest, highest)
    return ApiVersionsResponse(supported_features=[feature])


def voter(node_id):
    return Voter(node_id, directory_id(node_id), endpoints_of(node_id), KRAFT_VERSIONS)


def formatted_disk(node_id, voters=(), *, directory=None):
    """Return the disk of a node; `voters` are the initial voters of a quorum with kraft.version 1."""
    disk = MemoryDisk()
    disk.make_dirs(f"{DIR}/{DIRECTORY}")
    meta = MetaProperties(1, CLUSTER, node_id, directory or directory_id(node_id))
    disk.replace(f"{DIR}/meta.properties", meta.encode(), sync=True)
    if voters:
        data = first_voters_file([voter(number) for number in voters], 1_000)
        disk.replace(f"{DIR}/{FIRST_VOTERS}", data, sync=True)
    disk.sync_dir("/")
    disk.sync_dir(DIR)
    return disk


def settings_of(node_id, nodes, *, is_static=False, log=LOG, **times):
    """Return the settings of a node of a quorum."""
    addresses = addresses_of(nodes)
    quorum = QuorumSettings(
        node_id=node_id,
        log_dir=DIR,
        bootstrap=tuple(addresses.values()),
        static_voters=addresses if is_static else {},
        fetch_timeout_ms=2_000,
        request_timeout_ms=2_000,
        retry_backoff_ms=20,
        fetch_bytes_max=1 << 20,
        snapshot_bytes_max=1 << 20,
        log=log,
    )
    return quorum, RaftSettings.of(quorum, endpoints_of(node_id), **times)


def record(number):
    return encode_record(TopicRecord(f"topic-{number}", number.to_bytes(16, "big")), 0)


def fetch_request(
    offset,
    *,
    epoch,
    last_epoch,
    replica_id=-1,
    wait_ms=0,
    size=1 << 20,
    high_watermark=1 << 62,
    directory=bytes(16),
):
    partition = FetchRequest.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        replica_directory_id=directory,
        high_watermark=high_watermark,
    )
    return FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id, -1),
        max_wait_ms=wait_ms,
        max_bytes=size,
        topics=[FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def describe_request():
    partition = DescribeQuorumRequest.PartitionData(0)
    return DescribeQuorumRequest([DescribeQuorumRequest.TopicData(CLUSTER_METADATA_TOPIC, [partition])])


class Recording:
    """A listener that records its notifications."""

    def __init__(self):
        self.calls = []

    def on_leader(self, epoch, end_offset):
        self.calls.append(("leader", epoch, end_offset))

    def on_resigned(self, epoch):
        self.calls.append(("resigned", epoch))
