"""The frame of records of the metadata log, and what is no such record."""

import pytest

from barnabas.wire import metadata_records
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.metadata_records.broker_registration_change import BrokerRegistrationChangeRecord
from barnabas.wire.generated.metadata_records.no_op import NoOpRecord
from barnabas.wire.generated.metadata_records.topic import TopicRecord
from barnabas.wire.metadata_records import decode_record, encode_record, record_codec, record_key, record_keys


def test_record_with_its_frame_is_kafkas_bytes():
    value = bytes.fromhex("010200077061796d656e" + "000102030405060708090a0b0c0d0e0f00")
    assert decode_record(value) == (TopicRecord("paymen", bytes(range(16))), 0)
    assert encode_record(TopicRecord("paymen", bytes(range(16))), 0) == value


@pytest.mark.parametrize("key", record_keys())
def test_every_record_round_trips_in_every_version(key):
    codec = record_codec(key)
    for version in range(codec.min_version, codec.max_version + 1):
        message = codec.message()
        data = encode_record(message, version)
        assert data[:3] == bytes((1, key, version))
        assert decode_record(data) == (message, version)
        assert record_key(message) == key


def test_record_names_are_those_of_their_classes():
    for key in record_keys():
        assert record_codec(key).name == f"{metadata_records.record_name(key)}Record"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", "needs more than the 0 bytes"),
        (bytes((0, 20, 0, 0)), "no frame version 0"),
        (bytes((2, 20, 0, 0)), "no frame version 2"),
        (bytes((1, 6, 0, 0)), "no metadata record with key 6"),
        (bytes((1, 120, 0, 0)), "no metadata record with key 120"),
        (bytes((1, 20, 1, 0)), "no version 1"),
        (bytes((1, 17, 4, 0)), "no version 4"),
        (bytes((1, 20, 0, 0, 0)), "1 bytes are left over"),
        (bytes((1, 20, 0)), "NoOpRecord"),
    ],
)
def test_unreadable_record_is_an_error(value, text):
    with pytest.raises(DecodeError, match=text):
        decode_record(value)


def test_field_of_a_later_version_must_have_its_default():
    change = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, cordoned_log_dirs=[bytes(16)])
    with pytest.raises(Exception, match="cordoned_log_dirs"):
        encode_record(change, 2)
    assert decode_record(encode_record(NoOpRecord(), 0)) == (NoOpRecord(), 0)
