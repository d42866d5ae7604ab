"""Requests that cannot be derived from the schemas: the states of a cluster's brokers, and of a quorum's voters.

The rule: a step sets up the state for the next one; labels begin with the subject.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compat.controller.edges import SAFE_DOWNGRADE, UPGRADE, step
from compat.controller.requests import (
    SPREAD,
    epoch_of,
    heartbeat,
    id_of,
    leader_epoch,
    proposal,
    registration,
)
from compat.controller.sides import DIRECTORY_ID, NODE_ID
from compat.kafka.broker import CLUSTER_ID
from compat.kit.compare import Step
from compat.kit.wire import Values
from compat.metadata.quorum import METADATA

QUORUM: Values = {"Topics": [{"TopicName": METADATA, "Partitions": [{"PartitionIndex": 0}]}]}


def of_brokers() -> Iterator[Step]:
    """Yield the steps for the states of several brokers."""

    def beat(label: str, broker: int, **fields: Any) -> Step:
        return step(f"heartbeat {label}", "BrokerHeartbeat", 2, heartbeat(broker, **fields))

    def elect(label: str, kind: int, *partitions: int) -> Step:
        topics = [{"Topic": SPREAD, "Partitions": list(partitions)}]
        values = {"ElectionType": kind, "TimeoutMs": 9000, "TopicPartitions": topics}
        return step(f"election {label}", "ElectLeaders", 2, values)

    def isr(label: str, *brokers: int, partition: int = 0, **fields: Any) -> Step:
        values = proposal()
        entry = values["Topics"][0]["Partitions"][0]
        entry["PartitionIndex"] = partition
        entry["NewIsrWithEpochs"] = [
            {"BrokerId": broker, "BrokerEpoch": epoch_of(broker)} for broker in brokers
        ]
        entry |= {name: value for name, value in fields.items() if name in entry}
        values |= {name: value for name, value in fields.items() if name in values}
        return step(f"isr {label}", "AlterPartition", 3, values)

    yield isr("shrinks", 1)
    yield isr("of the epoch before", 1)
    yield isr("grows", 1, 2, PartitionEpoch=1)
    yield isr("of a broker that is no replica", 1, 3, PartitionEpoch=2)
    yield isr("without the leader", 2, PartitionEpoch=2)
    yield isr("of nobody", PartitionEpoch=2)
    yield isr("by another leader", 1, 2, partition=1)
    yield isr("of a later epoch", 1, 2, PartitionEpoch=9)
    yield isr("of a later leader", 1, 2, PartitionEpoch=2, LeaderEpoch=9)
    yield isr("of a stale broker", 1, 2, PartitionEpoch=2, BrokerEpoch=0)
    yield isr("that recovers", 1, 2, PartitionEpoch=2, LeaderRecoveryState=1)
    yield beat("that fences", 2, WantFence=True)
    yield isr("of a broker that is fenced", 1, 2, PartitionEpoch=3)
    yield beat("that is behind", 2, CurrentMetadataOffset=0)
    yield beat("that unfences", 2)
    yield elect("that is preferred", 0, 0, 1, 2)
    yield elect("that is unclean", 1, 0, 1, 2)
    yield isr("grows again", 1, 2, PartitionEpoch=3)
    yield elect("that is preferred again", 0, 1, 1)
    yield beat("that wants to shut down", 2, WantShutDown=True)
    yield beat("that still wants to", 2, WantShutDown=True, CurrentMetadataOffset=0)
    yield beat("of another broker", 1)
    yield beat("that may shut down", 2, WantShutDown=True)
    yield beat("after it", 2)
    yield beat("of a log dir that is lost", 2, OfflineLogDirs=[id_of("dir 0 of 2")])
    yield beat("of a log dir that is lost still", 2, OfflineLogDirs=[id_of("dir 0 of 2")])
    yield beat("of cordoned dirs", 2, CordonedLogDirs=[id_of("dir 1 of 2")])
    yield beat("of cordoned dirs that are", 2, CordonedLogDirs=[id_of("dir 1 of 2")])
    yield beat("of all dirs lost", 2, OfflineLogDirs=[id_of("dir 0 of 2"), id_of("dir 1 of 2")])
    yield beat("of broker 3", 3, WantFence=True)
    yield beat("of broker 1", 1)
    again = registration(3, "3") | {"IncarnationId": id_of("another process of 3")}
    yield step("broker 3 in another process", "BrokerRegistration", 4, again)
    yield step("broker 3 again", "BrokerRegistration", 4, again | {"Rack": "rack"})
    yield step("broker 1 in another process", "BrokerRegistration", 4, registration(1, "another 1"))
    yield step(
        "broker 1 again", "BrokerRegistration", 4, registration(1, "1") | {"PreviousBrokerEpoch": epoch_of(1)}
    )
    yield step("broker with the dirs of another", "BrokerRegistration", 4,
                registration(4, "4") | {"LogDirs": [id_of("dir 0 of 1")]})  # fmt: skip
    yield step("broker without a feature", "BrokerRegistration", 4, registration(4, "4") | {"Features": [
        {"Name": "metadata.version", "MinSupportedVersion": 7, "MaxSupportedVersion": 33}]})  # fmt: skip
    move = {"Name": SPREAD, "Partitions": [
        {"PartitionIndex": 0, "Replicas": [1, 3]}, {"PartitionIndex": 1, "Replicas": [3]},
        {"PartitionIndex": 2, "Replicas": [2, 1]}, {"PartitionIndex": 9, "Replicas": [1]}]}  # fmt: skip
    yield step("reassignment", "AlterPartitionReassignments", 1, {"TimeoutMs": 9000, "Topics": [move]})
    yield step("reassignments in progress", "ListPartitionReassignments", 0, {"Topics": None})
    cancel = {
        "Name": SPREAD,
        "Partitions": [{"PartitionIndex": index, "Replicas": None} for index in range(4)],
    }
    yield step(
        "reassignment cancelled", "AlterPartitionReassignments", 1, {"TimeoutMs": 9000, "Topics": [cancel]}
    )
    yield step("reassignments ended", "ListPartitionReassignments", 0, {"Topics": None})
    yield step("broker 2 unregistered", "UnregisterBroker", 0, {"BrokerId": 2})
    yield beat("of a broker that is unregistered", 2)
    yield elect("of what broker 2 led", 0, 0, 1, 2)


def of_quorum() -> Iterator[Step]:
    """Yield the steps about the voters of a quorum."""
    for label, voter, directory in (
        ("itself", NODE_ID, DIRECTORY_ID),
        ("another dir of itself", NODE_ID, id_of("dir")),
    ):
        values = {"ClusterId": CLUSTER_ID, "VoterId": voter, "VoterDirectoryId": directory}
        yield step(f"voter removed: {label}", "RemoveRaftVoter", 0, values)


def of_static_quorum() -> Iterator[Step]:
    """Yield the steps for a quorum with kraft.version 0, and its upgrade to 1 (KIP-853)."""
    yield Step("quorum", "DescribeQuorum", 2, QUORUM)
    yield from _levels("before")
    for only_asked in (True, False):
        entry = {"Feature": "kraft.version", "MaxVersionLevel": 1, "UpgradeType": UPGRADE}
        values: Values = {"timeoutMs": 9000, "FeatureUpdates": [entry], "ValidateOnly": only_asked}
        yield step(f"level goes up{' only asked' * only_asked}", "UpdateFeatures", 2, values)
        yield step(f"level seen{' only asked' * only_asked}", "DescribeQuorum", 2, QUORUM)
    yield from _levels("after")


def _levels(when: str) -> Iterator[Step]:
    """Yield requests that depend on kraft.version."""
    listeners = [{"Name": "CONTROLLER", "Host": "127.0.0.1", "Port": 9}]
    for voter in (9, NODE_ID):
        key = {"ClusterId": CLUSTER_ID, "VoterId": voter, "VoterDirectoryId": id_of("voter")}
        adding = {**key, "TimeoutMs": 2000, "Listeners": listeners, "AckWhenCommitted": True}
        updating = {
            **key,
            "CurrentLeaderEpoch": leader_epoch,
            "Listeners": listeners,
            "KRaftVersionFeature": {"MinSupportedVersion": 0, "MaxSupportedVersion": 1},
        }
        if voter != NODE_ID:
            yield step(f"level {when}: {voter} added", "AddRaftVoter", 1, adding)
            yield step(f"level {when}: {voter} updated", "UpdateRaftVoter", 0, updating)
        yield step(f"level {when}: {voter} removed", "RemoveRaftVoter", 0, key)
    for level, kind in ((0, UPGRADE), (0, SAFE_DOWNGRADE), (2, UPGRADE), (1, SAFE_DOWNGRADE)):
        entry = {"Feature": "kraft.version", "MaxVersionLevel": level, "UpgradeType": kind}
        label = f"level {when}: {level} {kind}"
        yield step(label, "UpdateFeatures", 2, {"timeoutMs": 9000, "FeatureUpdates": [entry]})
