"""The records, their checks and the case runner for the Python clients.

The rule: standard library only, since this runs inside each client's own environment.
"""

from __future__ import annotations

import faulthandler
import os
import random
import subprocess
import sys
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

Headers = Iterable[tuple[str, bytes | None]] | None

CASES = (
    "create-topic",
    "produce-none",
    "produce-gzip",
    "produce-snappy",
    "produce-lz4",
    "produce-zstd",
    "consume-group",
    "consume-group-848",
    "commit-resume",
    "broker-restart",
    "broker-kill",
    "read-by-timestamp",
    "acks",
    "idempotent-produce",
    "transactions",
    "admin",
    "interop",
    "delete-topic",
)
COUNT = int(os.environ.get("COMPAT_RECORDS", "10000"))
PARTITIONS = 3
KEYS = 997
TEXT = "žluťoučký kůň".encode()
CASE_TIMEOUT_S = float(os.environ.get("COMPAT_CASE_TIMEOUT_S", "90"))
HEADERS = os.environ.get("COMPAT_HEADERS") != "no"
"""True if records have headers: message formats before 0.11 have none."""
TIME_ZERO_MS = 1_700_000_000_000


class SkipCaseError(Exception):
    """The case does not apply to this client; the message has the reason."""


@dataclass(frozen=True)
class Record:
    """Record number `number` of a topic."""

    number: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


def record(number: int) -> Record:
    """The record that has this number, in every topic and every language."""
    key = f"key-{number % KEYS}"
    head = f"{number}:{key}"
    value = f"{head}:{zlib.crc32(head.encode()):08x}:{'x' * (number % 64)}"
    headers = [("n", number.to_bytes(4, "big")), ("text", TEXT)] if HEADERS else []
    return Record(number, key.encode(), value.encode(), headers)


def records(first: int, last: int) -> Iterator[Record]:
    """Records first, first+1, ... last-1."""
    return map(record, range(first, last))


@dataclass
class Check:
    """Checks records as they are read; `finish` checks that they are those that were written."""

    headers: bool = True
    placed: dict[tuple[int, int], int] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    repeated: int = 0
    _last_offset: dict[int, int] = field(default_factory=dict)

    def add(
        self,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = None,
    ) -> int:
        """Check one record's content; returns its number. Raises AssertionError."""
        place = f"partition {partition} offset {offset}"
        assert value is not None, f"{place}: no value"
        number = int(value.split(b":", 1)[0])
        expected = record(number)
        assert key == expected.key, f"{place}: key {key!r} instead of {expected.key!r}"
        assert value == expected.value, f"{place}: value {value!r} instead of {expected.value!r}"
        if self.headers:
            got = [(name, bytes(content or b"")) for name, content in headers or ()]
            assert got == expected.headers, f"{place}: headers {got} instead of {expected.headers}"
        earlier = self.placed.setdefault((partition, offset), number)
        assert earlier == number, f"{place}: record {number}, but earlier it was record {earlier}"
        if offset <= self._last_offset.get(partition, -1):
            self.repeated += 1
        self._last_offset[partition] = offset
        self.numbers.add(number)
        return number

    def has(self, numbers: Iterable[int]) -> bool:
        """Return whether all these numbers were seen."""
        return self.numbers.issuperset(numbers)

    def finish(self, expected: Iterable[int], *, repeats: bool = False) -> None:
        """Check that each expected number has one offset, with no other records, in the right order and partitions."""
        numbers = set(expected)
        missing = sorted(numbers - self.numbers)
        assert not missing, (
            f"{len(missing)} of {len(numbers)} records are missing, the first are {missing[:5]}"
        )
        extra = sorted(self.numbers - numbers)
        assert not extra, f"{len(extra)} records should not be there, the first are {extra[:5]}"
        assert len(self.placed) == len(self.numbers), (
            f"{len(self.placed) - len(self.numbers)} records were written twice"
        )
        assert repeats or not self.repeated, f"{self.repeated} records were delivered again or out of order"
        self._check_order()

    def _check_order(self) -> None:
        last: dict[int, int] = {}
        homes: dict[int, int] = {}
        for (partition, offset), number in sorted(self.placed.items()):
            before = last.get(partition, -1)
            assert number > before, f"partition {partition} offset {offset}: {number} comes after {before}"
            last[partition] = number
            home = homes.setdefault(number % KEYS, partition)
            assert home == partition, f"key-{number % KEYS} is in partitions {home} and {partition}"


def until(condition: Callable[[], bool], step: Callable[[], object], what: str, seconds: float = 40) -> None:
    """Repeat `step` until `condition` holds. Raises AssertionError with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in {seconds:.0f} s: {what}"
        step()


def becomes(read: Callable[[], object], expected: object, what: str) -> None:
    """Wait until `read` returns `expected`: a Kafka broker follows its controller a moment late."""
    seen: list[object] = [read()]

    def look() -> None:
        time.sleep(0.02)
        seen[0] = read()

    try:
        until(lambda: seen[0] == expected, look, what, 10)
    except AssertionError as error:
        raise AssertionError(f"{error}; it is {seen[0]}") from None


class Cases:
    """The cases of one client: functions by name, and reasons for the cases that it lacks."""

    def __init__(self, *, lacks: dict[str, str] | None = None, names: tuple[str, ...] = CASES) -> None:
        self.names = names
        self.client = os.environ.get("COMPAT_CLIENT", "client")
        self.lacks = lacks or {}
        self._functions: dict[str, Callable[[], str | None]] = {}
        self._suffix = f"{random.randrange(10**9):09d}"  # two that begin at once must not share a name
        self.bootstrap = ""

    def topic(self, case: str) -> str:
        """Return a topic (or group) name that no other run uses."""
        return f"compat-{self.client}-{case}-{self._suffix}"

    def case(self, name: str) -> Callable[[Callable[[], str | None]], Callable[[], str | None]]:
        """Register a function as a case; it returns the detail to print."""

        def register(function: Callable[[], str | None]) -> Callable[[], str | None]:
            assert name in self.names, name
            self._functions[name] = function
            return function

        return register

    def main(self) -> None:
        """Run the cases named on the command line, or all. Ends the process: 1 when one failed."""
        if len(sys.argv) < 2:
            sys.exit(f"usage: {sys.argv[0]} HOST:PORT [CASE...]")
        self.bootstrap, *arguments = sys.argv[1:]
        undecided = set(self.names) - set(self._functions) - set(self.lacks)
        assert not undecided, f"neither there nor lacking: {undecided}"
        unknown = set(arguments) - set(self.names)
        if unknown:
            sys.exit(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(self.names)}")
        verdicts = [self._run(name) for name in self.names if not arguments or name in arguments]
        sys.stdout.flush()
        # Clients leave threads behind; a case that hangs must not hold the others up.
        os._exit(verdicts.count("FAIL") > 0)

    def _run(self, name: str) -> str:
        verdict = ["FAIL", f"no end in {CASE_TIMEOUT_S:.0f} s"]
        start = time.monotonic()

        def body() -> None:
            try:
                if name in self.lacks:
                    raise SkipCaseError(self.lacks[name])
                verdict[:] = "PASS", self._functions[name]() or ""
            except SkipCaseError as reason:
                verdict[:] = "SKIP", str(reason)
            except BaseException as error:
                traceback.print_exc()
                verdict[:] = "FAIL", f"{type(error).__name__}: {error}"

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        thread.join(CASE_TIMEOUT_S)
        if verdict[0] == "FAIL":  # a client that waits for ever shows what it waits for
            faulthandler.dump_traceback(all_threads=True)
        took = "" if verdict[0] == "SKIP" else f" ({time.monotonic() - start:.1f} s)"
        print(verdict[0], name, " ".join(verdict[1].split()) + took, flush=True)
        return verdict[0]


def interop_topics() -> list[tuple[str, int, bool]]:
    """The topics that the matrix asks to read: name, number of records, with headers. Raises SkipCaseError when none."""
    text = os.environ.get("COMPAT_TOPICS", "")
    if not text:
        raise SkipCaseError("no topics of other clients were named in COMPAT_TOPICS")
    entries = (item.split(":") for item in text.split(","))
    return [(topic, int(count), kind == "headers") for topic, count, kind in entries]


class GroupMember(Protocol):
    """A consumer of a group as the scenario below needs it; used by one thread only."""

    def poll(self) -> Iterable[tuple[int, int, bytes | None, bytes | None, Headers]]:
        """Return the records of a short poll: partition, offset, key, value, headers."""

    def assigned(self) -> set[int]:
        """Return the partitions currently assigned to this member."""

    def close(self) -> None:
        """Commit what was read and leave the group."""


class _Running(threading.Thread):
    """A member in its own thread, since a client may block in a poll until the whole group has joined."""

    def __init__(self, name: str, open_member: Callable[[], GroupMember], check: Check, lock: threading.Lock):
        super().__init__(name=name, daemon=True)
        self.partitions: set[int] = set()
        self.read = 0
        self._open = open_member
        self._check = check
        self._lock = lock
        self._leave = threading.Event()
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            member = self._open()
            while not self._leave.is_set():
                for item in member.poll():
                    with self._lock:
                        self._check.add(*item)
                        self.read += 1
                self.partitions = member.assigned()
            member.close()
        except BaseException as error:
            traceback.print_exc()
            self._error = error

    def leave(self) -> None:
        self._leave.set()
        self.join(CASE_TIMEOUT_S / 3)
        assert not self.is_alive(), f"{self.name} does not leave the group"
        self.raise_error()

    def raise_error(self) -> None:
        if self._error:
            raise self._error


def share_topic_in_group(
    open_member: Callable[[], GroupMember], produce: Callable[[int, int], object], *, headers: bool = True
) -> str:
    """Run the case consume-group: one member, then two, then one, with records to read each time; returns its detail."""
    check, lock = Check(headers), threading.Lock()
    everything = set(range(PARTITIONS))
    produce(0, 1000)
    first = _Running("first", open_member, check, lock)
    members = [first]

    def step() -> None:
        for member in members:
            member.raise_error()
        time.sleep(0.02)

    until(
        lambda: check.has(range(1000)) and first.partitions == everything, step, "the first member reads all"
    )
    second = _Running("second", open_member, check, lock)
    members.append(second)

    def shared() -> bool:
        mine, other = first.partitions, second.partitions
        return bool(mine and other) and not mine & other and mine | other == everything

    until(shared, step, "two members share the partitions")
    produce(1000, 2000)
    until(lambda: check.has(range(2000)), step, "two members read all")
    assert second.read, "the second member has read nothing"
    members.remove(second)
    second.leave()
    until(lambda: first.partitions == everything, step, "the first member has all partitions again")
    produce(2000, 3000)
    until(lambda: check.has(range(3000)), step, "the remaining member reads all")
    first.leave()
    check.finish(range(3000), repeats=True)
    return f"3000 records, {second.read} by the second member, {check.repeated} again after a rebalance"


def restart_broker(how: str) -> None:
    """Stop the broker by SIGTERM (`term`) or SIGKILL (`kill`) and start it again; returns when it serves.

    Raises SkipCaseError without a command for it, AssertionError when it does not work.
    """
    command = os.environ.get("COMPAT_RESTART", "")
    if not command:
        raise SkipCaseError("no command that restarts the broker was given in COMPAT_RESTART")
    done = subprocess.run(["sh", "-c", f"{command} {how}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} {how}: {done.stdout}{done.stderr}"


class OpenProducer(Protocol):
    """A producer that stays open over the broker's restart, with one request in flight."""

    def send(self, first: int, last: int) -> None:
        """Send records first...last-1 and wait until each is acknowledged."""

    def close(self) -> None:
        """Close it."""


def outlive_broker(
    how: str,
    producer: OpenProducer,
    open_member: Callable[[], GroupMember] | None,
    read_and_commit: Callable[[Check, int], object],
    *,
    headers: bool = True,
) -> str:
    """The cases broker-restart and broker-kill.

    `read_and_commit(check, goal)` is a consumer of one group that reads until `goal` records were seen, commits and
    closes; `open_member` opens one of another group, which stays open over the restart (None: this client cannot).
    """
    half = COUNT // 2
    check = Check(headers)
    producer.send(0, half)
    follower = open_member and _Follower(open_member, headers)
    if follower:
        follower.reach(half)
    read_and_commit(check, COUNT // 3)
    before = len(check.placed)
    restart_broker(how)
    producer.send(half, COUNT)
    producer.close()
    read_and_commit(check, COUNT)
    check.finish(range(COUNT))
    if follower:
        follower.reach(COUNT)
        follower.leave()
    return f"{before} records, commit, broker's restart, {COUNT - before} more by a new member"


class _Follower:
    """The member that stays open: it reads all records, before and after the restart."""

    def __init__(self, open_member: Callable[[], GroupMember], headers: bool) -> None:
        self.check = Check(headers)
        self.member = _Running("the member that stays", open_member, self.check, threading.Lock())

    def reach(self, goal: int) -> None:
        """Wait until it has read `goal` distinct records."""
        until(lambda: self.check.has(range(goal)), self._step, f"the member that stays reads {goal} records")
        self.check.finish(range(goal), repeats=True)

    def _step(self) -> None:
        self.member.raise_error()
        time.sleep(0.02)

    def leave(self) -> None:
        self.member.leave()
