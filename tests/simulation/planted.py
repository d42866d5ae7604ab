"""Bugs that are planted in a broker, to see that the checker finds them.

The rule: each is one that a broker could have, in place of one method for the time of a block. Methods of compiled classes
cannot be replaced: there it takes a process that runs the sources.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

import trio

from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.consumer import membership
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.groups.streams.group import StreamsGroup
from barnabas.coordinators.share.acknowledgement import Verdict
from barnabas.coordinators.share.partition import SharePartition
from barnabas.coordinators.share.shares import Shares
from barnabas.coordinators.share.state import ShareStateShard
from barnabas.coordinators.transactions.markers import LocalMarkers
from barnabas.handlers import produce
from barnabas.log.cleaner.filter import BatchFilter
from barnabas.log.manager import LogManager
from barnabas.testing.memory_disk import Inode, MemoryDisk
from barnabas.wire.codec import record_type_id
from barnabas.wire.generated.records import share_snapshot
from tests.simulation.scenario import judged
from tests.support.slips import fits

Patch = tuple[Any, str, Any]
ROOT = Path(__file__).resolve().parents[2]


def _acknowledge_before_write() -> Patch:
    """The last write to each segment is still in the process when that is killed."""
    fork = MemoryDisk.fork

    def forked(disk: MemoryDisk) -> MemoryDisk:
        copy = fork(disk)
        _lose_last_writes(copy.root)
        return copy

    return MemoryDisk, "fork", forked


def _lose_last_writes(directory: Inode) -> None:
    for name, inode in directory.names.items():
        if inode.is_dir:
            _lose_last_writes(inode)
        elif name.endswith(".log") and inode.writes:
            position, data = inode.writes.pop()
            if data and position + len(data) == len(inode.content):
                del inode.content[position:]


def _acknowledge_before_sync() -> Patch:
    """Produce does not wait for the sync that flush.messages asks for."""

    async def wait(*_: Any) -> None:
        pass

    return produce, "_wait", wait


def _forget_producers() -> Patch:
    """The sequence numbers of producers are not known any more after a start."""
    opened = LogManager.open

    def open_and_forget(logs: LogManager, now_ms: int) -> None:
        opened(logs, now_ms)
        for log in logs:
            producers = log.producers._producers
            for producer in list(producers.values()):
                if producer.current_txn_first_offset < 0:
                    del producers[producer.producer_id]

    return LogManager, "open", open_and_forget


def _lose_commit_markers() -> Patch:
    """Each third marker of a commit is not written."""
    write, count = LocalMarkers.write, 0

    async def write_or_not(markers: LocalMarkers, *args: Any) -> None:
        nonlocal count
        count += args[-1]
        if not args[-1] or count % 3:
            await write(markers, *args)

    return LocalMarkers, "write", write_or_not


def _abort_instead() -> Patch:
    """A commit is an abort in the first partition."""
    write = LocalMarkers.write

    async def write_other(markers: LocalMarkers, partition: Any, *args: Any) -> None:
        await write(markers, partition, *args[:2], args[2] and partition[1] != 0, *args[3:])

    return LocalMarkers, "write", write_other


def _keep_generation() -> Patch:
    """A rebalance does not begin a new generation."""
    complete = ClassicGroup._complete_join

    def complete_in_same(group: ClassicGroup, now_ms: int, out: Any) -> None:
        group.generation -= group.generation > 1
        complete(group, now_ms, out)

    return ClassicGroup, "_complete_join", complete_in_same


def _give_what_others_have() -> Patch:
    """A consumer group gives a partition to its next owner while the one before has not given it up."""
    right = membership.reconcile

    def reconcile(member: Any, epoch: int, target: Any, _: Any, *more: Any) -> Any:
        return right(member, epoch, target, (), *more)

    return membership, "reconcile", reconcile


def _give_tasks_that_others_run() -> Patch:
    """A streams group does the same with tasks."""
    return StreamsGroup, "taken", lambda *_: ()


def _accept_is_release() -> Patch:
    """A share group gives accepted records to others again."""
    decide = SharePartition._decide

    def decide_otherwise(partition: Any, run: Any, verdict: Verdict, *args: Any) -> None:
        decide(partition, run, Verdict.RELEASE if verdict is Verdict.ACCEPT else verdict, *args)

    return SharePartition, "_decide", decide_otherwise


def _forget_settled_records() -> Patch:
    """The results of the records of a share group are not known any more after a start."""
    replay = ShareStateShard.replay

    def replay_or_not(shard: Any, key: bytes, value: bytes | None, *, loading: bool) -> None:
        if not loading or record_type_id(key) == share_snapshot.RECORD.type_id:
            replay(shard, key, value, loading=loading)

    return ShareStateShard, "replay", replay_or_not


def _commit_aborted_offsets() -> Patch:
    """Offsets that were committed in a transaction count, although it is aborted."""
    ended = GroupShard.transaction_ended

    def ended_well(shard: GroupShard, producer_id: int, **_: Any) -> None:
        ended(shard, producer_id, committed=True)

    return GroupShard, "transaction_ended", ended_well


def _forget_committed_offsets() -> Patch:
    """Offsets that were committed in a transaction do not count, although it is committed."""
    ended = GroupShard.transaction_ended

    def ended_badly(shard: GroupShard, producer_id: int, **_: Any) -> None:
        ended(shard, producer_id, committed=False)

    return GroupShard, "transaction_ended", ended_badly


def _drop_last_of_key() -> Patch:
    """The cleaner drops the last value of a key, and keeps the others."""
    return BatchFilter, "keeps", _keeps_others


def _keeps_others(batch_filter: BatchFilter, _: Any, record: Any) -> bool:
    return record.offset > batch_filter.offsets.latest_offset or record.offset != batch_filter.offsets.get(
        record.key or b""
    )


def _release_while_ending() -> Patch:
    """Share sessions of connections that close while the broker ends are released by tasks that cannot begin any more."""

    async def run(shares: Shares) -> None:
        async with trio.open_nursery() as nursery:
            shares._nursery = nursery
            nursery.start_soon(shares.state.run)
            nursery.start_soon(shares.partitions.run)
            await trio.sleep_forever()

    return Shares, "run", run


def _forget_log_dirs() -> Patch:
    """A log dir that the broker has made is gone after a power cut, with all that was synced in it."""
    sync_dir = MemoryDisk.sync_dir

    def sync_other_dir(disk: MemoryDisk, path: str) -> None:
        if path != "/":
            sync_dir(disk, path)

    return MemoryDisk, "sync_dir", sync_other_dir


FORMER_BUGS: dict[str, Callable[[], Patch]] = {
    "share sessions released while the broker ends": _release_while_ending,
    "log dirs gone after a power cut": _forget_log_dirs,
}
"""Bugs that histories have found in the broker."""
KEPT_SEEDS = {"share sessions released while the broker ends": 24, "log dirs gone after a power cut": 10}
"""A history that finds each of them, put back. If none from there on does any more, `seeds_until_found` finds another."""
FIRST_SEEDS = {
    "acknowledged before it is written": 15,
    "acknowledged before it is synced": 226,
    "producers forgotten at a start": 24,
    "markers of commits lost": 146,
    "generation not bumped": 65,
    "partition given while another has it": 5,
    "task given while another runs it": 8,
    "settled records forgotten at a start": 63,
    "offsets of aborted transactions count": 16,
    "last value of a key compacted away": 4,
    **KEPT_SEEDS,
}
"""From where on a bug is looked for: a history that finds it, and 0 where none is named."""
BUGS: dict[str, Callable[[], Patch]] = {
    "acknowledged before it is written": _acknowledge_before_write,
    "acknowledged before it is synced": _acknowledge_before_sync,
    "producers forgotten at a start": _forget_producers,
    "markers of commits lost": _lose_commit_markers,
    "aborted in one partition": _abort_instead,
    "generation not bumped": _keep_generation,
    "partition given while another has it": _give_what_others_have,
    "task given while another runs it": _give_tasks_that_others_run,
    "accepted records given again": _accept_is_release,
    "settled records forgotten at a start": _forget_settled_records,
    "offsets of aborted transactions count": _commit_aborted_offsets,
    "offsets of committed transactions forgotten": _forget_committed_offsets,
    "last value of a key compacted away": _drop_last_of_key,
    **FORMER_BUGS,
}


def can_be_planted(bug: str) -> bool:
    """Return whether the method that a bug replaces runs as a source here."""
    owner, name, _ = BUGS[bug]()
    return isinstance(owner.__dict__[name], FunctionType)


def found_in_sources(bug: str, first: int, count_max: int) -> bool:
    """Return whether a planted bug is found by a process that runs the sources."""
    program = (
        "import sys\n"
        "from barnabas.testing.simulation.broker import quiet_logs\n"
        "from tests.simulation.planted import seeds_until_found\n"
        "with quiet_logs():\n"
        f"    sys.exit(seeds_until_found({bug!r}, {first}, {count_max}) is None)\n"
    )
    path = os.pathsep.join([str(ROOT / "server"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, cwd=ROOT, check=False
    )
    return not done.returncode


@contextmanager
def planted(bug: str) -> Iterator[None]:
    """Have brokers do wrong what `bug` names."""
    owner, name, wrong = BUGS[bug]()
    assert fits(owner, name, wrong)
    right = owner.__dict__[name]
    setattr(owner, name, wrong)
    try:
        yield
    finally:
        setattr(owner, name, right)


def seeds_until_found(bug: str, first: int, count_max: int) -> tuple[int, str] | None:
    """Return how many seeds it takes until a planted bug is found, and what is said of it; None if it is not."""
    with planted(bug):
        for count in range(1, count_max + 1):
            _, broken = judged(first + count - 1)
            if broken:
                return count, broken[0]
    return None
