"""kcat, Debian's build on librdkafka 2.0.2: the command line as its manual shows it.

The rule: only output of kcat is checked; nothing else here connects to the broker.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator

import harness
from harness import (
    COUNT,
    PARTITIONS,
    Cases,
    Check,
    SkipCaseError,
    becomes,
    interop_topics,
    outlive_broker,
    records,
    share_topic_in_group,
    until,
)
from secured import librdkafka

TIMEOUT_S = 40
# Fields apart by a byte that is in no record; headers last, since they may hold anything but that.
FORMAT = "%p\x1f%o\x1f%T\x1f%k\x1f%s\x1f%h\\n"
HEADERS = "text=hello,n=1"
cases = Cases(
    lacks={
        "consume-group-848": "librdkafka 2.0 knows the classic group protocol only",
        "admin": "kcat has no admin calls",
        "delete-topic": "kcat cannot delete topics",
    }
)


def connection() -> list[str]:
    """Options with which each call connects."""
    options = [word for name, value in librdkafka().items() for word in ("-X", f"{name}={value}")]
    return ["-b", cases.bootstrap, *options]


def kcat(*arguments: str, lines: Iterable[bytes] = ()) -> bytes:
    """Run kcat with these lines as input; returns its output. Raises AssertionError with its messages if it fails."""
    done = subprocess.run(
        ["kcat", *connection(), *arguments],
        input=b"".join(line + b"\n" for line in lines),
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"kcat {' '.join(arguments)}: {done.stderr.decode(errors='replace')[-500:]}"
    return done.stdout


def metadata(topic: str) -> list[dict[str, object]]:
    """The topic's partitions, as kcat -L lists them."""
    listed = json.loads(kcat("-L", "-J", "-t", topic))["topics"][0]
    return [] if "error" in listed else listed["partitions"]


def create(topic: str) -> str:
    """Let the broker create the topic, by a metadata request of a producer."""
    partitions: list[dict[str, object]] = []

    def look() -> None:
        partitions[:] = metadata(topic)

    until(
        lambda: bool(partitions) and all(p["leader"] != -1 for p in partitions), look, "the topic's metadata"
    )
    if len(partitions) != PARTITIONS:
        raise SkipCaseError(
            f"the broker creates topics with {len(partitions)} partitions: set num.partitions=3"
        )
    # Kafka answers NOT_LEADER for a moment after the creation; a query does not end before that is over.
    for number in range(PARTITIONS):
        until_queried(topic, number)
    return topic


def until_queried(topic: str, partition: int) -> None:
    query = ["kcat", *connection(), "-Q", "-t", f"{topic}:{partition}:-1"]
    ended = [False]

    def ask() -> None:
        done = subprocess.run(query, capture_output=True, timeout=TIMEOUT_S, check=False)
        ended[0] = done.returncode == 0

    until(lambda: ended[0], ask, f"an offset of partition {partition}")


def produce(topic: str, first: int, last: int, *options: str) -> None:
    lines = (record.key + b"\t" + record.value for record in records(first, last))
    headers = ("-H", "text=hello", "-H", "n=1") if harness.HEADERS else ()
    kcat("-P", "-t", topic, "-K", "\t", *headers, *options, lines=lines)


def parse(line: bytes, check: Check) -> int:
    """Check one line that was printed with FORMAT; returns the record's timestamp in ms."""
    partition, offset, when, key, value, headers = line.split(b"\x1f")
    check.add(int(partition), int(offset), key, value)
    assert not headers or headers == HEADERS.encode() or b"n=" in headers, headers
    return int(when)


def read(topic: str, *options: str) -> Check:
    """Read a topic from the beginning, or from where options say, to its end."""
    check = Check(headers=False)
    if "-o" not in options:
        options = (*options, "-o", "beginning")
    for line in kcat("-C", "-q", "-e", "-t", topic, "-f", FORMAT, *options).splitlines():
        parse(line, check)
    return check


@cases.case("create-topic")
def create_topic() -> str:
    create(cases.topic("create-topic"))
    return f"{PARTITIONS} partitions, created by the broker"


def produce_case(codec: str) -> str:
    topic = create(cases.topic(f"produce-{codec}"))
    produce(topic, 0, COUNT, "-X", f"compression.codec={codec}")
    read(topic).finish(range(COUNT))
    return f"{COUNT} records"


for _codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    cases.case(f"produce-{_codec}")(lambda codec=_codec: produce_case(codec))


class Member:
    """A `kcat -G` process; what it prints is read by two threads."""

    def __init__(self, topic: str, group: str) -> None:
        options = ["-u", "-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=300"]
        self.process = subprocess.Popen(
            ["kcat", *connection(), *options, "-f", FORMAT, "-G", group, topic],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._lines: list[bytes] = []
        self._assigned: set[int] = set()
        self._said: list[str] = []
        self._threads = [threading.Thread(target=body, daemon=True) for body in (self._read, self._listen)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line.rstrip(b"\n"))

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            text = line.decode()
            self._said.append(text)
            if "assigned:" in text:
                self._assigned = set(map(int, re.findall(r"\[(\d+)\]", text)))
            elif "revoked:" in text:
                self._assigned = set()

    def poll(self) -> Iterator[tuple[int, int, bytes, bytes]]:
        time.sleep(0.05)
        assert self.process.poll() is None, "".join(self._said)
        count = len(self._lines)
        taken, self._lines[:count] = self._lines[:count], []
        for line in taken:
            partition, offset, _, key, value, _ = line.split(b"\x1f")
            yield int(partition), int(offset), key, value

    def assigned(self) -> set[int]:
        return self._assigned

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(TIMEOUT_S) == 0, "".join(self._said)


@cases.case("consume-group")
def consume_group() -> str:
    topic, group = create(cases.topic("consume-group")), cases.topic("group")
    return share_topic_in_group(
        lambda: Member(topic, group), lambda first, last: produce(topic, first, last), headers=False
    )


def read_and_commit(topic: str, group: str, check: Check, goal: int) -> None:
    count = str(goal - len(check.placed))
    options = ("-q", "-c", count, "-X", "auto.offset.reset=earliest", "-f", FORMAT)
    for line in kcat(*options, "-G", group, topic).splitlines():
        parse(line, check)


@cases.case("commit-resume")
def commit_resume() -> str:
    topic, group = create(cases.topic("commit-resume")), cases.topic("resume")
    produce(topic, 0, COUNT)
    check = Check(headers=False)
    part = COUNT // 3
    read_and_commit(topic, group, check, part)
    read_and_commit(topic, group, check, COUNT)
    check.finish(range(COUNT))
    return f"{part} records, commit at exit, restart, {COUNT - part} more"


class EachTimeAProducer:
    """kcat ends with its input, after all records are acknowledged."""

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
        None,  # kcat ends when all connections are down
        lambda check, goal: read_and_commit(topic, group, check, goal),
        headers=False,
    )


cases.case("broker-restart")(lambda: broker_case("term"))
cases.case("broker-kill")(lambda: broker_case("kill"))


@cases.case("read-by-timestamp")
def read_by_timestamp() -> str:
    topic = create(cases.topic("read-by-timestamp"))
    produce(topic, 0, 500)
    time.sleep(0.05)
    between_ms = time.time_ns() // 1_000_000
    time.sleep(0.05)
    produce(topic, 500, 1000)
    read(topic, "-o", f"s@{between_ms}").finish(range(500, 1000))
    read(topic, "-o", "beginning", "-o", f"e@{between_ms}").finish(range(500))
    late_ms = between_ms + 3_600_000
    for number in range(PARTITIONS):
        output = kcat("-Q", "-t", f"{topic}:{number}:{late_ms}").decode()
        assert "offset -1" in output, output
    return "from and up to a time between two batches; kcat cannot set timestamps itself"


@cases.case("acks")
def acks() -> str:
    for level in ("0", "1", "all"):
        topic = create(cases.topic(f"acks-{level}"))
        produce(topic, 0, 500, "-X", f"acks={level}")
        # With acks=0 kcat ends before the broker has everything.
        becomes(lambda topic=topic: len(read(topic).placed), 500, "500 records")
        read(topic).finish(range(500))
    return "500 records with each of 0, 1, all"


@cases.case("idempotent-produce")
def idempotent_produce() -> str:
    topic = create(cases.topic("idempotent"))
    produce(topic, 0, COUNT, "-X", "enable.idempotence=true")
    read(topic).finish(range(COUNT))
    return f"{COUNT} records"


@cases.case("transactions")
def transactions() -> str:
    topic = create(cases.topic("transactions"))
    transactional = ("-X", f"transactional.id={cases.topic('txn')}")
    produce(topic, 0, 500, *transactional)
    produce(topic, 500, 1000, *transactional)
    for level in ("read_committed", "read_uncommitted"):
        read(topic, "-X", f"isolation.level={level}").finish(range(1000))
    return "two committed of 500 records each; kcat aborts only while it waits for input"


@cases.case("interop")
def interop() -> str:
    topics = interop_topics()
    for topic, count, _ in topics:
        try:
            read(topic).finish(range(count))
        except AssertionError as error:
            raise AssertionError(f"{topic}: {error}") from error
    return f"{len(topics)} topics of other clients"


if __name__ == "__main__":
    cases.main()
