"""The end of a transaction in very many partitions: each of them gets it, and not all at the same time."""

import trio

from barnabas.coordinators.transactions import coordinator as transaction_coordinator
from barnabas.coordinators.transactions.markers import LocalMarkers
from barnabas.wire.generated.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.end_txn import EndTxnRequest
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from tests.support.broker import broker_to_ask

PARTITIONS = {"b": 70, "a": 50}
AT_ONCE = 16
Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


async def test_every_partition_gets_its_marker_and_only_some_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(transaction_coordinator, "MARKERS_CONCURRENT", AT_ONCE)
    written, underway, most = [], 0, 0
    write = LocalMarkers.write

    async def counted(self, topic_partition, *args):
        nonlocal underway, most
        written.append(topic_partition)
        underway += 1
        most = max(most, underway)
        await trio.lowlevel.checkpoint()
        await write(self, topic_partition, *args)
        underway -= 1

    monkeypatch.setattr(LocalMarkers, "write", counted)
    async with broker_to_ask(tmp_path, {"transaction.state.log.num.partitions": "1"}) as ask:
        topics = [
            CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in PARTITIONS.items()
        ]
        await ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
        producer = None
        with trio.fail_after(10):
            while producer is None or producer.error_code:
                producer = await ask(
                    InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 3
                )
        fields = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[
                Topic(name=name, partitions=list(range(count))) for name, count in PARTITIONS.items()
            ],
        )
        await ask(added, 3)
        ended = await ask(EndTxnRequest(transactional_id="x", committed=True, **fields), 3)
        assert ended.error_code == 0
        with trio.fail_after(10):
            while underway or len(written) < sum(PARTITIONS.values()):
                await trio.sleep(0.001)
    assert sorted(written) == sorted((name, n) for name, count in PARTITIONS.items() for n in range(count))
    assert 1 < most <= AT_ONCE
