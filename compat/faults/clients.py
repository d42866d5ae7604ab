"""Stock producers under faults: librdkafka, the Java client and franz-go, each with a topic of its own; and a reader.

The rule: a record must not be lost once the client reports it as delivered. A record that a client gives up is a failure:
its retries must cover all faults.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from compat.clients.shared.setup import Client, go
from compat.cluster.load import QUICK
from compat.faults.hosts import die_with_parent
from compat.kafka import release, tool_command

PARTITIONS = 3
DELIVERY_S = 120.0
REQUEST_MS = 1000
"""Of all clients, franz-go's in its program: how long they wait for a broker that hangs."""
OUTSTANDING_MAX = 500
STOP_S = 60.0
HERE = Path(__file__).resolve().parent


class Acknowledging(ABC):
    """A producer that sends 0, 1, 2, ..., and its acknowledgements."""

    is_idempotent = True

    def __init__(self, name: str, bootstrap: str, rate: int, directory: Path) -> None:
        """`rate` is in records per second."""
        self.topic = name
        self.bootstrap = bootstrap
        self.rate = rate
        self.directory = directory
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """Partition and offset by number."""
        self.times: dict[int, list[float]] = defaultdict(list)
        """When acknowledgements came (`time.monotonic`), by partition."""
        self.errors: list[str] = []
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, and wait for all acknowledgements."""
        self.end()
        self._thread.join(DELIVERY_S + STOP_S)
        if self._thread.is_alive():
            self.errors.append("it does not end")

    def note(self, number: int, partition: int, offset: int) -> None:
        """Note an acknowledgement."""
        self.acknowledged[number] = partition, offset
        self.times[partition].append(time.monotonic())

    def longest_pause(self, since: float, until: float) -> float:
        """Return the longest time (s) without an acknowledgement of a partition, of pauses that begin in an interval."""
        longest = 0.0
        for partition in range(PARTITIONS):
            times = list(self.times[partition])
            moments = [since, *(moment for moment in times if moment > since)]
            for before, after in itertools.pairwise([*moments, time.monotonic()]):
                if before < until:
                    longest = max(longest, after - before)
        return longest

    def resumed_after(self, moment: float) -> float:
        """Return the time (s) from a moment until every partition had an acknowledgement again."""
        now = time.monotonic()
        nexts = [
            next((time_s for time_s in list(self.times[partition]) if time_s >= moment), now)
            for partition in range(PARTITIONS)
        ]
        return max(nexts) - moment

    def _guarded(self) -> None:
        try:
            self.run()
        except Exception as error:
            self.errors.append(f"{type(error).__name__}: {error}")

    @abstractmethod
    def run(self) -> None:
        """Send until `end` is called, and wait for all acknowledgements."""

    @abstractmethod
    def end(self) -> None:
        """Make `run` return soon."""


class Librdkafka(Acknowledging):
    """confluent-kafka, idempotent."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._is_over = threading.Event()

    def end(self) -> None:
        """Send nothing more."""
        self._is_over.set()

    def run(self) -> None:
        """Send."""
        producer = Producer(
            {
                **QUICK,
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": self.is_idempotent,
                "acks": "all",
                "linger.ms": 2,
                "socket.timeout.ms": REQUEST_MS,
                "request.timeout.ms": REQUEST_MS,
                "socket.connection.setup.timeout.ms": 2000,
                "message.timeout.ms": int(DELIVERY_S * 1000),
            }
        )
        begun, sent = time.monotonic(), 0
        while not self._is_over.is_set():
            due = (time.monotonic() - begun) * self.rate
            if sent < due and len(producer) < OUTSTANDING_MAX:
                producer.produce(
                    self.topic, b"%d" % sent, partition=sent % PARTITIONS, on_delivery=self._answer(sent)
                )
                sent += 1
            else:
                producer.poll(0.005)
        unsent = producer.flush(DELIVERY_S)
        if unsent:
            self.errors.append(f"{unsent} records were neither acknowledged nor refused")

    def _answer(self, number: int) -> Any:
        def answered(error: Any, message: Any) -> None:
            if error is not None:
                self.errors.append(f"record {number}: {error}")
            else:
                offset = message.offset()  # None where the broker has said that it has the record already
                self.note(number, message.partition(), -1 if offset is None else offset)

        return answered


class PlainLibrdkafka(Librdkafka):
    """confluent-kafka without idempotence: retries may write duplicates."""

    is_idempotent = False


class Program(Acknowledging):
    """A producer in a separate process; it prints a line for each acknowledgement."""

    _process: subprocess.Popen[str] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """The command that starts it."""

    @abstractmethod
    def line(self, text: str) -> None:
        """Process a line of its output."""

    def run(self) -> None:
        """Process its output until it ends."""
        with (self.directory / f"{self.topic}.err").open("ab") as errors:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                preexec_fn=die_with_parent,
            )
        assert self._process.stdout is not None
        for text in self._process.stdout:
            self.line(text)
        code = self._process.wait(STOP_S)
        if code not in (0, 143):
            self.errors.append(f"it has ended with {code}")


class Java(Program):
    """Kafka's own verifiable producer: the Java client, idempotent."""

    def command(self) -> list[str]:
        """The command that starts it."""
        config = self.directory / "java.properties"
        config.write_text(
            "retries=2147483647\nenable.idempotence=true\nmax.in.flight.requests.per.connection=5\n"
            f"delivery.timeout.ms={int(DELIVERY_S * 1000)}\nrequest.timeout.ms={REQUEST_MS}\nretry.backoff.ms=20\n"
            "retry.backoff.max.ms=200\nreconnect.backoff.ms=20\nreconnect.backoff.max.ms=200\nlinger.ms=2\nbatch.size=200\n"
            "socket.connection.setup.timeout.ms=2000\nmetadata.max.age.ms=1000\n"
        )
        return tool_command(
            release("3.9"), "verifiable-producer", "--bootstrap-server", self.bootstrap, "--topic", self.topic,
            "--max-messages", "-1", "--acks", "-1", "--throughput", str(self.rate), "--producer.config", str(config),
        )  # fmt: skip

    def line(self, text: str) -> None:
        """Process a line of JSON."""
        told = json.loads(text)
        if told["name"] == "producer_send_success":
            self.note(int(told["value"]), told["partition"], told["offset"])
        elif told["name"] == "producer_send_error":
            self.errors.append(f"record {told['value']}: {told['message']}")

    def end(self) -> None:
        """Send SIGTERM: it sends its queued records, and ends."""
        if self._process is not None:
            self._process.terminate()


def fetch() -> None:
    """Fetch and build the programs, unless that was done before. Raises KafkaError, SetupError."""
    release("3.9")
    _franz_go()


def _franz_go() -> list[str]:
    program, _ = go(Client(str(HERE / "franz-go-load" / "run")))
    return program


class FranzGo(Program):
    """franz-go, idempotent, by a program of ours."""

    def command(self) -> list[str]:
        """The command that starts it."""
        return [*_franz_go(), self.bootstrap, self.topic, str(PARTITIONS), str(self.rate)]

    def line(self, text: str) -> None:
        """Process a line `<number> <partition> <offset>`."""
        words = text.split(maxsplit=2)
        if words[0] == "error":
            self.errors.append(f"record {words[1]}: {words[2].strip()}")
        else:
            self.note(*(int(word) for word in words))

    def end(self) -> None:
        """End its input."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()


class Reader:
    """A consumer (librdkafka) in a group that reads all topics during faults: no record that it has read may be lost."""

    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        self.seen: dict[tuple[str, int, int], bytes] = {}
        """Values by topic, partition and offset."""
        self.errors: list[str] = []
        self._is_over = threading.Event()
        self._topics = topics
        self._settings = {
            **QUICK,
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "auto.commit.interval.ms": 500,
            "socket.timeout.ms": 10_000,
            "check.crcs": True,
        }
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._is_over.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe(self._topics)
        while not self._is_over.is_set():
            for message in consumer.consume(500, 0.2):
                if message.error() is not None:
                    continue  # they pass: brokers come and go
                key = message.topic(), message.partition(), message.offset()
                earlier = self.seen.setdefault(key, message.value())
                if earlier != message.value():
                    self.errors.append(f"{key} was {earlier!r}, and is {message.value()!r} now")
        consumer.close()
