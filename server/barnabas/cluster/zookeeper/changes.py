"""Changes of this broker in ZooKeeper: decided, written, and awaited in the image.

The rule: a change is written on the condition that its inputs have not changed; otherwise it is decided again. A caller
may stop waiting; a decided change is written nevertheless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import trio

from barnabas.cluster.metadata.access_changes import (
    AclAdded,
    AclRemoved,
    DelegationTokenChanged,
    DelegationTokenRemoved,
)
from barnabas.cluster.metadata.changes import (
    ConfigChanged,
    LogDirsRegistered,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import (
    TOPIC,
    Change,
    ClusterImage,
    ImageSource,
    ResourceKey,
    TopicInfo,
)
from barnabas.cluster.metadata.publishing import applied
from barnabas.cluster.metadata.store import Decide
from barnabas.cluster.zookeeper import acl_znodes, entity_settings, writes, znodes
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper.registration import make_persistent, until_answered
from barnabas.cluster.zookeeper.session import (
    BadVersionError,
    ConnectionLostError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeper,
    ZooKeeperError,
)
from barnabas.cluster.zookeeper.writes import ConflictError, Truth
from barnabas.errors import RequestError, StorageError
from barnabas.serving.loop_budget import LoopBudget

PLACE = "ZooKeeper"
"""Stands in errors where a log dir stands otherwise."""
DELETION_SECONDS_MAX = 5.0
"""Longest wait of a new topic for the deletion of one with the same name: its znodes outlive its visible part."""
DELETION_LOOK_SECONDS = 0.01
CONFLICTS_MAX = 3
"""Limit of repeated decisions on unchanged inputs."""


class Publisher(ImageSource, Protocol):
    """Source of the image, which also publishes the content of znodes."""

    async def publish_read(self, keys: Sequence[ResourceKey], others: Sequence[Change]) -> None:
        """Publish these changes, and the present settings of these resources. Raises ZooKeeperError."""


@dataclass(slots=True, frozen=True)
class _Need:
    """Condition on a topic in the image before a change is done: this many partitions with leaders; none: it is deleted."""

    topic: TopicInfo
    partitions: int

    def is_met(self, image: ClusterImage) -> bool:
        topic = image.topics.get(self.topic.name)
        if topic is None:
            return not self.partitions
        if not writes.is_same(topic, self.topic):
            return True  # another topic has its name now
        return 0 < self.partitions <= len(topic.partitions) and all(
            info.leader >= 0 for info in topic.partitions
        )


@dataclass(slots=True, eq=False)
class _PendingChange:
    """A change that a caller waits for."""

    decide: Decide
    done: trio.Event = field(default_factory=trio.Event)
    changes: list[Change] = field(default_factory=list)
    needs: list[_Need] = field(default_factory=list)
    image: ClusterImage | None = None
    failure: Exception | None = None
    held_until: float | None = None
    """Until when it waits, or has waited, for topics that are being deleted."""

    def fail(self, error: Exception) -> None:
        self.failure = error
        self.done.set()

    def succeed(self, image: ClusterImage) -> None:
        self.image = image
        self.done.set()


class ChangeWriter:
    """Writes changes, simultaneous ones together. Lifecycle: `run` in a separate task, `close`."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        broker_id: int,
        publisher: Publisher,
        budget: LoopBudget,
        *,
        has_topic_ids: bool,
    ) -> None:
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._publisher = publisher
        self._budget = budget
        self._has_topic_ids = has_topic_ids
        self._waiting: list[_PendingChange] = []
        self._wanted = trio.Event()
        self._unmet: list[_PendingChange] = []
        self._held: dict[_PendingChange, frozenset[str]] = {}
        """Changes that make topics of these names, which are being deleted."""
        self._is_releasing = False
        self._written = Truth()

    def close(self) -> None:
        """Fail all changes that are not done."""
        for pending in (*self._waiting, *self._unmet, *self._held):
            pending.fail(closed())
        self._waiting.clear()
        self._unmet.clear()
        self._held.clear()

    def published(self, image: ClusterImage) -> None:
        """Answer the callers of the changes that the new image has."""
        self._written.forget_known(image)
        unmet = []
        for pending in self._unmet:
            if all(need.is_met(image) for need in pending.needs):
                pending.succeed(image)
            else:
                unmet.append(pending)
        self._unmet = unmet

    async def change(self, decide: Decide) -> ClusterImage:
        """Make a change, and return an image with it; see ZooKeeperStore.change."""
        await trio.lowlevel.checkpoint_if_cancelled()
        pending = _PendingChange(decide)
        self._waiting.append(pending)
        self._wanted.set()
        try:
            await pending.done.wait()
        finally:
            for waiting in (self._waiting, self._unmet):
                if pending in waiting:
                    waiting.remove(pending)
            self._held.pop(pending, None)
        if pending.failure is not None:
            raise pending.failure
        assert pending.image is not None
        return pending.image

    async def run(self) -> None:
        """Carry out changes until cancelled."""
        async with trio.open_nursery() as nursery:
            await self._carry_out_all(nursery)

    async def _carry_out_all(self, nursery: trio.Nursery) -> None:
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            while self._waiting:
                batch, self._waiting = self._waiting, []
                try:
                    await self._carry_out(batch)
                    if self._held and not self._is_releasing:
                        self._is_releasing = True
                        nursery.start_soon(self._release_held)
                except trio.Cancelled:
                    for pending in batch:
                        pending.fail(closed())
                    raise

    async def _carry_out(self, batch: Sequence[_PendingChange]) -> None:
        truth, rounds = Truth(), 0
        while True:
            base = await self._newest(truth)
            batch = await self._decide_all(batch, base)
            changes = [change for pending in batch for change in pending.changes]
            try:
                await self._write_all(changes, base)
                if changes and batch[-1].image is not None:
                    self._note_written(changes, batch[-1].image)
            except ConflictError as conflict:
                held = self._hold(batch, conflict.deleting)
                if held:
                    batch = [pending for pending in batch if pending not in held]
                    continue
                rounds = 0 if truth.add(conflict.truth) else rounds + 1
                if rounds < CONFLICTS_MAX:
                    continue
                await self._refuse(batch, ValueError("what was decided does not fit what is there"))
                return
            except (RequestError, ValueError, ZooKeeperError) as error:
                await self._refuse(batch, error)
                return
            break
        if changes:
            await self._publish_own(changes)
        for pending in batch:
            if pending.needs and not all(need.is_met(self._publisher.image) for need in pending.needs):
                self._unmet.append(pending)
            else:
                pending.succeed(
                    pending.image if pending.changes and pending.image is not None else self._publisher.image
                )

    def _hold(self, batch: Sequence[_PendingChange], deleting: frozenset[str]) -> set[_PendingChange]:
        """Set aside changes that create topics which are still being deleted, each once; returns them."""
        held = set()
        for pending in batch if deleting else ():
            names = frozenset(
                change.topic.name for change in pending.changes if isinstance(change, TopicCreated)
            )
            if names & deleting and pending.held_until is None:
                pending.held_until = trio.current_time() + DELETION_SECONDS_MAX
                self._held[pending] = names & deleting
                held.add(pending)
        return held

    async def _release_held(self) -> None:
        """Decide again on changes once the topics that they wait for are deleted, or have taken too long."""
        while self._held:
            await trio.sleep(DELETION_LOOK_SECONDS)
            names = sorted(set().union(*self._held.values()))
            paths = [znodes.delete_topic_path(name) for name in names]
            nodes = await until_answered(self._zookeeper, partial(self._zookeeper.get_many, paths))
            remaining = {name for name, node in zip(names, nodes, strict=True) if node is not None}
            now = trio.current_time()
            for pending, waited_for in tuple(self._held.items()):
                if not waited_for & remaining or (pending.held_until or now) <= now:
                    del self._held[pending]
                    self._waiting.append(pending)
                    self._wanted.set()
        self._is_releasing = False

    async def _refuse(self, batch: Sequence[_PendingChange], error: Exception) -> None:
        """Raise an error for the change that caused it: the changes of a batch are retried one by one."""
        if len(batch) > 1:
            for pending in batch:
                await self._carry_out([pending])
        for pending in batch:
            if not pending.done.is_set() and len(batch) == 1:
                pending.fail(error if isinstance(error, RequestError) else StorageError(PLACE, error))

    async def _newest(self, truth: Truth) -> ClusterImage:
        """Return the image, with the latest writes of this broker and others, as far as they are known."""
        if self._written.topics:
            names = list(self._written.topics)
            nodes = await until_answered(
                self._zookeeper, lambda: self._zookeeper.get_many([znodes.topic_path(name) for name in names])
            )
            for name, node in zip(names, nodes, strict=True):
                if node is None:
                    self._written.topics.pop(name, None)
        newest = Truth()
        newest.add(self._written)
        newest.add(truth)
        return self._publisher.image.apply(newest.changes(self._publisher.image))

    async def _decide_all(self, batch: Sequence[_PendingChange], image: ClusterImage) -> list[_PendingChange]:
        """Decide on each change, on the image with the changes before it; returns those that were not refused."""
        accepted = []
        for pending in batch:
            try:
                pending.changes = await decided(self._budget, pending.decide, image)
                pending.needs = await self._needs(pending.changes, image)
                image = await applied(self._budget, image, pending.changes)
            except Exception as error:
                pending.fail(error)
                continue
            pending.image = image
            accepted.append(pending)
        return accepted

    async def _needs(self, changes: Sequence[Change], image: ClusterImage) -> list[_Need]:
        """Return the conditions on the image before these changes, decided on `image`, are done. Raises TypeError."""
        needs: dict[str, _Need] = {}
        for change in changes:
            writes.paths_of(change)
            match change:
                case TopicCreated(topic):
                    needs[topic.name] = _Need(topic, len(topic.partitions))
                case PartitionsAdded(name, partitions):
                    before = needs.get(name)
                    if before is None and name in image.topics:
                        before = _Need(image.topics[name], len(image.topics[name].partitions))
                    if before is not None:
                        needs[name] = replace(before, partitions=before.partitions + len(partitions))
                case TopicDeleted(name):
                    before = needs.get(name)
                    topic_now = before.topic if before is not None else image.topics.get(name)
                    if topic_now is not None:
                        needs[name] = _Need(topic_now, 0)
                case _:
                    pass
            await self._budget.checkpoint()
        return list(needs.values())

    async def _write_all(self, changes: Sequence[Change], base: ClusterImage) -> None:
        """Write the changes, with retries until they are stored. Raises ConflictError, RequestError, ZooKeeperError."""
        if not changes:
            return
        named: dict[str, None] = {}
        for change in changes:
            named.update(dict.fromkeys(writes.paths_of(change)))
            await self._budget.checkpoint()
        paths = list(named)
        is_retry = False
        while True:
            nodes = await until_answered(self._zookeeper, lambda: self._zookeeper.get_many(paths))
            plan = await self._plan(changes, base, dict(zip(paths, nodes, strict=True)))
            try:
                for part in plan.parts:
                    await self._zookeeper.multi(part)
                break
            except (ConnectionLostError, SessionExpiredError):
                if self._zookeeper.is_closed:
                    raise
                await self._zookeeper.wait_connected()
            except (BadVersionError, NodeExistsError):
                continue
            except NoNodeError:
                if is_retry:
                    raise
                is_retry = True
                for path in paths:
                    await make_persistent(self._zookeeper, path.rpartition("/")[0])
        for entity in plan.notifications:
            path = f"{resources.CONFIG_CHANGES}/{resources.CONFIG_CHANGE_PREFIX}"
            await self._notify(path, resources.encode_config_change(entity))
        for token_id in plan.changed_tokens:
            path = f"{resources.TOKEN_CHANGES}/{resources.TOKEN_CHANGE_PREFIX}"
            await self._notify(path, token_id.encode())
        for pattern in plan.changed_acls:
            await self._notify(*acl_znodes.notification(pattern))

    async def _plan(self, changes: Sequence[Change], base: ClusterImage, nodes: writes.Found) -> writes.Plan:
        planner = writes.Planner(base, nodes, self._broker_id, has_topic_ids=self._has_topic_ids)
        for change in changes:
            planner.add(change)
            await self._budget.checkpoint()
        for _ in planner.steps():
            await self._budget.checkpoint()
        return planner.plan

    async def _notify(self, path: str, data: bytes) -> None:
        await until_answered(
            self._zookeeper, lambda: self._zookeeper.create(path, data, sequence=True, parents=True)
        )

    def _note_written(self, changes: Sequence[Change], new: ClusterImage) -> None:
        """Remember topics that the controller will report: until then decisions see them."""
        for change in changes:
            match change:
                case TopicCreated(TopicInfo(name)) | PartitionsAdded(name):
                    if name in new.topics:
                        self._written.topics[name] = new.topics[name]
                case TopicDeleted(name):
                    self._written.topics.pop(name, None)
                case _:
                    pass
        self._written.forget_known(self._publisher.image)

    async def _publish_own(self, changes: Sequence[Change]) -> None:
        """Publish written changes that the controller does not send, and present settings."""
        created = {change.topic.name for change in changes if isinstance(change, TopicCreated)}
        keys: list[ResourceKey] = []
        other: list[Change] = []
        for change in changes:
            match change:
                case ConfigChanged(kind, name):
                    if kind != TOPIC or name not in created:
                        keys.append((kind, name))
                case (
                    ProducerIdsAllocated()
                    | LogDirsRegistered()
                    | DelegationTokenChanged()
                    | DelegationTokenRemoved()
                    | AclAdded()
                    | AclRemoved()
                ):
                    other.append(change)
                case _:
                    setting = entity_settings.update(change, {})
                    if setting is not None:
                        keys.append(setting[0])
        while keys or other:
            try:
                await self._publisher.publish_read(keys, other)
                return
            except (ConnectionLostError, SessionExpiredError):
                if self._zookeeper.is_closed:
                    return
                await self._zookeeper.wait_connected()


async def decided(budget: LoopBudget, decide: Decide, image: ClusterImage) -> list[Change]:
    """Return the changes that `decide` yields; other tasks run between them."""
    changes = []
    for change in decide(image):
        if change is not None:
            changes.append(change)
        await budget.checkpoint()
    return changes


def closed() -> StorageError:
    """Return the error of calls after `close`."""
    return StorageError(PLACE, ValueError("the metadata store is closed"))
