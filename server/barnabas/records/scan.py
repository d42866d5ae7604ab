"""A check of the records of a batch without decoding them: whether they are well-formed, and facts about them.

The rule: `scan_body` accepts exactly the bodies that `record.iter_body` accepts, and returns the facts that a leader needs.

A step from one record to the next costs Python about half a microsecond. But producers often send records of one layout,
with keys and values of one size. Such a run is checked by columns: the bytes at one place of each record, read with a
strided slice, must be the same (sizes) or count up (offsets). That is a few operations for a whole run of any length. After
each attempt without a run, the next attempt comes later.

A scan can be done in pieces, and a piece is short for any records: one record may have millions of headers.

Large bodies stay where they were received: columns are read from there, and single records from a small copy of
the next bytes, since compiled code reads single bytes of `bytes` only.
"""

from ctypes import addressof, c_char
from dataclasses import dataclass
from sys import byteorder
from typing import Final, NamedTuple

from barnabas.records.errors import InvalidRecordsError
from barnabas.records.record import TIMESTAMP_LIMIT, check_count, read_header_count, skip_headers
from barnabas.records.steps import RECORDS_PER_STEP
from barnabas.records.varint import Buffer, read_unsigned

_RUN_MIN: Final = 4
# How many records must be left for a look at columns to be cheaper than going over them one by one: compiled, that is
# some 20 ns a record, not compiled 500.
_TRY_MIN: Final = 12 if __file__.endswith(".py") else 128
_STEP_MAX: Final = 256
# The encoded offset deltas: one byte up to 63, two up to 8191, three above that. With three, the first two repeat after
# 8192 deltas, while the third stays the same.
_ONE_BYTE_END: Final = 1 << 6
_TWO_BYTES_END: Final = 1 << 13
_THREE_BYTES_END: Final = 1 << 20
_ONE_BYTE: Final = bytes(range(0, 0x80, 2))
_FIRST: Final = bytes(range(0x80, 0x100, 2)) * 128
_SECOND_OF_TWO: Final = b"".join(bytes((second,)) * 64 for second in range(0x80))
_SECOND_OF_THREE: Final = b"".join(bytes((second,)) * 64 for second in range(0x80, 0x100))
_CONTINUED: Final = bytes(range(0x80, 0x100))
_FAR: Final = 1 << 61  # most timestamps are nearer; compiled code compares larger numbers as objects
_RUNS_MAX: Final = 64
_RUN_EFFORT: Final = 256  # what a look for a run counts for, in records
_HEADERS_PER_TURN: Final = 16  # a record with more headers is not finished in one go
_DELTAS_MAX: Final = 1_024  # different timestamps that are kept before only the ends of their range are
_SIZE_BYTES_MAX: Final = 5  # of a record's length
COPIED_BYTES_MAX: Final = 32 << 10
"""Bytes copied in one step: that takes a microsecond, as much as finding their place."""
_WINDOW_BYTES: Final = 64 << 10
"""Bytes copied at a time if the records stay in place."""


@dataclass(slots=True, init=False)  # with an __init__ that can be compiled: one is made for each batch
class BodyScan:
    """Summary of a batch's records: timestamps in ms, without regard to the batch's timestamp type."""

    min_timestamp: int
    max_timestamp: int
    null_keys: int
    offsets_consecutive: bool

    def __init__(
        self, min_timestamp: int, max_timestamp: int, null_keys: int, offsets_consecutive: bool
    ) -> None:
        self.min_timestamp = min_timestamp
        self.max_timestamp = max_timestamp
        self.null_keys = null_keys
        self.offsets_consecutive = offsets_consecutive


class _Layout(NamedTuple):
    """Positions at which the fields of one record begin, and at which it ends."""

    start: int
    attributes: int
    timestamp: int
    offset: int
    key_size: int
    key: int
    value_size: int
    value: int
    end: int


class Scanner:
    """The state of one scan: all records before `index`, which begins at `pos`, are well-formed.

    `window` is `source` from `base` on: all of it, or a copy of the part being read.
    Lifecycle: `advance` until it returns true, then `span` or `result`. All raise InvalidRecordsError.
    """

    __slots__ = (
        "base",
        "base_timestamp",
        "count",
        "end",
        "headers_left",
        "index",
        "is_any_folded",
        "max_delta",
        "min_delta",
        "null_keys",
        "offsets_consecutive",
        "pos",
        "raw_deltas",
        "record_end",
        "source",
        "step",
        "window",
    )

    def __init__(
        self, source: bytes | bytearray, count: int, base_timestamp: int, start: int = 0, end: int = -1
    ) -> None:
        """The records are in `source` between `start` and `end`, by default all that follows."""
        self.source = source
        self.end = len(source) if end < 0 else end
        check_count(count, self.end - start)
        assert count > 0, "an empty body spans nothing"
        self.base = 0
        self.window = b""
        if isinstance(source, bytes) and self.end == len(source):
            self.window = source
        self.count = count
        self.base_timestamp = base_timestamp
        self.index = 0
        self.pos = start
        self.null_keys = 0
        self.offsets_consecutive = True
        self.raw_deltas: set[int] = set()  # of timestamps, before the zigzag; few different ones as a rule
        self.min_delta = 0  # of those timestamp deltas that are not in `raw_deltas` any more
        self.max_delta = 0
        self.is_any_folded = False
        self.headers_left = 0  # headers of the record `index` that are not looked at yet, from `pos` on
        self.record_end = 0  # where the record with these headers ends
        self.step = 1

    def advance(self, effort: int) -> bool:
        """Scan on, about as many records as `effort` allows; returns whether all are scanned."""
        try:
            return self.go_on(effort)
        except InvalidRecordsError as error:
            raise InvalidRecordsError(
                f"record {self.index} of {self.count} is malformed: {error.message}"
            ) from None
        except IndexError:
            raise InvalidRecordsError(
                f"record {self.index} of {self.count} is cut short by the end of the batch"
            ) from None

    def result(self) -> BodyScan:
        """Return the range of the records, all of which must have been scanned."""
        low, high = self.span()
        return BodyScan(low, high, self.null_keys, self.offsets_consecutive)

    def span(self) -> tuple[int, int]:
        """Return the smallest and the largest timestamp of the records, all of which must have been scanned."""
        if self.pos != self.end:
            rest = self.end - self.pos
            raise InvalidRecordsError(f"{rest} bytes are left over after the last of {self.count} records")
        if len(self.raw_deltas) == 1 and not self.is_any_folded:  # one record, or all of the same millisecond
            raw = self.raw_deltas.pop()
            low = high = self.base_timestamp + (raw >> 1 ^ -(raw & 1))
        else:
            self.fold_deltas()
            low, high = self.base_timestamp + self.min_delta, self.base_timestamp + self.max_delta
        if not (-_FAR <= low <= high <= _FAR or -TIMESTAMP_LIMIT <= low <= high < TIMESTAMP_LIMIT):
            raise InvalidRecordsError(f"timestamps from {low} to {high} are out of range")
        return low, high

    def fold_deltas(self) -> None:
        """Keep of the timestamp deltas only the ends of their range."""
        deltas = [raw >> 1 ^ -(raw & 1) for raw in self.raw_deltas]
        self.raw_deltas.clear()
        if self.is_any_folded:
            deltas += (self.min_delta, self.max_delta)
        self.min_delta, self.max_delta = min(deltas), max(deltas)
        self.is_any_folded = True

    def go_on(self, effort: int) -> bool:
        """Try to find a run of similar records, else continue record by record, in growing steps."""
        while self.index < self.count:
            if effort <= 0:
                return False
            first = self.index
            if self.headers_left:
                effort -= self.skip_some_headers(effort)
            elif self.count - first < _TRY_MIN:
                self.walk(self.count)
            else:
                effort -= _RUN_EFFORT
                at = self.pos
                self.walk(first + 1)
                if self.headers_left or self.index == self.count:
                    continue
                if self.skip_run(at):
                    self.step = 1
                    continue
                self.walk(min(self.index + self.step, self.count))
                self.step = min(self.step * 2, _STEP_MAX)
                effort += _RUN_EFFORT  # it was cheap
            effort -= self.index - first
            if len(self.raw_deltas) > _DELTAS_MAX:
                self.fold_deltas()
        return True

    def skip_some_headers(self, effort: int) -> int:
        """Check some more headers of a record that has very many; returns how many."""
        count, base = min(self.headers_left, effort), self.base
        self.pos = base + skip_headers(self.window, self.pos - base, self.record_end - base, count)
        self.headers_left -= count
        if not self.headers_left:
            self.check_end(self.pos, self.record_end)
            self.index += 1
        return count

    def check_end(self, pos: int, end: int) -> None:
        """Refuse a record that is longer than its fields."""
        if pos != end:
            raise InvalidRecordsError(f"its fields end {pos - end:+d} bytes from where its length says")

    def move_window(self, size: int) -> bytes:
        """Copy at least `size` bytes from `pos` on into the window, if `source` has as many."""
        self.base = pos = self.pos
        self.window = bytes(memoryview(self.source)[pos : min(pos + max(size, _WINDOW_BYTES), self.end)])
        return self.window

    def walk(self, stop: int) -> None:
        """Check the records up to the index `stop`, one by one."""
        body, base, index = self.window, self.base, self.index
        pos, body_end = self.pos - base, len(body)
        length_end = body_end if base + body_end == self.end else body_end - _SIZE_BYTES_MAX
        deltas = self.raw_deltas
        null_keys, last_delta = 0, -1
        missing = 0  # how many bytes of the next record the window must have
        while index < stop:
            self.index = index  # subject of the error
            if pos > length_end:
                self.pos = base + pos
                body = self.move_window(missing)
                base, pos, body_end, missing = self.base, 0, len(body), 0
                length_end = body_end if base + body_end == self.end else body_end - _SIZE_BYTES_MAX
            start = pos
            # Every variable-length integer is read in line: one or two bytes here, more in a call.
            size = body[pos]
            pos += 1
            if size >= 0x80:
                if (more := body[pos]) < 0x80:
                    size = size & 0x7F | more << 7
                    pos += 1
                else:
                    size, pos = read_unsigned(body, pos - 1, body_end, 32)
            end = pos + (size >> 1)
            if size & 1 or end > body_end:
                if size & 1 or base + end > self.end:
                    beyond = base + end - self.end
                    raise InvalidRecordsError(f"its length leads {beyond} bytes beyond the batch")
                pos, missing, length_end = start, end - start, -1
                continue
            delta = body[pos + 1]  # after the attributes
            pos += 2
            if delta >= 0x80:
                if (more := body[pos]) < 0x80:
                    delta = delta & 0x7F | more << 7
                    pos += 1
                else:
                    delta, pos = read_unsigned(body, pos - 1, end, 64)
            if delta != last_delta:
                deltas.add(delta)
                last_delta = delta
            delta = body[pos]
            pos += 1
            if delta >= 0x80:
                if (more := body[pos]) < 0x80:
                    delta = delta & 0x7F | more << 7
                    pos += 1
                else:
                    delta, pos = read_unsigned(body, pos - 1, end, 32)
            if delta != index << 1:
                self.offsets_consecutive = False
            size = body[pos]
            pos += 1
            if size >= 0x80:
                if (more := body[pos]) < 0x80:
                    size = size & 0x7F | more << 7
                    pos += 1
                else:
                    size, pos = read_unsigned(body, pos - 1, end, 32)
            if size & 1:
                null_keys += 1
            else:
                pos += size >> 1
            size = body[pos]
            pos += 1
            if size >= 0x80:
                if (more := body[pos]) < 0x80:
                    size = size & 0x7F | more << 7
                    pos += 1
                else:
                    size, pos = read_unsigned(body, pos - 1, end, 32)
            if not size & 1:
                pos += size >> 1
            if body[pos]:
                headers, pos = read_header_count(body, pos, end)
                if headers > _HEADERS_PER_TURN:
                    self.headers_left, self.record_end = headers, base + end
                    break
                pos = skip_headers(body, pos, end, headers)
            else:
                pos += 1
            if pos != end:
                raise InvalidRecordsError(f"its fields end {pos - end:+d} bytes from where its length says")
            index += 1
        self.pos, self.index = base + pos, index
        self.null_keys += null_keys

    def skip_run(self, at: int) -> bool:
        """Skip the records from `self.index` on with the layout of the record at `at`, if they are at least _RUN_MIN."""
        if not self.offsets_consecutive or self.pos >= self.end or self.source[at] != self.source[self.pos]:
            return False
        base = self.base
        layout = _read_layout(self.window, at - base, self.pos - base)
        many = self.count_alike(layout)
        if many < _RUN_MIN:
            return False
        size = layout.end - layout.start
        if self.window[layout.key_size] & 1:
            self.null_keys += many
        self.pos += many * size
        self.index += many
        return True

    def column(self, at: int, size: int, many: int) -> bytes:
        """Return one byte of each of the next `many` records of `size` bytes: that at position `at` of the preceding
        record."""
        first = self.base + at + size
        return bytes(self.source[first : first + (many - 1) * size + 1 : size])

    def count_alike(self, layout: _Layout) -> int:
        """Count the next records that have the same sizes as `layout`, well-formed throughout."""
        window, size = self.window, layout.end - layout.start
        offset_width = layout.key_size - layout.offset
        many = min(self.count_offsets(offset_width), (self.end - self.pos) // size)
        if window[layout.end - 1]:
            return 0  # it has headers
        for start, end in (
            (layout.start, layout.attributes),
            (layout.key_size, layout.key),
            (layout.value_size, layout.value),
            (layout.end - 1, layout.end),
        ):
            for at in range(start, end):
                if many < _RUN_MIN:
                    return 0
                column = self.column(at, size, many)
                same = window[at : at + 1]
                if column != same * many:
                    many -= len(column.lstrip(same))
        if many < _RUN_MIN:
            return 0
        for at, expected in enumerate(self.offset_columns(offset_width, many), layout.offset):
            if self.column(at, size, many) != expected:
                return 0
        width = layout.offset - layout.timestamp
        high = self.column(layout.timestamp + 1, size, many) if width == 2 else b""
        return many if self.add_deltas(width, self.column(layout.timestamp, size, many), high) else 0

    def count_offsets(self, width: int) -> int:
        """Count the next offset deltas, counting up, by their `width` columns."""
        if width == 1:
            end = _ONE_BYTE_END
        elif width == 2:
            end = _TWO_BYTES_END
        elif width == 3:  # up to where the third byte changes
            end = min((self.index // _TWO_BYTES_END + 1) * _TWO_BYTES_END, _THREE_BYTES_END)
        else:
            return 0
        return min(self.count, end) - self.index

    def offset_columns(self, width: int, many: int) -> tuple[bytes, ...]:
        """Return the columns of the next `many` offset deltas, if they count up, in `width` bytes each."""
        if width == 1:
            return (_ONE_BYTE[self.index : self.index + many],)
        block, start = divmod(self.index, _TWO_BYTES_END)
        first = _FIRST[start : start + many]
        if width == 2:
            return first, _SECOND_OF_TWO[start : start + many]
        return first, _SECOND_OF_THREE[start : start + many], bytes((block,)) * many

    def add_deltas(self, width: int, column: bytes, high: bytes) -> bool:
        """Add the timestamp deltas of a run, by columns, if each has `width` bytes, one or two."""
        if width == 1:
            if not column.isascii():
                return False
            self.raw_deltas |= _distinct(column)
            return True
        if width != 2 or not high.isascii() or column.translate(None, _CONTINUED):
            return False
        pairs = bytearray(2 * len(column))
        pairs[0::2], pairs[1::2] = column, high
        with memoryview(pairs).cast("H") as numbers:  # in the machine's byte order
            distinct = set(numbers.tolist())
        for number in distinct:
            low, high_byte = number.to_bytes(2, byteorder)
            self.raw_deltas.add(low & 0x7F | high_byte << 7)
        return True


def scan_body(body: Buffer, count: int, base_timestamp: int) -> BodyScan:
    """Check the `count` (at least 1) records of an uncompressed body, and return their range.

    Raises InvalidRecordsError if they are malformed, or more, or less.
    """
    scanner = scanner_of(body, count, base_timestamp)
    while not scanner.advance(RECORDS_PER_STEP):
        pass
    return scanner.result()


def scanner_of(body: Buffer, count: int, base_timestamp: int) -> Scanner:
    """Return a scanner of an uncompressed body, which must not change or move as long as that is in use.

    A body that is not small is not copied if it is a part of a bytearray.
    """
    whole = body.obj if isinstance(body, memoryview) else body
    if len(body) <= COPIED_BYTES_MAX or not isinstance(whole, bytearray):
        return Scanner(bytes(body), count, base_timestamp)
    start = addressof(c_char.from_buffer(body)) - addressof(c_char.from_buffer(whole))
    return Scanner(whole, count, base_timestamp, start, start + len(body))


def _read_layout(body: bytes, start: int, end: int) -> _Layout:
    """Find the fields of a record that is known to be well-formed."""
    _, attributes = read_unsigned(body, start, end, 32)
    timestamp = attributes + 1
    _, offset = read_unsigned(body, timestamp, end, 64)
    _, key_size = read_unsigned(body, offset, end, 32)
    size, key = read_unsigned(body, key_size, end, 32)
    value_size = key if size & 1 else key + (size >> 1)
    _, value = read_unsigned(body, value_size, end, 32)
    return _Layout(start, attributes, timestamp, offset, key_size, key, value_size, value, end)


def _distinct(column: bytes) -> set[int]:
    """Return the distinct bytes of a column; fast if the column is a few runs of equal bytes, as with timestamps."""
    different: set[int] = set()
    for _ in range(_RUNS_MAX):
        if not column:
            return different
        different.add(column[0])
        column = column.lstrip(column[:1])
    return different.union(column)
