"""One valid request of each API of a controller, from which `compat/kit/mutation.py` derives the others.

The rule: a request that changes state has a name, an id and a directory made from its label, so that responses are
independent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from compat.controller.sides import CLIENT_ADDRESS, DIRECTORY_ID, NODE_ID, principal_data
from compat.kafka.broker import CLUSTER_ID
from compat.kit.compare import Seen
from compat.kit.mutation import Right
from compat.kit.wire import Values, encode_frame
from compat.metadata.quorum import METADATA

TOPIC, SPREAD = "topic", "spread"
"""Topics that are there: one of broker 1 alone, one of several brokers."""
METADATA_TOPIC_ID = bytes(15) + b"\1"
CAUGHT_UP = 1 << 40
"""Offset in heartbeats of brokers that have read everything."""
FEATURES = {
    "metadata.version": (7, 33),
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "share.version": (0, 2),
    "streams.version": (0, 1),
}
REGISTERED_FIRST = 1_000
"""Ids of brokers that only register are from here on."""
CREATED = {"Name": "config", "NumPartitions": 1, "ReplicationFactor": 1}
TOKEN = "token"
"""Label of the request that has made the token which others are about."""
Answer = Callable[[Seen], Any]


def epoch_of(broker: int) -> Answer:
    """Return the epoch of a registered broker, from an earlier response."""
    return lambda seen: seen[f"broker {broker}"].get("BrokerEpoch", -1)


def topic_id_of(topic: str) -> Answer:
    """Return the id of a created topic, from an earlier response."""
    return lambda seen: seen[f"topic {topic}"]["Topics"][topic_index(seen, topic)]["TopicId"]


def topic_index(seen: Seen, topic: str) -> int:
    """Return the index of a topic in the response that created it."""
    return [entry["Name"] for entry in seen[f"topic {topic}"]["Topics"]].index(topic)


def id_of(text: str) -> bytes:
    """Return an id derived from a text, unique to it."""
    return hashlib.md5(text.encode(), usedforsecurity=False).digest()


def number_of(text: str) -> int:
    """Return a broker id derived from a text, unique to it."""
    return REGISTERED_FIRST + int.from_bytes(id_of(text)[:3], "big")


def registration(broker: int, name: str, *, dirs: int = 1, rack: str | None = None) -> Values:
    """Return the registration of a broker."""
    return {
        "BrokerId": broker,
        "ClusterId": CLUSTER_ID,
        "IncarnationId": id_of(f"process of {name}"),
        "Listeners": [{"Name": "PLAINTEXT", "Host": "broker", "Port": 9092, "SecurityProtocol": 0}],
        "Features": [
            {"Name": feature, "MinSupportedVersion": low, "MaxSupportedVersion": high}
            for feature, (low, high) in FEATURES.items()
        ],
        "Rack": rack,
        "IsMigratingZkBroker": False,
        "LogDirs": [id_of(f"dir {number} of {name}") for number in range(dirs)],
        "PreviousBrokerEpoch": -1,
    }


def heartbeat(broker: int, **fields: Any) -> Values:
    """Return a heartbeat of a broker that has read the whole log."""
    return {
        "BrokerId": broker,
        "BrokerEpoch": epoch_of(broker),
        "CurrentMetadataOffset": CAUGHT_UP,
        "WantFence": False,
        "WantShutDown": False,
        **fields,
    }


def created(name: str, *assignments: list[int], **configs: str) -> tuple[str, int, Values]:
    """Return the request that creates a topic, with its replicas if they are assigned by hand."""
    topic: Values = {"Name": name, "NumPartitions": -1, "ReplicationFactor": -1}
    if not assignments:
        topic |= {"NumPartitions": 1, "ReplicationFactor": 1}
    topic["Assignments"] = [
        {"PartitionIndex": index, "BrokerIds": brokers} for index, brokers in enumerate(assignments)
    ]
    topic["Configs"] = [{"Name": key.replace("_", "."), "Value": value} for key, value in configs.items()]
    return "CreateTopics", 7, {"Topics": [topic], "timeoutMs": 9000}


def acl(name: str) -> Values:
    """Return an ACL on a topic of that name."""
    return {
        "ResourceType": 2, "ResourceName": name, "ResourcePatternType": 3, "Principal": "User:alice", "Host": "*",
        "Operation": 3, "PermissionType": 3,
    }  # fmt: skip


def acl_filter(name: str) -> Values:
    """Return the filter of the same ACL."""
    return {
        "ResourceTypeFilter": 2, "ResourceNameFilter": name, "PatternTypeFilter": 3, "PrincipalFilter": "User:alice",
        "HostFilter": "*", "Operation": 3, "PermissionType": 3,
    }  # fmt: skip


def _acls(name: str) -> list[tuple[str, int, Values]]:
    return [("CreateAcls", 3, {"Creations": [acl(name)]})]


def upsertion(name: str) -> Values:
    """Return a credential of a user."""
    return {"Name": name, "Mechanism": 1, "Iterations": 4096, "Salt": b"salt", "SaltedPassword": b"password"}


def _credential(name: str) -> list[tuple[str, int, Values]]:
    return [("AlterUserScramCredentials", 0, {"Upsertions": [upsertion(name)]})]


def proposal(topic: str = SPREAD) -> Values:
    """Return an AlterPartition of the partition's leader with its present ISR."""
    return {
        "BrokerId": 1,
        "BrokerEpoch": epoch_of(1),
        "Topics": [{"TopicId": topic_id_of(topic), "Partitions": [{
            "PartitionIndex": 0, "LeaderEpoch": 0, "NewIsr": [1, 2],
            "NewIsrWithEpochs": [{"BrokerId": broker, "BrokerEpoch": epoch_of(broker)} for broker in (1, 2)],
            "LeaderRecoveryState": 0, "PartitionEpoch": 0}]}],
    }  # fmt: skip


def token_hmac(seen: Seen) -> Any:
    """Return the HMAC of the token."""
    return seen[TOKEN]["Hmac"]


def _topic(name: str) -> list[tuple[str, int, Values]]:
    return [created(name)]


RIGHT: tuple[Right, ...] = (
    Right("CreateTopics", (2, 7), lambda name: {"timeoutMs": 9000, "validateOnly": False, "Topics": [
        {"Name": name, "NumPartitions": 2, "ReplicationFactor": 1,
         "Configs": [{"Name": "retention.ms", "Value": "100000"}]}]}),
    Right("CreateTopics", (2, 7), lambda name: {"timeoutMs": 9000, "validateOnly": False, "Topics": [
        {"Name": name, "NumPartitions": -1, "ReplicationFactor": -1,
         "Assignments": [{"PartitionIndex": 0, "BrokerIds": [1]}]}]}, kind="assigned"),
    Right("DeleteTopics", (1, 5), lambda name: {"TopicNames": [name], "TimeoutMs": 9000}, _topic),
    Right("DeleteTopics", (6, 6), lambda name: {"Topics": [{"Name": name}], "TimeoutMs": 9000}, _topic),
    Right("DeleteTopics", (6, 6), lambda _: {
        "Topics": [{"Name": None, "TopicId": id_of("no topic")}], "TimeoutMs": 9000}, kind="ids"),
    Right("CreatePartitions", (0, 3), lambda name: {"TimeoutMs": 9000, "ValidateOnly": False, "Topics": [
        {"Name": name, "Count": 2, "Assignments": None}]}, _topic),
    Right("CreatePartitions", (0, 3), lambda name: {"TimeoutMs": 9000, "ValidateOnly": False, "Topics": [
        {"Name": name, "Count": 2, "Assignments": [{"BrokerIds": [1]}]}]}, _topic, kind="assigned"),
    Right("DescribeConfigs", (1, 4), lambda _: {"IncludeSynonyms": True, "IncludeDocumentation": True, "Resources": [
        {"ResourceType": 2, "ResourceName": TOPIC, "ConfigurationKeys": ["retention.ms"]}]}),
    Right("DescribeConfigs", (1, 4), lambda _: {"IncludeSynonyms": True, "Resources": [
        {"ResourceType": 4, "ResourceName": str(NODE_ID), "ConfigurationKeys": ["node.id", "no.such"]}]}, kind="node"),
    *(Right(
        api, versions,
        lambda name, kind=kind, of=of, entry=entry, more=more: {"ValidateOnly": False, "Resources": [
            {"ResourceType": kind, "ResourceName": of or name,
             "Configs": [{"Name": entry[0], "Value": entry[1], **more}]}]},
        _topic if kind == 2 else lambda _: [],
        lambda name, kind=kind, of=of: [(
            "IncrementalAlterConfigs", 1, {"Resources": [{"ResourceType": kind, "ResourceName": of, "Configs": [
                {"Name": "log.retention.ms", "ConfigOperation": 1, "Value": None}]}]})] if kind == 4 else [],
        skip=("ConfigOperation",), kind=word)
      for api, versions, more in (
          ("AlterConfigs", (0, 2), {}), ("IncrementalAlterConfigs", (0, 1), {"ConfigOperation": 0}))
      for word, kind, of, entry in (
          ("", 2, "", ("retention.ms", "604800000")), ("broker", 4, "1", ("log.retention.ms", "604800000")),
          ("brokers", 4, "", ("log.retention.ms", "604800000")), ("metrics", 16, "", ("interval.ms", "60000")),
          ("group", 32, "", ("consumer.session.timeout.ms", "50000")))),
    Right("IncrementalAlterConfigs", (1, 1), lambda name: {"Resources": [
        {"ResourceType": 2, "ResourceName": name,
         "Configs": [{"Name": "cleanup.policy", "ConfigOperation": 2, "Value": "compact"}]}]}, _topic, kind="list",
        skip=("ConfigOperation",)),
    Right("CreateAcls", (1, 3), lambda name: {"Creations": [acl(name)]}),
    Right("DescribeAcls", (1, 3), acl_filter, _acls),
    Right("DeleteAcls", (1, 3), lambda name: {"Filters": [acl_filter(name)]}, _acls),
    Right("AlterClientQuotas", (0, 1), lambda name: {"ValidateOnly": False, "Entries": [
        {"Entity": [{"EntityType": "user", "EntityName": name}],
         "Ops": [{"Key": "producer_byte_rate", "Value": 5.0, "Remove": False}]}]}),
    Right("AlterUserScramCredentials", (0, 0), lambda name: {"Deletions": [{"Name": name, "Mechanism": 1}]},
          _credential, kind="deletions"),
    Right("AlterUserScramCredentials", (0, 0), lambda name: {"Upsertions": [upsertion(name)]}),
    Right("CreateDelegationToken", (1, 3), lambda name: {
        "OwnerPrincipalType": "User", "OwnerPrincipalName": name, "MaxLifetimeMs": 86_400_000,
        "Renewers": [{"PrincipalType": "User", "PrincipalName": "renewer"}]}),
    Right("RenewDelegationToken", (1, 2), lambda _: {"Hmac": token_hmac, "RenewPeriodMs": 3_600_000},
          skip=("RenewPeriodMs",)),
    Right("ExpireDelegationToken", (1, 2), lambda _: {"Hmac": token_hmac, "ExpiryTimePeriodMs": 7_200_000},
          skip=("ExpiryTimePeriodMs",)),
    Right("DescribeDelegationToken", (1, 3), lambda _: {
        "Owners": [{"PrincipalType": "User", "PrincipalName": "nobody"}]}),
    Right("UpdateFeatures", (0, 2), lambda _: {"timeoutMs": 9000, "ValidateOnly": True, "FeatureUpdates": [
        {"Feature": "transaction.version", "MaxVersionLevel": 2, "AllowDowngrade": False, "UpgradeType": 1}]}),
    Right("AllocateProducerIds", (0, 0), lambda _: {"BrokerId": 1, "BrokerEpoch": epoch_of(1)}),
    Right("DescribeCluster", (0, 2), lambda _: {
        "EndpointType": 2, "IncludeClusterAuthorizedOperations": True, "IncludeFencedBrokers": False}),
    Right("ApiVersions", (0, 4), lambda _: {"ClientSoftwareName": "kit", "ClientSoftwareVersion": "1"}),
    Right("DescribeUserScramCredentials", (0, 0), lambda _: {"Users": [{"Name": "nobody"}]}, skip=("Users",)),
    Right("SaslHandshake", (0, 1), lambda _: {"Mechanism": "PLAIN"}),
    Right("SaslAuthenticate", (0, 2), lambda _: {"AuthBytes": b"\0alice\0secret"}),
    Right("Envelope", (0, 0), lambda name: {
        "RequestData": encode_frame("AlterUserScramCredentials", 0, {"Upsertions": [upsertion(name)]}),
        "RequestPrincipal": principal_data("User:admin"), "ClientHostAddress": CLIENT_ADDRESS}),
)  # fmt: skip
"""Requests about what only broker 1 has."""
OF_BROKERS: tuple[Right, ...] = (
    Right("ElectLeaders", (0, 2), lambda _: {"ElectionType": 0, "TimeoutMs": 9000, "TopicPartitions": [
        {"Topic": SPREAD, "Partitions": [0]}]}),
    Right("ElectLeaders", (1, 2), lambda _: {"ElectionType": 1, "TimeoutMs": 9000, "TopicPartitions": [
        {"Topic": SPREAD, "Partitions": [0]}]}, kind="unclean"),
    Right("AlterPartition", (2, 3), lambda _: proposal()),
    Right("AlterPartitionReassignments", (0, 1), lambda name: {
        "TimeoutMs": 9000, "AllowReplicationFactorChange": True,
        "Topics": [{"Name": name, "Partitions": [{"PartitionIndex": 0, "Replicas": [1, 2]}]}]},
        lambda name: [created(name, [1])]),
    Right("ListPartitionReassignments", (0, 0), lambda _: {"TimeoutMs": 9000, "Topics": [
        {"Name": SPREAD, "PartitionIndexes": [0]}]}),
    Right("AssignReplicasToDirs", (0, 0), lambda _: {"BrokerId": 2, "BrokerEpoch": epoch_of(2), "Directories": [
        {"Id": id_of("dir 1 of 2"), "Topics": [
            {"TopicId": topic_id_of(SPREAD), "Partitions": [{"PartitionIndex": 0}]}]}]}),
    Right("BrokerHeartbeat", (0, 2), lambda _: {
        **heartbeat(3, WantFence=True, OfflineLogDirs=[id_of("no dir")], CordonedLogDirs=[])}),
    Right("BrokerRegistration", (0, 4), lambda name: registration(number_of(name), name, rack="rack"),
          skip=("Listeners.Name",)),
    Right("ControllerRegistration", (0, 0), lambda name: {
        "ControllerId": number_of(name), "IncarnationId": id_of(name), "ZkMigrationReady": False,
        "Listeners": [{"Name": "CONTROLLER", "Host": "host", "Port": 9093, "SecurityProtocol": 0}],
        "Features": [{"Name": "metadata.version", "MinSupportedVersion": 7, "MaxSupportedVersion": 33}]},
        skip=("Listeners.Name",)),
)  # fmt: skip
"""Requests about several brokers, and those that register."""
OF_LEAVING: tuple[Right, ...] = (
    Right("UnregisterBroker", (0, 0), lambda name: {"BrokerId": number_of(name)},
          lambda name: [("BrokerRegistration", 4, registration(number_of(name), name))]),
)  # fmt: skip
"""Requests that unregister brokers, 1 among them."""


def leader_epoch(seen: Seen) -> Any:
    """Return the epoch of the quorum's leader."""
    return seen["quorum"]["Topics"][0]["Partitions"][0]["LeaderEpoch"]


def _quorum(**fields: Any) -> list[Values]:
    return [{"TopicName": METADATA, "Partitions": [{"PartitionIndex": 0, **fields}]}]


def _endpoints() -> list[Values]:
    return [{"Name": "CONTROLLER", "Host": "127.0.0.1", "Port": 9}]


OF_QUORUM: tuple[Right, ...] = (
    Right("DescribeQuorum", (0, 2), lambda _: {"Topics": _quorum()}),
    Right("Fetch", (4, 18), lambda _: {
        "ClusterId": CLUSTER_ID, "ReplicaId": 9, "ReplicaState": {"ReplicaId": 9, "ReplicaEpoch": -1}, "MaxWaitMs": 0,
        "MinBytes": 0, "MaxBytes": 1 << 20, "Topics": [{"Topic": METADATA, "TopicId": METADATA_TOPIC_ID, "Partitions": [
            {"Partition": 0, "CurrentLeaderEpoch": leader_epoch, "FetchOffset": 0, "LastFetchedEpoch": 0,
             "LogStartOffset": -1, "PartitionMaxBytes": 0, "ReplicaDirectoryId": id_of("observer"),
             "HighWatermark": -1}]}]}),
    Right("FetchSnapshot", (0, 1), lambda _: {
        "ClusterId": CLUSTER_ID, "ReplicaId": 9, "MaxBytes": 1 << 20, "Topics": [{"Name": METADATA, "Partitions": [
            {"Partition": 0, "CurrentLeaderEpoch": leader_epoch, "SnapshotId": {"EndOffset": 5, "Epoch": 1},
             "Position": 0, "ReplicaDirectoryId": id_of("observer")}]}]}, skip=("Topics", "Topics.Partitions")),
    Right("AddRaftVoter", (0, 1), lambda _: {
        "ClusterId": CLUSTER_ID, "TimeoutMs": 2000, "VoterId": NODE_ID, "VoterDirectoryId": id_of("voter"),
        "Listeners": _endpoints(), "AckWhenCommitted": True}, skip=("VoterId", "Listeners", "Listeners.Name")),
    Right("RemoveRaftVoter", (0, 0), lambda _: {
        "ClusterId": CLUSTER_ID, "VoterId": 9, "VoterDirectoryId": id_of("voter")}),
    Right("UpdateRaftVoter", (0, 0), lambda _: {
        "ClusterId": CLUSTER_ID, "CurrentLeaderEpoch": leader_epoch, "VoterId": 9, "VoterDirectoryId": id_of("voter"),
        "Listeners": _endpoints(), "KRaftVersionFeature": {"MinSupportedVersion": 0, "MaxSupportedVersion": 1}},
        skip=("Listeners.Name",)),
    Right("Vote", (0, 2), lambda _: {
        "ClusterId": CLUSTER_ID, "VoterId": NODE_ID, "Topics": _quorum(
            ReplicaEpoch=leader_epoch, ReplicaId=9, ReplicaDirectoryId=id_of("voter"), VoterDirectoryId=DIRECTORY_ID,
            LastOffsetEpoch=0, LastOffset=5, PreVote=False)}, skip=("ReplicaEpoch",)),
    Right("BeginQuorumEpoch", (0, 1), lambda _: {
        "ClusterId": CLUSTER_ID, "VoterId": NODE_ID, "LeaderEndpoints": _endpoints(),
        "Topics": _quorum(VoterDirectoryId=DIRECTORY_ID, LeaderId=NODE_ID, LeaderEpoch=leader_epoch)},
        skip=("LeaderEpoch", "LeaderId", "LeaderEndpoints.Name")),
    Right("EndQuorumEpoch", (0, 1), lambda _: {
        "ClusterId": CLUSTER_ID, "LeaderEndpoints": _endpoints(),
        "Topics": _quorum(
            LeaderId=NODE_ID, LeaderEpoch=leader_epoch, PreferredSuccessors=[9],
            PreferredCandidates=[{"CandidateId": 9, "CandidateDirectoryId": id_of("voter")}])},
        skip=("LeaderEpoch", "LeaderId", "LeaderEndpoints.Name")),
)  # fmt: skip
"""Requests to the voter, of nodes that are none of its quorum's."""
FORWARDED_APIS = (
    "CreateTopics", "DeleteTopics", "CreateAcls", "DeleteAcls", "AlterConfigs", "CreatePartitions",
    "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "ElectLeaders",
    "IncrementalAlterConfigs", "AlterPartitionReassignments", "ListPartitionReassignments", "AlterClientQuotas",
    "AlterUserScramCredentials", "UpdateFeatures", "UnregisterBroker",
)  # fmt: skip
"""Those that are asked in Envelopes too."""


def newest(right: Right) -> Right:
    """Return the same request in its newest version alone."""
    return replace(right, versions=(right.versions[1], right.versions[1]))
