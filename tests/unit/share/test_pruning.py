"""The share coordinator on its runtime: what has piled up is cleared away, and nothing is lost by it."""

from __future__ import annotations

import pytest

from barnabas.cluster.changes import TopicCreated
from barnabas.cluster.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.coordination import share_state
from barnabas.coordination.share_state import ShareStateCoordinator
from barnabas.share.batches import StateBatch
from barnabas.share.state import StateWrite
from tests.support.journals import MemoryJournal

TOPIC = bytes(range(16))
IMAGE = ClusterImage("cluster").apply(
    [TopicCreated(TopicInfo("topic", TOPIC, tuple(PartitionInfo(1, (1,), (1,)) for _ in range(120))))]
)


def coordinator(journal: MemoryJournal) -> ShareStateCoordinator:
    return ShareStateCoordinator(journal, lambda: 1000, lambda: IMAGE, updates_max=500)


async def test_what_is_redundant_is_deleted_and_the_rest_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share_state, "RECORDS_MIN", 100)
    monkeypatch.setattr(share_state, "RECORDS_PER_STATE", 2)
    journal = MemoryJournal()
    state = coordinator(journal)
    keys = [("group", TOPIC, index) for index in range(120)]
    for key in keys:
        await state.initialize(key, 0, 0)
    await state.prune()
    assert journal.start == 0, "there is nothing to gain"
    for key in keys:
        for offset in range(3):
            batch = StateBatch(offset, offset, 2, 1)
            await state.write(key, StateWrite(0, 0, offset, 1, (batch,)))
    written = len(journal.records)
    await state.prune()
    assert journal.start == written
    assert len(journal.records) == written + len(keys)
    before = [await state.summary(key) for key in keys]
    again = coordinator(journal)
    assert [await again.summary(key) for key in keys] == before
    await state.prune()
    assert len(journal.records) == written + len(keys), "once is enough"
