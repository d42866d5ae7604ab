"""Codecs: the most frequent messages of a broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from bench import wire as frames
from bench.micro.timing import Timing, measure


def run() -> Iterator[Timing]:
    from barnabas.wire.generated.fetch import REQUEST as FETCH_REQUEST
    from barnabas.wire.generated.fetch import RESPONSE as FETCH_RESPONSE
    from barnabas.wire.generated.fetch import FetchResponse
    from barnabas.wire.generated.metadata import RESPONSE as METADATA_RESPONSE
    from barnabas.wire.generated.metadata import MetadataResponse
    from barnabas.wire.generated.produce import REQUEST as PRODUCE_REQUEST
    from barnabas.wire.generated.produce import RESPONSE as PRODUCE_RESPONSE
    from barnabas.wire.generated.produce import ProduceResponse
    from barnabas.wire.headers import parse_request_header

    batch = frames.record_batch([b"x" * 1024] * 15, time.time_ns() // 1_000_000)
    produce = memoryview(frames.produce_v7("topic", [0], batch))[4:]
    position = parse_request_header(produce).body_position
    yield measure("request header", lambda: parse_request_header(produce))
    yield measure("decode Produce v7, 1 partition", lambda: PRODUCE_REQUEST.decode(produce, position, 7))
    fetch = memoryview(frames.fetch_v11("topic", range(10), 0, 1 << 20))[4:]
    yield measure("decode Fetch v11, 10 partitions", lambda: FETCH_REQUEST.decode(fetch, position, 11))

    produced = ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name="topic", partition_responses=[ProduceResponse.PartitionProduceResponse(base_offset=7)]
            )
        ]
    )
    yield measure("encode Produce v7 response", lambda: PRODUCE_RESPONSE.encode(produced, 7))
    parts = [FetchResponse.PartitionData(partition_index=index, records=batch) for index in range(10)]
    fetched = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="topic", partitions=parts)])
    yield measure(
        "encode Fetch v11 response, 10 partitions with 16 KB", lambda: FETCH_RESPONSE.encode(fetched, 11)
    )

    def topic(name: str) -> MetadataResponse.MetadataResponseTopic:
        partition = MetadataResponse.MetadataResponsePartition
        return MetadataResponse.MetadataResponseTopic(
            name=name,
            partitions=[
                partition(partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1])
                for index in range(10)
            ],
        )

    metadata = MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="localhost", port=9092)],
        topics=[topic(f"topic-{number}") for number in range(10)],
    )
    for version in (1, 12):
        yield measure(
            f"encode Metadata v{version} response, 10 topics of 10 partitions",
            partial(METADATA_RESPONSE.encode, metadata, version),
        )
