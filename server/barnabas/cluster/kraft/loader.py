"""Committed batches of a metadata log in, deltas of the image out. Pure.

The rule: a delta ends with a batch, since a controller writes a batch as a unit. The first delta comes after the log has
been applied up to the first known high watermark. After an error nothing more is applied.
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
"""A delta with this many changes is delivered as soon as its batch has ended."""
METADATA_VERSION_MAX: Final = 33
"""4.4-IV2: the highest metadata.version of which all records are implemented here."""


class UnknownMetadataVersionError(MetadataLogError):
    """The cluster has a metadata.version of which the records are not implemented here."""


class ImageDelta(NamedTuple):
    """A change of the image. `changes` are its entries in order, perhaps several of one entry; `steps` are their records.

    Snapshots and the first image have no steps.
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
        self._is_compared = False  # the published change differs from the steps

    @property
    def next_offset(self) -> int:
        """The offset of the next record to apply."""
        return self.state.position.offset + 1

    @property
    def is_due(self) -> bool:
        """True if a delta should be taken before more records are applied."""
        return self.has_published and self._change_count >= CHANGES_MAX

    def load(self, snapshot: Snapshot) -> None:
        """Replace the state by that of a snapshot. Raises UnknownMetadataVersionError."""
        require_known_version(snapshot.image.metadata_version)
        self.state.load(snapshot)
        self._steps.clear()
        self._change_count = 0
        self._is_compared = True

    def apply(self, batches: bytes, *, upper_offset: int) -> Iterator[None]:
        """Apply the batches from `next_offset` on that end before an offset, in steps; stops after a batch if a delta is
        due.

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
        """Build the delta since the last one, in steps that yield None; the last yields the delta, if it is not empty."""
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
    """Raise UnknownMetadataVersionError for a metadata.version that is not implemented here; 0 means that none is set."""
    if level > METADATA_VERSION_MAX:
        raise UnknownMetadataVersionError(
            f"the cluster's metadata.version is {level}, and this release knows the records up to {METADATA_VERSION_MAX} "
            f"(4.4-IV2): use a release that knows {level}"
        )
