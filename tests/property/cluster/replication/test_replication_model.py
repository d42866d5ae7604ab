"""A partition on three brokers, played at random: what was acknowledged with acks=all is never lost or changed.

The brokers hear of changed metadata late, crash, come back with the high watermark of an old checkpoint, and fetch
from leaders that are leaders no longer. Elections are clean: only in-sync replicas lead. Each history repeats from its
seed; rules that are broken on purpose must be found.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from unittest import mock

import pytest

from barnabas.cluster.metadata.image import PartitionInfo
from barnabas.cluster.replication import follower as follower_rules
from barnabas.cluster.replication.follower import EpochEnd, follower_high_watermark, out_of_range, truncation
from barnabas.cluster.replication.leader import IsrChange, LeaderState
from barnabas.cluster.replication.roles import Role, Step, is_stale, steps, target_role
from tests.support.effort import examples

BROKERS = (1, 2, 3)
STEPS = 150
LAG_MAX_MS = 30
Record = tuple[int, int]  # leader epoch, and a number that no other record has


class LostError(AssertionError):
    """A promise of the rules was not kept."""


@dataclass
class Replica:
    """One broker's copy of the partition, and what the broker believes."""

    broker_id: int
    log: list[Record] = field(default_factory=list)
    high_watermark: int = 0
    checkpoint: int = 0
    role: Role = Role.NONE
    info: PartitionInfo | None = None
    leader: LeaderState | None = None
    is_up: bool = True

    def end_for_epoch(self, epoch: int) -> EpochEnd:
        latest = max((known for known, _ in self.log if known <= epoch), default=-1)
        if latest < 0:
            return EpochEnd(-1, -1)
        return EpochEnd(latest, max(n for n, (known, _) in enumerate(self.log) if known == latest) + 1)


class Cluster:
    """The controller's state, the replicas, and the metadata that is still on its way."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 1_000
        self.number = 0
        self.state = PartitionInfo(leader=1, replicas=BROKERS, isr=BROKERS, leader_epoch=0)
        self.replicas = {one: Replica(one) for one in BROKERS}
        self.proposals: list[tuple[int, IsrChange]] = []
        self.waiting: list[tuple[int, int, int, int]] = []  # broker, leader epoch, offset, number
        self.acknowledged: dict[int, int] = {}  # number -> offset
        for one in self.replicas.values():
            self.learn(one)

    # --- metadata -------------------------------------------------------------------------------------------

    def learn(self, replica: Replica) -> None:
        """A broker hears of the newest state of the partition."""
        known, info = replica.info, self.state
        if known is not None and is_stale(known, info):
            return
        target = target_role(info, replica.broker_id)
        for step in steps(replica.role, target, known, info):
            if step is Step.BEGIN_EPOCH:
                replica.leader = LeaderState(
                    replica.broker_id,
                    leader_epoch=info.leader_epoch,
                    partition_epoch=info.partition_epoch,
                    replicas=info.replicas,
                    isr=info.isr,
                    epoch_start_offset=len(replica.log),
                    high_watermark=replica.high_watermark,
                    now_ms=self.now_ms,
                )
            elif step is Step.UPDATE_ISR:
                assert replica.leader is not None
                replica.leader.update(
                    partition_epoch=info.partition_epoch,
                    replicas=info.replicas,
                    isr=info.isr,
                    now_ms=self.now_ms,
                )
            elif step is Step.START_FETCHING:
                replica.leader = None
        replica.role, replica.info = target, info
        if replica.leader is not None:
            self.advance(replica)

    def elect(self) -> None:
        """The controller finds a leader among those that are in sync and live."""
        live = [one for one in self.state.isr if self.replicas[one].is_up]
        leader = self.random.choice(live) if live else -1
        isr = tuple(live) if live else self.state.isr
        self.state = self.state._replace(
            leader=leader,
            isr=isr,
            leader_epoch=self.state.leader_epoch + 1,
            partition_epoch=self.state.partition_epoch + 1,
        )

    def decide(self, broker_id: int, change: IsrChange) -> None:
        """The controller gets an AlterPartition request; the answer may be lost."""
        state = self.state
        is_valid = (
            state.leader == broker_id
            and change.leader_epoch == state.leader_epoch
            and change.partition_epoch == state.partition_epoch
            and all(self.replicas[one].is_up for one in change.isr - set(state.isr))
        )
        epoch = None
        if is_valid:
            epoch = state.partition_epoch + 1
            self.state = state._replace(isr=tuple(sorted(change.isr)), partition_epoch=epoch)
        leader = self.replicas[broker_id].leader
        if leader is not None and (not is_valid or self.random.random() < 0.8):
            leader.settled(change, partition_epoch=epoch)

    # --- data -----------------------------------------------------------------------------------------------

    def produce(self, replica: Replica) -> None:
        leader = replica.leader
        if leader is None or not leader.has_enough_in_sync(1):
            return
        self.number += 1
        replica.log.append((leader.leader_epoch, self.number))
        self.waiting.append((replica.broker_id, leader.leader_epoch, len(replica.log) - 1, self.number))
        self.advance(replica)

    def advance(self, replica: Replica) -> None:
        leader = replica.leader
        assert leader is not None
        leader.advance_high_watermark(len(replica.log))
        replica.high_watermark = leader.high_watermark
        for entry in list(self.waiting):
            broker_id, epoch, offset, number = entry
            if (broker_id, epoch) == (
                replica.broker_id,
                leader.leader_epoch,
            ) and offset < replica.high_watermark:
                self.waiting.remove(entry)
                self.acknowledged[number] = offset

    def fetch(self, replica: Replica) -> None:
        """A follower asks the leader that it believes in, as Fetch v12 does."""
        if (
            replica.role is not Role.FOLLOWER
            or replica.info is None
            or replica.info.leader not in self.replicas
        ):
            return
        source = self.replicas[replica.info.leader]
        leader = source.leader
        if not source.is_up or leader is None or leader.leader_epoch != replica.info.leader_epoch:
            return  # FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER
        offset, end = len(replica.log), len(source.log)
        if (theirs := self.diverging(replica, source)) is not None:
            cut = truncation(
                theirs, replica.end_for_epoch, log_end_offset=offset, high_watermark=replica.high_watermark
            )
            self.truncate(replica, cut.offset)
            return
        if offset > end:
            back = out_of_range(log_end_offset=offset, leader_start_offset=0, leader_end_offset=end)
            assert back.truncates_to is not None
            self.truncate(replica, back.truncates_to)
            return
        leader.follower_fetched(
            replica.broker_id, offset, log_start_offset=0, leader_end_offset=end, now_ms=self.now_ms
        )
        self.advance(source)
        replica.log += source.log[offset : offset + self.random.randint(1, 3)]
        replica.high_watermark = follower_high_watermark(
            source.high_watermark, len(replica.log), replica.high_watermark
        )

    @staticmethod
    def diverging(replica: Replica, source: Replica) -> EpochEnd | None:
        """End of the leader's log for the follower's latest epoch, if that is not the end of the follower's."""
        if not replica.log:
            return None
        epoch = replica.log[-1][0]
        theirs = source.end_for_epoch(epoch)
        return theirs if theirs.epoch < epoch or theirs.end_offset < len(replica.log) else None

    @staticmethod
    def truncate(replica: Replica, offset: int) -> None:
        if offset < len(replica.log):
            del replica.log[offset:]
            replica.high_watermark = min(replica.high_watermark, offset)

    def change_isr(self, replica: Replica) -> None:
        leader = replica.leader
        if leader is None:
            return
        change = leader.propose_shrink(len(replica.log), self.now_ms, LAG_MAX_MS)
        for other in self.random.sample(BROKERS, len(BROKERS)):
            change = change or leader.propose_expansion(other)
        if change is not None:
            self.proposals.append((replica.broker_id, change))

    # --- faults ---------------------------------------------------------------------------------------------

    def crash(self, replica: Replica) -> None:
        if sum(one.is_up for one in self.replicas.values()) == 1:
            return
        replica.is_up = False
        replica.role, replica.leader, replica.info = Role.NONE, None, None
        replica.high_watermark = replica.checkpoint
        self.waiting = [entry for entry in self.waiting if entry[0] != replica.broker_id]
        state = self.state
        if state.leader == replica.broker_id:
            self.elect()
        elif replica.broker_id in state.isr and state.leader >= 0:
            isr = tuple(one for one in state.isr if one != replica.broker_id)
            self.state = state._replace(isr=isr, partition_epoch=state.partition_epoch + 1)

    def restart(self, replica: Replica) -> None:
        if not replica.is_up:
            replica.is_up = True
            if self.state.leader < 0 and replica.broker_id in self.state.isr:
                self.elect()

    # --- the play -------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.now_ms += self.random.randint(1, 10)
        replica = self.random.choice(list(self.replicas.values()))
        draw = self.random.random()
        if draw < 0.04:
            self.crash(replica)
        elif draw < 0.10:
            self.restart(replica)
        elif draw < 0.12:
            self.elect()  # preferred leader, or controlled shutdown
        elif draw < 0.17 and self.proposals:
            self.decide(*self.proposals.pop(self.random.randrange(len(self.proposals))))
        elif not replica.is_up:
            pass
        elif draw < 0.22:
            self.change_isr(replica)
        elif draw < 0.34:
            self.learn(replica)
        elif draw < 0.38:
            replica.checkpoint = replica.high_watermark
        elif draw < 0.60:
            self.produce(replica)
        else:
            self.fetch(replica)
        self.check()

    def check(self) -> None:
        for one in self.replicas.values():
            if not one.is_up:
                continue
            if one.high_watermark > len(one.log):
                raise LostError(f"broker {one.broker_id}: high watermark beyond the end")
            if one.leader is not None and one.leader.leader_epoch == self.state.leader_epoch:
                for number, offset in self.acknowledged.items():
                    if offset >= len(one.log) or one.log[offset][1] != number:
                        raise LostError(
                            f"record {number} was acknowledged at {offset}; leader {one.broker_id} lacks it"
                        )
        committed = [one.log[: one.high_watermark] for one in self.replicas.values() if one.is_up]
        longest = max(committed, key=len, default=[])
        for log in committed:
            if log != longest[: len(log)]:
                raise LostError("two replicas differ below their high watermarks")


def play(seed: int) -> Cluster:
    cluster = Cluster(seed)
    for _ in range(STEPS):
        cluster.step()
    return cluster


def first_seed_that_loses(count: int) -> int | None:
    for seed in range(count):
        try:
            play(seed)
        except AssertionError:
            return seed
    return None


def test_nothing_acknowledged_is_lost() -> None:
    acknowledged = 0
    for seed in range(examples(700)):
        try:
            acknowledged += len(play(seed).acknowledged)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert acknowledged > examples(700)  # otherwise nothing was tried


# --- rules that are broken on purpose -------------------------------------------------------------------------


@contextmanager
def committing_before_the_isr_has_it() -> Iterator[None]:
    def advance(self: LeaderState, leader_end_offset: int) -> bool:
        self.high_watermark = max(self.high_watermark, leader_end_offset)
        return True

    with mock.patch.object(LeaderState, "advance_high_watermark", advance):
        yield


@contextmanager
def forgetting_those_about_to_join() -> Iterator[None]:
    with mock.patch.object(LeaderState, "maximal_isr", property(lambda self: self.isr)):
        yield


@contextmanager
def joining_without_having_caught_up() -> Iterator[None]:
    def propose(self: LeaderState, replica_id: int) -> IsrChange | None:
        if self._pending is not None or replica_id in self.isr or self.follower(replica_id) is None:
            return None
        return self._propose(self.isr | {replica_id})

    with mock.patch.object(LeaderState, "propose_expansion", propose):
        yield


@contextmanager
def truncating_to_the_high_watermark() -> Iterator[None]:
    def cut(
        leader: EpochEnd, own: object, *, log_end_offset: int, high_watermark: int
    ) -> follower_rules.Truncation:
        return follower_rules.Truncation(high_watermark, is_final=True)

    with mock.patch(f"{__name__}.truncation", cut):
        yield


@contextmanager
def appending_without_comparing_epochs() -> Iterator[None]:
    with mock.patch.object(Cluster, "diverging", staticmethod(lambda replica, source: None)):
        yield


@pytest.mark.parametrize(
    "broken",
    [
        committing_before_the_isr_has_it,
        forgetting_those_about_to_join,
        joining_without_having_caught_up,
        truncating_to_the_high_watermark,
        appending_without_comparing_epochs,
    ],
)
def test_a_broken_rule_is_found(broken: object) -> None:
    with broken():  # type: ignore[operator]
        assert first_seed_that_loses(3_000) is not None
