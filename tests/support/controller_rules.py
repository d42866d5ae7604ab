"""Rules that hold for each change of a partition at an active controller, and for the image after it.

The rule: they state the guarantees of partitions, independently of the code: each is an equation of the states before and
after, of the brokers after, and of the request.
"""

from typing import NamedTuple

from barnabas.cluster.kraft.image import METADATA_VERSION
from barnabas.cluster.kraft.values import UNASSIGNED

ELR = "eligible.leader.replicas.version"


class Cause(NamedTuple):
    """The request behind a change, as far as the change may depend on it."""

    is_preferred: bool = False
    is_unclean_election: bool = False
    unclean_broker: int | None = None
    proposed: tuple = ()
    """The ISR that a leader proposes; with it comes a leader recovery state."""
    assigned: dict | None = None


class Cluster(NamedTuple):
    """An image, and settings."""

    image: object
    allows_unclean: bool
    min_isr: int

    @property
    def has_elr(self):
        return self.image.features.get(ELR, 0) > 0

    @property
    def level(self):
        return self.image.features[METADATA_VERSION]

    def is_active(self, broker_id):
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def is_online(self, partition, replica):
        """Return whether a replica's log dir is online."""
        broker = self.image.brokers.get(replica)
        if broker is None:
            return False
        directory = dict(zip(partition.replicas, partition.directories, strict=True))[replica]
        return not broker.log_dirs or directory[:15] == bytes(15) or directory in broker.log_dirs

    def can_lead(self, partition, replica):
        return (
            replica in partition.replicas and self.is_active(replica) and self.is_online(partition, replica)
        )

    def min_isr_of(self, key):
        return min(self.min_isr, len(self.image.partitions[key[0], 0].replicas))


def check_change(key, before, after, cluster, cause):
    """Check one change of a partition; `before` is None for a new one."""
    check_state(key, after, cluster)
    if before is None:
        assert (after.leader, after.leader_epoch, after.partition_epoch) == (after.isr[0], 0, 0)
        assert after.isr == tuple(replica for replica in after.replicas if cluster.is_active(replica))
        assert after.directories == tuple(default_dir(cluster, replica) for replica in after.replicas)
        return
    led, leads = before.leader, after.leader
    is_new_leader = leads not in (led, -1)
    lost_replica = not set(before.replicas) <= set(after.replicas)
    lost_in_isr = not set(before.isr) <= set(after.isr)
    bumps = led != leads or lost_replica or (cluster.level < 12 and lost_in_isr)
    assert after.partition_epoch == before.partition_epoch + 1
    assert after.leader_epoch == before.leader_epoch + bumps

    is_in_sync = leads in before.isr or leads in cause.proposed
    is_from_elr = is_new_leader and not is_in_sync and leads in before.elr and not _recovers(before, after)
    is_unclean = is_new_leader and not is_from_elr and not is_in_sync
    if (
        leads != -1 and not is_from_elr and not is_unclean
    ):  # the next change ends a reassignment that an election has completed
        assert not is_over(after)
    if is_unclean:
        has_others = before.isr or set(before.elr) - {cause.unclean_broker}
        is_last_known = cluster.has_elr and before.last_known_elr == (leads,) and not has_others
        assert cluster.allows_unclean or cause.is_unclean_election or is_last_known
        assert (after.isr, after.leader_recovery_state) == ((leads,), 1)
    elif not cause.proposed:
        assert after.leader_recovery_state == before.leader_recovery_state
    if is_new_leader and cluster.can_lead(after, led) and led in after.isr:
        assert cause.is_preferred
        assert leads == after.replicas[0]
    elif is_new_leader:
        earlier = after.replicas[: after.replicas.index(leads)]
        candidates = set(after.elr if is_from_elr else after.replicas if is_unclean else after.isr)
        if not (is_unclean and before.last_known_elr == (leads,)):
            assert not [
                replica for replica in earlier if replica in candidates and cluster.can_lead(after, replica)
            ]
    _check_elr(
        key, before, after, cluster, cause, is_from_elr=is_from_elr, is_unclean=is_unclean, bumps=bumps
    )
    kept = dict(zip(before.replicas, before.directories, strict=True)) | (cause.assigned or {})
    for replica, directory in zip(after.replicas, after.directories, strict=True):
        if cluster.level >= 17:
            assert directory == (kept[replica] if replica in kept else default_dir(cluster, replica))


def _recovers(before, after):
    return after.leader_recovery_state == 1 and before.leader_recovery_state == 0


def _check_elr(key, before, after, cluster, cause, *, is_from_elr, is_unclean, bumps):
    if not cluster.has_elr:
        assert (after.elr, after.last_known_elr) == ((), ())
        return
    candidates = (set(before.elr) | set(before.isr)) & set(after.replicas) - set(after.isr) - {
        cause.unclean_broker
    }
    is_enough = len(after.isr) >= cluster.min_isr_of(key) and not is_from_elr
    assert set(after.elr) == (set() if is_enough or is_unclean else candidates)
    if after.leader >= 0:
        assert after.last_known_elr == (() if bumps else before.last_known_elr)
    else:
        assert after.last_known_elr == (before.last_known_elr or (before.leader,))


def check_state(key, partition, cluster):
    """Check what holds for a partition at any time."""
    replicas, isr = set(partition.replicas), set(partition.isr)
    assert len(partition.replicas) == len(replicas) == len(partition.directories) > 0
    assert len(partition.isr) == len(isr)
    assert isr <= replicas
    assert isr or cluster.has_elr
    assert partition.leader == -1 or partition.leader in isr
    assert isr.isdisjoint(partition.elr)
    assert set(partition.elr) <= replicas
    adding, removing = set(partition.adding), set(partition.removing)
    assert adding | removing <= replicas
    assert adding.isdisjoint(removing)


def is_over(partition):
    """Return whether a partition's reassignment can end: the added replicas, or all remaining ones, are in the ISR."""
    isr, adding, removing = set(partition.isr), set(partition.adding), set(partition.removing)
    stays = set(partition.replicas) - removing
    is_any = bool(adding or removing)
    return (
        is_any and bool(isr - removing) and adding <= isr and (len(adding) >= len(removing) or stays <= isr)
    )


def check_image(cluster):
    """Check what holds for all partitions and brokers after each outcome."""
    for partition in cluster.image.partitions.values():
        brokers = {replica: cluster.image.brokers.get(replica) for replica in partition.replicas}
        absent = {replica for replica, broker in brokers.items() if broker is None or broker.fenced}
        if partition.leader >= 0 or cluster.has_elr:
            assert absent.isdisjoint(partition.isr)
        else:
            assert absent.isdisjoint(partition.isr) or len(partition.isr) == 1
        if partition.leader == -1:
            eligible = partition.isr or partition.elr or partition.last_known_elr
            assert not [replica for replica in eligible if cluster.can_lead(partition, replica)], (
                "it can have a leader"
            )
        else:
            assert cluster.is_online(partition, partition.leader)


def default_dir(cluster, broker_id):
    """Return the log dir that a new replica of a broker has."""
    broker = cluster.image.brokers.get(broker_id)
    if cluster.level < 17 or (broker is not None and not broker.log_dirs):
        return bytes(16)
    return broker.log_dirs[0] if broker is not None and len(broker.log_dirs) == 1 else UNASSIGNED
