"""Stock clients that read a topic from its beginning repeatedly: librdkafka, the Java client and franz-go.

The rule: a reading covers offset 0 to the log end at its beginning, and each record must be that of `producers` for its
offset, with its key and its value. So no record is lost, duplicate or out of order. Errors are ignored, as brokers and the
store come and go, except an offset out of range.
"""

from __future__ import annotations

import subprocess
import threading
from abc import ABC, abstractmethod
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from compat.clients.shared.setup import Client, go
from compat.crash.producers import key_of, value_of
from compat.faults.hosts import die_with_parent
from compat.kit.java import built

PAUSE_S = 1
"""Between readings; of all clients, of others than librdkafka in their programs."""
END_S = 300
"""Timeout of a reading once failures have ended."""
HERE = Path(__file__).resolve().parent
OUT_OF_RANGE = KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE


class Reader(ABC):
    """A client that reads all partitions; `readings` are the numbers of records of complete readings."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Build the client, if need be. Raises KafkaError, SetupError."""
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.readings: list[int] = []
        self.errors: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def name(self) -> str:
        """The client's name."""
        return type(self).__name__

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the current reading, and do a last one, which must have all records produced so far."""
        self.finish()
        self._thread.join(END_S)
        if self._thread.is_alive():
            self.errors.append(f"no end of a reading after {END_S} s, and {len(self.readings)} readings")

    def _run(self) -> None:
        try:
            self.run()
        except Exception as error:
            self.errors.append(f"{type(error).__name__}: {error}")

    @abstractmethod
    def run(self) -> None:
        """Read until `finish` is called."""

    @abstractmethod
    def finish(self) -> None:
        """Make the next reading the last one."""


class Librdkafka(Reader):
    """confluent-kafka, in this process."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(bootstrap, topic, partitions)
        self._is_over = threading.Event()

    def finish(self) -> None:
        self._is_over.set()

    def run(self) -> None:
        is_last = False
        while not is_last and not self.errors:
            is_last = self._is_over.wait(PAUSE_S)
            consumer = Consumer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "group.id": "again",
                    "log_level": 0,
                    "auto.offset.reset": "error",
                    "enable.auto.commit": False,
                }
            )
            self.readings.append(self._read(consumer))
            consumer.close()

    def _read(self, consumer: Consumer) -> int:
        ends = {partition: self._end(consumer, partition) for partition in range(self.partitions)}
        consumer.assign([TopicPartition(self.topic, partition, 0) for partition in ends])
        expected = dict.fromkeys(ends, 0)
        while any(expected[partition] < end for partition, end in ends.items()):
            for message in consumer.consume(1000, timeout=0.2):
                partition, error = message.partition() or 0, message.error()
                if error is None:
                    offset = expected[partition]
                    actual = message.offset(), message.key(), message.value()
                    if actual != (offset, key_of(partition, offset), value_of(offset)):
                        raise ValueError(f"{actual} in the place of {offset} on partition {partition}")
                    expected[partition] = offset + 1
                elif error.code() in OUT_OF_RANGE:
                    raise ValueError(f"partition {partition} from {expected[partition]} on: {error}")
        return sum(expected.values())

    def _end(self, consumer: Consumer, partition: int) -> int:
        while True:
            try:
                watermarks = consumer.get_watermark_offsets(TopicPartition(self.topic, partition), 5)
            except KafkaException:
                continue
            if watermarks is not None:
                return watermarks[1]


class Program(Reader):
    """A client in a separate process, which prints the records that it has read."""

    _process: subprocess.Popen[str] | None = None

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(bootstrap, topic, partitions)
        self._command = [*self.program(), bootstrap, topic, str(partitions)]

    @abstractmethod
    def program(self) -> list[str]:
        """Return the command without its arguments. Raises KafkaError, SetupError."""

    def start(self) -> None:
        """Start; the client's own log is discarded."""
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            preexec_fn=die_with_parent,
        )
        super().start()

    def run(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, text = line.strip().partition(" ")
            if word == "read":
                self.readings.append(int(text))
            else:
                self.errors.append(text)
        code = self._process.wait()
        if code and not self.errors:
            self.errors.append(f"exit code {code}")

    def finish(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()


class Java(Program):
    """The Java client, with `read_committed`."""

    def program(self) -> list[str]:
        path = built(HERE / "java-reader", "crash-java-reader")
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return ["java", *options, "-cp", path, "Reader"]


class FranzGo(Program):
    """franz-go."""

    def program(self) -> list[str]:
        program, _ = go(Client(str(HERE / "franz-go-reader" / "main.go")))
        return program


READERS: tuple[type[Reader], ...] = (Librdkafka, Java, FranzGo)
