"""Decoding requests and encoding responses that have very many entries, in a thread beside the event loop.

The rule: what is small is done at once by whoever asks; what is large is done here, one after the other, and its memory
is reserved before. The interpreter switches between the thread and the loop, so the loop is slowed but not held up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from barnabas.errors import PeerError
from barnabas.metrics.meter import count_error_codes
from barnabas.wire.extent import produces_to_more
from barnabas.wire.framing import PRODUCE
from barnabas.wire.headers import encode_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.apis import Api
    from barnabas.environment import Threads
    from barnabas.requests.context import RequestContext
    from barnabas.wire.primitives import Chunk

T = TypeVar("T")

INLINE_BYTES_MAX: Final = 32 * 1024
"""Requests up to this size are decoded at once: that takes 5 ms at worst."""

INLINE_ENTRIES_MAX: Final = 1000
"""Responses with so many entries of arrays are encoded at once, and so are requests to produce to so many partitions."""

PRODUCED_ENTRIES_MAX = 100_000
"""Topics and partitions of one Produce request; more could not be decoded in bounded memory."""

DECODED_FACTOR = 16
"""How much larger a request without records becomes when it is decoded, about."""


class CodecWorker:
    """Decodes and encodes what is large. One at a time: Python does no two at once."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._limiter = trio.CapacityLimiter(1)

    async def decode(self, api: Api, context: RequestContext, frame: memoryview, position: int) -> Any:
        """Decode the body of a request of more than INLINE_BYTES_MAX bytes. Raises PeerError."""
        decode = api.decoders[context.api_version]
        if api.key != PRODUCE:
            await context.reserve(len(frame) * DECODED_FACTOR)
        elif not produces_to_more(frame, position, context.api_version, INLINE_ENTRIES_MAX):
            return decode(frame, position)[0]

        def decoded() -> Any:
            if api.key == PRODUCE and produces_to_more(
                frame, position, context.api_version, PRODUCED_ENTRIES_MAX
            ):
                raise PeerError(f"names more than {PRODUCED_ENTRIES_MAX} topics and partitions")
            return decode(frame, position)[0]

        return await self._threads.run(decoded, limiter=self._limiter)

    async def run(self, work: Callable[[], T]) -> T:
        """Do what is long by the size of a message, in the thread; returns what it returns, raises what it raises."""
        return await self._threads.run(work, limiter=self._limiter)

    async def encode(self, context: RequestContext, response: Any) -> tuple[list[Chunk], dict[int, int]]:
        """Encode a large response, and count its error codes. Raises EncodeError."""

        def encoded() -> tuple[list[Chunk], dict[int, int]]:
            chunks = encode_response(context.api_key, context.api_version, context.correlation_id, response)
            return chunks, count_error_codes(response)

        return await self._threads.run(encoded, limiter=self._limiter)
