"""How much there is to decode or encode is known before it is done."""

import struct

import pytest

from barnabas.wire import registry
from barnabas.wire.errors import DecodeError
from barnabas.wire.extent import has_more_entries, produces_to_more
from barnabas.wire.framing import MESSAGE_BYTES_MAX, check_message_size
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.list_groups import ListGroupsResponse
from barnabas.wire.generated.metadata import MetadataResponse
from barnabas.wire.generated.produce import ProduceRequest


def test_entries_of_nested_arrays_count() -> None:
    partition = MetadataResponse.MetadataResponsePartition(replica_nodes=[1], isr_nodes=[1])
    topic = MetadataResponse.MetadataResponseTopic(name="t", partitions=[partition] * 10)
    response = MetadataResponse(topics=[topic] * 10)
    assert not has_more_entries(response, 10 + 10 * 10 * 3)
    assert has_more_entries(response, 10 + 10 * 10 * 3 - 1)


def test_counting_ends_when_there_is_too_much() -> None:
    looked_at = []

    class Topic(MetadataResponse.MetadataResponseTopic):
        @property
        def partitions(self):  # type: ignore[override]
            looked_at.append(self)
            return [1] * 100

    topics = [object.__new__(Topic) for _ in range(1000)]
    response = MetadataResponse()
    response.topics = topics
    assert has_more_entries(response, 999)
    assert not looked_at


def test_records_and_null_arrays_are_not_entries() -> None:
    data = FetchResponse.PartitionData(records=b"x" * 1_000_000, aborted_transactions=None)
    topic = FetchResponse.FetchableTopicResponse(partitions=[data])
    assert not has_more_entries(FetchResponse(responses=[topic]), 2)
    assert has_more_entries(ListGroupsResponse(groups=[None] * 3), 2)  # type: ignore[list-item]


@pytest.mark.parametrize("key", registry.keys())
def test_every_message_can_be_counted(key: int) -> None:
    for codec in registry.codec(key):
        assert not has_more_entries(codec.message(), 100)


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("records", [None, b"", b"x" * 300])
def test_partitions_of_a_produce_request_are_counted_before_it_is_decoded(version, records) -> None:
    codec = registry.request_codec(0)
    if not codec.min_version <= version <= codec.max_version:
        pytest.skip("never published")
    data = ProduceRequest.PartitionProduceData(records=records)
    request = ProduceRequest(
        transactional_id="t" if version >= 3 else None,
        topic_data=[
            ProduceRequest.TopicProduceData(name="topic" if version < 13 else "", partition_data=[data] * 7)
            for _ in range(5)
        ],
    )
    body = b"head" + codec.encode_bytes(request, version)
    assert not produces_to_more(body, 4, version, 40)
    assert produces_to_more(body, 4, version, 39)
    for end in range(4, len(body), 97):
        produces_to_more(body[:end], 4, version, 100)


def test_tagged_fields_of_a_produce_request_are_skipped() -> None:
    data = ProduceRequest.PartitionProduceData(
        records=b"abc", unknown_tagged_fields={5: b"x" * 200, 900: b""}
    )
    topic = ProduceRequest.TopicProduceData(
        name="t", partition_data=[data] * 3, unknown_tagged_fields={7: b"y"}
    )
    body = registry.request_codec(0).encode_bytes(ProduceRequest(topic_data=[topic] * 2), 9)
    assert not produces_to_more(body, 0, 9, 8)
    assert produces_to_more(body, 0, 9, 7)


def test_only_produce_may_be_very_large() -> None:
    check_message_size(struct.pack(">h", 0), MESSAGE_BYTES_MAX + 1)
    check_message_size(struct.pack(">h", 3), MESSAGE_BYTES_MAX)
    with pytest.raises(DecodeError, match="only Produce may take more"):
        check_message_size(struct.pack(">h", 3), MESSAGE_BYTES_MAX + 1)
