"""Each number of a record at each length of its encoding, read by all three readers: decoder, scan and cursor."""

import pytest

from barnabas.records.cursor import RecordCursor
from barnabas.records.errors import InvalidRecordsError
from barnabas.records.legacy import encode_message_set
from barnabas.records.record import Record, encode_body, iter_body
from barnabas.records.rules import AppendRules
from barnabas.records.scan import scan_body
from barnabas.records.steps import run
from barnabas.records.validate import validate_steps
from barnabas.records.validated import ValidatedBatches
from barnabas.records.varint import encode_varint

NOW = 1_700_000_000_000
EDGES = [0, 1, 2, 62, 63, 64, 65, 127, 128, 129, 8_191, 8_192, 8_193, 16_384, 1_048_576]
HEAD, TAIL = Record(0, NOW, b"head", b"first"), Record(2, NOW, None, b"last")


def walk(body, count):
    """Move a cursor to the end of a body."""
    cursor = RecordCursor(body, count)
    while cursor.advance():
        pass


def test_a_record_that_is_cut_anywhere_is_refused_by_all_readers():
    body = bytes(encode_body([HEAD, Record(1, NOW + 64, b"k" * 64, b"v" * 64), TAIL], 0, NOW))
    for cut in range(len(body)):
        with pytest.raises(InvalidRecordsError):
            list(iter_body(body[:cut], 3, 0, NOW))
        with pytest.raises(InvalidRecordsError):
            scan_body(body[:cut], 3, NOW)
        with pytest.raises(InvalidRecordsError):
            walk(body[:cut], 3)


@pytest.mark.parametrize(
    "fields",
    [
        b"\0\0\0" + encode_varint(5) + b"k",  # the key ends where the record does
        b"\0\0\0" + encode_varint(9) + b"k",
        b"\0\0\0" + encode_varint(1) + b"k" + encode_varint(3) + b"vvv",  # no place for the number of headers
        b"\0\0\0" + encode_varint(1) + b"k" + encode_varint(9) + b"vvv",
        b"\0\0\0" + encode_varint(1) + b"k",
        b"\0\0\0",
        b"\0\0",
        b"\0",
    ],
)
def test_what_reaches_beyond_its_record_is_refused_by_the_cursor(fields):
    """Though there are bytes behind it."""
    body = encode_varint(len(fields)) + fields + b"\0" * 40
    cursor = RecordCursor(body, 1)
    with pytest.raises(InvalidRecordsError, match="record 0 of 1"):
        cursor.advance()


# --- limits of a produce request ----------------------------------------------------------------------------------


def validation(raw, rules=AppendRules(), api_version=9):  # noqa: B008 (it is frozen)
    return validate_steps(raw, api_version=api_version, config=rules, now_ms=NOW)


@pytest.mark.parametrize("raw", [b"", encode_message_set([HEAD], magic=1)[:-1]])
def test_old_requests_without_a_whole_message_append_nothing(raw):
    nothing = ValidatedBatches(b"", -1, -1, -1, -1, -1, 0, [])
    assert run(validation(raw, api_version=2)) == nothing
    nothing.place(77, 3)
    assert (nothing.base_offset, nothing.last_offset, nothing.records) == (-1, -1, b"")
