"""Looks of a leader for followers that are behind: they come sooner where records wait for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from barnabas.cluster.replicas.in_sync import shrink_periodically

LAG_MS = 30_000


class Partition:
    """Stands for a replica that leads; notes when it was asked to shrink its ISR."""

    def __init__(self, high_watermark: int, end_offset: int) -> None:
        self.log = SimpleNamespace(high_watermark=high_watermark, log_end_offset=end_offset)
        self.times: list[float] = []

    def shrink_isr(self) -> None:
        self.times.append(trio.current_time())


class Budget:
    async def checkpoint(self) -> None:
        await trio.lowlevel.checkpoint()


async def looked_at(*partitions: Partition, seconds: float) -> list[list[float]]:
    """Return when each of these partitions was looked at, in seconds after the beginning."""
    replicas: Any = SimpleNamespace(replicated=lambda: partitions)
    began = trio.current_time()
    with trio.move_on_after(seconds):
        await shrink_periodically(replicas, Budget(), lambda: LAG_MS)  # type: ignore[arg-type]
    return [[round(time - began, 3) for time in partition.times] for partition in partitions]


async def test_partition_with_uncommitted_records_is_looked_at_sooner(autojump_clock):
    times = await looked_at(Partition(5, 5), Partition(4, 5), seconds=31)
    assert times == [[15.0, 30.0], [3.0 * number for number in range(1, 11)]]


@pytest.mark.parametrize("committed_at", [0.5, 7.0])
async def test_partition_is_judged_by_what_is_uncommitted_now(autojump_clock, committed_at):
    partition = Partition(4, 5)

    async def commit() -> None:
        await trio.sleep(committed_at)
        partition.log.high_watermark = 5

    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit)
        [times] = await looked_at(partition, seconds=16)
    assert times == [*(3.0 * number for number in range(1, int(committed_at // 3) + 1)), 15.0]


async def test_each_of_many_partitions_is_looked_at(autojump_clock):
    times = await looked_at(*(Partition(0, 1) for _ in range(250)), seconds=4)
    assert times == [[3.0]] * 250
