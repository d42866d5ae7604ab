"""Leaders of very many partitions, which are looked up without a long step of the event loop."""

from __future__ import annotations

from typing import Any

import trio

from barnabas.client import ClientSettings
from barnabas.client.client import Client
from barnabas.wire.generated.metadata import MetadataResponse
from tests.support.step_watch import STEP_SECONDS_MAX, StepWatch

PARTITIONS = 5_000
Topic = MetadataResponse.MetadataResponseTopic
Info = MetadataResponse.MetadataResponsePartition


async def test_leaders_of_many_partitions_are_found_at_once() -> None:
    nobody: Any = None
    client = Client(nobody, (), ClientSettings(), nobody)
    infos = [Info(partition_index=number, leader_id=number % 3) for number in reversed(range(PARTITIONS))]
    client._learn("wide", Topic(name="wide", partitions=infos))
    with StepWatch() as watch:
        await trio.lowlevel.checkpoint()
        leaders = [await client.leader("wide", number) for number in range(PARTITIONS)]
        await trio.lowlevel.checkpoint()
    assert leaders == [number % 3 for number in range(PARTITIONS)]
    assert watch.worst < STEP_SECONDS_MAX
