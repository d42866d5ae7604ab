"""One connection: read a frame, answer it, read the next.

The rule: whatever a peer sends, the worst that happens is that *its* connection is closed, with a log line that
says who sent what. Requests are answered in order, so one task per connection is all the state there is. While that task
waits among many, a request that needs no waiting is answered without waking it.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Final

import trio

from barnabas.broker.begun import Begun
from barnabas.broker.buffers import GROWTH_BYTES_MAX, SCRATCH_BYTES, grown
from barnabas.broker.channel import NO_SECURITY
from barnabas.errors import NotLoggedInError, PeerError, StorageError
from barnabas.requests.login import wait_after_failure
from barnabas.requests.memory import Held
from barnabas.wire.framing import API_KEY_BYTES, SIZE_BYTES, check_frame_size, check_message_size

if TYPE_CHECKING:
    from barnabas.broker.channel import Channel
    from barnabas.broker.connection_parts import ConnectionParts
    from barnabas.network.transport import Transport
    from barnabas.requests.context import ConnectionInfo
    from barnabas.requests.memory import IncomingMemory

log = logging.getLogger(__name__)

UNCOUNTED_BYTES_MAX: Final = 4096
"""Requests up to this size are not counted among the memory of requests: each connection may hold one."""

ACTIVE_SECONDS: Final = 1.0
"""A connection is active if its last request came so soon after the response before it."""

COMPANY_SECONDS: Final = 0.1
"""For so long after connections have taken turns each of them has company."""
AT_ONCE_SECONDS = 0.000_4
"""A request that came so soon after the response before it lets its connection look for the next one at once."""
LOOK_SECONDS = 0.000_3
"""For how long it looks then, before it waits for a turn of the event loop."""
LOOK_AFTER_LARGE_SECONDS = 0.000_05
"""For how long after a request that was not small: the client needs longer for the next one, and the core to make it."""
SKIP_MAX: Final = 63
"""How many requests a connection waits as any other after it has looked in vain: 1, 3, 7 ... up to this many."""

CUT_SHORT = "requests cut short"


class Connection:
    """An accepted connection and the task that serves it.

    `answering` is true while a whole request is in hand and its response is not yet sent; `last_active` is the
    monotonic second of the last byte in or response out. `Connections` reads both to close idle connections and to
    drain at shutdown.
    """

    __slots__ = (
        "_begun",
        "_channel",
        "_failure",
        "_is_active",
        "_is_at_once",
        "_is_more_there",
        "_is_quick",
        "_is_small",
        "_on_arrived",
        "_parts",
        "_received",
        "_rest",
        "_skip",
        "_skip_next",
        "_start",
        "_task",
        "_transport",
        "_unsent",
        "answering",
        "info",
        "last_active",
        "scope",
        "stopping",
    )

    def __init__(
        self,
        parts: ConnectionParts,
        transport: Transport,
        info: ConnectionInfo,
        *,
        channel: Channel = NO_SECURITY,
        on_arrived: Callable[[Connection], None] | None = None,
    ) -> None:
        """`on_arrived` is called when the peer has said who it is, where the `channel` asks for that."""
        self._parts = parts
        self._transport = transport
        self._channel = channel
        self._on_arrived = on_arrived
        transport.report_to(self)
        self._unsent: Held | None = None
        # Bytes received and not yet answered: `_received[_start:]` holds the next frames of a pipelining client.
        self._received = b""
        self._start = 0
        # What was begun while the task waited: not answered yet, or left to the task.
        self._begun: Begun | None = None
        self._rest: bool | Awaitable[bool] | None = None
        self._failure: Exception | None = None
        self._is_small = True  # whether its last request was
        self._is_at_once = False  # whether the handler of its last request answers without waiting
        self._is_active = False  # whether its next request is to be expected soon
        self._is_more_there = False  # whether the last read filled the buffer
        self._is_quick = False  # whether its last request followed the response before it at once
        self._skip = 0  # how many requests are still to be waited for as any other
        self._skip_next = 0  # how many it will be after the last look that was in vain
        self.info = info
        self.answering = False
        self.stopping = False
        self.last_active = self._parts.now_s()
        self.scope = trio.CancelScope()

    async def serve(self) -> None:
        """Serve until the peer closes, misbehaves, or `scope` is cancelled. Raises nothing but cancellation."""
        self._task = trio.lowlevel.current_task()
        self._parts.stalls.connections[self._task] = self.info
        try:
            with self.scope:
                try:
                    if not self._channel.is_open and not await self._arrive():
                        return
                    while not self.stopping and await self._serve_one():
                        if self.info.muted_ms:
                            await self._stay_muted()
                        if self._start < len(self._received):
                            # Whoever sends many requests at once takes turns with the others.
                            await self._parts.budget.checkpoint()
                except NotLoggedInError as error:
                    self._warn("requests without a login", str(error))
                except PeerError as error:
                    self._warn("malformed requests", f"malformed request: {error}")
        except OSError as error:
            log.debug("connection %s ended: %s", self.info, error)
        except StorageError as error:
            log.error("closing %s: %s", self.info, error)
        except Exception:
            log.exception("closing %s after an internal error", self.info)
        finally:
            self.caught_up()
            self.answering = False
            if self._begun is not None:
                self._begun.forget()
            if isinstance(self._rest, Coroutine):
                self._rest.close()  # cancelled before it could be awaited
            self._transport.close()
            self.info.request = None  # which knows its connection: a cycle
            self._parts.on_closed(self.info.connection_id)

    async def _arrive(self) -> bool:
        """Shake hands and let the peer log in, as the listener asks; false when the connection is at its end.

        Raises PeerError, OSError.
        """
        if self._channel.tls is not None and not await self._shake_hands():
            return False
        login = self.info.login
        while login is not None and not login.is_done:
            if self.stopping or not await self._serve_one():
                return False
        if self._on_arrived is not None:
            self._on_arrived(self)
        return True

    async def _shake_hands(self) -> bool:
        """Begin TLS; false when that fails."""
        transport = self._channel.secured(self._transport)
        assert transport is not None
        self._transport = transport
        transport.report_to(self)
        try:
            certificate = await transport.handshake(self._parts.handshakes.run)
            if self.info.login is None:
                self.info.principal = self._channel.principal_of(certificate)
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or str(error)
            self._warn("failed TLS handshakes", f"TLS handshake: {reason.replace('_', ' ').lower()}")
            return False
        return True

    async def _stay_muted(self) -> None:
        """Read nothing for as long as the client is throttled."""
        muted_ms, self.info.muted_ms = self.info.muted_ms, 0
        await trio.sleep(muted_ms / 1000)
        self.last_active = self._parts.now_s()

    async def _serve_one(self) -> bool:
        """Read and answer one request; false when the connection is at its end."""
        if len(self._received) - self._start < SIZE_BYTES and not await self._receive_start():
            return False
        if self._rest is not None:
            rest, self._rest, self._begun = self._rest, None, None
            return await self._answered(rest)
        data, start = self._received, self._start
        login = self.info.login
        limit = self._parts.frame_bytes_max if login is None or login.is_done else login.offer.frame_bytes_max
        misframed: PeerError | None = None
        size = 0
        try:
            size = check_frame_size(data, start, limit)
        except PeerError as error:
            misframed = error
        if misframed is not None:
            if login is not None and not login.is_done:
                login.fail()
                await wait_after_failure(self.info)
            try:
                raise misframed
            finally:
                misframed = None  # which knows this frame: a cycle
        end = start + SIZE_BYTES + size
        if end > len(data):
            self._received, self._start, self._is_small = b"", 0, size <= UNCOUNTED_BYTES_MAX
            return await self._serve_parts(memoryview(data)[start + SIZE_BYTES :], size)
        self._start = end
        # A copy that may be written to: a leader sets the offsets of a batch in place.
        frame = memoryview(bytearray(data[start + SIZE_BYTES : end]))
        self._is_small = size <= UNCOUNTED_BYTES_MAX
        if self._is_small:
            return await self._answer(frame)
        memory = self._parts.memory.for_request(size)
        memory.charge(size)
        try:
            return await self._answer(frame)
        finally:
            memory.discharge(size)

    async def _receive_start(self) -> bool:
        """Receive until at least a frame's size is there; false when the peer has closed."""
        parts, transport = self._parts, self._transport
        data = self._received[self._start :]
        self._received, self._start = b"", 0
        while len(data) < SIZE_BYTES:
            if self._is_more_there:
                await trio.lowlevel.checkpoint()
                await parts.budget.checkpoint()
            else:
                if self._is_quick and not self._skip and parts.budget.may_go_on_after_a_turn:
                    # For timers and threads. The client takes as long until it sends its next request.
                    await trio.lowlevel.checkpoint()
                if not (self._is_quick and self._follows_at_once()):
                    await self._wait_for_more(self._arrived if self._is_small and not data else None)
                    if self._failure is not None:
                        failure, self._failure = self._failure, None
                        raise failure
                    if self._rest is not None:
                        return True
                    if self._received:
                        data, self._received = self._received, b""
                        continue
            scratch = parts.buffers.scratch
            if parts.memory.requests_are_short:
                scratch = scratch[:UNCOUNTED_BYTES_MAX]
            count = transport.receive_now(scratch)
            if count is None:
                self._is_more_there = False
                continue
            if count == 0:
                if data:
                    self._warn(CUT_SHORT, "peer closed inside a frame's size field")
                return False
            # A client that sends many requests at once has usually sent the next ones already.
            self._is_more_there = count == len(scratch)
            # Copied before anything is awaited: another connection's task would reuse the scratch buffer.
            data = data + bytes(scratch[:count]) if data else bytes(scratch[:count])
            self._note_arrival()
        self._received, self._start = data, 0
        return True

    async def _wait_for_more(self, arrived: Callable[[], bool] | None = None) -> None:
        """Wait until there may be something to read, in a turn that has time for it."""
        # To be answered among many takes less than to be woken, also where there are few.
        budget = self._parts.budget
        is_at_once = arrived is not None and self._is_at_once and not self._is_quick
        await self._transport.wait_readable(
            soon=self._is_active, is_crowded=budget.is_crowded or is_at_once, arrived=arrived
        )
        if budget.is_used_up:
            # Before anything is read: who waits holds no memory for it.
            await budget.admit(is_active=self._is_active)

    def _arrived(self) -> bool:
        """Answer a request that has come while the task waits; returns whether there is anything left for the task.

        Left is an answer that has to be waited for, a connection at its end, and what is more or less than one small
        request.
        """
        try:
            return not self._answer_arrived()
        except Exception as failure:
            self.answering = False
            self._failure = failure
            return True

    def _announced(self) -> None:
        """Send the answer of a request that was begun while the task waits; wake it where anything is left for it."""
        begun, self._begun = self._begun, None
        try:
            is_done = begun is not None and self._is_done(begun.end())
        except Exception as failure:
            self.answering = False
            self._failure = failure
            is_done = False
        if not is_done:
            self._transport.wake()

    def _is_done(self, rest: bool | Awaitable[bool]) -> bool:
        """Whether a request that was answered while the task waits leaves it nothing to do, not even to look for more."""
        if rest is not True or self.info.muted_ms or self.stopping or self._is_quick:
            self._rest = rest
            return False
        self.answering = False
        self.last_active = self._parts.now_s()
        return True

    def _answer_arrived(self) -> bool:
        """Answer what has come if that needs no waiting; false where something is left. Raises as `Answering.begin`."""
        if self._begun is not None:
            # More has come before the answer; or the peer has gone, which is seen when that is sent.
            self._rest = self._begun.rest()
            return False
        parts = self._parts
        scratch = parts.buffers.scratch
        count = self._transport.receive_now(scratch[:UNCOUNTED_BYTES_MAX])
        if count is None:
            return True
        if count == 0:
            return False  # as the task will see
        self._received = data = bytes(scratch[:count])
        self._is_more_there = count == UNCOUNTED_BYTES_MAX
        self._note_arrival()
        login, size = self.info.login, int.from_bytes(data[:SIZE_BYTES], "big")
        is_whole = SIZE_BYTES <= count < UNCOUNTED_BYTES_MAX and size == count - SIZE_BYTES
        if not is_whole or (login is not None and not login.is_done):
            return False
        parts.budget.begin_next(self._task)
        self._received = b""
        self.answering = True
        frame = memoryview(bytearray(data[SIZE_BYTES:]))
        rest = parts.pipeline.begin(self.info, self._transport, frame)
        if isinstance(rest, Begun):
            self._is_at_once, self._begun = True, rest
            rest.announce_to(self._announced)
            return True
        self._is_at_once = isinstance(rest, bool)
        return self._is_done(rest)

    def _follows_at_once(self) -> bool:
        """Return whether the next request is there already, and may be read without a turn of the event loop.

        A turn costs more than a small request does by itself. It is left out where nobody is kept waiting: no task
        can run, no other connection has sent anything, and the turn is young.
        """
        if self._skip:
            self._skip -= 1
            return False
        budget = self._parts.budget
        if not budget.may_go_on:
            return False
        seconds = LOOK_SECONDS if self._is_small else LOOK_AFTER_LARGE_SECONDS
        if not self._transport.is_only_readable(seconds):
            self._skip = self._skip_next = min(2 * self._skip_next + 1, SKIP_MAX)
            return False
        self._skip_next = 0
        budget.begin_next()
        return True

    def _note_arrival(self) -> None:
        now_s = self._parts.now_s()
        waited_s = now_s - self.last_active
        # A first request says nothing: thousands of new connections may send theirs together.
        self._is_active = waited_s < ACTIVE_SECONDS and self.info.request is not None
        # Of many that are busy nobody looks: it would be in vain, and once for each.
        parts, own_id = self._parts, self.info.connection_id
        if parts.last_heard_id == own_id:
            self._is_quick = waited_s < AT_ONCE_SECONDS
        else:
            self._is_quick = False
            parts.last_heard_id = own_id
            parts.heard_another_s = now_s
        self.last_active = now_s

    async def _serve_parts(self, start: memoryview, size: int) -> bool:
        """Receive the rest of a frame that did not come in one read, and answer it.

        Holds what has arrived, at most twice as much, and waits for memory before it reads more.
        """
        memory = self._parts.memory.for_request(size)
        held = Held(self._close_for_memory)
        memory.begin(held, len(start))
        try:
            buffer = await self._receive_rest(start, size, memory, held)
            if buffer is None:
                return False
            memory.arrived(held)
            self.info.has_company = self._parts.now_s() - self._parts.heard_another_s < COMPANY_SECONDS
            alive = await self._answer(memoryview(buffer)[:size])
        finally:
            memory.end(held)
        if size > SCRATCH_BYTES:
            self._parts.buffers.give(buffer)
        return alive

    async def _receive_rest(
        self, start: memoryview, size: int, memory: IncomingMemory, held: Held
    ) -> bytearray | None:
        """Receive up to `size` bytes, the first of which are in `start`; None when the peer has closed."""
        pool = self._parts.buffers
        used = len(start)
        is_checked = used >= API_KEY_BYTES
        if is_checked:
            check_message_size(start, size)
        is_small = used < SCRATCH_BYTES // 2
        buffer = bytearray(start) if is_small else await grown(pool, start, size, memory, held)
        while used < size:
            if not is_checked and used >= API_KEY_BYTES:
                check_message_size(buffer, size)
                is_checked = True
            if self._is_more_there:
                # The rest of a frame that a full read has cut: waiting for it would cost a turn.
                await self._parts.budget.checkpoint()
            else:
                self._transport.expect(size - used)
                await self._wait_for_more()
            if used < SCRATCH_BYTES // 2:
                count = await self._receive_little(buffer, size - used, memory, held)
            else:
                if used == len(buffer):
                    buffer = await grown(pool, buffer, size, memory, held)
                end = min(size, used + GROWTH_BYTES_MAX)
                with memoryview(buffer) as view, view[used:end] as part:
                    count = self._transport.receive_now(part)
            if count == 0:
                self._warn(CUT_SHORT, f"peer closed after {used} of a frame's {size} bytes")
                return None
            if count is None:
                self._is_more_there = False
            else:
                used += count
                self._note_arrival()
                held.moved_s = self.last_active
        self._transport.expect(0)
        # The read that filled the scratch buffer was of this frame: it says nothing of the next one.
        self._is_more_there = False
        return buffer

    async def _receive_little(
        self, buffer: bytearray, missing: int, memory: IncomingMemory, held: Held
    ) -> int | None:
        """Append what is there to a small buffer, by way of the scratch buffer."""
        room = min(missing, SCRATCH_BYTES)
        await memory.grow(held, room)
        scratch = self._parts.buffers.scratch
        count = self._transport.receive_now(scratch[:room])
        if count:
            buffer += scratch[:count]
        memory.shrink(held, room - (count or 0))
        return count

    async def _answer(self, frame: memoryview) -> bool:
        self.answering = True
        try:
            rest = self._parts.pipeline.begin(self.info, self._transport, frame)
        except BaseException:
            self.answering = False
            raise
        if isinstance(rest, Begun):
            self._is_at_once = True
            return await self._answered(rest.rest())
        self._is_at_once = isinstance(rest, bool)
        return await self._answered(rest)

    async def _answered(self, rest: bool | Awaitable[bool]) -> bool:
        """Wait for what is left of an answer; false when the connection must be closed. Raises PeerError, OSError."""
        try:
            return rest if isinstance(rest, bool) else await rest
        finally:
            self.answering = False
            self.last_active = self._parts.now_s()

    def reset(self) -> None:
        """Have the end of this connection be a TCP reset."""
        self._transport.reset()

    def expect_nothing_soon(self) -> None:
        """Count a connection as inactive: it has sent nothing for a while."""
        if self._is_active and not self.answering:
            self._is_active = False
            self._transport.wake()

    # --- a reader that does not keep up, seen by the transport ----------------------------------------------------

    def fell_behind(self, size: int) -> None:
        """Count what of a response stays in memory, beyond what its handler has reserved."""
        self._unsent = Held(self._close_for_memory)
        self._parts.memory.unsent.begin(self._unsent, max(size - self.info.reserved, 0))

    def took_some(self) -> None:
        """Remember that the reader is getting on."""
        self.last_active = self._parts.now_s()
        if self._unsent is not None:
            self._parts.memory.unsent.moved(self._unsent)

    def caught_up(self) -> None:
        """Count no longer what was unread."""
        if self._unsent is not None:
            self._parts.memory.unsent.end(self._unsent)
            self._unsent = None

    def _close_for_memory(self, reason: str) -> None:
        self._warn("connections closed since memory was short", reason)
        self.scope.cancel()

    def _warn(self, kind: str, reason: str) -> None:
        host = self.info.peer_address[0]
        self._parts.log_limit.log(log, logging.WARNING, kind, host, "closing %s: %s", self.info, reason)
