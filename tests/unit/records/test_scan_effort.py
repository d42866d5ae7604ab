"""The work that a scan takes: a run of records of the same sizes counts for as many in all, whatever its length.

What a scan says of records is tested elsewhere; a scan that never finds a run says the same, and takes 25 times as long.
"""

import pytest

from barnabas.records.record import Record, encode_body
from barnabas.records.scan import Scanner

STEP_MAX, RUN_EFFORT = 256, 256


def alike(count, *, key_size=4, value_size=8, start=0, timestamp=5):
    """Records of the same sizes, with keys and values of their own."""
    return [
        Record(
            start + n,
            timestamp(n) if callable(timestamp) else timestamp,
            None if key_size is None else (b"%d" % (n * 7_919)).ljust(key_size, b"k")[:key_size],
            None if value_size is None else (b"%d" % (n * 104_729)).ljust(value_size, b"v")[:value_size],
        )
        for n in range(count)
    ]


def body_of(records):
    return bytes(encode_body(records, 0, 0))


def pieces(records, effort):
    """Count the records of each piece of a scan."""
    scanner = Scanner(body_of(records), len(records), 0)
    counts, is_done = [], False
    while not is_done:
        before = scanner.index
        is_done = scanner.advance(effort)
        counts.append(scanner.index - before)
    assert sum(counts) == len(records)
    return counts


@pytest.mark.parametrize(
    "sizes", [(4, 8), (None, 8), (4, None), (None, None), (0, 0), (100, 8), (4, 100), (100, 9_000 // 8)]
)
def test_records_of_the_same_sizes_are_scanned_as_runs(sizes):
    """A run ends where an offset takes a byte more, and every 8192 records after that."""
    records = alike(20_000, key_size=sizes[0], value_size=sizes[1])
    assert pieces(records, RUN_EFFORT) == [64, 8_128, 8_192, 3_616]
    assert len(pieces(records, 4 * RUN_EFFORT + 1)) == 1


@pytest.mark.parametrize("effort", [1, 10, 300, 1_000, 3_000])
def test_a_piece_is_as_long_as_its_effort_where_records_differ(effort):
    records = [Record(n, n % 5, None, b"v" * (n % 3)) for n in range(4_000)]
    counts = pieces(records, effort)
    assert all(effort <= count <= effort + 1 + STEP_MAX for count in counts[:-1])


@pytest.mark.parametrize(
    "timestamp", [lambda n: n % 64, lambda n: 64 + n % 1_000, lambda n: 8_191 - n, lambda n: -n % 60]
)
def test_timestamps_of_as_many_bytes_may_differ_in_a_run(timestamp):
    assert len(pieces(alike(101, timestamp=timestamp), 2 * RUN_EFFORT + 1)) == 1
    assert len(pieces(alike(1_000, timestamp=lambda n: 70_000 + n % 5), 2 * RUN_EFFORT + 1)) > 1


@pytest.mark.parametrize(("count", "first_effort"), [(1, 1_000), (11, 1_000), (128, 1_000 - RUN_EFFORT)])
def test_headers_count_one_by_one(count, first_effort):
    records = [Record(n, 0, None, None, [("", None)] * 5_000 * (not n)) for n in range(count)]
    scanner = Scanner(body_of(records), count, 0)
    remaining = 5_000 - first_effort
    assert not scanner.advance(1_000)
    assert (scanner.index, scanner.headers_left) == (0, remaining)
    while remaining > 1_000:
        assert not scanner.advance(1_000)
        remaining -= 1_000
        assert (scanner.index, scanner.headers_left) == (0, remaining)
    assert scanner.advance(remaining + count + RUN_EFFORT)
    assert (scanner.index, scanner.headers_left) == (count, 0)


@pytest.mark.parametrize(("headers", "is_apart"), [(15, False), (16, False), (17, True)])
def test_a_record_of_many_headers_ends_a_piece(headers, is_apart):
    records = [Record(n, 0, None, None, [("", None)] * headers) for n in range(3)]
    scanner = Scanner(body_of(records), 3, 0)
    assert scanner.advance(1) is not is_apart
    assert scanner.headers_left == (headers - 1) * is_apart
