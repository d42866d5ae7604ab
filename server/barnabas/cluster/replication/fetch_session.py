"""The fetcher's side of incremental fetch sessions (KIP-227): the partitions that the next request must name. Pure.

The rule: the leader's copy of the session is known exactly, or the next request begins a new session. So a lost answer,
or one with unrequested partitions, costs one full request and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.wire.generated.errors import ErrorCode

NO_SESSION = 0
EPOCH_INITIAL = 0
EPOCH_NONE = -1
EPOCH_MAX = 2**31 - 1

TopicKey = str | bytes
"""A topic's name (Fetch up to v12) or its id (from v13 on); one session never has both."""
PartitionKey = tuple[TopicKey, int]


class Wanted(NamedTuple):
    """Offsets, epochs and size with which one partition is fetched."""

    fetch_offset: int
    log_start_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int = -1


class SessionRequest(NamedTuple):
    """Content of the next request of a session."""

    session_id: int
    epoch: int
    named: dict[PartitionKey, Wanted]
    """New partitions and changed ones; all of them where the session begins."""
    forgotten: list[PartitionKey]

    @property
    def is_full(self) -> bool:
        """True if the request begins a session, or belongs to none."""
        return self.epoch in (EPOCH_INITIAL, EPOCH_NONE)


class FetcherSession:
    """One session of one fetcher with one leader. `next_request` and `answered` or `lost` are called in turn."""

    def __init__(self, *, is_kept: bool = True) -> None:
        """`is_kept` is False for requests that each stand for themselves."""
        self._is_kept = is_kept
        self._id = NO_SESSION
        self._epoch = EPOCH_INITIAL
        self._uses_ids = False
        self._known: dict[PartitionKey, Wanted] = {}

    def next_request(
        self,
        positions: Mapping[PartitionKey, Wanted],
        *,
        uses_ids: bool,
        changed: Iterable[PartitionKey] | None = None,
    ) -> SessionRequest:
        """Return the request that fetches exactly `positions`; its keys have topic ids if `uses_ids`, else names.

        `changed` are the keys in which `positions` may differ from that of the call before; None where all may.
        """
        if uses_ids is not self._uses_ids:
            self._uses_ids = uses_ids
            self._begin_again()
        positions_before = self._known
        if self._epoch == EPOCH_INITIAL:
            self._known = dict(positions)
            return SessionRequest(
                self._id, EPOCH_INITIAL if self._is_kept else EPOCH_NONE, dict(positions), []
            )
        if changed is None:
            named = {key: want for key, want in positions.items() if positions_before.get(key) != want}
            forgotten = [key for key in positions_before if key not in positions]
        else:
            named, forgotten = {}, []
            for key in dict.fromkeys(changed):
                want = positions.get(key)
                if want is None:
                    if key in positions_before:
                        forgotten.append(key)
                elif positions_before.get(key) != want:
                    named[key] = want
        positions_before.update(named)
        for key in forgotten:
            del positions_before[key]
        return SessionRequest(self._id, self._epoch, named, forgotten)

    def answered(
        self, request: SessionRequest, *, error_code: int, session_id: int, keys: Iterable[PartitionKey]
    ) -> str:
        """Take note of an answer; "" if it fits the request, or else why it must not be used.

        `keys` are the partitions that it names.
        """
        if error_code:
            if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION  # there is nothing to close
            self._begin_again()
            return f"the leader answers with error {error_code}"
        named = set(keys)
        unknown = named - self._known.keys()
        if unknown or (request.is_full and len(named) != len(self._known)):
            self._begin_again()
            return "the answer does not name what was asked for"
        if request.is_full:
            self._id = session_id
            self._epoch = EPOCH_INITIAL if session_id == NO_SESSION else 1
        elif session_id == request.session_id:
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
        else:  # the leader has closed it with this answer
            self._id = NO_SESSION
            self._begin_again()
        return ""

    def lost(self) -> None:
        """Note that there was no answer: the leader's copy of the session is unknown."""
        self._begin_again()

    def _begin_again(self) -> None:
        """Make the next request a full one, which closes the present session."""
        self._epoch = EPOCH_INITIAL
