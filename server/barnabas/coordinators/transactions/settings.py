"""The limits of transactions. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


def newest_record_version() -> int:
    """Return the version in which transactional ids are written if all features are on."""
    return 1


class TransactionSettings(NamedTuple):
    """Named as Kafka's `transaction.*` settings; times in ms."""

    timeout_ms_max: int = 900_000
    id_expiration_ms: int = 7 * 86_400_000
    record_version: Callable[[], int] = newest_record_version
    """Returns the version in which a transactional id is written now: `transaction.version` may change at run time."""
