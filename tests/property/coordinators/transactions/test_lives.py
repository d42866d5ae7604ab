"""Random lives of a transactional id: two instances that come, go, are late and ask again, over timeouts and restarts.

What must hold: epochs never go back; only the newest instance can add, commit or abort; what was prepared ends that way and
in no other; each end is told to exactly the partitions that were added; a restart changes nothing that was answered.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.coordinators.statemachine.decision import Decision, Refused
from barnabas.coordinators.transactions.settings import TransactionSettings
from barnabas.coordinators.transactions.shard import Ending, ProducerIdNeededError, TransactionShard
from barnabas.coordinators.transactions.transaction import EPOCH_MAX_OF_CLIENTS, NO_EPOCH, Producer, State
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

ID = "t"
TIMEOUT_MS = 10_000
PLACES = [("a", 0), ("a", 1), ("b", 0)]
INSTANCES = st.integers(0, 1)


class Lives(RuleBasedStateMachine):
    """`open` is what the coordinator must think is in the open transaction; `current` the newest instance's producer."""

    def __init__(self) -> None:
        super().__init__()
        self.shard = TransactionShard(TransactionSettings())
        self.journal: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[object, int] = {}
        self.endings: list[Ending] = []
        self.now = 1_000
        self.next_id = 1
        self.instances: list[Producer | None] = [None, None]
        self.versions = [0, 2]
        self.current: Producer | None = None
        self.open: set[tuple[str, int]] = set()
        self.highest = Producer(0, -1)
        self.fenced: set[Producer] = set()
        self.used: set[Producer] = set()

    def attempt(self, event):
        """Let an event decide, and take up what it has decided; returns its result, or the error code."""
        for new_id in (None, self.next_id):
            out = Decision()
            try:
                result = event(out, new_id)
                self.settle(out)
                if isinstance(result, Refused):
                    result = result.error
            except ProducerIdNeededError:
                assert not out.records
                continue
            except RequestError as error:
                result = error
            if new_id is not None:
                self.next_id += 1
            return result
        raise AssertionError

    def settle(self, out: Decision) -> None:
        for key, value in out.records:
            self.journal.append((key, value))
            self.shard.replay(key, value, loading=False)
        for timer, at_ms in out.timers.items():
            if at_ms is None:
                self.timers.pop(timer, None)
            else:
                self.timers[timer] = at_ms
        self.endings += out.effects

    @property
    def transaction(self):
        return self.shard.transactions.get(ID)

    @rule(who=INSTANCES, goes_on=st.booleans())
    def init(self, who: int, goes_on: bool) -> None:
        expected = self.instances[who] if goes_on else None
        before = self.transaction
        result = self.attempt(
            lambda out, new_id: self.shard.init_producer(ID, TIMEOUT_MS, expected, new_id, self.now, out)
        )
        if isinstance(result, RequestError):
            assert result.code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED)
            if before.state is State.ONGOING and self.transaction.state is State.PREPARE_ABORT:
                self.fenced.add(before.producer)
                self.ended(commit=False)
            return
        assert goes_on or result not in self.used, "a new instance is told from every one before"
        self.used.add(result)
        if before is not None and result != before.producer:
            self.fenced.add(before.producer)
        self.instances[who] = self.current = result

    @rule(who=INSTANCES, topic_partitions=st.sets(st.sampled_from(PLACES), min_size=1))
    def add(self, who: int, topic_partitions: set[tuple[str, int]]) -> None:
        producer = self.instances[who]
        if producer is None:
            return
        result = self.attempt(
            lambda out, _: self.shard.add_partitions(
                ID, producer, frozenset(topic_partitions), self.versions[who], self.now, out
            )
        )
        if result is None:
            assert producer == self.transaction.producer
            assert producer not in self.fenced
            self.open |= topic_partitions

    @rule(who=INSTANCES, commit=st.booleans(), late=st.booleans())
    def end(self, who: int, commit: bool, late: bool) -> None:
        producer = self.instances[who]
        if producer is None:
            return
        before = self.transaction
        result = self.attempt(
            lambda out, new_id: self.shard.end(
                ID, producer, commit=commit, client_version=self.versions[who], new_producer_id=new_id,
                now_ms=self.now, out=out,
            )
        )  # fmt: skip
        if isinstance(result, RequestError):
            assert self.transaction == before
            return
        if before.state.is_prepared or self.transaction == before:
            assert self.transaction == before  # asked again: nothing happens twice
        else:
            assert producer == before.producer
            assert producer not in self.fenced
            self.ended(commit=commit)
            self.used.add(result)
            self.current = result
        if not late:  # the answer has arrived
            self.instances[who] = result

    def ended(self, *, commit: bool) -> None:
        ending = self.endings[-1]
        assert ending.commit is commit
        assert set(ending.partitions) == self.open
        self.open = set()

    @rule()
    def tell_the_partitions(self) -> None:
        if self.endings:
            self.attempt(lambda out, _: self.shard.complete(self.endings[0], self.now, out))
            self.endings.clear()

    @rule(ms=st.integers(1, TIMEOUT_MS))
    def wait(self, ms: int) -> None:
        self.now += ms
        for timer, at_ms in list(self.timers.items()):
            if at_ms <= self.now:
                del self.timers[timer]
                self.fenced.add(self.transaction.producer)
                self.attempt(lambda out, _, timer=timer: self.shard.expire(timer, self.now, out))
                self.ended(commit=False)

    @rule()
    def use_up_the_epochs(self) -> None:
        """Only a transaction at rest: as if the producer had gone on for long."""
        transaction = self.transaction
        if (
            transaction is not None
            and transaction.state is State.EMPTY
            and transaction.epoch < EPOCH_MAX_OF_CLIENTS
        ):
            new = replace(transaction, epoch=EPOCH_MAX_OF_CLIENTS, last_epoch=NO_EPOCH)
            out = Decision()
            self.shard._become(new, out)
            self.settle(out)
            self.instances = [new.producer if one == transaction.producer else one for one in self.instances]

    @rule()
    def restart(self) -> None:
        before = self.transaction
        self.shard = TransactionShard(TransactionSettings())
        for key, value in self.journal:
            self.shard.replay(key, value, loading=True)
        self.timers.clear()
        self.endings.clear()
        out = Decision()
        self.shard.loaded(self.now, out)
        self.settle(out)
        if before is not None:
            assert self.transaction == replace(before, last_epoch=NO_EPOCH)

    @invariant()
    def epochs_never_go_back(self) -> None:
        if self.transaction is not None:
            assert self.transaction.producer >= self.highest
            self.highest = self.transaction.producer

    @invariant()
    def what_is_open_is_known(self) -> None:
        transaction = self.transaction
        if transaction is not None and transaction.state is State.ONGOING:
            assert set(transaction.partitions) == self.open
            assert ("timeout", ID) in self.timers
        else:
            assert not self.open

    @invariant()
    def what_is_prepared_is_told(self) -> None:
        if self.transaction is not None and self.transaction.state.is_prepared:
            assert self.endings
            assert self.endings[-1].producer == self.transaction.producer


Lives.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLives = Lives.TestCase
