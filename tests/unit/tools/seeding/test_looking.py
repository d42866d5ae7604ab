"""Looking at a broker: members of groups of each kind, records without aborted ones, from any offset on."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.tools.seeding.local_requests import LocalRequests
from barnabas.tools.seeding.looking import Looking
from tests.support.broker import Asked, ask_for_topic, broker_to_ask
from tests.support.logs import batch
from tests.support.plain_requests import ask, codes

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
async def asked(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        asked.client_id = "the-client"
        await ask_for_topic(asked)
        yield asked


@pytest.fixture
def looking(asked):
    return Looking(LocalRequests(asked.broker))


async def produce(asked: Asked, *values: bytes, partition: int = 0, **options: Any) -> None:
    data = [{"Index": partition, "Records": bytes(batch(*values, **options))}]
    request = {"Acks": -1, "TimeoutMs": 5000, "TopicData": [{"Name": "t", "PartitionData": data}]}
    request["TransactionalId"] = "x" if options else None
    assert codes(await ask(asked, "Produce", 9, request)) == [0]


async def test_what_was_deleted_is_not_there(asked, looking):
    await produce(asked, b"0", b"1", b"2")
    parts = [{"PartitionIndex": 0, "Offset": 2}]
    await ask(asked, "DeleteRecords", 2, {"Topics": [{"Name": "t", "Partitions": parts}], "TimeoutMs": 5000})
    assert [record.offset for record in await looking.read("t", 0, limit=9)] == [2]
    assert await looking.count("t", 0) == (1, 3)
    first = looking.topic("t")["partitions"][0]
    assert (first["log_start_offset"], first["high_watermark"], first["last_stable_offset"]) == (2, 3, 3)
