"""Brokers of a cluster with two log dirs, one of which fails: others lead what was in it, and soon."""

from __future__ import annotations

import errno

import pytest
import trio

from barnabas.testing.memory_disk import MemoryDisk
from barnabas.testing.simulation.broker import quiet_logs
from barnabas.testing.simulation.world import World
from tests.support.programs import run_with
from tests.support.replicating import consume, in_world, produce
from tests.support.zookeeper_cluster import clustered

PARTITIONS = 6
SOON_S = 1.0
"""Sooner than a session ends, or a replica falls out of sync."""


def kept_in(disk: MemoryDisk, log_dir: str) -> set[int]:
    """The partitions with logs in a log dir."""
    return {int(entry.name.removeprefix("t-")) for entry in disk.list(log_dir) if entry.name.startswith("t-")}


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS])
@run_with(in_world)
async def test_what_was_in_a_log_dir_that_fails_is_led_by_others(world: World, number: int) -> None:
    async with clustered(world, 1, 2, 3, log_dirs="/data/a,/data/b") as cluster, cluster.client() as client:
        await cluster.create(client, "t", partitions=PARTITIONS)
        for index in range(PARTITIONS):
            await produce(client, b"a", index=index)
        victim = cluster.leader("t", 0)
        disk = cluster.machines[victim].disk
        log_dir = next(path for path in ("/data/a", "/data/b") if 0 in kept_in(disk, path))
        kept = kept_in(disk, log_dir)
        led = [index for index in kept if cluster.leader("t", index) == victim]

        def fault(asked: str, path: str) -> OSError | None:
            return OSError(number, "it fails") if asked == "write" and path.startswith(log_dir) else None

        with quiet_logs():
            disk.fault = fault
            begun = trio.current_time()
            await produce(client, b"b", index=led[0])  # the client asks again until another leads
            await cluster.until(lambda: all(cluster.leader("t", index) not in (-1, victim) for index in led))
            await cluster.until(lambda: all(victim not in cluster.isr("t", index) for index in kept))
        assert trio.current_time() - begun < SOON_S
        assert all(victim in cluster.isr("t", index) for index in range(PARTITIONS) if index not in kept)
        for index in range(PARTITIONS):
            if index != led[0]:
                await produce(client, b"b", index=index)
            assert await consume(client, index=index) == [b"a", b"b"]
        disk.fault = None
        with quiet_logs():
            cluster.machines[victim].kill()
            await cluster.start(victim)
        for index in range(PARTITIONS):
            await cluster.until(lambda index=index: cluster.isr("t", index) == {1, 2, 3})
            await cluster.until_equal(index=index)
