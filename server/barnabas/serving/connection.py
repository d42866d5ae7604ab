"""One connection: receive a frame, answer it, receive the next.

The rule: whatever a peer sends, the worst result is that *its* connection is closed, with a log line that names the sender
and the request. Requests are answered in order, so all state is one task per connection. While that task waits among many,
a request that needs no waiting is answered without waking it.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from barnabas.errors import NotLoggedInError, PeerError, StorageError
from barnabas.serving.channel import NO_SECURITY
from barnabas.serving.framing import Frames, PartialFrame
from barnabas.serving.login import wait_after_failure
from barnabas.serving.memory import Held
from barnabas.serving.pacing import UNCOUNTED_BYTES_MAX, Pace, State
from barnabas.serving.request import Request

if TYPE_CHECKING:
    from barnabas.network.transport import Transport
    from barnabas.serving.channel import Channel
    from barnabas.serving.connection_parts import ConnectionParts
    from barnabas.serving.context import ConnectionInfo
    from barnabas.serving.deferred import Deferred
    from barnabas.serving.memory import IncomingMemory

log = logging.getLogger(__name__)

CUT_SHORT = "requests cut short"


class Connection:
    """An accepted connection and the task that serves it.

    `answering` is true from a complete request until its response is sent; `last_active` is the monotonic second of the
    last byte received or response sent. `Connections` reads both to close idle connections and to drain at shutdown.
    """

    __slots__ = (
        "_channel",
        "_failure",
        "_frames",
        "_is_more_there",
        "_on_arrived",
        "_pace",
        "_parts",
        "_request",
        "_task",
        "_transport",
        "_unsent",
        "_wait",
        "_was_quick",
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
        """`on_arrived` is called when the peer has authenticated, where the `channel` asks for that."""
        self._parts = parts
        self._transport = transport
        self._channel = channel
        self._on_arrived = on_arrived
        transport.report_to(self)
        self._unsent: Held | None = None
        self._frames = Frames()
        self._pace = Pace(parts.busy_poll)
        # a request that was begun while the task waits, and its deferred result; None if the task only has to resume
        self._request: Request | None = None
        self._wait: Deferred[Any] | None = None
        self._failure: Exception | None = None
        self._was_quick = False  # whether the last request was answered without waiting
        self._is_more_there = False  # whether the last read filled the buffer
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
                    while not self.stopping and await self._serve_next():
                        if self.info.muted_ms:
                            await self._stay_muted()
                        if not self._frames.is_empty:
                            # A client that pipelines takes turns with the others.
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
            if self._request is not None:
                self._request.cancel()
            self._transport.close()
            self.info.request = None  # which knows its connection: a cycle
            self._parts.on_closed(self.info.connection_id)

    async def _arrive(self) -> bool:
        """Perform the handshake and the login that the listener asks for; false when the connection is at its end.

        Raises PeerError, OSError.
        """
        if self._channel.tls is not None and not await self._shake_hands():
            return False
        login = self.info.login
        while login is not None and not login.is_done:
            if self.stopping or not await self._serve_next():
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

    # --- a request that is served by the task -----------------------------------------------------------------------

    async def _serve_next(self) -> bool:
        """Receive and answer one request; false when the connection is at its end. Raises PeerError, OSError."""
        frames, limit = self._frames, self._frame_bytes_max()
        while not frames.has_size:
            if not await self._receive():
                return False
            if self._request is not None:
                return await self._finish_begun()
        frame: memoryview | None = None
        misframed: PeerError | None = None
        try:
            frame = frames.next(limit)
        except PeerError as error:
            misframed = error
        if misframed is not None:
            await self._fail_login()
            try:
                raise misframed
            finally:
                misframed = None  # which knows this frame: a cycle
        if frame is None:
            return await self._serve_partial(frames.partial(self._parts.pool, limit))
        self._pace.is_small = len(frame) <= UNCOUNTED_BYTES_MAX
        if self._pace.is_small:
            return await self._answer(frame)
        memory, size = self._parts.memory.for_request(len(frame)), len(frame)
        memory.charge(size)
        try:
            return await self._answer(frame)
        finally:
            memory.discharge(size)

    async def _serve_partial(self, partial: PartialFrame) -> bool:
        """Receive the rest of a frame after a partial read, and answer it.

        Holds at most twice the received bytes, and waits for memory before it reads more.
        """
        parts, is_alive = self._parts, False
        self._pace.is_small = partial.size <= UNCOUNTED_BYTES_MAX
        memory = parts.memory.for_request(partial.size)
        held = Held(self._close_for_memory)
        memory.begin(held, partial.used)
        try:
            if not await self._receive_rest(partial, memory, held):
                return False
            memory.arrived(held)
            self.info.is_among_others = parts.arrivals.are_mixed(parts.now_s())
            is_alive = await self._answer(partial.frame())
        finally:
            memory.end(held)
            partial.give_back(is_answered=is_alive)
        return is_alive

    async def _answer(self, frame: memoryview) -> bool:
        """Answer a request; false when the connection must be closed. Raises PeerError, OSError."""
        request = self._parts.begin(self.info, self._transport, frame)
        self.answering = True
        try:
            wait = request.advance()
            self._was_quick = wait is None or request.future is not None
            return request.is_alive if wait is None else await request.finish(wait)
        finally:
            self.answering = False
            self.last_active = self._parts.now_s()

    async def _finish_begun(self) -> bool:
        """Finish a request that was begun while the task waited. Raises PeerError, OSError."""
        request, self._request = self._request, None
        wait, self._wait = self._wait, None
        assert request is not None, "begun"
        try:
            return request.is_alive if wait is None else await request.finish(wait)
        finally:
            self.answering = False
            self.last_active = self._parts.now_s()

    def _frame_bytes_max(self) -> int:
        """Return the size limit of the next frame in bytes; it is lower before a login."""
        login = self.info.login
        return self._parts.frame_bytes_max if login is None or login.is_done else login.offer.frame_bytes_max

    async def _fail_login(self) -> None:
        """Fail a login after a malformed frame, with the same delay as after a wrong token, so that guessing stays slow."""
        login = self.info.login
        if login is not None and not login.is_done:
            login.fail()
            await wait_after_failure(self.info)

    # --- a request that is answered while the task waits ------------------------------------------------------------

    def _arrived(self) -> bool:
        """Answer a request that has arrived while the task waits; return whether work is left for the task.

        That is a deferred answer, the end of the connection, or more or less than one small request.
        """
        try:
            return not self._answer_arrived()
        except Exception as failure:
            return self._has_failed(failure)

    def _answer_arrived(self) -> bool:
        """Answer a received request if that needs no wait; false if work is left. Raises PeerError, OSError."""
        if self._request is not None:
            # More has come before the answer; or the peer has gone, which is seen when that is sent.
            return False
        scratch = self._parts.pool.scratch[:UNCOUNTED_BYTES_MAX]
        count = self._transport.receive_now(scratch)
        if count is None:
            return True
        if count == 0:
            return False  # as the task will see
        self._is_more_there = count == UNCOUNTED_BYTES_MAX
        self._frames.feed(bytes(scratch[:count]))
        self._note_arrival()
        login = self.info.login
        if self._is_more_there or (login is not None and not login.is_done):
            return False
        frame = self._frames.only(UNCOUNTED_BYTES_MAX)
        if frame is None:
            return False
        self._parts.budget.begin_next(self._task)
        self.answering = True
        request = self._request = self._parts.begin(self.info, self._transport, frame)
        self._wait = request.advance()
        future = request.future
        self._was_quick = self._wait is None or future is not None
        if future is not None:
            future.add_done_callback(self._is_answered)
            return True
        return self._sleeps_on(request)

    def _is_answered(self) -> None:
        """Send the answer of the parked request; wake the task if work is left for it."""
        request = self._request
        assert request is not None, "parked"
        try:
            self._wait = request.resume()
            must_wake = not self._sleeps_on(request)
        except Exception as failure:
            must_wake = self._has_failed(failure)
        if must_wake:
            self._transport.wake()

    def _has_failed(self, failure: Exception) -> bool:
        """Leave a failure to the task."""
        self._request = self._wait = None
        self.answering = False
        self._failure = failure
        return True

    def _sleeps_on(self, request: Request) -> bool:
        """Drop a finished request if the task may stay asleep, and return whether it may."""
        if (
            self._wait is not None
            or not request.is_alive
            or self.info.muted_ms
            or self.stopping
            or self._pace.state is State.BUSY_POLLING
        ):
            return False
        self._request = None
        self.answering = False
        self.last_active = self._parts.now_s()
        return True

    # --- receiving --------------------------------------------------------------------------------------------------

    async def _receive(self) -> bool:
        """Receive some bytes, or find a request begun; false when the peer has closed. Raises OSError."""
        parts, transport, frames = self._parts, self._transport, self._frames
        if self._is_more_there:
            await trio.lowlevel.checkpoint()
            await parts.budget.checkpoint()
        else:
            if self._pace.may_poll and parts.budget.may_go_on_after_a_turn:
                # For timers and threads. The client takes as long until it sends its next request.
                await trio.lowlevel.checkpoint()
            if not self._polls():
                await self._wait_for_more(self._arrived if self._pace.is_small and frames.is_empty else None)
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure
                if self._request is not None or frames.has_size:
                    return True
        scratch = parts.pool.scratch
        if parts.memory.requests_are_short:
            scratch = scratch[:UNCOUNTED_BYTES_MAX]
        count = transport.receive_now(scratch)
        if count is None:
            self._is_more_there = False
            return True
        if count == 0:
            if not frames.is_empty:
                self._warn(CUT_SHORT, "peer closed inside a frame's size field")
            return False
        # A client that pipelines has usually sent the next requests already.
        self._is_more_there = count == len(scratch)
        # Copied before anything is awaited: another connection's task would use the scratch buffer.
        frames.feed(bytes(scratch[:count]))
        self._note_arrival()
        return True

    async def _receive_rest(self, partial: PartialFrame, memory: IncomingMemory, held: Held) -> bool:
        """Receive all of a frame; false when the peer has closed. Raises PeerError, OSError."""
        while partial.missing:
            if self._is_more_there:
                # The rest of a frame that a full read has cut: waiting for it would cost an iteration.
                await self._parts.budget.checkpoint()
            else:
                self._transport.expect(partial.missing)
                await self._wait_for_more()
            if needed := partial.needed:
                await memory.grow(held, needed)
            with partial.target() as target:
                count = self._transport.receive_now(target)
            if unused := partial.received(count or 0):
                memory.shrink(held, unused)
            if count == 0:
                self._warn(CUT_SHORT, f"peer closed after {partial.used} of a frame's {partial.size} bytes")
                return False
            if count is None:
                self._is_more_there = False
            else:
                self._note_arrival()
                held.moved_s = self.last_active
        self._transport.expect(0)
        # the read that filled the scratch buffer was of this frame, and tells nothing about the next
        self._is_more_there = False
        return True

    async def _wait_for_more(self, arrived: Callable[[], bool] | None = None) -> None:
        """Wait until bytes may be readable, in a loop iteration that has time for them."""
        budget, state = self._parts.budget, self._pace.state
        # To be answered among many takes less than to be woken, also where there are few.
        is_answered_there = arrived is not None and self._was_quick and state is not State.BUSY_POLLING
        is_active = state is not State.IDLE
        await self._transport.wait_readable(
            soon=is_active, is_crowded=budget.is_crowded or is_answered_there, arrived=arrived
        )
        if budget.is_used_up:
            # Before anything is read: a connection that waits holds no memory for it.
            await budget.admit(is_active=self._pace.state is not State.IDLE)

    def _polls(self) -> bool:
        """Busy-poll for the next request; returns whether it has arrived, and may be read without a loop iteration.

        An iteration costs more than a small request itself. It is skipped where no other work is due: no task can run, no
        other connection has sent anything, and the iteration is young.
        """
        pace, budget = self._pace, self._parts.budget
        seconds = pace.poll_seconds
        if not seconds or not budget.may_go_on:
            return False
        is_found = self._transport.is_only_readable(seconds)
        pace.polled(is_found=is_found)
        if is_found:
            budget.begin_next()
        return is_found

    def _note_arrival(self) -> None:
        now_s = self._parts.now_s()
        self._pace.arrived(
            now_s - self.last_active,
            is_first=self.info.request is None,
            is_alone=self._parts.arrivals.is_alone(self.info.connection_id, now_s),
        )
        self.last_active = now_s

    def reset(self) -> None:
        """Make the end of this connection a TCP reset."""
        self._transport.reset()

    def expect_nothing_soon(self) -> None:
        """Count a connection as inactive: it has sent nothing for a while."""
        if not self.answering and self._pace.expect_nothing_soon():
            self._transport.wake()

    # --- a reader that does not keep up, seen by the transport ----------------------------------------------------

    def fell_behind(self, size: int) -> None:
        """Count the bytes of a response that stay in memory, beyond the handler's reservation."""
        self._unsent = Held(self._close_for_memory)
        self._parts.memory.unsent.begin(self._unsent, max(size - self.info.reserved, 0))

    def took_some(self) -> None:
        """Remember that the reader is getting on."""
        self.last_active = self._parts.now_s()
        if self._unsent is not None:
            self._parts.memory.unsent.moved(self._unsent)

    def caught_up(self) -> None:
        """Stop counting the unread bytes."""
        if self._unsent is not None:
            self._parts.memory.unsent.end(self._unsent)
            self._unsent = None

    def _close_for_memory(self, reason: str) -> None:
        self._warn("connections closed since memory was short", reason)
        self.scope.cancel()

    def _warn(self, kind: str, reason: str) -> None:
        host = self.info.peer_address[0]
        self._parts.log_limit.log(log, logging.WARNING, kind, host, "closing %s: %s", self.info, reason)
