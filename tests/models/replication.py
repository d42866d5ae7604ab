"""A partition on three brokers, and the controller's part in it, by Kafka's rules, as short as they can be said.

Written from those rules (KIP-101, KIP-279, KIP-320, KIP-392, KIP-497, KIP-595, KIP-841, KIP-903, KIP-966), and without any
code of the broker's. Each request changes the state or names the error that refuses it. One rule is ours, and stricter: a
leader that is elected again knows nothing of its followers until they fetch. Times are in ms.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.models.transactions import refuse_unless

BROKERS = (1, 2, 3)
LAG_MAX_MS = 100
LONG_AGO = -(10**9)
NO_LEADER_KNOWS = "NOT_LEADER_OR_FOLLOWER"


class Batch(NamedTuple):
    """Records that were produced together: the leader's epoch, a number that no other batch has, how many they are."""

    epoch: int
    number: int
    count: int


class EpochEnd(NamedTuple):
    """The largest epoch up to one that was asked for, and where the next one begins; -1 where that is not known."""

    epoch: int
    end: int


@dataclass(frozen=True)
class State:
    """The state of the partition by the controller."""

    leader: int = 1
    isr: frozenset[int] = frozenset(BROKERS)
    leader_epoch: int = 0
    partition_epoch: int = 0


class Proposal(NamedTuple):
    """In-sync replicas that a leader would have instead of those of `partition_epoch`."""

    isr: frozenset[int]
    leader_epoch: int
    partition_epoch: int


@dataclass
class Follower:
    """A leader's knowledge of a follower, from its fetches in this epoch."""

    caught_up_ms: int
    end: int = -1
    fetched_ms: int = LONG_AGO
    leader_end: int = -1
    """End of the leader's log then."""
    broker_epoch: int = -1

    def is_late(self, leader_end: int, now_ms: int) -> bool:
        return self.end != leader_end and now_ms - self.caught_up_ms > LAG_MAX_MS


@dataclass
class Fetched:
    """A leader's answer: batches, or where the logs part."""

    high_watermarks: set[int]
    """One of these: the answer may know already what this fetch has committed."""
    batches: list[Batch] = field(default_factory=list)
    diverging: EpochEnd | None = None


class Replica:
    """One broker's log, and what it believes of the partition."""

    def __init__(self, broker_id: int, min_isr: int) -> None:
        self.broker_id, self.min_isr = broker_id, min_isr
        self.log: list[Batch] = []
        self.high_watermark = self.checkpointed = 0
        self.state: State | None = None
        self.live = frozenset(BROKERS)
        """Those that are not fenced and do not shut down, as far as it has heard."""
        self.isr: frozenset[int] = frozenset()
        self.partition_epoch = self.epoch_start = -1
        self.pending: Proposal | None = None
        self.followers: dict[int, Follower] = {}

    @property
    def end(self) -> int:
        return sum(batch.count for batch in self.log)

    @property
    def leads(self) -> bool:
        return self.state is not None and self.state.leader == self.broker_id

    @property
    def leader_epoch(self) -> int:
        return -1 if self.state is None else self.state.leader_epoch

    @property
    def last_epoch(self) -> int:
        return self.log[-1].epoch if self.log else -1

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Return where the largest epoch up to `epoch` ends; a leader's own begins at the end, before anything is in it."""
        starts: dict[int, int] = {}
        at = 0
        for batch in self.log:
            starts.setdefault(batch.epoch, at)
            at += batch.count
        if self.leads:
            starts.setdefault(self.leader_epoch, at)
        later = [start for other, start in starts.items() if other > epoch]
        earlier = [other for other in starts if other <= epoch]
        if epoch < 0 or not (later or epoch in starts):
            return EpochEnd(-1, -1)
        return EpochEnd(max(earlier, default=epoch), min(later, default=at))

    # --- what the controller says ---------------------------------------------------------------------------

    def learn(self, state: State, now_ms: int) -> None:
        """Take a newer state: lead in a new epoch, follow, or go on with other replicas in sync."""
        before, self.state = self.state, state
        if not self.leads:
            self.pending = None
            return
        if before is None or state.leader_epoch > before.leader_epoch:
            self.epoch_start, self.pending = self.end, None
            self.followers = {
                id_: Follower(now_ms if id_ in state.isr else LONG_AGO)
                for id_ in BROKERS
                if id_ != self.broker_id
            }
        if (
            before is None
            or state.leader_epoch > before.leader_epoch
            or state.partition_epoch >= self.partition_epoch
        ):
            if self.pending is not None and self.pending.partition_epoch < state.partition_epoch:
                self.pending = None
            self.take_isr(state, now_ms)
        self.advance(now_ms)

    def take_isr(self, state: State, now_ms: int) -> None:
        """Have the replicas of a state in sync: those that join have the whole time from now on in which to catch up."""
        for id_ in state.isr - self.isr - {self.broker_id}:
            self.followers[id_].caught_up_ms = max(self.followers[id_].caught_up_ms, now_ms)
        self.isr, self.partition_epoch = state.isr, state.partition_epoch

    def check(self, current_epoch: int, *, must_lead: bool = True) -> None:
        """Refuse a request in another epoch, or that this is the leader where it is not."""
        is_old = -1 < current_epoch < self.leader_epoch
        refuse_unless(not is_old, "FENCED_LEADER_EPOCH")
        refuse_unless(current_epoch <= self.leader_epoch, "UNKNOWN_LEADER_EPOCH")
        refuse_unless(self.leads or not must_lead, NO_LEADER_KNOWS)

    # --- a leader -------------------------------------------------------------------------------------------

    @property
    def enough(self) -> int:
        """No more replicas than there are need to be in sync."""
        return min(self.min_isr, len(BROKERS))

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The largest possible ISR: with replicas that are about to join, and with those that are about to leave."""
        return self.isr | self.pending.isr if self.pending else self.isr

    def advance(self, now_ms: int) -> None:
        """Commit what all have that are in sync, or could be soon; nothing while too few are in sync."""
        if len(self.isr) < self.enough:
            return
        counted = [
            follower.end
            for broker, follower in self.followers.items()
            if broker in self.maximal_isr or (broker in self.live and not follower.is_late(self.end, now_ms))
        ]
        self.high_watermark = max(self.high_watermark, min([self.end, *counted]))

    def produce(self, number: int, count: int, now_ms: int, *, acks_all: bool) -> int:
        """Append; return the first offset."""
        self.check(-1)
        refuse_unless(not acks_all or len(self.isr) >= self.enough, "NOT_ENOUGH_REPLICAS")
        self.log.append(Batch(self.leader_epoch, number, count))
        self.advance(now_ms)
        return self.end - count

    def acknowledged(self, end: int) -> bool:
        """Say whether a wait with acks=all for what is before `end` is answered now."""
        refuse_unless(self.leads or self.high_watermark >= end, NO_LEADER_KNOWS)
        if self.high_watermark < end:
            return False
        refuse_unless(
            not self.leads or len(self.maximal_isr) >= self.enough, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
        )
        return True

    def fetch(
        self, broker: int, offset: int, last_epoch: int, current_epoch: int, broker_epoch: int, now_ms: int,
        *, one_batch: bool,
    ) -> Fetched:  # fmt: skip
        """Answer a follower, and learn from its fetch how far it has come."""
        self.check(current_epoch)
        before = self.high_watermark
        if last_epoch >= 0:
            parting = self.epoch_end(last_epoch)
            refuse_unless(parting.end >= 0, "OFFSET_OUT_OF_RANGE")
            if parting.epoch < last_epoch or parting.end < offset:
                return Fetched({before}, diverging=parting)
        refuse_unless(offset <= self.end, "OFFSET_OUT_OF_RANGE")
        self.note(self.followers[broker], offset, broker_epoch, now_ms)
        follower = self.followers[broker]
        if (
            self.pending is None
            and broker in self.live - self.isr
            and follower.end >= max(self.high_watermark, self.epoch_start)
        ):
            self.propose(self.isr | {broker})
        self.advance(now_ms)
        batches = self.log_from(offset)
        return Fetched({before, self.high_watermark}, batches[:1] if one_batch else batches)

    def note(self, follower: Follower, offset: int, broker_epoch: int, now_ms: int) -> None:
        """It has caught up if it has all there is, or all that there was at its last fetch: then, at that time."""
        if offset >= self.end:
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        elif offset >= follower.leader_end >= 0:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.end, follower.fetched_ms, follower.leader_end = offset, now_ms, self.end
        follower.broker_epoch = broker_epoch

    def log_from(self, offset: int) -> list[Batch]:
        at, batches = 0, []
        for batch in self.log:
            at += batch.count
            if at > offset:
                batches.append(batch)
        return batches

    @property
    def committed(self) -> list[Batch]:
        """The batches below the high watermark."""
        hidden = len(self.log_from(self.high_watermark)) if self.high_watermark < self.end else 0
        return self.log[: len(self.log) - hidden]

    def read(self, offset: int, current_epoch: int) -> list[Batch]:
        """Answer a consumer, also as a follower (KIP-392): what is known to be committed."""
        self.check(current_epoch, must_lead=False)
        refuse_unless(offset <= self.end, "OFFSET_OUT_OF_RANGE")
        if offset >= self.high_watermark:
            return []
        return [batch for batch in self.log_from(offset) if batch in self.committed]

    def shrink(self, now_ms: int) -> None:
        """Propose that followers leave that have not caught up for too long."""
        late = {id_ for id_ in self.isr - {self.broker_id} if self.followers[id_].is_late(self.end, now_ms)}
        if self.leads and self.pending is None and late:
            self.propose(self.isr - late)

    def propose(self, isr: frozenset[int]) -> None:
        self.pending = Proposal(isr, self.leader_epoch, self.partition_epoch)

    def hear(self, proposal: Proposal, answer: State | str, now_ms: int) -> bool:
        """Take the controller's answer; False if the proposal is to be sent again.

        Only one that says that nothing was done, and nothing will be, takes the proposal back. The others mean that newer
        metadata are on their way; or nothing at all, if they are about the controller.
        """
        if not self.leads or proposal.leader_epoch != self.leader_epoch:
            return True
        if isinstance(answer, State):
            if answer.leader_epoch == self.leader_epoch:
                self.settle(proposal, answer, now_ms)
        elif answer in ("INELIGIBLE_REPLICA", "OPERATION_NOT_ATTEMPTED"):
            self.settle(proposal, None, now_ms)
        else:
            return answer not in ("NOT_CONTROLLER", "STALE_BROKER_EPOCH")
        return True

    def settle(self, proposal: Proposal, accepted: State | None, now_ms: int) -> None:
        """End a proposal, if it is still under way."""
        if not self.leads:
            return
        if proposal is self.pending:
            self.pending = None
            if accepted is not None and accepted.partition_epoch >= self.partition_epoch:
                self.take_isr(accepted, now_ms)
        self.advance(now_ms)

    # --- a follower -----------------------------------------------------------------------------------------

    def take(self, answer: Fetched, high_watermark: int) -> None:
        """Append what the leader has sent, or go back to where the logs agree as far as one epoch tells."""
        if answer.diverging is None:
            self.log += answer.batches
            self.high_watermark = max(self.high_watermark, min(high_watermark, self.end))
            return
        theirs = answer.diverging
        own = self.epoch_end(theirs.epoch)
        if own.epoch == -1:
            self.truncate(theirs.end)
        elif own.epoch != theirs.epoch:
            self.truncate(own.end)
        else:
            self.truncate(min(own.end, theirs.end))

    def truncate(self, offset: int) -> None:
        while self.end > offset:
            self.log.pop()
        self.high_watermark = min(self.high_watermark, offset)

    def restart(self, *, clean: bool) -> None:
        if clean:
            self.checkpointed = self.high_watermark
        self.high_watermark = min(self.checkpointed, self.end)
        self.state = self.pending = None


class Controller:
    """Decides on proposals; `epochs` are those of the registered brokers."""

    def __init__(self) -> None:
        self.state = State()
        self.epochs = dict.fromkeys(BROKERS, 0)
        self.shutting_down: set[int] = set()

    @property
    def live(self) -> frozenset[int]:
        return frozenset(self.epochs.keys() - self.shutting_down)

    def alter(self, broker: int, broker_epoch: int, proposal: Proposal, epochs: dict[int, int]) -> State:
        """Answer AlterPartition with the state then; `epochs` are those of the brokers as the leader knows them, or -1."""
        now = self.state
        refuse_unless(self.epochs.get(broker) == broker_epoch, "STALE_BROKER_EPOCH")
        is_newer = proposal.partition_epoch > now.partition_epoch or proposal.leader_epoch > now.leader_epoch
        refuse_unless(not is_newer, "NOT_CONTROLLER")
        refuse_unless(proposal.leader_epoch == now.leader_epoch, "FENCED_LEADER_EPOCH")
        refuse_unless(broker == now.leader, "INVALID_REQUEST")
        if proposal.isr == now.isr:
            return now
        refuse_unless(proposal.partition_epoch == now.partition_epoch, "INVALID_UPDATE_VERSION")
        refuse_unless(broker in proposal.isr <= frozenset(BROKERS), "INVALID_REQUEST")
        for id_ in proposal.isr:
            is_same = epochs[id_] in (-1, self.epochs.get(id_))
            refuse_unless(id_ in self.live and is_same, "INELIGIBLE_REPLICA")
        self.state = replace(now, isr=proposal.isr, partition_epoch=now.partition_epoch + 1)
        return self.state

    def alter_locally(self, broker: int, proposal: Proposal) -> State:
        """Decide as a broker that is its own controller: only on what its leader knows to be the newest state."""
        now = self.state
        is_newest = (proposal.leader_epoch, proposal.partition_epoch) == (
            now.leader_epoch,
            now.partition_epoch,
        )
        refuse_unless(is_newest and broker == now.leader, "NOT_LEADER_OR_FOLLOWER")
        refuse_unless(proposal.isr - now.isr <= self.live, "INELIGIBLE_REPLICA")
        self.state = replace(now, isr=proposal.isr, partition_epoch=now.partition_epoch + 1)
        return self.state
