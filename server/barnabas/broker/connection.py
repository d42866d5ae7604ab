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

    `busy` is true from a frame's first byte until its response has been sent; `last_active` is the monotonic
    second at which that last changed. The listener reads both to close idle connections and to drain at shutdown.
    """

    __slots__ = ("_broker", "_carry", "_transport", "busy", "info", "last_active", "scope", "stopping")

    def __init__(self, broker: Broker, transport: PlainTransport, info: ConnectionInfo) -> None:
        self._broker = broker
        self._transport = transport
        self._carry = b""
        self.info = info
        self.busy = False
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

    async def _serve_one(self) -> bool:
        """Read and answer one request; false when the connection is at its end."""
        data = self._carry
        if len(data) < SIZE_BYTES:
            data = await self._receive_start(data)
            if not data:
                return False
        self._mark(busy=True)
        size = check_frame_size(data, self._broker.frame_bytes_max)
        end = SIZE_BYTES + size
        if end <= len(data):
            self._carry = data[end:]
            alive = await answer(self._broker, self.info, self._transport, memoryview(bytearray(data[SIZE_BYTES:end])))
        else:
            self._carry = b""
            alive = await self._serve_large(data, size)
        self._mark(busy=False)
        return alive

    async def _receive_start(self, data: bytes) -> bytes:
        """Receive until at least a frame's size is there; empty when the peer closed between two frames."""
        scratch = self._broker.buffers.scratch
        while len(data) < SIZE_BYTES:
            count = await self._transport.receive_into(scratch)
            if count == 0:
                if data:
                    log.warning("closing %s: peer closed inside a frame's size field", self.info)
                return b""
            # Copied at once, before any other connection's task can run and reuse the scratch buffer.
            data = data + bytes(scratch[:count]) if data else bytes(scratch[:count])
        return data

    async def _serve_large(self, start: bytes, size: int) -> bool:
        """Receive the rest of a frame that did not come in one read, into a buffer that grows as bytes arrive."""
        pool = self._broker.buffers
        buffer = pool.take(size)
        used = len(start) - SIZE_BYTES
        if used > len(buffer):
            buffer = pool.grown(buffer, 0, size)
        buffer[:used] = memoryview(start)[SIZE_BYTES:]
        while used < size:
            if used == len(buffer):
                buffer = pool.grown(buffer, used, size)
            count = await self._transport.receive_into(memoryview(buffer)[used:size])
            if count == 0:
                log.warning("closing %s: peer closed after %d of a frame's %d bytes", self.info, used, size)
                return False
            used += count
            self.last_active = time.monotonic()
        alive = await answer(self._broker, self.info, self._transport, memoryview(buffer)[:size])
        pool.give(buffer)
        return alive

    def _mark(self, *, busy: bool) -> None:
        self.busy = busy
        self.last_active = time.monotonic()
