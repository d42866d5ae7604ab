"""The metadata store of a broker in a cluster on ZooKeeper.

The rule: what the controller and /config say is published in one order; a change of this broker's is written to
ZooKeeper, conditionally on what it was decided on, and is in the image when the cluster says so. Nothing is published
because this broker wished it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import trio

from barnabas.cluster.image import (
    TOPIC,
    BrokerRegistered,
    Change,
    ClusterImage,
    ConfigChanged,
    Delta,
    LogDirsRegistered,
    PartitionsAdded,
    ProducerIdsAllocated,
    ResourceKey,
    TopicCreated,
    TopicDeleted,
    TopicInfo,
)
from barnabas.cluster.store import Decide, Subscriber
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper import writes, znodes
from barnabas.cluster.zookeeper.registration import (
    IdTakenError,
    Registration,
    make_persistent,
    until_answered,
)
from barnabas.cluster.zookeeper.session import (
    BadVersionError,
    ConnectionLostError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    SessionState,
    ZooKeeper,
    ZooKeeperError,
)
from barnabas.cluster.zookeeper.settings import SettingsReader, number_of
from barnabas.cluster.zookeeper.writes import ConflictError, Truth
from barnabas.cluster.zookeeper.znodes import BrokerRegistration
from barnabas.errors import RequestError, StorageError
from barnabas.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode

log = logging.getLogger(__name__)

PLACE = "ZooKeeper"
"""Stands in errors where a log dir stands otherwise."""
APPLIED_AT_ONCE = 500
"""So many changes make a new image between two looks at the clock."""
RETRY_SECONDS = 1.0
CONFLICTS_MAX = 3
"""Nobody decides more often on what has not changed."""
UNKNOWN_EPOCH = -1


@dataclass(slots=True, frozen=True)
class _Need:
    """What the image must say of a topic before a change is done: so many partitions with leaders; none: it is gone."""

    topic: TopicInfo
    partitions: int

    def is_met(self, image: ClusterImage) -> bool:
        known = image.topics.get(self.topic.name)
        if known is None:
            return not self.partitions
        if not writes.is_same(known, self.topic):
            return True  # another one has its name now
        return 0 < self.partitions <= len(known.partitions) and all(
            info.leader >= 0 for info in known.partitions
        )


@dataclass(slots=True, eq=False)
class _Wish:
    """A change that somebody waits for."""

    decide: Decide
    done: trio.Event = field(default_factory=trio.Event)
    changes: list[Change] = field(default_factory=list)
    needs: list[_Need] = field(default_factory=list)
    image: ClusterImage | None = None
    failure: Exception | None = None

    def fail(self, error: Exception) -> None:
        self.failure = error
        self.done.set()

    def succeed(self, image: ClusterImage) -> None:
        self.image = image
        self.done.set()


class ZooKeeperStore:
    """A MetadataStore on ZooKeeper.

    Lifecycle: made with a session that is connected; `open`; `run` in a task of its own for as long as the broker runs;
    `register` once clients and the controller can be served; `close`, which ends the session.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        broker_id: int,
        clock_ms: Callable[[], int],
        budget: LoopBudget | None = None,
        *,
        has_topic_ids: bool = True,
    ) -> None:
        """`has_topic_ids` is False while `inter.broker.protocol.version` is below 2.8."""
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._clock_ms = clock_ms
        self._budget = budget or LoopBudget()
        self._has_topic_ids = has_topic_ids
        self._settings = SettingsReader(zookeeper, self._budget)
        self._image = ClusterImage("")
        self._subscribers: list[Subscriber] = []
        self._publishing = trio.Lock()
        self._waiting: list[_Wish] = []
        self._wanted = trio.Event()
        self._unmet: list[_Wish] = []
        self._written = Truth()
        self._registration: Registration | None = None
        self._session_changed = trio.Event()
        self._breaks = 0
        self._controller_epoch = 0
        self._running: trio.CancelScope | None = None
        self._is_closed = False
        self.broker_epoch = UNKNOWN_EPOCH
        """The epoch of this broker's registration, -1 before the first."""
        zookeeper.watch_session(self._session_is)

    @property
    def image(self) -> ClusterImage:
        """The newest image whose subscribers are ready for it."""
        return self._image

    def subscribe(self, subscriber: Subscriber) -> None:
        """Have `subscriber` follow each change, in order."""
        self._subscribers.append(subscriber)

    # --- life -----------------------------------------------------------------------------------------------

    async def open(self, new_cluster_id: str) -> None:
        """Make the znodes that every broker needs, take the cluster's id or make it this, read the settings.

        Raises ZooKeeperError; ZnodeError if the cluster's id cannot be read.
        """
        for path in resources.PERSISTENT:
            await make_persistent(self._zookeeper, path)
        self._image = ClusterImage(await self._cluster_id(new_cluster_id))
        changes = await until_answered(self._zookeeper, lambda: self._settings.read_all(self._image))
        self._image = self._image.apply(changes).at_version(0)

    async def _cluster_id(self, new: str) -> str:
        await make_persistent(self._zookeeper, znodes.CLUSTER_ID, znodes.encode_cluster_id(new))
        data, _ = await until_answered(self._zookeeper, lambda: self._zookeeper.get(znodes.CLUSTER_ID))
        return znodes.decode_cluster_id(data)

    async def register(self, broker: BrokerRegistration, *, version: int = 5) -> int:
        """Register this broker, and again after each lost session; returns the broker epoch.

        Waits for the end of an earlier session of a broker with this address. Raises IdTakenError, ZooKeeperError.
        """
        self._registration = Registration(self._zookeeper, self._broker_id, broker, version=version)
        self.broker_epoch = await self._registration.register()
        self._session_changed.set()
        return self.broker_epoch

    async def run(self) -> None:
        """Write changes, follow the settings, stay registered; until `close`, or cancelled."""
        async with trio.open_nursery() as nursery:
            self._running = nursery.cancel_scope
            if self._is_closed:
                return
            nursery.start_soon(self._write)
            nursery.start_soon(self._follow_settings)
            nursery.start_soon(self._stay_registered)

    async def close(self) -> None:
        """End the session, with which this broker's registration goes; a change that comes later raises StorageError."""
        self._is_closed = True
        if self._running is not None:
            self._running.cancel()
        for wish in (*self._waiting, *self._unmet):
            wish.fail(_closed())
        self._waiting.clear()
        self._unmet.clear()
        await self._zookeeper.close()

    def _session_is(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            self._breaks += 1
        self._session_changed.set()

    async def _stay_registered(self) -> None:
        while True:
            await self._session_changed.wait()
            self._session_changed = trio.Event()
            registration = self._registration
            if (
                registration is None
                or not registration.session_id
                or self._zookeeper.state is not SessionState.CONNECTED
                or self._zookeeper.session_id == registration.session_id
            ):
                continue
            try:
                self.broker_epoch = await registration.register()
            except (IdTakenError, ZooKeeperError) as error:
                log.error("the broker cannot be registered again, which is tried once more: %s", error)
                self._session_changed.set()
                await trio.sleep(RETRY_SECONDS)
                continue
            await self.follow(self._own_epoch)

    def _own_epoch(self, image: ClusterImage) -> list[Change]:
        known = image.brokers.get(self._broker_id)
        return [BrokerRegistered(replace(known, epoch=self.broker_epoch))] if known is not None else []

    async def report_log_dir_failure(self) -> None:
        """Tell the controller that a log dir of this broker has failed. Raises ZooKeeperError."""
        path = f"{znodes.LOG_DIR_EVENTS}/{znodes.LOG_DIR_EVENT_PREFIX}"
        data = znodes.encode_log_dir_event(self._broker_id)
        await until_answered(
            self._zookeeper, lambda: self._zookeeper.create(path, data, sequence=True, parents=True)
        )

    # --- what others say ------------------------------------------------------------------------------------

    def check_controller(self, controller_id: int, controller_epoch: int, broker_epoch: int) -> None:
        """See that a request comes from the newest controller, and is meant for this registration of the broker.

        `broker_epoch` is -1 where the request has none. Raises STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH.
        """
        if broker_epoch != UNKNOWN_EPOCH and broker_epoch < self.broker_epoch:
            raise RequestError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"the request is for broker epoch {broker_epoch}; this is {self.broker_epoch}",
            )
        if controller_epoch < self._controller_epoch:
            log.warning(
                "a request of controller %d with epoch %d is refused: epoch %d is known",
                controller_id, controller_epoch, self._controller_epoch,
            )  # fmt: skip
            raise RequestError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"controller epoch {controller_epoch} is old; {self._controller_epoch} is known",
            )
        self._controller_epoch = controller_epoch

    async def follow(self, decide: Decide) -> ClusterImage:
        """Publish the changes that `decide` says of the newest image, and return the image with them.

        Nothing is written to ZooKeeper. Topics that are new get their settings, which are read first. Whoever is
        cancelled while subscribers follow waits for their end. Raises StorageError once it is closed.
        """
        async with self._publishing:
            changes = [self._with_epoch(change) for change in await self._decided(decide, self._image)]
            created = [change.topic.name for change in changes if isinstance(change, TopicCreated)]
            if created:
                changes += await self._settings_of_new(created)
            await self._publish(changes)
            return self._image

    def _with_epoch(self, change: Change) -> Change:
        if isinstance(change, BrokerRegistered) and change.broker.id == self._broker_id:
            return BrokerRegistered(replace(change.broker, epoch=self.broker_epoch))
        return change

    async def _settings_of_new(self, topics: Sequence[str]) -> list[ConfigChanged]:
        keys = [(TOPIC, name) for name in topics]
        nothing = ClusterImage("")
        try:
            found = await until_answered(self._zookeeper, lambda: self._settings.read(nothing, keys))
        except ZooKeeperError as error:
            raise _closed() if self._is_closed else StorageError(PLACE, error) from error
        there = {change.resource_name for change in found}
        stale = [
            ConfigChanged(TOPIC, name, ())
            for name in topics
            if name not in there and self._image.settings_of(TOPIC, name)
        ]
        return [*found, *stale]

    async def _publish(self, changes: Sequence[Change]) -> None:
        """Let all subscribers follow these changes. The caller has the lock."""
        if not changes:
            return
        with trio.CancelScope(shield=True):
            new = self._image
            for start in range(0, len(changes), APPLIED_AT_ONCE):
                new = new.apply(changes[start : start + APPLIED_AT_ONCE])
                await self._budget.checkpoint()
            delta = Delta.of(self._image, new, changes)
            for subscriber in self._subscribers:
                await subscriber.prepare(delta)
            self._image = new
            for subscriber in self._subscribers:
                subscriber.publish(delta)
            for subscriber in self._subscribers:
                await subscriber.clean_up(delta)
            self._written.forget_known(new)
            self._settle()

    def _settle(self) -> None:
        """Answer those whose changes the image has."""
        unmet = []
        for wish in self._unmet:
            if all(need.is_met(self._image) for need in wish.needs):
                wish.succeed(self._image)
            else:
                unmet.append(wish)
        self._unmet = unmet

    async def _decided(self, decide: Decide, image: ClusterImage) -> list[Change]:
        changes = []
        for change in decide(image):
            changes.append(change)
            await self._budget.checkpoint()
        return changes

    # --- settings -------------------------------------------------------------------------------------------

    async def _follow_settings(self) -> None:
        """Read all settings in each connection, and those that are notified of."""
        while True:
            breaks = self._breaks
            try:
                await self._follow_settings_while(lambda: self._breaks == breaks)  # noqa: B023
            except NoNodeError:
                await make_persistent(self._zookeeper, resources.CONFIG_CHANGES)
            except (ConnectionLostError, SessionExpiredError):
                if self._zookeeper.is_closed:
                    return
            except ZooKeeperError as error:
                log.error("settings cannot be read, which is tried again: %s", error)
                await trio.sleep(RETRY_SECONDS)
            await self._zookeeper.wait_connected()

    async def _follow_settings_while(self, is_connected: Callable[[], bool]) -> None:
        changed = trio.Event()
        names = await self._zookeeper.children(resources.CONFIG_CHANGES, changed.set)
        last = max(map(number_of, names), default=-1)
        async with self._publishing:
            await self._publish(await self._settings.read_all(self._image))
        while is_connected():
            await self._settings.remove_old(names, self._clock_ms())
            await changed.wait()
            if not is_connected():
                return
            changed = trio.Event()
            names = await self._zookeeper.children(resources.CONFIG_CHANGES, changed.set)
            new = [name for name in names if number_of(name) > last]
            last = max(map(number_of, names), default=last)
            if new:
                keys = await self._settings.notified(new)
                async with self._publishing:
                    await self._publish(await self._settings.read(self._image, keys))

    # --- changes --------------------------------------------------------------------------------------------

    async def change(self, decide: Decide) -> ClusterImage:
        """See MetadataStore.change. Needs `run`.

        Waits for ZooKeeper, and for the leaders of new partitions, for as long as the caller does. Raises StorageError
        if ZooKeeper refuses the change, or when the store is closed.
        """
        if self._is_closed:
            raise _closed()
        wish = _Wish(decide)
        self._waiting.append(wish)
        self._wanted.set()
        try:
            await wish.done.wait()
        finally:
            for wishes in (self._waiting, self._unmet):
                if wish in wishes:
                    wishes.remove(wish)
        if wish.failure is not None:
            raise wish.failure
        assert wish.image is not None
        return wish.image

    async def _write(self) -> None:
        """Carry out changes, those together that have come together."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            while self._waiting:
                wishes, self._waiting = self._waiting, []
                try:
                    await self._carry_out(wishes)
                except trio.Cancelled:
                    for wish in wishes:
                        wish.fail(_closed())
                    raise

    async def _carry_out(self, wishes: Sequence[_Wish]) -> None:
        truth, rounds = Truth(), 0
        while True:
            base = await self._newest(truth)
            wishes = await self._decide_all(wishes, base)
            changes = [change for wish in wishes for change in wish.changes]
            try:
                await self._write_all(changes, base)
            except ConflictError as conflict:
                rounds = 0 if truth.add(conflict.truth) else rounds + 1
                if rounds < CONFLICTS_MAX:
                    continue
                await self._refuse(wishes, ValueError("what was decided does not fit what is there"))
                return
            except (RequestError, ValueError, ZooKeeperError) as error:
                await self._refuse(wishes, error)
                return
            break
        if changes:
            await self._publish_own(changes)
        for wish in wishes:
            if wish.needs and not all(need.is_met(self._image) for need in wish.needs):
                self._unmet.append(wish)
            else:
                wish.succeed(wish.image if wish.changes and wish.image is not None else self._image)

    async def _refuse(self, wishes: Sequence[_Wish], error: Exception) -> None:
        """Raise an error to whom it belongs: changes that are together because they came together are tried alone."""
        if len(wishes) > 1:
            for wish in wishes:
                await self._carry_out([wish])
        for wish in wishes:
            if not wish.done.is_set() and len(wishes) == 1:
                wish.fail(error if isinstance(error, RequestError) else StorageError(PLACE, error))

    async def _newest(self, truth: Truth) -> ClusterImage:
        """The image, with what this broker has written and what others have, as far as that is known."""
        if self._written.topics:
            names = list(self._written.topics)
            found = await until_answered(
                self._zookeeper, lambda: self._zookeeper.get_many([znodes.topic_path(name) for name in names])
            )
            for name, node in zip(names, found, strict=True):
                if node is None:
                    self._written.topics.pop(name, None)
        known = Truth()
        known.add(self._written)
        known.add(truth)
        return self._image.apply(known.changes(self._image))

    async def _decide_all(self, wishes: Sequence[_Wish], image: ClusterImage) -> list[_Wish]:
        """Let each decide on the image with what those before it have decided; returns those that did not refuse."""
        decided = []
        for wish in wishes:
            try:
                wish.changes = await self._decided(wish.decide, image)
                writes.paths_of(wish.changes)
                wish.needs = _needs(wish.changes, image)
                image = image.apply(wish.changes) if wish.changes else image
            except Exception as error:
                wish.fail(error)
                continue
            wish.image = image
            decided.append(wish)
        return decided

    async def _write_all(self, changes: Sequence[Change], base: ClusterImage) -> None:
        """Write what the changes need, until it is there. Raises ConflictError, RequestError, ZooKeeperError."""
        if not changes:
            return
        paths = writes.paths_of(changes)
        is_retry = False
        while True:
            found = await until_answered(self._zookeeper, lambda: self._zookeeper.get_many(paths))
            plan = writes.plan(
                changes,
                base,
                dict(zip(paths, found, strict=True)),
                self._broker_id,
                has_topic_ids=self._has_topic_ids,
            )
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
            await self._notify(entity)
        self._note_written(changes, base)

    async def _notify(self, entity: str) -> None:
        path = f"{resources.CONFIG_CHANGES}/{resources.CONFIG_CHANGE_PREFIX}"
        data = resources.encode_config_change(entity)
        await until_answered(
            self._zookeeper, lambda: self._zookeeper.create(path, data, sequence=True, parents=True)
        )

    def _note_written(self, changes: Sequence[Change], base: ClusterImage) -> None:
        """Remember topics that the controller will tell of: until then they are there for whoever decides."""
        new = base.apply(changes)
        for change in changes:
            match change:
                case TopicCreated(TopicInfo(name)) | PartitionsAdded(name):
                    if name in new.topics:
                        self._written.topics[name] = new.topics[name]
                case TopicDeleted(name):
                    self._written.topics.pop(name, None)
                case _:
                    pass
        self._written.forget_known(self._image)

    async def _publish_own(self, changes: Sequence[Change]) -> None:
        """Publish what was written and is not the controller's to say; settings as they are now."""
        created = {change.topic.name for change in changes if isinstance(change, TopicCreated)}
        keys: list[ResourceKey] = []
        other: list[Change] = []
        for change in changes:
            match change:
                case ConfigChanged(kind, name):
                    if kind != TOPIC or name not in created:
                        keys.append((kind, name))
                case ProducerIdsAllocated() | LogDirsRegistered():
                    other.append(change)
                case _:
                    pass
        while keys or other:
            try:
                async with self._publishing:
                    settings = await self._settings.read(self._image, keys) if keys else []
                    await self._publish([*settings, *other])
                return
            except (ConnectionLostError, SessionExpiredError):
                if self._zookeeper.is_closed:
                    return
                await self._zookeeper.wait_connected()


def _needs(changes: Iterable[Change], image: ClusterImage) -> list[_Need]:
    """What the image must say before these changes, which were decided on `image`, are done."""
    needs: dict[str, _Need] = {}
    for change in changes:
        match change:
            case TopicCreated(topic):
                needs[topic.name] = _Need(topic, len(topic.partitions))
            case PartitionsAdded(name, partitions):
                before = needs.get(name)
                if before is not None:
                    needs[name] = replace(before, partitions=before.partitions + len(partitions))
                elif name in image.topics:
                    topic = image.topics[name]
                    needs[name] = _Need(topic, len(topic.partitions) + len(partitions))
            case TopicDeleted(name):
                before = needs.get(name)
                topic_before = before.topic if before is not None else image.topics.get(name)
                if topic_before is not None:
                    needs[name] = _Need(topic_before, 0)
            case _:
                pass
    return list(needs.values())


def _closed() -> StorageError:
    return StorageError(PLACE, ValueError("the metadata store is closed"))
