"""A follower below the local log start of its leader: where its log begins, and with what (KIP-405, KIP-1023)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.log.format import names
from barnabas.tiered.storage import IndexKind
from barnabas.wire.generated.errors import ErrorCode
from tests.support.fetching import PARTITIONS
from tests.support.logs import NOW_MS, batch, marker, rebase
from tests.support.tiered_followers import TieredFollower, TieredLeader, content, producers

EARLIEST_LOCAL, PENDING = -4, -6


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[TieredLeader]:
    leader = TieredLeader(tmp_path)
    yield leader
    leader.broker.manager.close()


@pytest.fixture
def stored(leader: TieredLeader) -> TieredLeader:
    """A leader with 30 records, most of them in the store only."""
    leader.append(0, 30)
    leader.tier_all(0)
    return leader


async def caught_up(follower: TieredFollower, *indexes: int) -> None:
    await follower.follow(follower.leader.epoch)
    async with follower.fetching():
        await follower.until(lambda: follower.is_level(*indexes))


@asynccontextmanager
async def following(leader: TieredLeader, **settings: str) -> AsyncIterator[TieredFollower]:
    follower = TieredFollower(leader, **settings)
    await follower.follow()
    async with follower.fetching():
        yield follower


def hold_indexes(leader: TieredLeader) -> Event:
    """Have reads of indexes wait for an event, which is returned."""
    gate, read_index = Event(), leader.store.read_index
    leader.store.read_index = lambda *args: (gate.wait(10), read_index(*args))[1]  # type: ignore[method-assign]
    return gate


async def test_new_replica_begins_after_the_tier(leader: TieredLeader) -> None:
    leader.append(0, 15)
    leader.epoch = 6
    leader.append(0, 15, producer_id=7, producer_epoch=2, base_sequence=0)
    local = leader.tier_all(0)
    assert 15 < local.local_log_start_offset < 30
    follower = TieredFollower(leader)
    await caught_up(follower)
    log = follower.log()
    assert (log.log_start_offset, log.local_log_start_offset) == (0, local.local_log_start_offset)
    assert log.epochs.entries == local.epochs.entries == [(5, 0), (6, 15)]
    assert producers(log) == producers(local) == [(7, 2, 14)]
    assert log.highest_remote_offset == local.highest_remote_offset
    counts = follower.counts.of("t")
    assert (counts.starts, counts.failed_starts) == (1, 0)


async def test_follower_that_was_away_gives_up_its_old_log(leader: TieredLeader) -> None:
    leader.append(0, 5)
    follower = TieredFollower(leader)
    await caught_up(follower)
    assert follower.log().log_end_offset == 5
    leader.append(0, 30)
    local = leader.tier_all(0)
    await caught_up_again(follower, 6)
    log = follower.log()
    assert log.local_log_start_offset == local.local_log_start_offset > 5
    assert log.log_start_offset == 0
    assert not [name for name in follower.disk.list(log.dir) if name.name == names.TIERED_START]


async def caught_up_again(follower: TieredFollower, epoch: int, *indexes: int) -> None:
    await follower.follow(epoch, is_first=False)
    async with follower.fetching():
        await follower.until(lambda: follower.is_level(*indexes))


async def test_log_start_of_the_leader_is_taken(
    stored: TieredLeader, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    stored.logs[0].delete_records_before(7)
    follower = TieredFollower(stored)
    await caught_up(follower)
    log = follower.log()
    assert log.log_start_offset == 7
    assert log.epochs.entries == [(5, 7)]
    assert "after what is in tiered storage from 7 on" in caplog.text


async def test_epoch_before_the_local_start_is_asked_for(leader: TieredLeader) -> None:
    """The local log begins with a newer epoch than that of the offset before it, and one epoch has no records."""
    leader.append(0, 12)
    leader.logs[0].roll()
    leader.epoch = 8
    leader.append(0, 1)
    leader.tier_all(0)
    assert leader.logs[0].local_log_start_offset == 12
    follower = TieredFollower(leader)
    await caught_up(follower)
    assert follower.log().epochs.entries == [(5, 0), (8, 12)]


async def test_metadata_that_are_not_read_yet_are_waited_for(
    stored: TieredLeader, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    stored.not_ready = {0}
    async with following(stored) as follower:
        await follower.until(lambda: follower.counts.of("t").failed_starts >= 2)
        assert follower.log().log_end_offset == 0
        stored.not_ready = set()
        await follower.until(lambda: follower.is_level(0))
    assert caplog.text.count("are not read yet") == 1


async def test_segment_that_is_not_known_yet_is_waited_for(stored: TieredLeader) -> None:
    segments = stored.partitions.pop(stored.key(0))
    async with following(stored) as follower:
        await follower.until(lambda: follower.counts.of("t").failed_starts >= 1)
        stored.partitions[stored.key(0)] = segments
        await follower.until(lambda: follower.is_level(0))


async def test_store_that_fails_leaves_the_old_log(
    leader: TieredLeader, caplog: pytest.LogCaptureFixture
) -> None:
    leader.append(0, 5)
    follower = TieredFollower(leader, **{"replica.fetch.backoff.ms": "50"})
    await caught_up(follower)
    before = content(follower.log(), 0)
    leader.append(0, 30)
    leader.tier_all(0)
    leader.store.failing = {"read_index"}
    await follower.follow(6, is_first=False)
    async with follower.fetching():
        await follower.until(lambda: follower.counts.of("t").failed_starts >= 2)
        assert content(follower.log(), 0) == before
        leader.store.failing = set()
        await follower.until(lambda: follower.is_level(0))
    assert "read_index fails as the test says; trying again" in caplog.text


@pytest.mark.parametrize("kind", [IndexKind.LEADER_EPOCH, IndexKind.PRODUCER_SNAPSHOT])
async def test_damaged_file_of_the_store_leaves_the_old_log(
    stored: TieredLeader, kind: IndexKind, tmp_path: Path
) -> None:
    paths = sorted((tmp_path / "tier").rglob(f"*.{kind.value}"))
    data = paths[-1].read_bytes()
    paths[-1].write_bytes(data[:-2])
    async with following(stored, **{"replica.fetch.backoff.ms": "50"}) as follower:
        await follower.until(lambda: follower.counts.of("t").failed_starts >= 2)
        assert follower.log().log_end_offset == 0
        paths[-1].write_bytes(data)
        await follower.until(lambda: follower.is_level(0))


async def test_store_that_hangs_holds_up_no_other_partition(stored: TieredLeader) -> None:
    gate = hold_indexes(stored)
    async with following(stored) as follower:
        await follower.until(lambda: follower.counts.of("t").starts == 1)
        for _ in range(3):
            stored.append(1)
            stored.append(2)
            await follower.until(lambda: follower.is_level(1, 2))
        assert follower.log().log_end_offset == 0
        gate.set()
        await follower.until(lambda: follower.is_level())


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR])
async def test_error_of_the_leader_is_tried_again(stored: TieredLeader, code: int) -> None:
    stored.errors = {EARLIEST_LOCAL: code}
    follower = TieredFollower(stored, **{"replica.fetch.backoff.ms": "50"})
    await caught_up(follower)
    assert follower.counts.of("t").failed_starts == 1


async def test_follower_without_tiered_storage_keeps_its_log(
    stored: TieredLeader, caplog: pytest.LogCaptureFixture
) -> None:
    follower = TieredFollower(stored)
    await follower.follow()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower.fetchers.run)
        stored.append(1)
        await follower.until(lambda: follower.is_level(1, 2))
        await follower.until(lambda: "OFFSET_MOVED_TO_TIERED_STORAGE" in caplog.text)
        nursery.cancel_scope.cancel()
    assert follower.log().log_end_offset == 0


async def test_new_leader_epoch_meanwhile_begins_again(stored: TieredLeader) -> None:
    gate = hold_indexes(stored)
    async with following(stored) as follower:
        await follower.until(lambda: follower.counts.of("t").starts == 1)
        await follower.follow(6, is_first=False)
        gate.set()
        await follower.until(lambda: follower.is_level())
    assert follower.counts.of("t").starts >= 1


# --- after all that is stored (KIP-1023) ----------------------------------------------------------------------

LAST = {"follower.fetch.last.tiered.offset.enable": "true"}


def keep_locally(leader: TieredLeader) -> Any:
    """Have most that is stored kept locally too: the local log begins with the second segment."""
    leader.append(0, 30)
    leader.tier(0)
    leader.logs[0].apply_retention(NOW_MS, count_max=1)
    return leader.logs[0]


@pytest.mark.parametrize("is_last", [True, False])
async def test_empty_log_begins_after_all_that_is_stored(leader: TieredLeader, is_last: bool) -> None:
    local = keep_locally(leader)
    follower = TieredFollower(leader, **(LAST if is_last else {}))
    await caught_up(follower)
    expected = local.highest_remote_offset + 1 if is_last else local.local_log_start_offset
    assert follower.log().local_log_start_offset == expected
    assert (PENDING in leader.timestamps()) is is_last
    assert (EARLIEST_LOCAL in leader.timestamps()) is not is_last


async def test_log_with_records_begins_with_the_leaders_local_log(leader: TieredLeader) -> None:
    leader.append(0, 2)
    follower = TieredFollower(leader, **LAST)
    await caught_up(follower)
    local = keep_locally(leader)
    await caught_up_again(follower, 6)
    assert follower.log().local_log_start_offset == local.local_log_start_offset
    assert PENDING not in leader.timestamps()


async def test_leader_with_old_list_offsets_is_asked_for_its_local_log(tmp_path: Path) -> None:
    leader = TieredLeader(tmp_path, versions={2: 9})
    local = keep_locally(leader)
    follower = TieredFollower(leader, **LAST)
    await caught_up(follower)
    assert follower.log().local_log_start_offset == local.local_log_start_offset
    assert PENDING not in leader.timestamps()
    leader.broker.manager.close()


async def test_empty_log_out_of_range_begins_after_all_that_is_stored(leader: TieredLeader) -> None:
    local = keep_locally(leader)
    local.delete_records_before(local.local_log_start_offset + 1)
    follower = TieredFollower(leader, **LAST)
    await caught_up(follower)
    assert follower.log().local_log_start_offset == local.highest_remote_offset + 1
    assert follower.log().log_start_offset == local.log_start_offset


async def test_empty_log_begins_with_the_leaders_if_nothing_is_stored(leader: TieredLeader) -> None:
    leader.append(0, 30)
    leader.logs[0].delete_records_before(12)
    follower = TieredFollower(leader, **LAST)
    await caught_up(follower)
    assert follower.log().log_start_offset == follower.log().local_log_start_offset == 12


async def test_leader_that_does_not_know_its_tier_yet_is_asked_again(leader: TieredLeader) -> None:
    local = keep_locally(leader)
    highest, local.highest_remote_offset = local.highest_remote_offset, -1
    async with following(leader, **LAST) as follower:
        await follower.until(lambda: follower.counts.of("t").failed_starts >= 1)
        assert follower.log().log_end_offset == 0
        local.highest_remote_offset = highest
        await follower.until(lambda: follower.is_level(0))
    assert follower.log().local_log_start_offset == highest + 1


# --- histories ------------------------------------------------------------------------------------------------


async def test_segment_is_used_up_to_where_its_history_parts(leader: TieredLeader) -> None:
    """After an unclean election a segment goes on with records that the leader does not have."""
    producer = {"producer_id": 7, "producer_epoch": 0}
    leader.append(0, 20, base_sequence=0, **producer)
    leader.logs[0].roll()
    leader.tier(0)
    log = leader.logs[0]
    segment = leader.of(leader.key(0)).segment_for(5, 19)
    assert segment is not None
    cut = segment.start_offset + 2
    log.truncate_to(cut, now_ms=NOW_MS)
    log.roll()
    leader.epoch = 6
    leader.append(0, 3)
    log.highest_remote_offset = segment.start_offset - 1
    log.store.drop_oldest(len(log.segments) - 1, due_ms=NOW_MS)
    assert log.local_log_start_offset == cut < segment.end_offset
    follower = TieredFollower(leader)
    await caught_up(follower)
    own = follower.log()
    assert (own.log_start_offset, own.local_log_start_offset) == (0, cut)
    assert own.epochs.entries == [(5, 0), (6, cut)]
    assert producers(own) == [(7, 0, cut - 1)]


async def test_epochs_after_the_common_history_are_left_out(leader: TieredLeader) -> None:
    """The end of a segment is of a leader that was lost, in an epoch that its successor does not know."""
    log = leader.logs[0]
    leader.append(0, 18)
    leader.epoch = 6
    leader.append(0, 1)
    log.roll()
    leader.tier(0)
    segment = leader.of(leader.key(0)).segment_for(6, 18)
    assert segment is not None
    assert segment.leader_epochs == ((5, segment.start_offset), (6, 18))
    log.truncate_to(18, now_ms=NOW_MS)
    log.roll()
    leader.epoch = 7
    leader.append(0, 1)
    log.store.drop_oldest(len(log.segments) - 1, due_ms=NOW_MS)
    follower = TieredFollower(leader)
    await caught_up(follower)
    assert follower.log().local_log_start_offset == 18
    assert follower.log().epochs.entries == [(5, 0), (7, 18)]


async def test_transactions_are_replayed_up_to_where_histories_part(leader: TieredLeader) -> None:
    log = leader.logs[0]
    leader.append(0, 2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_as_leader(marker(commit=True, producer_id=7), leader_epoch=5, now_ms=NOW_MS, origin=origin())
    log.advance_high_watermark(log.log_end_offset)
    leader.append(0, 2)
    log.roll()
    leader.tier(0)
    log.truncate_to(4, now_ms=NOW_MS)
    log.roll()
    leader.epoch = 6
    leader.append(0, 1)
    log.store.drop_oldest(len(log.segments) - 1, due_ms=NOW_MS)
    follower = TieredFollower(leader)
    await caught_up(follower)
    assert follower.log().local_log_start_offset == 4
    assert follower.log().last_stable_offset == 5
    assert producers(follower.log()) == [(7, 0, 1)]


def origin() -> Any:
    from barnabas.records.validate import Origin

    return Origin.COORDINATOR


async def test_cut_below_the_local_start_keeps_the_log_start(leader: TieredLeader) -> None:
    """A new leader, uncleanly elected, has another history than the end of the tier."""
    leader.append(0, 30)
    leader.tier_all(0)
    follower = TieredFollower(leader)
    await caught_up(follower)
    own, log = follower.log(), leader.logs[0]
    base = own.local_log_start_offset
    log.truncate_fully_and_start_at(base - 2)
    log.log_start_offset = 0
    log.epochs.assign(5, 0)
    leader.epoch = 7
    data = batch(b"other")
    rebase(data, 0, base - 2, 7)
    log.append_as_follower(data, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    await caught_up_again(follower, 7)
    assert (own.log_start_offset, own.local_log_start_offset) == (0, base - 2)
    assert own.epochs.entries == [(5, 0), (7, base - 2)]


# --- what followers know of the store -------------------------------------------------------------------------


async def test_follower_deletes_locally_what_it_knows_to_be_stored(leader: TieredLeader) -> None:
    leader.append(0, 30)
    async with following(leader) as follower:
        await follower.until(lambda: follower.is_level())
        log = follower.log()
        assert log.apply_retention(NOW_MS) == 0
        leader.tier(0, segments_max=2)
        leader.not_ready = {0}
        await follower.tiers.look(follower.replicas)
        assert log.highest_remote_offset == -1
        leader.not_ready = set()
        await follower.tiers.look(follower.replicas)
        stored_end = leader.logs[0].highest_remote_offset + 1
        assert log.highest_remote_offset == stored_end - 1
        while log.apply_retention(NOW_MS):
            pass
    assert (log.log_start_offset, log.local_log_start_offset) == (0, stored_end)


async def test_log_start_follows_the_leaders(stored: TieredLeader) -> None:
    async with following(stored) as follower:
        await follower.until(lambda: follower.is_level())
        stored.logs[0].delete_records_before(11)
        stored.append(0)
        await follower.until(lambda: follower.log().log_start_offset == 11)
    assert follower.log().epochs.entries == [(5, 11)]


async def test_restarted_follower_goes_on_where_it_was(stored: TieredLeader) -> None:
    follower = TieredFollower(stored)
    await caught_up(follower)
    before = follower.log()
    facts = before.log_start_offset, before.local_log_start_offset, before.epochs.entries, producers(before)
    follower.disk = follower.disk.fork()
    follower.disk.locks.clear()
    follower.image = type(follower.image)("c")
    follower.start()
    stored.append(0, 2)
    await caught_up(follower)
    log = follower.log()
    assert (log.log_start_offset, log.local_log_start_offset, log.epochs.entries, producers(log)) == facts
    assert follower.counts.of("t").starts == 1
    assert PARTITIONS == 3
