"""A codec leaves out only fields that may be ignored, and refuses values that a version does not have."""

import pytest

from barnabas.wire.codec import RecordType, decode_prefix, decode_versioned, encode_versioned, record_type_id
from barnabas.wire.errors import (
    DecodeError,
    EncodeError,
    NullFieldError,
    UnknownVersionError,
    UnsupportedFieldError,
)
from barnabas.wire.generated import (
    create_topics,
    describe_client_quotas,
    fetch,
    list_offsets,
    metadata,
    produce,
)
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.data import consumer_protocol_subscription
from barnabas.wire.generated.describe_client_quotas import DescribeClientQuotasResponse
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse
from barnabas.wire.generated.records import consumer_group_member_metadata, group_metadata, offset_commit
from barnabas.wire.generated.records.group_metadata import GroupMetadataKey
from barnabas.wire.generated.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from barnabas.wire.primitives import ZERO_UUID
from barnabas.wire.regions import FileRegion


def test_a_field_that_may_be_ignored_is_left_out():
    request = FetchRequest(rack_id="r1", session_epoch=4)
    assert fetch.REQUEST.decode_whole(fetch.REQUEST.encode_bytes(request, 4), 4) == FetchRequest()


def test_a_field_that_may_not_be_ignored_is_refused():
    request = CreateTopicsRequest(validate_only=True)
    with pytest.raises(UnsupportedFieldError) as caught:
        create_topics.REQUEST.encode(request, 0)
    assert (caught.value.struct, caught.value.field, caught.value.versions) == (
        "CreateTopicsRequest",
        "validate_only",
        "0",
    )
    assert create_topics.REQUEST.encode_bytes(CreateTopicsRequest(), 0)


def test_non_ignorable_field_inside_a_struct_is_refused():
    partition = ListOffsetsRequest.ListOffsetsPartition(max_num_offsets=3)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[partition])
    request = ListOffsetsRequest(topics=[topic])
    list_offsets.REQUEST.encode(request, 0)
    with pytest.raises(UnsupportedFieldError, match=r"ListOffsetsPartition\.max_num_offsets"):
        list_offsets.REQUEST.encode(request, 1)


SAME = ProduceResponse.LeaderIdAndEpoch()  # what most partitions have, in one object
LED = ProduceResponse.LeaderIdAndEpoch(leader_id=3, leader_epoch=7)


def answered(*leaders):
    answers = [
        ProduceResponse.PartitionProduceResponse(index=n, current_leader=leader)
        for n, leader in enumerate(leaders)
    ]
    topics = [ProduceResponse.TopicProduceResponse(name=name, partition_responses=answers) for name in "tu"]
    return ProduceResponse(responses=topics)


@pytest.mark.parametrize(
    "leaders",
    [
        (SAME, SAME, LED, SAME, ProduceResponse.LeaderIdAndEpoch(), SAME),
        (LED, SAME, LED, LED, SAME),
        (ProduceResponse.LeaderIdAndEpoch(unknown_tagged_fields={5: b"x"}), SAME, LED),
    ],
)
def test_structs_of_an_array_are_written_independently(leaders):
    response = answered(*leaders)
    assert produce.RESPONSE.decode_whole(produce.RESPONSE.encode_bytes(response, 10), 10) == response


def test_a_struct_that_may_not_be_ignored_is_refused_in_any_item():
    produce.RESPONSE.encode(answered(SAME, SAME), 8)
    for leaders in [(LED,), (SAME, LED), (SAME, SAME, LED, SAME)]:
        with pytest.raises(UnsupportedFieldError, match=r"PartitionProduceResponse\.current_leader"):
            produce.RESPONSE.encode(answered(*leaders), 8)


def test_a_struct_that_is_missing_is_no_default():
    for leaders in [(SAME, None), (None,)]:
        with pytest.raises(EncodeError, match="leader_id"):
            produce.RESPONSE.encode(answered(*leaders), 10)


def test_absent_fields_have_their_defaults_after_decoding():
    decoded = fetch.REQUEST.decode_whole(fetch.REQUEST.encode_bytes(FetchRequest(), 0), 0)
    assert decoded.max_bytes == 0x7FFFFFFF
    assert decoded.session_epoch == -1
    assert decoded.replica_state == FetchRequest.ReplicaState()
    assert decoded.unknown_tagged_fields is None


def test_null_is_refused_both_ways_where_the_version_has_none():
    request = MetadataRequest(topics=None)
    assert metadata.REQUEST.decode_whole(metadata.REQUEST.encode_bytes(request, 1), 1) == request
    with pytest.raises(NullFieldError, match=r"MetadataRequest\.topics"):
        metadata.REQUEST.encode(request, 0)
    with pytest.raises(DecodeError, match="null") as caught:
        metadata.REQUEST.decode(b"\xff\xff\xff\xff", 0, 0)
    assert caught.value.field == "MetadataRequest.Topics"
    assert metadata.REQUEST.decode(b"\0\0\0\0", 0, 0) == (MetadataRequest(topics=[]), 4)


def test_errors_say_where():
    data = produce.REQUEST.encode_bytes(
        ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name="topic")]), 3
    )
    with pytest.raises(DecodeError) as caught:
        produce.REQUEST.decode_whole(data[:-2], 3)
    assert (
        str(caught.value)
        == "TopicProduceData.PartitionData at byte 19: needs more than the 2 bytes that are left"
    )
    with pytest.raises(DecodeError, match="1 bytes are left over"):
        produce.REQUEST.decode_whole(data + b"\0", 3)


@pytest.mark.parametrize("version", [-1, 14, 99])
def test_unknown_versions_are_errors(version):
    with pytest.raises(UnknownVersionError):
        produce.REQUEST.encode(ProduceRequest(), version)
    with pytest.raises(DecodeError):
        produce.REQUEST.decode(b"", 0, version)


def test_numbers_out_of_range_are_errors():
    with pytest.raises(EncodeError, match="ProduceRequest v3"):
        produce.REQUEST.encode(ProduceRequest(acks=1 << 20), 3)


@pytest.mark.parametrize("version", [3, 9])
def test_strings_have_a_greatest_length(version):
    produce.REQUEST.encode(ProduceRequest(transactional_id="x" * 0x7FFF), version)
    with pytest.raises(EncodeError):
        produce.REQUEST.encode(ProduceRequest(transactional_id="x" * 0x8000), version)


def test_a_compact_string_longer_than_kafka_reads_is_refused():
    data = b"\x82\x80\x02" + bytes(0x8001)  # The varint 0x8002: a length of 0x8001, and one.
    with pytest.raises(DecodeError, match="string of 32769 bytes"):
        produce.REQUEST.decode(data, 0, 9)


def test_text_that_is_no_utf_8_is_replaced_as_java_does():
    name = b"\xff\xfe"
    data = bytes.fromhex("00000001 0002") + name
    decoded, _ = metadata.REQUEST.decode(data, 0, 0)
    assert decoded.topics[0].name == "��"


def test_records_are_a_view_of_the_frame():
    frame = bytearray(
        produce.REQUEST.encode_bytes(
            ProduceRequest(
                topic_data=[
                    ProduceRequest.TopicProduceData(
                        name="t", partition_data=[ProduceRequest.PartitionProduceData(records=b"RECORDS")]
                    )
                ]
            ),
            9,
        )
    )
    decoded = produce.REQUEST.decode_whole(memoryview(frame), 9)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[:1] = b"X"
    assert b"XECORDS" in frame


def test_a_file_region_cannot_be_made_bytes():
    region = FileRegion(0, 0, 10, None)
    partition = FetchResponse.PartitionData(records=region)
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[partition])])
    with pytest.raises(EncodeError, match="file region"):
        fetch.RESPONSE.encode_bytes(response, 11)


def test_unknown_tagged_fields_survive_between_known_ones():
    request = FetchRequest(cluster_id="c", unknown_tagged_fields={9: b"nine", 5: b""})
    data = fetch.REQUEST.encode_bytes(request, 12)
    assert data.endswith(bytes.fromhex("03 00 02 02 63 05 00 09 04") + b"nine")
    assert fetch.REQUEST.decode_whole(data, 12) == FetchRequest(
        cluster_id="c", unknown_tagged_fields={5: b"", 9: b"nine"}
    )


def test_tagged_fields_at_their_defaults_are_not_written():
    plain = fetch.REQUEST.encode_bytes(FetchRequest(), 15)
    assert plain[-1:] == b"\0"
    state = FetchRequest.ReplicaState(replica_id=1)
    assert fetch.REQUEST.encode_bytes(FetchRequest(replica_state=state), 15).startswith(
        plain[:-1] + b"\1\1\x0d"
    )


def test_a_known_tag_among_the_unknown_is_refused():
    with pytest.raises(EncodeError, match=r"\[0\]"):
        fetch.REQUEST.encode(FetchRequest(cluster_id="c", unknown_tagged_fields={0: b""}), 12)


EMPTY_FETCH_V12 = fetch.REQUEST.encode_bytes(FetchRequest(), 12)[:-1]


@pytest.mark.parametrize(
    ("tags", "problem"),
    [
        ("02 05 00 05 00", "tag 5 comes after tag 5"),
        ("02 06 00 05 00", "tag 5 comes after tag 6"),
        ("01 05 03 00 00", "goes beyond"),
        ("7f 00 00", "do not fit"),
        ("ffffffff0f", "31 bits"),
        ("ffffffffff01", "31 bits"),
        ("01 00 03 02 63 00", "its size says"),
        ("01 00 01 02 63", "needs more"),
    ],
)
def test_broken_tagged_fields_are_errors(tags, problem):
    with pytest.raises(DecodeError, match=problem):
        fetch.REQUEST.decode(EMPTY_FETCH_V12 + bytes.fromhex(tags), 0, 12)


def test_not_a_number_survives():
    value = DescribeClientQuotasResponse.ValueData(key="k", value=float("inf"))
    response = DescribeClientQuotasResponse(entries=[DescribeClientQuotasResponse.EntryData(values=[value])])
    assert bytes.fromhex("7ff0000000000000") in describe_client_quotas.RESPONSE.encode_bytes(response, 0)


def test_messages_can_be_made_by_name_and_share_no_lists():
    first, second = ProduceRequest(), ProduceRequest(acks=-1)
    first.topic_data.append(ProduceRequest.TopicProduceData())
    assert second.topic_data == []
    assert ProduceRequest.TopicProduceData().topic_id == ZERO_UUID


# Records of internal topics.


def test_keys_begin_with_a_type_and_values_with_a_version():
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    data = offset_commit.RECORD.encode_key(key)
    assert data == bytes.fromhex("0001 0001 67 0001 74 00000003")
    assert offset_commit.RECORD.decode_key(data) == key
    assert record_type_id(data) == 1
    value = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=9)
    for version in range(5):
        data = offset_commit.RECORD.encode_value(value, version)
        assert data[:2] == bytes((0, version))
        assert offset_commit.RECORD.decode_value(data).offset == 7
    assert offset_commit.RECORD.encode_value(value)[:2] == b"\0\4"


def test_a_key_of_another_type_is_refused():
    data = group_metadata.RECORD.encode_key(GroupMetadataKey(group="g"))
    assert data == bytes.fromhex("0002 0001 67")
    with pytest.raises(DecodeError, match="type 2, not 1"):
        offset_commit.RECORD.decode_key(data)
    with pytest.raises(DecodeError, match="too short"):
        record_type_id(b"\0")
    assert isinstance(offset_commit.RECORD, RecordType)


def test_a_null_struct_in_a_tagged_field_is_a_zero_varint():
    codec = consumer_group_member_metadata.VALUE
    value = codec.message(classic_member_metadata=None)
    assert codec.encode_bytes(value, 0).endswith(b"\1\0\1\0")


def test_newer_group_protocol_is_read_as_the_newest_known():
    codec = consumer_protocol_subscription.CODEC
    message = codec.message(topics=["a", "b"], user_data=b"u", generation_id=4, rack_id="r")
    for version in range(codec.max_version + 1):
        data = encode_versioned(codec, message, version)
        assert decode_versioned(codec, data).topics == ["a", "b"]
    newer = b"\0\x09" + data[2:] + b"more"
    assert decode_prefix(codec, newer) == message
    with pytest.raises(DecodeError, match="no version 9"):
        decode_versioned(codec, newer)
