"""The way of a request: header, connection state, decode, interception, authorisation, handler, response, throttle.

The rule: every request of every API takes these stages, in this order, and `Pipeline.answer` names them all.
`Pipeline.begin` takes those that are left where nothing is to be waited for: no login in progress, no quotas, nobody
around the handlers, and one that answers at once. The table in `apis` decides what is served: a request for anything
else closes the connection, as Kafka does, except ApiVersions, whose unsupported versions are answered with the supported
ones (KIP-511).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from barnabas import apis
from barnabas.broker.begun import Begun
from barnabas.broker.binding import Begin, Handler, answers_at_once, begun_by, load, ready
from barnabas.broker.codecs import INLINE_BYTES_MAX, INLINE_ENTRIES_MAX
from barnabas.broker.repeated_answers import AFTER_CORRELATION_ID, RepeatedAnswers
from barnabas.errors import NotLoggedInError, PeerError, RequestError, StorageError
from barnabas.later import Later
from barnabas.metrics.meter import count_error_codes
from barnabas.network.sockets import in_memory
from barnabas.requests.context import RequestContext, Shared, shown_client
from barnabas.requests.last_request import BYTES_MAX, LastRequest
from barnabas.requests.login import token_answered, wait_after_failure
from barnabas.security.sasl.mechanism import LoginFailedError
from barnabas.wire import registry
from barnabas.wire.errors import TooManyEntriesError
from barnabas.wire.extent import has_more_entries
from barnabas.wire.framing import PRODUCE, api_key_of
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import encode_response, parse_request_header, response_start
from barnabas.wire.regions import Chunk, FileRegion

if TYPE_CHECKING:
    from barnabas.broker.codecs import CodecWorker
    from barnabas.broker.services import Services
    from barnabas.metrics.meter import RequestMeter
    from barnabas.network.transport import Transport
    from barnabas.requests.context import ConnectionInfo
    from barnabas.requests.quotas import RequestQuotas
    from barnabas.security.sasl.server import SaslServer
    from barnabas.wire.headers import RequestHeader

log = logging.getLogger(__name__)

Interceptor = Callable[[RequestContext, Any, Handler], Awaitable[Any]]
"""Stands around authorisation and handler of every request: gets context, request, and what would answer it.

It returns the response; None has nothing answered.
"""
Sender = Callable[[RequestContext, "Transport", list[Chunk]], Awaitable[bool]]
"""Sends an answer in place of its transport, no chunks where nothing is to be answered; false closes the connection."""

_SERVED_AT_ONCE = frozenset({apis.API_VERSIONS, apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE})
"""What is served before the controller has told a broker of its cluster, besides the controller's requests."""


class Answer:
    """An encoded response: none has no chunks. `codes` are the numbers of its error codes, where they are counted."""

    __slots__ = ("chunks", "codes")

    def __init__(self, chunks: list[Chunk], codes: Mapping[int, int]) -> None:
        self.chunks = chunks
        self.codes = codes

    @property
    def size(self) -> int:
        """How many bytes are still to be sent."""
        chunks = self.chunks
        return len(chunks[0]) if len(chunks) == 1 else sum([len(chunk) for chunk in chunks])


class Pipeline:
    """Answers the requests of all connections."""

    def __init__(
        self,
        services: Services,
        shared: Shared,
        codecs: CodecWorker,
        *,
        meter: RequestMeter | None = None,
        interceptor: Interceptor | None = None,
        sender: Sender | None = None,
        now_s: Callable[[], float],
    ) -> None:
        """`meter` counts requests, where somebody reads the counts; `sender` stands in for transports."""
        self._services = services
        self._shared = shared
        self._codecs = codecs
        self._served = services.served
        self._now_ms = services.clock_ms
        self._meter = meter
        self._now_s = now_s
        self._interceptor = interceptor
        self._sender = sender
        self._handlers: dict[int, Handler] = {}
        self._at_once: dict[int, tuple[apis.Api, Begin]] = {}
        self._is_alone = interceptor is None and sender is None
        # Who looks into answers, or may be refused some of one, has each made for itself.
        is_same_for_all = self._is_alone and not shared.asks_authorizer
        self._repeated = RepeatedAnswers(services.metadata, services.replicas) if is_same_for_all else None

    def begin(
        self, connection: ConnectionInfo, transport: Transport, frame: memoryview
    ) -> bool | Awaitable[bool] | Begun:
        """Answer a request as `answer` does, at once where possible.

        Otherwise return what is to be awaited for it, or the request if its answer announces itself.
        """
        at_once = self._at_once.get(api_key_of(frame))
        login, quotas = connection.login, self._shared.quotas
        if (
            at_once is None
            or len(frame) > INLINE_BYTES_MAX
            or (login is not None and not login.is_done)
            or (quotas is not None and quotas.is_set)
        ):
            return self.answer(connection, transport, frame)
        api, begin = at_once
        last = connection.last_request
        if last is not None and not last.is_repeated_by(frame):
            last = None
        header = parse_request_header(frame) if last is None else last.header
        if login is not None and self._out_of_turn(login, header) is not None:
            return self.answer(connection, transport, frame)
        if not api.min_version <= header.api_version <= api.max_version:
            return self.answer(connection, transport, frame)
        context = self._context(connection, header)
        started = self._now_s() if self._meter is not None else 0.0
        if last is not None:
            request, context.last_response = last.request, last.response
        else:
            request = _decoded(api, context, header, frame)
            if request is None:
                return self.answer(connection, transport, frame)
            if api.key in apis.HEARTBEATS and len(frame) <= BYTES_MAX:
                last = connection.last_request = LastRequest(frame, header, request)
        begun = Begun(self, api, context, transport, request, len(frame), started, last)
        begun.response = self._respond_at_once(api, begin, context, request)
        return begun if begun.is_announced else self.end(begun)

    def end(self, begun: Begun) -> bool | Awaitable[bool]:
        """Send the answer of a request that has begun; return what is to be awaited where that cannot be done at once.

        Raises OSError.
        """
        api, context = begun.api, begun.context
        if begun.is_announced:
            begun.response = self._respond_at_once(api, begun.take, context, begun.request)
        response = begun.response
        last = begun.last
        answer: Answer | None
        if response is None:
            return self._ended(begun, Answer([], {}), 0)
        if last is not None and response is last.response:
            answer = _answered_again(last, context)
        elif isinstance(response, Later) or _is_large(response):
            return self.finish(begun)
        elif last is None:
            answer = self._encode(api, context, begun.request, response)
        else:
            answer = self._encode_again(api, context, last, response)
        if answer is None:
            return False
        size, data = answer.size, in_memory(answer.chunks)
        sent = 0 if data is None else begun.transport.send_now(data)
        if sent < size:
            begun.request = begun.response = None
            if data is not None:
                answer.chunks = [memoryview(data)[sent:]]
            return self._send_rest(begun, answer, size)
        return self._ended(begun, answer, size)

    async def answer(self, connection: ConnectionInfo, transport: Transport, frame: memoryview) -> bool:
        """Answer the request in `frame` (without its size field); false when the connection must be closed.

        Raises PeerError for a frame that cannot be understood, OSError when the peer is gone.
        """
        login = connection.login
        if login is not None and login.expects_token(is_known_api=registry.is_known(api_key_of(frame))):
            return await self._answer_token(connection, transport, bytes(frame))
        header = parse_request_header(frame)
        refused = None if login is None else self._out_of_turn(login, header)
        api = self._served.get(header.api_key)
        if api is None or not api.min_version <= header.api_version <= api.max_version:
            await self._answer_unserved(header, transport)
            return refused is None
        context = self._context(connection, header)
        # Also where the request is refused: it is decoded with what is loaded then.
        bound_handler = self._handlers.get(api.key) or await self._bind(api)
        handler = refused or bound_handler
        if handler is None:
            transport.reset()
            return False
        quotas = self._shared.quotas
        if quotas is not None and quotas.is_set and (login is None or login.is_done):
            context.quotas = quotas.begin(connection.user, header.client_id, api.key)
        repeated = self._repeated if api.key == apis.METADATA and refused is None else None
        started = self._now_s() if self._meter is not None else 0.0
        try:
            if repeated is None or context.quotas is not None:
                answer = await self._made(api, handler, context, header, frame)
            else:
                answer = await self._repeated_answer(repeated, api, handler, context, header, frame)
            if answer is None or not await self._send(context, transport, answer.chunks):
                return False
            if self._meter is not None:
                self._count(api, context, answer, answer.size, len(frame), started)
            return not context.close_after_response
        finally:
            if context.quotas is not None:
                context.quotas.end()
            _release(context)

    async def finish(self, begun: Begun) -> bool:
        """Answer a request that has begun and has to be waited for, or has much to say. Raises OSError."""
        api, context = begun.api, begun.context
        try:
            response = await self._respond(api, begun.wait, context, begun.request)
            if response is None:
                return self._ended(begun, Answer([], {}), 0)
            if _is_large(response):
                answer = await self._encode_aside(api, context, begun.request, response)
            else:
                answer = self._encode(api, context, begun.request, response)
            response = begun.request = None  # while a slow client reads, only the bytes for it are held
            return answer is not None and await self._send_rest(begun, answer, answer.size)
        finally:
            _release(context)

    async def _send_rest(self, begun: Begun, answer: Answer, size: int) -> bool:
        """Send what is left of an answer of `size` bytes. Raises OSError."""
        await begun.transport.send(answer.chunks)
        return self._ended(begun, answer, size)

    def _ended(self, begun: Begun, answer: Answer, size: int) -> bool:
        """Count a request whose answer of `size` bytes is sent; false when the connection must be closed."""
        self._count(begun.api, begun.context, answer, size, begun.request_bytes, begun.started)
        return not begun.context.close_after_response

    def _context(self, connection: ConnectionInfo, header: RequestHeader) -> RequestContext:
        """Return the context of a request, which is its connection's latest from now on."""
        context = RequestContext(
            self._shared,
            connection,
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            self._now_ms(),
        )
        connection.request = context
        return context

    def _count(
        self,
        api: apis.Api,
        context: RequestContext,
        answer: Answer,
        size: int,
        frame_size: int,
        started: float,
    ) -> None:
        """Count a request with an answer of `size` bytes, where somebody reads the counts."""
        if self._meter is not None:
            seconds = self._now_s() - started
            self._meter.answered(api.name, context.api_version, answer.codes, frame_size, size, seconds)

    async def _made(
        self,
        api: apis.Api,
        handler: Handler,
        context: RequestContext,
        header: RequestHeader,
        frame: memoryview,
    ) -> Answer | None:
        """Decode, respond, throttle, encode. Return None where no error can be told. Raises PeerError.

        Request and response are dropped with the return: while a slow client reads, only the bytes for it are held.
        """
        request = None
        if len(frame) <= INLINE_BYTES_MAX or api.key == PRODUCE:
            request = _decoded(api, context, header, frame)
        if request is None:
            try:
                request = await self._codecs.decode(api, context, frame, header.body_position)
            except TooManyEntriesError as error:
                return self._refuse_entries(api, context, len(frame), error)
            except PeerError as error:
                raise _malformed(api, context, error) from error
        response = await self._respond(api, handler, context, request)
        if context.quotas is not None:
            _throttle(context.quotas, context.connection, request, response, len(frame))
        if response is None:
            return Answer([], {})
        if _is_large(response):
            answer = await self._encode_aside(api, context, request, response)
            response = None  # to drop all of it takes a while, and so does the request after it
            await self._services.budget.checkpoint()
        else:
            answer = self._encode(api, context, request, response)
        if answer is not None and context.reservation is not None:
            in_memory = (len(one) for one in answer.chunks if not isinstance(one, FileRegion))
            context.reservation.reduce_to(sum(in_memory))
        return answer

    async def _repeated_answer(
        self,
        repeated: RepeatedAnswers,
        api: apis.Api,
        handler: Handler,
        context: RequestContext,
        header: RequestHeader,
        frame: memoryview,
    ) -> Answer | None:
        """Return what was answered to the same question, or make the answer and keep it."""
        again = repeated.find(context.connection, header, frame)
        if again is not None:
            start = response_start(len(again.body), context.correlation_id)
            return Answer([start + again.body], again.codes)
        state = repeated.state
        answer = await self._made(api, handler, context, header, frame)
        if answer is not None:
            repeated.keep(context.connection, header, frame, answer.chunks, answer.codes, state)
        return answer

    async def _send(self, context: RequestContext, transport: Transport, chunks: list[Chunk]) -> bool:
        """Send an answer, if there is any; false when the connection must be closed. Raises OSError."""
        login = context.connection.login
        if login is not None and login.has_failed:
            context.close_after_response = True
            await wait_after_failure(context.connection)
        if self._sender is not None:
            return await self._sender(context, transport, chunks)
        if chunks:
            await transport.send(chunks)
        return True

    def _refuse_entries(
        self, api: apis.Api, context: RequestContext, size: int, error: TooManyEntriesError
    ) -> Answer:
        """Answer a request of `size` bytes with too many entries, none of which is known.

        Raises PeerError if that can be told nowhere but beside each: such an answer is what there are too many for.
        """
        from barnabas.handlers.errors import top_level_response

        entries_max = self._codecs.entries_max
        problem = f"{size:,} bytes with more than {entries_max:,} entries, which max.request.entries allows"
        response = top_level_response(api, context.api_version, ErrorCode.INVALID_REQUEST, problem)
        if response is None:
            raise _malformed(api, context, PeerError(problem)) from error
        context.log(log, logging.WARNING, "requests with too many entries", "refused %s", problem)
        chunks = encode_response(api.key, context.api_version, context.correlation_id, response)
        return self._counted(api, chunks, response)

    # --- before anything is done ----------------------------------------------------------------------------

    def _out_of_turn(self, login: SaslServer, header: RequestHeader) -> Handler | None:
        """Return what refuses a request that its connection's login does not admit; None if it is admitted.

        Raises NotLoggedInError where the connection is to be closed without an answer.
        """
        try:
            login.admit(header.api_key, trio.current_time() * 1000)
        except RequestError as error:
            return partial(_refused, error)
        except NotLoggedInError as error:
            key = header.api_key
            name = registry.name_of(key) if registry.is_known(key) else f"API key {key}"
            raise NotLoggedInError(f"{name} (correlation id {header.correlation_id}) {error}") from error
        return None

    async def _answer_token(self, connection: ConnectionInfo, transport: Transport, token: bytes) -> bool:
        """Answer a bare token of a login with one, if any; false when the login has failed."""
        answer: bytes | None = None
        has_failed = must_wait = False
        try:
            answer, _ = await token_answered(
                connection, token, clock_ms=self._now_ms, log_limit=self._shared.log_limit
            )
        except LoginFailedError as failure:
            has_failed, must_wait = True, not failure.is_transient
        if must_wait:
            await wait_after_failure(connection)
        if has_failed:
            return False
        if answer is not None:
            await transport.send([len(answer).to_bytes(4, "big") + answer])
        return True

    async def _answer_unserved(self, header: RequestHeader, transport: Transport) -> None:
        """Tell which versions of ApiVersions there are, and nothing else. Raises PeerError for any other API."""
        if header.api_key != apis.API_VERSIONS or header.api_key not in self._served:
            who = f"client {shown_client(header.client_id)}"
            reason = apis.refusal(self._served, header.api_key, header.api_version, who)
            raise PeerError(f"{reason} (correlation id {header.correlation_id})")
        from barnabas.handlers.api_versions import unsupported_version

        response = unsupported_version(self._served[header.api_key], self._services.release)
        await transport.send(encode_response(header.api_key, 0, header.correlation_id, response))

    # --- answering ------------------------------------------------------------------------------------------

    def _respond_at_once(self, api: apis.Api, begin: Begin, context: RequestContext, request: Any) -> Any:
        """Return the response, or what is to be awaited for it, whatever happens."""
        try:
            return begin(context, request)
        except Exception as error:
            code, message = self._shown(context, error)
        return _failed(context, api, request, code, message)

    async def _respond(self, api: apis.Api, handler: Handler, context: RequestContext, request: Any) -> Any:
        """Return the response, whatever happens; None for a request that wants none."""
        try:
            if self._interceptor is not None:
                return await self._interceptor(context, request, handler)
            return await handler(context, request)
        except Exception as error:
            code, message = self._shown(context, error)
        return await self._refusal(context, api, request, code, message)

    def _shown(self, context: RequestContext, error: Exception) -> tuple[int, str]:
        """Return the code and message with which a request is answered that has raised `error`; log what is our own."""
        if isinstance(error, StorageError):
            error = self._services.failures.failed(error)
        if isinstance(error, RequestError):
            return error.code, error.message
        log.error("internal error in %s", context, exc_info=error)
        return ErrorCode.UNKNOWN_SERVER_ERROR, ""

    async def _refusal(
        self, context: RequestContext, api: apis.Api, request: Any, code: int, message: str
    ) -> Any:
        """Return the API's response with an error for all that was asked; of a large request it is made in a thread."""
        if not _is_large(request):
            return _failed(context, api, request, code, message)
        return await self._codecs.run(lambda: _failed(context, api, request, code, message))

    async def _bind(self, api: apis.Api) -> Handler | None:
        """Return an API's handler with what stands before it: authorisation, and who is the controller.

        Its modules are imported in a thread: for some APIs that takes 70 ms. None for what a broker does not serve before
        it knows its cluster: an answer that a topic is unknown would have clients give up. As with a broker that does not
        listen yet, they try the others; the end of the connection without an error would be one of SASL to franz-go.
        """
        services = self._services
        is_early = services.membership is not None and not services.metadata.image.brokers
        if is_early and not api.member_only and api.key not in _SERVED_AT_ONCE:
            return None
        await services.threads.run(partial(load, api, services))
        handler = ready(api, services, asks_authorizer=self._shared.asks_authorizer)
        self._handlers[api.key] = handler
        if self._is_alone and answers_at_once(api):
            begin = begun_by(api, services, asks_authorizer=self._shared.asks_authorizer)
            self._at_once[api.key] = api, begin
        return handler

    def _encode(self, api: apis.Api, context: RequestContext, request: Any, response: Any) -> Answer | None:
        """Encode an answer, and count its error codes where somebody asks; None where no error can be told."""
        try:
            chunks = encode_response(api.key, context.api_version, context.correlation_id, response)
        except Exception:
            return self._encode_failure(api, context, request)
        return self._counted(api, chunks, response)

    def _encode_again(
        self, api: apis.Api, context: RequestContext, last: LastRequest, response: Any
    ) -> Answer | None:
        """Do the same for a heartbeat, whose answer is usually the one before it with another correlation id."""
        if response == last.response:
            return _answered_again(last, context)
        answer = self._encode(api, context, last.request, response)
        if answer is not None:
            last.keep(response, answer.chunks[0][AFTER_CORRELATION_ID:], answer.codes)  # type: ignore[arg-type, index]
        return answer

    async def _encode_aside(
        self, api: apis.Api, context: RequestContext, request: Any, response: Any
    ) -> Answer | None:
        """Do the same in a thread."""
        try:
            chunks, codes = await self._codecs.encode(context, response)
        except Exception:
            return self._encode_failure(api, context, request)
        if self._meter is not None and api.key == apis.FETCH:
            for _ in self._meter.fetched_in_steps(response):
                await self._services.budget.checkpoint()
        return Answer(chunks, codes)

    def _encode_failure(self, api: apis.Api, context: RequestContext, request: Any) -> Answer | None:
        """Our own mistake: the client still gets an answer that it can act on. To be called while it is handled."""
        log.exception("the answer cannot be written: %s", context)
        response = _failed(context, api, request, ErrorCode.UNKNOWN_SERVER_ERROR, "")
        if response is None:
            return None
        chunks = encode_response(api.key, context.api_version, context.correlation_id, response)
        return self._counted(api, chunks, response)

    def _counted(self, api: apis.Api, chunks: list[Chunk], response: Any) -> Answer:
        """Return an encoded answer with its error codes, if they are of use to anybody."""
        if self._meter is None and api.key != apis.METADATA:
            return Answer(chunks, {})
        if self._meter is not None and api.key == apis.FETCH:
            self._meter.fetched(response)
        return Answer(chunks, count_error_codes(response))


def _is_large(message: Any) -> bool:
    """Whether a message is to be encoded in a thread, or refused there."""
    return has_more_entries(message, INLINE_ENTRIES_MAX)


def _answered_again(last: LastRequest, context: RequestContext) -> Answer:
    """Return the answer that a connection got last, as one to another request."""
    return Answer([response_start(len(last.body), context.correlation_id) + last.body], last.codes)


def _decoded(api: apis.Api, context: RequestContext, header: RequestHeader, frame: memoryview) -> Any:
    """Return the request in a frame, None if it has too many entries to be decoded at once. Raises PeerError."""
    # Single bytes of these are read in two thirds of the time. Only what is produced stays where it lies.
    data = frame if api.key == PRODUCE else bytes(frame)
    try:
        return api.decoders[header.api_version](data, header.body_position, INLINE_ENTRIES_MAX)[0]
    except TooManyEntriesError:
        return None
    except PeerError as error:
        raise _malformed(api, context, error) from error


def _release(context: RequestContext) -> None:
    """Give back what memory a request has reserved for its response."""
    if context.reservation is not None:
        context.reservation.reduce(context.reservation.size)


def _malformed(api: apis.Api, context: RequestContext, error: PeerError) -> PeerError:
    """Return the error of a request that cannot be decoded, with what it is."""
    return PeerError(
        f"{api.name} v{context.api_version} (correlation id {context.correlation_id}) "
        f"from client {shown_client(context.client_id)}: {error}"
    )


async def _refused(error: RequestError, _context: RequestContext, _request: Any) -> Any:
    """Refuse a request."""
    raise error


def _throttle(
    quotas: RequestQuotas, connection: ConnectionInfo, request: Any, response: Any, request_bytes: int
) -> None:
    """Charge a request; tell a client that is over a quota, and mute its connection."""
    throttle_ms = quotas.throttle_ms(request, request_bytes)
    if throttle_ms:
        connection.muted_ms = throttle_ms
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms


def _failed(context: RequestContext, api: apis.Api, request: object, code: int, message: str) -> object:
    """Return the API's own response with the error in every place where a client looks for it."""
    from barnabas.handlers.errors import error_response

    return error_response(api, context, request, code, message)
