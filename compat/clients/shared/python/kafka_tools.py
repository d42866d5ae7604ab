"""Kafka's command line tools, called as from a shell, with a JVM for each call.

The rule: only output of the tools is checked; nothing else here connects to the broker.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness import (
    COUNT,
    PARTITIONS,
    Cases,
    Check,
    becomes,
    outlive_broker,
    records,
    share_topic_in_group,
)

from compat.kafka import release
from compat.kafka.tools import ToolProcess, tool_command

TIMEOUT_S = 60
PROPERTIES = os.environ.get("COMPAT_PROPERTIES", "")
HEADERS = "text:hello,n:1"
SEPARATOR = "\x1f"
IN_ONE_JVM = os.environ.get("COMPAT_TOOLS_IN_ONE_JVM") == "yes"
WITH_OWN_JVM = ("console-consumer", "console-producer", "producer-perf-test")
"""Tools that read input, or with two outputs to tell apart: they have a JVM of their own in any case."""
shared_jvm: list[ToolProcess] = []
KAFKA = release("4.x")
cases = Cases(
    lacks={"interop": "it would be a JVM for each topic, and the Java client that reads in it has this case"}
)
numbers = itertools.count(1)


class ToolError(Exception):
    """A tool ended with another exit code than 0; the message is its output."""


def with_broker(name: str, *arguments: str) -> list[str]:
    """Return the arguments of a tool, with the broker's address."""
    broker = ["--bootstrap-server", cases.bootstrap]
    if PROPERTIES:
        broker += ["--command-config", PROPERTIES]
    # cluster is the only one whose sub-command comes first
    return [*arguments, *broker] if name == "cluster" else [*broker, *arguments]


def command(name: str, *arguments: str) -> list[str]:
    return tool_command(KAFKA, name, *with_broker(name, *arguments))


def in_one_jvm(name: str, *arguments: str) -> str:
    """Run a tool in the JVM that all of them share; returns what it printed to both outputs. Raises ToolError."""
    if not shared_jvm:
        shared_jvm.append(ToolProcess(KAFKA, timeout_s=TIMEOUT_S).__enter__())
        atexit.register(shared_jvm[0].__exit__, None, None, None)
    code, output = shared_jvm[0].run(name, *with_broker(name, *arguments))
    if code:
        raise ToolError(f"kafka-{name} {' '.join(arguments)}: {output[-600:]}")
    return output


def tool(name: str, *arguments: str, lines: Iterable[bytes] = ()) -> str:
    """Run a tool to its end with these lines as input; returns what it printed. Raises ToolError."""
    if IN_ONE_JVM and name not in WITH_OWN_JVM:
        return in_one_jvm(name, *arguments)
    done = subprocess.run(
        command(name, *arguments),
        input=b"".join(line + b"\n" for line in lines),
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    output = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
    if done.returncode:
        raise ToolError(f"kafka-{name} {' '.join(arguments)}: {output[-600:]}")
    return done.stdout.decode(errors="replace")


def create(topic: str) -> str:
    output = tool("topics", "--create", "--topic", topic, "--partitions", str(PARTITIONS))
    assert f"Created topic {topic}." in output, output
    return topic


def produce(topic: str, first: int, last: int, *options: str) -> None:
    """Run the console producer, which ends when all records are acknowledged. Raises ToolError if some are not."""
    text = HEADERS.encode()
    lines = (text + b"\t" + record.key + b"\t" + record.value for record in records(first, last))
    reader = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    tool("console-producer", "--topic", topic, *reader, *options, lines=lines)


def formatter() -> Iterator[str]:
    """Options for the format of the console consumer."""
    for field in ("key", "partition", "offset", "timestamp", "headers"):
        yield from ("--formatter-property", f"print.{field}=true")
    yield from ("--formatter-property", f"key.separator={SEPARATOR}")


def parse(line: str) -> tuple[int, int, bytes, bytes]:
    """Partition, offset, key and value of one printed line; its headers are checked."""
    _, partition, offset, headers, key, value = line.split(SEPARATOR)
    assert headers == HEADERS, line
    place = int(partition.removeprefix("Partition:")), int(offset.removeprefix("Offset:"))
    return *place, key.encode(), value.encode()


def is_record(line: str) -> bool:
    return line.startswith("CreateTime:")


def read(topic: str, count: int, *options: str) -> Check:
    """Run the console consumer for `count` records; returns their check."""
    return read_more(Check(headers=False), topic, count, "--from-beginning", *options)


def read_more(check: Check, topic: str, count: int, *options: str) -> Check:
    if "--group" not in options:  # the tool's own group name may be unauthorized
        options = (*options, "--group", f"{topic}-{next(numbers)}")
    output = tool(
        "console-consumer",
        *("--topic", topic, "--max-messages", str(count), "--timeout-ms", "20000", *options),
        *formatter(),
    )
    for line in filter(is_record, output.splitlines()):
        check.add(*parse(line))
    return check


def rows(text: str) -> list[list[str]]:
    """The lines of a table, without its head."""
    table = [line.split() for line in text.splitlines() if line.strip()]
    heads = [number for number, row in enumerate(table) if row[0] in {"GROUP", "TOPIC"}]
    return table[heads[0] + 1 :] if heads else []


def offsets(topic: str, at_time: str = "-1") -> dict[int, int]:
    """Offsets that kafka-get-offsets prints, by partition."""
    lines = tool("get-offsets", "--topic", topic, "--time", at_time).split()
    return {int(line.split(":")[1]): int(line.split(":")[2]) for line in lines}


@cases.case("create-topic")
def create_topic() -> str:
    topic = create(cases.topic("create-topic"))
    described = tool("topics", "--describe", "--topic", topic)
    assert f"PartitionCount: {PARTITIONS}" in described, described
    assert len(re.findall(r"Partition: \d+\s+Leader: \d+", described)) == PARTITIONS, described
    assert topic in tool("topics", "--list").split()
    try:
        create(topic)
        raise AssertionError("a topic was created twice")
    except ToolError as error:
        assert re.search("TopicExists|exists already|already exists", str(error)), error
    return f"{PARTITIONS} partitions, described and listed"


def produce_case(codec: str) -> str:
    topic = create(cases.topic(f"produce-{codec}"))
    produce(topic, 0, COUNT, "--compression-codec", codec)
    read(topic, COUNT).finish(range(COUNT))
    assert sum(offsets(topic).values()) == COUNT
    return f"{COUNT} records"


for _codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    cases.case(f"produce-{_codec}")(lambda codec=_codec: produce_case(codec))


class Member:
    """A console consumer of a group. Its assignment is read from the broker by kafka-consumer-groups."""

    def __init__(self, topic: str, group: str, *options: str) -> None:
        self.group = group
        self.id = f"member-{time.monotonic_ns()}"
        properties = ("--command-property", f"client.id={self.id}", *options)
        self.process = subprocess.Popen(
            command(
                "console-consumer",
                *("--topic", topic, "--group", group, "--from-beginning", *properties, *formatter()),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._lines: list[str] = []
        self._said: list[str] = []
        self._listening = 0.0
        self._assigned: set[int] = set()
        for body in (self._read, self._listen):
            threading.Thread(target=body, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line.decode().rstrip("\n"))

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._said.append(line.decode(errors="replace"))

    def poll(self) -> Iterator[tuple[int, int, bytes, bytes]]:
        time.sleep(0.05)
        assert self.process.poll() is None, "".join(self._said)
        count = len(self._lines)
        taken, self._lines[:count] = self._lines[:count], []
        for line in filter(is_record, taken):
            yield parse(line)

    def assigned(self) -> set[int]:
        if time.monotonic() - self._listening > 1:
            members = tool("consumer-groups", "--describe", "--group", self.group, "--members", "--verbose")
            # The column CURRENT-ASSIGNMENT is topic:0,1,2, or - for nothing.
            mine = [row[6] for row in rows(members) if row[3] == self.id]
            numbers = mine[0].partition(":")[2] if mine else ""
            self._assigned = set(map(int, numbers.split(","))) if numbers else set()
            self._listening = time.monotonic()
        return self._assigned

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(TIMEOUT_S)
        assert code in {0, 128 + signal.SIGTERM}, f"it ended with {code}: {''.join(self._said)}"


def group_case(name: str, *options: str) -> str:
    topic, group = create(cases.topic(name)), cases.topic(f"{name}-group")
    return share_topic_in_group(
        lambda: Member(topic, group, *options), lambda first, last: produce(topic, first, last), headers=False
    )


@cases.case("consume-group")
def consume_group() -> str:
    return group_case("consume-group", "--command-property", "heartbeat.interval.ms=300")


@cases.case("consume-group-848")
def consume_group_848() -> str:
    return group_case("consume-group-848", "--command-property", "group.protocol=consumer")


def read_and_commit(topic: str, group: str, check: Check, goal: int) -> None:
    read_more(check, topic, goal - len(check.placed), "--group", group, "--from-beginning")


@cases.case("commit-resume")
def commit_resume() -> str:
    topic, group = create(cases.topic("commit-resume")), cases.topic("resume")
    produce(topic, 0, COUNT)
    check, part = Check(headers=False), COUNT // 3
    read_and_commit(topic, group, check, part)
    described = rows(tool("consumer-groups", "--describe", "--group", group))
    assert sum(int(row[5]) for row in described) == COUNT - part, described  # LAG
    read_and_commit(topic, group, check, COUNT)
    check.finish(range(COUNT))
    return f"{part} records, commit at exit, restart, {COUNT - part} more"


class EachTimeAProducer:
    """The console producer ends with its input; its records are acknowledged if the exit code is 0."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def send(self, first: int, last: int) -> None:
        produce(self.topic, first, last)

    def close(self) -> None:
        """Nothing is open."""


def broker_case(how: str) -> str:
    topic, group = create(cases.topic(f"broker-{how}")), cases.topic(f"broker-{how}-group")
    return outlive_broker(
        how,
        EachTimeAProducer(topic),
        lambda: Member(topic, f"{group}-stays"),
        lambda check, goal: read_and_commit(topic, group, check, goal),
        headers=False,
    )


cases.case("broker-restart")(lambda: broker_case("term"))
cases.case("broker-kill")(lambda: broker_case("kill"))


@cases.case("read-by-timestamp")
def read_by_timestamp() -> str:
    topic, group = create(cases.topic("read-by-timestamp")), cases.topic("timestamp-group")
    produce(topic, 0, 500)
    time.sleep(0.05)
    between_ms = time.time_ns() // 1_000_000
    time.sleep(0.05)
    middle = offsets(topic)
    produce(topic, 500, 1000)
    assert offsets(topic, str(between_ms)) == middle
    assert offsets(topic, "-2") == dict.fromkeys(range(PARTITIONS), 0)
    moment = (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(between_ms // 1000)) + f".{between_ms % 1000:03d}Z"
    )
    reset = tool(
        "consumer-groups",
        *("--group", group, "--topic", topic, "--reset-offsets", "--to-datetime", moment, "--execute"),
    )
    assert {int(row[2]): int(row[3]) for row in rows(reset)} == middle, reset
    read_more(Check(headers=False), topic, 500, "--group", group).finish(range(500, 1000))
    return "kafka-get-offsets, and a group set back to a time"


@cases.case("acks")
def acks() -> str:
    for level in ("0", "1", "all"):
        topic = create(cases.topic(f"acks-{level}"))
        safe = () if level == "all" else ("--command-property", "enable.idempotence=false")
        produce(topic, 0, 500, "--request-required-acks", level, *safe)
        # With acks=0 the tool ends before the broker has everything.
        becomes(lambda topic=topic: sum(offsets(topic).values()), 500, "500 records")
        read(topic, 500).finish(range(500))
    return "500 records with each of 0, 1, all"


@cases.case("idempotent-produce")
def idempotent_produce() -> str:
    topic = create(cases.topic("idempotent"))
    produce(topic, 0, COUNT, "--command-property", "enable.idempotence=true")
    read(topic, COUNT).finish(range(COUNT))
    producers = tool("transactions", "describe-producers", "--topic", topic, "--partition", "0")
    assert len(producers.splitlines()) == 2, producers
    return f"{COUNT} records; kafka-transactions describes the producer"


@cases.case("transactions")
def transactions() -> str:
    topic, identity = create(cases.topic("transactions")), cases.topic("txn")
    options = ("--num-records", "1000", "--record-size", "50", "--throughput", "2000")
    tool(
        "producer-perf-test",
        *("--topic", topic, *options, "--transactional-id", identity, "--transaction-duration-ms", "100"),
    )
    for level in ("read_committed", "read_uncommitted"):
        output = tool(
            "console-consumer",
            *("--topic", topic, "--from-beginning", "--timeout-ms", "5000", "--isolation-level", level),
            *("--max-messages", "1000"),
        )
        assert len(output.splitlines()) == 1000, f"{level}: {len(output.splitlines())} records"
    listed = [line.split() for line in tool("transactions", "list").splitlines()]
    assert [row[3] for row in listed if row[0] == identity] == ["CompleteCommit"], listed
    described = tool("transactions", "describe", "--transactional-id", identity)
    assert "CompleteCommit" in described, described
    # Commit markers take an offset each.
    assert sum(offsets(topic).values()) > 1000
    return "1000 records in transactions of 100 ms, listed and described"


@cases.case("admin")
def administer() -> str:
    topic, group = create(cases.topic("admin")), cases.topic("admin-group")
    produce(topic, 0, 300)
    _change_configs(topic)
    ends = offsets(topic)
    _delete_records(topic, ends)
    _groups(topic, group, ends)
    _reassign(topic)
    tool("topics", "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in tool("topics", "--describe", "--topic", topic)
    dirs = json.loads(tool("log-dirs", "--describe", "--topic-list", topic).splitlines()[-1])
    entries = [
        replica for broker in dirs["brokers"] for dir_ in broker["logDirs"] for replica in dir_["partitions"]
    ]
    assert sorted(replica["partition"] for replica in entries) == [f"{topic}-{i}" for i in range(5)], dirs
    assert re.search(r"Produce\(0\): 0 to \d+ \[usable: \d+\]", tool("broker-api-versions"))
    assert "Cluster ID: " in tool("cluster", "cluster-id")
    return "configs, records, groups, offsets set back, reassignment, election, partitions, log dirs, API versions"


def _change_configs(topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)

    def described() -> str:
        return tool("configs", "--describe", *entity)

    assert "retention.ms" not in described()
    tool(
        "configs", "--alter", *entity, "--add-config", "retention.ms=12345678,cleanup.policy=[compact,delete]"
    )
    becomes(lambda: "retention.ms=12345678 " in described(), True, "a changed topic config")
    assert "cleanup.policy=compact,delete " in described()
    tool("configs", "--alter", *entity, "--delete-config", "retention.ms,cleanup.policy")
    becomes(lambda: "retention.ms" in described(), False, "a config that was set back")


def _reassign(topic: str) -> None:
    """Run a reassignment to the present replicas: the tools must report it as complete, and change nothing."""
    plan = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": ["any"]}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"version": 1, "partitions": [plan]}, file)
        file.flush()
        named = ("--reassignment-json-file", file.name)
        assert f"Successfully started partition reassignment for {topic}-0" in tool(
            "reassign-partitions", "--execute", *named
        )
        verified = tool("reassign-partitions", "--verify", *named)
        assert f"Reassignment of partition {topic}-0 is completed." in verified, verified
    assert "No partition reassignments found." in tool("reassign-partitions", "--list")
    elected = tool("leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert f"Valid replica already elected for partitions {topic}-0" in elected, elected


def _delete_records(topic: str, ends: dict[int, int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "records.json"
        place = {"topic": topic, "partition": 1, "offset": ends[1] - 2}
        file.write_text(json.dumps({"version": 1, "partitions": [place]}))
        output = tool("delete-records", "--offset-json-file", str(file))
    assert f"{topic}-1\tlow_watermark: {ends[1] - 2}" in output, output
    assert offsets(topic, "-2") == {0: 0, 1: ends[1] - 2, 2: 0}


def _groups(topic: str, group: str, ends: dict[int, int]) -> None:
    lag = ends[0] + ends[2] + 2
    read(topic, lag, "--group", group)
    assert group in tool("consumer-groups", "--list").split()
    assert group in tool("groups", "--list")
    assert "Empty" in tool("consumer-groups", "--describe", "--group", group, "--state")
    described = rows(tool("consumer-groups", "--describe", "--group", group))
    assert {int(row[2]): int(row[3]) for row in described} == ends, described
    back = ("--reset-offsets", "--shift-by", "-1", "--topic", f"{topic}:0,1", "--execute")
    reset = rows(tool("consumer-groups", "--group", group, *back))
    assert {int(row[2]): int(row[3]) for row in reset} == {0: ends[0] - 1, 1: ends[1] - 1}, reset
    tool("consumer-groups", "--group", group, "--delete-offsets", "--topic", f"{topic}:2")
    described = rows(tool("consumer-groups", "--describe", "--group", group))
    assert {int(row[2]) for row in described} == {0, 1}, described
    tool("consumer-groups", "--group", group, "--delete")
    assert group not in tool("consumer-groups", "--list").split()


@cases.case("delete-topic")
def delete_topic() -> str:
    topic = create(cases.topic("delete-topic"))
    produce(topic, 0, 100)
    tool("topics", "--delete", "--topic", topic)
    becomes(lambda: topic in tool("topics", "--list").split(), False, "the topic is gone")
    return "gone"


if __name__ == "__main__":
    cases.main()
