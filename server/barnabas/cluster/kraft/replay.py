"""Replay of a metadata log: records in, images and changes out. Pure.

The rule: only `publish` builds an image, and never with half of a metadata transaction: records between Begin and End are
applied at End, and dropped at Abort (KIP-868).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.cluster.kraft.image import EMPTY, Change, Draft, Position, QuorumImage, diff
from barnabas.cluster.kraft.transitions import MetadataRecordError, apply_record


class Replay:
    """The image of a log, record by record. Lifecycle: `apply` the records of a batch, `publish`, repeat.

    After a MetadataRecordError nothing more can be applied; `image` remains the last published one.
    """

    def __init__(self, image: QuorumImage = EMPTY) -> None:
        self.image = image
        self._draft: Draft | None = None
        self._transaction: Draft | None = None

    @property
    def in_transaction(self) -> bool:
        """True between the Begin of a metadata transaction and its End or Abort."""
        return self._transaction is not None

    def apply(self, record: Any) -> tuple[Change, ...]:
        """Apply one record; returns its changes. Raises MetadataRecordError.

        A record inside a transaction returns no changes; the End returns those of all.
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
        """Return the image after the records so far, at this position; inside a transaction, the image before it."""
        if self._transaction is None:
            self.image = (
                self.image._replace(position=position) if self._draft is None else self._draft.image(position)
            )
            self._draft = None
        return self.image

    def load(self, image: QuorumImage) -> Iterable[Change]:
        """Replace the image by that of a snapshot; returns the difference between the two."""
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
