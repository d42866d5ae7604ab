"""A topic that is being loaded: its table, its position, and its failure.

The rule: failures are per topic. A transient failure is retried, with growing pauses; a permanent failure ends only the
topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import EXIT_INCOMPLETE, NoTopicError, PipelineError
from barnabas_pipeline.jobs.load import RECORD, LoadOptions, LoadSummary, adopt, find_loss, gone, only_end
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.iceberg import Catalogs
from barnabas_pipeline.lake.ledger import State
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.log.model import Bounds, OffsetRange, TopicIdentity
from barnabas_pipeline.log.planning import resolve
from barnabas_pipeline.log.transports import open_log

if TYPE_CHECKING:
    from barnabas_pipeline.log.planning import Selection

TRIES_MAX = 4  # attempts with transient failures; each has waited for a broker or a store already
RETRY_SECONDS, RETRY_DOUBLINGS_MAX = 0.25, 8  # after the first attempt, and at most 64 s
MISSED_MAX = (
    2  # rounds without a topic until it counts as deleted: a broker that has just started may not know it yet
)


class Stream:
    """A topic and its table. Lifecycle: `open`, repeated if it fails, then `pending` and commits until `is_over`."""

    def __init__(
        self,
        name: str,
        options_of: Callable[[str], LoadOptions],
        catalogs: Catalogs,
        *,
        is_bounded: bool,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self.name = name
        self.summary = LoadSummary()
        self.error: PipelineError | None = None
        self.is_over = False
        self.behind: dict[int, int] = {}
        """Offsets that are not loaded yet, by partition."""
        self.committed_at = 0.0
        self.tries = 0
        self.retry_at = 0.0
        self._options_of = options_of
        self._options: LoadOptions | None = None
        self._is_bounded = is_bounded
        self._retry_seconds = retry_seconds
        self._catalogs = catalogs
        self._table: Table | None = None
        self._dead: DeadLetters | None = None
        self._state = State()
        self._missed = 0
        self._adopted: str | None = None
        self._starts: dict[int, int] | None = None
        self._ends: dict[int, int] | None = None

    # --- its table --------------------------------------------------------------------------------------------------

    @property
    def options(self) -> LoadOptions:
        """The topic's options, after `open`."""
        assert self._options is not None
        return self._options

    @property
    def is_open(self) -> bool:
        """Return whether `open` has succeeded."""
        return self._options is not None

    @property
    def table(self) -> Table:
        """The table, which is opened if necessary."""
        if self._table is None:
            self._table = Table(self.options.root, catalogs=self._catalogs)
            self._dead = DeadLetters(self._table)
        return self._table

    @property
    def state(self) -> State:
        """The table's state as last read; an empty state before the table is opened."""
        return self._state if self._table is None else self._table.state()

    def open(self) -> None:
        """Read the options and the table, and publish dead letters that an earlier run has only committed."""
        options = self._options_of(self.name)
        table = Table(options.root, catalogs=self._catalogs)
        dead = DeadLetters(table)
        dead.publish()
        self._options, self._table, self._dead = options, table, dead

    def publish(self) -> None:
        """Publish dead letters. Raises IncompleteError."""
        assert self._table is not None
        assert self._dead is not None
        self._dead.publish()

    def put_away(self) -> None:
        """Keep only the state in memory until the table is needed again."""
        if self._table is not None:
            self._state, self._table, self._dead = self._table.state(), None, None

    # --- failures ---------------------------------------------------------------------------------------------------

    def fail(self, error: PipelineError) -> None:
        """Note a failure, and the time of the next attempt, if any."""
        self.error = error
        self.tries += 1
        may_pass = error.exit_code == EXIT_INCOMPLETE or isinstance(error, NoTopicError)
        if self._missed and self.is_open and self.options.on_data_loss == RECORD:
            may_pass = True  # the topic may be recreated, and is loaded then
        self.is_over = not may_pass or (self._is_bounded and self.tries >= TRIES_MAX)
        doublings = min(self.tries - 1, RETRY_DOUBLINGS_MAX)
        self.retry_at = time.monotonic() + self._retry_seconds * 2**doublings

    def succeed(self) -> bool:
        """Clear the failure; returns whether there was one."""
        was, self.error, self.tries, self.retry_at = self.error, None, 0, 0.0
        return was is not None

    @property
    def is_stuck(self) -> bool:
        """Return whether the topic has failed permanently, or as often as a bounded load tries."""
        return self.is_over or self.tries >= TRIES_MAX or isinstance(self.error, NoTopicError)

    @property
    def is_settled(self) -> bool:
        """Return whether the topic has no known lag and no pending failure."""
        return self.is_over or (self.error is None and not self._missed and not any(self.behind.values()))

    def miss(self, where: str) -> PipelineError | None:
        """Note that the topic is missing; returns the error when that is certain."""
        self._missed += 1
        if self._missed < MISSED_MAX:
            return None
        return gone(self.name, where, self.state)

    # --- next ranges ------------------------------------------------------------------------------------------------

    def pending(self, identity: TopicIdentity, bounds: Mapping[int, Bounds]) -> list[OffsetRange]:
        """Return the ranges to load, one for each partition. Raises DataLossError, UsageError."""
        self._missed = 0
        bounds = dict(bounds)
        state = self.state
        if state.version and (
            self._adopted != identity.topic_id or find_loss(state, identity, bounds) is not None
        ):
            adopt(self.table, identity, bounds, self.options)
            state = self.state
        if self._adopted != identity.topic_id:
            self._adopted, self._starts, self._ends = identity.topic_id, None, None
        if self._starts is None:
            self._starts = {} if state.version else self._resolved(self.options.selection, bounds, "start")
        if self._is_bounded and self._ends is None:
            self._ends = self._resolved(only_end(self.options.selection), bounds, "end")
        ends = self._ends or {partition: bound.end for partition, bound in bounds.items()}
        ranges = pending(state, self._starts, ends, bounds)
        if self._table is None and any(map(len, ranges)):  # others may have loaded meanwhile
            self.table.refresh()
            return self.pending(identity, bounds)
        self.behind = {offset_range.partition: len(offset_range) for offset_range in ranges}
        return ranges

    def _resolved(self, selection: Selection, bounds: dict[int, Bounds], edge: str) -> dict[int, int]:
        log = open_log(self.options.log)
        try:
            return {
                offset_range.partition: getattr(offset_range, edge)
                for offset_range in resolve(log, selection, bounds)
            }
        finally:
            log.close()


def pending(
    state: State, starts: Mapping[int, int], ends: Mapping[int, int], bounds: Mapping[int, Bounds]
) -> list[OffsetRange]:
    """Return the ranges after a state, or after the starts of unknown partitions, up to the ends."""
    ranges = []
    for partition, end in sorted(ends.items()):
        start = state.ends.get(partition, starts.get(partition, bounds[partition].start))
        ranges.append(OffsetRange(partition, start, max(start, end)))
    return ranges
