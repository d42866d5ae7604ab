"""Decoding requests and encoding responses that have very many entries, in a thread beside the event loop.

The rule: small messages are processed immediately by the caller; large ones are processed here, one after the other, and
their memory is reserved first. The interpreter switches between the thread and the loop, so the loop is slowed but not
blocked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.serving.meter import count_error_codes
from barnabas.wire.errors import EncodeError
from barnabas.wire.extent import entries_of, has_more_entries
from barnabas.wire.framing import PRODUCE
from barnabas.wire.headers import encode_into, encode_response
from barnabas.wire.primitives import NO_LIMIT
from barnabas.wire.registry import response_codec

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.environment import Threads
    from barnabas.serving.apis import Api
    from barnabas.serving.context import RequestContext
    from barnabas.wire.primitives import Chunk

T = TypeVar("T")

INLINE_BYTES_MAX: Final = 32 * 1024
INLINE_ENTRIES_MAX: Final = 1000
"""Requests and responses with up to this many array entries are decoded and encoded in the event loop.

That takes a millisecond or two. So are Produce requests of any size with as many: their records are not decoded.
"""

CHUNKS_PER_JOIN: Final = 20_000
"""Pieces of an encoded response that are copied together in one call, during which no other thread runs: a millisecond."""
ENTRIES_PER_JOIN: Final = 2_500
"""Entries of a response between two joins of its pieces; counting pieces takes a fifth of a response's time."""

DECODED_FACTOR: Final = 16
"""Approximate growth of a request without records when it is decoded; the exact size is known afterwards."""
UNDECODED_RESERVED_MAX: Final = 16 << 20
ENTRY_BYTES: Final = 512
"""Bytes that an entry of a request takes until it is answered: decoded, its answer, and that encoded, about."""


class JoinedChunks(list["Chunk"]):
    """The chunks of a large response, joined whenever there are many, as many small chunks take more memory.

    The first chunk is kept separate. Lifecycle: `append`, then `join`.
    """

    def __init__(self, joined: Callable[[list[Chunk]], list[Chunk]]) -> None:
        super().__init__()
        self._joined = joined
        self._unjoined = 1  # where those begin that are not joined

    def append(self, chunk: Chunk) -> None:
        """Add a chunk."""
        super().append(chunk)
        if len(self) - self._unjoined >= CHUNKS_PER_JOIN:
            self.join()

    def join(self) -> None:
        """Join the pending chunks."""
        self[self._unjoined :] = self._joined(self[self._unjoined :])
        self._unjoined = len(self)


class CodecWorker:
    """Decodes and encodes large messages, one at a time, as Python does not run two in parallel.

    `entries_max`: the limit on the entries of arrays and tagged fields in a request.
    """

    def __init__(self, threads: Threads, entries_max: int) -> None:
        self._threads = threads
        self._limiter = trio.CapacityLimiter(1)
        self.entries_max = entries_max

    async def decode(self, api: Api, context: RequestContext, frame: memoryview, position: int) -> Any:
        """Decode the body of a large request, and reserve memory for it and its response.

        Raises PeerError, and TooManyEntriesError for more entries than `entries_max`, none of which is kept.
        """
        decode = api.decoders[context.api_version]
        is_produce = api.key == PRODUCE
        reserved = min(len(frame) * DECODED_FACTOR, UNDECODED_RESERVED_MAX)
        await context.reserve(reserved)
        entries_max = NO_LIMIT if _is_of_brokers(api, context) else self.entries_max

        def decoded() -> tuple[Any, int]:
            # single bytes of `bytes` are read in two thirds of the time; only produced records stay in place
            request = decode(frame if is_produce else bytes(frame), position, entries_max)[0]
            return request, entries_of(request)

        request, entries = await self._threads.run(decoded, limiter=self._limiter)
        taken = entries * ENTRY_BYTES + (0 if is_produce else len(frame))
        if taken < reserved:
            context.unreserve(reserved - taken)
        else:
            await context.reserve(taken - reserved)
        return request

    async def run(self, work: Callable[[], T]) -> T:
        """Run a long function in the thread; returns its result, raises its errors."""
        return await self._threads.run(work, limiter=self._limiter)

    async def encode(self, context: RequestContext, response: Any) -> tuple[list[Chunk], dict[int, int]]:
        """Encode a large response, and count its error codes. Raises EncodeError."""

        def encoded() -> tuple[list[Chunk], dict[int, int]]:
            return encode_with_texts_cut(context, response, _encode_joined), count_error_codes(response)

        return await self._threads.run(encoded, limiter=self._limiter)


def encode_with_texts_cut(
    context: RequestContext,
    response: Any,
    encode: Callable[[int, int, int, Any], list[Chunk]] = encode_response,
) -> list[Chunk]:
    """Encode a response; where a string is too long, again with its error texts cut. Raises EncodeError."""
    arguments = context.api_key, context.api_version, context.correlation_id, response
    try:
        return encode(*arguments)
    except EncodeError:
        from barnabas.serving.error_texts import cut_error_texts

        if not cut_error_texts(response):
            raise
    return encode(*arguments)


def _encode_joined(key: int, version: int, correlation_id: int, response: Any) -> list[Chunk]:
    """Encode a large response into few chunks."""
    if not has_more_entries(response, ENTRIES_PER_JOIN):
        return encode_response(key, version, correlation_id, response)
    chunks = JoinedChunks(response_codec(key).joined)
    encode_into(chunks, key, version, correlation_id, response)
    chunks.join()
    return chunks


def _is_of_brokers(api: Api, context: RequestContext) -> bool:
    """Return whether a request is of an API between brokers, from a sender with CLUSTER_ACTION."""
    return api.member_only and context.authorizes(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, is_asked_for=False
    )
