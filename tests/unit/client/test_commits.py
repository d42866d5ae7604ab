"""Commits of a consumer: of what the program is done with, for the member that it is, and again only where that helps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import (
    ClientSettings,
    ConnectionLostError,
    ConsumerSettings,
    ResponseError,
    TopicPartition,
)
from barnabas.client.consuming.commits import Commits
from barnabas.client.consuming.partition import Partition
from barnabas.client.errors import CommitFailedError
from barnabas.client.values import GroupMetadata, OffsetAndMetadata
from barnabas.wire.generated.errors import ErrorCode

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Committing:
    """Commits of T0 and T1, at 5 and 6, of a program that is done with what is before 4 and 6."""

    def __init__(self, *outcomes: Any, member: str = "m", retries: int = 2) -> None:
        self.partitions = {place: Partition(place) for place in (T0, T1)}
        for entry, (offset, done) in zip(self.partitions.values(), ((5, 4), (6, 6)), strict=True):
            entry.seek(offset, 3)
            entry.done_offset = done
        self.outcomes = list(outcomes)
        self.sent: list[Any] = []
        self.group = GroupMetadata("g", 4, member)
        self.is_member = True
        self.rejoins = 0
        client: Any = SimpleNamespace(
            settings=ClientSettings(retries=retries, retry_backoff_ms=100), retrying=self._once
        )
        settings = ConsumerSettings(auto_commit_interval_ms=1_000)
        self.commits = Commits(
            client,
            settings,
            self.partitions,
            lambda: self.group,
            lambda: self.is_member,
            self._rejoin,
            self._commit,
        )

    def _rejoin(self) -> None:
        self.rejoins += 1

    async def _once(self, attempt: Any) -> Any:
        return await attempt()

    async def _commit(self, _: Any, group: Any, values: Any) -> None:
        self.sent.append((group, dict(values)))
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if callable(outcome):
            outcome = outcome()
        if outcome is not None:
            raise outcome


async def test_positions_are_committed_with_all_that_was_handed_out() -> None:
    case = Committing()
    await case.commits.commit_positions()
    assert case.sent[0][1] == {T0: OffsetAndMetadata(5, 3), T1: OffsetAndMetadata(6, 3)}
    assert [partition.done_offset for partition in case.partitions.values()] == [5, 6]
    case.partitions[T0].seek(0)
    case.partitions[T1].seek_to("latest")
    await case.commits.commit_positions()
    assert case.sent[1][1] == {T0: OffsetAndMetadata(0, -1)}
    case = Committing(lambda: case.partitions[T0].seek(2))  # moved back meanwhile
    await case.commits.commit_positions()
    assert case.partitions[T0].done_offset == 2
    case.partitions.clear()
    await case.commits.commit_positions()
    assert len(case.sent) == 1, "nothing is nothing to commit"


@pytest.mark.parametrize(("member", "changes", "rejoins"), [("m", False, 1), ("", False, 0), ("m", True, 0)])
async def test_a_member_that_is_not_known_any_more_joins_again(
    member: str, changes: bool, rejoins: int
) -> None:
    def fails() -> Exception:
        if changes:
            case.group = GroupMetadata("g", 5, member)
        return CommitFailedError("unknown")

    case = Committing(fails, member=member)
    with pytest.raises(CommitFailedError):
        await case.commits.commit_positions()
    assert case.rejoins == rejoins
    assert case.partitions[T0].committed_offset == -1


async def test_a_commit_waits_for_the_newer_epoch_and_for_nothing_else(
    autojump_clock: trio.testing.MockClock,
) -> None:
    stale = ResponseError(ErrorCode.STALE_MEMBER_EPOCH, "committing")
    case = Committing(stale, stale)
    begun = trio.current_time()
    await case.commits.commit_positions()
    assert trio.current_time() - begun == pytest.approx(0.2)
    case = Committing(stale, stale, stale)
    with pytest.raises(CommitFailedError, match="STALE_MEMBER_EPOCH"):
        await case.commits.commit_positions()
    assert len(case.sent) == 3
    for code in ErrorCode:
        if not code or code is ErrorCode.STALE_MEMBER_EPOCH:
            continue
        case = Committing(ResponseError(code, "committing"))
        kind = CommitFailedError if code is ErrorCode.REBALANCE_IN_PROGRESS else ResponseError
        with pytest.raises(kind, match=code.name):
            await case.commits.commit_positions()
        assert (len(case.sent), case.rejoins) == (1, 0)


@pytest.mark.parametrize(
    ("failure", "is_told"),
    [
        (ConnectionLostError("gone"), False),
        (CommitFailedError("rebalance"), False),
        (ResponseError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "committing"), True),
    ],
)
async def test_offsets_are_committed_periodically_until_a_fatal_error(
    autojump_clock: trio.testing.MockClock, failure: Exception, is_told: bool
) -> None:
    case = Committing(failure)
    told: list[Exception] = []
    with trio.move_on_after(2.5):
        await case.commits.run(told.append)
    assert told == [failure] * is_told
    assert len(case.sent) == 2 - is_told
