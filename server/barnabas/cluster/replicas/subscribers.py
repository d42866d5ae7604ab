"""Subscribers to a replica's changes: those that wait for it to grow, and those that are notified of any change.

The rule: subscribers are called in the order of their subscription, and may unsubscribe while they are called.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from barnabas.cluster.replicas import ports

Replica: TypeAlias = Any
"""`replica.Replica`, which has its subscribers and is not imported here."""


class Subscribers:
    """The subscribers of one replica."""

    __slots__ = ("_of_end", "_of_high_watermark", "_watches")

    def __init__(self) -> None:
        self._of_high_watermark: dict[ports.Watcher[Replica], None] = {}  # in the order in which they came
        self._of_end: dict[ports.Watcher[Replica], None] = {}
        self._watches: dict[ports.ChangeWatch, None] = {}

    def subscribe(self, watcher: ports.Watcher[Replica], *, to_log_end: bool = False) -> None:
        """Call `watcher` at every advance of the high watermark, or of the log end, until it unsubscribes."""
        (self._of_end if to_log_end else self._of_high_watermark)[watcher] = None

    def unsubscribe(self, watcher: ports.Watcher[Replica]) -> None:
        """Stop calling `watcher`."""
        self._of_high_watermark.pop(watcher, None)
        self._of_end.pop(watcher, None)

    def watch(self, watch: ports.ChangeWatch) -> None:
        """Tell `watch` of the next change, and of none after it."""
        self._watches[watch] = None

    def unwatch(self, watch: ports.ChangeWatch) -> None:
        """Tell `watch` of nothing."""
        self._watches.pop(watch, None)

    def changed(self) -> None:
        """Call the subscribers to any change."""
        if self._watches:
            watches, self._watches = self._watches, {}
            for watch in watches:
                watch.changed()

    def role_changed(self, replica: Replica) -> None:
        """Call all watchers: their records may become visible in another way now, or never."""
        self.changed()
        self.high_watermark_moved(replica)
        self.end_moved(replica)

    def high_watermark_moved(self, replica: Replica) -> None:
        """Call the subscribers to the high watermark, or to a last stable offset that a marker has moved."""
        if self._of_high_watermark:
            for watcher in tuple(self._of_high_watermark):
                watcher.partition_advanced(replica)

    def end_moved(self, replica: Replica) -> None:
        """Call the subscribers to the log end."""
        if self._of_end:
            for watcher in tuple(self._of_end):
                watcher.partition_advanced(replica)
