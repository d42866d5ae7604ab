"""Control records."""

import pytest

from barnabas.records import batch, control
from barnabas.records.control import ControlType, EndMarker
from barnabas.records.errors import InvalidRecordsError
from barnabas.records.record import Record


@pytest.mark.parametrize("commit", [True, False])
def test_end_marker_round_trip(commit):
    raw = control.encode_end_marker(
        commit=commit, producer_id=5, producer_epoch=2, coordinator_epoch=9, timestamp_ms=100, base_offset=40
    )
    header = batch.read_header(raw)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    (record,) = batch.read_records(raw)
    expected = ControlType.COMMIT if commit else ControlType.ABORT
    assert control.parse_end_marker(record) == EndMarker(expected, 9)
    assert record.offset == 40


def test_newer_versions_are_read():
    record = Record(0, 0, b"\x00\x05\x00\x01future", b"\x00\x07\x00\x00\x00\x09future")
    assert control.parse_end_marker(record) == EndMarker(ControlType.COMMIT, 9)


@pytest.mark.parametrize("number", range(2, 7))
def test_other_types_are_no_end_markers(number):
    record = Record(0, 0, b"\x00\x00\x00" + bytes((number,)), b"")
    assert control.parse_type(record.key) == number
    assert control.parse_end_marker(record) is None


def test_types_to_come_are_unknown():
    assert control.parse_type(b"\x00\x00\x00\x07") is ControlType.UNKNOWN
    assert control.parse_type(b"\x00\x00\xff\xfe") is ControlType.UNKNOWN


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"])
def test_malformed_keys(key):
    with pytest.raises(InvalidRecordsError):
        control.parse_type(key)


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x00"])
def test_malformed_values(value):
    with pytest.raises(InvalidRecordsError):
        control.parse_end_marker(Record(0, 0, control.encode_key(ControlType.ABORT), value))
