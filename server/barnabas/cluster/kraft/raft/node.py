"""A running replica: time, the disk, and connections to the others. Implements `ports.Raft`.

The rule: an event and its decisions are one step, which cannot be cancelled, and steps do not overlap; nothing is sent
or answered before its decisions are on disk. Records of the leader go to its disk and to the followers in parallel.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import trio

from barnabas.cluster.kraft.applying import CLEAN_SECONDS, AppliedImage, ImageApplier
from barnabas.cluster.kraft.decisions import Append, Decision
from barnabas.cluster.kraft.durable_log import DurableLog
from barnabas.cluster.kraft.follower import ControllerError, RefusedError
from barnabas.cluster.kraft.keeping import LogKeeper
from barnabas.cluster.kraft.loader import ImageDelta
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.raft import membership, requests
from barnabas.cluster.kraft.raft.counts import RaftCounts
from barnabas.cluster.kraft.raft.peers import Peers
from barnabas.cluster.kraft.raft.ports import NotLeaderError, RaftListener
from barnabas.cluster.kraft.raft.requests import Reply
from barnabas.cluster.kraft.raft.values import Role, Send
from barnabas.cluster.kraft.raft.voter import Replica
from barnabas.cluster.kraft.replica_values import WrongAnswerError
from barnabas.cluster.kraft.state import MetadataLogError
from barnabas.config.metadata_log import LogSettings
from barnabas.environment import Threads
from barnabas.errors import StorageError
from barnabas.wire.generated.add_raft_voter import AddRaftVoterResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.remove_raft_voter import RemoveRaftVoterResponse

log = logging.getLogger(__name__)
T = TypeVar("T")

LEAVE_SECONDS: Final = 5.0
"""Time that an ending node waits for a new leader, as in Kafka."""


class _Standing(NamedTuple):
    """Role, epoch and leader at the last log line."""

    role: Role
    epoch: int
    leader_id: int


class RaftNode(AppliedImage):
    """A voter, or a node that may become one. Lifecycle: `run` in a task; `listen` and `subscribe` at any time."""

    def __init__(
        self,
        replica: Replica,
        stored: DurableLog,
        peers: Peers,
        *,
        log_settings: LogSettings,
        wall_clock_ms: Callable[[], int],
        threads: Threads,
        clean_seconds: float = CLEAN_SECONDS,
    ) -> None:
        """`stored` is open, and `replica` was created with its content."""
        self.node_id = replica.key.id
        self.replica = replica
        self._stored = stored
        self._peers = peers
        self._wall_clock_ms = wall_clock_ms
        self._applier = ImageApplier(
            stored,
            settings=log_settings,
            wall_clock_ms=wall_clock_ms,
            threads=threads,
            clean_seconds=clean_seconds,
        )
        self._applier.subscribe(_Announcing(self._announce))
        self._keeper = LogKeeper(stored, self._applier, wall_clock_ms=wall_clock_ms, threads=threads)
        self._listeners: list[RaftListener] = []
        self._announced: int | None = None
        self._step_lock = trio.StrictFIFOLock()
        self._news = trio.Event()
        self._wake = trio.Event()
        self._unsynced = trio.Event()
        self._begun = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._failure: Exception | None = None
        self._has_ended = False
        self._standing: _Standing | None = None
        self.counts = RaftCounts()
        self._seen: tuple[Any, ...] = ()

    # --- for controllers and brokers --------------------------------------------------------------------------

    @property
    def leadership(self) -> Leadership:
        """Voters and kraft.version, by the log."""
        return self.replica.log.leadership

    @property
    def leader_id(self) -> int:
        """The leader of the newest epoch, -1 if it has no leader yet."""
        return self.replica.leader_id

    @property
    def epoch(self) -> int:
        """The newest epoch."""
        return self.replica.epoch

    @property
    def end_offset(self) -> int:
        """The log end offset of this node."""
        return self.replica.log.end_offset

    @property
    def high_watermark(self) -> int:
        """The high watermark as known to this node; -1 if it is unknown."""
        return self.replica.log.high_watermark

    @property
    def in_transaction(self) -> bool:
        """True if the applied records end inside a metadata transaction."""
        return self._applier.in_transaction

    def listen(self, listener: RaftListener) -> None:
        """Register a listener of leadership changes; it is called immediately if this node leads."""
        self._listeners.append(listener)
        if self._announced is not None:
            listener.on_leader(self._announced, self.end_offset)

    def append(self, epoch: int, values: Sequence[bytes]) -> int:
        """Append records as one batch, and return the offset of the last. Raises NotLeaderError, StorageError."""
        if self._announced != epoch or self._failure is not None:
            raise NotLeaderError(f"node {self.node_id} does not lead in epoch {epoch}")
        self._note_time()
        return self._write(self.replica.append(epoch, values, self.now_ms()), len(values))

    def reason_against_kraft_version(self, level: int) -> str:
        """Return why kraft.version cannot be raised to a level, empty if it can."""
        return membership.reason_against_level(self.replica, level)

    def raise_kraft_version(self, epoch: int, level: int) -> int:
        """Append a new kraft.version with the voters, and return the offset of the last record. Raises NotLeaderError."""
        if self._announced != epoch or self._failure is not None:
            raise NotLeaderError(f"node {self.node_id} does not lead in epoch {epoch}")
        self._note_time()
        before = self.end_offset
        decision = self.replica.raise_level(epoch, level, self.now_ms())
        return self._write(decision, decision.end_offset - before)

    def _write(self, decision: Append, count: int) -> int:
        """Write records of the leader, and return the offset of the last. Raises NotLeaderError."""
        try:
            self._stored.append(decision.records, self._wall_clock_ms())
        except (StorageError, OSError) as error:
            self._fail(error)
            raise NotLeaderError(str(error)) from error
        self._unsynced.set()
        self.counts.has_appended(count, decision.end_offset, trio.current_time())
        return decision.end_offset - 1

    async def wait_committed(self, offset: int, epoch: int) -> None:
        """Return once an offset that was appended in `epoch` is committed. Raises NotLeaderError."""
        while True:
            if self._announced != epoch or self._failure is not None:
                raise NotLeaderError(f"node {self.node_id} leads no longer in epoch {epoch}")
            if self.high_watermark > offset:
                return
            await self._news.wait()

    def resign(self, epoch: int) -> None:
        """Resign as the leader, as after a fault; another voter is asked to take over."""
        if self.replica.leading is not None and self.replica.leading.epoch == epoch:
            self.replica.resign(self.now_ms())
            self._announce()
            self._spread()

    async def answer(self, api_key: int, version: int, request: Any) -> Any:
        """Return the response to a request of the quorum; a Fetch waits for new records up to its max_wait_ms.

        Raises StorageError once the node has ended.
        """
        await self._begun.wait()
        deadline: float | None = None
        while True:
            reply: Reply = await self._step(
                lambda: requests.answer(self.replica, api_key, version, request, self.now_ms(), self._stored),
                lambda reply: reply.decisions,
            )
            change = reply.change
            if change is not None:
                while change.error is None and not self._has_ended:
                    await self._news.wait()
                if change.error is None:
                    change.finish(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                return requests.finished(reply.response, change)
            if deadline is None:
                deadline = trio.current_time() + reply.waits_ms / 1000
            if not reply.waits_ms or trio.current_time() >= deadline:
                return reply.response
            with trio.move_on_at(deadline):
                await self._news.wait()

    # --- running --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take part in the quorum until cancelled.

        Raises MetadataLogError, StorageError and OSError, not in an exception group.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery

                def start(work: Callable[[], Any], name: str) -> None:
                    nursery.start_soon(self._until_it_fails, work, name=name)

                start(self._peers.run, "raft connections")
                start(self._drive, "raft")
                start(self._sync_own, "raft sync")
                self._applier.begin(nursery, start)
        finally:
            self._has_ended = True
            self._announce()
            self._spread()
        if self._failure is not None:
            raise self._failure

    async def leave(self, seconds: float = LEAVE_SECONDS) -> None:
        """Prepare for shutdown: resign, and wait up to some seconds until the other voters know."""
        with trio.move_on_after(seconds):
            await self._step(lambda: self.replica.stop(self.now_ms()), lambda _: ())
            while not self.replica.is_known_to_resign and self._failure is None:
                await self._news.wait()

    async def _until_it_fails(self, work: Callable[[], Any]) -> None:
        try:
            await work()
        except (MetadataLogError, StorageError, OSError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """End the node: after a disk fault its appends and votes are not reliable."""
        if self._failure is None:
            self._failure = error
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
        self._announce()
        self._spread()

    @staticmethod
    def now_ms() -> int:
        """Return the time of the replica's clock, in ms."""
        return int(trio.current_time() * 1000)

    def _note_time(self) -> None:
        self.replica.wall_clock_ahead_ms = self._wall_clock_ms() - self.now_ms()

    async def _step(self, take: Callable[[], T], decisions_of: Callable[[T], Sequence[Decision]]) -> T:
        """Pass an event to the replica, and carry out its decisions. Their errors end the node, and are raised."""
        async with self._step_lock:
            if self._failure is not None or self._has_ended:
                raise StorageError("", OSError(str(self._failure or "the node has ended"))) from self._failure
            with trio.CancelScope(shield=True):
                self._note_time()
                taken = take()
                await self._carry_out(decisions_of(taken))
        self._announce()
        self._spread()
        return taken

    async def _carry_out(self, decisions: Sequence[Decision]) -> None:
        counts, leads = self.counts, self.replica.leading is not None
        try:
            for decision in decisions:
                before = self._stored.log.log_end_offset
                await self._keeper.carry_out(decision, self.replica)
                if isinstance(decision, Append):
                    count = decision.end_offset - before
                    counts.fetched += 0 if leads else count
                    counts.appended += count if leads else 0
            if any(isinstance(decision, Append) for decision in decisions):
                if self.replica.leading is not None:
                    self._unsynced.set()
                else:  # the leader takes records as synced once the next ones are fetched
                    await self._keeper.sync()
        except (StorageError, OSError) as error:
            self._fail(error)
            raise

    def _spread(self) -> None:
        """Wake all waiting tasks if anything has changed; each checks its own condition."""
        self._wake.set()
        replica, log_end = self.replica, self.replica.log
        seen = (
            self._standing,
            self._announced,
            self._failure,
            self._has_ended,
            log_end.end_offset,
            log_end.high_watermark,
            replica.leading is not None and replica.leading.change,
            replica.is_known_to_resign,
        )
        if seen != self._seen:
            self._seen = seen
            self.counts.has_committed(self.high_watermark, trio.current_time())
            self._news.set()
            self._news = trio.Event()

    def _announce(self) -> None:
        """Tell the listeners whether this node leads: once all of the log is committed and applied, until it resigns."""
        replica = self.replica
        standing = _Standing(replica.role, replica.epoch, replica.leader_id)
        if standing != self._standing:
            before = self._standing.leader_id if self._standing is not None else -1
            is_another = standing.leader_id != before
            self.counts.has_changed(
                standing.role, standing.leader_id, is_another=is_another, now=trio.current_time()
            )
            self._standing = standing
            log.info(
                "quorum: %s in epoch %d, leader %d", standing.role.value, standing.epoch, standing.leader_id
            )
        leading = None if self._failure is not None or self._has_ended else replica.leading
        if self._announced is not None and (leading is None or leading.epoch != self._announced):
            epoch, self._announced = self._announced, None
            for listener in self._listeners:
                listener.on_resigned(epoch)
        if leading is None or self._announced is not None or self.high_watermark <= leading.start_offset:
            return
        if self.applied_offset + 1 == self.high_watermark == self.end_offset:
            self._announced = leading.epoch
            for listener in self._listeners:
                listener.on_leader(leading.epoch, self.end_offset)

    async def _drive(self) -> None:
        replica = self.replica
        await self._keeper.sync()  # a killed process may have left records in the page cache
        await self._step(lambda: replica.begin(self.now_ms()), lambda decisions: decisions)
        self._begun.set()
        assert self._nursery is not None
        while True:
            async with self._step_lock:
                self._wake = trio.Event()
                for send in replica.sends(self.now_ms()):
                    self._nursery.start_soon(self._until_it_fails, lambda send=send: self._ask(send))
                deadline_ms = replica.next_deadline()
            with trio.move_on_at(float("inf") if deadline_ms is None else (deadline_ms + 1) / 1000):
                await self._wake.wait()
            if deadline_ms is not None and deadline_ms <= self.now_ms():
                await self._step(lambda: replica.tick(self.now_ms()), lambda decisions: decisions)

    async def _ask(self, send: Send) -> None:
        try:
            response = await self._peers.ask(send.key, send.address, send.message)
        except ControllerError as error:
            log.debug("%s at %s:%d: %s", type(send.message).__name__, *send.address, error)
            is_refused = isinstance(error, RefusedError)
            await self._step(
                lambda: self.replica.failed(send, self.now_ms(), is_refused=is_refused), lambda _: ()
            )
            return
        if isinstance(response, AddRaftVoterResponse | RemoveRaftVoterResponse) and response.error_code:
            log.info(
                "this controller is no voter yet: error %d %s",
                response.error_code,
                response.error_message or "",
            )
        try:
            await self._step(
                lambda: self.replica.answered(send, response, self.now_ms()), lambda decisions: decisions
            )
        except WrongAnswerError as error:
            log.warning("controller at %s:%d: %s", *send.address, error)
            self._spread()

    def _synced(self, end_offset: int) -> tuple[Decision, ...]:
        return self.replica.synced(end_offset, self.now_ms())

    async def _sync_own(self) -> None:
        """Sync the leader's appends; with other voters, several batches together."""
        replica = self.replica
        while True:
            await self._unsynced.wait()
            if not replica.is_alone:
                await trio.sleep(replica.settings.linger_ms / 1000)
            self._unsynced = trio.Event()
            self._spread()  # followers may have records before they are synced here
            leading = replica.leading
            end_offset = await self._keeper.sync()
            if leading is not None and replica.leading is leading:
                await self._step(partial(self._synced, end_offset), lambda decisions: decisions)


class _Announcing:
    """Subscriber of the image that calls `announce` when all subscribers have a new image."""

    def __init__(self, announce: Callable[[], None]) -> None:
        self._announce = announce

    async def prepare(self, delta: ImageDelta) -> None:
        """Do nothing."""

    def publish(self, delta: ImageDelta) -> None:
        """Do nothing: other subscribers may not have the image yet."""

    async def clean_up(self, delta: ImageDelta) -> None:
        """Announce that all subscribers have the image."""
        del delta
        self._announce()
