"""One request, from its frame to the answer that is sent: an object that runs until it must wait.

`STAGES`, at the end, is its table of contents. The rule: every request of every API takes these stages in this order,
whether one of them waits or none does. A stage does its part and returns None, or a `Deferred` with the part of it that
takes waiting. `advance` runs stages until one must wait, and says for what. Whoever drives the request awaits that with
`finish`, or has a `Future` call back and goes on with `resume`.

A stage before `_intercept` refuses by setting `_error`: the request is decoded, and `_check` refuses it, or `_answer`
where there is an interceptor. A response that the stage made itself would be replaced by that of the interceptor.

The table in `apis` decides what is served: a request for anything else closes the connection, as Kafka does, except
ApiVersions, whose unsupported versions are answered with the supported ones (KIP-511).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.errors import PeerError, RequestError, StorageError
from barnabas.network.sockets import in_memory
from barnabas.serving import apis
from barnabas.serving.context import RequestContext, shown_client
from barnabas.serving.deferred import Deferred, Future
from barnabas.serving.encoding import INLINE_BYTES_MAX, INLINE_ENTRIES_MAX
from barnabas.serving.last_request import AFTER_CORRELATION_ID, BYTES_MAX, LastRequest
from barnabas.serving.login import answer_token, out_of_turn, wait_after_failure
from barnabas.serving.meter import count_error_codes
from barnabas.wire import registry
from barnabas.wire.errors import TooManyEntriesError
from barnabas.wire.extent import has_more_entries
from barnabas.wire.framing import PRODUCE, api_key_of
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import RequestHeader, encode_response, parse_request_header, response_start
from barnabas.wire.regions import Chunk, FileRegion

if TYPE_CHECKING:
    from barnabas.network.transport import Transport
    from barnabas.serving.context import ConnectionInfo
    from barnabas.serving.request_parts import RequestParts

log = logging.getLogger(__name__)

NO_CODES: Final[Mapping[int, int]] = {}
NO_CHUNKS: Final[list[Chunk]] = []
NO_FRAME: Final = memoryview(b"")
NOT_READ: Final = -1
NO_API: Final = apis.Api(NOT_READ, 0, 0)
"""Stands for the API of a request whose header is not read."""
NO_HEADER: Final = RequestHeader(NOT_READ, NOT_READ, 0, None, 0, None)


class Request(RequestContext):
    """A request in hand.

    `message` is the decoded request, `response` its answer, `chunks` that answer encoded: none where nothing is answered.
    `is_alive` says whether the connection goes on after it; `future` is what it is parked on, if that calls back.
    """

    __slots__ = (
        "_error",
        "_handle",
        "_header",
        "_is_handling",
        "_is_responded",
        "_last",
        "_parts",
        "_stage",
        "_started_s",
        "api",
        "chunks",
        "codes",
        "frame",
        "future",
        "is_alive",
        "message",
        "response",
        "size",
        "transport",
    )

    def __init__(
        self, parts: RequestParts, connection: ConnectionInfo, transport: Transport, frame: memoryview
    ) -> None:
        super().__init__(parts.shared, connection, NOT_READ, NOT_READ, 0, None, 0)
        self._parts = parts
        self._stage = 0  # the next one
        self._header = NO_HEADER
        self._started_s = 0.0
        self._handle: Callable[[RequestContext, Any], Any] | None = None
        self._error: RequestError | None = None  # with which it is refused once it is decoded
        self._is_handling = False  # whether what it waits for is its response
        self._is_responded = False
        self._last: LastRequest | None = None  # its connection's last heartbeat, if it is one
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
        """Run stages; return what must be awaited before the next one, None at the end. Raises PeerError, OSError."""
        try:
            while self._stage < len(STAGES):
                stage = STAGES[self._stage]
                self._stage += 1
                wait = stage(self)
                if wait is not None:
                    return wait
        except BaseException:
            self.close()
            raise
        self.close()
        return None

    def resume(self) -> Deferred[Any] | None:
        """Take the result of the future that has called back, and go on. As `advance`."""
        future, self.future = self.future, None
        assert future is not None, "parked on a future"
        wait: Deferred[Any] | None = None
        try:
            result = future.result()
        except Exception as error:
            self._is_handling = False
            wait = self._refuse(error)
        else:
            if isinstance(result, Deferred):
                return result
            self._is_handling = False
            self._respond(result)
        return self.advance() if wait is None else wait

    async def finish(self, wait: Deferred[Any] | None) -> bool:
        """Await what it waits for, and run all stages that are left; false when the connection must be closed.

        Raises PeerError, OSError.
        """
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
        """Await what a stage waits for; return what must be awaited after it."""
        if not self._is_handling:
            await wait.wait()
            return None
        failure: Exception | None = None
        try:
            self._respond(await wait.wait())
        except Exception as error:
            failure = error
        self._is_handling = False
        return None if failure is None else self._refuse(failure)

    def cancel(self) -> None:
        """Drop its answer: the connection is gone."""
        if self.future is not None:
            self.future.cancel()
            self.future = None
        self.close()

    def close(self) -> None:
        """Give back what it holds: memory reserved for its response, the count of its time, its bytes.

        Its connection keeps it until the next one, to say what it was.
        """
        if self.quotas is not None:
            self.quotas.end()
            self.quotas = None
        if self.reservation is not None:
            self.reservation.reduce(self.reservation.size)
        self.frame, self.message, self.response, self.chunks = NO_FRAME, None, None, NO_CHUNKS
        self._last = self.last_response = None

    def _respond(self, response: Any) -> None:
        """Take the response, None where nothing is answered."""
        self.response, self._is_responded = response, True

    def _end(self, *, is_alive: bool) -> None:
        """Leave out the stages that are left."""
        self._stage = len(STAGES)
        self.is_alive = is_alive

    # --- before it is known which request it is ----------------------------------------------------------------

    def _take_token(self) -> Deferred[None] | None:
        """Answer a frame that is a bare token of a login (SaslHandshake v0)."""
        login = self.connection.login
        if login is None or not login.expects_token(is_known_api=registry.is_known(api_key_of(self.frame))):
            return None
        return Deferred(self._answer_token)

    async def _answer_token(self) -> None:
        """Answer a token with one, if any; a login that has failed ends the connection."""
        answer, is_alive = await answer_token(
            self.connection, bytes(self.frame), self._parts.clock_ms, self.shared.log_limit
        )
        self._end(is_alive=is_alive)
        if answer is not None:
            await self.transport.send([len(answer).to_bytes(4, "big") + answer])

    def _read_header(self) -> None:
        """Read which API it is, in which version. Raises PeerError for what is not served, or not before a login."""
        parts, connection = self._parts, self.connection
        last = connection.last_request
        if last is not None and last.is_repeated_by(self.frame):
            self._last, self.message, header = last, last.message, last.header
            if parts.interceptor is None and not (self.shared.quotas and self.shared.quotas.is_set):
                self.last_response = last.response  # which nobody changes on its way
        else:
            header = parse_request_header(self.frame)
        if connection.login is not None:
            self._error = out_of_turn(connection.login, header)
        api = parts.served.get(header.api_key)
        if api is None or not api.min_version <= header.api_version <= api.max_version:
            self._answer_unserved(header)
            return
        self.api = api
        self.api_key = header.api_key
        self.api_version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.now_ms = parts.clock_ms()
        self._header = header
        if parts.meter is not None:
            self._started_s = parts.now_s()
        connection.request = self

    def _answer_unserved(self, header: RequestHeader) -> None:
        """Tell which versions of ApiVersions there are, and nothing else. Raises PeerError for any other API."""
        if header.api_key != apis.API_VERSIONS or header.api_key not in self._parts.served:
            client = f"client {shown_client(header.client_id)}"
            reason = apis.refusal(self._parts.served, header.api_key, header.api_version, client)
            raise PeerError(f"{reason} (correlation id {header.correlation_id})")
        from barnabas.serving.error_responses import unsupported_version

        response = unsupported_version(self._parts.served[header.api_key], self._parts.release)
        self.chunks = encode_response(header.api_key, 0, header.correlation_id, response)
        self.is_alive = self._error is None
        self._stage = STAGES.index(Request._send)

    def _find_handler(self) -> Deferred[None] | None:
        """Find the handler, also of a request that is refused: it is decoded with what is loaded then."""
        self._handle = self._parts.handlers.made.get(self.api_key)
        return None if self._handle is not None else Deferred(self._make_handler)

    async def _make_handler(self) -> None:
        """Make the handler. Where the API is not served yet the connection is reset, which is no SASL error to franz-go."""
        if self._parts.handlers.is_served(self.api):
            self._handle = await self._parts.handlers.make(self.api)
        else:
            self.transport.reset()
            self._end(is_alive=False)

    def _begin_quotas(self) -> None:
        """Count what the request takes of its client's quotas, where anybody has one."""
        quotas, connection = self.shared.quotas, self.connection
        if quotas is not None and quotas.is_set and (connection.login is None or connection.login.is_done):
            self.quotas = quotas.begin(connection.user, self.client_id, self.api_key)

    # --- from the message to its response ------------------------------------------------------------------------

    def _decode(self) -> Deferred[None] | None:
        """Decode the body; in a thread if it is large. Raises PeerError."""
        api, frame = self.api, self.frame
        if self._last is not None:
            return None
        is_produce = api.key == PRODUCE
        if len(frame) <= INLINE_BYTES_MAX or is_produce:
            # Single bytes of these are read in two thirds of the time. Only what is produced stays where it lies.
            data = frame if is_produce else bytes(frame)
            try:
                decode = api.decoders[self.api_version]
                self.message, _ = decode(data, self._header.body_position, INLINE_ENTRIES_MAX)
                if api.key in apis.HEARTBEATS and len(frame) <= BYTES_MAX:
                    self._last = self.connection.last_request = LastRequest(frame, self._header, self.message)
                return None
            except TooManyEntriesError:
                pass
            except PeerError as error:
                raise self._malformed(error) from error
        return Deferred(self._decode_aside)

    async def _decode_aside(self) -> None:
        try:
            self.message = await self._parts.codecs.decode(
                self.api, self, self.frame, self._header.body_position
            )
        except TooManyEntriesError as error:
            self._refuse_entries(error)
        except PeerError as error:
            raise self._malformed(error) from error

    def _malformed(self, error: PeerError) -> PeerError:
        """Return the error of a request that cannot be decoded, with what it is."""
        return PeerError(
            f"{self.api.name} v{self.api_version} (correlation id {self.correlation_id}) "
            f"from client {shown_client(self.client_id)}: {error}"
        )

    def _refuse_entries(self, error: TooManyEntriesError) -> None:
        """Answer a request with too many entries, none of which is known. Raises PeerError if it can be told nowhere."""
        from barnabas.serving.error_responses import top_level_response

        problem = (
            f"{self.size:,} bytes with more than {self._parts.codecs.entries_max:,} entries, "
            "which max.request.entries allows"
        )
        response = top_level_response(self.api, self.api_version, ErrorCode.INVALID_REQUEST, problem)
        if response is None:  # errors stand beside each entry: such an answer is as large as what is refused
            raise self._malformed(PeerError(problem)) from error
        self.log(log, logging.WARNING, "requests with too many entries", "refused %s", problem)
        self._respond(response)
        self._stage = STAGES.index(Request._encode)

    def _intercept(self) -> Deferred[Any] | None:
        """Let an interceptor answer, if there is one: it may have the request checked and handled."""
        interceptor = self._parts.interceptor
        if interceptor is None:
            return None
        self._is_handling = True
        return Deferred(partial(interceptor, self, self.message, self._answer))

    async def _answer(self, context: RequestContext, message: Any) -> Any:
        """Check and handle a request for an interceptor, which may have changed it. Raises RequestError."""
        if self._error is not None:
            raise self._error
        return await self._parts.handlers.answer(self.api, context, message)

    def _check(self) -> Deferred[None] | None:
        """Refuse the whole request where its login, a feature, the authorizer or the controller's place demands it."""
        api = self.api
        if self._is_responded or (self._error is None and not api.is_conditional):
            return None
        try:
            if self._error is not None:
                raise self._error
            self._parts.handlers.check(api, self, self.message)
        except Exception as error:
            return self._refuse(error)
        return None

    def _have_handled(self) -> Deferred[Any] | None:
        """Have the handler respond."""
        if self._is_responded:
            return None
        assert self._handle is not None, "found"
        try:
            response = self._handle(self, self.message)
        except Exception as error:
            return self._refuse(error)
        if isinstance(response, Deferred):
            self._is_handling = True
            self.future = response if isinstance(response, Future) else None
            return response
        self._respond(response)
        return None

    def _refuse(self, error: Exception) -> Deferred[None] | None:
        """Respond with an error for all that was asked; of a large request that is made in a thread.

        An error that is no refusal is our own, and logged.
        """
        if isinstance(error, StorageError):
            error = self._parts.failures.failed(error)
        code, text = int(ErrorCode.UNKNOWN_SERVER_ERROR), ""
        if isinstance(error, RequestError):
            code, text = error.code, error.message
        else:
            log.error("internal error in %s", self, exc_info=error)
        if has_more_entries(self.message, INLINE_ENTRIES_MAX):
            return Deferred(partial(self._refuse_aside, code, text))
        self._respond(self._failed(code, text))
        return None

    async def _refuse_aside(self, code: int, text: str) -> None:
        self._respond(await self._parts.codecs.run(lambda: self._failed(code, text)))

    def _failed(self, code: int, text: str) -> object:
        """Return the API's own response with the error in every place where a client looks for it."""
        from barnabas.serving.error_responses import error_response

        return error_response(self.api, self, self.message, code, text)

    def _throttle(self) -> None:
        """Charge the client's quotas; tell a client that is over one, and mute its connection."""
        if self.quotas is None:
            return
        throttle_ms = self.quotas.throttle_ms(self.message, self.size)
        if throttle_ms:
            self.connection.muted_ms = throttle_ms
            if hasattr(self.response, "throttle_time_ms"):
                self.response.throttle_time_ms = throttle_ms

    # --- from the response to its bytes --------------------------------------------------------------------------

    def _encode(self) -> Deferred[None] | None:
        """Encode the response; in a thread if it is large."""
        response, last = self.response, self._last
        if response is None:
            return None
        if last is not None and (response is last.response or response == last.response):
            self.chunks = [response_start(len(last.body), self.correlation_id) + last.body]
            self.codes = last.codes
            return None
        if has_more_entries(response, INLINE_ENTRIES_MAX):
            return Deferred(self._encode_aside)
        try:
            self.chunks = encode_response(self.api_key, self.api_version, self.correlation_id, response)
        except Exception:
            self._encode_failure()
        else:
            if self._parts.meter is not None:
                if self.api_key == apis.FETCH:
                    self._parts.meter.fetched(response)
                self.codes = count_error_codes(response)
            if last is not None:
                last.keep(response, bytes(self.chunks[0])[AFTER_CORRELATION_ID:], self.codes)  # type: ignore[arg-type]
        self._keep_bytes_alone()
        return None

    async def _encode_aside(self) -> None:
        response = self.response
        try:
            self.chunks, self.codes = await self._parts.codecs.encode(self, response)
        except Exception:
            self._encode_failure()
        else:
            if self._parts.meter is not None and self.api_key == apis.FETCH:
                for _ in self._parts.meter.fetched_in_steps(response):
                    await self._parts.budget.checkpoint()
        del response  # to drop all of it takes a while, and so does the request after it
        self.response = None
        await self._parts.budget.checkpoint()
        self._keep_bytes_alone()

    def _encode_failure(self) -> None:
        """Answer with an error that the client can act on, since ours cannot be written. Called while it is handled."""
        log.exception("the answer cannot be written: %s", self)
        response = self._failed(ErrorCode.UNKNOWN_SERVER_ERROR, "")
        if response is None:
            self._end(is_alive=False)
            return
        self.chunks = encode_response(self.api_key, self.api_version, self.correlation_id, response)
        if self._parts.meter is not None:
            self.codes = count_error_codes(response)

    def _keep_bytes_alone(self) -> None:
        """Drop request and response: while a slow client reads, only the bytes for it are held."""
        self.message = self.response = None
        if self.reservation is not None:
            self.reservation.reduce_to(
                sum([len(one) for one in self.chunks if not isinstance(one, FileRegion)])
            )

    def _send(self) -> Deferred[None] | None:
        """Send the answer, if there is any. Raises OSError."""
        login = self.connection.login
        if (login is not None and login.has_failed) or self._parts.sender is not None:
            return Deferred(self._send_slowly)
        if not self.chunks:
            return None
        data = in_memory(self.chunks)
        if data is None:
            return Deferred(partial(self.transport.send, self.chunks))
        sent = self.transport.send_now(data)
        if sent == len(data):
            return None
        return Deferred(partial(self.transport.send, [memoryview(data)[sent:]]))

    async def _send_slowly(self) -> None:
        """Send after a failed login, which has the client wait, or by what stands in for the transport."""
        login = self.connection.login
        if login is not None and login.has_failed:
            self.close_after_response = True
            await wait_after_failure(self.connection)
        if self._parts.sender is not None:
            if not await self._parts.sender(self, self.transport, self.chunks):
                self._end(is_alive=False)
        elif self.chunks:
            await self.transport.send(self.chunks)

    def _count(self) -> None:
        """Count the request, where somebody reads the counts."""
        if self._parts.meter is not None and self.api_key != NOT_READ:
            self._parts.meter.answered(
                self.api.name,
                self.api_version,
                self.codes,
                self.size,
                sum([len(chunk) for chunk in self.chunks]),
                self._parts.now_s() - self._started_s,
            )
        if self.close_after_response:
            self.is_alive = False


STAGES: Final[tuple[Callable[[Request], Deferred[Any] | None], ...]] = (
    Request._take_token,
    Request._read_header,
    Request._find_handler,
    Request._begin_quotas,
    Request._decode,
    Request._intercept,
    Request._check,
    Request._have_handled,
    Request._throttle,
    Request._encode,
    Request._send,
    Request._count,
)
