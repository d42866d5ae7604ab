"""THE table of what is served: API key, versions, handler.

ApiVersions, dispatch and `docs/reference/apis.md` are all derived from it. What is not in it is not advertised, and
asking for it closes the connection. Old versions stay in, since clients infer features from the advertised minimum
(librdkafka drops compression when Produce v0 is missing).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from barnabas.config import broker as settings
from barnabas.wire import registry

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig

API_VERSIONS = 18
TELEMETRY = frozenset((71, 72))
"""Those that are served where somebody can read what clients push, or `telemetry.enable` asks for them."""

Handler = Callable[[Any, Any], Awaitable[Any]]


@dataclass(frozen=True)
class Api:
    """One served API. Codecs and handler are imported when the first request for it arrives."""

    key: int
    min_version: int
    max_version: int

    @cached_property
    def name(self) -> str:
        """Kafka's name of the API, as in `Produce`."""
        return registry.name_of(self.key)

    @cached_property
    def module(self) -> str:
        """The name of its generated module and of its handler module, as in `offset_commit`."""
        return registry.module_of(self.key)

    @cached_property
    def handle(self) -> Handler:
        """The handler coroutine function."""
        handler: Handler = import_module(f"barnabas.handlers.{self.module}").handle
        return handler

    @cached_property
    def decoders(self) -> Any:
        """Request decoders by version."""
        return registry.request_codec(self.key).decoders


# key, first and last served version; the names and layouts come from the schemas.
_ROWS: tuple[tuple[int, int, int], ...] = (
    (0, 0, 13),  # Produce
    (1, 0, 18),  # Fetch
    (2, 0, 11),  # ListOffsets
    (3, 0, 13),  # Metadata
    (8, 0, 10),  # OffsetCommit
    (9, 0, 10),  # OffsetFetch
    (10, 0, 6),  # FindCoordinator
    (11, 0, 9),  # JoinGroup
    (12, 0, 4),  # Heartbeat
    (13, 0, 5),  # LeaveGroup
    (14, 0, 5),  # SyncGroup
    (15, 0, 6),  # DescribeGroups
    (16, 0, 5),  # ListGroups
    (17, 0, 1),  # SaslHandshake
    (18, 0, 4),  # ApiVersions
    (19, 0, 7),  # CreateTopics
    (20, 0, 6),  # DeleteTopics
    (21, 0, 2),  # DeleteRecords
    (22, 0, 5),  # InitProducerId
    (23, 0, 4),  # OffsetForLeaderEpoch
    (24, 0, 5),  # AddPartitionsToTxn
    (25, 0, 4),  # AddOffsetsToTxn
    (26, 0, 5),  # EndTxn
    (27, 0, 2),  # WriteTxnMarkers
    (28, 0, 5),  # TxnOffsetCommit
    (29, 0, 3),  # DescribeAcls
    (30, 0, 3),  # CreateAcls
    (31, 0, 3),  # DeleteAcls
    (32, 0, 4),  # DescribeConfigs
    (33, 0, 2),  # AlterConfigs
    (34, 0, 2),  # AlterReplicaLogDirs
    (35, 0, 5),  # DescribeLogDirs
    (36, 0, 2),  # SaslAuthenticate
    (37, 0, 3),  # CreatePartitions
    (42, 0, 2),  # DeleteGroups
    (43, 0, 2),  # ElectLeaders
    (44, 0, 1),  # IncrementalAlterConfigs
    (45, 0, 1),  # AlterPartitionReassignments
    (46, 0, 0),  # ListPartitionReassignments
    (47, 0, 0),  # OffsetDelete
    (57, 0, 2),  # UpdateFeatures
    (60, 0, 2),  # DescribeCluster
    (61, 0, 0),  # DescribeProducers
    (65, 0, 0),  # DescribeTransactions
    (66, 0, 2),  # ListTransactions
    (68, 0, 1),  # ConsumerGroupHeartbeat
    (69, 0, 1),  # ConsumerGroupDescribe
    (71, 0, 0),  # GetTelemetrySubscriptions
    (72, 0, 0),  # PushTelemetry
    (74, 0, 1),  # ListConfigResources
    (75, 0, 0),  # DescribeTopicPartitions
    (76, 0, 1),  # ShareGroupHeartbeat
    (77, 0, 1),  # ShareGroupDescribe
    (78, 0, 2),  # ShareFetch
    (79, 0, 2),  # ShareAcknowledge
    (83, 0, 0),  # InitializeShareGroupState
    (84, 0, 0),  # ReadShareGroupState
    (85, 0, 1),  # WriteShareGroupState
    (86, 0, 0),  # DeleteShareGroupState
    (87, 0, 1),  # ReadShareGroupStateSummary
    (90, 0, 1),  # DescribeShareGroupOffsets
    (91, 0, 0),  # AlterShareGroupOffsets
    (92, 0, 0),  # DeleteShareGroupOffsets
    (88, 0, 1),  # StreamsGroupHeartbeat
    (89, 0, 1),  # StreamsGroupDescribe
)

SERVED: dict[int, Api] = {row[0]: Api(*row) for row in _ROWS}


def served_by(config: BrokerConfig) -> dict[int, Api]:
    """The APIs that a broker with these settings serves."""
    with_telemetry = config.get(settings.TELEMETRY_ENABLE)
    if with_telemetry is None:
        with_telemetry = bool(config.get(settings.METRICS_LISTENER))
    return {key: api for key, api in SERVED.items() if with_telemetry or key not in TELEMETRY}


def refusal(key: int, version: int, client_id: str | None) -> str:
    """Why a request is not served, for the log line that goes with closing its connection."""
    who = f"client {client_id!r}"
    api = SERVED.get(key)
    if api is not None:
        return f"{who} sent {api.name} v{version}; versions {api.min_version} to {api.max_version} are served"
    if registry.is_known(key):
        return f"{who} sent {registry.name_of(key)} v{version}, which is not served (docs/reference/not-implemented.md)"
    return f"{who} sent the unknown API key {key} (version {version})"
