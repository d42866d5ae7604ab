"""Walks over topics: producers append, batches come again, readers read, records are deleted, offsets committed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from barnabas.tools.conformance.batches import batch
from barnabas.tools.conformance.suites.acting import (
    append,
    appended,
    begin,
    committed,
    offset_at,
    read,
    reading,
    records_in,
)
from barnabas.tools.conformance.trial import Trial
from barnabas.tools.conformance.walks.walk import Walk, commit_offset
from barnabas.tools.inspection.errors import code_name

STEPS = 60
TOPICS, PARTITIONS, PRODUCERS, GROUPS = 2, 2, 3, 2
KEPT_BATCHES = 5
"""Batches of a producer that are recognized when repeated (KIP-98)."""
Place = tuple[int, int]
"""A topic of the walk, and a partition."""


@dataclass
class Log:
    """Contents of a partition: its values by offset, and the offset at which it begins."""

    values: list[bytes] = field(default_factory=list)
    start: int = 0

    @property
    def end(self) -> int:
        """The log end."""
        return len(self.values)


@dataclass
class Sent:
    """A batch of an idempotent producer, and the offset it got."""

    sequence: int
    values: list[bytes]
    base: int


@dataclass
class Topics(Walk):
    """The model: logs, the sequences of producers, the commits of groups."""

    topics: list[tuple[str, bytes]] = field(default_factory=list)
    producers: list[tuple[int, int]] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    logs: dict[Place, Log] = field(default_factory=dict)
    sent: dict[tuple[int, Place], list[Sent]] = field(default_factory=dict)
    commits: dict[tuple[str, Place], int] = field(default_factory=dict)
    count: int = 0

    def place(self) -> Place:
        """Choose a partition."""
        return self.random.randrange(TOPICS), self.random.randrange(PARTITIONS)

    def log(self, place: Place) -> Log:
        """The model of a partition."""
        return self.logs.setdefault(place, Log())

    def fresh(self) -> list[bytes]:
        """Return values that are nowhere yet."""
        values = []
        for _ in range(self.random.randint(1, 4)):
            self.count += 1
            values.append(b"%d:" % self.count + bytes(self.random.randrange(40)))
        return values


async def run(trial: Trial) -> None:
    """Whatever is appended, read, deleted, committed and sent again, the model of a log says what is answered."""
    topics = [await trial.new_topic(PARTITIONS) for _ in range(TOPICS)]
    producers = [await begin(trial) for _ in range(PRODUCERS)]
    groups = [await trial.group() for _ in range(GROUPS)]
    walk = Topics.of(trial)
    walk.topics, walk.producers, walk.groups = topics, producers, groups
    steps: list[Callable[[Topics], Awaitable[None]]] = [
        _append,
        _append,
        _send,
        _send,
        _send,
        _send_again,
        _send_gap,
        _read,
        _read,
        _read_out,
        _offsets,
        _commit,
        _commit,
        _fetch_offset,
    ]
    if trial.fixture.serves("DeleteRecords"):
        steps.append(_delete)
    for _ in range(STEPS):
        await walk.random.choice(steps)(walk)
    for place in [(topic, partition) for topic in range(TOPICS) for partition in range(PARTITIONS)]:
        await _read_all(walk, place)


async def _append(walk: Topics) -> None:
    place, values = walk.place(), walk.fresh()
    walk.step(f"append {len(values)} to {place}")
    base = await appended(
        walk.trial,
        walk.topics[place[0]],
        batch(*values, codec=walk.random.choice((0, 0, 1, 3))),
        index=place[1],
    )
    walk.check(base == walk.log(place).end, f"the base offset is {base}, not {walk.log(place).end}")
    walk.log(place).values += values


async def _send(walk: Topics) -> None:
    place, values = walk.place(), walk.fresh()
    producer = walk.random.randrange(PRODUCERS)
    sent = walk.sent.setdefault((producer, place), [])
    sequence = sent[-1].sequence + len(sent[-1].values) if sent else 0
    walk.step(f"producer {producer} sends {len(values)} to {place} from {sequence} on")
    producer_id, epoch = walk.producers[producer]
    data = batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    base = await appended(walk.trial, walk.topics[place[0]], data, index=place[1])
    walk.check(base == walk.log(place).end, f"the base offset is {base}, not {walk.log(place).end}")
    sent.append(Sent(sequence, values, base))
    walk.log(place).values += values


async def _send_again(walk: Topics) -> None:
    """A batch that one of the last five was comes again: its offset is answered, nothing is appended."""
    repeated = [(key, batch) for key, sent in walk.sent.items() for batch in sent[-KEPT_BATCHES:]]
    if not repeated:
        return
    (producer, place), repeated_batch = walk.random.choice(repeated)
    walk.step(f"producer {producer} sends to {place} from {repeated_batch.sequence} on again")
    producer_id, epoch = walk.producers[producer]
    data = batch(
        *repeated_batch.values,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=repeated_batch.sequence,
    )
    answer = await append(walk.trial, walk.topics[place[0]], data, index=place[1])
    walk.check(
        (answer.error_code, answer.base_offset) == (0, repeated_batch.base),
        f"answered {code_name(answer.error_code)} with base offset {answer.base_offset}, not {repeated_batch.base}",
    )


async def _send_gap(walk: Topics) -> None:
    """A batch that leaves sequences out is refused."""
    if not walk.sent:
        return
    (producer, place), sent = walk.random.choice(list(walk.sent.items()))
    sequence = sent[-1].sequence + len(sent[-1].values) + walk.random.randint(1, 9)
    walk.step(f"producer {producer} sends to {place} from {sequence} on, which leaves some out")
    producer_id, epoch = walk.producers[producer]
    data = batch(b"gap", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    answer = await append(walk.trial, walk.topics[place[0]], data, index=place[1])
    walk.check(
        answer.error_code == 45, f"answered {code_name(answer.error_code)}, not OUT_OF_ORDER_SEQUENCE_NUMBER"
    )


async def _read(walk: Topics) -> None:
    """Records that are read begin with the batch that has the offset, follow in order, and are what was appended."""
    place = walk.place()
    log = walk.log(place)
    offset = walk.random.randint(log.start, log.end)
    limit = walk.random.choice((1, 300, 1 << 20))
    walk.step(f"read {place} from {offset} on, {limit} bytes")
    response = await read(
        walk.trial, walk.topics[place[0]], offset, index=place[1], partition_max_bytes=limit
    )
    walk.check(
        (response.high_watermark, response.log_start_offset) == (log.end, log.start),
        f"high watermark {response.high_watermark}, log start {response.log_start_offset}, not {log.end} and {log.start}",
    )
    records = [
        (record.offset, bytes(record.value or b""))
        for record in records_in(response.records)
        if record.offset >= offset
    ]
    expected = list(enumerate(log.values))[offset : offset + len(records)]
    walk.check(records == expected, f"{len(records)} records that are not those from {offset} on")
    walk.check(
        bool(records) or offset == log.end, f"nothing is read from {offset} on, and the log ends at {log.end}"
    )


async def _read_out(walk: Topics) -> None:
    """Reading outside of the log is OFFSET_OUT_OF_RANGE."""
    place = walk.place()
    log = walk.log(place)
    offset = walk.random.choice((log.end + 1, log.end + 1000, log.start - 1))
    walk.step(f"read {place} from {offset} on, outside")
    answer = await walk.trial.ask("Fetch", reading(walk.topics[place[0]], offset, index=place[1]))
    code = answer.responses[0].partitions[0].error_code
    walk.check(code == 1, f"answered {code_name(code)}, not OFFSET_OUT_OF_RANGE")


async def _read_all(walk: Topics, place: Place) -> None:
    log = walk.log(place)
    walk.step(f"read all of {place}")
    offset, values = log.start, []
    while offset < log.end:
        response = await read(walk.trial, walk.topics[place[0]], offset, index=place[1])
        part = [record for record in records_in(response.records) if record.offset >= offset]
        walk.check(bool(part), f"nothing is read from {offset} on, and the log ends at {log.end}")
        values += [bytes(record.value or b"") for record in part]
        offset = part[-1].offset + 1
    walk.check(values == log.values[log.start :], "the whole log is not what was appended")


async def _offsets(walk: Topics) -> None:
    place = walk.place()
    log = walk.log(place)
    walk.step(f"look for both ends of {place}")
    offsets = [
        await offset_at(walk.trial, walk.topics[place[0]], which, index=place[1]) for which in (-2, -1)
    ]
    walk.check(offsets == [log.start, log.end], f"the ends are {offsets}, not {log.start} and {log.end}")


async def _delete(walk: Topics) -> None:
    place = walk.place()
    log = walk.log(place)
    before = walk.random.randint(log.start, log.end)
    walk.step(f"delete what is before {before} of {place}")
    partitions = [{"partition_index": place[1], "offset": before}]
    asked = {"topics": [{"name": walk.topics[place[0]][0], "partitions": partitions}], "timeout_ms": 20_000}
    answer = await walk.trial.ask("DeleteRecords", asked)
    response = answer.topics[0].partitions[0]
    walk.check(
        (response.error_code, response.low_watermark) == (0, before),
        f"answered {code_name(response.error_code)}, {response.low_watermark}",
    )
    log.start = before


async def _commit(walk: Topics) -> None:
    place, group, offset = walk.place(), walk.random.choice(walk.groups), walk.random.randrange(1000)
    walk.step(f"{group} commits {offset} of {place}")
    await commit_offset(walk, group, walk.topics[place[0]], place[1], offset)
    walk.commits[group, place] = offset


async def _fetch_offset(walk: Topics) -> None:
    place, group = walk.place(), walk.random.choice(walk.groups)
    walk.step(f"what has {group} committed of {place}")
    offsets = await committed(walk.trial, group, walk.topics[place[0]], place[1])
    expected = walk.commits.get((group, place), -1)
    walk.check(offsets == [expected], f"committed is {offsets}, not {expected}")
