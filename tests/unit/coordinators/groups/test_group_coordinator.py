"""The group coordinator between its log and its groups: transactions, work that is done aside, and what is large."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

from barnabas.config.features import RecordVersions
from barnabas.coordinators.groups import expiry
from barnabas.coordinators.groups.coordinator import (
    TARGETS_AT_ONCE,
    TARGETS_COMPARED_AT_ONCE,
    GroupCoordinator,
    _is_large_part,
    _is_large_timer,
)
from barnabas.coordinators.groups.generation import RecordNeeded
from barnabas.coordinators.groups.records import CommittedOffset
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.runtime.shard import Shard
from barnabas.coordinators.statemachine.decision import EVENT_SIZE_MAX, Decision, Entry
from barnabas.errors import PeerError, RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records.group_metadata import GroupMetadataValue
from tests.support.journals import MemoryJournal

RUNS_SOURCES = True
"""Stand-ins here are for classes that may be compiled, where nothing else is taken for them."""

NOW_MS = 4_000
KEY, UNKNOWN_KEY = b"\0\2\0\1g", b"\0\x63"


class Machine:
    """Stands for a shard of groups: notes what it is told, in order; `answers` are given in turn."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.answers: list[Any] = []
        self.is_readable = True
        self.sizes: dict[str, int] = {}

    def replay(self, key: bytes, value: bytes | None, *, loading: bool, producer_id: int) -> None:
        if not self.is_readable:
            raise PeerError("cannot be read")
        self.told.append(("replay", key, value, loading, producer_id))

    def replay_said(self, said: Any, producer_id: int) -> None:
        self.told.append(("said", said, producer_id))

    def transaction_ended(self, producer_id: int, *, committed: bool, loading: bool = False) -> None:
        self.told.append(("ended", producer_id, committed, loading))

    def loaded(self, now_ms: int, out: Decision) -> None:
        """Nothing follows."""

    def event_size(self, group_id: str, member_id: str) -> int:
        return self.sizes[group_id] if member_id == "m" else 0

    def share_state_size(self, group_id: str) -> int:
        return self.sizes.get(group_id, 0)

    def _note(self, what: str, *said: Any) -> Any:
        self.told.append((what, *said))
        return self.answers.pop(0) if self.answers else None

    def keep_generation(self, needed: RecordNeeded, record: Any, out: Decision) -> bool:
        kept = bool(self._note("keep", needed.group_id, record[0]))
        if kept:
            out.records.append(record)
        return kept

    def generation_kept(self, needed: RecordNeeded, code: int, now_ms: int, out: Decision) -> None:
        self._note("kept", needed.generation, code, now_ms)

    def write_part_of_target(self, needed: Any, part: Any, now_ms: int, out: Decision) -> bool:
        return bool(self._note("part", [member_id for member_id, _ in part], now_ms))

    def target_computed(self, needed: Any, target: Any, now_ms: int, out: Decision) -> None:
        self._note("computed", target if target is None else len(target), now_ms)

    def delete_group(self, group_id: str, out: Decision) -> bool:
        return bool(self._note("delete", group_id))

    @property
    def groups(self) -> dict[str, Any]:
        self.told.append(("share groups",))
        return {}


class Target:
    """An assignment that is needed."""

    group_id = "g"

    def __init__(self, *sizes: int, failure: Exception | None = None) -> None:
        self.sizes = sizes
        self.failure = failure

    def compute(self) -> Any:
        if self.failure is not None:
            raise self.failure
        return {f"m{number}": frozenset(range(size)) for number, size in enumerate(self.sizes)}


class Threads:
    """Counts what is done in threads."""

    def __init__(self) -> None:
        self.runs = 0

    async def run(self, work: Any) -> Any:
        self.runs += 1
        return work()


class World:
    def __init__(self, threads: Threads | None = None) -> None:
        self.journal = MemoryJournal([(KEY, b"")])
        self.machine = Machine()
        self.coordinator = GroupCoordinator(
            self.journal, GroupSettings(), lambda: NOW_MS, None, threads=threads,  # type: ignore[arg-type]
        )  # fmt: skip
        self.coordinator._shards._make = lambda: self.machine  # type: ignore[assignment, return-value]

    async def shard(self) -> Shard[Any]:
        """The only shard, read; what was told until then is forgotten."""
        await self.coordinator.read("g", lambda machine: machine)
        self.machine.told.clear()
        shard = self.coordinator._shards.get(0)
        assert shard is not None
        return shard


# --- the log --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loading", [True, False])
@pytest.mark.parametrize("producer_id", [-1, 7])
def test_a_record_is_replayed_as_it_was_read_unless_it_is_known_what_it_says(loading, producer_id):
    world = World()
    said = CommittedOffset("g", ("t", 0), None)
    entry = Entry([(b"a", b"1"), (b"b", None), (b"c", b"3")], producer_id, decoded={1: said})
    world.coordinator._replay(0, world.machine, entry, loading=loading)  # type: ignore[arg-type]
    assert world.machine.told == [
        ("replay", b"a", b"1", loading, producer_id),
        ("said", said, producer_id),
        ("replay", b"c", b"3", loading, producer_id),
    ]


@pytest.mark.parametrize("loading", [True, False])
@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_ends_the_transaction_of_its_producer(committed, loading):
    world = World()
    world.coordinator._replay(0, world.machine, Entry([], 7, committed), loading=loading)  # type: ignore[arg-type]
    assert world.machine.told == [("ended", 7, committed, loading)]


@pytest.mark.parametrize(
    ("key", "level", "why"),
    [
        (KEY, logging.ERROR, "no coordinator can have written it: cannot be read"),
        (b"\0", logging.ERROR, "no coordinator can have written it: cannot be read"),
        (UNKNOWN_KEY, logging.WARNING, "its type 99 is not known; a newer version may have written it"),
    ],
)
@pytest.mark.parametrize(("offsets", "where"), [([40, 41], "offset 41"), ([], "the end")])
def test_a_record_that_cannot_be_read_is_named_and_those_beside_it_count(
    key, level, why, offsets, where, caplog
):
    world = World()

    def replay(read: bytes, *args: Any, **options: Any) -> None:
        if read == key:
            raise PeerError("cannot be read")
        world.machine.told.append(read)

    world.machine.replay = replay  # type: ignore[method-assign, assignment]
    entry = Entry([(b"first", b""), (key, b"")], offsets=offsets)
    world.coordinator._replay(3, world.machine, entry, loading=True)  # type: ignore[arg-type]
    assert world.machine.told == [b"first"]
    [line] = caplog.records
    assert line.levelno == level
    text = f"__consumer_offsets-3: the record at {where} is left out, and changes nothing: {why}"
    assert line.getMessage() == text


@pytest.mark.parametrize("committed", [True, False])
async def test_a_marker_that_was_appended_counts_at_once_in_the_shard_of_its_partition(committed):
    world = World()
    await world.shard()
    world.coordinator.transaction_ended(1, 7, committed=committed)
    assert world.machine.told == []
    world.coordinator.transaction_ended(0, 7, committed=committed)
    assert world.machine.told == [("ended", 7, committed, False)]


async def test_a_marker_is_left_to_who_reads_a_shard_that_is_not_in_service():
    world = World()
    world.coordinator.transaction_ended(0, 7, committed=True)
    assert world.machine.told == [], "nobody has asked for the shard"
    shard = await world.shard()
    shard.unload(RequestError(ErrorCode.NOT_COORDINATOR))
    world.coordinator.transaction_ended(0, 7, committed=True)
    assert world.machine.told == []


async def test_a_marker_waits_for_the_end_of_what_has_the_shard_in_a_thread():
    world = World()
    shard = await world.shard()
    with shard.hold():
        world.coordinator.transaction_ended(0, 7, committed=True)
        assert world.machine.told == []
    assert world.machine.told == [("ended", 7, True, False)]


# --- aside ----------------------------------------------------------------------------------------------------

NEEDED = RecordNeeded("g", 5, GroupMetadataValue(), (), {}, RecordVersions())


@pytest.mark.parametrize("aside", [True, False])
async def test_a_large_generation_is_in_the_log_before_its_members_have_it(aside):
    threads = Threads() if aside else None
    world = World(threads)
    shard = await world.shard()
    before = 0 if threads is None else threads.runs
    world.machine.answers = [True]
    await world.coordinator.take_effect(NEEDED, shard)
    key = NEEDED.compute()[0]
    assert [one[:2] for one in world.machine.told if one[0] != "replay"] == [("keep", "g"), ("kept", 5)]
    assert world.machine.told[-1] == ("kept", 5, 0, NOW_MS)
    assert world.journal.records[-1][0] == key
    assert threads is None or threads.runs == before + 1


async def test_a_generation_that_is_the_groups_no_more_is_not_told_to_anybody():
    world = World()
    shard = await world.shard()
    await world.coordinator.take_effect(NEEDED, shard)
    assert [one[0] for one in world.machine.told] == ["keep"]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_generation_that_cannot_be_written_is_told_with_the_error(is_lost, caplog):
    world = World()
    shard = await world.shard()
    world.machine.answers = [True]
    if is_lost:
        shard.unload(RequestError(ErrorCode.NOT_COORDINATOR))
    world.journal.append_failure = RequestError(ErrorCode.MESSAGE_TOO_LARGE)
    await world.coordinator.take_effect(NEEDED, shard)
    assert "the assignment of group 'g' cannot be written" in caplog.text
    if is_lost:
        assert world.machine.told == []
        assert "the assignment of group 'g' is not known to its members" in caplog.text
    else:
        assert world.machine.told[-1] == ("kept", 5, ErrorCode.UNKNOWN_SERVER_ERROR, NOW_MS)


async def test_a_target_is_written_some_members_at_a_time_then_compared_and_then_it_counts():
    world = World(threads := Threads())
    shard = await world.shard()
    before = threads.runs
    count = TARGETS_COMPARED_AT_ONCE + 1
    world.machine.answers = [True] * 1_000
    await world.coordinator.take_effect(Target(*[1] * count), shard)  # type: ignore[arg-type]
    parts = [names for what, names, _ in world.machine.told[:-1] if what == "part"]
    everybody = [f"m{number}" for number in range(count)]
    writes = -(-count // TARGETS_AT_ONCE)
    assert [len(names) for names in parts[: writes - 1]] == [TARGETS_AT_ONCE] * (writes - 1)
    assert [len(names) for names in parts[writes:]] == [TARGETS_COMPARED_AT_ONCE, 1]
    for some in (parts[:writes], parts[writes:]):
        assert [name for names in some for name in names] == everybody
    assert world.machine.told[-1] == ("computed", count, NOW_MS)
    assert threads.runs == before + 2, (
        "computed, and compared where the members of a part have very much together"
    )


async def test_a_target_that_is_needed_no_more_is_not_written_to_its_end():
    world = World()
    shard = await world.shard()
    world.machine.answers = [True, False]
    await world.coordinator.take_effect(Target(*[1] * 200), shard)  # type: ignore[arg-type]
    assert [one[0] for one in world.machine.told] == ["part", "part", "computed"]


async def test_a_group_is_told_of_a_target_that_could_not_be_computed(caplog):
    world = World()
    shard = await world.shard()
    await world.coordinator.take_effect(Target(failure=ValueError("broken")), shard)  # type: ignore[arg-type]
    assert world.machine.told == [("computed", None, NOW_MS)]
    assert "the assignment of group 'g' cannot be computed" in caplog.text


async def test_a_target_of_a_shard_that_is_gone_is_left_to_who_has_it_now(caplog):
    world = World()
    shard = await world.shard()
    shard.unload(RequestError(ErrorCode.NOT_COORDINATOR))
    await world.coordinator.take_effect(Target(1), shard)  # type: ignore[arg-type]
    assert world.machine.told == []
    assert "the assignment of group 'g' is not written" in caplog.text


# --- what is large --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "is_large"), [(EVENT_SIZE_MAX, False), (EVENT_SIZE_MAX + 1, True)])
def test_only_the_end_of_a_member_with_very_much_is_a_large_event(size, is_large):
    machine: Any = Machine()
    machine.sizes = {"g": size}
    assert _is_large_timer(machine, ("session", "g", "m")) is is_large
    assert not _is_large_timer(machine, ("session", "g", "another"))
    assert not _is_large_timer(machine, ("join", "g"))
    assert (
        _is_large_part([("a", frozenset(range(1))), ("b", frozenset(range(size - 1)))], machine) is is_large
    )


@pytest.mark.parametrize(("size", "runs"), [(EVENT_SIZE_MAX, 0), (EVENT_SIZE_MAX + 1, 2)])
async def test_a_group_is_deleted_in_as_many_events_as_it_takes_aside_if_its_states_are_many(size, runs):
    world = World(threads := Threads())
    await world.shard()
    before = threads.runs
    world.machine.sizes = {"g": size}
    world.machine.answers = [True, False, True]
    await world.coordinator.delete_group("g")
    assert world.machine.told == [("delete", "g")] * 2
    assert threads.runs == before + runs


# --- time and topics ------------------------------------------------------------------------------------------


def noting(name: str) -> Any:
    """Stand for a function that makes events of a shard."""

    def note(machine: Machine, *arguments: Any) -> list[Any]:
        machine.told.append((name, *arguments))
        return []

    return note


async def test_what_expires_does_as_of_now(monkeypatch):
    monkeypatch.setattr(expiry, "expiring", noting("expiring"))
    world = World()
    await world.shard()
    await world.coordinator.expire_offsets()
    assert world.machine.told == [("expiring", NOW_MS)]


async def test_topics_that_are_gone_are_forgotten_by_offsets_and_by_share_groups(monkeypatch):
    monkeypatch.setattr(expiry, "forgetting_topics", noting("forgetting"))
    world = World()
    await world.shard()
    await world.coordinator.forget_topics(frozenset({"t"}), frozenset({b"id"}), 3_000)
    assert world.machine.told == [("forgetting", frozenset({"t"}), 3_000), ("share groups",)]


async def test_without_an_internal_topic_nothing_is_read_nor_imported():
    world = World(threads := Threads())
    world.journal.partition_count = lambda: 0  # type: ignore[method-assign]
    await world.coordinator.forget_topics(frozenset({"t"}), frozenset(), 3_000)
    await world.coordinator.load_all()
    assert (world.machine.told, threads.runs) == ([], 0)
    del world.journal.partition_count  # type: ignore[method-assign]
    await world.coordinator.load_all()
    assert threads.runs == 1
    with trio.fail_after(1):
        await world.coordinator.load_all()
    assert threads.runs == 1
