"""One connection: read a frame, answer it, read the next.

The rule: whatever a peer sends, the worst that happens is that *its* connection is closed, with a log line that
says who sent what. Requests are answered in order, so one task per connection is all the state there is.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import trio

from barnabas.broker.dispatch import answer
from barnabas.errors import PeerError, StorageError
from barnabas.wire.framing import SIZE_BYTES, check_frame_size

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.broker.context import ConnectionInfo
    from barnabas.broker.transport import PlainTransport

log = logging.getLogger(__name__)


class Connection:
    """An accepted connection and the task that serves it.

    `answering` is true while a whole request is in hand and its response is not yet sent; `last_active` is the
    monotonic second of the last byte in or response out. `Connections` reads both to close idle connections and to
    drain at shutdown.
    """

    __slots__ = (
        "_broker",
        "_received",
        "_start",
        "_transport",
        "answering",
        "info",
        "last_active",
        "scope",
        "stopping",
    )

    def __init__(self, broker: Broker, transport: PlainTransport, info: ConnectionInfo) -> None:
        self._broker = broker
        self._transport = transport
        # Bytes received and not yet answered: `_received[_start:]` holds the next frames of a pipelining client.
        self._received = b""
        self._start = 0
        self.info = info
        self.answering = False
        self.stopping = False
        self.last_active = time.monotonic()
        self.scope = trio.CancelScope()

    async def serve(self) -> None:
        """Serve until the peer closes, misbehaves, or `scope` is cancelled. Raises nothing but cancellation."""
        try:
            with self.scope:
                while not self.stopping and await self._serve_one():
                    pass
        except PeerError as error:
            log.warning("closing %s: malformed request: %s", self.info, error)
        except OSError as error:
            log.debug("connection %s ended: %s", self.info, error)
        except StorageError as error:
            log.error("closing %s: %s", self.info, error)
        except Exception:
            log.exception("closing %s after an internal error", self.info)
        finally:
            self._transport.close()
            self._broker.connection_closed(self.info.connection_id)

    async def _serve_one(self) -> bool:
        """Read and answer one request; false when the connection is at its end."""
        if len(self._received) - self._start < SIZE_BYTES and not await self._receive_start():
            return False
        data, start = self._received, self._start
        size = check_frame_size(data, start, self._broker.frame_bytes_max)
        end = start + SIZE_BYTES + size
        if end <= len(data):
            self._start = end
            # A copy that may be written to: a leader sets the offsets of a batch in place.
            return await self._answer(memoryview(bytearray(data[start + SIZE_BYTES : end])))
        self._received, self._start = b"", 0
        return await self._serve_large(memoryview(data)[start + SIZE_BYTES :], size)

    async def _receive_start(self) -> bool:
        """Receive until at least a frame's size is there; false when the peer has closed."""
        scratch = self._broker.buffers.scratch
        data = self._received[self._start :]
        while len(data) < SIZE_BYTES:
            count = await self._transport.receive_into(scratch)
            if count == 0:
                if data:
                    log.warning("closing %s: peer closed inside a frame's size field", self.info)
                return False
            # Copied before anything is awaited: another connection's task would reuse the scratch buffer.
            data = data + bytes(scratch[:count]) if data else bytes(scratch[:count])
        self._received, self._start = data, 0
        self.last_active = time.monotonic()
        return True

    async def _serve_large(self, start: memoryview, size: int) -> bool:
        """Receive the rest of a frame that did not come in one read, into a buffer that grows as bytes arrive."""
        pool = self._broker.buffers
        buffer = pool.take(size)
        used = len(start)
        buffer[:used] = start
        while used < size:
            if used == len(buffer):
                buffer = pool.grown(buffer, used, size)
            count = await self._transport.receive_into(memoryview(buffer)[used:size])
            if count == 0:
                log.warning("closing %s: peer closed after %d of a frame's %d bytes", self.info, used, size)
                return False
            used += count
            self.last_active = time.monotonic()
        alive = await self._answer(memoryview(buffer)[:size])
        pool.give(buffer)
        return alive

    async def _answer(self, frame: memoryview) -> bool:
        self.answering = True
        try:
            return await answer(self._broker, self.info, self._transport, frame)
        finally:
            self.answering = False
            self.last_active = time.monotonic()
