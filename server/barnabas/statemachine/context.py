"""The context of one event: the time, the metadata, and the decision that is being made. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.cluster.image import ClusterImage
from barnabas.statemachine.decision import Decision


@dataclass(frozen=True, slots=True)
class EventContext:
    """What an event may look at, and where it writes its decision."""

    image: ClusterImage
    now_ms: int
    out: Decision
    may_describe: Callable[[str], bool] | None = None
    """Whether the requester may describe a topic; None where nobody is refused."""
