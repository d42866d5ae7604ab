"""Fetches of consumers and of followers: what they read of a partition, and which partitions an answer leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cluster.metadata.image import PartitionInfo
from barnabas.cluster.replicas.replica import Replica
from barnabas.config.loading import BrokerConfig
from barnabas.errors import RequestError
from barnabas.handlers.fetch.passes import FetchPass
from barnabas.handlers.fetch.terms import FetchTerms
from barnabas.records.batch import read_header, read_records
from barnabas.serving.fetch_sessions import Session, SessionPartition
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from tests.support.contexts import new_context
from tests.support.logs import NOW_MS, batch
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
    offsets = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
    assert offsets == (START, STABLE, HIGH_WATERMARK, END)
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
    at, value = 0, None
    while at < len(raw):
        value = read_records(raw, at)[-1].value
        at += read_header(raw, at).size
    return value


def terms(
    version: int = 17, *, replica_id: int = -1, committed: bool = False, bytes_max: int = 1 << 20
) -> FetchTerms:
    """Terms of a fetch of a consumer, or of the broker `replica_id` since its epoch 20."""
    state = FetchRequest.ReplicaState(replica_id, -1 if replica_id < 0 else 20)
    request = FetchRequest(replica_state=state, isolation_level=int(committed), max_bytes=bytes_max)
    metadata: Any = None  # is asked for racks alone
    return FetchTerms(new_context(1, version), request, BrokerConfig({}), metadata)


def consumer(node: Node, session: Session | None = None, **options: Any) -> FetchPass:
    return FetchPass(terms(**options), node.replicas, session, [], is_first=True)


def follower(
    node: Node, broker: int = 2, session: Session | None = None, *, is_first: bool = True, **options: Any
) -> FetchPass:
    return FetchPass(terms(replica_id=broker, **options), node.replicas, session, [], is_first=is_first)


def code_of(reads: FetchPass, want: SessionPartition, topic: str = "t") -> int:
    """Return the error code with which a partition is answered; 0 if it is read."""
    try:
        reads.read_partition(topic, want)
    except RequestError as error:
        return error.code
    return 0


# --- consumers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("want", "code"),
    [
        (wanted(START), 0),
        (wanted(END), 0),
        (wanted(START - 1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (wanted(END + 1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (wanted(START, epoch=5), 0),
        (wanted(START, epoch=-2), 0),
        (wanted(START, epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
        (wanted(START, epoch=6), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (wanted(START, last=7), ErrorCode.OFFSET_OUT_OF_RANGE),
        (wanted(START, max_bytes=-1), ErrorCode.UNKNOWN_SERVER_ERROR),
        (wanted(HIGH_WATERMARK, max_bytes=-1), 0),
        (wanted(START, max_bytes=0), 0),
    ],
)
async def test_a_partition_is_read_or_refused(want: SessionPartition, code: int) -> None:
    node = await leading()
    assert code_of(consumer(node), want) == code
    assert code_of(consumer(node), want, "u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("version", "code"), [(10, ErrorCode.NOT_LEADER_OR_FOLLOWER), (11, 0)])
async def test_a_consumer_reads_from_a_follower_since_v11(version: int, code: int) -> None:
    node = await leading()
    await node.change(LED._replace(leader=2, leader_epoch=6, partition_epoch=8))
    reads = consumer(node, version=version)
    assert code_of(reads, wanted(START)) == code
    assert reads.following == ([] if code else [node.replica])


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
    node = await leading()
    reads = consumer(node)
    assert reads.is_quiet("t", want) is is_quiet
    assert reads.seen == ({node.replica: node.replica.growth.committed_bytes} if is_quiet else {})
    assert not reads.is_quiet("u", want)


async def test_committed_read_is_complete_at_the_last_stable_offset() -> None:
    node = await leading()
    for commits, expected in ((True, True), (False, False)):
        reads = consumer(node, committed=commits)
        assert reads.is_quiet("t", told(STABLE)) is expected
        assert not reads.is_quiet("t", told(STABLE - 1))


async def test_nothing_is_quiet_that_is_led_elsewhere() -> None:
    node = await leading()
    await node.change(LED._replace(leader=2, leader_epoch=6, partition_epoch=8))
    assert not consumer(node).is_quiet("t", told(HIGH_WATERMARK))
    assert not follower(node).is_quiet("t", told(END, epoch=6, last=5))


# --- followers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_first", [True, False])
async def test_follower_reads_to_the_log_end_and_reports_its_offset(is_first: bool) -> None:
    node = await leading()
    node.replica.follower_fetched(3, START, log_start_offset=4)
    before = node.replica.log.high_watermark
    reads = follower(node, is_first=is_first)
    data = reads.read_partition("t", wanted(END - 1, epoch=5, last=5))
    assert (data.partition_index, data.high_watermark, last_value(data)) == (0, before, b"8")
    assert (data.last_stable_offset, data.log_start_offset) == (STABLE, START)
    assert (data.error_code, data.aborted_transactions, data.preferred_read_replica) == (0, None, -1)
    assert reads.seen == {node.replica: node.replica.growth.appended_bytes}
    assert node.replica.follower_epoch(2) == (20 if is_first else -1)
    follower(node, is_first=is_first).read_partition("t", wanted(END, epoch=5, last=5))
    assert node.replica.log.high_watermark == (END if is_first else HIGH_WATERMARK)
    assert node.replica.low_watermark == (1 if is_first else 0)


@pytest.mark.parametrize(
    ("want", "broker", "code"),
    [
        (wanted(START, epoch=5, last=5), 2, 0),
        (wanted(START, epoch=5, last=-1), 2, 0),
        (wanted(START, epoch=-1, last=5), 2, 0),
        (wanted(START, epoch=5, last=6), 2, ErrorCode.OFFSET_OUT_OF_RANGE),
        (wanted(START, epoch=4, last=5), 2, ErrorCode.FENCED_LEADER_EPOCH),
        (wanted(START - 1, epoch=5, last=5), 2, ErrorCode.OFFSET_OUT_OF_RANGE),
        (wanted(END, epoch=5, last=5), 2, 0),
        (wanted(END + 1, epoch=5), 2, ErrorCode.OFFSET_OUT_OF_RANGE),
        (wanted(START, epoch=5, last=5, max_bytes=-1), 2, ErrorCode.UNKNOWN_SERVER_ERROR),
        (wanted(START, epoch=5, last=5), 4, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (wanted(START, epoch=-1, last=5), 4, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_of_a_follower_that_is_refused_no_position_is_noted(
    want: SessionPartition, broker: int, code: int
) -> None:
    node = await leading()
    assert code_of(follower(node, broker), want) == code
    assert node.replica.follower_epoch(broker) == (-1 if code else 20)


@pytest.mark.parametrize(("offset", "last", "told_end"), [(END + 1, 5, (5, END)), (END, 4, (4, START))])
async def test_diverged_follower_is_told_where_and_not_recorded(
    offset: int, last: int, told_end: tuple[int, int]
) -> None:
    node = await leading()
    reads = follower(node)
    data = reads.read_partition("t", wanted(offset, epoch=5, last=last))
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == told_end
    assert (data.error_code, data.records, reads.must_answer) == (0, b"", True)
    assert node.replica.follower_epoch(2) == -1


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
    data = follower(node, 3).read_partition("t", wanted(START, epoch=5))
    assert throttle.sizes == [len(data.records)]
    follower(node, 3).read_partition("t", wanted(END, epoch=5))
    assert len(throttle.sizes) == 1
    throttle.is_over = True
    held, in_sync = follower(node, 3), follower(node, 2)
    assert held.read_partition("t", wanted(START, epoch=5)).records == b""
    assert (held.size, held.remaining, held.seen) == (0, 1 << 20, {}), (
        "it does not wait for what is held back"
    )
    assert len(in_sync.read_partition("t", wanted(START, epoch=5)).records) == len(data.records)


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
async def test_caught_up_follower_is_recorded_and_told_nothing(
    fields: dict[str, Any], is_quiet: bool, is_noted: bool
) -> None:
    node = await leading()
    node.replica.follower_fetched(3, END, log_start_offset=0)
    want = told(END, **{"epoch": 5, "last": 5} | fields)
    reads = follower(node, 3)
    assert reads.is_quiet("t", want) is is_quiet
    assert node.replica.follower_epoch(3) == (20 if is_noted else -1)
    assert reads.seen == ({node.replica: node.replica.growth.appended_bytes} if is_quiet else {})
    assert not follower(node, 4).is_quiet("t", want)


# --- watches ------------------------------------------------------------------------------------------------------


class Reader:
    def __init__(self) -> None:
        self.watches: list[Any] = []

    def partition_changed(self, watch: Any) -> None:
        self.watches.append(watch)


@pytest.mark.parametrize("who", ["consumer", "follower in sync", "follower out of sync"])
@pytest.mark.parametrize("is_open", [True, False])
async def test_in_a_session_what_is_quiet_is_watched(who: str, is_open: bool) -> None:
    node = await leading()
    want = told(END, epoch=5, last=5) if who != "consumer" else told(HIGH_WATERMARK)
    session = Session(7, False, 0, {("t", 0): want})
    session.reader = reader = Reader()
    session.is_open = is_open
    if who == "consumer":
        reads = consumer(node, session)
    else:
        node.replica.follower_fetched(3, END, log_start_offset=0)
        broker = 2 if who == "follower in sync" else 3
        reads = follower(node, broker, session, is_first=False)
    is_watched = is_open and who != "follower out of sync"
    for _ in range(2):
        assert reads.is_quiet("t", want)
        assert (want.watch is not None) is is_watched
        assert bool(reads.seen) is not is_watched
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
    assert consumer(node, session).is_quiet("t", want)
    session.end()
    node.produce(b"9", acks=1)
    assert reader.watches == []
