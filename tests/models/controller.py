"""The controller of a cluster, one event at a time, by the rules of Apache Kafka's controller on ZooKeeper.

Written from those rules (KIP-380, KIP-455, KIP-497, KIP-570, KIP-704, KIP-841), and without any code of the broker's. Each
event changes the states of partitions and fills `sent`: what each broker is told, and in which groups of requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from tests.models.controller_values import DELETES, NOBODY, Move, Partition, Sent, State


@dataclass
class Controller:
    """Knowledge of the controller, and its answer to each event."""

    brokers: dict[int, int]
    """Epochs of those that are registered."""
    moves: dict[Partition, Move]
    states: dict[Partition, State]
    stopping: set[int] = field(default_factory=set)
    refusing: set[int] = field(default_factory=set)
    lost: set[tuple[int, Partition]] = field(default_factory=set)
    """Replicas in offline log dirs."""
    unclean: set[str] = field(default_factory=set)
    """Topics that allow unclean elections."""
    deleting: set[str] = field(default_factory=set)
    asked: set[tuple[int, Partition]] = field(default_factory=set)
    """Replicas that are being deleted, or could not be."""
    moving: list[Partition] = field(default_factory=list)
    """Partitions with a reassignment that goes on, in the order of their beginnings."""
    order: dict[Partition, tuple[int, ...]] | None = None
    """Reassignments that are asked for in the znode from before KIP-455."""
    imbalance_percent: int = 10
    marks_recovery: bool = True
    """True if brokers know of leaders that recover (KIP-704), since 3.2."""
    sent: list[Sent] = field(default_factory=list)

    @property
    def replicas(self) -> dict[Partition, tuple[int, ...]]:
        """All replicas by partition."""
        return {partition: move.replicas for partition, move in self.moves.items()}

    def __post_init__(self) -> None:
        self._begin_request()

    # --- requests -------------------------------------------------------------------------------------------

    def _begin_request(self) -> None:
        self._leads: dict[int, dict[Partition, bool]] = {}
        self._hear: set[int] = set()
        self._news: set[Partition] = set()
        self._stops: dict[int, dict[Partition, tuple[int, bool]]] = {}

    def _send(self) -> None:
        leads = {
            broker: {part: (self.states[part], new) for part, new in of_broker.items() if part in self.states}
            for broker, of_broker in self._leads.items()
            if broker in self.brokers
        }
        news = {part: self._as_metadata(part) for part in self._news if part in self.states}
        sent = Sent(
            {broker: of_broker for broker, of_broker in leads.items() if of_broker},
            dict.fromkeys(self._hear & self.brokers.keys(), news),
            {broker: of_broker for broker, of_broker in self._stops.items() if broker in self.brokers},
        )
        if sent != Sent():
            self.sent.append(replace(sent, brokers=dict(self.brokers), moves=dict(self.moves)))
        self._begin_request()

    def _as_metadata(self, partition: Partition) -> State:
        now = self.states[partition]
        return replace(now, leader=DELETES, epoch=0) if partition[0] in self.deleting else now

    def _tell(self, brokers: Iterable[int], partition: Partition, *, new: bool = False) -> None:
        """Tell replicas of a state, and all brokers as metadata."""
        for id_ in brokers:
            leads = self._leads.setdefault(id_, {})
            leads[partition] = leads.get(partition, False) or new
        self._hear |= self.brokers.keys()
        self._news.add(partition)

    def _tell_all_of(self, brokers: Collection[int]) -> None:
        """Tell brokers all that there is, and their own replicas."""
        self._hear.update(brokers)
        for partition in self._kept():
            for broker in set(self.replicas[partition]) & set(brokers):
                self._leads.setdefault(broker, {}).setdefault(partition, False)
            self._news.add(partition)

    def _kept(self) -> list[Partition]:
        """Partitions with a state of topics that are not being deleted."""
        return [part for part in self.replicas if part in self.states and part[0] not in self.deleting]

    # --- who can do what ------------------------------------------------------------------------------------

    def _is_here(self, broker: int, partition: Partition) -> bool:
        return broker in self.brokers and (broker, partition) not in self.lost

    def _is_usable(self, broker: int, partition: Partition) -> bool:
        return self._is_here(broker, partition) and broker not in self.stopping

    def _usable(self, brokers: Iterable[int], partition: Partition) -> tuple[int, ...]:
        return tuple(id_ for id_ in brokers if self._is_usable(id_, partition))

    def _is_led(self, partition: Partition) -> bool:
        return partition in self.states and self._is_here(self.states[partition].leader, partition)

    def _next(self, partition: Partition, leader: int, isr: Iterable[int], **changes: bool) -> None:
        now = self.states[partition]
        changed = replace(now, leader=leader, isr=tuple(isr), epoch=now.epoch + 1, **changes)
        self.states[partition] = changed

    # --- elections ------------------------------------------------------------------------------------------

    def _elect(
        self, partitions: Iterable[Partition], is_unclean: Callable[[Partition], bool]
    ) -> dict[Partition, bool]:
        """Elect where there is no leader: the first replica in sync, or out of sync where that is allowed."""
        results = {}
        for partition in partitions:
            if self._is_led(partition):
                continue
            usable = self._usable(self.replicas[partition], partition)
            if partition not in self.states:
                if usable:
                    self.states[partition] = State(usable[0], usable)
                    self._tell(usable, partition, new=True)
                continue
            isr = self.states[partition].isr
            in_sync = [broker for broker in usable if broker in isr]
            if in_sync:
                self._next(partition, in_sync[0], self._usable(isr, partition))
            elif usable and is_unclean(partition):
                recovers = {"recovering": True} if self.marks_recovery else {}
                self._next(partition, usable[0], usable[:1], **recovers)
            results[partition] = self._is_led(partition) and self.states[partition].leader in usable
            self._tell(usable, partition)
        return results

    def _elect_offline(
        self, partitions: Iterable[Partition] | None = None, returning: Collection[int] = ()
    ) -> None:
        """Elect as topics allow it; what returning brokers have is not given up."""
        asked = self.replicas if partitions is None else partitions
        self._elect(
            [partition for partition in asked if partition[0] not in self.deleting],
            lambda part: part[0] in self.unclean and not set(returning) & set(self.states[part].isr),
        )

    def _shrink(self) -> None:
        """Take lost brokers out of the ISRs where others are; a lost leader is none."""
        for partition in self._kept():
            now = self.states[partition]
            isr = tuple(broker for broker in now.isr if self._is_here(broker, partition)) or now.isr
            leader = now.leader if self._is_here(now.leader, partition) else NOBODY
            if (leader, isr) != (now.leader, now.isr):
                self._next(partition, leader, isr)
                self._tell(self._usable(self.replicas[partition], partition), partition)

    def _replicas_lost(self, returning: Collection[int] = ()) -> None:
        self._elect_offline(returning=returning)
        self._shrink()
        self._hear |= self.brokers.keys()
        self._send()

    # --- events ---------------------------------------------------------------------------------------------

    def starts(self) -> None:
        """This broker has become the controller, and has read everything."""
        self._hear |= self.brokers.keys()
        self._send()
        for partition in self._kept():
            now = self.states[partition]
            away = {broker for broker in now.isr if self.brokers.get(broker, 0) > now.written > 0}
            if not away:
                continue
            usable = self._usable(now.isr, partition)
            able = [broker for broker in usable if broker not in away] or usable
            order = [broker for broker in (now.leader, *self.replicas[partition]) if broker in able]
            if order:
                self._next(partition, order[0], able)
                self._tell(self.replicas[partition], partition)
        self._elect_offline()
        self._shrink()
        self._tell_all_of(self.brokers)
        self._send()

    def brokers_are(self, registered: dict[int, int]) -> None:
        """Other brokers are registered than before, or with newer epochs."""
        back = {id_ for id_ in registered if self.brokers.get(id_, registered[id_]) < registered[id_]}
        gone = self.brokers.keys() - registered.keys() | back
        new = registered.keys() - self.brokers.keys() | back
        if gone:
            for id_ in gone:
                del self.brokers[id_]
            self.stopping -= gone
            self.refusing -= gone
            self.lost = {partition for partition in self.lost if partition[0] not in gone}
            self.asked = {partition for partition in self.asked if partition[0] not in gone}
            self._replicas_lost(back)
        if new:
            self.brokers |= {id_: registered[id_] for id_ in new}
            self.lost = {partition for partition in self.lost if partition[0] not in new}
            self.asked = {partition for partition in self.asked if partition[0] not in new}
            self._hear |= self.brokers.keys()
            self._send()
            self._tell_all_of(new)
            self._send()
            self._elect_offline()
            self._send()
            for partition in list(self.moving):
                if new & {*self.moves[partition].target}:
                    self._move(partition, self.moves[partition])
            self._send()
            self._go_on_deleting()

    def _go_on_deleting(self) -> None:
        for partition, replicas in self.replicas.items():
            for broker in replicas:
                is_due = partition[0] in self.deleting and (broker, partition) not in self.asked
                if is_due and self._is_here(broker, partition):
                    self.asked.add((broker, partition))
                    self._stops.setdefault(broker, {})[partition] = DELETES, True
        self._send()

    def log_dirs_fail(self, brokers: Collection[int]) -> None:
        """Brokers have lost a log dir: they are asked for all their replicas."""
        self._tell_all_of(self.brokers.keys() & set(brokers))
        self._send()

    def answers(self, broker: int, epoch: int, broken: set[Partition], fine: set[Partition]) -> None:
        """A broker has said of replicas that their log dirs are offline, and of others that they are not."""
        if self.brokers.get(broker) != epoch:
            return
        new = {partition for partition in broken if (broker, partition) not in self.lost}
        self.lost -= {(broker, partition) for partition in fine}
        if not new:
            return
        self.lost |= {(broker, partition) for partition in new}
        stopped = {partition for partition in new if partition[0] not in self.deleting}
        for partition in stopped:
            epoch = self.states[partition].epoch if partition in self.states else -1
            self._stops.setdefault(broker, {})[partition] = epoch, False
        self._replicas_lost()

    def shuts_down(self, broker: int, *, stops: bool = True) -> set[Partition]:
        """A broker is about to stop; returns what it leads still though others have replicas."""
        self.stopping.add(broker)
        if stops:
            self.refusing.discard(broker)
        remaining = set()
        for partition in self._kept():
            now, replicas = self.states[partition], self.replicas[partition]
            if broker not in replicas or len(replicas) == 1:
                continue
            if now.leader == broker:
                able = [other for other in replicas if other in now.isr and self._is_usable(other, partition)]
                if able:
                    self._next(partition, able[0], [other for other in now.isr if other not in self.stopping])
                    self._tell(replicas, partition)
                else:
                    remaining.add(partition)
                continue
            isr = tuple(other for other in now.isr if other != broker)
            if isr and isr != now.isr:
                self._next(partition, now.leader, isr)
                self._tell([other for other in replicas if other != broker], partition)
            if stops:
                self._stops.setdefault(broker, {})[partition] = self.states[partition].epoch, False
        self._send()
        return remaining

    def refuses(self, broker: int, epoch: int) -> None:
        """A registered broker does not listen any more."""
        if self.brokers.get(broker) == epoch and broker not in self.stopping:
            self.refusing.add(broker)
            self.shuts_down(broker, stops=False)

    def is_reached(self, broker: int, epoch: int) -> None:
        """A broker that had refused connections has answered."""
        if self.brokers.get(broker) == epoch and broker in self.refusing:
            self.refusing.discard(broker)
            self.stopping.discard(broker)
            self._tell_all_of({broker})
            self._elect_offline()
            self._send()

    def unclean_is_allowed(self, topic: str | None) -> None:
        """Unclean elections are allowed from now on, in a topic or in all."""
        self._elect_offline([partition for partition in self.replicas if topic in (None, partition[0])])
        self._send()

    def elects_unclean(self, partitions: Collection[Partition]) -> dict[Partition, str]:
        """Elections are requested, also of replicas out of sync; returns refusals by name."""
        results: dict[Partition, str] = {}
        for part in partitions:
            results[part] = self._refusal(part) or ("ELECTION_NOT_NEEDED" if self._is_led(part) else "")
        elected = self._elect([part for part in partitions if not results[part]], lambda _: True)
        results |= {
            part: "ELIGIBLE_LEADERS_NOT_AVAILABLE" for part, is_elected in elected.items() if not is_elected
        }
        for partition, why in results.items():
            if not why and partition not in self.states:
                results[partition] = "ELIGIBLE_LEADERS_NOT_AVAILABLE"
        self._send()
        return results

    def elects_preferred(self, partitions: Collection[Partition]) -> dict[Partition, str]:
        """Preferred leaders are requested; returns refusals by name."""
        results: dict[Partition, str] = {}
        for partition in partitions:
            leader = self.states[partition].leader if partition in self.states else NOBODY
            is_led = not self._refusal(partition) and leader == self.replicas[partition][0]
            results[partition] = self._refusal(partition) or ("ELECTION_NOT_NEEDED" if is_led else "")
            if not results[partition] and not self._elect_first(partition):
                results[partition] = "PREFERRED_LEADER_NOT_AVAILABLE"
        self._send()
        return results

    def _refusal(self, partition: Partition) -> str:
        if partition not in self.replicas:
            return "UNKNOWN_TOPIC_OR_PARTITION"
        return "INVALID_TOPIC_EXCEPTION" if partition[0] in self.deleting else ""

    def _elect_first(self, partition: Partition) -> bool:
        if partition not in self.states:
            return False
        first, isr = self.replicas[partition][0], self.states[partition].isr
        is_able = first in isr and self._is_usable(first, partition)
        if is_able:
            self._next(partition, first, isr)
        self._tell(self.replicas[partition], partition)
        return is_able

    def rebalances(self) -> int:
        """Leaders go back, for brokers that too little of what prefers them is led by; returns how many have."""
        moved = 0
        for broker in sorted({replicas[0] for replicas in self.replicas.values()}):
            prefer = [
                partition
                for partition, replicas in self.replicas.items()
                if replicas[0] == broker and partition[0] not in self.deleting
            ]
            away = [part for part in prefer if part in self.states and self.states[part].leader != broker]
            if len(away) * 100 <= len(prefer) * self.imbalance_percent:
                continue
            for partition in away:
                if broker in self.states[partition].isr and self._is_usable(broker, partition):
                    moved += self._elect_first(partition)
        self._send()
        return moved

    # --- reassignments --------------------------------------------------------------------------------------

    def reassigns(
        self, targets: dict[Partition, tuple[int, ...] | None], *, keeps_factor: bool
    ) -> dict[Partition, str]:
        """Replicas are requested, or for none (None); returns refusals by name."""
        results, accepted = {}, {}
        for partition, target in targets.items():
            results[partition] = self._move_refusal(partition, target, keeps_factor=keeps_factor)
            if not results[partition]:
                move = self.moves[partition]
                accepted[partition] = move.to(move.origin if target is None else target)
        if accepted:
            self._leave_order(set(accepted))
            for partition, move in accepted.items():
                results[partition] = self._move(partition, move)
            self._send()
        return results

    def _move_refusal(
        self, partition: Partition, target: tuple[int, ...] | None, *, keeps_factor: bool
    ) -> str:
        move = self.moves.get(partition)
        if move is None or (target is not None and partition[0] in self.deleting):
            return "UNKNOWN_TOPIC_OR_PARTITION"
        if target is None:
            return "" if move.goes_on else "NO_REASSIGNMENT_IN_PROGRESS"
        able = move.origin + tuple(self.brokers.keys() - self.stopping)
        if not target or len({*target}) < len(target) or not {*target} <= {*able}:
            return "INVALID_REPLICA_ASSIGNMENT"
        return "INVALID_REPLICATION_FACTOR" if keeps_factor and len(target) != len(move.target) else ""

    def _move(self, partition: Partition, move: Move) -> str:
        """Begin a move, take its next step, or end it; returns why not."""
        before = self.moves[partition]
        if partition not in self.states:
            self._elect([partition], lambda _: False)
        dropped = [id_ for id_ in before.replicas if id_ not in move.replicas]
        if partition not in self.moving:
            self.moving.append(partition)
        if not move.goes_on or self._is_complete(partition, move):
            if self._complete(partition, move, dropped):
                return ""
            if not move.goes_on:
                return self._not_begun(partition) if move != before else ""
        if dropped and partition in self.states and not self._restrict(partition, move.replicas):
            return self._not_begun(partition)
        self.moves[partition] = move
        if partition in self.states:
            if not dropped:
                now = self.states[partition]
                self._next(partition, now.leader, now.isr)
            self._tell(move.origin, partition)
            self._tell([id_ for id_ in move.replicas if id_ in move.adding], partition, new=True)
        elif dropped:
            self._tell((), partition)
        self._delete(dropped, partition)
        return ""

    def _not_begun(self, partition: Partition) -> str:
        if not self.moves[partition].goes_on:
            self.moving.remove(partition)
        return "INVALID_REPLICA_ASSIGNMENT"

    def _is_complete(self, partition: Partition, move: Move) -> bool:
        is_in_sync = partition in self.states and {*move.target} <= {*self.states[partition].isr}
        return is_in_sync and bool(self._usable(move.target, partition))

    def _complete(self, partition: Partition, move: Move, dropped: Iterable[int] = ()) -> bool:
        """Let the target alone be in sync, delete the other replicas, and write that; False if no replica could lead."""
        target = move.target
        if partition in self.states and not self._restrict(partition, target):
            return False
        self.moves[partition] = Move(target)
        self._delete([*(id_ for id_ in move.replicas if id_ in move.removing), *dropped], partition)
        self._send()
        if self.order is not None and self.order.get(partition) == target:
            self._leave_order({partition})
        elif self.order is not None and not self.order:
            self.order = None
        self.moving.remove(partition)
        self._hear |= self.brokers.keys()
        self._news.add(partition)
        return True

    def _restrict(self, partition: Partition, replicas: tuple[int, ...]) -> bool:
        """Let only these be in sync; the leader stays if it may."""
        now = self.states[partition]
        isr = tuple(id_ for id_ in now.isr if id_ in replicas)
        able = [id_ for id_ in self._usable(replicas, partition) if id_ in isr]
        if isr:
            leader = now.leader if now.leader in able else [*able, NOBODY][0]
            self._next(partition, leader, isr)
            self._tell(replicas, partition)
        return bool(isr)

    def _delete(self, brokers: Iterable[int], partition: Partition) -> None:
        epoch = self.states[partition].epoch if partition in self.states else -1
        for id_ in brokers:
            self._stops.setdefault(id_, {})[partition] = epoch, True

    def isr_grows(self, partition: Partition, isr: tuple[int, ...]) -> None:
        """A leader has put replicas into the ISR, which may end a move."""
        self.states[partition] = replace(self.states[partition], isr=isr)
        if partition in self.moving and self._is_complete(partition, self.moves[partition]):
            self._complete(partition, self.moves[partition])
        self._send()

    def _leave_order(self, partitions: set[Partition]) -> None:
        if self.order is not None:
            remaining = {part: target for part, target in self.order.items() if part not in partitions}
            self.order = remaining or None

    def is_ordered(self) -> list[Partition]:
        """The znode asks for reassignments: what cannot be done is taken out of it; returns what has begun."""
        begun, refused = [], set()
        for partition, target in dict(self.order or {}).items():
            move = self.moves.get(partition)
            if move is None or partition[0] in self.deleting or not target:
                refused.add(partition)
            elif (move.goes_on and move.to(target) == move) or not self._move(partition, move.to(target)):
                begun.append(partition)
            else:
                refused.add(partition)
        self._send()
        if refused or not self.order:
            self._leave_order(refused)
        return begun
