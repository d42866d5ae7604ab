"""Faults of requests to a log, as the error codes that the client must see.

The rule: only these codes, and those of `records.errors`, leave this package in a RequestError. A disk that
fails raises StorageError instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import IntEnum
from errno import EIO
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from barnabas.errors import StorageError, lacks_files

logger = logging.getLogger(__name__)


class Code(IntEnum):
    """The error codes of the protocol that a log raises."""

    OFFSET_OUT_OF_RANGE = 1
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    TRANSACTION_COORDINATOR_FENCED = 52
    KAFKA_STORAGE_ERROR = 56


P = ParamSpec("P")
T = TypeVar("T")


def in_doubt(error: OSError) -> OSError:
    """Return the error of a write after which the content of the disk is unknown; it never means a lack of space."""
    return OSError(EIO, f"what was written is in doubt: {error}")


def in_doubt_after_sync(error: OSError) -> OSError:
    """Return the error of a sync: in doubt, unless the file could not even be opened."""
    return error if lacks_files(error) else in_doubt(error)


class InLogDir(Protocol):
    """An object that lives in a log dir."""

    @property
    def log_dir(self) -> str:
        """The path of the log dir."""


L = TypeVar("L", bound=InLogDir)


def failure_of(what: str, log: InLogDir, error: OSError) -> StorageError:
    """Return the StorageError of a log after `error` on its disk during `what`; logs it, unless the disk is merely full."""
    failure = StorageError(log.log_dir, error)
    if not failure.is_full:  # a full disk may cause one with every request
        logger.error("%s of %r failed: %s", what, log, error)
    return failure


def guarded(method: Callable[Concatenate[L, P], T]) -> Callable[Concatenate[L, P], T]:
    """Make a method raise StorageError in place of OSError."""

    @wraps(method)
    def guard(self: L, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except OSError as error:
            raise failure_of(method.__name__, self, error) from error

    return guard
