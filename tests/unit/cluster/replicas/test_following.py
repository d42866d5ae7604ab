"""A follower's log after each answer of its leader, also after one that comes too late."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.cluster.metadata.image import PartitionInfo
from barnabas.cluster.replicas.following import (
    SLICE_BATCHES,
    SLICE_BYTES,
    Fetched,
    FetchPosition,
    FollowerLog,
    slices,
)
from barnabas.cluster.replication.follower import EpochEnd
from barnabas.errors import RequestError
from tests.support.logs import NOW_MS, batch, rebase
from tests.support.replicas import Node

INFO = PartitionInfo(2, (1, 2), (1, 2), 5, 7)


def at(offset: int, *values: bytes, epoch: int = 5) -> bytes:
    data = batch(*values or (b"v",))
    rebase(data, 0, offset, epoch)
    return bytes(data)


async def following(*epochs: int, high_watermark: int = 0) -> tuple[Node, FollowerLog]:
    """A follower that has one record of each of these leader epochs."""
    node = Node(1)
    await node.create(INFO)
    follower = FollowerLog(node.replica, lambda: NOW_MS)
    for offset, epoch in enumerate(epochs):
        assert follower.fetched(follower.position, Fetched(at(offset, epoch=epoch), 0, 0))
    node.replica.log.advance_high_watermark(high_watermark)
    return node, follower


def state(node: Node) -> tuple[int, int, int]:
    log = node.replica.log
    return log.log_start_offset, log.high_watermark, log.log_end_offset


async def test_a_follower_asks_from_where_it_ends() -> None:
    node, follower = await following()
    assert follower.position == FetchPosition(0, -1, 5, 0)
    follower.fetched(follower.position, Fetched(at(0, b"a", b"b", epoch=4), 2, 1))
    assert follower.position == FetchPosition(2, 4, 5, 1)
    assert state(node) == (1, 2, 2)


@pytest.mark.parametrize(
    ("leaders", "known", "expected"), [(3, 0, 3), (9, 0, 4), (1, 2, 2), (0, 0, 0), (4, 4, 4)]
)
async def test_the_high_watermark_is_the_leaders_as_far_as_the_log_goes(
    leaders: int, known: int, expected: int
) -> None:
    node, follower = await following(5, 5, 5, high_watermark=known)
    assert follower.fetched(follower.position, Fetched(at(3), leaders, 0))
    assert state(node) == (0, expected, 4)


@pytest.mark.parametrize(("leaders", "start"), [(0, 0), (1, 1), (2, 2), (3, 0)])
async def test_the_log_begins_where_the_leaders_does_as_far_as_that_is_committed(
    leaders: int, start: int
) -> None:
    node, follower = await following(5, 5, 5, high_watermark=2)
    follower.fetched(follower.position, Fetched(b"", 2, leaders))
    assert state(node) == (start, 2, 3)


async def test_an_empty_log_begins_with_the_batch_that_the_leader_sends() -> None:
    node, follower = await following()
    node.replica.log.truncate_fully_and_start_at(15)
    assert follower.fetched(follower.position, Fetched(at(12, *[b"x"] * 5), 17, 15))
    assert state(node) == (15, 17, 17)
    assert node.replica.log.read(15, max_bytes=1 << 20, upper_offset=17).to_bytes()[:8] == (12).to_bytes(
        8, "big"
    )
    follower.fetched(follower.position, Fetched(at(17), 18, 15))
    assert state(node) == (15, 18, 18)


TOO_LATE: list[Callable[[Node], object]] = [
    lambda node: node.change(INFO._replace(leader_epoch=6, partition_epoch=8)),
    lambda node: node.change(INFO._replace(leader=1, leader_epoch=6, partition_epoch=8)),
    lambda node: node.change(INFO._replace(replicas=(2, 3), isr=(2,), leader_epoch=6, partition_epoch=8)),
]


@pytest.mark.parametrize("change", TOO_LATE, ids=["epoch", "leads", "gone"])
async def test_an_answer_that_comes_too_late_changes_nothing(change: Callable[[Node], object]) -> None:
    node, follower = await following(5, 5, high_watermark=1)
    asked, log = follower.position, node.replica.log
    assert follower.is_current
    await change(node)  # type: ignore[misc]
    assert not follower.is_current
    before = log.log_end_offset
    assert not follower.fetched(asked, Fetched(at(2), 3, 1))
    assert not follower.diverged(EpochEnd(5, 1))
    assert not follower.out_of_range(leader_start_offset=10, leader_end_offset=20)
    assert not follower.out_of_range(leader_start_offset=0, leader_end_offset=0)
    assert log.log_end_offset == before


async def test_an_answer_to_another_offset_is_left_out() -> None:
    node, follower = await following(5, 5)
    for offset in (1, 3):
        asked = follower.position._replace(fetch_offset=offset)
        assert not follower.fetched(asked, Fetched(at(offset), 9, 0))
        assert not follower.fetched(asked, Fetched(b"", 9, 0, EpochEnd(5, 1)))
    assert state(node) == (0, 0, 2)


@pytest.mark.parametrize(
    ("end", "log_end", "agree"),
    [((5, 9), 5, True), ((5, 4), 4, True), ((3, 2), 2, True), ((3, 9), 3, True), ((4, 4), 3, False),
     ((2, 1), 1, True), ((-1, 2), 2, True), ((-1, -1), 1, True)],
)  # fmt: skip
async def test_a_log_is_cut_where_it_and_the_leaders_agree(
    end: tuple[int, int], log_end: int, agree: bool
) -> None:
    for way in ("asked", "told"):
        node, follower = await following(2, 3, 3, 5, 5, high_watermark=1)
        if way == "asked":
            assert follower.diverged(EpochEnd(*end)) is agree
        else:
            assert follower.fetched(follower.position, Fetched(b"", 5, 0, EpochEnd(*end)))
        assert state(node) == (0, 1, log_end)
        assert follower.fetched(follower.position, Fetched(at(log_end, epoch=6), 1, 0))


@pytest.mark.parametrize(
    ("offset", "start", "is_kept"), [(0, 0, True), (1, 1, True), (1, 0, False), (2, 1, False), (0, 1, True)]
)
async def test_committed_records_that_the_leader_lacks_are_kept_aside_where_nothing_is_left(
    offset: int, start: int, is_kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    node, follower = await following(5, 5, 5, high_watermark=3)
    node.replica.log.delete_records_before(start)
    follower.diverged(EpochEnd(5, offset))
    assert node.replica.log.log_end_offset == offset
    kept = [one.name for one in node.disk.list("/d/t-0") if "truncated" in one.name]
    assert bool(kept) is is_kept
    assert ("its leader has none of its records" in caplog.text) is is_kept
    assert ("truncated below its high watermark 3" in caplog.text) is not is_kept


async def test_what_was_not_committed_is_cut_off_without_more(caplog: pytest.LogCaptureFixture) -> None:
    node, follower = await following(5, 5, 5, high_watermark=1)
    follower.diverged(EpochEnd(5, 1))
    assert state(node) == (0, 1, 1)
    assert "below its high watermark" not in caplog.text
    follower.diverged(EpochEnd(5, 0))
    assert "its leader has none of its records" in caplog.text


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 2, (0, 1, 2)),
        (1, 3, (0, 1, 3)),
        (0, 9, (0, 1, 3)),
        (7, 9, (7, 7, 7)),
        (3, 9, (0, 1, 3)),
        (4, 4, (4, 4, 4)),
    ],
)
async def test_out_of_range_a_log_is_cut_or_begins_again(
    start: int, end: int, expected: tuple[int, int, int]
) -> None:
    node, follower = await following(5, 5, 5, high_watermark=1)
    assert follower.out_of_range(leader_start_offset=start, leader_end_offset=end)
    assert state(node) == expected


async def test_a_log_without_epochs_is_cut_at_its_high_watermark() -> None:
    node, _ = await following(5, 5, 5, high_watermark=2)
    FollowerLog(node.replica, lambda: NOW_MS)
    assert state(node) == (0, 2, 3)  # it has epochs
    node.replica.log.epochs.clear()
    FollowerLog(node.replica, lambda: NOW_MS)
    assert state(node) == (0, 2, 2)


# --- slices -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(1, [1]), (SLICE_BATCHES, [SLICE_BATCHES]), (SLICE_BATCHES + 1, [SLICE_BATCHES, 1]),
     (2 * SLICE_BATCHES + 3, [SLICE_BATCHES, SLICE_BATCHES, 3])],
)  # fmt: skip
def test_so_many_batches_are_appended_at_once(count: int, sizes: list[int]) -> None:
    one = at(0)
    assert [len(part) // len(one) for part in slices(one * count)] == sizes


def of_size(size: int) -> bytes:
    """A batch of so many bytes, or the smallest one."""
    value = b"x" * max(size, 0)
    while value and (over := len(at(0, value)) - size) > 0:
        value = value[:-over]
    return at(0, value)


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [([SLICE_BYTES, 1], 2), ([SLICE_BYTES - 1, 1], 1), ([SLICE_BYTES - 1, 1, 1], 2), ([SLICE_BYTES * 3], 1),
     ([1, SLICE_BYTES * 3, 1], 2)],
)  # fmt: skip
def test_so_many_bytes_are_appended_at_once(sizes: list[int], parts: int) -> None:
    data = b"".join(map(of_size, sizes))
    found = [bytes(part) for part in slices(data)]
    assert b"".join(found) == data
    assert len(found) == parts


@pytest.mark.parametrize("length", [-1, 0, 1 << 20])
def test_what_is_no_batch_is_in_the_last_slice(length: int) -> None:
    good = at(0)
    bad = bytearray(good)
    bad[8:12] = (length & 0xFFFFFFFF).to_bytes(4, "big")
    assert [bytes(part) for part in slices(good * 100 + bytes(bad) + good)] == [good * 100, bytes(bad) + good]


@pytest.mark.parametrize("base", [0, 1, 2])
async def test_a_batch_that_begins_before_the_end_of_a_log_takes_nothing_from_it(base: int) -> None:
    node, follower = await following(5, 5, 5, high_watermark=1)
    before = state(node)
    with pytest.raises(Exception, match="offset") as caught:
        follower.fetched(follower.position, Fetched(at(base, b"x", b"y", b"z", b"z"), 7, 0))
    assert isinstance(caught.value, RequestError | ValueError)
    assert state(node) == before
