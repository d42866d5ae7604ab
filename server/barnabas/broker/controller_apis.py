"""THE table of the APIs that a controller serves, in the versions of Kafka 4.4's controllers, with required permissions.

The rule: handlers authorize the topics, resources and tokens in a request, as in `serving/apis.py`; a request in an
Envelope is authorized for its client, by the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from barnabas.cluster.kraft.feature_levels import SUPPORTED
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.serving.apis import Access, Api
from barnabas.serving.release import IN_QUORUM, ReleaseProfile

ENVELOPE = 58
DESCRIBE_CLUSTER = 60
BROKER_HEARTBEAT = 63
RAFT = frozenset((1, 52, 53, 54, 55, 59, 80, 81, 82))
"""APIs that the voter answers."""
FORWARDABLE = frozenset((
    19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 45, 46, 49, 51, 55, 57, 64, 67, 80, 81, 94,
))  # fmt: skip
"""APIs that a broker may forward for a client (KIP-590)."""
AS_BROKERS = frozenset((17, 18, 36))
"""APIs that any controller answers like a broker."""
LOOKING = frozenset((29, 32))
"""APIs that any controller answers from the committed image: DescribeAcls, DescribeConfigs."""
UNANSWERED = frozenset((41, 50))
"""DescribeDelegationToken, DescribeUserScramCredentials: a controller of Kafka advertises them, and answers
UNKNOWN_SERVER_ERROR to every client.
"""

CLUSTER = ResourceType.CLUSTER
_ACTION = (Access(Operation.CLUSTER_ACTION, CLUSTER),)
_ALTER = (Access(Operation.ALTER, CLUSTER),)
_DESCRIBE = (Access(Operation.DESCRIBE, CLUSTER),)

# Names and layouts come from the schemas.
_ROWS = (
    Api(1, 4, 18, _ACTION),  # Fetch
    Api(17, 0, 1),  # SaslHandshake
    Api(18, 0, 5),  # ApiVersions
    Api(19, 2, 7),  # CreateTopics
    Api(20, 1, 6),  # DeleteTopics
    Api(29, 1, 3, _DESCRIBE),  # DescribeAcls
    Api(30, 1, 3, _ALTER),  # CreateAcls
    Api(31, 1, 3, _ALTER),  # DeleteAcls
    Api(32, 1, 4),  # DescribeConfigs
    Api(33, 0, 2),  # AlterConfigs
    Api(36, 0, 2),  # SaslAuthenticate
    Api(37, 0, 3),  # CreatePartitions
    Api(38, 1, 3),  # CreateDelegationToken
    Api(39, 1, 2),  # RenewDelegationToken
    Api(40, 1, 2),  # ExpireDelegationToken
    Api(41, 1, 3),  # DescribeDelegationToken
    Api(43, 0, 2, _ALTER),  # ElectLeaders
    Api(44, 0, 1),  # IncrementalAlterConfigs
    Api(45, 0, 1, _ALTER),  # AlterPartitionReassignments
    Api(46, 0, 0, _DESCRIBE),  # ListPartitionReassignments
    Api(49, 0, 1, (Access(Operation.ALTER_CONFIGS, CLUSTER),)),  # AlterClientQuotas
    Api(50, 0, 0),  # DescribeUserScramCredentials
    Api(51, 0, 0, _ALTER),  # AlterUserScramCredentials
    Api(52, 0, 2, _ACTION),  # Vote
    Api(53, 0, 1, _ACTION),  # BeginQuorumEpoch
    Api(54, 0, 1, _ACTION),  # EndQuorumEpoch
    Api(55, 0, 2, _DESCRIBE),  # DescribeQuorum
    Api(56, 2, 3, _ACTION),  # AlterPartition
    Api(57, 0, 2, _ALTER),  # UpdateFeatures
    Api(58, 0, 0, _ACTION),  # Envelope
    Api(59, 0, 1, _ACTION),  # FetchSnapshot
    Api(60, 0, 2, _ALTER),  # DescribeCluster
    Api(62, 0, 4, _ACTION),  # BrokerRegistration
    Api(63, 0, 2, _ACTION),  # BrokerHeartbeat
    Api(64, 0, 0, _ALTER),  # UnregisterBroker
    Api(67, 0, 0, _ACTION),  # AllocateProducerIds
    Api(70, 0, 0, _ACTION),  # ControllerRegistration
    Api(73, 0, 0, _ACTION),  # AssignReplicasToDirs
    Api(80, 0, 1, _ALTER),  # AddRaftVoter
    Api(81, 0, 0, _ALTER),  # RemoveRaftVoter
    Api(82, 0, 0, _ACTION),  # UpdateRaftVoter
    Api(94, 0, 0, _ALTER),  # UnregisterController
)

BY_KEY: Mapping[int, Api] = MappingProxyType({api.key: api for api in _ROWS})
CONTROLLER: ReleaseProfile = IN_QUORUM._replace(
    name="controller",
    apis=BY_KEY,
    features=tuple(
        feature._replace(max_level=SUPPORTED[feature.name].highest) for feature in IN_QUORUM.features
    ),
)
"""The profile of a controller, which also supports the levels that ask something of brokers alone."""
