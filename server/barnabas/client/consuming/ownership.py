"""Partitions that a consumer owns as a member of its group, and the program's callbacks about them.

The rule: a partition is revoked once the program has processed its records and their offsets are committed; a lost
partition is dropped immediately, since another member may already read it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from barnabas.client.consuming.commits import Commits
from barnabas.client.consuming.fetching import Fetcher
from barnabas.client.consuming.handing import Handing
from barnabas.client.consuming.locating import Locator
from barnabas.client.consuming.partition import Partition
from barnabas.client.consuming.settings import ConsumerSettings
from barnabas.client.errors import ClientError, CommitFailedError, copy_of
from barnabas.client.values import TopicPartition

Callback = Callable[[set[TopicPartition]], Awaitable[object]]


class Ownership:
    """Implements `membership.Host`; `partitions` are the consumer's, assigned by the program or by its group."""

    def __init__(
        self,
        settings: ConsumerSettings,
        partitions: dict[TopicPartition, Partition],
        locator: Locator,
        fetcher: Fetcher,
        handing: Handing,
        commits: Commits,
    ) -> None:
        self.assigned: set[TopicPartition] = set()
        """Partitions that the group has assigned to the consumer."""
        self.callbacks: dict[str, Callback | None] = {}
        """Callbacks of the program, for partitions that are `assigned`, `revoked` and `lost`."""
        self._settings = settings
        self._partitions = partitions
        self._locator = locator
        self._fetcher = fetcher
        self._handing = handing
        self._commits = commits
        self._failure: ClientError | None = None
        self._callback_failure: Exception | None = None

    async def add(self, places: set[TopicPartition]) -> None:
        """Add partitions of a new assignment, and call `assigned`."""
        for place in places:
            self._partitions[place] = Partition(place)
        self.assigned |= places
        await self._call("assigned", places)
        # Only now, because the callback may have called `seek`.
        self._locator.wake()
        self._fetcher.wake()
        self._fetcher.announce()

    async def revoke(self, places: set[TopicPartition]) -> None:
        """Give partitions up, once the program is done with their records; commit, and call `revoked`."""
        for place in places & self._partitions.keys():
            self._partitions[place].is_revoked = True
        await self.idle()
        places = places & self.assigned  # they may have been lost meanwhile
        if not places:
            return
        if self._settings.is_auto_committing:
            with suppress(ClientError):  # the next owner then reads those records again
                await self._commits.commit_done(places)
        await self._call("revoked", places)
        self._remove(places & self.assigned)

    async def lose(self, places: set[TopicPartition]) -> None:
        """Drop partitions that another member may have by now, and call `lost`."""
        places = places & self.assigned
        self._remove(places)
        if places:
            await self._call("lost", places)

    def drop(self, place: TopicPartition) -> None:
        """Drop a partition, and its fetched records."""
        partition = self._partitions.pop(place)
        partition.is_revoked = True
        partition.seeks += 1
        self._handing.drop(partition)

    def _remove(self, places: set[TopicPartition]) -> None:
        self.assigned -= places
        for place in places:
            self.drop(place)
        self._fetcher.wake()

    async def _call(self, name: str, places: set[TopicPartition]) -> None:
        callback = self.callbacks.get(name)
        if callback is None:
            return
        try:
            await callback(set(places))
        except Exception as error:
            self._callback_failure = error
            self._fetcher.announce()

    def busy_s(self) -> float:
        """Return the time in s since the program received its records; 0 while it waits for the next ones."""
        return self._handing.busy_s()

    async def idle(self) -> None:
        """Wait until the program asks for its next record."""
        await self._handing.idle.wait()

    def fail(self, error: ClientError) -> None:
        """End the membership with an error, which each later call of the program raises."""
        self._failure = error
        self._fetcher.announce()

    def raise_failures(self) -> None:
        """Raise an error of a callback once, and the error that has ended the membership each time."""
        if self._callback_failure is not None:
            failure, self._callback_failure = self._callback_failure, None
            raise failure
        if self._failure is not None:
            raise copy_of(self._failure)

    async def finish(self, leave: Callable[[], Awaitable[None]] | None) -> None:
        """Commit, call `revoked`, and leave the group by `leave`. Raises ClientError, and the errors of callbacks."""
        places = list(self._partitions)
        if (
            self._settings.group_id is not None
            and self._settings.is_auto_committing
            and self._failure is None
        ):
            with suppress(CommitFailedError):  # others have the partitions, and read those records again
                await self._commits.commit_done(places)
        if leave is None:
            return
        if self.assigned:
            await self._call("revoked", set(self.assigned))
        await leave()
        if self._callback_failure is not None:
            raise self._callback_failure
