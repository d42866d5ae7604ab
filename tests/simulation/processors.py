"""Consume, transform, produce: each input record leads to one output record, with its offset in the same transaction.

The rule: all processors share one transactional id, as restarts of one program do: the latest to begin fences out the
others, whatever those are still about to send.
"""

from __future__ import annotations

from typing import Any

import trio

from barnabas.client.base_client import GROUP, TRANSACTION
from barnabas.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.generated.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.offset_fetch import OffsetFetchRequest
from barnabas.wire.generated.txn_offset_commit import TxnOffsetCommitRequest
from tests.simulation.clients import OUTPUT, PARTITIONS, RETRY_S, TOPIC, Asker, Producer, Reader
from tests.simulation.history import Transaction

PROCESSING = "processing"
TRANSACTIONAL_ID = "processor"


class Processor:
    """One run of the program."""

    def __init__(self, asker: Asker) -> None:
        self.asker = asker
        self.producer = Producer(asker, transactional_id=TRANSACTIONAL_ID)
        self._transactions = 0

    async def process(self, rounds: int) -> None:
        """Try so many times to process what has come."""
        await self.producer.initialize()
        for _ in range(rounds):
            await self._process_partition(self.asker.random.randrange(PARTITIONS))
            await self.asker.pause(0.3)

    async def _process_partition(self, partition: int) -> None:
        reader = Reader(self.asker, committed_only=True)
        position = (await fetch_stable(self.asker))[partition]
        reader.positions[partition] = max(position, 0)
        _, batches = await reader.fetch(partition)
        if reader.positions[partition] <= position:
            return
        outputs = [f"{partition}@{offset}".encode() for batch in batches for offset in batch.values]
        self._transactions += 1
        transaction = Transaction(f"{self.asker.name}.{self._transactions}")
        self.asker.history.transactions.append(transaction)
        self.asker.note(f"processes {outputs} in {transaction.name}")
        if not await self._fill(transaction, partition, reader.positions[partition], outputs):
            transaction.outcome = "aborted"
            await self.producer.initialize()
            return
        await self.producer.end(transaction, commit=self.asker.random.random() < 0.85)

    async def _fill(
        self, transaction: Transaction, partition: int, offset: int, outputs: list[bytes]
    ) -> bool:
        """Put outputs and the offset behind their inputs into a transaction; whether all of it was taken."""
        steps = [self._commit_offset(partition, offset)]
        steps[self.asker.random.randrange(2) : 0] = [self._produce(transaction, outputs)]
        is_filled = True
        for step in steps:
            if is_filled:
                is_filled = await step
            else:
                step.close()
        return is_filled

    async def _produce(self, transaction: Transaction, outputs: list[bytes]) -> bool:
        if not outputs:
            return True
        producer = self.producer
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=OUTPUT, partitions=[0])
            ],
        )

        def error_of(answer: Any) -> int:
            return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

        if error_of(
            await self.asker.ask_coordinator(TRANSACTIONAL_ID, TRANSACTION, added, 3, error_of=error_of)
        ):
            return False
        return not await producer.send((OUTPUT, 0), len(outputs), transaction, tags=outputs)

    async def _commit_offset(self, partition: int, offset: int) -> bool:
        producer = self.producer
        add = AddOffsetsToTxnRequest(
            transactional_id=TRANSACTIONAL_ID,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=PROCESSING,
        )
        if (await self.asker.ask_coordinator(TRANSACTIONAL_ID, TRANSACTION, add, 3)).error_code:
            return False
        part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset
        )
        request = TxnOffsetCommitRequest(
            transactional_id=TRANSACTIONAL_ID,
            group_id=PROCESSING,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
        )

        def error_of(answer: Any) -> int:
            return int(answer.topics[0].partitions[0].error_code)

        code = error_of(await self.asker.ask_coordinator(PROCESSING, GROUP, request, 3, error_of=error_of))
        self.asker.note(f"commits {offset} of {partition} in its transaction: {code}")
        return not code


async def fetch_stable(asker: Asker) -> dict[int, int]:
    """Return the committed offsets once no transaction is about to change them, -1 where there is none."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=list(range(PARTITIONS)))
    request = OffsetFetchRequest(group_id=PROCESSING, topics=[topic], require_stable=True)
    while True:
        response = await asker.ask_coordinator(PROCESSING, GROUP, request, 7)
        parts = response.topics[0].partitions
        if not any(part.error_code for part in parts):
            return {part.partition_index: part.committed_offset for part in parts}
        assert {part.error_code for part in parts} <= {0, ErrorCode.UNSTABLE_OFFSET_COMMIT}, response
        await trio.sleep(asker.random.uniform(0.5, 1.5) * RETRY_S)


async def find_processed(asker: Asker) -> None:
    """Note up to where the input was processed."""
    asker.history.processed = await fetch_stable(asker)
    asker.note(f"finds {asker.history.processed} processed")
