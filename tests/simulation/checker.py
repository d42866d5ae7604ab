"""Judging a history: what a broker has promised to the clients, and what they found.

The rule: each check says in one line what was broken, by which partition, offset and value, so that a seed can be
followed from there.
"""

from __future__ import annotations

import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from tests.simulation.clients import LATEST_OF_KEYS, OUTPUT, TOPIC
from tests.simulation.history import Final, Gained, History, Transaction


def failures_of(run: Callable[[], object]) -> list[str]:
    """Run a history; return why it has not come to its end, nothing if it has."""
    try:
        run()
    except TimeoutError as error:
        return [str(error)]
    except ExceptionGroup as error:
        late, _ = error.split(TimeoutError)
        return [str(late.exceptions[0]) if late is not None else "".join(traceback.format_exception(error))]
    return []


def violations(history: History) -> list[str]:
    """Return what the broker has broken, nothing if it kept its promises."""
    return [
        *history.surprises,
        *_dense(history),
        *_acknowledged(history),
        *_unchanged(history),
        *_whole_transactions(history),
        *_commits(history),
        *_generations(history),
        *_owners(history),
        *_shared(history),
        *_processed(history),
        *_latest(history),
    ]


def _values(final: Final) -> dict[int, bytes]:
    return {offset: value for batch in final.batches for offset, value in batch.values.items()}


def _dense(history: History) -> Iterator[str]:
    """Offsets follow each other without a gap, control batches included."""
    for partition, final in sorted(history.finals.items()):
        if partition[0] == LATEST_OF_KEYS:
            continue
        expected = final.start
        for batch in final.batches:
            if batch.base_offset != expected:
                yield f"{partition}: a batch begins at {batch.base_offset}, not at {expected}"
            offsets = range(batch.base_offset, batch.last_offset + 1)
            if not batch.is_control and list(batch.values) != list(offsets):
                yield f"{partition}: the batch at {batch.base_offset} holds {list(batch.values)}, not {list(offsets)}"
            expected = batch.last_offset + 1
        if expected != final.end:
            yield f"{partition}: ends at {expected}, and ListOffsets says {final.end}"


def _acknowledged(history: History) -> Iterator[str]:
    """Acknowledged records are there, at their offsets; records of an idempotent producer are there at most once."""
    finals = {partition: _values(final) for partition, final in history.finals.items()}
    counts = {partition: Counter(values.values()) for partition, values in finals.items()}
    sent = {(write.partition, write.value) for write in history.writes}
    for write in history.writes:
        count = counts[write.partition][write.value]
        if write.is_acknowledged and not count and write.key is None:
            yield f"{write.partition}: {write.value!r} was acknowledged (offset {write.offset}) and is lost"
        elif (
            write.is_acknowledged
            and write.key is None
            and write.offset is not None
            and finals[write.partition].get(write.offset) != write.value
        ):
            yield (
                f"{write.partition}: {write.value!r} was acknowledged at {write.offset}, where "
                f"{finals[write.partition].get(write.offset)!r} is"
            )
        if write.is_idempotent and count > 1:
            yield f"{write.partition}: {write.value!r} of an idempotent producer is there {count} times"
    for partition, values in finals.items():
        for offset, value in values.items():
            if (partition, value) not in sent:
                yield f"{partition}: {value!r} at {offset} was sent by nobody"
    for partition, values in finals.items():
        last: dict[str, int] = {}
        order = {
            (w.partition, w.value): (w.producer, n) for n, w in enumerate(history.writes) if w.is_idempotent
        }
        for offset, value in sorted(values.items()):
            earlier = order.get((partition, value))
            if earlier is not None:
                producer, number = earlier
                if number < last.get(producer, -1):
                    yield f"{partition}: {value!r} at {offset} is out of the order of its producer"
                last[producer] = number


def _unchanged(history: History) -> Iterator[str]:
    """Records that were read once are there for ever, unchanged."""
    finals = {partition: _values(final) for partition, final in history.finals.items()}
    for read in history.reads:
        now = finals[read.partition].get(read.offset)
        if now != read.value:
            yield f"{read.partition}: {read.reader} read {read.value!r} at {read.offset}, where {now!r} is now"


def _whole_transactions(history: History) -> Iterator[str]:
    """A read-committed reader gets all of a committed transaction and nothing of an aborted one."""
    shown = {
        (partition, value)
        for partition, final in history.finals.items()
        for value in final.committed.values()
    }
    visible: dict[int, bool] = {}
    for transaction in history.transactions:
        acknowledged = [write for write in transaction.writes if write.is_acknowledged]
        seen = [write for write in transaction.writes if (write.partition, write.value) in shown]
        visible[id(transaction)] = bool(seen)
        if transaction.outcome == "committed" and len(seen) < len(acknowledged):
            missing = [write.value for write in acknowledged if write not in seen]
            yield f"{transaction.name} was committed, and {missing} of it cannot be read"
        elif transaction.outcome == "aborted" and seen:
            yield f"{transaction.name} was aborted, and {[w.value for w in seen]} of it can be read"
        elif transaction.outcome == "unknown" and seen and len(seen) < len(acknowledged):
            yield f"{transaction.name}: only {[w.value for w in seen]} of it can be read"
        if seen and not transaction.wants_commit:
            yield f"{transaction.name}: nobody asked for a commit, and {[w.value for w in seen]} can be read"
    of_value: dict[tuple[tuple[str, int], bytes], Transaction] = {
        (write.partition, write.value): txn for txn in history.transactions for write in txn.writes
    }
    for read in history.reads:
        transaction = of_value.get((read.partition, read.value))
        if read.committed_only and transaction is not None and not visible[id(transaction)]:
            yield (
                f"{read.partition}: {read.reader} read {read.value!r} at {read.offset} "
                f"of {transaction.name}, which is not committed"
            )
    for write in history.writes:
        if (
            write.transaction is None
            and write.key is None
            and write.is_acknowledged
            and (write.partition, write.value) not in shown
        ):
            yield f"{write.partition}: {write.value!r} is of no transaction, and a read-committed reader misses it"


def _commits(history: History) -> Iterator[str]:
    """A committed offset is the last one that was committed; members only commit what is farther on."""
    for fetched in history.fetched_commits:
        of_partition = [
            c for c in history.commits if (c.group, c.partition) == (fetched.group, fetched.partition)
        ]
        last = max(
            (c.offset for c in of_partition if c.ended_s is not None and c.ended_s <= fetched.began_s),
            default=-1,
        )
        where = f"{fetched.group}/{fetched.partition}"
        if fetched.offset < last:
            yield f"{where}: {last} was committed, and {fetched.offset} is what was fetched at {fetched.began_s:.3f}"
        if fetched.offset >= 0 and fetched.offset not in {c.offset for c in of_partition}:
            yield f"{where}: {fetched.offset} was fetched, which nobody has committed"


def _generations(history: History) -> Iterator[str]:
    """A generation that has assignments has one leader, and each partition has one owner in it."""
    by_generation: dict[tuple[str, int], dict[str, frozenset[int]]] = defaultdict(dict)
    leaders: dict[tuple[str, int], set[str]] = defaultdict(set)
    for owned in history.owned:
        key = (owned.group, owned.generation)
        before = by_generation[key].setdefault(owned.member, owned.partitions)
        if before != owned.partitions:
            yield f"{key}: {owned.member} got {sorted(before)} and then {sorted(owned.partitions)}"
        leaders[key].add(owned.leader)
    for key, members in by_generation.items():
        if len(leaders[key]) > 1:
            yield f"{key} has leaders {sorted(leaders[key])}"
        counts = Counter(partition for partitions in members.values() for partition in partitions)
        for partition, count in sorted(counts.items()):
            if count > 1:
                owners = sorted(member for member, partitions in members.items() if partition in partitions)
                yield f"{key}: partition {partition} is owned by {owners}"


def _owners(history: History) -> Iterator[str]:
    """In an epoch one member gains a partition; the member that had it before cannot commit it any more.

    A commit in an older epoch than that in which another member had gained the partition before it was sent is of
    a member that does not have it, or has not heard yet that it has it again.
    """
    gainers: dict[tuple[str, int, int], set[str]] = defaultdict(set)
    gains: dict[tuple[str, int], list[Gained]] = defaultdict(list)
    for gained in history.gained:
        gainers[gained.group, gained.partition, gained.epoch].add(gained.member)
        gains[gained.group, gained.partition].append(gained)
    for (group, partition, epoch), members in sorted(gainers.items()):
        if len(members) > 1:
            yield f"{group}/{partition}: given to {sorted(members)} in epoch {epoch}"
    for commit in history.commits:
        if commit.epoch <= 0 or commit.ended_s is None:
            continue
        for gained in gains[commit.group, commit.partition]:
            if (
                gained.member != commit.member
                and gained.epoch > commit.epoch
                and gained.at_s <= commit.began_s
            ):
                yield (
                    f"{commit.group}/{commit.partition}: {commit.member} committed {commit.offset} in epoch "
                    f"{commit.epoch} at {commit.began_s:.3f}, when {gained.member} had it since epoch {gained.epoch}"
                )
                break


def _shared(history: History) -> Iterator[str]:
    """A share group gives each record to a member, and none again that was accepted or rejected."""
    finals = {partition: _values(final) for partition, final in history.finals.items()}
    settled: dict[tuple[int, int], float] = {}
    for record in history.settled:
        settled.setdefault((record.partition, record.offset), record.at_s)
    for record in history.delivered:
        value = finals.get((TOPIC, record.partition), {}).get(record.offset)
        where = f"share group {record.partition}/{record.offset}"
        if value != record.value:
            yield f"{where}: {record.member} was given {record.value!r}, where {value!r} is"
        at_s = settled.get((record.partition, record.offset))
        if at_s is not None and record.began_s >= at_s:
            yield f"{where}: given to {record.member} again, though it was settled at {at_s:.3f}"
    if history.delivered or history.settled:
        delivered = {(record.partition, record.offset) for record in history.delivered}
        for (topic, partition), values in sorted(finals.items()):
            for offset in values:
                if topic == TOPIC and (partition, offset) not in delivered:
                    yield f"share group {partition}/{offset}: given to nobody"


def _processed(history: History) -> Iterator[str]:
    """Each input record up to the committed offset has led to one output record, and no other one has."""
    if history.processed is None:
        return
    outputs = Counter(
        value.rpartition(b":")[2].decode() for value in history.finals[OUTPUT, 0].committed.values()
    )
    for name, count in sorted(outputs.items()):
        if count > 1:
            yield f"input {name} was processed {count} times"
    expected = {
        f"{partition}@{offset}"
        for partition, end in history.processed.items()
        for offset in history.finals[TOPIC, partition].committed
        if offset < end
    }
    for name in sorted(expected - outputs.keys()):
        yield f"input {name} counts as processed ({history.processed}), and its output is missing"
    for name in sorted(outputs.keys() - expected):
        yield f"input {name} was processed, and is not committed or was never there ({history.processed})"


def _latest(history: History) -> Iterator[str]:
    """Compaction keeps the last value of each key, at its offset, and what it keeps is in order."""
    final = history.finals.get((LATEST_OF_KEYS, 0))
    if final is None:
        return
    finals = _values(final)
    last_found: dict[bytes, int] = {}
    for offset, value in finals.items():
        key = value.rpartition(b":")[2]
        last_found[key] = max(last_found.get(key, -1), offset)
    last_written: dict[bytes, tuple[int, bytes]] = {}
    for write in history.writes:
        if write.key is None or write.offset is None:
            continue
        if write.is_acknowledged:
            last_written[write.key] = max(last_written.get(write.key, (-1, b"")), (write.offset, write.value))
            if finals.get(write.offset, write.value) != write.value:
                yield f"{write.partition}: {finals[write.offset]!r} is where {write.value!r} was written"
    for key, (offset, value) in sorted(last_written.items()):
        if last_found.get(key, -1) < offset:
            yield f"{LATEST_OF_KEYS}: the last value of {key!r}, {value!r} at {offset}, is gone"
    offsets = [offset for batch in final.batches for offset in batch.values]
    if offsets != sorted(offsets):
        yield f"{LATEST_OF_KEYS}: offsets are out of order: {offsets}"
