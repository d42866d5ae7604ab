"""What surrounds one event in a group: the time, the metadata, and the decision that is being made. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.cluster.image import ClusterImage
from barnabas.groups.decision import Decision


@dataclass(frozen=True, slots=True)
class Turn:
    """One event's surroundings."""

    image: ClusterImage
    now_ms: int
    out: Decision
