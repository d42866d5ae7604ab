"""Members of KIP-848 that join at the same moment: what one of them has gone through, the others need not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import trio

from barnabas.environment.real import OsThreads
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.broker import Asked, ask_for_topic, broker_to_ask

T = TypeVar("T")
MEMBERS = 50
PARTITIONS = 600  # more than an event of the event loop goes through


class CountingThreads(OsThreads):
    """Threads that count the events which were decided in them."""

    events = 0

    async def run(self, work: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None) -> T:
        if "decide_aside" in repr(work):
            self.events += 1
        return await super().run(work, limiter=limiter)


async def join(asked: Asked, joined: list[str]) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_epoch=0, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"],
        topic_partitions=[],
    )  # fmt: skip
    response = await asked(request, 0)
    assert response.error_code == 0
    joined.append(response.member_id)


async def test_topic_hash_makes_one_join_large_not_all_waiting(tmp_path: Path) -> None:
    threads = CountingThreads()
    async with broker_to_ask(tmp_path, {"offsets.topic.num.partitions": "1"}, threads=threads) as asked:
        await ask_for_topic(asked, partitions=PARTITIONS)
        joined: list[str] = []
        async with trio.open_nursery() as nursery:
            for _ in range(MEMBERS):
                nursery.start_soon(join, asked, joined)
        assert len(set(joined)) == MEMBERS
        assert 1 <= threads.events <= 3
