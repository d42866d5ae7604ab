"""A look over the records of a batch without making anything of them: are they well-formed, what is in them.

The rule: `scan_body` accepts exactly what `record.iter_body` accepts, and says of it what a leader must know.

Going from record to record costs Python about half a microsecond each. But producers often send records
that are all built alike, with keys and values of one size. Such a run is checked by columns: the bytes at one
place of each record, taken with a strided slice, must be the same (sizes) or count up (offsets). That is a
few operations for a whole run, however long it is. Where no run is found, the next try is made ever later.
"""

from dataclasses import dataclass
from sys import byteorder
from typing import Final, NamedTuple

from barnabas.records.errors import InvalidRecordsError
from barnabas.records.record import TIMESTAMP_LIMIT, check_count, read_headers
from barnabas.records.varint import read_unsigned

_RUN_MIN: Final = 4
# How many records must be left for a look at columns to be cheaper than going over them one by one: compiled, that is
# some 20 ns a record, not compiled 500.
_TRY_MIN: Final = 12 if __file__.endswith(".py") else 128
_STEP_MAX: Final = 256
# The bytes of the offset deltas as they are encoded: in one byte up to 63, in two up to 8191, in three above that.
# With three, the first two repeat themselves after 8192 deltas, throughout which the third stays the same.
_ONE_BYTE_END: Final = 1 << 6
_TWO_BYTES_END: Final = 1 << 13
_THREE_BYTES_END: Final = 1 << 20
_ONE_BYTE: Final = bytes(range(0, 0x80, 2))
_FIRST: Final = bytes(range(0x80, 0x100, 2)) * 128
_SECOND_OF_TWO: Final = b"".join(bytes((second,)) * 64 for second in range(0x80))
_SECOND_OF_THREE: Final = b"".join(bytes((second,)) * 64 for second in range(0x80, 0x100))
_CONTINUED: Final = bytes(range(0x80, 0x100))
_RUNS_MAX: Final = 64


@dataclass(slots=True, init=False)  # with an __init__ that can be compiled: one is made for each batch
class BodyScan:
    """What the records of a batch span: timestamps in ms, without regard to the batch's timestamp type."""

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
    """Where the fields of one record begin, and where it ends."""

    start: int
    attributes: int
    timestamp: int
    offset: int
    key_size: int
    key: int
    value_size: int
    value: int
    end: int


def scan_body(body: bytes, count: int, base_timestamp: int) -> BodyScan:
    """Check the `count` (at least 1) records of an uncompressed body, and tell what they span.

    Raises InvalidRecordsError if they are malformed, or more, or less.
    """
    check_count(count, len(body))
    assert count > 0, "an empty body spans nothing"
    scanner = _Scanner(body, count)
    try:
        scanner.run()
    except InvalidRecordsError as error:
        raise InvalidRecordsError(
            f"record {scanner.index} of {count} is malformed: {error.message}"
        ) from None
    except IndexError:
        index = scanner.index
        raise InvalidRecordsError(f"record {index} of {count} is cut short by the end of the batch") from None
    if scanner.pos != len(body):
        left = len(body) - scanner.pos
        raise InvalidRecordsError(f"{left} bytes are left over after the last of {count} records")
    if len(scanner.raw_deltas) == 1:  # one record, or all of the same millisecond
        raw = scanner.raw_deltas.pop()
        low = high = base_timestamp + (raw >> 1 ^ -(raw & 1))
    else:
        deltas = [raw >> 1 ^ -(raw & 1) for raw in scanner.raw_deltas]
        low, high = base_timestamp + min(deltas), base_timestamp + max(deltas)
    if not -TIMESTAMP_LIMIT <= low <= high < TIMESTAMP_LIMIT:
        raise InvalidRecordsError(f"timestamps from {low} to {high} are out of range")
    return BodyScan(low, high, scanner.null_keys, scanner.offsets_consecutive)


class _Scanner:
    """The state of one scan: all records before `index`, which begins at `pos`, are well-formed."""

    __slots__ = ("body", "count", "index", "null_keys", "offsets_consecutive", "pos", "raw_deltas")

    def __init__(self, body: bytes, count: int) -> None:
        self.body = body
        self.count = count
        self.index = 0
        self.pos = 0
        self.null_keys = 0
        self.offsets_consecutive = True
        self.raw_deltas: set[int] = set()  # of timestamps, before the zigzag; few different ones as a rule

    def run(self) -> None:
        """Scan everything: try for a run of records alike, else go on record by record, in growing steps."""
        step = 1
        while self.index < self.count:
            if self.count - self.index < _TRY_MIN:
                self.walk(self.count)
                return
            at = self.pos
            self.walk(self.index + 1)
            if self.index == self.count:
                return
            if self.skip_run(at):
                step = 1
            else:
                self.walk(min(self.index + step, self.count))
                step = min(step * 2, _STEP_MAX)

    def walk(self, stop: int) -> None:
        """Check the records up to the index `stop`, one by one."""
        body, pos, index = self.body, self.pos, self.index
        body_end = len(body)
        add_delta = self.raw_deltas.add
        null_keys, last_delta = 0, -1
        while index < stop:
            self.index = index  # for whom the error is
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
                raise InvalidRecordsError(f"its length leads {end - body_end} bytes beyond the batch")
            delta = body[pos + 1]  # after the attributes
            pos += 2
            if delta >= 0x80:
                if (more := body[pos]) < 0x80:
                    delta = delta & 0x7F | more << 7
                    pos += 1
                else:
                    delta, pos = read_unsigned(body, pos - 1, end, 64)
            if delta != last_delta:
                add_delta(delta)
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
                _, pos = read_headers(body, pos, end)
            else:
                pos += 1
            if pos != end:
                raise InvalidRecordsError(f"its fields end {pos - end:+d} bytes from where its length says")
            index += 1
        self.pos, self.index = pos, index
        self.null_keys += null_keys

    def skip_run(self, at: int) -> bool:
        """Skip the records from `self.index` on that are built like the one at `at`, if they are many."""
        if not self.offsets_consecutive or self.body[at] != self.body[self.pos]:
            return False
        layout = _read_layout(self.body, at, self.pos)
        many = self.count_alike(layout)
        if many < _RUN_MIN:
            return False
        size = layout.end - layout.start
        if self.body[layout.key_size] & 1:
            self.null_keys += many
        self.pos += many * size
        self.index += many
        return True

    def count_alike(self, layout: _Layout) -> int:
        """Count the next records that have the same sizes as `layout`, well-formed throughout."""
        body, size = self.body, layout.end - layout.start
        offset_width = layout.key_size - layout.offset
        many = min(self.count_offsets(offset_width), (len(body) - layout.end) // size)
        if body[layout.end - 1]:
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
                column = body[at + size : layout.end + many * size : size]
                same = body[at : at + 1]
                if column != same * many:
                    many -= len(column.lstrip(same))
        stop = layout.end + many * size
        for at, expected in enumerate(self.offset_columns(offset_width, many), layout.offset):
            if body[at + size : stop : size] != expected:
                return 0
        if not self.add_column_of_deltas(
            layout.timestamp + size, layout.offset - layout.timestamp, stop, size
        ):
            return 0
        return many

    def count_offsets(self, width: int) -> int:
        """Count the next offset deltas, counting up, whose `width` columns are known."""
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
        """The columns of the next `many` offset deltas, if they count up, in `width` bytes each."""
        if width == 1:
            return (_ONE_BYTE[self.index : self.index + many],)
        block, start = divmod(self.index, _TWO_BYTES_END)
        first = _FIRST[start : start + many]
        if width == 2:
            return first, _SECOND_OF_TWO[start : start + many]
        return first, _SECOND_OF_THREE[start : start + many], bytes((block,)) * many

    def add_column_of_deltas(self, at: int, width: int, stop: int, size: int) -> bool:
        """Take in the timestamp deltas of a run, if each has `width` bytes, one or two."""
        column = self.body[at:stop:size]
        if width == 1:
            if not column.isascii():
                return False
            self.raw_deltas |= _distinct(column)
            return True
        high = self.body[at + 1 : stop : size]
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
    """Return the different bytes of a column; few runs of the same, as of timestamps, cost next to nothing."""
    found: set[int] = set()
    for _ in range(_RUNS_MAX):
        if not column:
            return found
        found.add(column[0])
        column = column.lstrip(column[:1])
    return found.union(column)
