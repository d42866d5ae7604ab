"""An attack and its tools: sockets, frames, a seed, and a list of problems.

The rule: an attack ends by itself when its time is over, uses only the given broker, and closes its connections. It reports
wrong responses with `expect`; general guarantees of the broker are checked in `trial`.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from compat.hostile.messages import frame
from compat.kit.readiness import is_readable
from compat.kit.wire import Values, decode, message

ANSWER_TIMEOUT_S = 60.0
Act = Callable[["Target"], None]


class PeerClosed(Exception):  # noqa: N818 (it is no error: closing is what a broker may do)
    """The broker has closed the connection."""


class NoAnswer(Exception):  # noqa: N818
    """The broker has neither answered nor closed the connection in time."""


@dataclass(frozen=True)
class Attack:
    """One row of the table. `needs` are the APIs and versions without which it makes no sense."""

    name: str
    sends: str
    expects: str
    act: Act
    needs: tuple[tuple[str, int], ...] = ()
    leaves_state: bool = False
    """True if the broker is replaced by an empty one afterwards."""
    rss_mb_max: float = 300.0
    """Limit of the growth of memory meanwhile."""
    settings: tuple[tuple[str, str], ...] = ()
    """Settings of a broker of its own."""
    needs_metrics: bool = False


ATTACKS: list[Attack] = []


def attack(name: str, sends: str, expects: str, **options: Any) -> Callable[[Act], Act]:
    """Add a row to the table."""

    def add(act: Act) -> Act:
        ATTACKS.append(Attack(name, sends, expects, act, **options))
        return act

    return add


class Peer:
    """One connection of an attacker: sends bytes, receives whole responses."""

    def __init__(self, host: str, port: int, *, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(ANSWER_TIMEOUT_S)
        self.socket.connect((host, port))

    def send(self, data: bytes) -> None:
        """Send all of it. Raises PeerClosed, NoAnswer."""
        try:
            self.socket.sendall(data)
        except TimeoutError:
            raise NoAnswer("nothing was read in time") from None
        except OSError as error:
            raise PeerClosed(str(error)) from None

    def send_some(self, data: bytes) -> int:
        """Send without waiting; returns the number of sent bytes. Raises PeerClosed."""
        try:
            # `socket.send` would wait for as long as the timeout says, whatever its flags.
            return os.write(self.socket.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerClosed(str(error)) from None

    def answer(self) -> bytes:
        """The next answer, from its correlation id on. Raises PeerClosed, NoAnswer."""
        return self._receive(struct.unpack(">i", self._receive(4))[0])

    def ask(self, api: str, version: int, values: Values) -> Values:
        """The decoded answer to a request. Raises PeerClosed, NoAnswer, WireError."""
        self.send(frame(api, version, values))
        return decoded(api, version, self.answer())

    def drain(self, within_s: float) -> bool:
        """Read and discard data for a time; returns whether the broker has closed the connection."""
        ends = time.monotonic() + within_s
        while (remaining_s := ends - time.monotonic()) > 0:
            if not is_readable(self.socket, remaining_s):
                return False
            try:
                if not self.socket.recv(1 << 20):
                    return True
            except OSError:
                return True
        return False

    def close(self) -> None:
        self.socket.close()

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            try:
                part = self.socket.recv(min(size - len(received), 1 << 20))
            except TimeoutError:
                raise NoAnswer(f"no answer in {ANSWER_TIMEOUT_S:.0f} s") from None
            except OSError as error:
                raise PeerClosed(str(error)) from None
            if not part:
                raise PeerClosed("end of stream")
            received += part
        return bytes(received)

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def decoded(api: str, version: int, answer: bytes) -> Values:
    """The fields of an answer that begins with its correlation id. Raises WireError."""
    response = message(f"{api}Response")
    start = 5 if version in response.flexible and response.api_key != 18 else 4
    return decode(response, version, answer, start)


@dataclass
class Target:
    """The broker under attack, and the means to attack it."""

    host: str
    port: int
    rng: random.Random
    seconds: float
    """Duration of an attack that could go on for ever."""
    is_short: bool
    """True if less state than the full form is enough."""
    versions: dict[int, tuple[int, int]]
    on_begin: Callable[[], None] = lambda: None
    metrics: tuple[str, int] | None = None
    problems: list[str] = field(default_factory=list)
    _ends: float | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def begin(self) -> None:
        """End the preparation: the clock and the quiet client's figures start here."""
        self._ends = time.monotonic() + self.seconds
        self.on_begin()

    @property
    def has_begun(self) -> bool:
        """Return whether the preparation is over."""
        return self._ends is not None

    @property
    def goes_on(self) -> bool:
        """Return whether there is time left."""
        if self._ends is None:
            self._ends = time.monotonic() + self.seconds
        return time.monotonic() < self._ends

    def wait(self) -> None:
        """Do nothing until the time is over."""
        while self.goes_on:
            time.sleep(0.02)

    def sized(self, full: int, short: int) -> int:
        """The number to use: `short` in the short form."""
        return short if self.is_short else full

    def expect(self, is_so: bool, otherwise: str) -> None:
        """Record `otherwise` as a problem unless `is_so`."""
        if not is_so and len(self.problems) < 20:
            self.problems.append(otherwise)

    def serves(self, api: str, version: int) -> bool:
        """Return whether the broker says that it serves this."""
        key = message(f"{api}Request").api_key
        assert key is not None
        first, last = self.versions.get(key, (0, -1))
        return first <= version <= last

    # --- connections ----------------------------------------------------------------------------------------

    def connect(self, *, receive_buffer: int = 0) -> Peer:
        """Return a connection, which is closed at the end of the attack at the latest."""
        return self._stack.enter_context(Peer(self.host, self.port, receive_buffer=receive_buffer))

    def connect_many(self, count: int, *, receive_buffer: int = 0) -> list[Peer]:
        """Return up to `count` connections, as a broker may refuse some."""
        peers = []
        for _ in range(count):
            try:
                peers.append(self.connect(receive_buffer=receive_buffer))
            except OSError as error:
                self.expect(False, f"connection {len(peers)} of {count}: {error}")
                break
        return peers

    def close(self) -> None:
        """Close all connections."""
        self._stack.close()

    def ask(self, api: str, version: int, values: Values) -> Values:
        """The answer to a request on a connection of its own. Raises PeerClosed, NoAnswer, WireError."""
        with Peer(self.host, self.port) as peer:
            return peer.ask(api, version, values)

    # --- state ----------------------------------------------------------------------------------------------

    def create_topics(self, names: Iterable[str], partitions: int = 1, **settings: str) -> None:
        """Make topics, a hundred in a request, and wait until they have leaders."""
        names = list(names)
        configs = [{"Name": key.replace("_", "."), "Value": value} for key, value in settings.items()]
        for start in range(0, len(names), 100):
            topics = [
                {"Name": name, "NumPartitions": partitions, "ReplicationFactor": 1, "Configs": configs}
                for name in names[start : start + 100]
            ]
            answer = self.ask("CreateTopics", 4, {"Topics": topics, "timeoutMs": 60_000})
            bad = {topic["ErrorCode"] for topic in answer["Topics"]} - {0, 36}
            if bad:
                raise RuntimeError(f"topics cannot be made: errors {bad}")
        self.wait_for_topic(names[-1])

    def wait_for_topic(self, name: str, within_s: float = 30) -> bool:
        """Wait until a topic has leaders; false when it has none in time."""
        ends = time.monotonic() + within_s
        while time.monotonic() < ends:
            values = {"Topics": [{"Name": name}], "AllowAutoTopicCreation": False}
            topic = self.ask("Metadata", 4, values)["Topics"][0]
            if topic["ErrorCode"] == 0 and all(part["ErrorCode"] == 0 for part in topic["Partitions"]):
                return True
            time.sleep(0.05)
        return False

    def delete_topics(self, names: Iterable[str]) -> list[int]:
        """Delete topics; returns the error codes."""
        answer = self.ask("DeleteTopics", 3, {"TopicNames": list(names), "TimeoutMs": 60_000})
        return [result["ErrorCode"] for result in answer["Responses"]]

    def produce(self, topic: str, records: bytes, partition: int = 0, version: int = 7) -> int:
        """Produce a batch; returns the error code."""
        answer = self.ask("Produce", version, produce_values(topic, [(partition, records)]))
        code: int = answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"]
        return code


def produce_values(topic: str, data: Iterable[tuple[int, bytes]], acks: int = 1) -> Values:
    """The fields of a Produce request of any version below 13."""
    parts = [{"Index": index, "Records": records} for index, records in data]
    return {"Acks": acks, "TimeoutMs": 30_000, "TopicData": [{"Name": topic, "PartitionData": parts}]}


def fetch_values(topic: str, partitions: Iterable[int], bytes_max: int, *, wait_ms: int = 0) -> Values:
    """The fields of a Fetch request below version 12, from offset 0."""
    parts = [{"Partition": index, "FetchOffset": 0, "PartitionMaxBytes": bytes_max} for index in partitions]
    return {
        "ReplicaId": -1,
        "MaxWaitMs": wait_ms,
        "MinBytes": 1,
        "MaxBytes": 0x7FFFFFFF,
        "Topics": [{"Topic": topic, "Partitions": parts}],
    }
