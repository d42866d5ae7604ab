"""The active controller while it leads: requests are appended, replayed and answered once committed, one after the other.

The rule: handlers see an image with all appended records; a new leader begins with the committed image. Records that
cannot be encoded or replayed are never appended: the leader resigns, as its image can no longer be trusted. Work on many
partitions is done in steps: other tasks run between them, but no other request of the controller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import trio

from barnabas.cluster.kraft.controller.features import LEADERSHIP, RAISING
from barnabas.cluster.kraft.controller.outcome import (
    Caller,
    ControllerState,
    Handlers,
    Outcome,
    Records,
    Steps,
    Tick,
    at_once,
)
from barnabas.cluster.kraft.image import METADATA_VERSION, Change, Position, QuorumImage
from barnabas.cluster.kraft.raft.ports import NotLeaderError, Raft
from barnabas.cluster.kraft.replay import Replay
from barnabas.config.loading import BrokerConfig
from barnabas.environment import Environment
from barnabas.errors import RequestError
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata_records.begin_transaction import BeginTransactionRecord
from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord
from barnabas.wire.metadata_records import decode_record, encode_record

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.1
RECORDS_PER_BATCH_MAX: Final = 10_000
"""Most records of a batch, as in Kafka's controller; an atomic request that needs more is refused."""
RECORDS_PER_STEP: Final = 20
HEARTBEAT: Final = 63
RECORD_BYTES: Final = 24
"""Upper bound of a record's overhead in a batch, in bytes, beside its value."""

_T = TypeVar("_T")
_Decide = Callable[[ControllerState], Outcome | Steps[Outcome]]


class Machine(NamedTuple):
    """Pure part of a controller: its request handlers, its periodic work, and the records of a new leader."""

    handlers: Handlers
    ticks: Mapping[str, Tick]
    """Periodic work, by name."""
    activate: Callable[[ControllerState, bool], tuple[Any, ...]]
    """First records of a new leader; the flag is true if the last leader left a metadata transaction open."""
    follow: Callable[[ControllerState, QuorumImage, Sequence[Change]], Iterable[None]]
    """Updates soft state after a change of the image, in steps."""
    version_of: Callable[[Any, int], int]
    """Version in which a record is written at a level of metadata.version."""


class Counts:
    """Counts of a controller's work since the start; times are in seconds."""

    def __init__(self) -> None:
        self.started = 0
        """Requests and periodic work that have started."""
        self.timed_out = 0
        self.heartbeats_timed_out = 0
        self.errors = 0
        """Errors that are bugs of this program."""
        self.queue_seconds = 0.0
        """Total time that requests and periodic work waited for earlier ones."""
        self.seconds = 0.0


class ActiveController:
    """Implements `raft.ports.RaftListener`. Lifecycle: `attach` the voter, `run` in a task, `handle` requests while it
    runs.
    """

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
        budget: LoopBudget | None = None,
    ) -> None:
        """`committed` returns the image of all committed and applied records; `in_transaction` is whether it ends inside
        a metadata transaction.
        """
        self._config = config
        self._environment = environment
        self._machine = machine
        self._committed = committed
        self._in_transaction = in_transaction
        self._cluster_id = cluster_id
        self._batch_bytes_max = batch_bytes_max
        self._tick_seconds = tick_seconds
        self._budget = budget or LoopBudget()
        self._deciding = trio.Lock()
        self.counts = Counts()
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
        """Take over leadership: start from the committed image, and append the first records of a leader."""
        image = self._committed()
        log.info("controller %d is active in epoch %d, from offset %d", self.raft.node_id, epoch, end_offset)
        self._replay = Replay(image)
        self._last_offset = -1
        self._state = self._new_state(image)
        self._state.epoch = epoch
        try:
            records = self._begin(self._state)
            has_transaction = any(isinstance(record, BeginTransactionRecord) for record in records)
            for _ in self._append(self._state, Outcome(None, records, is_atomic=not has_transaction)):
                pass
        except NotLeaderError:
            self._state = None
        except Exception:
            self.counts.errors += 1
            log.exception("activation: the active controller has failed to do it")
            self._state = None
            self.raft.resign(epoch)

    def _begin(self, state: ControllerState) -> tuple[Any, ...]:
        """Return this leader's first records; they abort a transaction that the last leader left open."""
        in_transaction = self._in_transaction()
        if in_transaction:
            self._replay.apply(BeginTransactionRecord())
        return self._machine.activate(state, in_transaction)

    def on_resigned(self, epoch: int) -> None:
        """Stop answering: waiting requests get NOT_CONTROLLER."""
        if self._state is not None:
            log.info("controller %d is no longer active (epoch %d)", self.raft.node_id, epoch)
        self._state = None

    async def run(self) -> None:
        """Run periodic work, until cancelled."""
        while True:
            await trio.sleep(self._tick_seconds)
            for name, tick in self._machine.ticks.items():
                await self.do(name, tick)

    async def do(self, name: str, records_of: Tick) -> None:
        """Append the records of periodic work. A bug in that work is logged."""
        if self._state is None:
            return
        try:
            await self._perform(lambda state: _unasked(records_of(state)))
        except NotLeaderError:
            pass  # the work is still due: the next leader does it
        except Exception:
            self.counts.errors += 1
            log.exception("%s: the active controller has failed to do it", name)

    # --- requests -------------------------------------------------------------------------------------------

    async def handle(self, key: int, request: Any, caller: Caller, *, timeout_ms: int | None = None) -> Any:
        """Return the response to a request once its records, and all before them, are committed.

        Raises NOT_CONTROLLER, REQUEST_TIMED_OUT if they are not committed in time, and the errors of the handler.
        """
        state = self.state()
        if state is None:
            raise self._not_controller()
        if timeout_ms is not None and timeout_ms <= 0:
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "the request leaves no time, and nothing is done")
        handler = self._machine.handlers[key]
        with trio.move_on_after(float("inf") if timeout_ms is None else timeout_ms / 1000):
            try:
                response, offset, epoch = await self._perform(lambda state: handler(state, request, caller))
                if offset >= 0:
                    await self.raft.wait_committed(offset, epoch)
            except NotLeaderError:
                raise self._not_controller() from None
            return response
        self.counts.timed_out += 1
        self.counts.heartbeats_timed_out += key == HEARTBEAT
        raise RequestError(
            ErrorCode.REQUEST_TIMED_OUT, "it is not done, or its records are not committed yet"
        )

    async def _perform(self, decide: _Decide) -> tuple[Any, int, int]:
        """Decide on one request and append its records, before the next decision.

        Returns the response, the offset to wait for, and the epoch of this leader. Raises NotLeaderError, RequestError.
        """
        counts, arrived = self.counts, self._environment.monotonic()
        try:
            self._deciding.acquire_nowait()
        except trio.WouldBlock:
            await self._deciding.acquire()
        began = self._environment.monotonic()
        counts.started += 1
        counts.queue_seconds += began - arrived
        try:
            state = self.state()
            if state is None:
                raise NotLeaderError("this node does not lead")
            with trio.CancelScope(shield=True):  # cancelled halfway, half of it would be in the image
                work = decide(state)
                outcome = work if isinstance(work, Outcome) else await self._paced(state, work)
                if outcome.kraft_version is not None:
                    self._last_offset = self.raft.raise_kraft_version(state.epoch, outcome.kraft_version)
                offset = await self._paced(state, self._append(state, outcome))
            return outcome.response, offset, state.epoch
        finally:
            counts.seconds += self._environment.monotonic() - began
            self._deciding.release()

    async def _paced(self, state: ControllerState, work: Steps[_T]) -> _T:
        """Return the result of work; other tasks run between its steps. Raises NotLeaderError if leadership is lost."""
        while True:
            try:
                next(work)
            except StopIteration as done:
                result: _T = done.value
                return result
            await self._budget.checkpoint()
            if self._state is not state:
                raise NotLeaderError("this node does not lead any more")

    def look(self, key: int, request: Any, caller: Caller) -> Any:
        """Return the response to a request that any controller answers, from the committed image. Raises RequestError."""
        state = self._new_state(self._committed())
        return at_once(self._machine.handlers[key](state, request, caller)).response

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
        """Return the current state, None if this node is not active."""
        if self._state is not None:
            self._note_now(self._state)
        return self._state

    def _note_now(self, state: ControllerState) -> None:
        state.now_ms = self._environment.wall_clock_ms()
        state.monotonic_ms = int(self._environment.monotonic() * 1000)
        state.next_offset = self.raft.end_offset
        state.committed_offset = self._committed().position.offset
        state.kraft_version = self.raft.leadership.kraft_version

    def _append(self, state: ControllerState, outcome: Outcome) -> Steps[int]:
        """Append the records of an outcome, replay them, and return the last offset of the log.

        Raises NotLeaderError, and POLICY_VIOLATION for too many. A record that cannot be encoded or replayed is a bug of
        this program.
        """
        level = _level(state, outcome.records)
        values: list[bytes] = []
        for number, record in enumerate(outcome.records, 1):
            values.append(encode_record(record, self._machine.version_of(record, level)))
            if number % RECORDS_PER_STEP == 0:
                yield
        for batch in _batches(values, self._batch_bytes_max, is_atomic=outcome.is_atomic):
            changes: list[Change] = []
            try:
                for number, value in enumerate(batch, 1):
                    changes += self._replay.apply(decode_record(value)[0])  # as followers do
                    if number % RECORDS_PER_STEP == 0:
                        yield
            except Exception:
                self.counts.errors += 1
                log.exception("records of the active controller do not fit its image: it resigns")
                self._state = None
                self.raft.resign(state.epoch)
                raise
            self._last_offset = self.raft.append(state.epoch, batch)
            before = state.image
            state.image = self._replay.publish(Position(self._last_offset, state.epoch, state.now_ms))
            yield from self._machine.follow(state, before, changes)
            yield
        return self._last_offset


def _unasked(work: Records | Steps[Records]) -> Steps[Outcome]:
    """Return the outcome of periodic work, which has no response."""
    records = work if isinstance(work, tuple) else (yield from work)
    return Outcome(None, records, is_atomic=False)


def _level(state: ControllerState, records: Sequence[Any]) -> int:
    """Return the metadata.version in which records are written; if they begin with a metadata.version, that."""
    level = state.image.metadata_version
    for record in records if not level else ():
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            return record.feature_level
    return level


def _batches(values: Sequence[bytes], bytes_max: int, *, is_atomic: bool) -> Sequence[Sequence[bytes]]:
    """Split the values into batches within the size limit. Raises POLICY_VIOLATION if they must be one batch and do not
    fit.
    """
    batches: list[list[bytes]] = []
    size = 0
    for value in values:
        if not batches or len(batches[-1]) >= RECORDS_PER_BATCH_MAX or size + len(value) > bytes_max:
            batches.append([])
            size = 0
        batches[-1].append(value)
        size += len(value) + RECORD_BYTES
    if is_atomic and len(batches) > 1:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION,
            f"the request leads to {len(values)} records of {sum(map(len, values))} bytes, which must be written together: "
            f"at most {RECORDS_PER_BATCH_MAX} records and {bytes_max} bytes can be",
        )
    return batches
