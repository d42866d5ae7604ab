"""The work that a scan takes: records one by one, looks for runs, copies of what lies in place, and how much in a piece.

What a scan says of records is tested elsewhere; a scan that never finds a run says the same, and takes 25 times as long.
"""

from itertools import pairwise

import pytest

from barnabas.records.record import Record, encode_body
from barnabas.records.scan import COPIED_BYTES_MAX, Scanner
from barnabas.records.varint import encode_varint

RUNS_SOURCES = True
"""Calls within a compiled class are not seen from outside."""

TRY_MIN, RUN_MIN, STEP_MAX, RUN_EFFORT, WINDOW = 12, 4, 256, 256, 64 << 10


class Counted(Scanner):
    """A scanner that counts what it does."""

    __slots__ = ("copied", "looks", "runs", "walked")

    def __init__(self, *args):
        super().__init__(*args)
        self.walked = 0  # records that were read on their own
        self.looks = 0
        self.runs = []  # lengths of those that were found
        self.copied = []  # (position, bytes) of each copy

    def walk(self, stop):
        before = self.index
        super().walk(stop)
        self.walked += self.index - before

    def skip_run(self, at):
        before = self.index
        self.looks += 1
        found = super().skip_run(at)
        assert found == (self.index > before)
        if found:
            self.runs.append(self.index - before)
        return found

    def move_window(self, size):
        window = super().move_window(size)
        self.copied.append((self.base, len(window)))
        return window


def body_of(records):
    return bytes(encode_body(records, 0, 0))


def scanned(records, effort=1 << 40):
    scanner = Counted(body_of(records), len(records), 0)
    while not scanner.advance(effort):
        pass
    scanner.span()
    return scanner


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


@pytest.mark.parametrize(
    ("count", "runs"),
    [
        (64, [63]),
        (65, [63]),
        (8_192, [63, 8_127]),
        (8_300, [63, 8_127, 107]),
        (20_000, [63, 8_127, 8_191, 3_615]),
    ],
)
@pytest.mark.parametrize(
    "sizes", [(4, 8), (None, 8), (4, None), (None, None), (0, 0), (100, 8), (4, 100), (100, 9_000 // 8)]
)
def test_records_of_the_same_sizes_are_looked_at_together(count, runs, sizes):
    """Anew where an offset takes a byte more, and every 8192 records after that."""
    scanner = scanned(alike(count, key_size=sizes[0], value_size=sizes[1]))
    assert scanner.runs == runs
    assert scanner.looks == len(runs)
    assert scanner.walked == count - sum(runs)
    assert scanner.null_keys == (count if sizes[0] is None else 0)


@pytest.mark.parametrize(("count", "looks"), [(1, 0), (TRY_MIN - 1, 0), (TRY_MIN, 1), (TRY_MIN + 1, 1)])
def test_few_records_are_read_one_by_one(count, looks):
    scanner = scanned(alike(count))
    assert scanner.looks == looks
    assert scanner.walked == (1 if looks else count)


@pytest.mark.parametrize("many", range(2, 8))
def test_a_run_is_worth_it_from_four_records_on(many):
    """After the first, `many` more are alike, and those after them differ."""
    others = [Record(many + 1 + n, 5, b"k" * (20 + n), b"v") for n in range(TRY_MIN)]
    scanner = scanned(alike(many + 1) + others)
    assert scanner.runs == ([many] if many >= RUN_MIN else [])


@pytest.mark.parametrize("at", [20, 30, 50])
@pytest.mark.parametrize("what", ["key", "no key", "value", "no value", "headers", "offset", "sizes"])
def test_a_run_ends_before_a_record_that_is_built_otherwise(at, what):
    records = alike(60)
    odd = records[at]
    if what == "key":
        odd.key += b"k"
        odd.value = odd.value[:-1]  # of the same length all the same
    elif what == "no key":
        odd.key, odd.value = None, odd.value + b"1234"
    elif what == "value":
        odd.value += b"v"
    elif what == "no value":
        odd.key, odd.value = odd.key + b"12345678", None
    elif what == "headers":
        odd.value, odd.headers = odd.value[:-3], [("", b"x")]
    elif what == "offset":
        odd.offset += 1
    else:
        odd.key, odd.value = odd.key + b"1", odd.value[:-1]
    scanner = scanned(records)
    if what == "offset":
        assert (scanner.runs, scanner.walked) == (
            [],
            60,
        )  # it is not told from which record on they are wrong
    else:
        assert scanner.runs[0] == at - 1
        assert sum(scanner.runs) + scanner.walked == 60
        assert scanner.walked <= 2 + TRY_MIN
    assert scanner.offsets_consecutive == (what != "offset")


@pytest.mark.parametrize(
    ("timestamp", "runs"),
    [
        (lambda n: n % 64, [63, 36]),
        (lambda n: 64 + n % 1_000, [63, 36]),
        (lambda n: 8_191 - n, [63, 36]),
        (lambda n: -n % 60, [63, 36]),
        (lambda n: -64 + n % 20, [63, 36]),
        (lambda n: 70_000 + n % 5, []),
    ],
)
def test_timestamps_of_one_or_two_bytes_may_differ_in_a_run(timestamp, runs):
    records = alike(101, timestamp=timestamp)
    scanner = scanned(records)
    assert scanner.runs == ([63, 36] if runs else [])
    assert scanner.span() == (min(r.timestamp for r in records), max(r.timestamp for r in records))


@pytest.mark.parametrize(("usual", "odd"), [(64, 5), (5, 64), (8_191, 8_192), (8_192, 8_191)])
def test_a_timestamp_that_takes_another_number_of_bytes_is_in_no_run(usual, odd):
    """Nor where the record has the same length all the same."""
    records = alike(50, timestamp=lambda n: odd if n == 30 else usual)
    more = len(encode_varint(odd)) - len(encode_varint(usual))
    records[30].value = records[1].value[: 8 - more].ljust(8 - more, b"v")
    scanner = scanned(records)
    assert scanner.span() == (min(usual, odd), max(usual, odd))
    assert max(scanner.runs, default=0) < 30


def looks_for(count):
    """The number of looks for a run in vain: after 1, 2, 4 ... and then every 256 records."""
    index, step, looks = 0, 1, 0
    while count - index >= TRY_MIN:
        looks += 1
        index = min(index + 1 + step, count)
        step = min(2 * step, STEP_MAX)
    return looks


@pytest.mark.parametrize("count", [12, 13, 14, 15, 16, 30, 100, 600, 3_000, 5_000])
@pytest.mark.parametrize("kind", ["sizes", "headers"])
def test_where_no_run_is_found_the_next_look_is_ever_later(count, kind):
    records = alike(count)
    for record in records[1::2] if kind == "sizes" else records:
        if kind == "sizes":
            record.value += b"v" * 3
        else:
            record.headers = [("h", b"x")]
    scanner = scanned(records)
    assert (scanner.runs, scanner.walked) == ([], count)
    assert scanner.looks == looks_for(count)


def test_after_a_run_the_next_look_is_soon():
    records = []
    for size in (1, 2, 3, 4, 5):
        records += [Record(len(records) + n, 0, None, b"v" * (size + n % 2)) for n in range(300)]
        records += alike(300, value_size=3 + size, start=len(records))
    scanner = scanned(records)
    assert len(scanner.runs) >= 5
    assert sum(scanner.runs) > 5 * 300 - 5 * (1 + STEP_MAX)


# --- pieces -------------------------------------------------------------------------------------------------------


def pieces(records, effort):
    """(records walked, looks, records in all) of each piece."""
    scanner = Counted(body_of(records), len(records), 0)
    marks = [(0, 0, 0)]
    is_done = False
    while not is_done:
        is_done = scanner.advance(effort)
        marks.append((scanner.walked, len(scanner.runs), scanner.index))
    assert marks[-1][2] == len(records)
    return [tuple(b - a for a, b in zip(*pair, strict=True)) for pair in pairwise(marks)]


@pytest.mark.parametrize("effort", [1, 10, 300, 1_000, 3_000])
def test_a_piece_is_as_long_as_its_effort_where_records_differ(effort):
    records = [Record(n, n % 5, None, b"v" * (n % 3)) for n in range(4_000)]
    found = pieces(records, effort)
    for walked, runs, _ in found[:-1]:
        assert effort <= walked <= effort + 1 + STEP_MAX
        assert not runs
    assert len(found) <= 4_000 // effort + 1


@pytest.mark.parametrize("effort", [1, 300, 1_000, 3_000])
def test_a_run_counts_for_so_many_records_whatever_its_length(effort):
    records = []
    for size in range(200):
        records += alike(20, value_size=size, start=len(records))
    found = pieces(records, effort)
    for walked, runs, _ in found[:-1]:
        assert runs * RUN_EFFORT + walked >= effort
        assert (runs - 1) * RUN_EFFORT < effort
    assert sum(runs for _, runs, _ in found) >= 190
    assert len(pieces(alike(20_000), 4 * RUN_EFFORT + 1)) == 1
    assert len(pieces(alike(20_000), RUN_EFFORT)) == 4
    assert len(pieces(alike(20_000), RUN_EFFORT + 1)) == 2


@pytest.mark.parametrize(
    ("count", "first_effort"), [(1, 1_000), (TRY_MIN - 1, 1_000), (TRY_MIN, 1_000 - RUN_EFFORT)]
)
def test_headers_count_one_by_one(count, first_effort):
    records = [Record(n, 0, None, None, [("", None)] * 5_000 * (not n)) for n in range(count)]
    scanner = Counted(body_of(records), count, 0)
    left = 5_000 - first_effort
    assert not scanner.advance(1_000)
    assert (scanner.index, scanner.headers_left) == (0, left)
    while left > 1_000:
        assert not scanner.advance(1_000)
        left -= 1_000
        assert (scanner.index, scanner.headers_left) == (0, left)
    assert scanner.advance(left + count + RUN_EFFORT)
    assert (scanner.index, scanner.headers_left) == (count, 0)


@pytest.mark.parametrize(("headers", "is_apart"), [(15, False), (16, False), (17, True)])
def test_a_record_of_many_headers_ends_a_piece(headers, is_apart):
    records = [Record(n, 0, None, None, [("", None)] * headers) for n in range(3)]
    scanner = Counted(body_of(records), 3, 0)
    assert scanner.advance(1) is not is_apart
    assert scanner.headers_left == (headers - 1) * is_apart


# --- in place -----------------------------------------------------------------------------------------------------


def in_place(records, before=77, after=90):
    body = body_of(records)
    whole = bytearray(b"\xff" * before + body + b"\xff" * after)
    scanner = Counted(whole, len(records), 0, before, before + len(body))
    assert scanner.advance(1 << 40)
    scanner.span()
    return scanner, len(body)


def test_bytes_are_scanned_without_a_copy():
    scanner = scanned(alike(100) + [Record(100 + n, 0, None, b"v" * (n % 3)) for n in range(100)])
    assert scanner.copied == []
    assert scanner.window is scanner.source


@pytest.mark.parametrize("sizes", [(10, 11), (900, 1_000), (5_000, 6_000)])
def test_what_lies_in_place_is_copied_once(sizes):
    records = [Record(n, 0, None, b"v" * sizes[n % 2]) for n in range(1_000_000 // sizes[0] // 2)]
    scanner, size = in_place(records)
    most = max(sizes) + 20  # begun before the end of a copy, and read again
    assert len(scanner.copied) <= size // (WINDOW - most) + 1
    assert sum(copied for _, copied in scanner.copied) <= size + most * len(scanner.copied)
    assert all(copied == WINDOW for _, copied in scanner.copied[:-1])
    assert all(a < b for (a, _), (b, _) in pairwise(scanner.copied))
    at, copied = scanner.copied[-1]
    assert at + copied == 77 + size


def test_of_a_run_in_place_only_its_first_record_is_copied():
    scanner, _ = in_place(alike(20_000, value_size=500))
    assert scanner.runs == [63, 8_127, 8_191, 3_615]
    assert len(scanner.copied) <= 5


@pytest.mark.parametrize("size", [WINDOW - 8, WINDOW, WINDOW + 1, 3 * WINDOW])
def test_of_a_large_record_in_place_no_more_than_itself_is_copied(size):
    scanner, _ = in_place([Record(n, 0, None, b"v" * size) for n in range(5)])
    assert len(scanner.copied) <= 10
    assert max(copied for _, copied in scanner.copied) <= max(size + 20, WINDOW)
    assert COPIED_BYTES_MAX < WINDOW
