"""Brokers that start, end, restart, lose a log dir or shut down. Pure.

The rule: an absent broker leads nothing and is in no ISR with other replicas; a new broker gets all metadata, then takes
part in elections. A newer broker epoch means that the broker has restarted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from barnabas.cluster.controller import deletion, elections, partitions, reassignment
from barnabas.cluster.controller.core import Core
from barnabas.cluster.controller.state import Assignment, Broker, PartitionState
from barnabas.cluster.controller.steps import GIVE_WAY, PIECE, SCANNED, Steps
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicPartition

UNKNOWN_EPOCH = -1


def start(core: Core) -> Steps[None]:
    """Take office as the controller, once all znodes have been read: repair changes that happened meanwhile, and inform all
    brokers.

    Brokers are informed of live brokers before they are informed of leaders.
    """
    state = core.state
    core.batch.update_metadata(state.brokers)
    yield from core.send()
    yield from partitions.elect_after_absence(core)
    yield from partitions.elect_offline(core)
    yield from partitions.shrink_isr(core, (yield from _with_replicas_lost(core)))
    yield from announce(core, state.brokers)
    yield from core.send()


def _with_replicas_lost(core: Core) -> Steps[list[TopicPartition]]:
    state, lost = core.state, []
    for number, (partition, now) in enumerate(list(state.states.items())):
        if number % SCANNED == SCANNED - 1:
            yield GIVE_WAY
        if state.assignment(partition) is None or state.is_deleting(partition[0]):
            continue
        if not all(
            state.is_online(replica, partition, also_shutting_down=True) for replica in (now.leader, *now.isr)
        ):
            lost.append(partition)
    return lost


def announce(core: Core, broker_ids: Collection[int]) -> Steps[None]:
    """Send brokers the partitions that they have replicas of, and as metadata all partitions."""
    state = core.state
    deleted = {topic for topic in state.deletions if state.is_deleting(topic)}
    core.batch.update_metadata(broker_ids)
    for number, (partition, assignment) in enumerate(state.partitions()):
        if number % PIECE == PIECE - 1:
            yield GIVE_WAY
        if partition[0] in deleted or partition not in state.states:
            continue
        receivers = [replica for replica in assignment.replicas if replica in broker_ids]
        core.batch.tell_replicas(receivers, partition)
        core.batch.update_metadata(broker_ids, (partition,))


# --- they come and go ---------------------------------------------------------------------------------------


def changed(core: Core, registered: Mapping[int, Broker]) -> Steps[None]:
    """Record the registered brokers, with their epochs."""
    before = core.state.brokers
    new = {broker_id for broker_id in registered if broker_id not in before}
    back = {
        broker_id
        for broker_id in registered
        if broker_id in before and registered[broker_id].epoch > before[broker_id].epoch
    }
    gone = before.keys() - registered.keys()
    if gone or back:
        yield from _failed(core, gone | back, back)
    if new or back:
        yield from _started(core, {broker_id: registered[broker_id] for broker_id in sorted(new | back)})


def _failed(core: Core, broker_ids: Collection[int], returning: Collection[int]) -> Steps[None]:
    state = core.state
    for broker_id in broker_ids:
        state.brokers.pop(broker_id)
        state.shutting_down.discard(broker_id)
        state.refusing.discard(broker_id)
        state.offline_dirs.pop(broker_id, None)
    deletion.brokers_changed(core, broker_ids)
    yield from _replicas_lost(core, returning)


def _replicas_lost(core: Core, returning: Collection[int] = ()) -> Steps[None]:
    """Elect where the leader was lost, then remove the lost brokers from the other ISRs; inform all live brokers.

    Records of brokers that have already returned are not discarded by an unclean election.
    """
    yield from partitions.elect_offline(core, returning=returning)
    yield from partitions.shrink_isr(core, (yield from _with_replicas_lost(core)))
    core.batch.update_metadata(core.state.brokers)
    yield from core.send()


def _started(core: Core, brokers: Mapping[int, Broker]) -> Steps[None]:
    """Inform all live brokers, the new ones first: a broker of Kafka follows no leader that it does not know."""
    state = core.state
    state.brokers.update(brokers)
    for broker_id in brokers:
        state.offline_dirs.pop(broker_id, None)
    deletion.brokers_changed(core, brokers)
    core.batch.update_metadata(state.brokers)
    yield from core.send()
    yield from announce(core, brokers)
    yield from core.send()
    yield from partitions.elect_offline(core)
    yield from core.send()
    yield from reassignment.resume(
        core, lambda _, assignment: any(replica in brokers for replica in assignment.target)
    )
    yield from deletion.proceed(core)


def updated(core: Core, broker: Broker) -> Steps[None]:
    """Tell all brokers that a broker listens elsewhere."""
    registered = core.state.brokers.get(broker.id)
    if registered is None or registered.epoch != broker.epoch or registered == broker:
        return
    core.state.brokers[broker.id] = broker
    core.batch.update_metadata(core.state.brokers)
    yield from core.send()


# --- log dirs -----------------------------------------------------------------------------------------------


def log_dirs_failed(core: Core, broker_ids: Iterable[int]) -> Steps[None]:
    """Ask brokers which of their replicas are offline: they answer LeaderAndIsr with KAFKA_STORAGE_ERROR for these."""
    asked = set(broker_ids) & core.state.brokers.keys()
    if asked:
        yield from announce(core, asked)
        yield from core.send()


def replicas_answered(core: Core, broker: Broker, errors: Mapping[TopicPartition, int]) -> Steps[None]:
    """Note a broker's response to LeaderAndIsr: its offline and online replicas."""
    state = core.state
    if state.brokers.get(broker.id) is None or state.brokers[broker.id].epoch != broker.epoch:
        return
    offline_replicas = state.offline_dirs.setdefault(broker.id, set())
    lost = {
        partition for partition, code in errors.items() if code == ErrorCode.KAFKA_STORAGE_ERROR
    } - offline_replicas
    offline_replicas.difference_update(
        [partition for partition, code in errors.items() if code == ErrorCode.NONE]
    )
    if not lost:
        return
    offline_replicas |= lost
    deletion.replicas_lost(core, broker.id, lost)
    for partition in lost:
        if not state.is_deleting(partition[0]):
            core.batch.stop_replica(state, broker.id, partition, delete=False)
    yield from _replicas_lost(core)


# --- controlled shutdown ------------------------------------------------------------------------------------


def shut_down(core: Core, broker_id: int, broker_epoch: int) -> Steps[list[TopicPartition]]:
    """Move leaders away from a broker that shuts down; return the partitions that it still leads though others have
    replicas.

    Raises RequestError: STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE.
    """
    state = core.state
    if broker_id not in state.brokers:
        raise RequestError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker_id}")
    epoch = state.brokers[broker_id].epoch
    if broker_epoch != UNKNOWN_EPOCH and broker_epoch < epoch:
        raise RequestError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has epoch {epoch}, not {broker_epoch}"
        )
    state.refusing.discard(broker_id)
    return (yield from _leave(core, broker_id, stops=True))


def refused(core: Core, broker: Broker) -> Steps[None]:
    """Move leaders away from a broker after its port has refused connections: its process has ended, its session not yet.

    If it is alive nevertheless, it is fenced by the leader epochs, like a broker that shuts down.
    """
    state = core.state
    registered = state.brokers.get(broker.id)
    if registered is not None and registered.epoch == broker.epoch and broker.id not in state.shutting_down:
        state.refusing.add(broker.id)
        yield from _leave(core, broker.id, stops=False)


def reached(core: Core, broker: Broker) -> Steps[None]:
    """Restore a broker that was considered gone, but answers in the same registration."""
    state = core.state
    registered = state.brokers.get(broker.id)
    if registered is not None and registered.epoch == broker.epoch and broker.id in state.refusing:
        state.refusing.discard(broker.id)
        state.shutting_down.discard(broker.id)
        yield from announce(core, {broker.id})
        yield from partitions.elect_offline(core)
        yield from core.send()


def _leave(core: Core, broker_id: int, *, stops: bool) -> Steps[list[TopicPartition]]:
    """Remove a broker from ISRs with other replicas, leaders first; returns the partitions that it still leads though
    others have replicas. With `stops` it also stops following.
    """
    state = core.state
    state.shutting_down.add(broker_id)
    leads: list[TopicPartition] = []
    follows: list[TopicPartition] = []
    for number, (partition, assignment) in enumerate(list(state.partitions())):
        if number % SCANNED == SCANNED - 1:
            yield GIVE_WAY
        now = state.states.get(partition)
        if (
            broker_id in assignment.replicas
            and len(assignment.replicas) > 1
            and now is not None
            and not state.is_deleting(partition[0])
        ):
            (leads if now.leader == broker_id else follows).append(partition)

    def choose(
        partition: TopicPartition, assignment: Assignment, now: PartitionState
    ) -> PartitionState | None:
        return elections.controlled_shutdown(
            assignment.replicas,
            now,
            lambda replica: state.is_online(replica, partition, also_shutting_down=True),
            state.shutting_down,
        )

    def leave(_: TopicPartition, __: Assignment, now: PartitionState) -> PartitionState:
        isr = tuple(replica for replica in now.isr if replica != broker_id)
        return now.next_epoch(now.leader, isr) if isr and isr != now.isr else now

    yield from partitions.update(core, leads, choose)
    yield from partitions.update(
        core,
        follows,
        leave,
        lambda partition: [other for other in state.replicas(partition) if other != broker_id],
    )
    if stops:
        for partition in follows:
            core.batch.stop_replica(state, broker_id, partition, delete=False)
    yield from core.send()
    return [partition for partition in leads if state.states[partition].leader == broker_id]
