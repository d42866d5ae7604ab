"""One kind of change as JSON: written and read. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from barnabas.cluster.metadata.image import Change

C = TypeVar("C", bound=Change)


class ChangeCodec(Generic[C]):
    """Writes and reads changes of one kind: as the body of an object, and back.

    The kind's name is the object's `change`.
    """

    __slots__ = ("body", "change", "kind")

    def __init__(
        self, kind: type[C], body: Callable[[C], dict[str, Any]], change: Callable[[dict[str, Any]], C]
    ) -> None:
        self.kind = kind
        self.body = body
        self.change = change
