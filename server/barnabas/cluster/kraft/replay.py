"""Replay of a metadata log: records in, images and changes out. Pure.

The rule: only `publish` makes an image, and never one with half of a metadata transaction: what is between Begin and End
applies at End, and an Abort drops it (KIP-868).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.cluster.kraft.image import EMPTY, Change, Draft, Position, QuorumImage, diff
from barnabas.cluster.kraft.transitions import MetadataRecordError, apply_record


class Replay:
    """The image of a log, record by record. Lifecycle: `apply` the records of a batch, `publish`, and so on.

    After a MetadataRecordError nothing more can be applied; `image` remains the last one that was published.
    """

    def __init__(self, image: QuorumImage = EMPTY) -> None:
        self.image = image
        self._draft: Draft | None = None
        self._transaction: Draft | None = None

    @property
    def in_transaction(self) -> bool:
        """True between the begin of a metadata transaction and its end."""
        return self._transaction is not None

    def apply(self, record: Any) -> tuple[Change, ...]:
        """Apply one record; returns what it changed. Raises MetadataRecordError.

        A record of a transaction changes nothing; its End returns the changes of all.
        """
        name = type(record).__name__
        if name == "BeginTransactionRecord":
            if self._transaction is not None:
                raise MetadataRecordError("a metadata transaction begins inside of another one")
            self._transaction = Draft(self._current())
            return ()
        if name in ("EndTransactionRecord", "AbortTransactionRecord"):
            return self._end(is_abort=name.startswith("Abort"))
        if self._transaction is not None:
            apply_record(self._transaction, record)
            return ()
        if self._draft is None:
            self._draft = Draft(self.image)
        draft = self._draft
        count = len(draft.changes)
        apply_record(draft, record)
        return tuple(draft.changes[count:])

    def publish(self, position: Position) -> QuorumImage:
        """Return the image after the records so far, at this position; inside of a transaction, that before it."""
        if self._transaction is None:
            self.image = (
                self.image._replace(position=position) if self._draft is None else self._draft.image(position)
            )
            self._draft = None
        return self.image

    def load(self, image: QuorumImage) -> Iterable[Change]:
        """Replace the image by that of a snapshot; returns the difference, with entries that it lacks as removed."""
        before = self.image
        self._draft = self._transaction = None
        self.image = image
        return diff(before, image)

    def _end(self, *, is_abort: bool) -> tuple[Change, ...]:
        if self._transaction is None:
            raise MetadataRecordError("a metadata transaction ends that has not begun")
        ended, self._transaction = self._transaction, None
        if is_abort:
            return ()
        self._draft = ended
        return tuple(ended.changes)

    def _current(self) -> QuorumImage:
        """Return the image after the records before a transaction."""
        return self.image if self._draft is None else self._draft.image(self.image.position)
