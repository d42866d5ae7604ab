"""What can be wrong with a request to a log, as the error code that the client must see.

The rule: only these codes, and those of `records.errors`, leave this package in a RequestError. A disk that
fails raises StorageError instead.
"""

from enum import IntEnum


class Code(IntEnum):
    """The error codes of the protocol that a log can lead to."""

    OFFSET_OUT_OF_RANGE = 1
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    TRANSACTION_COORDINATOR_FENCED = 52
    KAFKA_STORAGE_ERROR = 56
