"""A change is carried out however long it takes; its caller waits no longer than asked."""

from __future__ import annotations

import pytest
import trio

from barnabas.cluster.metadata.changes import TopicCreated
from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.cluster.metadata.timed_change import change_within
from tests.support.clusters import StandingImage

MADE = TopicCreated(TopicInfo("t", bytes(16), (PartitionInfo(1, (1,), (1,)),)))


class SlowStore(StandingImage):
    """A store that takes a while to decide, and longer until a change is seen."""

    def __init__(self, deciding: float, writing: float, waiting: float = 0) -> None:
        super().__init__(ClusterImage("c"))
        self.waiting = waiting
        self.deciding = deciding
        self.writing = writing
        self.nursery: trio.Nursery | None = None

    async def change(self, decide):
        await trio.sleep(self.waiting)
        changes = []
        for change in decide(self.image):
            if change is not None:
                changes.append(change)
            with trio.CancelScope(shield=True):
                await trio.sleep(self.deciding)
        done = trio.Event()

        async def carry_out() -> None:
            await trio.sleep(self.writing)
            await self.apply(changes)
            done.set()

        assert self.nursery is not None
        self.nursery.start_soon(carry_out)
        await done.wait()
        return self.image


@pytest.mark.parametrize(
    ("deciding", "writing", "timeout_ms", "in_time", "waited"),
    [
        (0, 1, 5_000, True, 1),
        (0, 10, 5_000, False, 5),
        (3, 1, 5_000, True, 4),
        (3, 10, 5_000, False, 5),
        (10, 10, 5_000, False, 10),
        (1, 10, 0, False, 1),
        (1, 10, -1, False, 1),
    ],
)
async def test_the_wait_ends_and_the_change_goes_on(
    deciding, writing, timeout_ms, in_time, waited, autojump_clock
) -> None:
    store = SlowStore(deciding, writing)
    async with trio.open_nursery() as store.nursery:
        began = trio.current_time()
        assert await change_within(store, lambda image: [MADE], timeout_ms) is in_time
        assert trio.current_time() - began == pytest.approx(waited)
        assert ("t" in store.image.topics) is in_time
    assert "t" in store.image.topics


@pytest.mark.parametrize(("timeout_ms", "waited"), [(5_000, 5), (0, 10), (-1, 10)])
async def test_who_waits_for_others_changes_waits_no_longer_either(
    timeout_ms, waited, autojump_clock
) -> None:
    store = SlowStore(deciding=0, writing=10, waiting=10)
    async with trio.open_nursery() as store.nursery:
        began = trio.current_time()
        assert not await change_within(store, lambda image: [MADE], timeout_ms)
        assert trio.current_time() - began == pytest.approx(waited)
    assert ("t" in store.image.topics) is (waited == 10)


async def test_what_decide_raises_is_raised() -> None:
    def decide(image):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await change_within(StandingImage(ClusterImage("c")), decide, 0)
