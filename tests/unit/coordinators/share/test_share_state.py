"""The share coordinator on its runtime: names, what it asks its shards, and clearing away, by which nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.cluster.metadata.changes import TopicCreated
from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.cluster.metadata.partitioning import partition_for
from barnabas.coordinators.share import coordinator as share_coordinator
from barnabas.coordinators.share.batches import StateBatch
from barnabas.coordinators.share.coordinator import STATES_PER_BATCH, ShareStateCoordinator, key_of, name_of
from barnabas.coordinators.share.records import StateKey
from barnabas.coordinators.share.state import StateWrite
from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.errors import ErrorCode
from tests.support.journals import MemoryJournal
from tests.support.refusals import code_of

RUNS_SOURCES = True
"""Stand-ins here are for classes that may be compiled, where nothing else is taken for them."""

TOPIC, OTHER = bytes(range(16)), bytes(range(1, 17))
PARTITIONS = tuple(PartitionInfo(1, (1,), (1,)) for _ in range(120))
IMAGE = ClusterImage("cluster").apply(
    [TopicCreated(TopicInfo("topic", TOPIC, PARTITIONS)), TopicCreated(TopicInfo("other", OTHER, PARTITIONS))]
)
KEYS: list[StateKey] = [("group", TOPIC, index) for index in range(120)]


class Clock:
    now_ms = 1000

    def __call__(self) -> int:
        return self.now_ms


def coordinator(journal: MemoryJournal, clock: Clock | None = None) -> ShareStateCoordinator:
    return ShareStateCoordinator(journal, clock or Clock(), lambda: IMAGE, updates_max=500)


async def written(state: ShareStateCoordinator, times: int, keys: list[StateKey] = KEYS) -> None:
    """Write to each of these states so often."""
    for key in keys:
        for offset in range(times):
            await state.write_state(key, StateWrite(0, 0, offset, 1, (StateBatch(offset, offset, 2, 1),)))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 100 records, and more than 2 for each state, are to be cleared away."""
    monkeypatch.setattr(share_coordinator, "RECORDS_MIN", 100)
    monkeypatch.setattr(share_coordinator, "RECORDS_PER_STATE", 2)


@pytest.mark.usefixtures("few")
async def test_what_is_redundant_is_deleted_and_the_rest_is_read_again() -> None:
    journal, clock = MemoryJournal(), Clock()
    state = coordinator(journal, clock)
    for key in KEYS:
        await state.initialize(key, 0, 0)
    await state.prune()
    assert journal.start == 0, "there is nothing to gain"
    await written(state, 3)
    end = len(journal.records)
    clock.now_ms = 5000
    appends = journal.appends
    await state.prune()
    assert journal.start == end
    assert len(journal.records) == end + len(KEYS)
    assert journal.appends - appends == -(-len(KEYS) // STATES_PER_BATCH)
    before = [await state.summary(key) for key in KEYS]
    assert {(one.created_ms, one.written_ms) for one in before if one is not None} == {(1000, 5000)}
    again = coordinator(journal)
    assert [await again.summary(key) for key in KEYS] == before
    await state.prune()
    assert len(journal.records) == end + len(KEYS), "once is enough"


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("states", "times", "is_cleared"),
    [(1, 99, False), (1, 100, True), (60, 1, False), (60, 2, True)],
    ids=["few in all", "many in all", "few each", "many each"],
)
async def test_only_what_has_piled_up_is_cleared(states: int, times: int, is_cleared: bool) -> None:
    """The first record of a state counts, too."""
    journal = MemoryJournal()
    state = coordinator(journal)
    for key in KEYS[:states]:
        await state.initialize(key, 0, 0)
    await written(state, times, KEYS[:states])
    await state.prune()
    assert (journal.start > 0) is is_cleared


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("failure", [RequestError(ErrorCode.NOT_ENOUGH_REPLICAS),
                                     StorageError("/data", OSError(5, "broken"))])  # fmt: skip
async def test_what_cannot_be_written_again_is_not_deleted_and_only_logged(failure, caplog) -> None:
    journal = MemoryJournal()
    state = coordinator(journal)
    await state.initialize(KEYS[0], 0, 0)
    await written(state, 150, KEYS[:1])
    journal.append_failure = failure
    await state.prune()
    assert journal.start == 0
    assert "partition 0 of the share coordinator is not cleared" in caplog.text
    journal.append_failure = None
    assert await state.summary(KEYS[0]) is not None


@pytest.mark.usefixtures("few")
async def test_nothing_is_deleted_before_what_takes_its_place_is_committed(autojump_clock) -> None:
    journal = MemoryJournal()
    state = coordinator(journal)
    await state.initialize(KEYS[0], 0, 0)
    await written(state, 150, KEYS[:1])
    journal.commits = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(state.prune)
        await trio.testing.wait_all_tasks_blocked()
        assert (len(journal.records), journal.start) == (152, 0)
        journal.commits.set()
    assert journal.start == 151


async def test_a_shard_that_is_out_of_service_is_not_cleared(few, caplog) -> None:
    journal = MemoryJournal()
    state = coordinator(journal)
    await state.initialize(KEYS[0], 0, 0)
    await written(state, 150, KEYS[:1])
    [shard] = state._shards
    journal.failure = RequestError(ErrorCode.KAFKA_STORAGE_ERROR)
    state._shards.unload(shard, "a test")
    with pytest.raises(RequestError):
        await state.summary(KEYS[0])
    await state.prune()
    assert journal.start == 0


async def test_the_states_of_topics_that_are_gone_are_forgotten_and_others_are_not() -> None:
    journal = MemoryJournal()
    state = coordinator(journal)
    for key in (KEYS[0], KEYS[1], ("group", OTHER, 0)):
        await state.initialize(key, 0, 0)
    await state.forget_topics(frozenset({TOPIC}))
    assert [await state.summary(key) is None for key in KEYS[:2]] == [True, True]
    assert await state.summary(("group", OTHER, 0)) is not None
    assert len(journal.records) == 5


async def test_each_event_has_its_own_time_and_its_own_epoch() -> None:
    journal, clock = MemoryJournal(), Clock()
    state = coordinator(journal, clock)
    await state.initialize(KEYS[0], 4, 10)
    clock.now_ms = 2000
    assert (await state.read_state(KEYS[0], 9)).leader_epoch == 0, "the state as it was"
    clock.now_ms = 3000
    await state.write_state(KEYS[0], StateWrite(4, 9, 20, 3))
    found: Any = await state.summary(KEYS[0])
    assert (found.state_epoch, found.leader_epoch, found.start_offset, found.complete_count) == (4, 9, 20, 3)
    assert found.created_ms == 1000
    await state.delete(KEYS[0])
    assert await state.summary(KEYS[0]) is None


async def test_the_partition_of_a_state_is_that_of_its_name() -> None:
    journal = MemoryJournal()
    state = coordinator(journal)
    asked: list[str] = []

    async def partition_of(key: str) -> int:
        asked.append(key)
        return 0

    state._shards.partition_of = partition_of  # type: ignore[method-assign]
    await state.initialize(KEYS[7], 0, 0)
    assert asked == [name_of(KEYS[7])]
    assert partition_for(name_of(KEYS[7]), 50) != partition_for(name_of(KEYS[8]), 50)


# --- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["group", "a:b", ":", " "])
@pytest.mark.parametrize("index", [0, 119])
def test_a_share_partition_is_found_by_its_name(group: str, index: int) -> None:
    assert key_of(name_of((group, TOPIC, index))) == (group, TOPIC, index)


@pytest.mark.parametrize(
    "name",
    ["", "group", "group:topic:0", "group:AAECAwQFBgcICQoLDA0ODw:-1", "group:AAECAwQFBgcICQoLDA0ODw:",
     ":AAECAwQFBgcICQoLDA0ODw:0", "AAECAwQFBgcICQoLDA0ODw:0", "group:AAECAwQFBgcICQoLDA0ODw"],
)  # fmt: skip
def test_a_name_of_another_form_is_refused(name: str) -> None:
    assert code_of(key_of, name) == ErrorCode.INVALID_REQUEST
