"""The settings that groups obey. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Kafka's names with underscores, Kafka's defaults."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    size_max: int = 2**31 - 1
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 7 * 86_400_000
    offsets_commit_timeout_ms: int = 5_000
