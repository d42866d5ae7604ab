"""The context of one event: the time, the metadata, and its decision. Pure."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.coordinators.statemachine.decision import Decision


class EventContext:
    """Input of an event, and the decision that it fills.

    `may_describe` says whether the requester may describe a topic; None without an authorizer.
    """

    __slots__ = ("image", "may_describe", "now_ms", "out")

    def __init__(
        self,
        image: ClusterImage,
        now_ms: int,
        out: Decision,
        may_describe: Callable[[str], bool] | None = None,
    ) -> None:
        self.image = image
        self.now_ms = now_ms
        self.out = out
        self.may_describe = may_describe
