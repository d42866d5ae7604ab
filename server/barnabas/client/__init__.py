"""A Kafka client for Trio programs, on the generated codecs: a producer, a consumer, and any API by itself.

    async with open_producer("localhost:9092") as producer:
        await producer.send("events", b"hello")

    async with open_consumer("localhost:9092", "events", settings=ConsumerSettings(group_id="readers")) as consumer:
        async for record in consumer:
            print(record.value)

    async with open_client("localhost:9092") as client:
        response = await client.ask_leader("events", 0, request)

The rule: `Client` sends requests to the right brokers; their content is up to the producer, the consumer, or its user.
Names are loaded when they are first used: a program that only sends requests needs no producer, no consumer and no Trio
(`sockets`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client.client import Client, open_client
    from barnabas.client.connection import Connection, Dial
    from barnabas.client.consumer import Consumer, open_consumer
    from barnabas.client.consuming.settings import ConsumerSettings
    from barnabas.client.errors import (
        AuthenticationError,
        BufferFullError,
        ClientError,
        ClosedError,
        CommitFailedError,
        ConnectionLostError,
        DamagedRecordsError,
        DeliveryTimeoutError,
        FencedInstanceError,
        LogTruncatedError,
        NoOffsetError,
        NotAssignedError,
        OffsetOutOfRangeError,
        ProducerFencedError,
        RecordTooLargeError,
        ResponseError,
        TimedOutError,
        TransactionAbortedError,
        TransactionFailedError,
        UnsupportedVersionError,
    )
    from barnabas.client.producer import Producer, open_producer
    from barnabas.client.producing.outbox import Delivery
    from barnabas.client.producing.settings import ProducerSettings
    from barnabas.client.settings import ClientSettings, Endpoint, parse_bootstrap
    from barnabas.client.values import (
        ConsumedRecord,
        FetchedRecords,
        GroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        TopicPartition,
    )

_LATER = {
    "AuthenticationError": "errors",
    "BufferFullError": "errors",
    "Client": "client",
    "ClientError": "errors",
    "ClientSettings": "settings",
    "ClosedError": "errors",
    "CommitFailedError": "errors",
    "Connection": "connection",
    "ConnectionLostError": "errors",
    "ConsumedRecord": "values",
    "Consumer": "consumer",
    "ConsumerSettings": "consuming.settings",
    "DamagedRecordsError": "errors",
    "Delivery": "producing.outbox",
    "DeliveryTimeoutError": "errors",
    "Dial": "connection",
    "Endpoint": "settings",
    "FencedInstanceError": "errors",
    "FetchedRecords": "values",
    "GroupMetadata": "values",
    "LogTruncatedError": "errors",
    "NoOffsetError": "errors",
    "NotAssignedError": "errors",
    "OffsetAndMetadata": "values",
    "OffsetAndTimestamp": "values",
    "OffsetOutOfRangeError": "errors",
    "Producer": "producer",
    "ProducerFencedError": "errors",
    "ProducerSettings": "producing.settings",
    "RecordMetadata": "values",
    "RecordTooLargeError": "errors",
    "ResponseError": "errors",
    "TimedOutError": "errors",
    "TopicPartition": "values",
    "TransactionAbortedError": "errors",
    "TransactionFailedError": "errors",
    "UnsupportedVersionError": "errors",
    "open_client": "client",
    "open_consumer": "consumer",
    "open_producer": "producer",
    "parse_bootstrap": "settings",
}

__all__ = [
    "AuthenticationError",
    "BufferFullError",
    "Client",
    "ClientError",
    "ClientSettings",
    "ClosedError",
    "CommitFailedError",
    "Connection",
    "ConnectionLostError",
    "ConsumedRecord",
    "Consumer",
    "ConsumerSettings",
    "DamagedRecordsError",
    "Delivery",
    "DeliveryTimeoutError",
    "Dial",
    "Endpoint",
    "FencedInstanceError",
    "FetchedRecords",
    "GroupMetadata",
    "LogTruncatedError",
    "NoOffsetError",
    "NotAssignedError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "Producer",
    "ProducerFencedError",
    "ProducerSettings",
    "RecordMetadata",
    "RecordTooLargeError",
    "ResponseError",
    "TimedOutError",
    "TopicPartition",
    "TransactionAbortedError",
    "TransactionFailedError",
    "UnsupportedVersionError",
    "open_client",
    "open_consumer",
    "open_producer",
    "parse_bootstrap",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        value = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
