"""Fetch sessions (KIP-227): a request names only changes since the last one. No I/O.

The rule: after each response the broker and this client have the same list of partitions, or the session is restarted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.values import TopicPartition
from barnabas.wire.generated.errors import ErrorCode

EPOCH_MAX = (1 << 31) - 1
FIRST, NONE = 0, -1
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class Wanted(NamedTuple):
    """A partition as a request asks for it."""

    topic_id: bytes
    offset: int
    bytes_max: int
    leader_epoch: int
    log_start_offset: int = -1


class FetchSession:
    """The session with one broker. Asked, then answered, in turn."""

    def __init__(self) -> None:
        self.id = 0
        self.epoch = FIRST
        self._known: dict[TopicPartition, Wanted] = {}

    def ask(
        self, fetches: Mapping[TopicPartition, Wanted]
    ) -> tuple[dict[TopicPartition, Wanted], dict[TopicPartition, bytes]]:
        """Return the partitions that the next request adds or changes, and those that it removes, with their topic ids."""
        before, self._known = self._known, dict(fetches)
        if self.epoch == FIRST:
            return self._known, {}
        # a recreated topic is another one: remove the old, add the new
        removed = {
            place: old.topic_id
            for place, old in before.items()
            if place not in fetches or fetches[place].topic_id != old.topic_id
        }
        return {place: new for place, new in fetches.items() if before.get(place) != new}, removed

    def answered(self, session_id: int, error_code: int) -> None:
        """Take up the answer."""
        if error_code or not session_id:
            self.end()  # a broker may have no sessions, or none for this client
            return
        self.id = session_id
        self.epoch = self.epoch % EPOCH_MAX + 1

    def end(self) -> None:
        """Restart the session: the broker's state of it is uncertain."""
        self.id, self.epoch = 0, FIRST
        self._known = {}
