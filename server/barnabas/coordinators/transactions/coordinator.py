"""The transaction coordinator, as the handlers see it: shards of transactional ids over __transaction_state.

The rule: the end of a prepared transaction is written to its partitions until all of them have it, over restarts and moves
of the coordinator, each time by the active shard. Its producer is answered before that, once the end is certain. A client's
next request meanwhile waits a little, where Kafka answers CONCURRENT_TRANSACTIONS; other brokers, which send requests for
many clients together, get that answer. The state machine is imported when the first shard is loaded: a broker without
transactions starts faster.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from barnabas.coordinators.runtime.journal import Journal
from barnabas.coordinators.runtime.runtime import Runtime
from barnabas.coordinators.runtime.shard import Checkpoint, Shard, no_checkpoint
from barnabas.coordinators.statemachine.decision import EVENT_SIZE_MAX, Decision, Refused
from barnabas.coordinators.transactions.ports import MarkerWriter
from barnabas.environment.lazy import import_modules
from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from barnabas.coordinators.transactions.settings import TransactionSettings
    from barnabas.coordinators.transactions.shard import Ending, TransactionShard
    from barnabas.coordinators.transactions.transaction import Producer, Transaction
    from barnabas.environment import Threads

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 1.0
"""Longest wait of a request for the end of the previous transaction."""
RETRY_SECONDS: Final = 0.1
RETRY_SECONDS_MAX: Final = 1.0
MARKERS_CONCURRENT = 1_000
"""Largest number of partitions of a transaction that get their markers in parallel; 100,000 tasks would be a long turn."""
TASKS_PER_STEP: Final = 50
_NOT_NEEDED = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.UNSUPPORTED_VERSION,
)
"""The partition needs no marker: a newer epoch has ended the transaction there, or it has no records of it."""

R = TypeVar("R")


class TransactionCoordinator(Runtime["TransactionShard"]):
    """Facade for the handlers; lifecycle as in `Runtime`."""

    def __init__(
        self,
        journal: Journal,
        settings: TransactionSettings,
        now_ms: Callable[[], int],
        *,
        steady_ms: Callable[[], int] | None = None,
        new_producer_id: Callable[[], Awaitable[int]],
        markers: MarkerWriter,
        checkpoint: Checkpoint = no_checkpoint,
        threads: Threads | None = None,
    ) -> None:
        def make() -> TransactionShard:
            from barnabas.coordinators.transactions.shard import TransactionShard

            return TransactionShard(settings)

        async def prepare() -> None:
            if threads is not None:
                await threads.run(_import_transactions)

        super().__init__(
            journal,
            make,
            now_ms,
            steady_ms=steady_ms,
            checkpoint=checkpoint,
            prepare=prepare,
            threads=threads,
            is_large_timer=_is_large_timer,
        )
        self._new_producer_id = new_producer_id
        self.settings = settings
        self._markers = markers
        self._ended: dict[str, trio.Event] = {}

    async def init_producer(
        self, transactional_id: str, timeout_ms: int | None, expected: Producer | None
    ) -> Producer:
        """Handle InitProducerId. Raises RequestError as `TransactionShard.init_producer`."""

        def event(machine: TransactionShard, out: Decision, new_id: int | None) -> Producer | Refused:
            return machine.init_producer(transactional_id, timeout_ms, expected, new_id, self._now_ms(), out)

        return await self._patiently(transactional_id, partial(self._with_id, transactional_id, event))

    async def end(
        self, transactional_id: str, producer: Producer, *, commit: bool, client_version: int
    ) -> Producer:
        """Commit or abort a producer's transaction; returns the producer's next id and epoch.

        Raises RequestError as `TransactionShard.end`. Returns once the end is certain: prepared, and committed to the
        coordinator's log. The markers follow, unless this broker leads all partitions: then they are written, too.
        """

        def event(machine: TransactionShard, out: Decision, new_id: int | None) -> Producer:
            return machine.end(
                transactional_id, producer, commit=commit, client_version=client_version,
                new_producer_id=new_id, now_ms=self._now_ms(), out=out,
            )  # fmt: skip

        next_producer = await self._patiently(
            transactional_id, partial(self._with_id, transactional_id, event)
        )
        if await self._is_at_hand(transactional_id):
            await self._wait_ended(transactional_id, PATIENCE_SECONDS)
        return next_producer

    async def _is_at_hand(self, transactional_id: str) -> bool:
        """Return whether a transaction can be completed without other brokers."""
        transaction = self.transaction_of(transactional_id)
        for topic_partition in transaction.partitions if transaction is not None else ():
            if not self._markers.is_at_hand(topic_partition):
                return False
            await self._checkpoint()
        return True

    async def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        topic_partitions: frozenset[TopicPartition],
        client_version: int,
        *,
        is_patient: bool = True,
    ) -> None:
        """Add partitions to a transaction. Raises RequestError as `TransactionShard.add_partitions`.

        Without patience CONCURRENT_TRANSACTIONS is raised immediately while the previous transaction is being ended.
        """

        def event(machine: TransactionShard, out: Decision) -> None:
            machine.add_partitions(
                transactional_id, producer, topic_partitions, client_version, self._now_ms(), out
            )

        def is_large(machine: TransactionShard) -> bool:
            return machine.partition_count(transactional_id) + len(topic_partitions) > EVENT_SIZE_MAX

        await self._patiently(
            transactional_id,
            lambda: self.write(transactional_id, event, is_large=is_large),
            seconds=PATIENCE_SECONDS if is_patient else 0.0,
        )

    async def verify_partitions(
        self, transactional_id: str, producer: Producer, *, is_patient: bool = True
    ) -> frozenset[TopicPartition]:
        """Return the partitions of the open transaction. Raises RequestError as `TransactionShard.verify_partitions`."""
        return await self._patiently(
            transactional_id,
            lambda: self.write(
                transactional_id, lambda machine, _: machine.verify_partitions(transactional_id, producer)
            ),
            seconds=PATIENCE_SECONDS if is_patient else 0.0,
        )

    async def expire_ids(self) -> None:
        """Remove transactional ids that are no longer used."""
        await self.write_all(lambda machine: machine.expiring(self._now_ms()))

    # --- waiting --------------------------------------------------------------------------------------------

    async def _with_id(
        self, transactional_id: str, event: Callable[[TransactionShard, Decision, int | None], R | Refused]
    ) -> R:
        await self.prepare()
        from barnabas.coordinators.transactions.shard import ProducerIdNeededError

        def is_large(machine: TransactionShard) -> bool:
            return machine.partition_count(transactional_id) > EVENT_SIZE_MAX

        try:
            return await self.write(
                transactional_id, lambda machine, out: event(machine, out, None), is_large=is_large
            )
        except ProducerIdNeededError:
            pass  # not in the handler: compiled code must not wait while it handles an exception
        new_id = await self._new_producer_id()
        return await self.write(
            transactional_id, lambda machine, out: event(machine, out, new_id), is_large=is_large
        )

    async def _patiently(
        self, transactional_id: str, attempt: Callable[[], Awaitable[R]], seconds: float = PATIENCE_SECONDS
    ) -> R:
        """Try again when the previous transaction has ended, or raise CONCURRENT_TRANSACTIONS after a while."""
        deadline = trio.current_time() + seconds
        while True:
            try:
                return await attempt()
            except RequestError as error:
                seconds_left = deadline - trio.current_time()
                if error.code != ErrorCode.CONCURRENT_TRANSACTIONS or seconds_left <= 0:
                    raise
            await self._wait_ended(transactional_id, seconds_left)

    async def _wait_ended(self, transactional_id: str, seconds: float) -> None:
        transaction = self.transaction_of(transactional_id)
        if transaction is None or not transaction.state.is_prepared:
            return
        event = self._ended.setdefault(transactional_id, trio.Event())
        with trio.move_on_after(seconds):
            await event.wait()

    # --- ending ---------------------------------------------------------------------------------------------

    async def take_effect(self, effect: Any, shard: Shard[TransactionShard]) -> None:
        """Write the end of a transaction to all its partitions, and then its completion to the shard.

        The coordinator of a later epoch resumes with the partitions that are left, so this ends when the shard is unloaded.
        """
        ending: Ending = effect
        try:
            if await self._end_in_all(ending, shard):
                await self.append_on(
                    shard, lambda machine, out: machine.complete(ending, self._now_ms(), out)
                )
        except RequestError as error:
            log.warning("the end of transaction %r is not recorded: %s", ending.transactional_id, error)
        finally:
            event = self._ended.pop(ending.transactional_id, None)
            if event is not None:
                event.set()

    async def _end_in_all(self, ending: Ending, shard: Shard[TransactionShard]) -> bool:
        """Write the markers of a transaction, many in parallel; returns whether all are written."""
        if len(ending.partitions) == 1:
            (topic_partition,) = ending.partitions
            return await self._end_in(topic_partition, ending, shard)
        missing = len(ending.partitions)
        waiting = iter(await self._in_order(ending.partitions))

        async def end_in_some() -> None:
            nonlocal missing
            for topic_partition in waiting:
                if await self._end_in(topic_partition, ending, shard):
                    missing -= 1

        async with trio.open_nursery() as nursery:
            for number in range(min(missing, MARKERS_CONCURRENT)):
                nursery.start_soon(end_in_some)
                if number % TASKS_PER_STEP == 0:
                    await self._checkpoint()
        return not missing

    async def _in_order(self, topic_partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return partitions in order; a hundred thousand are sorted topic by topic, in steps."""
        by_topic: dict[str, list[int]] = {}
        for topic, index in topic_partitions:
            by_topic.setdefault(topic, []).append(index)
            await self._checkpoint()
        ordered: list[TopicPartition] = []
        for topic in sorted(by_topic):
            ordered += ((topic, index) for index in sorted(by_topic[topic]))
            await self._checkpoint()
        return ordered

    async def _end_in(
        self, topic_partition: TopicPartition, ending: Ending, shard: Shard[TransactionShard]
    ) -> bool:
        """Write a marker, and retry while that may help; false if another coordinator is responsible."""
        seconds = RETRY_SECONDS
        what = (
            f"the end of transaction {ending.transactional_id!r} in {topic_partition[0]}-{topic_partition[1]}"
        )
        while True:
            await self._checkpoint()
            if not (shard.is_forgotten or (shard.is_active and self._shards.is_current(shard))):
                return False
            try:
                await self._markers.write(
                    topic_partition, ending.producer, shard.leader_epoch, ending.commit, ending.client_version
                )
                return True
            except RequestError as error:
                if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    log.info("%s is not written, the partition is gone", what)
                    return True
                if error.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                    log.warning("%s is not written, there is a newer coordinator: %s", what, error)
                    return False
                if error.code in _NOT_NEEDED:
                    log.warning("%s is not written: %s", what, error)
                    return True
                if seconds == RETRY_SECONDS:
                    log.warning("%s is retried until it can be written: %s", what, error)
            except StorageError as error:
                log.warning("%s is delayed: %s", what, error)
            await trio.sleep(seconds)
            seconds = min(seconds * 2, RETRY_SECONDS_MAX)

    def is_open(
        self, transactional_id: str, producer: Producer, topic_partitions: frozenset[TopicPartition]
    ) -> bool:
        """Return whether these partitions are in the open transaction right now; for a check just before an append."""
        transaction = self.transaction_of(transactional_id)
        return (
            transaction is not None
            and transaction.is_ongoing
            and transaction.producer == producer
            and topic_partitions <= transaction.partitions
        )

    def transaction_of(self, transactional_id: str) -> Transaction | None:
        """Return a transaction, None if its shard is not loaded."""
        shard = self._shards.get_for(transactional_id)
        return shard.machine.transactions.get(transactional_id) if shard and shard.is_active else None


def _is_large_timer(machine: TransactionShard, key: Hashable) -> bool:
    """Return whether a transaction that has timed out has many partitions."""
    assert isinstance(key, tuple)
    return machine.partition_count(key[1]) > EVENT_SIZE_MAX


def _import_transactions() -> None:
    import_modules(
        "encodings.utf_16_be",
        "barnabas.coordinators.runtime.entries",
        "barnabas.coordinators.transactions.shard",
    )
