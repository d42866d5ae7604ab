"""THE table of the served APIs: API key, versions, required access, handler.

ApiVersions, dispatch and `docs/reference/apis.md` are all derived from it. APIs that are not in it are not advertised,
and a request for one closes the connection. Old versions stay in, since clients infer features from the advertised
minimum (librdkafka drops compression when Produce v0 is missing).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire import registry

SASL_HANDSHAKE = 17
API_VERSIONS = 18
SASL_AUTHENTICATE = 36
FETCH = 1
METADATA = 3
TELEMETRY = frozenset((71, 72))
"""APIs that are served if a receiver of telemetry is configured, or `telemetry.enable` is set."""

HEARTBEATS = frozenset((12, 68))
"""APIs that clients repeat on a connection. Their handlers modify neither requests nor returned responses."""

DELEGATION_TOKENS = frozenset((38, 39, 40))
"""APIs that create, renew and expire delegation tokens."""

SERVED_EARLY = frozenset((API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE))
"""APIs served before the controller has sent a broker its metadata, besides the controller's requests."""

UNSTABLE: Mapping[int, int] = MappingProxyType({22: 6})
"""Last versions by key that are not stable in Kafka, and are served with `unstable.api.versions.enable`."""

UNSTABLE_SINCE = "4.1"
"""The first release with these."""

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
)  # fmt: skip
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
IDEMPOTENT_WRITE = Operation.IDEMPOTENT_WRITE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
DELEGATION_TOKEN, USER = ResourceType.DELEGATION_TOKEN, ResourceType.USER


class Access(NamedTuple):
    """Permission that a request needs: an operation on resources of a type.

    `named_by` is where the request names them (`topics.name`: the name of each topic); empty for the cluster, and for
    resources that only the answer names.
    """

    operation: Operation
    resource_type: ResourceType
    named_by: str = ""


_GROUP_READ = Access(READ, GROUP, "group_id")
_TRANSACTION_WRITE = Access(WRITE, TRANSACTIONAL_ID, "transactional_id")
_CLUSTER_ACTION = Access(Operation.CLUSTER_ACTION, CLUSTER)
_ALTERED_RESOURCES = (
    Access(ALTER_CONFIGS, CLUSTER),
    Access(ALTER_CONFIGS, TOPIC, "resources.resource_name"),
    Access(ALTER_CONFIGS, GROUP, "resources.resource_name"),
)


class Api:
    """One served API. Codecs and handler are imported when the first request for it arrives.

    `whole` are the permissions for the whole request, checked first, in this order. `each` are those that the handler
    checks itself: for each resource in the request or the response, or as alternatives, as its module docstring explains.
    `controller` marks APIs that only the cluster's controller may answer; another broker answers NOT_CONTROLLER, as Kafka
    does without forwarding (3.9 in ZooKeeper mode). `feature` is the feature that must be on (KIP-584); without it the
    answer is UNSUPPORTED_VERSION. `member_only` marks APIs that are served only in a cluster on ZooKeeper: those between
    its controller and its brokers. `forwarded` marks APIs that a broker of a KRaft quorum forwards to the active controller
    (KIP-590), as it does those with `controller`.
    """

    def __init__(
        self,
        key: int,
        min_version: int,
        max_version: int,
        whole: tuple[Access, ...] = (),
        each: tuple[Access, ...] = (),
        controller: bool = False,
        feature: str = "",
        member_only: bool = False,
        forwarded: bool = False,
    ) -> None:
        self.key = key
        self.min_version = min_version
        self.max_version = max_version
        self.whole = whole
        self.each = each
        self.controller = controller
        self.feature = feature
        self.member_only = member_only
        self.forwarded = forwarded or controller

    def in_versions(self, first: int, last: int) -> Api:
        """Return the same API, served from the first to the last of these versions."""
        return Api(**row_of(self) | {"min_version": first, "max_version": last})

    @cached_property
    def name(self) -> str:
        """Kafka's name of the API, as in `Produce`."""
        return registry.name_of(self.key)

    @cached_property
    def module(self) -> str:
        """The name of its generated module and of its handler module, for example `offset_commit`."""
        return registry.module_of(self.key)

    @cached_property
    def is_conditional(self) -> bool:
        """Requests of any sender may be refused: a feature is off, or another broker is the controller."""
        return bool(self.feature or self.controller)

    @cached_property
    def handler(self) -> type[Any]:
        """The class of its handler."""
        handler: type[Any] = getattr(import_module(f"barnabas.handlers.{self.module}"), self.name)
        return handler

    @cached_property
    def decoders(self) -> Any:
        """Request decoders by version."""
        return registry.request_codec(self.key).decoders

    def load(self) -> None:
        """Import codecs and handler."""
        registry.response_codec(self.key)
        for part in (self.decoders, self.handler):  # asking for them imports them
            assert part is not None


def row_of(api: Api) -> dict[str, Any]:
    """Return the arguments of an `Api`."""
    return {name: getattr(api, name) for name in _COLUMNS}


_COLUMNS = (
    "key", "min_version", "max_version", "whole", "each", "controller", "feature", "member_only", "forwarded",
)  # fmt: skip

CONSUMERS, SHARES, STREAMS = "group.version", "share.version", "streams.version"

# Key, first and last served version, what the whole request needs, what each resource that it names needs.
# Names and layouts come from the schemas.
_ROWS: tuple[Api, ...] = (
    Api(0, 0, 13, each=(_TRANSACTION_WRITE, Access(WRITE, TOPIC, "topic_data.name"))),  # Produce
    Api(1, 0, 18, each=(Access(READ, TOPIC, "topics.topic"), _CLUSTER_ACTION)),  # Fetch
    Api(2, 0, 11, each=(Access(DESCRIBE, TOPIC, "topics.name"),)),  # ListOffsets
    Api(3, 0, 13, each=(Access(DESCRIBE, TOPIC, "topics.name"), Access(CREATE, TOPIC, "topics.name"))),  # Metadata
    Api(4, 0, 7, whole=(_CLUSTER_ACTION,), member_only=True),  # LeaderAndIsr
    Api(5, 0, 4, whole=(_CLUSTER_ACTION,), member_only=True),  # StopReplica
    Api(6, 0, 8, whole=(_CLUSTER_ACTION,), member_only=True),  # UpdateMetadata
    Api(7, 0, 3, whole=(_CLUSTER_ACTION,), member_only=True),  # ControlledShutdown
    Api(8, 0, 10, whole=(_GROUP_READ,), each=(Access(READ, TOPIC, "topics.name"),)),  # OffsetCommit
    Api(9, 0, 10, each=(
        Access(DESCRIBE, GROUP, "groups.group_id"), Access(DESCRIBE, TOPIC, "groups.topics.name"),
    )),  # OffsetFetch
    Api(10, 0, 6, each=(
        Access(DESCRIBE, GROUP, "coordinator_keys"), Access(DESCRIBE, TRANSACTIONAL_ID, "coordinator_keys"),
        _CLUSTER_ACTION,
    )),  # FindCoordinator
    Api(11, 0, 9, whole=(_GROUP_READ,)),  # JoinGroup
    Api(12, 0, 4, whole=(_GROUP_READ,)),  # Heartbeat
    Api(13, 0, 5, whole=(_GROUP_READ,)),  # LeaveGroup
    Api(14, 0, 5, whole=(_GROUP_READ,)),  # SyncGroup
    Api(15, 0, 6, each=(Access(DESCRIBE, GROUP, "groups"),)),  # DescribeGroups
    Api(16, 0, 5, each=(Access(DESCRIBE, GROUP), Access(DESCRIBE, CLUSTER))),  # ListGroups
    Api(17, 0, 1),  # SaslHandshake
    Api(18, 0, 5),  # ApiVersions
    Api(19, 0, 7, each=(
        Access(CREATE, TOPIC, "topics.name"), Access(CREATE, CLUSTER), Access(DESCRIBE_CONFIGS, TOPIC, "topics.name"),
    ), controller=True),  # CreateTopics
    Api(20, 0, 6, each=(
        Access(DELETE, TOPIC, "topics.name"), Access(DESCRIBE, TOPIC, "topics.name"),
    ), controller=True),  # DeleteTopics
    Api(21, 0, 2, each=(Access(DELETE, TOPIC, "topics.name"),)),  # DeleteRecords
    Api(22, 0, 6, each=(
        _TRANSACTION_WRITE, Access(Operation.TWO_PHASE_COMMIT, TRANSACTIONAL_ID, "transactional_id"),
        Access(IDEMPOTENT_WRITE, CLUSTER), Access(WRITE, TOPIC),
    )),  # InitProducerId
    Api(23, 0, 4, each=(Access(DESCRIBE, TOPIC, "topics.topic"), _CLUSTER_ACTION)),  # OffsetForLeaderEpoch
    Api(24, 0, 5, each=(
        _CLUSTER_ACTION, Access(WRITE, TRANSACTIONAL_ID, "v3_and_below_transactional_id"),
        Access(WRITE, TOPIC, "v3_and_below_topics.name"),
    )),  # AddPartitionsToTxn
    Api(25, 0, 4, whole=(_TRANSACTION_WRITE, _GROUP_READ)),  # AddOffsetsToTxn
    Api(26, 0, 5, whole=(_TRANSACTION_WRITE,)),  # EndTxn
    Api(27, 0, 2, each=(Access(ALTER, CLUSTER), _CLUSTER_ACTION)),  # WriteTxnMarkers
    Api(28, 0, 6, whole=(_TRANSACTION_WRITE, _GROUP_READ), each=(
        Access(READ, TOPIC, "topics.name"),
    )),  # TxnOffsetCommit
    Api(29, 0, 3, whole=(Access(DESCRIBE, CLUSTER),)),  # DescribeAcls
    Api(30, 0, 3, whole=(Access(ALTER, CLUSTER),), forwarded=True),  # CreateAcls
    Api(31, 0, 3, whole=(Access(ALTER, CLUSTER),), forwarded=True),  # DeleteAcls
    Api(32, 0, 4, each=(
        Access(DESCRIBE_CONFIGS, CLUSTER), Access(DESCRIBE_CONFIGS, TOPIC, "resources.resource_name"),
        Access(DESCRIBE_CONFIGS, GROUP, "resources.resource_name"),
    )),  # DescribeConfigs
    Api(33, 0, 2, each=_ALTERED_RESOURCES),  # AlterConfigs
    Api(34, 0, 2, whole=(Access(ALTER, CLUSTER),)),  # AlterReplicaLogDirs
    Api(35, 0, 5, whole=(Access(DESCRIBE, CLUSTER),)),  # DescribeLogDirs
    Api(36, 0, 2),  # SaslAuthenticate
    Api(37, 0, 3, each=(Access(ALTER, TOPIC, "topics.name"),), controller=True),  # CreatePartitions
    Api(38, 0, 3, each=(
        Access(Operation.CREATE_TOKENS, USER, "owner_principal_name"),
    ), forwarded=True),  # CreateDelegationToken
    Api(39, 0, 2, forwarded=True),  # RenewDelegationToken
    Api(40, 0, 2, forwarded=True),  # ExpireDelegationToken
    Api(41, 0, 3, each=(
        Access(DESCRIBE, DELEGATION_TOKEN), Access(Operation.DESCRIBE_TOKENS, USER),
    )),  # DescribeDelegationToken
    Api(42, 0, 3, each=(Access(DELETE, GROUP, "groups_names"),)),  # DeleteGroups
    Api(43, 0, 2, whole=(Access(ALTER, CLUSTER),), controller=True),  # ElectLeaders
    Api(44, 0, 1, each=_ALTERED_RESOURCES),  # IncrementalAlterConfigs
    Api(45, 0, 1, whole=(Access(ALTER, CLUSTER),), controller=True),  # AlterPartitionReassignments
    Api(46, 0, 0, whole=(Access(DESCRIBE, CLUSTER),), controller=True),  # ListPartitionReassignments
    Api(47, 0, 0, whole=(Access(DELETE, GROUP, "group_id"),), each=(Access(READ, TOPIC, "topics.name"),)),  # OffsetDelete
    Api(48, 0, 1, whole=(Access(DESCRIBE_CONFIGS, CLUSTER),)),  # DescribeClientQuotas
    Api(49, 0, 1, whole=(Access(ALTER_CONFIGS, CLUSTER),), forwarded=True),  # AlterClientQuotas
    Api(50, 0, 0, whole=(Access(DESCRIBE, CLUSTER),)),  # DescribeUserScramCredentials
    Api(51, 0, 0, whole=(Access(ALTER, CLUSTER),), controller=True),  # AlterUserScramCredentials
    Api(56, 0, 3, whole=(_CLUSTER_ACTION,), member_only=True),  # AlterPartition
    Api(57, 0, 2, whole=(Access(ALTER, CLUSTER),), controller=True),  # UpdateFeatures
    Api(60, 0, 2, each=(Access(DESCRIBE, CLUSTER),)),  # DescribeCluster
    Api(61, 0, 0, each=(Access(READ, TOPIC, "topics.name"),)),  # DescribeProducers
    Api(65, 0, 0, each=(
        Access(DESCRIBE, TRANSACTIONAL_ID, "transactional_ids"), Access(DESCRIBE, TOPIC),
    )),  # DescribeTransactions
    Api(66, 0, 2, each=(Access(DESCRIBE, TRANSACTIONAL_ID),)),  # ListTransactions
    Api(67, 0, 0, whole=(_CLUSTER_ACTION,), member_only=True),  # AllocateProducerIds
    Api(68, 0, 1, whole=(_GROUP_READ,), each=(
        Access(DESCRIBE, TOPIC, "subscribed_topic_names"),
    ), feature=CONSUMERS),  # ConsumerGroupHeartbeat
    Api(69, 0, 1, each=(
        Access(DESCRIBE, GROUP, "group_ids"), Access(DESCRIBE, TOPIC),
    ), feature=CONSUMERS),  # ConsumerGroupDescribe
    Api(71, 0, 0),  # GetTelemetrySubscriptions
    Api(72, 0, 0),  # PushTelemetry
    Api(74, 0, 1, whole=(Access(DESCRIBE_CONFIGS, CLUSTER),)),  # ListConfigResources
    Api(75, 0, 0, each=(Access(DESCRIBE, TOPIC, "topics.name"),)),  # DescribeTopicPartitions
    Api(76, 0, 1, whole=(_GROUP_READ,), each=(
        Access(DESCRIBE, TOPIC, "subscribed_topic_names"),
    ), feature=SHARES),  # ShareGroupHeartbeat
    Api(77, 0, 1, each=(
        Access(DESCRIBE, GROUP, "group_ids"), Access(DESCRIBE, TOPIC),
    ), feature=SHARES),  # ShareGroupDescribe
    Api(78, 0, 2, whole=(_GROUP_READ,), each=(Access(READ, TOPIC, "topics.topic_id"),), feature=SHARES),  # ShareFetch
    Api(79, 0, 2, whole=(_GROUP_READ,), each=(Access(READ, TOPIC, "topics.topic_id"),), feature=SHARES),  # ShareAcknowledge
    Api(83, 0, 0, whole=(_CLUSTER_ACTION,), feature=SHARES),  # InitializeShareGroupState
    Api(84, 0, 0, whole=(_CLUSTER_ACTION,), feature=SHARES),  # ReadShareGroupState
    Api(85, 0, 1, whole=(_CLUSTER_ACTION,), feature=SHARES),  # WriteShareGroupState
    Api(86, 0, 0, whole=(_CLUSTER_ACTION,), feature=SHARES),  # DeleteShareGroupState
    Api(87, 0, 1, whole=(_CLUSTER_ACTION,), feature=SHARES),  # ReadShareGroupStateSummary
    Api(90, 0, 1, each=(
        Access(DESCRIBE, GROUP, "groups.group_id"), Access(DESCRIBE, TOPIC, "groups.topics.topic_name"),
    ), feature=SHARES),  # DescribeShareGroupOffsets
    Api(91, 0, 0, whole=(_GROUP_READ,), each=(
        Access(READ, TOPIC, "topics.topic_name"),
    ), feature=SHARES),  # AlterShareGroupOffsets
    Api(92, 0, 0, whole=(Access(DELETE, GROUP, "group_id"),), each=(
        Access(READ, TOPIC, "topics.topic_name"),
    ), feature=SHARES),  # DeleteShareGroupOffsets
    Api(88, 0, 1, whole=(_GROUP_READ,), each=(
        Access(DESCRIBE, TOPIC, "topology.subtopologies.source_topics"), Access(CREATE, TOPIC), Access(CREATE, CLUSTER),
    ), feature=STREAMS),  # StreamsGroupHeartbeat
    Api(89, 0, 1, each=(
        Access(DESCRIBE, GROUP, "group_ids"), Access(DESCRIBE, TOPIC),
    ), feature=STREAMS),  # StreamsGroupDescribe
    Api(93, 0, 0, whole=(_GROUP_READ,), feature=STREAMS),  # StreamsGroupTopologyDescriptionUpdate
)  # fmt: skip

BY_KEY: dict[int, Api] = {api.key: api for api in _ROWS}


def refusal(served: Mapping[int, Api], key: int, version: int, sender: str) -> str:
    """Return why a request of `sender` is not served, for the log line when its connection is closed."""
    api = served.get(key)
    if api is not None:
        return (
            f"{sender} sent {api.name} v{version}; versions {api.min_version} to {api.max_version} are served"
        )
    if registry.is_known(key):
        return f"{sender} sent {registry.name_of(key)} v{version}, which this broker does not serve"
    return f"{sender} sent the unknown API key {key} (version {version})"


QUORUM_ONLY: Mapping[int, Api] = {
    api.key: api
    for api in (
        Api(55, 0, 2, forwarded=True),  # DescribeQuorum
        Api(64, 0, 0, forwarded=True),  # UnregisterBroker
        Api(80, 0, 1, forwarded=True),  # AddRaftVoter
        Api(81, 0, 0, forwarded=True),  # RemoveRaftVoter
        Api(94, 0, 0, forwarded=True),  # UnregisterController
    )
}
"""APIs that a broker of a KRaft quorum forwards beside the others; no other broker has them."""
