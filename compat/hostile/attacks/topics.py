"""Topics: very many, very wide, deleted when it hurts."""

from __future__ import annotations

import time

from compat.hostile.attack import Target, attack, produce_values
from compat.hostile.batches import batch, one_record, record

MB = 1_000_000
COMPACTED_WITHIN_S = 20.0
YEAR_2020_MS = 1_577_836_800_000
POLICY_VIOLATION, INVALID_TOPIC, TOPIC_EXISTS, INVALID_PARTITIONS = 44, 17, 36, 37
INTERNAL = ("__consumer_offsets", "__transaction_state")


@attack(
    "auto-created-topics",
    "one Metadata that names 8,000 topics which are not there",
    "made or refused; others are served",
    leaves_state=True,
)
def auto_created(target: Target) -> None:
    target.begin()
    names = [{"Name": f"hostile-auto-{n}"} for n in range(target.sized(8_000, 1_000))]
    answer = target.ask("Metadata", 4, {"Topics": names, "AllowAutoTopicCreation": True})
    target.expect(len(answer["Topics"]) == len(names), f"{len(answer['Topics'])} topics were answered")
    codes = {topic["ErrorCode"] for topic in answer["Topics"]}
    target.expect(codes <= {0, 3, 5, POLICY_VIOLATION}, f"answered with errors {codes}")


@attack(
    "create-9999-partitions",
    "CreateTopics with 9,999 partitions",
    "made or refused; others are served",
    leaves_state=True,
)
def wide_topic(target: Target) -> None:
    target.begin()
    topic = {"Name": "hostile-wide", "NumPartitions": target.sized(9_999, 2_000), "ReplicationFactor": 1}
    answer = target.ask("CreateTopics", 4, {"Topics": [topic], "timeoutMs": 60_000})
    code = answer["Topics"][0]["ErrorCode"]
    target.expect(code in (0, INVALID_PARTITIONS, POLICY_VIOLATION), f"answered with error {code}")
    if code == 0:
        target.expect(target.delete_topics(["hostile-wide"]) == [0], "it cannot be deleted")


@attack("create-too-much", "CreateTopics with 2^31-1 partitions, and 20,000 times the same name", "refused")
def too_much(target: Target) -> None:
    target.begin()
    topic = {"Name": "hostile-too-wide", "NumPartitions": 2**31 - 1, "ReplicationFactor": 1}
    answer = target.ask("CreateTopics", 4, {"Topics": [topic], "timeoutMs": 10_000})
    code = answer["Topics"][0]["ErrorCode"]
    target.expect(code in (INVALID_PARTITIONS, POLICY_VIOLATION, 42), f"2^31-1 partitions: error {code}")
    topic = {"Name": "hostile-same", "NumPartitions": 1, "ReplicationFactor": 1}
    count = target.sized(20_000, 2_000)
    answer = target.ask("CreateTopics", 4, {"Topics": [topic] * count, "timeoutMs": 10_000})
    codes = {topic["ErrorCode"] for topic in answer["Topics"]}
    target.expect(codes <= {42, POLICY_VIOLATION}, f"the same name {count} times: errors {codes}")


@attack("long-names", "names of 32,767 bytes, dots, slashes and zeros", "INVALID_TOPIC_EXCEPTION")
def long_names(target: Target) -> None:
    target.begin()
    while target.goes_on:
        for name in ("x" * 32_767, "..", ".", "a/b", "a\0b", "", "x" * 250, "é"):
            answer = target.ask("Metadata", 4, {"Topics": [{"Name": name}], "AllowAutoTopicCreation": True})
            code = answer["Topics"][0]["ErrorCode"]
            target.expect(
                code == INVALID_TOPIC,
                f"{name[:20]!r} ({len(name)} characters) was answered with error {code}",
            )


@attack(
    "create-and-delete",
    "topics that are made and deleted again, as fast as it goes",
    "all are answered",
    leaves_state=True,
)
def create_and_delete(target: Target) -> None:
    target.begin()
    round_number = 0
    while target.goes_on:
        names = [f"hostile-churn-{round_number % 3}-{n}" for n in range(20)]
        target.create_topics(names, 2)
        target.produce(names[0], one_record(b"x"))
        codes = set(target.delete_topics(names))
        target.expect(codes == {0}, f"deleted with errors {codes}")
        round_number += 1


@attack(
    "delete-with-retired-segments",
    "a topic deleted while segments of it that DeleteRecords and retention retired wait for their removal",
    "nothing: no log dir goes offline",
    leaves_state=True,
    settings=(
        ("log.segment.delete.delay.ms", "1500"),
        ("log.retention.check.interval.ms", "300"),
        ("metrics.listener", "127.0.0.1:0"),
    ),
)
def retired_segments(target: Target) -> None:
    target.begin()
    names = [f"hostile-retired-{n}" for n in range(10)]
    for _ in range(2):
        target.create_topics(names, segment_bytes="1048576", retention_ms="3600000")
        for name in names:
            for _ in range(3):
                target.produce(name, one_record(target.rng.randbytes(600_000), timestamp_ms=YEAR_2020_MS))
            partitions = [{"PartitionIndex": 0, "Offset": 2}]
            target.ask(
                "DeleteRecords", 1, {"Topics": [{"Name": name, "Partitions": partitions}], "TimeoutMs": 9_000}
            )
        time.sleep(0.7)  # a pass of retention
        codes = set(target.delete_topics(names))
        target.expect(codes == {0}, f"deleted with errors {codes}")
    time.sleep(2.5)  # the delay, and the removal


@attack(
    "compaction",
    "100 MB of a compacted topic, half of it in batches of one record of 4 KB, half in those of 100 records of 100 B",
    "it is compacted; others are served meanwhile",
    settings=(("log.cleaner.backoff.ms", "1000"), ("log.cleaner.threads", "1")),
)
def compaction(target: Target) -> None:
    topic = "hostile-compacted"
    target.create_topics(
        [topic], cleanup_policy="compact", segment_bytes=str(8 * MB), min_cleanable_dirty_ratio="0.01"
    )
    sent = 0
    bytes_to_write = target.sized(100 * MB, 40 * MB)
    with target.connect() as peer:
        while sent < bytes_to_write or target.goes_on:
            if sent >= bytes_to_write / 2 and not target.has_begun:  # by now it has become dirty
                target.begin()
            for data in _keyed(target, 1, 4_000, 30) + _keyed(target, 100, 100, 10):
                answer = peer.ask("Produce", 7, produce_values(topic, [(0, data)]))
                code = answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"]
                target.expect(code == 0, f"a batch was refused with error {code}")
                sent += len(data)
    ends = time.monotonic() + COMPACTED_WITHIN_S
    while (size := _log_bytes(target, topic)) > sent * 0.9 and time.monotonic() < ends:
        time.sleep(0.5)
    target.expect(size <= sent * 0.9, f"of {sent} bytes {size} are left")
    target.delete_topics([topic])


def _keyed(target: Target, records: int, value_bytes: int, count: int) -> list[bytes]:
    """Batches with keys that are some of 10,000."""
    return [
        batch(
            b"".join(
                record(bytes(value_bytes), n, b"%d" % target.rng.randrange(10_000)) for n in range(records)
            ),
            records,
        )
        for _ in range(count)
    ]


def _log_bytes(target: Target, topic: str) -> int:
    """Size of the log of partition 0."""
    answer = target.ask("DescribeLogDirs", 1, {"Topics": [{"Topic": topic, "Partitions": [0]}]})
    return sum(
        partition["PartitionSize"]
        for path in answer["Results"]
        for log_file in path["Topics"]
        for partition in log_file["Partitions"]
    )


@attack(
    "delete-internal-topics",
    "DeleteTopics of __consumer_offsets and __transaction_state, then commits and transactions",
    "the coordinators work again within 15 s",
    leaves_state=True,
)
def internal_topics(target: Target) -> None:
    _commit_until(target, 30)
    _transaction_until(target, 30)
    target.begin()
    for _ in range(2):
        codes = set(target.delete_topics(INTERNAL))
        target.expect(codes <= {0, 3, 29}, f"deleted with errors {codes}")
        target.expect(_commit_until(target, 15) == 0, "commits do not work any more")
        target.expect(_transaction_until(target, 15) == 0, "transactions do not work any more")


def _commit_until(target: Target, within_s: float) -> int:
    """Commit an offset until that works, or for too long; the last error code."""
    ends = time.monotonic() + within_s
    while True:
        target.ask("FindCoordinator", 1, {"Key": "hostile-group", "KeyType": 0})
        partitions = [{"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": ""}]
        values = {
            "GroupId": "hostile-group",
            "GenerationIdOrMemberEpoch": -1,
            "MemberId": "",
            "Topics": [{"Name": "quiet", "Partitions": partitions}],
        }
        answer = target.ask("OffsetCommit", 2, values)
        code: int = answer["Topics"][0]["Partitions"][0]["ErrorCode"]
        if code == 0 or time.monotonic() > ends:
            return code
        time.sleep(0.1)


def _transaction_until(target: Target, within_s: float) -> int:
    """Get a producer id for a transactional id until that works, or for too long; the last error code."""
    ends = time.monotonic() + within_s
    while True:
        target.ask("FindCoordinator", 1, {"Key": "hostile-transaction", "KeyType": 1})
        values = {"TransactionalId": "hostile-transaction", "TransactionTimeoutMs": 10_000}
        code: int = target.ask("InitProducerId", 1, values)["ErrorCode"]
        if code == 0 or time.monotonic() > ends:
            return code
        time.sleep(0.1)
