"""Committed batches of a metadata log in, deltas of the image out. Pure.

The rule: a delta ends with a batch, since a batch is what a controller wrote as one; no delta is made before the log has
been applied up to the first high watermark that was known. After an error nothing more is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from barnabas.cluster.kraft.image import EMPTY, METADATA_VERSION, Change, QuorumImage, diff_steps
from barnabas.cluster.kraft.replica_values import PLACE
from barnabas.cluster.kraft.state import RECORDS_PER_STEP, LogState, MetadataLogError, Snapshot, Step
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import iter_batches
from barnabas.records.errors import RecordsError

CHANGES_MAX: Final = 1_000
"""A delta of so many changes is delivered as soon as its batch has ended."""
METADATA_VERSION_MAX: Final = 33
"""4.4-IV2: the highest metadata.version of which all records are known here."""


class UnknownMetadataVersionError(MetadataLogError):
    """The cluster works with a metadata.version beyond the records that are known here."""


class ImageDelta(NamedTuple):
    """A change of the image. `changes` are its entries in order, also several of one; `steps` the records behind it.

    A snapshot, and the first image, have no steps.
    """

    before: QuorumImage
    after: QuorumImage
    changes: tuple[Change, ...]
    steps: tuple[Step, ...] = ()


class Loader:
    """Applies a log. Lifecycle: `load` snapshots and `apply` batches, in steps; `take` the delta whenever `is_due`."""

    def __init__(self) -> None:
        self.state = LogState()
        self.published = EMPTY
        self.has_published = False
        self.bytes_applied = 0
        self._steps: list[Step] = []
        self._change_count = 0
        self._is_compared = False  # what is published next is not what the steps lead to

    @property
    def next_offset(self) -> int:
        """The offset of the next record to apply."""
        return self.state.position.offset + 1

    @property
    def is_due(self) -> bool:
        """True if a delta should be taken before more is applied."""
        return self.has_published and self._change_count >= CHANGES_MAX

    def load(self, snapshot: Snapshot) -> None:
        """Take a snapshot in place of all so far. Raises UnknownMetadataVersionError."""
        require_known_version(snapshot.image.metadata_version)
        self.state.load(snapshot)
        self._steps.clear()
        self._change_count = 0
        self._is_compared = True

    def apply(self, batches: bytes, *, upper_offset: int) -> Iterator[None]:
        """Apply the batches from `next_offset` on that end before an offset, by steps; stops after one if a delta is due.

        Raises MetadataLogError for a record that does not decode or does not fit.
        """
        count = 0
        try:
            for position, header in iter_batches(batches):
                if header.last_offset < self.next_offset:
                    continue
                if header.last_offset >= upper_offset:
                    return
                for record in iter_any_records(batches[position : position + header.size]):
                    step = self.state.step(header, record, PLACE)
                    if step.changes:
                        self._note(step)
                    if self.has_published:
                        self._steps.append(step)
                    count += 1
                    if count % RECORDS_PER_STEP == 0:
                        yield
                self.bytes_applied += header.size
                if self.is_due:
                    return
        except RecordsError as error:
            raise MetadataLogError(f"{PLACE}: {error.message}") from None

    def _note(self, step: Step) -> None:
        self._change_count += len(step.changes)
        for change in step.changes:
            if change.kind == "feature" and change.key == METADATA_VERSION and change.after is not None:
                require_known_version(change.after)

    def take(self) -> Iterator[ImageDelta | None]:
        """Make the delta since the last one, by steps of None; the last value is the delta, or nothing if there is none."""
        after = self.state.image
        if after.position == self.published.position and self.has_published:
            return
        before, steps = self.published, tuple(self._steps)
        if self._is_compared or not self.has_published:
            changes: list[Change] = []
            for compared in diff_steps(before, after):
                changes += compared
                yield None
            delta = ImageDelta(before, after, tuple(changes))
        else:
            delta = ImageDelta(before, after, _changes_of(steps), steps)
        self._steps.clear()
        self._change_count = 0
        self._is_compared = False
        self.published = after
        self.has_published = True
        yield delta


def _changes_of(steps: Iterable[Step]) -> tuple[Change, ...]:
    return tuple(change for step in steps for change in step.changes)


def require_known_version(level: int) -> None:
    """Raise UnknownMetadataVersionError for a level of metadata.version that is not known here; 0 is none yet."""
    if level > METADATA_VERSION_MAX:
        raise UnknownMetadataVersionError(
            f"the cluster's metadata.version is {level}, and this release knows the records up to {METADATA_VERSION_MAX} "
            f"(4.4-IV2): use a release that knows {level}"
        )
