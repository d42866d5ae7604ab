"""Slips in the code of replicas and the controller, each of which the comparison with the model must notice."""

from __future__ import annotations

from types import SimpleNamespace

from barnabas.cluster.controller import in_sync
from barnabas.cluster.replicas import following
from barnabas.cluster.replicas.alter_partition import RemoteAlterPartition
from barnabas.cluster.replicas.replica import Replica
from barnabas.cluster.replication.follower import Truncation
from barnabas.cluster.replication.leader import LeaderState
from barnabas.handlers.fetch import passes as fetch_passes
from tests.support.replicas import TOPIC

KEY = (TOPIC, 0)


def _whoever_is_slow(self, leader_end_offset, now_ms, lag_max_ms):
    return frozenset(
        id_
        for id_, follower in self._followers.items()
        if id_ in self.isr and now_ms - follower.last_caught_up_ms > lag_max_ms
    )


def _joins_with_what_is_committed(self, replica_id):
    follower = self._followers.get(replica_id)
    if self._pending is not None or follower is None or replica_id in self.isr:
        return None
    return self._propose(self.isr | {replica_id}) if follower.end_offset >= self.high_watermark else None


def _waits_for_nobody_outside(self, leader_end_offset, **named):
    return _advance(self, leader_end_offset, **{**named, "live": ()})


def _has_caught_up_now(self, replica_id, fetch_offset, *, now_ms, **named):
    follower = self._followers.get(replica_id)
    before = follower is not None and fetch_offset >= follower.last_fetch_leader_end_offset >= 0
    done = _fetched(self, replica_id, fetch_offset, now_ms=now_ms, **named)
    if before:
        follower.last_caught_up_ms = now_ms
    return done


def _never_takes_back(self, change, *, partition_epoch, isr=None, **now):
    if partition_epoch is not None:
        _settled(self, change, partition_epoch=partition_epoch, isr=isr, **now)


def _as_it_was_proposed(self, change, *, partition_epoch, isr=None, **now):
    _settled(
        self,
        change,
        partition_epoch=partition_epoch if partition_epoch is None else self.partition_epoch,
        isr=isr,
        **now,
    )


def _forgets_its_proposal(self, **named):
    self._pending = None
    return _update(self, **named)


def _any_error_takes_it_back(self, proposal, answers):
    answer = answers.get(KEY)
    if answer is not None and answer.error_code:
        proposal[0].isr_settled(proposal[1], partition_epoch=None)
        return True
    return _settle(self, proposal, answers)


def _whoever_was_in_sync(core, partition, proposal, now):
    joining = [entry for entry in proposal.isr if entry[0] not in now.isr]
    _check_eligible(core, partition, SimpleNamespace(isr=joining), now)


def _whatever_epoch(core, partition, proposal, now):
    _check_eligible(core, partition, SimpleNamespace(isr=[(id_, -1) for id_, _ in proposal.isr]), now)


def _up_to_the_high_watermark(leader, own_end_for_epoch, *, log_end_offset, high_watermark):
    return Truncation(high_watermark, is_final=True)


def _up_to_what_the_leader_says(leader, own_end_for_epoch, *, log_end_offset, high_watermark):
    return Truncation(min(leader.end_offset, log_end_offset), is_final=True)


def _goes_on_with_what_it_knew(self, info):
    before = _followers_of(self)
    _lead(self, info)
    _followers_of(self).update(before)


def _followers_of(replica):
    return {} if replica._state is None else replica._state._followers


_advance, _fetched = LeaderState.advance_high_watermark, LeaderState.follower_fetched
_settled, _update = LeaderState.settled, LeaderState.update
_settle, _lead = RemoteAlterPartition._settle, Replica.lead
_check_eligible = in_sync._check_eligible

SLIPS = {
    "a follower that has everything leaves": (LeaderState, "out_of_sync", _whoever_is_slow),
    "a follower joins before this epoch began": (
        LeaderState, "propose_expansion", _joins_with_what_is_committed,
    ),
    "who could join soon is not waited for": (
        LeaderState, "advance_high_watermark", _waits_for_nobody_outside,
    ),
    "who is about to join does not count": (LeaderState, "maximal_isr", property(lambda self: self.isr)),
    "who had everything before has it now": (LeaderState, "follower_fetched", _has_caught_up_now),
    "too few replicas are enough": (LeaderState, "has_enough_in_sync", lambda self, min_isr: True),
    "too few replicas are enough at the end": (
        LeaderState, "has_enough_after_append", lambda self, min_isr: True,
    ),
    "more replicas than there are must be in sync": (
        LeaderState, "has_enough_in_sync", lambda self, min_isr: len(self.isr) >= min_isr,
    ),
    "a refused proposal goes on": (LeaderState, "settled", _never_takes_back),
    "the partition epoch stays after a proposal": (LeaderState, "settled", _as_it_was_proposed),
    "any metadata end a proposal": (LeaderState, "update", _forgets_its_proposal),
    "any error takes a proposal back": (RemoteAlterPartition, "_settle", _any_error_takes_it_back),
    "epochs of brokers are not told": (Replica, "follower_epoch", lambda self, replica_id: -1),
    "who is in sync may shut down": (in_sync, "_check_eligible", _whoever_was_in_sync),
    "a broker that was started again joins": (in_sync, "_check_eligible", _whatever_epoch),
    "the high watermark says where to truncate": (following, "truncation", _up_to_the_high_watermark),
    "the leader alone says where to truncate": (following, "truncation", _up_to_what_the_leader_says),
    "a follower believes that it has committed all": (
        following, "follower_high_watermark", lambda leader, end, follower: end,
    ),
    "epochs of logs are not compared": (fetch_passes, "diverging_epoch", lambda *_: None),
    "the epoch of a fetch is not checked": (Replica, "check_leader_epoch", lambda self, epoch: None),
    "a new epoch knows its followers": (Replica, "lead", _goes_on_with_what_it_knew),
}  # fmt: skip
