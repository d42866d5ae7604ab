"""A follower's log after each answer of its leader, also after one that comes too late."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.cluster.metadata.image import PartitionInfo
from barnabas.cluster.replicas.following import Fetched, FollowerLog, slices
from barnabas.cluster.replication.follower import EpochEnd
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


async def test_what_was_not_committed_is_cut_off_without_more(caplog: pytest.LogCaptureFixture) -> None:
    node, follower = await following(5, 5, 5, high_watermark=1)
    follower.diverged(EpochEnd(5, 1))
    assert state(node) == (0, 1, 1)
    assert "below its high watermark" not in caplog.text
    follower.diverged(EpochEnd(5, 0))
    assert "its leader has none of its records" in caplog.text


# --- slices -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [-1, 0, 1 << 20])
def test_what_is_no_batch_is_in_the_last_slice(length: int) -> None:
    good = at(0)
    bad = bytearray(good)
    bad[8:12] = (length & 0xFFFFFFFF).to_bytes(4, "big")
    assert [bytes(part) for part in slices(good * 100 + bytes(bad) + good)] == [good * 100, bytes(bad) + good]
