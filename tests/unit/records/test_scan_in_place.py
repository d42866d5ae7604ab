"""Records that are scanned where they lie in a request's buffer: the verdict on them is that on a copy of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records import batch, building
from barnabas.records.at_once import validate_at_once
from barnabas.records.errors import InvalidRecordsError
from barnabas.records.record import Record, encode_body
from barnabas.records.rules import AppendRules
from barnabas.records.scan import COPIED_BYTES_MAX, scan_body
from barnabas.records.steps import Reserve, run
from barnabas.records.validate import validate_steps

NOW = 1_700_000_000_000
KIB = 1024
COPY = 64 * KIB
"""So much of a body is copied at a time."""


def in_buffer(body, before=b"\xff" * 77, after=b"\x00" * 77):
    """The body as a part of a buffer that may be written to."""
    whole = bytearray(before + body + after)
    return memoryview(whole)[len(before) : len(before) + len(body)]


def verdict(body, count):
    """The result of a scan; for an error the record that it is about, since the byte depends on how much is copied."""
    try:
        return repr(scan_body(body, count, NOW))
    except InvalidRecordsError as error:
        return error.message.split(" is ")[0]


def body_of(sizes, headers=()):
    records = [
        Record(at, NOW + at % 7, b"k" if at % 3 else None, b"v" * size, list(headers))
        for at, size in enumerate(sizes)
    ]
    return bytes(encode_body(records, 0, NOW))


@given(st.data())
def test_the_verdict_is_that_on_a_copy(data):
    sizes = st.one_of(st.integers(0, 130), st.integers(8_000, 9_000), st.integers(COPY - 30, COPY + 30))
    values = data.draw(st.lists(sizes, min_size=1, max_size=30))
    values += [data.draw(st.integers(100, 300))] * data.draw(st.integers(0, 600))
    values.append(COPIED_BYTES_MAX)
    body = bytearray(body_of(values, data.draw(st.sampled_from([(), [("h", b"x")], [("h", None)] * 20]))))
    for _ in range(data.draw(st.integers(0, 2))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.sampled_from([len(body), len(body) - 1, len(body) - 40]))
    count = len(values) + data.draw(st.sampled_from([0, 0, 0, 1, -1])) or 1
    after = data.draw(st.sampled_from([b"", bytes(body[end:]), b"\x0c\x00\x00\x02\x01\x01\x00", b"\xff" * 9]))
    assert verdict(in_buffer(body[:end], after=after), count) == verdict(bytes(body[:end]), count)


@pytest.mark.parametrize("short", range(-12, 13))
@pytest.mark.parametrize("next_size", [0, 100, 3 * COPY])
def test_a_record_may_begin_wherever_a_copy_ends(short, next_size):
    """Up to 127 records no run is looked for: each is read on its own."""
    body = body_of([COPY - 12 + short, next_size, 5, COPY, 1])
    assert verdict(in_buffer(body), 5) == verdict(body, 5)
    assert verdict(in_buffer(body), 5).startswith("BodyScan")


def test_record_behind_a_batch_is_not_part_of_it():
    body = body_of([1_000] * 200)
    size = len(body) // 200 + 1  # of the last ones, whose offsets take a byte more than the first 64
    for count, cut in [(200, size), (200, 1), (200, 5), (150, 50 * size + 1)]:
        part = in_buffer(body[:-cut], after=body[-cut:])
        assert not verdict(part, count).startswith("BodyScan")
        assert verdict(part, count) == verdict(bytes(part), count)


def test_a_run_ends_where_the_batch_does():
    """The bytes after the batch in the buffer are built alike, and would go on counting."""
    body = body_of([1_000] * 600)
    half = len(body_of([1_000] * 300))
    assert verdict(in_buffer(body[:half], after=body[half:]), 300) == verdict(body[:half], 300)
    assert verdict(in_buffer(body[:half], after=body[half:]), 301) == verdict(body[:half], 301)


@pytest.mark.parametrize("count", [900, 5_000])
def test_a_large_batch_is_appended_from_where_it_lies(count):
    """Nothing is copied: no memory is asked for."""
    records = [Record(at, NOW + at // 100, None, b"v" * (900_000 // count)) for at in range(count)]
    raw = in_buffer(building.encode_batch(records))
    valid = validate_at_once(raw, api_version=9, config=AppendRules(), now_ms=NOW)
    assert (valid is not None) == (count <= 1_000)
    if valid is None:
        steps = list_of(validate_steps(raw, api_version=9, config=AppendRules(), now_ms=NOW))
        assert not any(isinstance(step, Reserve) for step in steps[:-1])
        valid = steps[-1]
    assert valid.records is raw
    assert valid.max_timestamp == NOW + (count - 1) // 100


def test_memory_is_reserved_before_a_large_record_is_copied():
    raw = in_buffer(building.encode_batch([Record(0, NOW, None, b"v" * 2_000_000)]))
    rules = AppendRules(max_message_bytes=4_000_000)
    reserve, *_, valid = list_of(validate_steps(raw, api_version=9, config=rules, now_ms=NOW))
    assert isinstance(reserve, Reserve)
    assert reserve.bytes_max == len(raw)
    assert valid.records is raw


def list_of(steps):
    """The values that the steps yield, and their result."""
    seen = []
    while True:
        try:
            seen.append(next(steps))
        except StopIteration as end:
            return [*seen, end.value]


@pytest.mark.parametrize("change", [0, 3])
def test_a_large_batch_with_wrong_offsets_is_written_anew(change):
    records = [Record(at, NOW, None, b"v" * 900) for at in range(900)]
    raw = bytearray(building.encode_batch(records))
    body = raw[batch.HEADER_SIZE :]
    size = len(encode_body([Record(0, NOW, None, b"v" * 900)], 0, NOW))
    body[10 * size + 4] += 2 * change  # the offset of the eleventh, with 900 bytes after its two of length
    header = batch.read_header(raw)
    raw = in_buffer(building.join_batch(header, bytes(body)))
    valid = run(validate_steps(raw, api_version=9, config=AppendRules(), now_ms=NOW))
    assert [record.offset for record in batch.read_records(valid.records)] == list(range(900))
    assert (valid.records is raw) == (not change)


@pytest.mark.parametrize("length", [0, 1, 2])
def test_errors_of_a_large_batch_are_found_from_its_start(length):
    body = bytearray(body_of([1_000] * 300))
    body[-1] = 7  # a negative number of headers
    header = batch.read_header(
        building.encode_batch([Record(at, NOW + at % 7, None, b"") for at in range(300)])
    )
    raw = building.join_batch(header, bytes(body))
    told = []
    for buffer in (raw, in_buffer(raw, before=b"x" * length)):
        with pytest.raises(InvalidRecordsError) as error:
            run(validate_steps(buffer, api_version=9, config=AppendRules(), now_ms=NOW))
        told.append(error.value.message)
    assert told[0] == told[1]
    assert "record 299 of 300" in told[0]
