"""Compare the generated codecs with Kafka's own serialisers, message by message and version by version.

    compat/codec-oracle/compare.py 3.9.2 4.4.0

For each message and version that a Kafka release knows: arbitrary values are encoded here, decoded there,
encoded again there, and built there from JSON values; all three byte strings and all field values must be the
same. This is a test of the codecs themselves, so unlike everything else below `compat/` it imports them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "server")]

from codegen.model import Message, snake  # noqa: E402
from tests.support.messages import (  # noqa: E402
    all_messages,
    codec_of,
    random_message,
    to_json,
    without_records,
)

# Where an older release differs from the newest on purpose. Everything else has to be the same in all.

DRAFTS = {
    "ReadShareGroupStateSummaryResponse": "4.1",
    "ShareGroupMetadataValue": "4.1",
    "ShareGroupPartitionMetadataValue": "4.0",
    "ShareGroupStatePartitionMetadataValue": "4.1",
    "ShareSnapshotValue": "4.1",
    "ShareUpdateValue": "4.1",
}
"""Version 0 of these was a draft before the named release (KIP-932 early access) and had another layout."""

TAGGED_SINCE = {
    "BrokerHeartbeatRequest": {"CordonedLogDirs": "4.3"},
    "ConsumerGroupCurrentMemberAssignmentValue": {"AssignmentEpochs": "4.3"},
    "ConsumerGroupMetadataValue": {"MetadataHash": "4.1"},
    "ConsumerGroupTargetAssignmentMetadataValue": {"AssignmentTimestamp": "4.3"},
    "OffsetCommitValue": {"topicId": "4.1"},
    "RemoteLogSegmentMetadataRecord": {"TxnIndexEmpty": "4.0"},
    "RemoteLogSegmentMetadataSnapshotRecord": {"TxnIndexEmpty": "4.0"},
    "ShareGroupTargetAssignmentMetadataValue": {"AssignmentTimestamp": "4.3"},
    "ShareSnapshotValue": {"DeliveryCompleteCount": "4.2"},
    "ShareUpdateValue": {"DeliveryCompleteCount": "4.2"},
    "StreamsGroupCurrentMemberAssignmentValue": {"AssignmentEpochs": "4.2"},
    "StreamsGroupMetadataValue": {
        "ValidatedTopologyEpoch": "4.2",
        "LastAssignmentConfigs": "4.2",
        "StoredDescriptionTopologyEpoch": "4.4",
        "FailedDescriptionTopologyEpoch": "4.4",
    },
    "StreamsGroupTargetAssignmentMetadataValue": {"AssignmentTimestamp": "4.3"},
    "TransactionLogValue": {
        "PreviousProducerId": "4.0",
        "NextProducerId": "4.0",
        "ClientTransactionVersion": "4.0",
        "NextProducerEpoch": "4.1",
    },
}
"""Tagged fields that published versions got later: an older release takes them for unknown ones."""

RENAMED = {
    "StreamsGroupHeartbeatResponse": ("4.4", {"acceptableRecoveryLagLegacy": "acceptableRecoveryLag"}),
    "TxnOffsetCommitRequest": ("4.4", {"generationIdOrMemberEpoch": "generationId"}),
    "VoteRequest": (
        "4.0",
        {
            "replicaEpoch": "candidateEpoch",
            "replicaId": "candidateId",
            "replicaDirectoryId": "candidateDirectoryId",
        },
    ),
}
"""Fields that the named release renamed: our names and the older ones."""


Golden = dict[tuple[str, int], tuple[str, Any]]
"""Message and version -> Kafka's bytes in hex, and the values that they were made of."""

GOLDEN_SIZE = 160
"""Number of hex digits that a golden message should have: enough to mean something, not more."""


class Oracle:
    """A running Java process with the classes of one release of Kafka."""

    def __init__(self, version: str) -> None:
        classpath = build(version)
        self.process = subprocess.Popen(
            ["java", "-Xmx256m", "-cp", classpath, "oracle.CodecOracle"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def ask(self, **question: Any) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def build(version: str) -> str:
    """Fetch the jars of a release and compile the oracle against them, once; return its class path."""
    folder = ROOT / ".tools" / "codec-oracle" / version
    if not (folder / "done").exists():
        maven = ["mvn", "-q", "-B", f"-Dkafka.version={version}", f"-DbuildDirectory={folder}"]
        if int(version.split(".")[0]) >= 4:
            maven.append("-Pshare")
        goals = ["clean", "compile", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'lib'}"]
        subprocess.run([*maven, *goals], cwd=HERE, check=True)
        (folder / "done").touch()
    return f"{folder / 'classes'}:{folder / 'lib'}/*"


def renamed(value: Any, names: dict[str, str]) -> Any:
    """Return JSON values with renamed fields."""
    if isinstance(value, dict):
        return {names.get(key, key): renamed(field, names) for key, field in value.items()}
    return [renamed(item, names) for item in value] if isinstance(value, list) else value


def forget(value: Any, attributes: set[str]) -> None:
    """Set fields of a message, and of the structs in it, to their defaults."""
    default = type(value)()
    for name in type(value).__slots__:
        member = getattr(value, name)
        if name in attributes:
            setattr(value, name, getattr(default, name))
        elif hasattr(member, "__slots__"):
            forget(member, attributes)
        elif isinstance(member, list):
            for item in member:
                if hasattr(item, "__slots__"):
                    forget(item, attributes)


def release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))[:2]


class Comparison:
    """The comparison with one release of Kafka, and its results."""

    def __init__(self, kafka: str, seed: int, repeat: int) -> None:
        self.kafka = kafka
        self.seed = seed
        self.repeat = repeat
        self.oracle = Oracle(kafka)
        self.compared: set[tuple[str, int]] = set()
        self.sent = self.differences = 0
        self.golden: Golden = {}

    def older_than(self, other: str) -> bool:
        return release(self.kafka) < release(other)

    def message(self, message: Message) -> None:
        """Compare the versions of a message that both sides support."""
        is_known = self.oracle.ask(name=message.name)
        if "lowest" not in is_known or self.older_than(DRAFTS.get(message.name, "0")):
            return
        for version in message.versions:
            java_version = version
            if message.kind == "coordinator-key" and is_known["lowest"] == is_known["highest"]:
                java_version = is_known["lowest"]  # Before 4.1 the type of a key was its version.
            if not is_known["lowest"] <= java_version <= is_known["highest"]:
                continue
            self.compared.add((message.name, version))
            random = Random(f"{self.seed} {message.name} {version}")
            for number in range(2 * self.repeat):
                self.sent += 1
                for text in self.one(message, version, java_version, random, unknown_tags=number % 2 == 1):
                    self.differences += 1
                    print(f"{self.kafka} {message.name} v{version}: {text}")

    def one(
        self, message: Message, version: int, java_version: int, random: Random, *, unknown_tags: bool
    ) -> Iterator[str]:
        """Compare one random message; yields the differences."""
        codec = codec_of(message)
        value = random_message(message, version, random, unknown_tags=unknown_tags)
        newer = TAGGED_SINCE.get(message.name, {})
        forget(value, {snake(name) for name, since in newer.items() if self.older_than(since)})
        data = codec.encode_bytes(value, version)
        values = ours = to_json(message, version, value)
        until, names = RENAMED.get(message.name, ("0", {}))
        if self.older_than(until):
            values = renamed(values, names)
        question: dict[str, Any] = {"name": message.name, "version": java_version, "hex": data.hex()}
        if not unknown_tags:
            question["json"] = values
        answer = self.oracle.ask(**question)
        if "error" in answer:
            yield f"{answer['error']}: {value}"
            return
        if answer["left"]:
            yield f"{answer['left']} bytes are left over of {data.hex()}: {value}"
        if answer["hex"] != data.hex():
            yield f"written again as {answer['hex']}, not {data.hex()}: {value}"
        if answer.get("fromJson", data.hex()) != data.hex():
            yield f"built as {answer['fromJson']}, not {data.hex()}: {value}"
        if without_records(message, answer["json"]) != without_records(message, values):
            yield f"read as {answer['json']}, not {values}"
        if codec.decode_whole(bytes.fromhex(answer["hex"]), version) != value:
            yield f"not read back here as what was sent: {value}"
        if "fromJson" in answer:
            keep(self.golden, message.name, version, answer["fromJson"], ours)


def keep(golden: Golden, name: str, version: int, data: str, values: Any) -> None:
    """Store Kafka's encoding of a message, if its size is nearer to the target than that of the stored one."""
    kept = golden.get((name, version))
    if kept is None or abs(len(data) - GOLDEN_SIZE) < abs(len(kept[0]) - GOLDEN_SIZE):
        golden[name, version] = (data, values)


def write_golden(golden: Golden, path: Path) -> None:
    """Write a line for each message version: its name, the version, Kafka's bytes, and the values."""
    lines = [
        json.dumps([name, version, *golden[name, version]], ensure_ascii=False) + "\n"
        for name, version in sorted(golden)
    ]
    path.write_text("".join(lines), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "kafka", nargs="*", default=["3.9.2", "4.0.2", "4.4.0"], help="releases to compare with"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5, help="pairs of messages for each version")
    parser.add_argument("--only", default="", help="one message")
    parser.add_argument(
        "--write-golden", type=Path, help="file for one message of each version in Kafka's bytes"
    )
    options = parser.parse_args()
    messages = [message for name, message in sorted(all_messages().items()) if options.only in ("", name)]
    confirmed: set[tuple[str, int]] = set()
    golden: Golden = {}
    failed = False
    for kafka in options.kafka:
        comparison = Comparison(kafka, options.seed, options.repeat)
        for message in messages:
            comparison.message(message)
        comparison.oracle.close()
        golden |= comparison.golden
        count, confirmed = len(comparison.compared), confirmed | comparison.compared
        failed = failed or bool(comparison.differences) or not count
        print(
            f"Kafka {kafka}: {count} message versions, {comparison.sent} messages, "
            f"{comparison.differences} differences",
            flush=True,
        )
    everything = {(message.name, version) for message in messages for version in message.versions}
    missing = sorted(everything - confirmed)
    print(f"{len(confirmed)} of {len(everything)} message versions compared; the others:")
    print(", ".join(f"{name} v{version}" for name, version in missing) or "none")
    if options.write_golden and not failed:
        write_golden(golden, options.write_golden)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
