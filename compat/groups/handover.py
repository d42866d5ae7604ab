"""Coordinators handed over: groups and transactions under way, continued by the broker that opens the data dir.

    python -m compat.groups.handover [--case NAME] [--keep DIR]

One broker writes, and is stopped or killed; two brokers then open a copy of the dir each: the writer, and the other. The
rule: both must say the same of every group and transaction, by Kafka's own tools and to the members, which continue
where they were, without having to join again.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from compat.groups.assignments import slots_of
from compat.groups.compare import await_coordinators
from compat.groups.known_differences import NOBODY, of_nobody
from compat.groups.roles import ALL, CLASSIC, Role
from compat.kafka import KafkaError, RealKafka, ToolProcess, free_port, release
from compat.kit import examples
from compat.kit.known import Difference, KnownDifference, differences_of, judge
from compat.kit.predicates import NOTHING, all_of, only_theirs, pair, words_of_an_error
from compat.kit.scenarios import ScenarioRun, both_serve, common_versions
from compat.kit.sides import Side, StartError, barnabas
from compat.log.handover import found_topics, register, to_kafkas_meta_properties

LONG_MS = "600000"
KINDS = ("consumer", "streams", "share")
SETTINGS = {
    "num.partitions": "3",
    # No member may expire while the brokers are exchanged and the tools run.
    **{f"group.{kind}.session.timeout.ms": LONG_MS for kind in KINDS},
    **{f"group.{kind}.max.session.timeout.ms": LONG_MS for kind in KINDS},
    **{f"group.{kind}.assignment.interval.ms": "0" for kind in KINDS},
    "group.streams.initial.rebalance.delay.ms": "0",
}
OLD_SETTINGS = {"num.partitions": "3", "inter.broker.protocol.version": "3.9"}
LAST_BATCH_OF = "__transaction_state"


@dataclass(frozen=True)
class Case:
    """A writer, a way to end, and the roles that take on."""

    name: str
    version: str
    writer: str
    clean: bool
    roles: tuple[Role, ...]


CASES = (
    Case("kafka-4-stopped", "4.x", "kafka", True, ALL),
    Case("kafka-4-killed", "4.x", "kafka", False, ALL),
    Case("kafka-3.9-stopped", "3.9", "kafka", True, CLASSIC),
    Case("kafka-3.9-killed", "3.9", "kafka", False, CLASSIC),
    Case("barnabas-stopped", "3.9", "barnabas", True, CLASSIC),
)
STARTS = "Kafka with KRaft counts the stop and the start of a leader, a broker that is alone its starts"
NOTHING_LEFT = (
    "a group whose only offsets were in a transaction that was aborted is gone; Kafka keeps it in memory"
)


def forgotten(difference: Difference) -> bool:
    """Kafka has lost the assignment of a member, and we have preserved it."""
    groups = difference.answers[1][difference.step.replace("at last", "found")]["Groups"]
    had = [member["MemberAssignment"] for group in groups for member in group["Members"]]
    return difference.theirs == "" and difference.ours in had and bool(slots_of(difference.ours))


KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        "kafka-4-.*: txn .*: .* producers of .",
        ".*/CoordinatorEpoch",
        f"coordinators: {STARTS}",
        accepts=pair(2, 1),
    ),
    KnownDifference(
        "barnabas-stopped: txn .*: .* producers of .",
        ".*/CoordinatorEpoch",
        "a leader that Kafka finds in ZooKeeper keeps its epoch, and each start of a broker that is alone begins one: "
        "decision 521",
        accepts=pair(0, 1),
    ),
    KnownDifference(
        ".*: tool (groups|offsets|members|state)",
        "/line .*group-txn-aborted-.*",
        NOTHING_LEFT,
        accepts=only_theirs,
    ),
    KnownDifference(
        ".*: tool (groups|offsets|members|state) as before",
        "/gone: line .*group-txn-aborted-.*",
        f"not as before: {NOTHING_LEFT}",
        accepts=pair(NOTHING, True),
    ),
    KnownDifference(
        "(kafka-3.9|barnabas).*: classic .*: at last described as classic",
        ".*/MemberAssignment",
        "Kafka 3.9 forgets assignments when members gather; Kafka 4 and Barnabas keep them",
        accepts=forgotten,
    ),
    KnownDifference(
        "(kafka-3.9|barnabas).*: txn .*: .* described",
        ".*/TransactionStartTimeMs",
        "Kafka 3.9 keeps the start of the last transaction; Kafka 4 and Barnabas do not",
        accepts=pair("a time", -1),
    ),
    KnownDifference(
        ".*: streams: .*StreamsGroupDescribe",
        ".*StateChangelogTopics/0/Partitions",
        "Kafka tells how many partitions an internal topic has when it has looked at the topology again",
        accepts=pair(0, 3),
        by_chance="Kafka may have looked",
    ),
    KnownDifference(
        ".*: sharing: at last: ShareGroupDescribe",
        ".*/AssignmentEpoch",
        NOBODY,
        accepts=of_nobody,
    ),
    KnownDifference(
        ".*: txn .*: write",
        "/Responses/0/PartitionResponses/0/ErrorMessage",
        "words for people, of a partition, where Kafka has none",
        accepts=all_of(pair(None, "words"), words_of_an_error),
    ),
    KnownDifference(
        "kafka-4-.*: sharing: offsets.*", ".*/LeaderEpoch", f"leaders: {STARTS}", accepts=pair(2, 1)
    ),
)


def main() -> int:
    """Hand over; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.groups.handover", description=__doc__)
    parser.add_argument(
        "--case", action="append", choices=[case.name for case in CASES], help="only this one"
    )
    parser.add_argument("--keep", metavar="DIR", type=Path, help="leave everything there")
    examples.add_option(parser)
    options = parser.parse_args()
    differences: list[Difference] = []
    with ToolProcess(release("4.x")) as jvm:
        for case in CASES:
            if options.case and case.name not in options.case:
                continue
            with ExitStack() as stack:
                if options.keep:
                    directory = options.keep / case.name
                    directory.mkdir(parents=True)
                else:
                    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="handover-")))
                differences += hand_over(case, directory, jvm)
    if options.keep_examples:
        examples.keep("groups-handover", differences, KNOWN)
    bad = judge(differences, KNOWN, complete=not options.case)
    print(f"{len(differences)} differences, {bad} of them not as known")
    return 1 if bad else 0


def hand_over(case: Case, directory: Path, jvm: ToolProcess) -> list[Difference]:
    """Write, end, copy, continue with both, compare."""
    written = directory / "written"
    with writing(case, written) as (side, logs, end):
        await_coordinators(side)
        versions = common_versions(side)
        run = ScenarioRun(side, case.name, 0, versions)
        fixtures = [role.enter(run) for role in case.roles]
        run.close()
        before = tools(case, side.port, jvm)
        end()
    if not case.clean:
        cut_last_batch(logs)
    copy = directory / "copy"
    shutil.copytree(written, copy, ignore=shutil.ignore_patterns("*.pid", ".lock"))
    theirs, ours = {}, {}
    for name, keep in (("kafka", theirs), ("barnabas", ours)):
        place = written if name == case.writer else copy
        with continuing(case, name, place) as side:
            await_coordinators(side)
            if name == "kafka":
                versions = both_serve(versions, common_versions(side))
                if not case.version.startswith("4"):
                    versions.pop("ConsumerGroupDescribe", None)  # listed, and not served
            after = tools(case, side.port, jvm)
            keep |= {f"tool {label}": text for label, text in after.items()}
            if case.clean:
                keep |= {
                    f"tool {label} as before": changed(before[label], text) for label, text in after.items()
                }
            run = ScenarioRun(side, case.name, 0, versions, _topics=run._topics)
            for role, fixture in zip(case.roles, fixtures, strict=True):
                role.go_on(run, fixture)
            run.close()
            keep |= run.answers
    print(f"{case.name}: {len(case.roles)} roles, {len(theirs)} answers", flush=True)
    differences: list[Difference] = []
    for label in dict.fromkeys([*theirs, *ours]):
        both = theirs.get(label, NOTHING), ours.get(label, NOTHING)
        differences += [
            replace(difference, answers=(theirs, ours), step=label)
            for difference in differences_of(f"{case.name}: {label}", *both)
        ]
    return differences


# --- the brokers ------------------------------------------------------------------------------------------------


@contextmanager
def writing(case: Case, directory: Path) -> Iterator[tuple[Side, Path, Callable[[], None]]]:
    """The broker that begins: how to reach it, its logs, and how to end it."""
    if case.writer == "kafka":
        kafka = RealKafka(case.version, data=directory, settings=_settings(case))
        with kafka:
            yield Side("Kafka", kafka.port), kafka.log_dir, kafka.stop if case.clean else kafka.kill
    else:
        with _ours(case, directory) as side:
            yield side, directory / "logs", lambda: None


@contextmanager
def continuing(case: Case, name: str, directory: Path) -> Iterator[Side]:
    """Run a broker on an existing data dir."""
    if name == "barnabas":
        with _ours(case, directory) as side:
            yield side
    elif case.writer == "kafka":
        with RealKafka(case.version, data=directory, settings=_settings(case)) as kafka:
            yield Side("Kafka", kafka.port)
    else:
        logs = directory / "logs"
        topics = found_topics(logs)
        cluster_id = to_kafkas_meta_properties(logs)
        kafka = RealKafka(
            case.version,
            data=directory,
            mode="zookeeper",
            settings=_settings(case),
            prepare=lambda broker: register(broker.zookeeper, cluster_id, topics),
        )
        with kafka:
            yield Side("Kafka", kafka.port)


def _settings(case: Case) -> dict[str, str]:
    return SETTINGS if case.version.startswith("4") else {"num.partitions": "3"}


@contextmanager
def _ours(case: Case, directory: Path) -> Iterator[Side]:
    directory.mkdir(exist_ok=True)
    port = free_port()
    lines = {
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(directory / "logs"),
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
        **_settings(case),
    }
    path = directory / "barnabas.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    with barnabas(path):
        yield Side("Barnabas", port)


def cut_last_batch(logs: Path) -> None:
    """Lose the last batch of the transactions' log, as in a power cut: it says that a transaction has ended, so that
    the next broker finds one that is about to.
    """
    segments = [path for path in logs.glob(f"{LAST_BATCH_OF}-*/*.log") if path.stat().st_size]
    last = max(segments, key=lambda path: path.stat().st_mtime_ns)
    data = last.read_bytes()
    position = 0
    while (end := position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")) < len(data):
        if int.from_bytes(data[position + 8 : position + 12], "big") == 0:
            break
        position = end
    last.write_bytes(data[:position])


# --- Kafka's tools ----------------------------------------------------------------------------------------------

TOOLS: dict[str, tuple[str, ...]] = {
    "groups": ("consumer-groups", "--list", "--state"),
    "offsets": ("consumer-groups", "--describe", "--all-groups", "--offsets"),
    "members": ("consumer-groups", "--describe", "--all-groups", "--members", "--verbose"),
    "state": ("consumer-groups", "--describe", "--all-groups", "--state"),
    "transactions": ("transactions", "list"),
}
NEW_TOOLS: dict[str, tuple[str, ...]] = {
    "share offsets": ("share-groups", "--describe", "--all-groups", "--offsets"),
    "share members": ("share-groups", "--describe", "--all-groups", "--members", "--verbose"),
    "share state": ("share-groups", "--describe", "--all-groups", "--state"),
    "streams offsets": ("streams-groups", "--describe", "--all-groups", "--offsets"),
    "streams members": ("streams-groups", "--describe", "--all-groups", "--members", "--verbose"),
    "streams state": ("streams-groups", "--describe", "--all-groups", "--state"),
}


def tools(case: Case, port: int, jvm: ToolProcess) -> dict[str, dict[str, bool]]:
    """Output of Kafka's command line tools, without ports, and with the lines in an order of their own."""
    names = TOOLS | (NEW_TOOLS if case.version.startswith("4") else {})
    results: dict[str, dict[str, bool]] = {}
    for label, (name, *arguments) in names.items():
        _, written = jvm.run(name, "--bootstrap-server", f"127.0.0.1:{port}", *arguments)
        text = re.sub(rf":{port}\b", ":PORT", written)
        lines = sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())
        results[label] = {f"line {line}": True for line in lines}
    return results


def changed(before: dict[str, bool], after: dict[str, bool]) -> dict[str, bool]:
    """Return the removed and the added lines of a tool's output."""
    gone = {f"gone: {line}": True for line in before if line not in after}
    return gone | {f"new: {line}": True for line in after if line not in before}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KafkaError, StartError) as error:
        sys.exit(f"error: {error}")
