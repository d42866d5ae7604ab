"""Fetches of consumers and of followers: what they read of a partition, and which partitions an answer leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cluster.metadata.image import PartitionInfo
from barnabas.cluster.replicas.reading import ConsumerReads, FollowerReads
from barnabas.cluster.replicas.replica import Replica
from barnabas.records.batch import read_header, read_records
from barnabas.serving.fetch_sessions import Session, SessionPartition
from tests.support.logs import NOW_MS, batch, marker
from tests.support.replicas import Node

LED = PartitionInfo(1, (1, 2, 3), (1, 2), 5, 7)
START, STABLE, HIGH_WATERMARK, END = 2, 6, 8, 9
"""Offsets of the log that all tests read: no two are equal."""


async def leading() -> Node:
    """Two records in each batch; those of offsets 6 and 7 are part of a transaction, the last one is not committed."""
    node = Node(1)
    await node.create(LED)
    for n in range(3):
        node.produce(b"%d" % (2 * n), b"%d" % (2 * n + 1), acks=1)
    leader, log = node.replica, node.replica.log
    log.append_as_leader(
        batch(b"6", b"7", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
        leader_epoch=5, now_ms=NOW_MS,
    )  # fmt: skip
    node.produce(b"8", acks=1)
    leader.follower_fetched(2, HIGH_WATERMARK, log_start_offset=0)
    leader.delete_records_before(START)
    found = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
    assert found == (START, STABLE, HIGH_WATERMARK, END)
    return node


def wanted(offset: int, *, epoch: int = -1, last: int = -1, max_bytes: int = 1 << 20) -> SessionPartition:
    return SessionPartition("t", 0, offset, max_bytes, epoch, last, log_start_offset=1)


def told(offset: int, **fields: Any) -> SessionPartition:
    """A partition of which the fetcher was told all that is to be told."""
    want = wanted(offset, **{key: fields.pop(key) for key in ("epoch", "last") if key in fields})
    want.tell(HIGH_WATERMARK, STABLE, START, is_error=False)
    for name, value in fields.items():
        setattr(want, name, value)
    return want


def last_value(data: Any) -> bytes | None:
    raw = data.records.to_bytes() if hasattr(data.records, "to_bytes") else bytes(data.records)
    at, found = 0, None
    while at < len(raw):
        found = read_records(raw, at)[-1].value
        at += read_header(raw, at).size
    return found


# --- consumers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("commits", "last"), [(False, b"7"), (True, b"5")])
async def test_a_consumer_reads_up_to_what_is_committed(commits: bool, last: bytes) -> None:
    node, seen = await leading(), {}
    reads = ConsumerReads(node.replicas, seen, None, reads_committed=commits)
    data = reads.read("t", wanted(START), 1 << 20, True)
    assert data is not None
    assert (data.partition_index, data.error_code, data.high_watermark) == (0, 0, HIGH_WATERMARK)
    assert (data.last_stable_offset, data.log_start_offset) == (STABLE, START)
    assert (data.aborted_transactions, last_value(data)) == ([] if commits else None, last)
    assert seen == {node.replica: node.replica.growth.committed_bytes}


async def test_a_consumer_that_reads_what_is_committed_is_told_of_what_was_aborted() -> None:
    node = await leading()
    log = node.replica.log
    log.append_as_leader(
        batch(b"x", producer_id=2, producer_epoch=0, base_sequence=0, transactional=True),
        leader_epoch=5, now_ms=NOW_MS,
    )  # fmt: skip
    for producer_id, commit in ((1, False), (2, True)):
        node.replica.append_own(marker(commit=commit, producer_id=producer_id), now_ms=NOW_MS)
    node.replica.follower_fetched(2, log.log_end_offset, log_start_offset=0)
    reads = ConsumerReads(node.replicas, {}, None, reads_committed=True)
    data = reads.read("t", wanted(START), 1 << 20, True)
    assert data is not None
    assert data.aborted_transactions is not None
    assert [(one.producer_id, one.first_offset) for one in data.aborted_transactions] == [(1, STABLE)]


@pytest.mark.parametrize(
    ("want", "is_read"),
    [
        (wanted(START), True),
        (wanted(END), True),
        (wanted(START - 1), False),
        (wanted(END + 1), False),
        (wanted(START, epoch=5), True),
        (wanted(START, epoch=0), False),
        (wanted(START, epoch=6), False),
        (wanted(START, last=0), False),
        (wanted(START, max_bytes=-1), False),
        (wanted(START, max_bytes=0), True),
    ],
)
async def test_what_is_unusual_in_a_fetch_is_left_to_the_caller(
    want: SessionPartition, is_read: bool
) -> None:
    node, seen = await leading(), {}
    reads = ConsumerReads(node.replicas, seen, None, reads_committed=False)
    assert (reads.read("t", want, 1 << 20, True) is not None) is is_read
    assert bool(seen) is is_read
    assert reads.read("u", want, 1 << 20, True) is None
    await node.change(LED._replace(leader=2, leader_epoch=6, partition_epoch=8))
    assert reads.read("t", wanted(START), 1 << 20, True) is None


@pytest.mark.parametrize(
    ("max_bytes", "remaining", "at_least_one", "count"),
    [(1 << 20, 1, True, 1), (1, 1 << 20, True, 1), (1 << 20, 0, False, 0), (0, 1 << 20, False, 0),
     (1 << 20, -5, True, 1), (1 << 20, -5, False, 0), (2, 2, False, 2), (1 << 20, 2, False, 2), (2, 1 << 20, False, 2)],
)  # fmt: skip
async def test_the_smaller_limit_counts(
    max_bytes: int, remaining: int, at_least_one: bool, count: int
) -> None:
    node = await leading()
    (first,) = {len(batch(b"2", b"3"))}
    limits = [first * each if each == 2 else each for each in (max_bytes, remaining)]
    for reads in (
        ConsumerReads(node.replicas, {}, None, reads_committed=False),
        FollowerReads(node.replicas, {}, None, replica_id=2, broker_epoch=0, is_first=True),
    ):
        data = reads.read("t", wanted(START, epoch=5, max_bytes=limits[0]), limits[1], at_least_one)
        assert data is not None
        assert len(data.records) == count * first


QUIET = [
    (told(HIGH_WATERMARK), True),
    (told(END), True),
    (told(HIGH_WATERMARK - 1), False),
    (told(END + 1), False),
    (told(HIGH_WATERMARK, epoch=5), True),
    (told(HIGH_WATERMARK, epoch=4), False),
    (told(HIGH_WATERMARK, epoch=0), False),
    (told(HIGH_WATERMARK, last=0), False),
    (told(HIGH_WATERMARK, told_error=True), False),
    (told(HIGH_WATERMARK, told_high_watermark=STABLE), False),
    (told(HIGH_WATERMARK, told_last_stable_offset=START), False),
    (told(HIGH_WATERMARK, told_log_start_offset=0), False),
]


@pytest.mark.parametrize(("want", "is_quiet"), QUIET)
async def test_a_consumer_that_has_and_knows_all_is_told_nothing(
    want: SessionPartition, is_quiet: bool
) -> None:
    node, seen = await leading(), {}
    reads = ConsumerReads(node.replicas, seen, None, reads_committed=False)
    assert reads.is_quiet("t", want) is is_quiet
    assert seen == ({node.replica: node.replica.growth.committed_bytes} if is_quiet else {})
    assert not reads.is_quiet("u", want)


async def test_for_whom_reads_what_is_committed_all_is_up_to_the_last_stable_offset() -> None:
    node = await leading()
    for commits, expected in ((True, True), (False, False)):
        reads = ConsumerReads(node.replicas, {}, None, reads_committed=commits)
        assert reads.is_quiet("t", told(STABLE)) is expected
        assert not reads.is_quiet("t", told(STABLE - 1))


async def test_nothing_is_quiet_that_is_led_elsewhere() -> None:
    node = await leading()
    consumer = ConsumerReads(node.replicas, {}, None, reads_committed=False)
    follower = FollowerReads(node.replicas, {}, None, replica_id=2, broker_epoch=0, is_first=True)
    await node.change(LED._replace(leader=2, leader_epoch=6, partition_epoch=8))
    assert not consumer.is_quiet("t", told(HIGH_WATERMARK))
    assert not follower.is_quiet("t", told(END, epoch=6, last=5))


# --- followers ----------------------------------------------------------------------------------------------------


def follower(node: Node, seen: dict[Replica, int], broker: int = 2, **options: Any) -> FollowerReads:
    given = {"session": None, "is_first": True, "broker_epoch": 20} | options
    return FollowerReads(node.replicas, seen, replica_id=broker, **given)


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_follower_reads_up_to_the_log_end_and_says_how_far_it_is(is_first: bool) -> None:
    node, seen = await leading(), {}
    node.replica.follower_fetched(3, START, log_start_offset=4)
    before = node.replica.log.high_watermark
    data = follower(node, seen, is_first=is_first).read("t", wanted(END - 1, epoch=5, last=5), 1 << 20, True)
    assert data is not None
    assert (data.partition_index, data.high_watermark, last_value(data)) == (0, before, b"8")
    assert (data.last_stable_offset, data.log_start_offset) == (STABLE, START)
    assert seen == {node.replica: node.replica.growth.appended_bytes}
    assert node.replica.follower_epoch(2) == (20 if is_first else -1)
    follower(node, seen, is_first=is_first).read("t", wanted(END, epoch=5, last=5), 1 << 20, True)
    assert node.replica.log.high_watermark == (END if is_first else HIGH_WATERMARK)
    assert node.replica.low_watermark == (1 if is_first else 0)


@pytest.mark.parametrize(
    ("want", "broker", "is_read"),
    [
        (wanted(START, epoch=5, last=5), 2, True),
        (wanted(START, epoch=5, last=-1), 2, True),
        (wanted(START, epoch=5, last=4), 2, False),
        (wanted(START, epoch=5, last=6), 2, False),
        (wanted(START, epoch=4, last=5), 2, False),
        (wanted(START, epoch=-1, last=5), 2, False),
        (wanted(START - 1, epoch=5, last=5), 2, False),
        (wanted(END, epoch=5, last=5), 2, True),
        (wanted(END + 1, epoch=5, last=5), 2, False),
        (wanted(START, epoch=5, last=5, max_bytes=-1), 2, False),
        (wanted(START, epoch=5, last=5), 4, False),
    ],
)
async def test_what_is_unusual_in_a_followers_fetch_is_left_to_the_caller(
    want: SessionPartition, broker: int, is_read: bool
) -> None:
    node, seen = await leading(), {}
    assert (follower(node, seen, broker).read("t", want, 1 << 20, True) is not None) is is_read
    assert bool(seen) is is_read
    assert node.replica.follower_epoch(broker) == (20 if is_read else -1)


class Throttle:
    def __init__(self, *, holds: bool) -> None:
        self.is_over = holds
        self.sizes: list[int] = []

    def holds(self, replica: Replica) -> bool:
        return self.is_over

    def used(self, replica: Replica, size: int) -> None:
        self.sizes.append(size)


async def test_what_a_follower_is_sent_is_counted_and_may_be_too_much() -> None:
    node = await leading()
    throttle = node.replica._context.leader_throttle = Throttle(holds=False)
    data = follower(node, {}, 3).read("t", wanted(START, epoch=5), 1 << 20, True)
    assert data is not None
    assert throttle.sizes == [len(data.records)]
    follower(node, {}, 3).read("t", wanted(END, epoch=5), 1 << 20, True)
    assert len(throttle.sizes) == 1
    throttle.is_over = True
    assert follower(node, {}, 3).read("t", wanted(START, epoch=5), 1 << 20, True) is None
    assert follower(node, {}, 2).read("t", wanted(START, epoch=5), 1 << 20, True) is not None


@pytest.mark.parametrize(
    ("fields", "is_quiet", "is_noted"),
    [
        ({}, True, True),
        ({"told_high_watermark": STABLE}, False, True),
        ({"told_last_stable_offset": START}, False, True),
        ({"told_log_start_offset": 0}, False, True),
        ({"told_error": True}, False, False),
        ({"fetch_offset": END - 1}, False, False),
        ({"fetch_offset": END + 1}, False, False),
        ({"last": 4}, False, False),
        ({"last": -1}, False, False),
        ({"epoch": 4}, False, False),
        ({"epoch": -1}, False, False),
    ],
)
async def test_a_follower_that_has_and_knows_all_is_noted_and_told_nothing(
    fields: dict[str, Any], is_quiet: bool, is_noted: bool
) -> None:
    node, seen = await leading(), {}
    node.replica.follower_fetched(3, END, log_start_offset=0)
    want = told(END, **{"epoch": 5, "last": 5} | fields)
    assert follower(node, seen, 3).is_quiet("t", want) is is_quiet
    assert node.replica.follower_epoch(3) == (20 if is_noted else -1)
    assert seen == ({node.replica: node.replica.growth.appended_bytes} if is_quiet else {})
    assert not follower(node, seen, 4).is_quiet("t", want)


# --- watches ------------------------------------------------------------------------------------------------------


class Reader:
    def __init__(self) -> None:
        self.watches: list[Any] = []

    def partition_changed(self, watch: Any) -> None:
        self.watches.append(watch)


@pytest.mark.parametrize("who", ["consumer", "follower in sync", "follower out of sync"])
@pytest.mark.parametrize("is_open", [True, False])
async def test_in_a_session_what_is_quiet_is_watched(who: str, is_open: bool) -> None:
    node, seen = await leading(), {}
    want = told(END, epoch=5, last=5) if who != "consumer" else told(HIGH_WATERMARK)
    session = Session(7, False, 0, {("t", 0): want})
    session.reader = reader = Reader()
    session.is_open = is_open
    if who == "consumer":
        reads: Any = ConsumerReads(node.replicas, seen, session, reads_committed=False)
    else:
        node.replica.follower_fetched(3, END, log_start_offset=0)
        broker = 2 if who == "follower in sync" else 3
        reads = follower(node, seen, broker, session=session, is_first=False)
    is_watched = is_open and who != "follower out of sync"
    for _ in range(2):
        assert reads.is_quiet("t", want)
        assert (want.watch is not None) is is_watched
        assert bool(seen) is not is_watched
    assert bool(session.changed) is not is_watched
    watch = want.watch
    node.produce(b"9", acks=1)
    assert reader.watches == ([watch] if is_watched else [])
    assert want.watch is None
    assert session.changed == {("t", 0): want}


async def test_a_watch_that_ended_hears_nothing() -> None:
    node = await leading()
    want = told(HIGH_WATERMARK)
    session = Session(7, False, 0, {("t", 0): want})
    session.reader = reader = Reader()
    assert ConsumerReads(node.replicas, {}, session, reads_committed=False).is_quiet("t", want)
    session.end()
    node.produce(b"9", acks=1)
    assert reader.watches == []
