"""One controller, from its election to its end: its reads, watches and writes.

The rule: a watch only adds an event; when the event is handled, its znodes are read and watched again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from barnabas.cluster.controller import brokers, deletion, leaders, partitions, reassignment, topics
from barnabas.cluster.controller.core import ControllerSettings, Core
from barnabas.cluster.controller.state import ControllerState, Deletion
from barnabas.cluster.controller.steps import (
    CreateStates,
    DeleteTopic,
    GiveWay,
    Outgoing,
    ReadReassignments,
    ReadStates,
    ReadUnclean,
    RemoveDeletions,
    Send,
    Step,
    Steps,
    WatchState,
    WriteAssignment,
    WriteReassignments,
    WriteStates,
)
from barnabas.cluster.controller.znodes import ControllerZnodes
from barnabas.cluster.metadata.ports import ElectionType
from barnabas.cluster.zookeeper import znodes as paths
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.topic_ids import tell_restored
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.wire.generated.stop_replica import StopReplicaResponse
from barnabas.wire.ids import new_uuid, uuid_text
from barnabas.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from barnabas.cluster.controller.channels import ControlChannels
    from barnabas.cluster.controller.election import Elected
    from barnabas.cluster.controller.state import Broker
    from barnabas.cluster.controller.topics import TopicFound
    from barnabas.cluster.zookeeper.session import Watch, ZooKeeper
    from barnabas.environment import Entropy
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.wire.topic_partitions import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")


class Put(Protocol):
    """Adds an event, unless one with its key waits already."""

    def __call__(self, name: str, act: Callable[[], Awaitable[None]], key: str = "") -> None:
        """Add it."""


class ActiveController:
    """The controller of one epoch. Its methods are events: they run one at a time, and raise ControllerMovedError."""

    def __init__(
        self,
        settings: ControllerSettings,
        elected: Elected,
        zookeeper: ZooKeeper,
        channels: ControlChannels,
        *,
        budget: LoopBudget,
        entropy: Entropy,
        allows_unclean: Callable[[Mapping[str, str]], bool],
        known_topic_id: Callable[[str], bytes | None],
        put: Put,
    ) -> None:
        self.core = Core(settings, ControllerState(elected.epoch, elected.epoch_version))
        self.znodes = ControllerZnodes(zookeeper, budget, elected.epoch_version)
        self._channels = channels
        self._budget = budget
        self._entropy = entropy
        self._allows_unclean = allows_unclean
        self._known_topic_id = known_topic_id
        self._put = put
        self._watches: dict[str, Watch] = {}

    def _watch(self, key: str, act: Callable[[], Awaitable[None]]) -> Watch:
        """Return the watch that adds an event; always the same object, since ZooKeeper calls equal watches once."""
        if key not in self._watches:
            self._watches[key] = lambda: self._put(key, act, key)
        return self._watches[key]

    # --- carrying out ---------------------------------------------------------------------------------------

    async def run(self, steps: Steps[T]) -> T:
        """Carry out the core's requests, and return its result."""
        outcome: Any = None
        try:
            while True:
                outcome = await self._carry_out(steps.send(outcome))
        except StopIteration as end:
            return cast("T", end.value)

    async def _carry_out(self, step: Step) -> Any:
        match step:
            case GiveWay():
                await self._budget.checkpoint()
            case ReadStates(wanted):
                return await self.znodes.states(wanted)
            case WriteStates(states):
                return await self.znodes.write_states(states)
            case CreateStates(states):
                return await self.znodes.create_states(states)
            case WriteAssignment(topic, topic_id, assignments):
                return await self.znodes.write_topic(topic, topic_id, assignments)
            case ReadUnclean(names):
                return await self._unclean(sorted(names))
            case DeleteTopic(topic):
                await self.znodes.delete_topic(topic)
                log.info("topic %s is deleted", topic)
            case RemoveDeletions(names):
                log.warning("topics cannot be deleted, or are not there: %s", ", ".join(sorted(names)[:20]))
                await self.znodes.remove_deletions(names)
            case ReadReassignments():
                return await self.znodes.reassignments()
            case WatchState(partition):
                await self._watch_state(partition)
            case WriteReassignments(targets):
                await self.znodes.write_reassignments(targets)
            case Send(requests):
                for request in requests:
                    self._channels.send(request, self._answered)
        return None

    async def _unclean(self, names: Sequence[str]) -> set[str]:
        settings = await self.znodes.topic_settings(names)
        return {name for name, own in zip(names, settings, strict=True) if self._allows_unclean(own)}

    # --- the beginning --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read all znodes, with watches, and repair changes that happened without a controller."""
        state, znodes = self.core.state, self.znodes
        for parent in (paths.LOG_DIR_EVENTS, paths.ISR_CHANGES):
            key, act = self._notified(parent)
            await znodes.remove(list(await znodes.notifications(parent, self._watch(key, act))))
        state.brokers = await znodes.brokers(self._watch("brokers", self.brokers_changed))
        for broker in state.brokers.values():
            self._channels.open(broker)
        names = await znodes.children(paths.TOPICS, self._watch("topics", self.topics_changed))
        for name, (topic_id, assignments) in (await self._read_topics(names)).items():
            state.add_topic(name, topic_id, assignments)
            await self._budget.checkpoint()
        state.states = await znodes.states([partition for partition, _ in state.partitions()])
        requested = await self._wanted_deletions()
        if self.core.settings.delete_topic_enable:
            state.deletions = {topic: Deletion() for topic in requested if topic in state.assignments}
        log.info(
            "the controller has read %d brokers, %d topics, %d partitions",
            len(state.brokers), len(state.assignments), len(state.states),
        )  # fmt: skip
        await znodes.make_features(self.core.settings.protocol)
        await self.run(brokers.start(self.core))
        await self.reassigned()
        await self.run(reassignment.resume(self.core))
        await self.run(deletion.wanted(self.core, requested))
        await self.preferred_wanted()

    def _notified(self, parent: str) -> tuple[str, Callable[[], Awaitable[None]]]:
        if parent == paths.ISR_CHANGES:
            return "ISR notifications", self.isrs_changed
        return "log dir notifications", self.log_dirs_failed

    # --- brokers --------------------------------------------------------------------------------------------

    async def brokers_changed(self) -> None:
        """Read the registered brokers, with their epochs and endpoints."""
        registered = await self.znodes.brokers(self._watch("brokers", self.brokers_changed))
        brokers_before = dict(self.core.state.brokers)
        new = [broker for broker in registered.values() if broker.id not in brokers_before]
        back = [
            broker
            for broker in registered.values()
            if broker.id in brokers_before and broker.epoch > brokers_before[broker.id].epoch
        ]
        gone = sorted(brokers_before.keys() - registered.keys())
        if new or back or gone:
            log.info(
                "brokers that have come: %s, come back: %s, gone: %s",
                [broker.id for broker in new], [broker.id for broker in back], gone,
            )  # fmt: skip
        for broker_id in gone:
            self._channels.close(broker_id)
        for broker in (*new, *back):
            self._channels.open(broker)
        await self.run(brokers.changed(self.core, registered))
        for broker in registered.values():
            await self.run(brokers.updated(self.core, broker))
        await self._name(topics.known_to_nobody(self.core, list(self.core.state.unnamed)))

    async def broker_refuses(self, broker: Broker) -> None:
        """Do without a broker after its process has ended, before its session does."""
        log.warning(
            "broker %d refuses connections, and is registered: its process has ended, others take over",
            broker.id,
        )
        await self.run(brokers.refused(self.core, broker))

    async def broker_answers(self, broker: Broker) -> None:
        """Count on a broker again that had refused connections, and answers in the same registration."""
        log.info("broker %d answers again", broker.id)
        await self.run(brokers.reached(self.core, broker))

    async def log_dirs_failed(self) -> None:
        """Ask the brokers that reported failed log dirs which replicas they have lost."""
        key, act = self._notified(paths.LOG_DIR_EVENTS)
        notifications = await self.znodes.notifications(paths.LOG_DIR_EVENTS, self._watch(key, act))
        failed = set()
        for path, data in notifications.items():
            try:
                failed.add(paths.decode_log_dir_event(path.rpartition("/")[2], data))
            except ZnodeError as error:
                log.error("a notification of a lost log dir is left out: %s", error)
        if failed:
            log.warning("a log dir of these brokers has failed: %s", sorted(failed))
            await self.run(brokers.log_dirs_failed(self.core, failed))
        await self.znodes.remove(list(notifications))

    # --- topics ---------------------------------------------------------------------------------------------

    async def _read_topics(self, names: Sequence[str]) -> dict[str, TopicFound]:
        """Read topics; a topic without an id gets one (KIP-516).

        A topic with partition states existed before: its id was lost, but is in the logs of its replicas. It is the id
        that this broker knows, or is determined by `_told_without_id`.
        """
        topics_read = await self.znodes.topics(names, self._topic_watch)
        if not self.core.settings.uses_topic_ids:
            return topics_read
        without = {
            name: assignments for name, (topic_id, assignments) in topics_read.items() if topic_id is None
        }
        states = await self.znodes.states([(name, index) for name in without for index in without[name]])
        were_there = {name for name, _ in states}
        for name, assignments in without.items():
            id_to_write = self._known_topic_id(name) if name in were_there else new_uuid(self._entropy)
            if id_to_write is None:
                self.core.state.unnamed[name] = set()
                continue
            topic_id = await self.znodes.give_topic_id(name, id_to_write)
            if topic_id is None:
                del topics_read[name]
            else:
                topics_read[name] = (topic_id, assignments)
                if name in were_there and topic_id == id_to_write:
                    tell_restored(name, id_to_write)
        return topics_read

    async def _told_without_id(self, sent: Outgoing, names: Collection[str]) -> None:
        """Give ids to topics for which no replica has written one back, as each replica does that knows it."""
        broker = self.core.state.brokers.get(sent.broker_id)
        if broker is not None and broker.epoch == sent.broker_epoch:
            await self._name(topics.known_to_nobody(self.core, names, sent.broker_id))

    async def _name(self, names: Sequence[str]) -> None:
        for name in names:
            topic_id = await self.znodes.give_topic_id(name, new_uuid(self._entropy))
            if topic_id is not None:
                await self.run(topics.named(self.core, name, topic_id))

    def _topic_watch(self, path: str) -> Watch:
        topic = path.rpartition("/")[2]
        return self._watch(f"topic {topic}", lambda: self.partitions_changed(topic))

    async def topics_changed(self) -> None:
        """Look which topics there are."""
        names = await self.znodes.children(paths.TOPICS, self._watch("topics", self.topics_changed))
        assignments = self.core.state.assignments
        for gone in assignments.keys() - set(names):
            self._watches.pop(f"topic {gone}", None)
        topics_read = await self._read_topics([name for name in names if name not in assignments])
        if topics_read:
            log.info(
                "new topics: %s%s",
                ", ".join(list(topics_read)[:20]),
                ", ..." if len(topics_read) > 20 else "",
            )
        await self.run(topics.changed(self.core, set(names), topics_read))

    async def partitions_changed(self, topic: str) -> None:
        """Look which partitions a topic has."""
        if topic not in self.core.state.assignments:
            return
        topic_read = (await self.znodes.topics([topic], self._topic_watch)).get(topic)
        if topic_read is None:
            return
        topic_id, id_before = topic_read[0], self.core.state.topic_ids.get(topic)
        if topic_id is not None and id_before is None:
            await self.run(topics.named(self.core, topic, topic_id))
        elif topic_id != id_before and await self.znodes.states(self.core.state.partitions_of(topic)):
            await self._keep_topic_id(topic, topic_read)
        elif topic_id is not None and topic_id != id_before:
            # Deleted and made again by another program: the list of topics alone does not show that.
            log.warning("topic %s was made again with another id", topic)
            self.core.state.remove_topic(topic)
            await self.run(
                topics.changed(self.core, {topic, *self.core.state.assignments}, {topic: topic_read})
            )
            return
        await self.run(topics.partitions_changed(self.core, topic, topic_read[1]))

    async def _keep_topic_id(self, topic: str, topic_read: TopicFound) -> None:
        """Write back the id of a topic that has the partitions that it had, and lost the id in its znode."""
        topic_id = self.core.state.topic_ids[topic]
        if not await self.znodes.write_topic(topic, topic_id, topic_read[1]):
            return
        if topic_read[0] is None:
            tell_restored(topic, topic_id)
        else:
            log.error(
                "the topic_id %s was written into the znode of topic %s, which has the id %s and was not deleted: "
                "its own was written back",
                uuid_text(topic_read[0]), topic, uuid_text(topic_id),
            )  # fmt: skip

    async def _wanted_deletions(self) -> list[str]:
        return await self.znodes.children(
            paths.DELETE_TOPICS, self._watch("deletions", self.deletions_wanted)
        )

    async def deletions_wanted(self) -> None:
        """Look which topics are to be deleted."""
        requested = await self._wanted_deletions()
        new = [topic for topic in requested if topic not in self.core.state.deletions]
        unknown = [topic for topic in new if topic not in self.core.state.assignments]
        if unknown:
            await self.topics_changed()  # a topic made just before: its watch comes later
        if new:
            await self.run(deletion.wanted(self.core, new))

    # --- orders ---------------------------------------------------------------------------------------------

    async def reassigned(self) -> None:
        """Process the requests in /admin/reassign_partitions, if there are any."""
        await self.znodes.reassignments(self._watch("reassignments", self.reassigned))
        await self.run(reassignment.from_znode(self.core))

    async def _watch_state(self, partition: TopicPartition) -> None:
        watch = self._watch(_state_key(partition), lambda: self.state_changed(partition))
        await self.znodes.watch_state(partition, watch)

    async def state_changed(self, partition: TopicPartition) -> None:
        """Look whether a leader has put the replicas into the ISR that end a reassignment."""
        if partition not in self.core.state.reassigning:
            self._watches.pop(_state_key(partition), None)
            return
        await self._watch_state(partition)
        await self.run(partitions.refresh(self.core, [partition]))
        await self.run(reassignment.isr_changed(self.core, [partition]))

    async def preferred_wanted(self) -> None:
        """Process the requests in /admin/preferred_replica_election, if there are any."""
        requested = await self.znodes.preferred_election(self._watch("elections", self.preferred_wanted))
        if requested is None:
            return
        results = await self.run(leaders.elect(self.core, ElectionType.PREFERRED, requested))
        failed = [f"{topic}-{index}" for (topic, index), error in results.items() if error is not None]
        log.info(
            "preferred leaders of %d partitions were asked for; not elected: %s", len(results), failed[:20]
        )
        await self.znodes.remove([paths.PREFERRED_REPLICA_ELECTION])
        await self.znodes.preferred_election(self._watch("elections", self.preferred_wanted))

    async def isrs_changed(self) -> None:
        """Read the states that leaders have changed by themselves, as brokers before Kafka 2.7 do."""
        key, act = self._notified(paths.ISR_CHANGES)
        notifications = await self.znodes.notifications(paths.ISR_CHANGES, self._watch(key, act))
        changed: dict[TopicPartition, None] = {}
        for path, data in notifications.items():
            try:
                changed.update(dict.fromkeys(paths.decode_isr_change(path.rpartition("/")[2], data)))
            except ZnodeError as error:
                log.error("a notification of ISR changes is left out: %s", error)
        known_partitions = [partition for partition in changed if partition in self.core.state.states]
        if known_partitions:
            await self.run(partitions.refresh(self.core, known_partitions))
            self.core.batch.update_metadata(self.core.state.brokers, known_partitions)
            await self.run(self.core.send())
            await self.run(reassignment.isr_changed(self.core, known_partitions))
        await self.znodes.remove(list(notifications))

    async def rebalance(self) -> None:
        """Put leaders back to their preferred replicas where too many are elsewhere."""
        moved = await self.run(leaders.rebalance(self.core))
        if moved:
            log.info("%d leaders were moved to their preferred replicas", moved)

    # --- answers of brokers ---------------------------------------------------------------------------------

    def _answered(self, sent: Outgoing, response: Any) -> None:
        if response.error_code:
            # a process that replaced another during that one's session gets everything once it registers
            is_expected = response.error_code == ErrorCode.STALE_BROKER_EPOCH
            log.log(
                logging.INFO if is_expected else logging.ERROR,
                "broker %d has refused %s with error code %d",
                sent.broker_id, type(sent.request).__name__, response.error_code,
            )  # fmt: skip
        if isinstance(response, LeaderAndIsrResponse) and not response.error_code:
            if self.core.state.unnamed:
                names = {
                    topic_state.topic_name
                    for topic_state in sent.request.topic_states
                    if topic_state.topic_id == ZERO_UUID
                }
                self._put("topics without an id", lambda: self._told_without_id(sent, names))
            errors = self._replica_errors(sent.request, response)
            if ErrorCode.KAFKA_STORAGE_ERROR in errors.values() or self.core.state.offline_dirs.get(
                sent.broker_id
            ):
                self._put("replicas of a broker", lambda: self._replicas_answered(sent, errors))
        elif isinstance(response, StopReplicaResponse) and sent.deleting:
            codes = {
                (error.topic_name, error.partition_index): error.error_code
                for error in response.partition_errors
            }
            deleted = {
                partition: response.error_code or codes.get(partition, ErrorCode.NONE)
                for partition in sent.deleting
                if partition[0] in self.core.state.deletions
            }
            if deleted:
                self._put("deleted replicas", lambda: self._deletions_answered(sent, deleted))

    def _replica_errors(
        self, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
    ) -> dict[TopicPartition, int]:
        names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
        errors = {
            (names.get(topic.topic_id, ""), error.partition_index): error.error_code
            for topic in response.topics
            for error in topic.partition_errors
        }
        errors.update(
            {
                (partition_error.topic_name, partition_error.partition_index): partition_error.error_code
                for partition_error in response.partition_errors
            }
        )
        return errors

    async def _replicas_answered(self, sent: Outgoing, errors: dict[TopicPartition, int]) -> None:
        broker = self.core.state.brokers.get(sent.broker_id)
        if broker is not None and broker.epoch == sent.broker_epoch:
            await self.run(brokers.replicas_answered(self.core, broker, errors))

    async def _deletions_answered(self, sent: Outgoing, errors: dict[TopicPartition, int]) -> None:
        broker = self.core.state.brokers.get(sent.broker_id)
        if broker is not None and broker.epoch == sent.broker_epoch:
            await self.run(deletion.answered(self.core, sent.broker_id, errors))


def _state_key(partition: TopicPartition) -> str:
    return f"state of {partition[0]}-{partition[1]}"
