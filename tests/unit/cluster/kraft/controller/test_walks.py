"""Random walks of an active controller, and slips that they notice."""

import pytest

from barnabas.cluster.kraft.controller import (
    batch,
    brokers,
    elections,
    heartbeats,
    partition_changes,
    partitions,
    reassignments,
    topics,
)
from barnabas.cluster.kraft.controller.batch import Batch
from barnabas.cluster.kraft.controller.index import Index
from barnabas.cluster.kraft.controller.partition_changes import Election, Target
from barnabas.cluster.kraft.controller.sessions import BrokerSessions
from barnabas.wire.generated.errors import ErrorCode
from tests.support.controller_walks import Walk, broken
from tests.support.effort import daily, drawing, examples
from tests.support.slips import planted

SEEDS_MAX = 1_000

_completed = partition_changes.completed_reassignment
_eligible = partition_changes.eligible_replicas
_elect = partition_changes.elect
_keep_last_leader = partition_changes.keep_last_leader
_refusal = partitions.refusal
_update = Batch.update
_registered = BrokerSessions.registered
_ended = BrokerSessions.ended
_put = Index.put
_next_stage = heartbeats.next_stage
_cancelled = reassignments.cancelled
_alter = reassignments.alter_partition
_assign = partition_changes.assign


def _without_waiting(replicas, isr, removing, adding):
    added = tuple(replica for replica in adding if replica not in isr)
    return _completed(replicas, isr + added, removing, adding)


def _fewer_at_once(replicas, isr, removing, adding):
    in_sync = tuple(replica for replica in isr if replica not in removing)
    if not (removing or adding) or not in_sync or not set(adding) <= set(in_sync):
        return None
    return tuple(replica for replica in replicas if replica not in removing), in_sync


def _lost_records_are_eligible(before, replicas, isr, target, conditions):
    return _eligible(before, replicas, isr, target._replace(unclean_shutdown=None), conditions)


def _none_of_the_isr(before, replicas, isr, target, conditions):
    return _eligible(before._replace(isr=()), replicas, isr, target, conditions)


def _eligible_for_ever(before, replicas, isr, target, conditions):
    return _eligible(before, replicas, isr, target, conditions._replace(min_isr=99))


def _eligible_elsewhere(before, replicas, isr, target, conditions):
    return _eligible(before, tuple(dict.fromkeys(before.replicas + replicas)), isr, target, conditions)


def _leaders_do_not_stay(before, election, replicas, isr, elr, conditions):
    return _elect(before._replace(leader=-1), election, replicas, isr, elr, conditions)


def _eligible_beside_the_isr(before, election, replicas, isr, elr, conditions):
    return _elect(before, election, replicas, isr + elr, (), conditions)


def _always_unclean(before, election, replicas, isr, elr, conditions):
    return _elect(before, Election.UNCLEAN, replicas, isr, elr, conditions)


def _no_last_known(before, election, replicas, isr, elr, conditions):
    return _elect(before._replace(last_known_elr=()), election, replicas, isr, elr, conditions)


def _last_known_beside_others(before, election, replicas, isr, elr, conditions):
    last = before.last_known_elr
    if last and conditions.can_lead(last[0]):
        return partition_changes.Leader(last[0], is_unclean=True)
    return _elect(before, election, replicas, isr, elr, conditions)


def _no_preference(before, election, replicas, isr, elr, conditions):
    return _elect(before, Election.ONLINE, replicas, isr, elr, conditions)


def _last_replica_first(before, election, replicas, isr, elr, conditions):
    return _elect(before, election, replicas[::-1], isr, elr, conditions)


def _last_leader_is_kept(before, record):
    if record.leader < 0:
        _keep_last_leader(before, record)


def _dirs_of_others(before, record, replicas, target, conditions):
    _assign(before._replace(directories=before.directories[::-1]), record, replicas, target, conditions)


def _refused_but(code):
    def refusal(*args):
        result = _refusal(*args)
        return 0 if result == code else result

    return refusal


def _stays_in_isr(self, keys, *, removed=None, added=None, unclean=None):
    return _update(self, keys, removed=None, added=added, unclean=unclean)


def _comes_in_vain(self, keys, *, removed=None, added=None, unclean=None):
    return _update(self, keys, removed=removed, added=None, unclean=unclean)


def _fence_alone(of, broker):
    of.records.append(
        brokers.BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=1)
    )
    return ()


def _forgets_the_session(self, broker_id, epoch, offset):
    self._sessions.pop(broker_id, None)
    _registered(self, broker_id, epoch, offset)


def _stays_in_index(self, key, before, after):
    _put(self, key, None, after)


def _does_not_wait(state, broker, session, request):
    stage = _next_stage(state, broker, session, request)
    return heartbeats.Stage.SHUT_DOWN if stage is heartbeats.Stage.SHUTTING_DOWN else stage


def _highest_offset(self, image):
    offsets = [session.metadata_offset for session in self._sessions.values() if session.shutdown_offset < 0]
    return max(offsets, default=2**62)


def _unfenced_early(state, broker, session, request):
    stage = _next_stage(state, broker, session, request)
    wants = stage is heartbeats.Stage.FENCED and not request.want_fence
    return heartbeats.Stage.UNFENCED if wants else stage


def _shutdown_keeps_leaders(of, broker):
    of.records.append(
        brokers.BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=1
        )
    )
    return ()


def _forgets_what_is_added(of, key, replicas, *, keeps_factor):
    now = of.partition(key)
    if now is None or replicas is None:
        _alter(of, key, replicas, keeps_factor=keeps_factor)
        return
    removing = tuple(sorted(set(now.replicas) - set(replicas)))
    adding = tuple(sorted(set(replicas) - set(now.replicas)))
    of.change(key, Target(replicas=replicas + removing, removing=removing, adding=adding))


def _cancelled_with_all_in_sync(of, key, partition):
    target = _cancelled(of, key, partition)
    return target._replace(isr=tuple(replica for replica in target.replicas))


def _elects_needlessly(of, key, election):
    partition = of.partition(key)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    of.change(key, Target(election=election))
    return ErrorCode.NONE


SLIPS = {
    "a reassignment ends before those that were added are in sync": (
        partition_changes,
        "completed_reassignment",
        _without_waiting,
    ),
    "a reassignment to fewer does not wait for all": (
        partition_changes,
        "completed_reassignment",
        _fewer_at_once,
    ),
    "no reassignment ends": (partition_changes, "completed_reassignment", lambda *_: None),
    "a broker that lost records stays eligible": (
        partition_changes,
        "eligible_replicas",
        _lost_records_are_eligible,
    ),
    "a replica that leaves the ISR is not eligible": (
        partition_changes,
        "eligible_replicas",
        _none_of_the_isr,
    ),
    "replicas stay eligible beside a large ISR": (partition_changes, "eligible_replicas", _eligible_for_ever),
    "a replica that is none any more is eligible": (
        partition_changes,
        "eligible_replicas",
        _eligible_elsewhere,
    ),
    "a leader does not stay": (partition_changes, "elect", _leaders_do_not_stay),
    "an eligible replica leads beside an ISR": (partition_changes, "elect", _eligible_beside_the_isr),
    "an unclean election is always allowed": (partition_changes, "elect", _always_unclean),
    "the last known leader is not elected": (partition_changes, "elect", _no_last_known),
    "the last known leader is elected beside others": (partition_changes, "elect", _last_known_beside_others),
    "a preferred election has no preference": (partition_changes, "elect", _no_preference),
    "the last replica is elected first": (partition_changes, "elect", _last_replica_first),
    "the last known leader is not noted": (partition_changes, "keep_last_leader", lambda *_: None),
    "the last known leader is kept beside a leader": (
        partition_changes,
        "keep_last_leader",
        _last_leader_is_kept,
    ),
    "log dirs are those of other replicas": (partition_changes, "assign", _dirs_of_others),
    "ISRs that shrink begin an epoch at each level": (partition_changes, "NO_BUMP_ON_SHRINK_LEVEL", 99),
    "ISRs that shrink begin an epoch at no level": (partition_changes, "NO_BUMP_ON_SHRINK_LEVEL", 0),
    "a fenced broker can lead": (batch, "is_active", lambda image, broker_id: broker_id in image.brokers),
    "a broker in shutdown can lead": (
        batch,
        "is_active",
        lambda image, broker_id: broker_id in image.brokers and not image.brokers[broker_id].fenced,
    ),
    "a log dir is never offline": (batch, "has_online_dir", lambda *_: True),
    "topics always allow unclean elections": (batch, "allows_unclean", lambda *_: True),
    "topics never allow unclean elections": (batch, "allows_unclean", lambda *_: False),
    "replicas get no log dir": (batch, "default_dir", lambda *_: bytes(15) + b"\1"),
    "a broker that goes stays in ISRs": (Batch, "update", _stays_in_isr),
    "a broker that comes leads nothing": (Batch, "update", _comes_in_vain),
    "an ISR may have any broker": (partitions, "_is_eligible", lambda *_: True),
    "an earlier partition epoch is taken": (
        partitions,
        "refusal",
        _refused_but(ErrorCode.INVALID_UPDATE_VERSION),
    ),
    "an earlier leader epoch is taken": (partitions, "refusal", _refused_but(ErrorCode.FENCED_LEADER_EPOCH)),
    "a later epoch is taken": (partitions, "refusal", _refused_but(ErrorCode.NOT_CONTROLLER)),
    "a new process leaves the ISRs as they are": (brokers, "_leave", lambda *_, **__: ()),
    "each stop was clean": (brokers, "has_elr", lambda _: False),
    "a broker is fenced and leads": (brokers, "fence", _fence_alone),
    "a session ends early": (
        BrokerSessions,
        "ended",
        lambda self, now_ms, timeout_ms: _ended(self, now_ms + 1, timeout_ms),
    ),
    "a session ends late": (
        BrokerSessions,
        "ended",
        lambda self, now_ms, timeout_ms: _ended(self, now_ms - 1, timeout_ms),
    ),
    "another process can have the id": (BrokerSessions, "is_valid", lambda *_: False),
    "a changed registration has no session": (BrokerSessions, "registered", _forgets_the_session),
    "the index keeps what was": (Index, "put", _stays_in_index),
    "a shutdown does not wait": (heartbeats, "next_stage", _does_not_wait),
    "a shutdown waits for the quickest": (BrokerSessions, "lowest_active_offset", _highest_offset),
    "a broker is unfenced before it has caught up": (heartbeats, "next_stage", _unfenced_early),
    "a shutdown leaves the leaders where they are": (heartbeats, "_begin_shutdown", _shutdown_keeps_leaders),
    "a lost dir is not noticed": (heartbeats, "_lose_dirs", lambda *_: ()),
    "new partitions have all replicas in sync": (topics, "_in_sync", lambda _, replicas: tuple(replicas)),
    "a replaced reassignment forgets what it added": (
        reassignments,
        "alter_partition",
        _forgets_what_is_added,
    ),
    "a cancelled reassignment has all in sync": (reassignments, "cancelled", _cancelled_with_all_in_sync),
    "elections are always needed": (elections, "_elect", _elects_needlessly),
}


@pytest.mark.parametrize("seed", [drawing().getrandbits(32) + run for run in range(examples(100))])
def test_walks_break_no_rule(seed):
    Walk(seed).run()


@pytest.mark.parametrize("slip", daily(SLIPS, 4))
def test_slips_are_noticed(slip):
    with planted(SLIPS[slip]):
        assert broken(range(SEEDS_MAX)) is not None
