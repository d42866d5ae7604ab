"""Parts of a replica by themselves: counts of bytes, those who wait for an offset, subscribers, ends of epochs."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.cluster.metadata.changes import BrokerRegistered, TopicCreated
from barnabas.cluster.metadata.image import BrokerInfo, ClusterImage, PartitionInfo, TopicInfo
from barnabas.cluster.replicas import growth
from barnabas.cluster.replicas.epoch_ends import diverging_epoch, end_offset_for_epoch
from barnabas.cluster.replicas.growth import Growth
from barnabas.cluster.replicas.in_sync import changed_isr
from barnabas.cluster.replicas.subscribers import Subscribers
from barnabas.cluster.replicas.waiting import OffsetWaiters
from barnabas.cluster.replication.follower import EpochEnd
from barnabas.cluster.replication.leader import IsrChange
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from tests.support.logs import TOPIC_ID
from tests.support.replicas import Node

RUNS_SOURCES = True
"""Stand-ins here are for classes that may be compiled, where nothing else is taken for them."""

# --- growth -------------------------------------------------------------------------------------------------------


def grown(*appends: tuple[int, int]) -> Growth:
    """Appends of (size, log end offset) that are not committed yet."""
    counts = Growth()
    for size, end_offset in appends:
        counts.appended(size, 1)
        counts.note_uncommitted(end_offset)
    return counts


@pytest.mark.parametrize(
    ("high_watermark", "committed"), [(0, 0), (4, 0), (5, 100), (6, 100), (7, 130), (8, 130), (9, 137)]
)
def test_bytes_below_the_high_watermark_are_committed(high_watermark: int, committed: int) -> None:
    counts = grown((100, 5), (30, 7), (7, 9))
    counts.committed(high_watermark, 9)
    assert counts.committed_bytes == committed
    counts.committed(high_watermark, 9)
    assert counts.committed_bytes == committed


def test_appends_are_committed_one_after_the_other() -> None:
    counts = grown((100, 5), (30, 7))
    counts.committed(5, 7)
    counts.appended(7, 1)
    counts.note_uncommitted(9)
    counts.committed(7, 9)
    assert counts.committed_bytes == 130
    counts.committed(9, 9)
    assert counts.committed_bytes == 137
    counts.appended(1, 1)
    counts.note_uncommitted(10)
    counts.committed(9, 10)
    assert counts.committed_bytes == 137


def test_what_came_from_a_leader_is_counted_as_appended_too() -> None:
    counts = Growth()
    counts.appended(100, 3)
    counts.replicated(20, 2)
    assert (counts.appended_bytes, counts.appended_records) == (120, 5)
    assert (counts.replicated_bytes, counts.replicated_records) == (20, 2)


def test_of_very_many_appends_the_last_ones_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "UNCOMMITTED_APPENDS_MAX", 3)
    counts = grown((1, 1), (10, 2), (100, 3), (1_000, 4), (10_000, 5))
    for high_watermark, committed in ((2, 11), (3, 11), (4, 11), (5, 11_111)):
        counts.committed(high_watermark, 6)
        assert counts.committed_bytes == committed


@pytest.mark.parametrize("uncommitted", [0, 40])
def test_with_a_role_counting_begins_again(uncommitted: int) -> None:
    counts = grown((100, 5), (30, 7))
    counts.restart(7, uncommitted)
    assert counts.committed_bytes == 130 - uncommitted
    counts.committed(6, 7)
    assert counts.committed_bytes == 130 - uncommitted
    counts.committed(7, 9)
    assert counts.committed_bytes == 130


# --- waiting ------------------------------------------------------------------------------------------------------


async def test_who_waits_for_an_offset_is_woken_when_it_is_reached() -> None:
    waiters = OffsetWaiters()
    woken: list[int] = []

    async def wait(offset: int) -> None:
        await waiters.wait(offset)
        woken.append(offset)

    assert waiters.is_empty
    async with trio.open_nursery() as nursery:
        for offset in (5, 6, 7):
            nursery.start_soon(wait, offset)
        await trio.testing.wait_all_tasks_blocked()
        assert not waiters.is_empty
        for reached, expected in ((4, []), (6, [5, 6]), (7, [5, 6, 7])):
            waiters.reached(reached)
            await trio.testing.wait_all_tasks_blocked()
            assert sorted(woken) == expected
    assert waiters.is_empty


async def test_who_was_woken_in_time_meets_no_error_and_others_do() -> None:
    waiters = OffsetWaiters()
    outcomes: dict[int, int] = {}

    async def wait(offset: int) -> None:
        try:
            await waiters.wait(offset)
            outcomes[offset] = 0
        except RequestError as error:
            outcomes[offset] = error.code

    async with trio.open_nursery() as nursery:
        for offset in (5, 6):
            nursery.start_soon(wait, offset)
        await trio.testing.wait_all_tasks_blocked()
        waiters.reached(5)
        waiters.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        waiters.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # the first reason is told
    assert outcomes == {5: 0, 6: ErrorCode.KAFKA_STORAGE_ERROR}
    with trio.move_on_after(0):
        await waiters.wait(1)
    assert waiters.is_empty  # who gives up is forgotten


class Watcher:
    """Remembers what it is told, and ends itself with the first word."""

    def __init__(self, subscribers: Subscribers, *, ends: bool = False) -> None:
        self.subscribers = subscribers
        self.ends = ends
        self.seen: list[Any] = []

    def partition_advanced(self, replica: Any) -> None:
        self.seen.append(replica)
        if self.ends:
            self.subscribers.unsubscribe(self)

    def changed(self) -> None:
        self.seen.append("changed")


def test_each_subscriber_hears_of_what_it_has_asked_for() -> None:
    subscribers = Subscribers()
    of_end, of_high_watermark, once = (
        Watcher(subscribers),
        Watcher(subscribers),
        Watcher(subscribers, ends=True),
    )
    subscribers.subscribe(of_end, to_log_end=True)
    subscribers.subscribe(once)
    subscribers.subscribe(of_high_watermark)
    subscribers.end_moved("end")
    subscribers.high_watermark_moved("high watermark")
    subscribers.high_watermark_moved("again")
    assert of_end.seen == ["end"]
    assert once.seen == ["high watermark"]
    assert of_high_watermark.seen == ["high watermark", "again"]
    for watcher in (of_end, of_high_watermark):
        subscribers.unsubscribe(watcher)
    subscribers.end_moved("end")
    subscribers.high_watermark_moved("high watermark")
    assert (len(of_end.seen), len(of_high_watermark.seen)) == (1, 2)


def test_a_watch_hears_of_one_change() -> None:
    subscribers = Subscribers()
    one, other = Watcher(subscribers), Watcher(subscribers)
    subscribers.watch(one)
    subscribers.watch(other)
    subscribers.unwatch(other)
    for _ in range(2):
        subscribers.changed()
    assert (one.seen, other.seen) == (["changed"], [])


# --- ends of leader epochs ----------------------------------------------------------------------------------------


async def led(epoch: int, *written: int) -> Node:
    """Broker 1, which has appended a record in each of these leader epochs, and leads in another one."""
    node = Node(1)
    info = PartitionInfo(1, (1, 2), (1,), min((*written, epoch)), 0)
    await node.create(info)
    for each in (*written, epoch):
        info = info._replace(leader_epoch=each, partition_epoch=info.partition_epoch + 1)
        await node.change(info)
        if each != epoch:
            node.produce(b"a", b"b", acks=1)
    return node


@pytest.mark.parametrize(
    ("epoch", "end"),
    [
        (1, (1, 0)),
        (2, (2, 2)),
        (3, (2, 2)),
        (4, (4, 4)),
        (5, (4, 4)),
        (6, (4, 4)),
        (7, (7, 4)),
        (8, (-1, -1)),
    ],
)
async def test_a_leader_answers_for_its_own_epoch_before_it_has_written_in_it(
    epoch: int, end: tuple[int, int]
) -> None:
    node = await led(7, 2, 4)
    assert end_offset_for_epoch(node.replica, epoch) == end


@pytest.mark.parametrize(("epoch", "end"), [(2, (2, 0)), (3, (3, 0)), (4, (-1, -1))])
async def test_a_leader_of_an_empty_log_answers_for_epochs_up_to_its_own(
    epoch: int, end: tuple[int, int]
) -> None:
    node = await led(3)
    assert end_offset_for_epoch(node.replica, epoch) == end


async def test_a_follower_answers_for_what_it_has_written_only() -> None:
    node = await led(7, 2)
    await node.change(PartitionInfo(2, (1, 2), (2,), 8, 20))
    assert [end_offset_for_epoch(node.replica, epoch) for epoch in (2, 7, 8)] == [(2, 2), (-1, -1), (-1, -1)]


@pytest.mark.parametrize(
    ("epoch", "offset", "end"),
    [
        (2, 2, None),
        (2, 3, (2, 2)),
        (2, 1, None),
        (3, 2, (2, 2)),
        (4, 4, None),
        (4, 5, (4, 4)),
        (7, 4, None),
        (7, 5, (7, 4)),
    ],
)
async def test_a_fetcher_is_told_where_its_log_and_the_leaders_part(
    epoch: int, offset: int, end: tuple[int, int] | None
) -> None:
    node = await led(7, 2, 4)
    assert diverging_epoch(node.replica, epoch, offset) == (EpochEnd(*end) if end else None)


@pytest.mark.parametrize(("epoch", "offset"), [(8, 2), (8, 5), (4, 1), (4, 0)])
async def test_a_fetcher_that_knows_what_the_leader_does_not_is_out_of_range(epoch: int, offset: int) -> None:
    node = await led(7, 2, 4)
    node.replica.log.advance_high_watermark(4)
    node.replica.delete_records_before(2)
    assert diverging_epoch(node.replica, 4, 2) is None
    with pytest.raises(RequestError) as caught:
        diverging_epoch(node.replica, epoch, offset)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


# --- changes of the ISR that this broker decides on ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "topic", "code"),
    [
        ({}, {}, 0),
        ({"isr": {1, 2}}, {}, 0),
        ({}, {"id": b"another topic id"}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({}, {"name": "u"}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({}, {"partitions": ()}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"leader_epoch": 4}, {}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 6}, {}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 6}, {}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"partition_epoch": 8}, {}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": {2, 3}}, {}, ErrorCode.INVALID_REQUEST),
        ({"isr": {1, 4}}, {}, ErrorCode.INVALID_REQUEST),
        ({"isr": {1, 5}}, {}, ErrorCode.INELIGIBLE_REPLICA),
        ({"leader": 2}, {}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_a_proposal_is_refused_with_the_first_reason_that_holds(
    change: dict[str, Any], topic: dict[str, Any], code: int
) -> None:
    node = Node(1)
    info = PartitionInfo(1, (3, 1, 2, 5), (1, 3), 5, 7)
    await node.create(info)
    info = info._replace(leader=change.pop("leader", 1))
    image = ClusterImage("c").apply([
        *(BrokerRegistered(BrokerInfo(one, None, {})) for one in (1, 2, 4)),
        TopicCreated(TopicInfo(**{"name": "t", "id": TOPIC_ID, "partitions": (info,)} | topic)),
    ])  # fmt: skip
    proposed = IsrChange(**{"isr": frozenset({1, 2, 3}), "leader_epoch": 5, "partition_epoch": 7} | change)
    if code:
        with pytest.raises(RequestError) as caught:
            changed_isr(image, 1, node.replica, proposed)
        assert caught.value.code == code
    else:
        isr = (3, 1, 2) if 3 in proposed.isr else (1, 2)
        assert changed_isr(image, 1, node.replica, proposed) == info._replace(isr=isr, partition_epoch=8)
