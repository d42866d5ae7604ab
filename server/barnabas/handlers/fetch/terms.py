"""Terms of a fetch, by its version, its sender and the settings.

v3 sends the first batch whole even if it is larger than every limit, v4 record batches, v10 zstd, v11 lets followers
serve consumers (KIP-392), v16 adds the current leader (KIP-951).
"""

from typing import Final

from barnabas.cluster.metadata.endpoints import advertised_node
from barnabas.cluster.metadata.store import MetadataStore
from barnabas.cluster.replicas.replica import Replica
from barnabas.cluster.replication.read_replica import preferred_replica
from barnabas.config import broker as settings
from barnabas.config.cluster import reads_from_rack
from barnabas.config.loading import BrokerConfig
from barnabas.serving.context import RequestContext
from barnabas.wire.generated.fetch import FetchRequest

WHOLE_FIRST_BATCH_SINCE: Final = 3
RECORD_BATCHES_SINCE: Final = 4
ZSTD_SINCE: Final = 10
FOLLOWERS_SERVE_SINCE: Final = 11
CURRENT_LEADER_SINCE: Final = 16
READ_COMMITTED: Final = 1

CONVERTED_BYTES_MAX: Final = 1 << 20
"""Most bytes that are read to be converted for one answer, beside a first batch that is larger."""


class FetchTerms:
    """Sender, versions and limits of one fetch.

    `replica_id` and `broker_epoch` are those of a follower, -1 for a consumer. `rack` is a consumer's preferred rack, ""
    for any. `bytes_max` is for the whole response, `partition_bytes_max` for each partition.
    """

    __slots__ = (
        "_connection",
        "_metadata",
        "broker_epoch",
        "bytes_max",
        "is_converted",
        "is_follower",
        "knows_zstd",
        "needs_leader",
        "partition_bytes_max",
        "rack",
        "reads_committed",
        "replica_id",
        "tells_leader",
    )

    def __init__(
        self, context: RequestContext, request: FetchRequest, config: BrokerConfig, metadata: MetadataStore
    ) -> None:
        self._metadata = metadata
        self._connection = context.connection
        version = context.api_version
        self.replica_id = max(request.replica_id, request.replica_state.replica_id)
        self.broker_epoch = request.replica_state.replica_epoch
        self.is_follower = self.replica_id >= 0
        self.needs_leader = self.is_follower or version < FOLLOWERS_SERVE_SINCE
        self.knows_zstd = version >= ZSTD_SINCE
        self.tells_leader = version >= CURRENT_LEADER_SINCE
        self.is_converted = version < RECORD_BATCHES_SINCE
        self.reads_committed = request.isolation_level == READ_COMMITTED and not self.is_follower
        self.rack = request.rack_id if not self.needs_leader and reads_from_rack(config) else ""
        self.partition_bytes_max = request.max_bytes
        bytes_max = config.get(settings.FETCH_MAX_BYTES)
        if version >= WHOLE_FIRST_BATCH_SINCE:
            bytes_max = min(bytes_max, request.max_bytes)
        if context.quotas is not None and not self.is_follower:
            # more could never be sent, as it alone would exceed the quota
            quota_bytes = context.quotas.fetch_bytes_max
            bytes_max = bytes_max if quota_bytes is None else min(bytes_max, quota_bytes)
        if self.is_converted:
            bytes_max = min(bytes_max, CONVERTED_BYTES_MAX)
        self.bytes_max: int = bytes_max

    def near_replica(self, replica: Replica, offset: int) -> int | None:
        """Return the broker in the consumer's rack that has the requested records; None for the leader itself (KIP-392)."""
        image, connection = self._metadata.image, self._connection

        def rack_of(broker_id: int) -> str | None:
            node = advertised_node(image, broker_id, connection)
            return node.rack if node is not None else None

        return preferred_replica(self.rack, replica.leader_id, replica.read_replicas(offset), rack_of)
