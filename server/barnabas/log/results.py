"""Results of appends and reads.

The rule: values only; nothing here refers to the log, but a region keeps its file open.
"""

from dataclasses import dataclass

from barnabas.log.disk import File
from barnabas.wire.regions import FileRegion


@dataclass(slots=True, init=False)  # with a compiled __init__: one is created for each append
class AppendResult:
    """Result of an append: the assigned offsets, or for a duplicate those of the first append.

    `log_append_time_ms` is -1 unless the broker set the timestamps. `size` counts bytes written, 0 for a duplicate.
    Without any complete record (old clients may send that) the offsets are -1.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_count: int
    size: int
    duplicate: bool

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        record_count: int = 0,
        size: int = 0,
        duplicate: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_count = record_count
        self.size = size
        self.duplicate = duplicate


@dataclass(slots=True, init=False)
class ReadResult:
    """Result of a read: whole batches, perhaps with a partial one at the end.

    All records in it are before `next_offset`, which may be somewhat too large, or much too large if the caller did not
    ask for it.
    """

    records: FileRegion | bytes
    next_offset: int
    file: File | None
    position: int

    def __init__(
        self, records: FileRegion | bytes, next_offset: int, file: File | None = None, position: int = -1
    ) -> None:
        self.records = records
        self.next_offset = next_offset
        self.file = file
        self.position = position

    def to_bytes(self) -> bytes:
        """Return the bytes themselves. Raises OSError."""
        if isinstance(self.records, bytes):
            return self.records
        assert self.file is not None
        return self.file.read(self.records.size, self.position)
