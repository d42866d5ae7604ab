"""The limits that transactions keep. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Named as Kafka's `transaction.*` settings; times in ms."""

    timeout_ms_max: int = 900_000
    id_expiration_ms: int = 7 * 86_400_000
    record_version: int = 1
    """In which version transactional ids are written (`features.RecordVersions`)."""
