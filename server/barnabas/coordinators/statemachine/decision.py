"""Decisions of state machines: records to append, replies to release once those are committed, timers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.errors import RequestError

T = TypeVar("T")
EVENT_SIZE_MAX: Final = 500
"""From this number of names, partitions and the like on, an event decides in a thread: a few milliseconds."""
Record = tuple[bytes, bytes | None]
"""Key and value of a record of an internal topic; no value is a tombstone."""
NO_PRODUCER_ID: Final = -1
"""The producer id of an entry outside transactions."""


class ManyReplies(NamedTuple):
    """Replies to so many waiters that they are encoded and sent in slices, after the event.

    `to` has waiters by the id for which `reply` returns the answer. Neither may depend on mutable state.
    """

    to: Mapping[str, int]
    reply: Callable[[str], Any]


class Decision:
    """The decision of an event, filled while it is handled; `timers` maps a key to its time in ms, or to None to cancel it.

    A reply has the number of the waiter that it answers, since one event can release the requests of many. `effects` are
    carried out elsewhere once the records are committed. With a `producer` (id and epoch) the records are part
    of its transaction and count when that commits.
    """

    __slots__ = (
        "decoded",
        "effects",
        "is_ahead",
        "many_replies",
        "many_timers",
        "producer",
        "records",
        "replies",
        "timers",
    )

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.decoded: dict[int, Any] = {}
        """Content of some of the records, by their index, so that they need not be decoded for the replay."""
        self.replies: list[tuple[int, Any]] = []
        self.many_replies: list[ManyReplies] = []
        self.timers: dict[Hashable, int | None] = {}
        self.many_timers: list[Iterable[tuple[Hashable, int | None]]] = []
        """So many timers that they are set in slices, after the event; a later decision, or one in `timers`, prevails."""
        self.effects: list[Any] = []
        self.producer: tuple[int, int] | None = None
        self.is_ahead = False
        """True if the event changes state before its records are replayed, as classic groups do; if it fails halfway, the
        shard is read again.
        """

    def write(self, record: Record, content: Any) -> None:
        """Add a record, with its content."""
        self.decoded[len(self.records)] = content
        self.records.append(record)

    def clear(self) -> None:
        """Clear the decision, for an event that decides differently after all."""
        self.records.clear()
        self.decoded.clear()
        self.replies.clear()
        self.many_replies.clear()
        self.timers.clear()
        self.many_timers.clear()
        self.effects.clear()
        self.producer = None
        self.is_ahead = False


class Large(NamedTuple):
    """An event of a periodic task that is too long for a turn of the event loop: it decides in a thread."""

    event: Callable[[Any, Decision], Any]


class Refused(NamedTuple):
    """Result of an event that is refused although its decision must be kept; other refused events raise the error."""

    error: RequestError


class Entry:
    """A batch of an internal topic: records, or the marker that ends a transaction (`committed`: committed or aborted).

    `producer_id` is that of a transaction, -1 for records outside of transactions. `decoded` has the known content of some
    records, by their index. `offsets` are those of the records, or of the marker, if they were read from the log.
    """

    __slots__ = ("committed", "decoded", "offsets", "producer_id", "records")

    def __init__(
        self,
        records: list[Record],
        producer_id: int = -1,
        committed: bool | None = None,
        decoded: Mapping[int, Any] | None = None,
        offsets: Sequence[int] = (),
    ) -> None:
        self.records = records
        self.producer_id = producer_id
        self.committed = committed
        self.decoded = decoded
        self.offsets = offsets


def slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield runs of at most `size` items: many items are decided on in several events, so that others run in between."""
    return (items[first : first + size] for first in range(0, len(items), size))


def nothing(machine: object, out: Decision) -> None:
    """Decide nothing: an event that lets others run during a long search."""
