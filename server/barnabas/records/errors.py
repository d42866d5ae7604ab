"""Faults of records, as the error codes that the client must see.

The rule: code that reads records raises only these. A log that recovers after a crash catches `RecordsError`
and truncates; a produce request is answered with its code; nothing needs to know the particular sort.
"""

from enum import IntEnum
from typing import NamedTuple

from barnabas.errors import RequestError


class Code(IntEnum):
    """The error codes of the protocol that records can lead to."""

    CORRUPT_MESSAGE = 2
    MESSAGE_TOO_LARGE = 10
    RECORD_LIST_TOO_LARGE = 18
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    UNSUPPORTED_COMPRESSION_TYPE = 76
    INVALID_RECORD = 87


class RecordError(NamedTuple):
    """One refused record: its index in the batch and the reason (ProduceResponse v8 `record_errors`, KIP-467)."""

    batch_index: int
    message: str


class RecordsError(RequestError):
    """Records that cannot be accepted or understood."""


class CorruptRecordsError(RecordsError):
    """The bytes are damaged: wrong checksum, impossible length, unknown magic."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.CORRUPT_MESSAGE, message)


class InvalidRecordsError(RecordsError):
    """The bytes are whole but break a rule; `record_errors` names single records that are at fault."""

    def __init__(
        self, message: str, code: int = Code.INVALID_RECORD, record_errors: tuple[RecordError, ...] = ()
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class NotOneBatchError(InvalidRecordsError):
    """A produce request has no batch for a partition, several, or a batch of a magic that its version does not allow."""


class CompressedStreamError(InvalidRecordsError):
    """The compressed stream is broken: under a checksum that holds, that was the writer's mistake."""


class UnsupportedCompressionError(RecordsError):
    """The codec is unknown, or not allowed in this message format or by this version of the request."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.UNSUPPORTED_COMPRESSION_TYPE, message)


class DecompressedTooLargeError(RecordsError):
    """Decompression was stopped because its output grew beyond the allowed number of bytes."""

    def __init__(self, codec_name: str, bytes_max: int) -> None:
        super().__init__(
            Code.MESSAGE_TOO_LARGE,
            f"{codec_name} compressed records hold more than {bytes_max} bytes when decompressed",
        )
