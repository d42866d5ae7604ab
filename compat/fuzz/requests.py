"""Requests of every API and version, mutated, from a client with all permissions: as fast as a broker takes them.

Many connections at once, with a few frames each, sent in one piece. The rule: a frame counts when the broker has processed
it: when it was answered, or the connection was closed because of it. The broker ignores frames after an invalid one.
"""

from __future__ import annotations

import errno
import random
import select
import socket
import time
from collections import deque
from collections.abc import Callable

import trio

from barnabas.serving import apis
from compat.fuzz.live import Live, frames
from compat.fuzz.session import ANSWER_SECONDS_MAX
from compat.fuzz.target import Finding, Round, RunRound, Target
from compat.hostile.attacks.frames import CHANGES_BROKER, NEVER_MUTATED
from compat.hostile.messages import filled, framed, mutated
from compat.kit.wire import encode, message

SPARED = frozenset({*NEVER_MUTATED, *CHANGES_BROKER, "ControlledShutdown"})
AT_ONCE = 64
FRAMES = 4
PATIENCE_S = 0.5
"""A fetch or a join may wait for as long as it says: a client without an answer for so long closes."""
READ_BYTES = 256 * 1024
REMEMBERED = 100
"""So many connections are kept for a finding."""
FRESH_ROUNDS = 10
"""After so many rounds a broker is full of topics and groups, and another one takes its place."""


def _whole_frames() -> list[bytes]:
    """Return a frame of every API and version."""
    frames = []
    for _, row in sorted(apis.BY_KEY.items()):
        if row.name in SPARED:
            continue
        for version in range(row.min_version, row.max_version + 1):
            body = encode(message(f"{row.name}Request"), version, filled(row.name, version))
            frames.append(framed(row.name, version, body))
    assert len(frames) > 100
    return frames


class Conversation:
    """One connection: the frames that it sends in one piece, and the number of responses."""

    def __init__(self, endpoint: tuple[str, int], sent: list[bytes]) -> None:
        """Begin to connect, without waiting. Raises OSError."""
        self.frames = len(sent)
        self.data = b"".join(sent)
        self.answers = 0
        self.is_ended = False
        """True if the broker has closed."""
        self._sent = 0
        self._missing = 0
        self._size = b""
        self.socket = socket.socket()
        self.socket.setblocking(False)
        code = self.socket.connect_ex(endpoint)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, "connect")
        self.moved_at = time.monotonic()

    @property
    def taken(self) -> int:
        """Number of frames that the broker has processed."""
        return min(self.frames, self.answers + self.is_ended)

    @property
    def has_sent(self) -> bool:
        """Return whether all has been sent."""
        return self._sent == len(self.data)

    def send(self) -> None:
        """Send bytes without waiting, and shut down the sending side after the last one. Raises OSError."""
        self._sent += self.socket.send(self.data[self._sent :])
        self.moved_at = time.monotonic()
        if self.has_sent:
            self.socket.shutdown(socket.SHUT_WR)

    def receive(self) -> None:
        """Count the received responses. Raises OSError."""
        data = self.socket.recv(READ_BYTES)
        self.moved_at = time.monotonic()
        if not data:
            self.is_ended = True
            return
        at = 0
        while at < len(data):
            if self._missing:
                passed = min(self._missing, len(data) - at)
                self._missing -= passed
                at += passed
                self.answers += not self._missing
                continue
            self._size += data[at : at + 4 - len(self._size)]
            at = min(len(data), at + 4)
            if len(self._size) == 4:
                self._missing = int.from_bytes(self._size, "big")
                self._size = b""


class Crowd:
    """Many conversations with one broker."""

    def __init__(self, endpoint: tuple[str, int], rng: random.Random, whole: list[bytes]) -> None:
        self._endpoint = endpoint
        self._rng = rng
        self._whole = whole
        self._poll = select.epoll()
        self._open: dict[int, Conversation] = {}
        self._last: deque[bytes] = deque(maxlen=REMEMBERED)

    def run(self, count: int) -> Round:
        """Run until the broker has processed `count` frames."""
        result = Round()
        try:
            while result.inputs < count and not result.findings:
                while len(self._open) < AT_ONCE:
                    self._begin()
                for number, event in self._poll.poll(PATIENCE_S):
                    self._go_on(self._open[number], event, result)
                self._close_the_patient(result)
        except OSError as error:
            result.found(f"the broker does not accept: {error}", b"".join(self._last))
        finally:
            for conversation in self._open.values():
                conversation.socket.close()
            self._poll.close()
        return result

    def _begin(self) -> None:
        rng = self._rng
        conversation = Conversation(
            self._endpoint, [mutated(rng.choice(self._whole), rng) for _ in range(FRAMES)]
        )
        self._last.append(conversation.data)
        self._open[conversation.socket.fileno()] = conversation
        self._poll.register(conversation.socket, select.EPOLLIN | select.EPOLLOUT)

    def _go_on(self, conversation: Conversation, event: int, result: Round) -> None:
        try:
            if event & select.EPOLLOUT and not conversation.has_sent:
                conversation.send()
                if conversation.has_sent:
                    self._poll.modify(conversation.socket, select.EPOLLIN)
            if event & ~select.EPOLLOUT:
                conversation.receive()
        except BlockingIOError:
            return
        except ConnectionRefusedError:
            raise
        except OSError:  # closed at a frame, before all had been read
            conversation.is_ended = True
        if conversation.is_ended or conversation.answers >= conversation.frames:
            self._close(conversation, result)

    def _close_the_patient(self, result: Round) -> None:
        now = time.monotonic()
        for conversation in list(self._open.values()):
            if conversation.has_sent and now - conversation.moved_at > PATIENCE_S:
                self._close(conversation, result)
            elif now - conversation.moved_at > ANSWER_SECONDS_MAX:
                result.found("the broker neither reads nor closes", conversation.data)
                self._close(conversation, result)

    def _close(self, conversation: Conversation, result: Round) -> None:
        result.inputs += conversation.taken
        del self._open[conversation.socket.fileno()]
        conversation.socket.close()


class Requests:
    """Rounds of crowds; every now and then with a fresh broker."""

    def __init__(self) -> None:
        self._whole = _whole_frames()
        self._live: Live | None = None
        self._rounds = 0

    def run_round(self, rng: random.Random, count: int) -> Round:
        """Run a round, and see that the broker lives."""
        before: list[Finding] = []
        if self._rounds % FRESH_ROUNDS == 0:
            before = self.close()
        self._rounds += 1
        if self._live is None:
            self._live = Live("PLAINTEXT", frames)
        result = Crowd(self._live.endpoint, rng, self._whole).run(count)
        result.findings += before
        trio.run(self._live.judge, result)
        return result

    def close(self) -> list[Finding]:
        """End the broker, and judge its log and its end."""
        live, self._live = self._live, None
        return live.close() if live is not None else []


def _open() -> tuple[RunRound, Callable[[], list[Finding]]]:
    requests = Requests()
    return requests.run_round, requests.close


TARGET = Target(
    "requests", "requests of every API and version, from somebody who may ask everything", _open, is_live=True
)
