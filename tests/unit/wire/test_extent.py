"""The number of entries to decode or encode is known before that begins."""

import struct
from itertools import count
from typing import Any

import pytest

from barnabas.wire import registry
from barnabas.wire.codec import MessageCodec
from barnabas.wire.errors import DecodeError, TooManyEntriesError
from barnabas.wire.extent import entries_of, has_more_entries
from barnabas.wire.framing import MESSAGE_BYTES_MAX, check_message_size
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.list_groups import ListGroupsResponse
from barnabas.wire.generated.metadata import MetadataResponse
from barnabas.wire.generated.offset_fetch import OffsetFetchRequest
from compat.hostile.messages import filled
from compat.kit.wire import encode, message


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


@pytest.mark.parametrize("key", registry.keys())
def test_message_with_too_many_entries_is_not_decoded(key: int) -> None:
    codec = registry.request_codec(key)
    for version in range(codec.min_version, codec.max_version + 1):
        api = registry.name_of(key)
        body = encode(message(f"{api}Request"), version, filled(api, version))
        entries = entries_of(codec.decode_whole(body, version))
        needed = next(most for most in count() if _fits(codec, body, version, most))
        tags = sum(version in field.tagged for _, field in message(f"{api}Request").all_fields())
        assert entries <= needed <= entries + tags, f"{api} v{version}"


def _fits(codec: MessageCodec[Any], body: bytes, version: int, entries: int) -> bool:
    try:
        codec.decode_whole(body, version, entries_max=entries)
    except TooManyEntriesError:
        return False
    return True


def test_unknown_tagged_fields_are_entries_wherever_they_are() -> None:
    codec = registry.request_codec(9)
    topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", unknown_tagged_fields={5: b"x", 900: b""})
    group = OffsetFetchRequest.OffsetFetchRequestGroup(topics=[topic] * 3)
    request = OffsetFetchRequest(groups=[group], unknown_tagged_fields=dict.fromkeys(range(300), b""))
    body = codec.encode_bytes(request, 8)
    assert codec.decode_whole(body, 8, entries_max=1 + 3 + 6 + 300) == request
    with pytest.raises(TooManyEntriesError, match="OffsetFetchRequest tagged fields"):
        codec.decode_whole(body, 8, entries_max=1 + 3 + 6 + 299)


def test_only_produce_may_be_very_large() -> None:
    check_message_size(struct.pack(">h", 0), MESSAGE_BYTES_MAX + 1)
    check_message_size(struct.pack(">h", 3), MESSAGE_BYTES_MAX)
    with pytest.raises(DecodeError, match="only Produce may take more"):
        check_message_size(struct.pack(">h", 3), MESSAGE_BYTES_MAX + 1)
