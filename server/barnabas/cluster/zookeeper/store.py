"""The metadata store of a broker in a cluster on ZooKeeper.

The rule: changes from the controller and /config are published in one order. A change of this broker is written to
ZooKeeper, on the condition that its inputs are unchanged, and gets into the image only when the cluster reports it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import trio

from barnabas.cluster.metadata.changes import BrokerRegistered, ConfigChanged, PartitionsAdded, TopicCreated
from barnabas.cluster.metadata.control_requests import UNKNOWN
from barnabas.cluster.metadata.image import (
    TOPIC,
    Change,
    ClusterImage,
    ResourceKey,
    TopicInfo,
)
from barnabas.cluster.metadata.publishing import Publication
from barnabas.cluster.metadata.store import Decide, Subscriber
from barnabas.cluster.zookeeper import acl_znodes, znodes
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper.acls import AclsReader
from barnabas.cluster.zookeeper.assignments import read_assignments
from barnabas.cluster.zookeeper.changes import PLACE, ChangeWriter, closed, decided
from barnabas.cluster.zookeeper.notifications import Notifications
from barnabas.cluster.zookeeper.registration import (
    IdTakenError,
    Registration,
    make_persistent,
    until_answered,
)
from barnabas.cluster.zookeeper.session import SessionState, ZooKeeper, ZooKeeperError
from barnabas.cluster.zookeeper.settings import SettingsReader
from barnabas.cluster.zookeeper.succession import wait_for_successors
from barnabas.cluster.zookeeper.tokens import TokensReader
from barnabas.cluster.zookeeper.topic_ids import restore_topic_ids
from barnabas.cluster.zookeeper.znodes import BrokerRegistration
from barnabas.errors import RequestError, StorageError
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
UNKNOWN_EPOCH = -1


class ZooKeeperStore:
    """A MetadataStore on ZooKeeper.

    Lifecycle: created with a connected session; `open`; `run` in a separate task while the broker runs; `register` once
    clients and the controller can be served; `close`, which ends the session.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        broker_id: int,
        clock_ms: Callable[[], int],
        budget: LoopBudget | None = None,
        *,
        has_topic_ids: bool = True,
        has_tokens: bool = False,
        has_acls: bool = False,
    ) -> None:
        """`has_topic_ids` is False while `inter.broker.protocol.version` is below 2.8.

        Delegation tokens and ACLs are read and followed if `has_tokens` and `has_acls` are true.
        """
        self.patience_ms = 0
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._clock_ms = clock_ms
        self._budget = budget or LoopBudget()
        self._settings = SettingsReader(zookeeper, self._budget)
        self._tokens = TokensReader(zookeeper, self._budget)
        self._acls = AclsReader(zookeeper, self._budget)
        self._has_tokens, self._has_acls = has_tokens, has_acls
        self._publication = Publication(ClusterImage(""), self._budget)
        self._publishing = trio.Lock()
        self._writer = ChangeWriter(zookeeper, broker_id, self, self._budget, has_topic_ids=has_topic_ids)
        self._registration: Registration | None = None
        self._is_registered = trio.Event()
        self._session_changed = trio.Event()
        self._controller_epoch = 0
        self._running: trio.CancelScope | None = None
        self._notifications = [
            Notifications(
                zookeeper, resources.CONFIG_CHANGES, resources.CONFIG_CHANGE_PREFIX, clock_ms, what="settings",
                read_all=self._read_all_settings, read_named=self._read_notified_settings,
            )
        ]  # fmt: skip
        if has_tokens:
            self._notifications.append(
                Notifications(
                    zookeeper, resources.TOKEN_CHANGES, resources.TOKEN_CHANGE_PREFIX, clock_ms, what="tokens",
                    read_all=self._read_all_tokens, read_named=self._read_notified_tokens,
                )
            )  # fmt: skip
        for root in acl_znodes.CHANGES if has_acls else ():
            self._notifications.append(
                Notifications(
                    zookeeper, root, resources.ACL_CHANGE_PREFIX, clock_ms, what="ACLs",
                    read_all=self._read_all_acls, read_named=partial(self._read_notified_acls, root),
                )
            )  # fmt: skip
        self._is_closed = False
        self.broker_epoch = UNKNOWN_EPOCH
        """The epoch of this broker's registration, -1 before the first."""
        zookeeper.watch_session(self._session_is)

    @property
    def image(self) -> ClusterImage:
        """The newest image for which the subscribers are ready."""
        return self._publication.image

    def subscribe(self, subscriber: Subscriber) -> None:
        """Subscribe to each change, in order."""
        self._publication.subscribe(subscriber)

    # --- life -----------------------------------------------------------------------------------------------

    async def open(self, new_cluster_id: str) -> None:
        """Create the znodes that every broker needs, read or create the cluster's id, and read the settings.

        Raises ZooKeeperError; ZnodeError if the cluster's id, an ACL or a topic's setting cannot be read.
        """
        for path in resources.PERSISTENT:
            await make_persistent(self._zookeeper, path)
        image = ClusterImage(await self._cluster_id(new_cluster_id))
        changes = await until_answered(self._zookeeper, lambda: self._settings.read_all(image, is_first=True))
        if self._has_tokens:
            for path in (resources.TOKENS, resources.TOKEN_CHANGES):
                await make_persistent(self._zookeeper, path)
            changes += await until_answered(self._zookeeper, lambda: self._tokens.read_all(image))
        if self._has_acls:
            for path in (*acl_znodes.TYPE_PATHS, *acl_znodes.CHANGES):
                await make_persistent(self._zookeeper, path)
            changes += await until_answered(
                self._zookeeper, lambda: self._acls.read_all(image, is_first=True)
            )
        self._publication.image = image.apply(changes).at_version(0)

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
        self._is_registered.set()
        self._session_changed.set()
        return self.broker_epoch

    async def wait_for_successors(self, broker: BrokerRegistration) -> None:
        """Wait until others have taken over the partitions in which this broker was in sync.

        Call it before `register`, after an unclean shutdown. Raises IdTakenError, ZooKeeperError.
        """
        await Registration(self._zookeeper, self._broker_id, broker).wait_until_free()
        await wait_for_successors(self._zookeeper, self._broker_id, self._budget)

    async def run(self) -> None:
        """Write changes, follow the settings, stay registered; until `close`, or cancelled."""
        async with trio.open_nursery() as nursery:
            self._running = nursery.cancel_scope
            if self._is_closed:
                return
            nursery.start_soon(self._writer.run)
            for notifications in self._notifications:
                nursery.start_soon(notifications.run)
            nursery.start_soon(self._stay_registered)

    async def close(self) -> None:
        """End the session, and with it this broker's registration; later changes raise StorageError."""
        self._is_closed = True
        if self._running is not None:
            self._running.cancel()
        self._writer.close()
        await self._zookeeper.close()

    @property
    def is_connected(self) -> bool:
        """True while ZooKeeper can be reached."""
        return self._zookeeper.state is SessionState.CONNECTED

    def _session_is(self, _state: SessionState) -> None:
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
        registered = image.brokers.get(self._broker_id)
        return (
            [BrokerRegistered(registered._replace(epoch=self.broker_epoch))] if registered is not None else []
        )

    async def report_log_dir_failure(self) -> None:
        """Tell the controller that a log dir of this broker has failed. Raises ZooKeeperError."""
        path = f"{znodes.LOG_DIR_EVENTS}/{znodes.LOG_DIR_EVENT_PREFIX}"
        data = znodes.encode_log_dir_event(self._broker_id)
        await until_answered(
            self._zookeeper, lambda: self._zookeeper.create(path, data, sequence=True, parents=True)
        )

    # --- what others say ------------------------------------------------------------------------------------

    def check_controller(self, controller_id: int, controller_epoch: int, broker_epoch: int) -> None:
        """Check that a request is from the newest controller, and for this registration of the broker.

        `broker_epoch` is -1 if the request has none. Raises STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH.
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
        """Publish changes from the controller, like `publish`, once this broker is registered.

        Earlier requests are for the former process with this id and address; the controller has not noticed its end yet.
        """
        await self._is_registered.wait()
        return await self.publish(decide)

    async def restore_topic_ids(self, topic_ids: Mapping[str, bytes]) -> None:
        """See Member."""
        try:
            await restore_topic_ids(self._zookeeper, topic_ids)
        except ZooKeeperError as error:
            log.error("topic ids cannot be written back: %s", error)

    async def publish(self, decide: Decide) -> ClusterImage:
        """Publish the changes that `decide` returns for the newest image, and return the image with them.

        Nothing is written to ZooKeeper. The settings of new topics are read first. A caller that is cancelled while
        subscribers follow waits for their end. Raises StorageError once it is closed.
        """
        async with self._publishing:
            changes = [self._with_epoch(change) for change in await decided(self._budget, decide, self.image)]
            changes = await self._with_all_partitions(changes)
            created = [change.topic.name for change in changes if isinstance(change, TopicCreated)]
            if created:
                changes += await self._settings_of_new(created)
            await self._publish(changes)
            return self.image

    def _with_epoch(self, change: Change) -> Change:
        if isinstance(change, BrokerRegistered) and change.broker.id == self._broker_id:
            return BrokerRegistered(change.broker._replace(epoch=self.broker_epoch))
        return change

    async def _with_all_partitions(self, changes: Sequence[Change]) -> list[Change]:
        """Return the changes, with the partition counts of ZooKeeper in new and enlarged topics.

        LeaderAndIsr is the first request with a topic, and has only partitions with replicas here; UpdateMetadata has all.
        Until that arrives, clients and coordinators would see a topic with fewer partitions: clients consider the others
        deleted, and brokers would disagree on the coordinator of an id, which is a hash over the number of partitions.
        """
        names = list(dict.fromkeys([name for name in map(_grown, changes) if name is not None]))
        if not names:
            return list(changes)
        try:
            assignments = await read_assignments(self._zookeeper, names, self._budget)
        except ZooKeeperError as error:
            raise closed() if self._is_closed else StorageError(PLACE, error) from error
        counts = {
            name: 1 + max(assignment.partitions, default=-1) for name, assignment in assignments.items()
        }
        return [_with_count(change, counts, self.image) for change in changes]

    async def _settings_of_new(self, topics: Sequence[str]) -> list[Change]:
        keys = [(TOPIC, name) for name in topics]
        nothing = ClusterImage("")
        try:
            changes = await until_answered(self._zookeeper, lambda: self._settings.read(nothing, keys))
        except ZooKeeperError as error:
            raise closed() if self._is_closed else StorageError(PLACE, error) from error
        there = {change.resource_name for change in changes if isinstance(change, ConfigChanged)}
        stale = [
            ConfigChanged(TOPIC, name, ())
            for name in topics
            if name not in there and self.image.settings_of(TOPIC, name)
        ]
        return [*changes, *stale]

    async def _publish(self, changes: Sequence[Change]) -> None:
        """Publish these changes to all subscribers. The caller holds the lock."""
        if changes:
            await self._publication.publish(changes)
            self._writer.published(self.image)

    # --- settings and delegation tokens ---------------------------------------------------------------------

    async def _read_all_settings(self) -> None:
        async with self._publishing:
            await self._publish(await self._settings.read_all(self.image))

    async def _read_notified_settings(self, names: Sequence[str]) -> None:
        keys = await self._settings.notified(names)
        async with self._publishing:
            await self._publish(await self._settings.read(self.image, keys))

    async def _read_all_tokens(self) -> None:
        async with self._publishing:
            await self._publish(await self._tokens.read_all(self.image))

    async def _read_notified_tokens(self, names: Sequence[str]) -> None:
        ids = await self._tokens.notified(names)
        async with self._publishing:
            await self._publish(await self._tokens.read(self.image, ids))

    async def _read_all_acls(self) -> None:
        async with self._publishing:
            await self._publish(await self._acls.read_all(self.image))

    async def _read_notified_acls(self, root: str, names: Sequence[str]) -> None:
        patterns = await self._acls.notified(root, names)
        async with self._publishing:
            await self._publish(await self._acls.read(self.image, patterns))

    # --- changes --------------------------------------------------------------------------------------------

    async def change(self, decide: Decide) -> ClusterImage:
        """See MetadataStore.change. Needs `run`.

        Waits for ZooKeeper, and for the leaders of new partitions, for as long as the caller does. Raises StorageError
        if ZooKeeper refuses the change, or when the store is closed.
        """
        if self._is_closed:
            raise closed()
        return await self._writer.change(decide)

    async def publish_read(self, keys: Sequence[ResourceKey], others: Sequence[Change]) -> None:
        """Publish these changes, and the present settings of these resources. Raises ZooKeeperError."""
        async with self._publishing:
            settings = await self._settings.read(self.image, keys) if keys else []
            await self._publish([*settings, *others])


def _grown(change: Change) -> str | None:
    """Return the topic that this change creates or enlarges, None for other changes."""
    match change:
        case TopicCreated(TopicInfo(name)) | PartitionsAdded(name):
            return name
    return None


def _with_count(change: Change, counts: Mapping[str, int], image: ClusterImage) -> Change:
    """Return the change with partitions of unknown leaders up to the topic's partition count, if that is known."""
    match change:
        case TopicCreated(topic) if topic.name in counts:
            missing = counts[topic.name] - len(topic.partitions)
            return TopicCreated(topic._replace(partitions=topic.partitions + (UNKNOWN,) * missing))
        case PartitionsAdded(name, partitions) if name in counts:
            missing = counts[name] - len(image.topics[name].partitions) - len(partitions)
            return PartitionsAdded(name, partitions + (UNKNOWN,) * missing)
    return change
