"""Groups, offsets, transactions and telemetry: values at the bounds, and very many of them."""

from __future__ import annotations

import struct
import time

from compat.hostile.attack import PeerClosed, Target, attack
from compat.hostile.messages import frame
from compat.kit.wire import Values

OFFSET_METADATA_TOO_LARGE = 12


def _ready(target: Target) -> None:
    """Wait until the group coordinator works."""
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        target.ask("FindCoordinator", 1, {"Key": "hostile", "KeyType": 0})
        if _commit(target, 2, "hostile") == 0:
            return
        time.sleep(0.1)


def _commit(target: Target, version: int, group: str, metadata: str = "", **more: object) -> int:
    partitions = [{"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": metadata}]
    values: Values = {
        "GroupId": group,
        "GenerationIdOrMemberEpoch": -1,
        "MemberId": "",
        "Topics": [{"Name": "quiet", "Partitions": partitions}],
        **more,
    }
    code: int = target.ask("OffsetCommit", version, values)["Topics"][0]["Partitions"][0]["ErrorCode"]
    return code


@attack("commit-retention-max", "OffsetCommit v2-v4 with retention_time_ms of 2^63-1 and -2^63", "committed")
def commit_retention(target: Target) -> None:
    _ready(target)
    target.begin()
    for version in (2, 3, 4):
        for retention in (2**63 - 1, -(2**63), 0):
            code = _commit(target, version, "hostile-retention", RetentionTimeMs=retention)
            target.expect(code == 0, f"v{version} with {retention} was answered with error {code}")


@attack("commit-metadata", "offsets with 32 KB of metadata", "OFFSET_METADATA_TOO_LARGE")
def commit_metadata(target: Target) -> None:
    _ready(target)
    target.begin()
    while target.goes_on:
        code = _commit(target, 2, "hostile-metadata", "x" * 32_000)
        target.expect(code == OFFSET_METADATA_TOO_LARGE, f"answered with error {code}")


@attack(
    "many-groups",
    "a commit to a new group with each of 20,000 pipelined requests",
    "all are answered",
    leaves_state=True,
)
def many_groups(target: Target) -> None:
    _ready(target)
    count = target.sized(20_000, 3_000)
    partitions = [{"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": ""}]
    topics = [{"Name": "quiet", "Partitions": partitions}]
    frames = [
        frame(
            "OffsetCommit", 2, {"GroupId": f"hostile-{n}", "GenerationIdOrMemberEpoch": -1, "Topics": topics}
        )
        for n in range(count)
    ]
    target.begin()
    with target.connect() as peer:
        for start in range(0, count, 200):
            peer.send(b"".join(frames[start : start + 200]))
            for _ in range(200):
                peer.answer()
        peer.send(frame("ListGroups", 2, {}) * 20)
        for _ in range(20):
            peer.answer()


@attack(
    "many-members",
    "2,000 members that join one group and leave by closing",
    "all are answered or closed",
    leaves_state=True,
)
def many_members(target: Target) -> None:
    _ready(target)
    values = {
        "GroupId": "hostile-members",
        "SessionTimeoutMs": 6_000,
        "RebalanceTimeoutMs": 6_000,
        "MemberId": "",
        "ProtocolType": "consumer",
        "Protocols": [{"Name": "range", "Metadata": bytes(5_000)}],
    }
    whole = frame("JoinGroup", 1, values)
    target.begin()
    for peer in target.connect_many(target.sized(2_000, 500)):
        try:
            peer.send(whole)
        except PeerClosed:
            continue
    target.wait()


@attack(
    "many-transactional-ids",
    "a transactional id with each of 5,000 pipelined requests",
    "all are answered",
    leaves_state=True,
)
def many_transactional_ids(target: Target) -> None:
    ends = time.monotonic() + 30
    first = {"TransactionalId": "hostile", "TransactionTimeoutMs": 10_000}
    while time.monotonic() < ends:
        target.ask("FindCoordinator", 1, {"Key": "hostile", "KeyType": 1})
        if target.ask("InitProducerId", 1, first)["ErrorCode"] == 0:
            break
        time.sleep(0.1)
    count = target.sized(5_000, 1_000)
    whole = b"".join(
        frame("InitProducerId", 1, {"TransactionalId": f"hostile-{n}", "TransactionTimeoutMs": 10_000})
        for n in range(count)
    )
    target.begin()
    with target.connect() as peer:
        peer.send(whole)
        for n in range(count):
            code = struct.unpack_from(">h", peer.answer(), 8)[0]
            target.expect(code in (0, 14), f"request {n} was answered with error {code}")


@attack(
    "telemetry",
    "GetTelemetrySubscriptions and PushTelemetry of 200 clients, with garbage and with bombs",
    "an answer each; the log is bounded",
    needs=(("GetTelemetrySubscriptions", 0), ("PushTelemetry", 0)),
    settings=(("metrics.listener", "127.0.0.1:0"),),  # otherwise they are not served
)
def telemetry(target: Target) -> None:
    import gzip

    configs = [
        {"Name": "metrics", "Value": "", "ConfigOperation": 0},
        {"Name": "interval.ms", "Value": "100", "ConfigOperation": 0},
    ]
    resources = [{"ResourceType": 16, "ResourceName": "hostile", "Configs": configs}]
    target.ask("IncrementalAlterConfigs", 0, {"Resources": resources})
    payloads = [b"", target.rng.randbytes(1_000), bytes(900_000), gzip.compress(bytes(50_000_000), 9)]
    target.begin()
    while target.goes_on:
        for _ in range(20):
            asked = target.ask("GetTelemetrySubscriptions", 0, {"ClientInstanceId": target.rng.randbytes(16)})
            kind = target.rng.randrange(len(payloads))
            values = {
                "ClientInstanceId": asked["ClientInstanceId"],
                "SubscriptionId": asked["SubscriptionId"],
                "CompressionType": 1 if kind == 3 else 0,
                "Metrics": payloads[kind],
            }
            target.ask("PushTelemetry", 0, values)
