"""The share coordinator on its runtime: names of states, and the deletion of redundant records."""

from __future__ import annotations

import pytest

from barnabas.cluster.metadata.changes import TopicCreated
from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.coordinators.share.batches import StateBatch
from barnabas.coordinators.share.coordinator import RECORDS_MIN, ShareStateCoordinator, key_of
from barnabas.coordinators.share.records import StateKey
from barnabas.coordinators.share.state import StateWrite
from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.errors import ErrorCode
from tests.support.journals import MemoryJournal
from tests.support.refusals import code_of

TOPIC, OTHER = bytes(range(16)), bytes(range(1, 17))
PARTITIONS = tuple(PartitionInfo(1, (1,), (1,)) for _ in range(2))
IMAGE = ClusterImage("cluster").apply(
    [TopicCreated(TopicInfo("topic", TOPIC, PARTITIONS)), TopicCreated(TopicInfo("other", OTHER, PARTITIONS))]
)
KEYS: list[StateKey] = [("group", TOPIC, 0), ("group", TOPIC, 1), ("group", OTHER, 0)]


def coordinator_on(journal: MemoryJournal) -> ShareStateCoordinator:
    return ShareStateCoordinator(journal, lambda: 1_000, lambda: IMAGE, updates_max=500)


async def written(journal: MemoryJournal, count: int) -> ShareStateCoordinator:
    """A coordinator of three states, with so many writes to each."""
    coordinator = coordinator_on(journal)
    for key in KEYS:
        await coordinator.initialize(key, 0, 0)
        for offset in range(count):
            await coordinator.write_state(
                key, StateWrite(0, 0, offset, 1, (StateBatch(offset, offset, 2, 1),))
            )
    return coordinator


async def test_redundant_records_are_deleted_and_states_survive() -> None:
    journal = MemoryJournal()
    coordinator = await written(journal, RECORDS_MIN // 3)
    end = len(journal.records)
    await coordinator.prune()
    assert (journal.start, len(journal.records)) == (end, end + len(KEYS))
    before = [await coordinator.summary(key) for key in KEYS]
    again = coordinator_on(journal)
    assert [await again.summary(key) for key in KEYS] == before
    await coordinator.prune()
    assert (journal.start, len(journal.records)) == (end, end + len(KEYS)), "once is enough"


async def test_few_records_are_not_deleted() -> None:
    journal = MemoryJournal()
    await (await written(journal, 9)).prune()
    assert journal.start == 0


@pytest.mark.parametrize(
    "failure", [RequestError(ErrorCode.NOT_ENOUGH_REPLICAS), StorageError("/data", OSError(5, "broken"))]
)
async def test_failed_snapshots_delete_nothing_and_are_logged(failure, caplog) -> None:
    journal = MemoryJournal()
    coordinator = await written(journal, RECORDS_MIN // 3)
    journal.append_failure = failure
    await coordinator.prune()
    assert journal.start == 0
    assert "redundant records in partition 0 of the share coordinator are not deleted" in caplog.text
    journal.append_failure = None
    assert await coordinator.summary(KEYS[0]) is not None


async def test_states_of_deleted_topics_end_and_others_stay() -> None:
    coordinator = await written(MemoryJournal(), 1)
    await coordinator.forget_topics(frozenset({TOPIC}))
    assert [await coordinator.summary(key) is None for key in KEYS] == [True, True, False]


@pytest.mark.parametrize(
    "name",
    ["", "group", "group:topic:0", "group:AAECAwQFBgcICQoLDA0ODw:-1", "group:AAECAwQFBgcICQoLDA0ODw:",
     ":AAECAwQFBgcICQoLDA0ODw:0", "AAECAwQFBgcICQoLDA0ODw:0", "group:AAECAwQFBgcICQoLDA0ODw"],
)  # fmt: skip
def test_state_name_of_another_form_is_refused(name: str) -> None:
    assert code_of(key_of, name) == ErrorCode.INVALID_REQUEST
