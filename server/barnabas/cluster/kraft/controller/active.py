"""The active controller while it leads: one request after the other, appended, replayed and answered once committed.

The rule: the image that handlers see has all records that were appended, and is the committed one again with each leader.
What cannot be encoded or replayed is never appended; the leader resigns then, since its image can no longer be trusted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import trio

from barnabas.cluster.kraft.controller.features import LEADERSHIP, RAISING
from barnabas.cluster.kraft.controller.outcome import Caller, ControllerState, Handlers, Outcome, Tick
from barnabas.cluster.kraft.image import METADATA_VERSION, Change, Position, QuorumImage
from barnabas.cluster.kraft.raft.ports import NotLeaderError, Raft
from barnabas.cluster.kraft.replay import Replay
from barnabas.config.loading import BrokerConfig
from barnabas.environment import Environment
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata_records.begin_transaction import BeginTransactionRecord
from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord
from barnabas.wire.metadata_records import decode_record, encode_record

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.1
RECORDS_PER_BATCH_MAX: Final = 10_000
"""Records that a controller of Kafka writes as one batch."""
RECORD_BYTES: Final = 24
"""Bytes that a record takes in a batch beside its value, at most."""


class Machine(NamedTuple):
    """Pure part of a controller: what requests, time and a new leader lead to."""

    handlers: Handlers
    ticks: Mapping[str, Tick]
    """Work that time asks for, by name."""
    activate: Callable[[ControllerState, bool], tuple[Any, ...]]
    """Records with which a leader begins; true if the last one has left a metadata transaction open."""
    follow: Callable[[ControllerState, QuorumImage, Sequence[Change]], None]
    """Takes soft state along after the image has changed from another one."""
    version_of: Callable[[Any, int], int]
    """Version of a record's message at a level of metadata.version."""


class ActiveController:
    """Implements `raft.ports.RaftListener`. Lifecycle: `attach` the voter, `run` in a task, `handle` requests meanwhile."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        machine: Machine,
        committed: Callable[[], QuorumImage],
        in_transaction: Callable[[], bool],
        *,
        cluster_id: str,
        batch_bytes_max: int,
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        """`committed` returns the image of all that is committed and applied; `in_transaction` says whether a metadata
        transaction is open there.
        """
        self._config = config
        self._environment = environment
        self._machine = machine
        self._committed = committed
        self._in_transaction = in_transaction
        self._cluster_id = cluster_id
        self._batch_bytes_max = batch_bytes_max
        self._tick_seconds = tick_seconds
        self._raft: Raft | None = None
        self._state: ControllerState | None = None
        self._replay = Replay()
        self._last_offset = -1

    def attach(self, raft: Raft) -> None:
        """Append to the log of this voter."""
        self._raft = raft

    @property
    def raft(self) -> Raft:
        """The voter of this node."""
        assert self._raft is not None, "attached before the node votes"
        return self._raft

    @property
    def is_active(self) -> bool:
        """True while this node leads, and its controller works."""
        return self._state is not None

    # --- leading --------------------------------------------------------------------------------------------

    def on_leader(self, epoch: int, end_offset: int) -> None:
        """Begin with the committed image, and append what a leader begins with."""
        image = self._committed()
        log.info("controller %d is active in epoch %d, from offset %d", self.raft.node_id, epoch, end_offset)
        self._replay = Replay(image)
        self._last_offset = -1
        self._state = self._new_state(image)
        self._state.epoch = epoch
        if not self.do("activation", self._begin) and self._state is not None:
            self._state = None
            self.raft.resign(epoch)

    def _begin(self, state: ControllerState) -> tuple[Any, ...]:
        """Return what this leader begins with; a transaction that the last one has left open is to be aborted by it."""
        in_transaction = self._in_transaction()
        if in_transaction:
            self._replay.apply(BeginTransactionRecord())
        return self._machine.activate(state, in_transaction)

    def on_resigned(self, epoch: int) -> None:
        """Answer nothing any more: requests that wait are NOT_CONTROLLER."""
        if self._state is not None:
            log.info("controller %d is no longer active (epoch %d)", self.raft.node_id, epoch)
        self._state = None

    async def run(self) -> None:
        """Do what is due by time, until cancelled."""
        while True:
            await trio.sleep(self._tick_seconds)
            for name, tick in self._machine.ticks.items():
                self.do(name, tick)

    def do(self, name: str, records_of: Tick) -> bool:
        """Append the records that something asks for; returns whether that went well. A failure of ours is logged."""
        state = self.state()
        if state is None:
            return False
        try:
            records = records_of(state)
            if records:
                self._append(state, records)
        except NotLeaderError:
            self._state = None
            return False
        except Exception:
            log.exception("%s: the active controller has failed to do it", name)
            return False
        return True

    # --- requests -------------------------------------------------------------------------------------------

    async def handle(self, key: int, request: Any, caller: Caller, *, timeout_ms: int | None = None) -> Any:
        """Return the response to a request, once its records are committed, and all before it.

        Raises NOT_CONTROLLER, REQUEST_TIMED_OUT where that is not so in time, and what a handler refuses.
        """
        state = self.state()
        if state is None:
            raise self._not_controller()
        if timeout_ms is not None and timeout_ms <= 0:
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "the request leaves no time, and nothing is done")
        outcome: Outcome = self._machine.handlers[key](state, request, caller)
        try:
            if outcome.kraft_version is not None:
                self._last_offset = self.raft.raise_kraft_version(state.epoch, outcome.kraft_version)
            if outcome.records:
                self._append(state, outcome.records)
            await self._wait_committed(self._last_offset, state.epoch, timeout_ms)
        except NotLeaderError:
            raise self._not_controller() from None
        return outcome.response

    def look(self, key: int, request: Any, caller: Caller) -> Any:
        """Return the response to a request that any controller answers, by what is committed. Raises RequestError."""
        state = self._new_state(self._committed())
        return self._machine.handlers[key](state, request, caller).response

    async def _wait_committed(self, offset: int, epoch: int, timeout_ms: int | None) -> None:
        if offset < 0:
            return
        limit_s = float("inf") if timeout_ms is None else timeout_ms / 1000
        with trio.move_on_after(limit_s) as scope:
            await self.raft.wait_committed(offset, epoch)
        if scope.cancelled_caught:
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "the records are not committed yet")

    def _not_controller(self) -> RequestError:
        leader_id = self.raft.leader_id
        place = f"it is node {leader_id}" if leader_id >= 0 else "there is none now"
        return RequestError(ErrorCode.NOT_CONTROLLER, f"this is not the active controller: {place}")

    def _new_state(self, image: QuorumImage) -> ControllerState:
        state = ControllerState(
            config=self._config,
            entropy=self._environment.entropy,
            node_id=self.raft.node_id,
            cluster_id=self._cluster_id,
            image=image,
            parts={
                LEADERSHIP: lambda: self.raft.leadership,
                RAISING: self.raft.reason_against_kraft_version,
            },
        )
        self._note_now(state)
        return state

    def state(self) -> ControllerState | None:
        """Return the state as of now, None where this node is not active."""
        if self._state is not None:
            self._note_now(self._state)
        return self._state

    def _note_now(self, state: ControllerState) -> None:
        state.now_ms = self._environment.wall_clock_ms()
        state.monotonic_ms = int(self._environment.monotonic() * 1000)
        state.next_offset = self.raft.end_offset
        state.committed_offset = self._committed().position.offset
        state.kraft_version = self.raft.leadership.kraft_version

    def _append(self, state: ControllerState, records: Sequence[Any]) -> None:
        """Append records and replay them. Raises NotLeaderError; what cannot be encoded or replayed is our bug."""
        level = _level(state, records)
        values = [encode_record(record, self._machine.version_of(record, level)) for record in records]
        changes: list[Change] = []
        try:
            for value in values:
                changes += self._replay.apply(decode_record(value)[0])  # as followers do
        except Exception:
            log.exception("records of the active controller do not fit its image: it resigns")
            self._state = None
            self.raft.resign(state.epoch)
            raise
        for batch in _batches(values, self._batch_bytes_max):
            self._last_offset = self.raft.append(state.epoch, batch)
        before = state.image
        state.image = self._replay.publish(Position(self._last_offset, state.epoch, state.now_ms))
        self._machine.follow(state, before, changes)


def _level(state: ControllerState, records: Sequence[Any]) -> int:
    """Return the metadata.version in which records are written: their own, where they are the first."""
    level = state.image.metadata_version
    for record in records if not level else ():
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            return record.feature_level
    return level


def _batches(values: Sequence[bytes], bytes_max: int) -> Iterator[Sequence[bytes]]:
    """Yield the values in batches that are not too large; what a handler must write as one is smaller."""
    batch: list[bytes] = []
    size = 0
    for value in values:
        if batch and (len(batch) >= RECORDS_PER_BATCH_MAX or size + len(value) > bytes_max):
            yield batch
            batch, size = [], 0
        batch.append(value)
        size += len(value) + RECORD_BYTES
    yield batch
