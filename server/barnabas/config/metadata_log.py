"""Settings of a metadata log, with Kafka's names and defaults. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.config import broker as settings

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig


class LogSettings(NamedTuple):
    """Settings of a copy of the metadata log, with Kafka's defaults; sizes in bytes, -1 for no limit of retention."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 86_400_000
    retention_bytes: int = 100 << 20
    retention_ms: int = 7 * 86_400_000
    snapshot_bytes: int = 20 << 20
    """Bytes of records after which a snapshot is made."""
    snapshot_interval_ms: int = 3_600_000
    delete_delay_ms: int = 60_000
    batch_bytes_max: int = 8 << 20


def log_settings(config: BrokerConfig) -> LogSettings:
    """Return the settings of a metadata log."""
    segment_bytes = config.get(settings.INTERNAL_METADATA_LOG_SEGMENT_BYTES)
    return LogSettings(
        segment_bytes=segment_bytes or config.get(settings.METADATA_LOG_SEGMENT_BYTES),
        segment_ms=config.get(settings.METADATA_LOG_SEGMENT_MS),
        retention_bytes=config.get(settings.METADATA_MAX_RETENTION_BYTES),
        retention_ms=config.get(settings.METADATA_MAX_RETENTION_MS),
        snapshot_bytes=config.get(settings.METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS),
        snapshot_interval_ms=config.get(settings.METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS),
        delete_delay_ms=config.get(settings.INTERNAL_METADATA_DELETE_DELAY_MILLIS),
        batch_bytes_max=config.get(settings.INTERNAL_METADATA_MAX_BATCH_SIZE_IN_BYTES),
    )
