"""One request, from its frame to the sent response: an object that runs until it must wait.

`advance` runs its stages (`serving/stages.py`) until one must wait, and returns the awaitable. The driver of the request
awaits it with `finish`, or registers a callback of a `Future` and continues with `resume`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.errors import RequestError, StorageError, UnansweredError
from barnabas.serving import apis
from barnabas.serving.context import RequestContext
from barnabas.serving.deferred import Deferred, Future
from barnabas.serving.encoding import INLINE_ENTRIES_MAX
from barnabas.wire.extent import has_more_entries
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import RequestHeader

if TYPE_CHECKING:
    from barnabas.network.transport import Transport
    from barnabas.serving.context import ConnectionInfo
    from barnabas.serving.last_request import LastRequest
    from barnabas.serving.request_parts import RequestParts
    from barnabas.wire.regions import Chunk

log = logging.getLogger(__name__)

NO_CODES: Final[Mapping[int, int]] = {}
NO_CHUNKS: Final[list[Chunk]] = []
NO_FRAME: Final = memoryview(b"")
NOT_READ: Final = -1
NO_API: Final = apis.Api(NOT_READ, 0, 0)
"""Stands for the API of a request before its header is read."""
NO_HEADER: Final = RequestHeader(NOT_READ, NOT_READ, 0, None, 0, None)

Stage = Callable[["Request"], "Deferred[Any] | None"]
"""Does its part of a request; its result must be awaited before the next stage."""


class Request(RequestContext):
    """A request in progress.

    `message` is the decoded request, `response` the response, `chunks` the encoded response: empty without a response.
    `refusal` is the error with which it is refused once it is decoded. `last_heartbeat` is the last one of its connection,
    if it is a heartbeat. `is_alive`: whether the connection continues after it. `future` is the result that it waits for,
    if that has callbacks.
    """

    __slots__ = (
        "_next",
        "_stages",
        "api",
        "chunks",
        "codes",
        "frame",
        "future",
        "handler",
        "header",
        "is_alive",
        "is_handling",
        "is_responded",
        "last_heartbeat",
        "message",
        "parts",
        "refusal",
        "response",
        "size",
        "started_s",
        "transport",
    )

    def __init__(
        self,
        stages: tuple[Stage, ...],
        parts: RequestParts,
        connection: ConnectionInfo,
        transport: Transport,
        frame: memoryview,
    ) -> None:
        super().__init__(parts.shared, connection, NOT_READ, NOT_READ, 0, None, 0)
        self.parts = parts
        self._stages = stages
        self._next = 0
        self.header = NO_HEADER
        self.started_s = 0.0
        self.handler: Callable[[RequestContext, Any], Any] | None = None
        self.refusal: RequestError | None = None
        self.is_handling = False  # whether it waits for its response
        self.is_responded = False
        self.last_heartbeat: LastRequest | None = None
        self.transport = transport
        self.frame = frame
        self.size = len(frame)
        self.api = NO_API
        self.message: Any = None
        self.response: Any = None
        self.future: Future[Any] | None = None
        self.chunks = NO_CHUNKS
        self.codes = NO_CODES
        self.is_alive = True

    # --- running ----------------------------------------------------------------------------------------------------

    def advance(self) -> Deferred[Any] | None:
        """Run stages; return the awaitable that the next stage needs, None at the end. Raises PeerError, OSError."""
        try:
            while self._next < len(self._stages):
                stage = self._stages[self._next]
                self._next += 1
                wait = stage(self)
                if wait is not None:
                    return wait
        except BaseException:
            self.close()
            raise
        self.close()
        return None

    def resume(self) -> Deferred[Any] | None:
        """Take the result of the future that has called back, and resume. As `advance`."""
        future, self.future = self.future, None
        assert future is not None, "parked on a future"
        wait: Deferred[Any] | None = None
        try:
            result = future.result()
        except Exception as error:
            self.is_handling = False
            wait = self.refuse(error)
        else:
            if isinstance(result, Deferred):
                return result
            self.is_handling = False
            self.respond(result)
        return self.advance() if wait is None else wait

    async def finish(self, wait: Deferred[Any] | None) -> bool:
        """Await the present stage, and run all remaining ones; false if the connection must be closed. Raises PeerError,
        OSError."""
        try:
            while wait is not None:
                self.future = None
                wait = await self._awaited(wait)
                if wait is None:
                    wait = self.advance()
        finally:
            self.close()
        return self.is_alive

    async def _awaited(self, wait: Deferred[Any]) -> Deferred[Any] | None:
        """Await the present stage; return the next awaitable."""
        if not self.is_handling:
            await wait.wait()
            return None
        failure: Exception | None = None
        try:
            self.respond(await wait.wait())
        except UnansweredError:
            raise
        except Exception as error:
            failure = error
        self.is_handling = False
        return None if failure is None else self.refuse(failure)

    def cancel(self) -> None:
        """Drop its response: the connection is closed."""
        if self.future is not None:
            self.future.cancel()
            self.future = None
        self.close()

    def close(self) -> None:
        """Release its resources: memory reserved for its response, the count of its time, its bytes.

        Its connection refers to it until the next request, for messages about it.
        """
        if self.quotas is not None:
            self.quotas.end()
            self.quotas = None
        if self.reservation is not None:
            self.reservation.reduce(self.reservation.size)
        self.frame, self.message, self.response, self.chunks = NO_FRAME, None, None, NO_CHUNKS
        self.last_heartbeat = self.last_response = None

    def respond(self, response: Any) -> None:
        """Take the response, None where nothing is answered."""
        self.response, self.is_responded = response, True

    def skip_to(self, stage: Stage) -> None:
        """Skip the stages before this one."""
        self._next = self._stages.index(stage)

    def end(self, *, is_alive: bool) -> None:
        """Leave out the stages that are left."""
        self._next = len(self._stages)
        self.is_alive = is_alive

    def refuse(self, error: Exception) -> Deferred[None] | None:
        """Respond with an error for the whole request; a large response is built in a thread.

        An error that is no refusal is a bug, and logged.
        """
        if isinstance(error, StorageError):
            error = self.parts.failures.failed(error)
        code, text = int(ErrorCode.UNKNOWN_SERVER_ERROR), ""
        if isinstance(error, RequestError):
            code, text = error.code, error.message
        else:
            log.error("internal error in %s", self, exc_info=error)
        if has_more_entries(self.message, INLINE_ENTRIES_MAX):
            return Deferred(partial(self._refuse_aside, code, text))
        self.respond(self.failed(code, text))
        return None

    async def _refuse_aside(self, code: int, text: str) -> None:
        self.respond(await self.parts.codecs.run(lambda: self.failed(code, text)))

    def failed(self, code: int, text: str) -> object:
        """Return the API's own response with the error in every place where a client looks for it."""
        from barnabas.serving.error_responses import error_response

        return error_response(self.api, self, self.message, code, text)
