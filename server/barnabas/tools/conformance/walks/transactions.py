"""Walks over transactions of several producers: what each kind of reader sees, markers, offsets, fenced producers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from barnabas.records.batch import iter_batches, read_records
from barnabas.tools.conformance.batches import batch
from barnabas.tools.conformance.suites.acting import append, appended, offset_at, read
from barnabas.tools.conformance.suites.transactions import READ_COMMITTED, V1, V2, Producer, has_committed
from barnabas.tools.conformance.trial import Trial
from barnabas.tools.conformance.walks.walk import Walk

STEPS, PARTITIONS, PRODUCERS = 40, 2, 3
ABORT = 0
"""The type of a marker that aborts (KIP-98)."""


@dataclass(eq=False)
class Transaction:
    """A transaction, open until `committed` is set."""

    committed: bool | None = None
    partitions: set[int] = field(default_factory=set)
    offset: int | None = None
    """The offset that it commits for its producer's group."""


@dataclass
class Entry:
    """One offset of a partition: a record, or a marker if the value is None."""

    value: bytes | None
    transaction: Transaction | None = None


@dataclass(eq=False)
class Actor:
    """A producer, its group, and its transaction, if one has begun."""

    producer: Producer
    group: str
    transaction: Transaction | None = None
    committed: int = -1

    def begin(self) -> Transaction:
        """Return the transaction, which the first action begins."""
        self.transaction = self.transaction or Transaction()
        return self.transaction


@dataclass
class Transactions(Walk):
    """The model: the record and transaction at each offset, the commits of groups."""

    topic: tuple[str, bytes] = ("", b"")
    actors: list[Actor] = field(default_factory=list)
    logs: list[list[Entry]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    count: int = 0

    def fresh(self) -> list[bytes]:
        """Return values that are nowhere yet."""
        count = self.random.randint(1, 3)
        self.count += count
        return [b"%d" % (self.count - number) for number in range(count)]

    def stable_end(self, index: int) -> int:
        """The last stable offset: where the first transaction that is open begins, or else the log end."""
        log = self.logs[index]
        is_open = (
            at
            for at, entry in enumerate(log)
            if entry.transaction is not None and entry.transaction.committed is None
        )
        return next(is_open, len(log))


async def run(trial: Trial) -> None:
    """Readers see what the model of transactions says, while producers commit, abort and are fenced."""
    walk = Transactions.of(trial)
    walk.topic = await trial.new_topic(PARTITIONS)
    kinds = _protocols(trial)
    for _ in range(PRODUCERS):
        producer = Producer(trial, await trial.transactional_id(), walk.topic, walk.random.choice(kinds))
        await producer.begin()
        walk.actors.append(Actor(producer, await trial.group()))
    for _ in range(STEPS):
        await walk.random.choice(_STEPS)(walk)
    for actor in walk.actors:
        if actor.transaction is not None:
            await _finish(walk, actor, commit=walk.random.random() < 0.5)
    for index in range(PARTITIONS):
        await _read_committed(walk, index)


def _protocols(trial: Trial) -> list[bool]:
    """Return whether version 2 is used, for each protocol that the broker supports."""
    fixture = trial.fixture
    kinds = [False] if fixture.versions[0][0] <= V1["Produce"] else []
    if fixture.features.get("transaction.version", 0) >= 2 and fixture.newest("Produce") >= V2["Produce"]:
        kinds.append(True)
    return kinds


# --- writing ------------------------------------------------------------------------------------------------------


async def _write(walk: Transactions) -> None:
    actor, index, values = walk.random.choice(walk.actors), walk.random.randrange(PARTITIONS), walk.fresh()
    walk.step(f"{_name(walk, actor)} writes {len(values)} to {index}")
    base = await actor.producer.write(*values, index=index)
    log = walk.logs[index]
    walk.check(base == len(log), f"the base offset is {base}, not {len(log)}")
    transaction = actor.begin()
    transaction.partitions.add(index)
    log += [Entry(value, transaction) for value in values]


async def _write_outside(walk: Transactions) -> None:
    index, values = walk.random.randrange(PARTITIONS), walk.fresh()
    walk.step(f"{len(values)} are written to {index} outside of any transaction")
    log = walk.logs[index]
    base = await appended(walk.trial, walk.topic, batch(*values), index=index)
    walk.check(base == len(log), f"the base offset is {base}, not {len(log)}")
    log += [Entry(value) for value in values]


async def _commit_offset(walk: Transactions) -> None:
    actor, offset = walk.random.choice(walk.actors), walk.random.randrange(1000)
    walk.step(f"{_name(walk, actor)} commits offset {offset}")
    await actor.producer.commit_offset(actor.group, offset)
    actor.begin().offset = offset


async def _end(walk: Transactions) -> None:
    actor = _with_transaction(walk)
    if actor is not None:
        await _finish(walk, actor, commit=walk.random.random() < 0.6)


async def _finish(walk: Transactions, actor: Actor, *, commit: bool) -> None:
    walk.step(f"{_name(walk, actor)} {'commits' if commit else 'aborts'}")
    await actor.producer.end(commit=commit)
    await _has_ended(walk, actor, commit=commit)


async def _has_ended(walk: Transactions, actor: Actor, *, commit: bool) -> None:
    """Wait for the markers, which are written after the end is answered, and check that each partition has one."""
    transaction = actor.transaction
    assert transaction is not None
    actor.transaction, transaction.committed = None, commit
    for index in transaction.partitions:
        walk.logs[index].append(Entry(None))
        await _wait_for_end(walk, index)
    if transaction.offset is not None:
        actor.committed = transaction.offset if commit else actor.committed
        await has_committed(walk.trial, actor.group, walk.topic, actor.committed)


async def _wait_for_end(walk: Transactions, index: int) -> None:
    end = len(walk.logs[index])
    partition = {"partition_index": index, "timestamp": -1}
    asked = {"replica_id": -1, "topics": [{"name": walk.topic[0], "partitions": [partition]}]}

    def is_there(answer: Any) -> bool:
        return bool(answer.topics[0].partitions[0].offset >= end)

    await walk.trial.until("ListOffsets", asked, is_there, f"partition {index} ends at {end}")
    await _ends(walk, index)


async def _fence(walk: Transactions) -> None:
    """A new instance aborts the transaction of the one before, which may write no more."""
    actor = _with_transaction(walk)
    if actor is None or actor.transaction is None:
        return
    walk.step(f"a second instance of {_name(walk, actor)} begins")
    old, transaction = actor.producer, actor.transaction
    actor.producer = Producer(walk.trial, old.id, walk.topic, old.is_v2)
    await actor.producer.begin()
    await _has_ended(walk, actor, commit=False)
    for index in transaction.partitions:
        answer = await append(
            walk.trial,
            walk.topic,
            old.records(b"fenced", index=index),
            index=index,
            version=old.version("Produce"),
            transactional_id=old.id,
        )
        walk.check_code(answer.error_code, "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")


def _with_transaction(walk: Transactions) -> Actor | None:
    open_actors = [actor for actor in walk.actors if actor.transaction is not None]
    return walk.random.choice(open_actors) if open_actors else None


def _name(walk: Transactions, actor: Actor) -> str:
    return f"producer {walk.actors.index(actor)} (version {2 if actor.producer.is_v2 else 1})"


# --- reading ------------------------------------------------------------------------------------------------------


async def _read_some(walk: Transactions) -> None:
    await _read_committed(walk, walk.random.randrange(PARTITIONS))


async def _read_committed(walk: Transactions, index: int) -> None:
    walk.step(f"read what is committed of {index}")
    log, stable = walk.logs[index], walk.stable_end(index)
    response = await read(walk.trial, walk.topic, index=index, isolation_level=READ_COMMITTED)
    ends = response.high_watermark, response.last_stable_offset
    walk.check(
        ends == (len(log), stable),
        f"high watermark and last stable offset are {ends}, not {len(log)}, {stable}",
    )
    expected = [
        (at, entry.value)
        for at, entry in enumerate(log[:stable])
        if entry.value is not None and (entry.transaction is None or entry.transaction.committed)
    ]
    seen = _without_aborted(response)
    walk.check(seen == expected, f"a reader sees {seen}, not {expected}")


async def _read_all(walk: Transactions) -> None:
    index = walk.random.randrange(PARTITIONS)
    walk.step(f"read all of {index}")
    response = await read(walk.trial, walk.topic, index=index)
    seen = _without_aborted(response)
    expected = [(at, entry.value) for at, entry in enumerate(walk.logs[index]) if entry.value is not None]
    walk.check(seen == expected, f"a reader without isolation sees {seen}, not {expected}")


def _without_aborted(response: Any) -> list[tuple[int, bytes]]:
    """Return offsets and values of a Fetch answer without those of aborted transactions, as consumers do it (KIP-98)."""
    begin = sorted(
        (aborted_transaction.first_offset, aborted_transaction.producer_id)
        for aborted_transaction in response.aborted_transactions or []
    )
    aborted: set[int] = set()
    seen: list[tuple[int, bytes]] = []
    data = response.records or b""
    for at, header in iter_batches(data):
        records = read_records(data, at)
        while begin and begin[0][0] <= records[-1].offset:
            aborted.add(begin.pop(0)[1])
        if header.is_control:
            if int.from_bytes(bytes(records[0].key or b"")[2:4], "big") == ABORT:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            seen += [(record.offset, bytes(record.value or b"")) for record in records]
    return seen


async def _look_at_ends(walk: Transactions) -> None:
    index = walk.random.randrange(PARTITIONS)
    walk.step(f"look for the ends of {index}")
    await _ends(walk, index)


async def _ends(walk: Transactions, index: int) -> None:
    offsets = [
        await offset_at(walk.trial, walk.topic, -1, index=index, isolation=isolation)
        for isolation in (0, READ_COMMITTED)
    ]
    expected = [len(walk.logs[index]), walk.stable_end(index)]
    walk.check(offsets == expected, f"the ends of {index} are {offsets}, not {expected}")


Step = Callable[[Transactions], Awaitable[None]]
_STEPS: list[Step] = [
    _write,
    _write,
    _write,
    _write,
    _write_outside,
    _commit_offset,
    _end,
    _end,
    _end,
    _fence,
    _read_some,
    _read_some,
    _read_all,
    _look_at_ends,
]
