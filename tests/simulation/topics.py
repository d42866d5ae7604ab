"""Topics that all clients of a simulated world use."""

from __future__ import annotations

from typing import Any

from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from tests.simulation.clients import LATEST_OF_KEYS, OUTPUT, TOPIC, TOPIC_PARTITIONS, Asker


async def create_topics(asker: Asker) -> None:
    """Make the topics that all clients use."""
    for name, partitions, configs in (
        (TOPIC, TOPIC_PARTITIONS, {}),
        (OUTPUT, 1, {}),
        (LATEST_OF_KEYS, 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}),
    ):
        await _create_topic(asker, name, partitions, configs)


async def _create_topic(asker: Asker, name: str, partitions: int, configs: dict[str, str]) -> None:
    spec = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()
        ],
    )
    request = CreateTopicsRequest(topics=[spec], timeout_ms=60_000)

    async def ask() -> Any:
        return await (await asker.client.any_connection()).ask(request, version=5)

    response = await asker.until_answered(ask, lambda answer: int(answer.topics[0].error_code))
    assert response.topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS), response
