"""The settings of share groups. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from barnabas.cluster.metadata.image import GROUP, ClusterImage
from barnabas.config.durations import duration_ms

EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration"


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """Start of a share group without a start offset: the earliest or latest offset, or a time before now."""

    kind: str = LATEST
    before_ms: int = 0


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """Settings of one share group; Kafka's defaults."""

    record_lock_ms: int = 30_000
    deliveries_max: int = 5
    records_in_flight_max: int = 2000
    renew_enabled: bool = True
    committed_only: bool = False
    reset: OffsetReset = OffsetReset()
    dead_letter_topic: str = ""
    """Topic for records that are rejected or fail too often (KIP-1191); empty if the group has none."""
    copies_dead_letters: bool = False
    """True if records there have key and value, not only headers."""

    def of_group(self, image: ClusterImage, group_id: str) -> ShareSettings:
        """Return a group's effective settings: its own, and these for the rest."""
        own = image.settings_of(GROUP, group_id)
        if not own:
            return self
        return replace(
            self,
            record_lock_ms=int(own.get("share.record.lock.duration.ms", self.record_lock_ms)),
            deliveries_max=int(own.get("share.delivery.count.limit", self.deliveries_max)),
            records_in_flight_max=int(
                own.get("share.partition.max.record.locks", self.records_in_flight_max)
            ),
            renew_enabled=own.get("share.renew.acknowledge.enable", "true").strip().lower() == "true",
            committed_only=own.get("share.isolation.level", "") == "read_committed",
            reset=offset_reset(own.get("share.auto.offset.reset", LATEST)),
            dead_letter_topic=own.get("errors.deadletterqueue.topic.name", ""),
            copies_dead_letters=own.get("errors.deadletterqueue.copy.record.enable", "").strip().lower()
            == "true",
        )


def offset_reset(text: str) -> OffsetReset:
    """Parse `latest`, `earliest` or `by_duration:<ISO 8601 duration>`. Raises ValueError."""
    kind, colon, duration = text.strip().partition(":")
    kind = kind.lower()
    if kind == BY_DURATION and colon:
        return OffsetReset(BY_DURATION, duration_ms(duration))
    if kind in (EARLIEST, LATEST) and not colon:
        return OffsetReset(kind)
    raise ValueError(f"{text!r} is not latest, earliest or by_duration:PnDTnHnMn.nS")
