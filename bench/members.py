"""Many concurrent members of consumer groups, over bare sockets: each does only the necessary work of a client.

The rule: as `bench.wire`, independent of the broker's own codecs. A member has one request in flight; its next request
depends only on the response, so that all brokers get the same load. Classic members use JoinGroup v2, SyncGroup v1 and
Heartbeat v1, which every broker serves since 0.11; the others ConsumerGroupHeartbeat v0 (KIP-848).
"""

from __future__ import annotations

import heapq
import selectors
import socket
import struct
import time
from collections.abc import Callable, Sequence
from statistics import median

from bench.wire import API_VERSIONS, Reader, WireError, request, uvarint

JOIN_GROUP, HEARTBEAT, SYNC_GROUP, CONSUMER_GROUP_HEARTBEAT = 11, 12, 14, 68
SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 30_000, 60_000
REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION = 27, 25, 22
RETRIED = (14, 15, 16, 3)  # coordinator loading, unavailable, or moved; unknown topic
RETRY_S = 0.02
POLL_S = 0.1  # between heartbeats of a member with an assignment, which may have to learn of a rebalance
ALONE_S = 3.0
"""Interval between heartbeats of a member that is alone in its group: the default of clients, as nothing changes."""
PROTOCOL = b"range"
Send = tuple[float, bytes]
"""When to send a request next, in seconds from now, and the request."""


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class ClassicMember:
    """A member of the classic protocol; the leader assigns partition n to the n-th member."""

    def __init__(self, group: str, topic: str, poll_s: float = POLL_S) -> None:
        self.group = _string(group.encode())
        self.topic = topic.encode()
        self.poll_s = poll_s
        self.member_id = b""
        self.generation = -1
        self.assignment = b""

    @property
    def view(self) -> tuple[int, bool]:
        """The generation, and whether there is an assignment in it."""
        return self.generation, bool(self.assignment)

    def begin(self) -> bytes:
        """Return a JoinGroup request: the first one, or one that starts a rebalance."""
        self.assignment = b""
        subscription = struct.pack(">hi", 0, 1) + _string(self.topic) + _bytes(b"")
        protocols = struct.pack(">i", 1) + _string(PROTOCOL) + _bytes(subscription)
        timeouts = struct.pack(">ii", SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS)
        body = self.group + timeouts + _string(self.member_id) + _string(b"consumer") + protocols
        self._answered = self._joined
        return request(JOIN_GROUP, 2, body)

    def answered(self, reply: bytes) -> Send:
        """Handle a response (from its correlation id on). Raises WireError for an error that is not retriable."""
        return self._answered(Reader(reply, 8))  # past correlation id and throttle time

    def _joined(self, reader: Reader) -> Send:
        error, generation = reader.take_all(">hi")
        if error in RETRIED:
            return RETRY_S, self.begin()
        self._check("JoinGroup", error)
        reader.string()
        leader, member_id = reader.string(), reader.string()
        self.generation, self.member_id = generation, (member_id or "").encode()
        parts = b""
        count = 0
        if leader == member_id:
            count = reader.take(">i")
            for number in range(count):
                member = reader.string() or ""
                reader.bytes()
                assigned = (
                    struct.pack(">hi", 0, 1)
                    + _string(self.topic)
                    + struct.pack(">ii", 1, number)
                    + _bytes(b"")
                )
                parts += _string(member.encode()) + _bytes(assigned)
        body = self._identity() + struct.pack(">i", count) + parts
        self._answered = self._synced
        return 0, request(SYNC_GROUP, 1, body)

    def _synced(self, reader: Reader) -> Send:
        error = reader.take(">h")
        if error == REBALANCE_IN_PROGRESS:
            return 0, self.begin()
        self._check("SyncGroup", error)
        self.assignment = reader.bytes()
        return self.poll_s, self._heartbeat()

    def _heartbeat(self) -> bytes:
        self._answered = self._beaten
        return request(HEARTBEAT, 1, self._identity())

    def _beaten(self, reader: Reader) -> Send:
        error = reader.take(">h")
        if error == REBALANCE_IN_PROGRESS:
            return 0, self.begin()
        self._check("Heartbeat", error)
        return self.poll_s, self._heartbeat()

    def _identity(self) -> bytes:
        return self.group + struct.pack(">i", self.generation) + _string(self.member_id)

    @staticmethod
    def _check(what: str, error: int) -> None:
        if error:
            raise WireError(f"{what} was answered with error {error}")


def _compact(text: bytes) -> bytes:
    return uvarint(len(text) + 1) + text


class ConsumerMember:
    """A member of the protocol of KIP-848: reports its owned partitions, and adopts its assignment."""

    def __init__(self, group: str, topic: str) -> None:
        self.group = _compact(group.encode())
        self.topic = topic.encode()
        self.poll_s = POLL_S
        self.member_id = b""
        self.epoch = 0
        self.owned: list[tuple[bytes, list[int]]] = []

    @property
    def view(self) -> tuple[int, int]:
        """The member epoch, and how many partitions it owns."""
        return self.epoch, sum(len(partitions) for _, partitions in self.owned)

    def begin(self) -> bytes:
        """Return the heartbeat that joins the group."""
        return self._heartbeat(with_all=True)

    def _heartbeat(self, *, with_all: bool) -> bytes:
        if with_all:
            topics = b"\x02" + _compact(self.topic)
            owned = uvarint(len(self.owned) + 1) + b"".join(
                topic_id
                + uvarint(len(partitions) + 1)
                + struct.pack(f">{len(partitions)}i", *partitions)
                + b"\0"
                for topic_id, partitions in self.owned
            )
        else:
            topics = owned = b"\0"  # null: as before
        timeout = struct.pack(">i", REBALANCE_TIMEOUT_MS if with_all else -1)
        body = b"\0" + self.group + _compact(self.member_id) + struct.pack(">i", self.epoch)
        body += b"\0\0" + timeout + topics + b"\0" + owned + b"\0"  # no instance, no rack; no assignor
        return request(CONSUMER_GROUP_HEARTBEAT, 0, body)

    def answered(self, reply: bytes) -> Send:
        """Handle a response (from its correlation id on). Raises WireError for any error that is not in RETRIED."""
        reader = Reader(reply, 9)  # past correlation id, tagged fields and throttle time
        error = reader.take(">h")
        message = reader.compact()
        if error in RETRIED:
            return RETRY_S, self.begin()
        if error:
            raise WireError(f"ConsumerGroupHeartbeat was answered with error {error}: {message!r}")
        self.member_id = reader.compact() or self.member_id
        self.epoch, _ = reader.take_all(">ii")
        if reader.take(">b") < 0:
            return self.poll_s, self._heartbeat(with_all=False)
        before, self.owned = self.owned, []
        for _ in range(reader.uvarint() - 1):
            topic_id = reader.raw(16)
            count = reader.uvarint() - 1
            self.owned.append((topic_id, list(reader.take_all(f">{count}i"))))
            reader.uvarint()
        if self.owned == before:
            return self.poll_s, self._heartbeat(with_all=False)
        return 0, self._heartbeat(with_all=True)


Member = ClassicMember | ConsumerMember


class Crowd:
    """Members, each with a separate connection and at most one request in flight."""

    def __init__(self, bootstrap: str, members: Sequence[Member]) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.members = members
        self._selector = selectors.DefaultSelector()
        self._next: list[tuple[int, bytes]] = []  # requests to send immediately, with their members
        self._later: list[tuple[float, int, bytes]] = []  # a heap, by time
        self._flying: set[int] = set()
        self._content: set[int] = set()  # members with nothing to do after their last response
        self._content_at = [0.0] * len(members)  # since when each is
        self.median_s = 0.0
        """Median of the times in the last `run` at which members became content for good, in seconds from its start."""
        self._sockets: list[socket.socket] = []
        self._received = [b""] * len(members)
        self._is_hurried = False
        self._answers = 0
        for number in range(len(members)):
            connection = socket.create_connection((host, int(port)), 60)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection, selectors.EVENT_READ, number)
            self._sockets.append(connection)
        self._ask_for_versions()

    def _ask_for_versions(self) -> None:
        """Begin as clients do, with ApiVersions, so that later requests use connections that the broker has accepted.

        The kernel reports a connection before the broker accepts it, and brokers differ in the length of that queue: with
        Apache Kafka the last of a thousand are connected after 10 s, when it has accepted all others.
        """
        for connection in self._sockets:
            connection.sendall(request(API_VERSIONS, 0, b""))
        for connection in self._sockets:
            answer = b""
            while len(answer) < 4 or len(answer) < 4 + struct.unpack_from(">i", answer)[0]:
                if not (received := connection.recv(1 << 16)):
                    raise ConnectionError("the broker closed a member's connection")
                answer += received

    def close(self) -> None:
        """Close all connections, without leaving the groups."""
        self._selector.close()
        for connection in self._sockets:
            connection.close()

    def begin(self) -> None:
        """Make all members join, or rejoin, once their requests in flight are answered."""
        while self._flying:
            self._receive(1)
        self._content.clear()
        self._later = []
        self._next = [(number, member.begin()) for number, member in enumerate(self.members)]

    def run(self, done: Callable[[], bool], timeout_s: float = 180) -> float:
        """Run until all members are content and `done` returns True; returns the elapsed seconds."""
        start = time.monotonic()
        while not (len(self._content) == len(self.members) and done()):
            if time.monotonic() - start > timeout_s:
                raise WireError(
                    f"{len(self._content)} of {len(self.members)} members were content in {timeout_s} s"
                )
            self._act()
        self.median_s = median(self._content_at) - start
        return time.monotonic() - start

    def beat(self, seconds: float) -> float:
        """Make content members send successive heartbeats; returns the number of responses per second."""
        self._is_hurried = True
        self._next += [(number, frame) for _, number, frame in self._later]
        self._later = []
        start, before = time.monotonic(), self._answers
        while time.monotonic() - start < seconds:
            self._act()
        rate = (self._answers - before) / (time.monotonic() - start)
        self._is_hurried = False
        return rate

    def _act(self) -> None:
        """Send due requests, and handle responses."""
        later, now = self._later, time.monotonic()
        while later and later[0][0] <= now:
            _, number, frame = heapq.heappop(later)
            self._next.append((number, frame))
        ready, self._next = self._next, []
        for number, frame in ready:
            self._flying.add(number)
            self._sockets[number].sendall(frame)
        self._receive(0.002 if later else 1)

    def _receive(self, wait_s: float) -> None:
        for key, _ in self._selector.select(wait_s):
            number = key.data
            received = self._sockets[number].recv(1 << 20)
            if not received:
                raise ConnectionError("the broker closed a member's connection")
            data = self._received[number] + received
            if len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
                self._received[number] = data
                continue
            self._received[number] = b""
            wait_s, frame = self.members[number].answered(data[4:])
            if wait_s != self.members[number].poll_s:
                self._content.discard(number)
            elif number not in self._content:
                self._content.add(number)
                self._content_at[number] = time.monotonic()
            self._flying.discard(number)
            self._answers += 1
            if wait_s and not self._is_hurried:
                heapq.heappush(self._later, (time.monotonic() + wait_s, number, frame))
            else:
                self._next.append((number, frame))
