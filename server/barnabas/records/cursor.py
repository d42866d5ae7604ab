"""Positions of the fields of each record of a body, one record after the other, without decoding.

The rule: a step has a constant cost. Headers are not parsed, and `scan` checks whether a body is well-formed; reads
never go beyond the record's end.
"""

from barnabas.records.errors import InvalidRecordsError
from barnabas.records.record import check_count
from barnabas.records.varint import read_unsigned


class RecordCursor:
    """A position in an uncompressed body of magic 2; `advance` moves it to the next record.

    `start` is the position of the record's length, `fields` that of its attributes, `end` that after the record. Sizes are
    -1
    for null.
    """

    __slots__ = (
        "_count",
        "body",
        "end",
        "fields",
        "index",
        "key",
        "key_size",
        "key_size_at",
        "offset_at",
        "offset_delta",
        "start",
        "timestamp_delta",
        "value",
        "value_size",
    )

    def __init__(self, body: bytes, count: int) -> None:
        check_count(count, len(body))
        self.body = body
        self._count = count
        self.index = -1
        self.start = 0
        self.fields = 0
        self.timestamp_delta = 0
        self.offset_at = 0
        self.offset_delta = 0
        self.key_size_at = 0  # where the offset delta ends
        self.key = 0
        self.key_size = -1
        self.value = 0
        self.value_size = -1
        self.end = 0

    def advance(self) -> bool:
        """Move to the next record; false after the last one. Raises InvalidRecordsError if the record is malformed."""
        if self.index + 1 >= self._count:
            return False
        self.index += 1
        try:
            self._read()
        except InvalidRecordsError as error:
            raise InvalidRecordsError(
                f"record {self.index} of {self._count} is malformed: {error.message}"
            ) from None
        except IndexError:
            raise InvalidRecordsError(
                f"record {self.index} of {self._count} is cut short by the end of the batch"
            ) from None
        return True

    def _read(self) -> None:
        body = self.body
        body_end = len(body)
        self.start = pos = self.end
        if (size := body[pos]) < 0x80:
            pos += 1
        else:
            size, pos = read_unsigned(body, pos, body_end, 32)
        end = pos + (size >> 1)
        if size & 1 or end > body_end:
            raise InvalidRecordsError(f"its length leads {end - body_end} bytes beyond the batch")
        self.fields = pos
        pos += 1
        if (delta := body[pos]) < 0x80:
            pos += 1
        else:
            delta, pos = read_unsigned(body, pos, end, 64)
        self.timestamp_delta = delta >> 1 ^ -(delta & 1)
        self.offset_at = pos
        if (delta := body[pos]) < 0x80:
            pos += 1
        else:
            delta, pos = read_unsigned(body, pos, end, 32)
        self.offset_delta = delta >> 1 ^ -(delta & 1)
        self.key_size_at = pos
        if (size := body[pos]) < 0x80:
            pos += 1
        else:
            size, pos = read_unsigned(body, pos, end, 32)
        self.key = pos
        if size & 1:
            self.key_size = -1
        else:
            self.key_size = size >> 1
            pos += size >> 1
        if pos >= end:
            raise InvalidRecordsError("its key reaches beyond its end")
        if (size := body[pos]) < 0x80:
            pos += 1
        else:
            size, pos = read_unsigned(body, pos, end, 32)
        self.value = pos
        if size & 1:
            self.value_size = -1
        else:
            self.value_size = size >> 1
            pos += size >> 1
        if pos >= end:  # the number of headers must follow
            raise InvalidRecordsError("its value reaches beyond its end")
        self.end = end

    def read_key(self) -> bytes | None:
        """Return a copy of the key."""
        return None if self.key_size < 0 else self.body[self.key : self.key + self.key_size]

    def read_value(self) -> bytes | None:
        """Return a copy of the value."""
        return None if self.value_size < 0 else self.body[self.value : self.value + self.value_size]
