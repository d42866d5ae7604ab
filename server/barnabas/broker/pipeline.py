"""The way of a request: header, connection state, decode, interception, authorisation, handler, response, throttle.

The rule: every request of every API takes these stages, in this order, and `Pipeline.answer` names them all. The table
in `apis` decides what is served: a request for anything else closes the connection, as Kafka does, except ApiVersions,
whose unsupported versions are answered with the supported ones (KIP-511).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

import trio

from barnabas import apis
from barnabas.broker.codecs import INLINE_BYTES_MAX
from barnabas.broker.repeated_answers import AFTER_CORRELATION_ID, RepeatedAnswers
from barnabas.errors import PeerError, RequestError, StorageError
from barnabas.metrics.meter import error_codes
from barnabas.requests.context import RequestContext, Shared
from barnabas.requests.login import token_answered, wait_after_failure
from barnabas.security.authorizer import CLUSTER_NAME
from barnabas.security.sasl.mechanism import LoginFailedError
from barnabas.wire import registry
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import encode_response, parse_request_header, response_start
from barnabas.wire.regions import FileRegion

if TYPE_CHECKING:
    from barnabas.broker.codecs import CodecWorker
    from barnabas.broker.repeated_answers import Answer
    from barnabas.broker.services import Services
    from barnabas.cluster.store import MetadataStore
    from barnabas.metrics.meter import RequestMeter
    from barnabas.network.transport import Transport
    from barnabas.requests.context import ConnectionInfo
    from barnabas.requests.quotas import RequestQuotas
    from barnabas.security.sasl.server import SaslServer
    from barnabas.wire.headers import RequestHeader
    from barnabas.wire.regions import Chunk

log = logging.getLogger(__name__)

Handler = Callable[[RequestContext, Any], Awaitable[Any]]
Interceptor = Callable[[RequestContext, Any, Handler], Awaitable[Any]]
"""Stands around authorisation and handler of every request: gets context, request, and what would answer it.

It returns the response; None has nothing answered.
"""
Sender = Callable[[RequestContext, "Transport", list["Chunk"]], Awaitable[bool]]
"""Sends an answer in place of its transport, no chunks where nothing is to be answered; false closes the connection."""

Encoded = tuple[list["Chunk"], Mapping[int, int] | None]
"""The chunks of an answer, and the numbers of its error codes if they were counted."""

_SERVED_AT_ONCE = frozenset({apis.API_VERSIONS, apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE})
"""What is served before the controller has told a broker of its cluster, besides the controller's requests."""


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
        # Who looks into answers, or may be refused some of one, has each made for itself.
        is_same_for_all = interceptor is None and sender is None and not shared.asks_authorizer
        self._repeated = RepeatedAnswers(services.metadata, services.replicas) if is_same_for_all else None

    async def answer(self, connection: ConnectionInfo, transport: Transport, frame: memoryview) -> bool:
        """Answer the request in `frame` (without its size field); false when the connection must be closed.

        Raises PeerError for a frame that cannot be understood, OSError when the peer is gone.
        """
        login = connection.login
        if login is not None and login.expects_token(is_known_api=registry.is_known(_key_of(frame))):
            return await self._answer_token(connection, transport, bytes(frame))
        header = parse_request_header(frame)
        refused = None if login is None else self._out_of_turn(login, header)
        api = self._served.get(header.api_key)
        if api is None or not api.min_version <= header.api_version <= api.max_version:
            await self._answer_unserved(header, transport)
            return refused is None
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
        handler = refused or self._handlers.get(api.key) or await self._bind(api)
        if handler is None:
            transport.reset()
            return False
        quotas = self._shared.quotas
        if quotas is not None and quotas.is_set and (login is None or login.is_done):
            context.quotas = quotas.begin(connection.user, header.client_id, api.key)
        started = self._now_s() if self._meter is not None else 0.0
        try:
            repeated = self._repeated
            if api.key != apis.METADATA or refused is not None or context.quotas is not None:
                repeated = None
            if repeated is not None:
                again = repeated.find(connection, header, frame)
                if again is not None:
                    await self._send_again(api, context, transport, frame, again, started)
                    return True
                state = repeated.state
            try:
                if len(frame) <= INLINE_BYTES_MAX:
                    request = api.decoders[header.api_version](frame, header.body_position)[0]
                else:
                    request = await self._codecs.decode(api, context, frame, header.body_position)
            except PeerError as error:
                raise _malformed(api, context, error) from error
            response = await self._respond(api, handler, context, request)
            if context.quotas is not None:
                _throttle(context.quotas, connection, request, response, len(frame))
            size = 0
            codes: Mapping[int, int] | None = None  # where they have been counted already
            if response is not None:
                if self._codecs.is_large(response):
                    encoded = await self._encode_aside(api, context, request, response)
                else:
                    encoded = self._encode(api, context, request, response)
                if encoded is None:
                    return False
                chunks, codes = encoded
                if repeated is not None:
                    codes = codes if codes is not None else Counter(error_codes(response))
                    repeated.keep(connection, header, frame, chunks, codes, state)
                if context.reservation is not None:
                    # What the handler needed is dropped now; what is sent stays until it is read.
                    in_memory = (len(one) for one in chunks if not isinstance(one, FileRegion))
                    context.reservation.reduce_to(sum(in_memory))
                request = None
                if codes is not None and api.key != apis.FETCH:
                    response = None
                if login is not None and login.has_failed:
                    context.close_after_response = True
                    await wait_after_failure(connection)
                if self._sender is None:
                    await transport.send(chunks)
                elif not await self._sender(context, transport, chunks):
                    return False
                if self._meter is not None:
                    size = sum(len(chunk) for chunk in chunks)
            elif self._sender is not None and not await self._sender(context, transport, []):
                return False
            if self._meter is not None:
                self._meter.answered(
                    api.name, api.key, context.api_version, response, len(frame), size,
                    self._now_s() - started, codes,
                )  # fmt: skip
            return not context.close_after_response
        finally:
            if context.quotas is not None:
                context.quotas.end()
            if context.reservation is not None:
                context.reservation.reduce(context.reservation.size)

    async def _send_again(
        self,
        api: apis.Api,
        context: RequestContext,
        transport: Transport,
        frame: memoryview,
        answer: Answer,
        started: float,
    ) -> None:
        """Send what was answered to the same question before."""
        size = AFTER_CORRELATION_ID + len(answer.body)
        await transport.send([response_start(len(answer.body), context.correlation_id) + answer.body])
        if self._meter is not None:
            self._meter.answered(
                api.name, api.key, context.api_version, None, len(frame), size, self._now_s() - started,
                answer.codes,
            )  # fmt: skip

    # --- before anything is done ----------------------------------------------------------------------------

    def _out_of_turn(self, login: SaslServer, header: RequestHeader) -> Handler | None:
        """Return what refuses a request that its connection's login does not admit; None if it is admitted.

        Raises PeerError where the connection is to be closed without an answer.
        """
        try:
            login.admit(header.api_key, trio.current_time() * 1000)
        except RequestError as error:
            return partial(_refused, error)
        except PeerError as error:
            key = header.api_key
            name = registry.name_of(key) if registry.is_known(key) else f"API key {key}"
            raise PeerError(f"{name} (correlation id {header.correlation_id}) {error}") from error
        return None

    async def _answer_token(self, connection: ConnectionInfo, transport: Transport, token: bytes) -> bool:
        """Answer a bare token of a login with one, if any; false when the login has failed."""
        try:
            answer, _ = await token_answered(
                connection, token, clock_ms=self._now_ms, log_limit=self._shared.log_limit
            )
        except LoginFailedError as failure:
            if not failure.is_transient:
                await wait_after_failure(connection)
            return False
        if answer is not None:
            await transport.send([len(answer).to_bytes(4, "big") + answer])
        return True

    async def _answer_unserved(self, header: RequestHeader, transport: Transport) -> None:
        """Tell which versions of ApiVersions there are. Raises PeerError for any other API."""
        if header.api_key != apis.API_VERSIONS or header.api_key not in self._served:
            reason = apis.refusal(self._served, header.api_key, header.api_version, header.client_id)
            raise PeerError(f"{reason} (correlation id {header.correlation_id})")
        from barnabas.handlers.api_versions import unsupported_version

        response = unsupported_version(self._served, self._services.release, self._services.metadata.image)
        await transport.send(encode_response(header.api_key, 0, header.correlation_id, response))

    # --- answering ------------------------------------------------------------------------------------------

    async def _respond(self, api: apis.Api, handler: Handler, context: RequestContext, request: Any) -> Any:
        """Return the response, whatever happens; None for a request that wants none."""
        try:
            if self._interceptor is not None:
                return await self._interceptor(context, request, handler)
            return await handler(context, request)
        except RequestError as error:
            return await self._refusal(context, api, request, error.code, error.message)
        except StorageError as failure:
            seen = self._services.failures.failed(failure)
            return await self._refusal(context, api, request, seen.code, seen.message)
        except Exception:
            log.exception("internal error in %s", context)
            return await self._refusal(context, api, request, ErrorCode.UNKNOWN_SERVER_ERROR, "")

    async def _refusal(
        self, context: RequestContext, api: apis.Api, request: Any, code: int, message: str
    ) -> Any:
        """Return the API's response with an error for all that was asked; of a large request it is made in a thread."""
        if not self._codecs.is_large(request):
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
        await services.threads.run(partial(_load, api, services))
        handler = ready(api, services, asks_authorizer=self._shared.asks_authorizer)
        self._handlers[api.key] = handler
        return handler

    def _encode(self, api: apis.Api, context: RequestContext, request: Any, response: Any) -> Encoded | None:
        """Return the chunks of the answer; None where no error can be told."""
        try:
            return encode_response(api.key, context.api_version, context.correlation_id, response), None
        except Exception:
            return self._encode_failure(api, context, request)

    async def _encode_aside(
        self, api: apis.Api, context: RequestContext, request: Any, response: Any
    ) -> Encoded | None:
        """Do the same in a thread."""
        try:
            return await self._codecs.encode(context, response)
        except Exception:
            return self._encode_failure(api, context, request)

    @staticmethod
    def _encode_failure(api: apis.Api, context: RequestContext, request: Any) -> Encoded | None:
        """Our own mistake: the client still gets an answer that it can act on. To be called while it is handled."""
        log.exception("the answer cannot be written: %s", context)
        response = _failed(context, api, request, ErrorCode.UNKNOWN_SERVER_ERROR, "")
        if response is None:
            return None
        return encode_response(api.key, context.api_version, context.correlation_id, response), None


def ready(api: apis.Api, services: Services, *, asks_authorizer: bool = False) -> Handler:
    """Return an API's handler with its services, behind what Kafka asks first: a feature, the authorizer, the controller.

    Where a feature is off, who may not use it is answered as everybody is.
    """
    handler = bound(api.handle, services)
    if api.controller:
        handler = partial(_by_controller, handler, services.metadata, services.broker_id)
    if asks_authorizer and api.whole:
        handler = partial(authorized, api, handler)
    if api.feature and (
        services.metadata.image.features is not None or not services.release.has(api.feature)
    ):
        handler = partial(_with_feature, api.feature, handler, services.metadata)
    return handler


def bound(handle: Callable[..., Awaitable[Any]], services: Services) -> Handler:
    """Return a handler with the services that its keyword-only parameters name, as their defaults: no call passes them."""
    names = _services_of(handle)
    if not names:
        return handle
    own = FunctionType(
        handle.__code__, handle.__globals__, handle.__name__, handle.__defaults__, handle.__closure__
    )
    own.__kwdefaults__ = {name: getattr(services, name) for name in names}
    return own


def _services_of(handle: Callable[..., Awaitable[Any]]) -> tuple[str, ...]:
    code = handle.__code__
    return code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]


def _load(api: apis.Api, services: Services) -> None:
    """Import codecs and handler of an API, what the handler's services need, and what refuses a request."""
    api.load()
    services.load(_services_of(api.handle))
    from barnabas.handlers import errors

    assert errors


def _key_of(frame: memoryview) -> int:
    """Return the API key with which a frame begins, -1 for one that is too short."""
    return int.from_bytes(frame[:2], "big", signed=True) if len(frame) >= 2 else -1


def _malformed(api: apis.Api, context: RequestContext, error: PeerError) -> PeerError:
    """Return the error of a request that cannot be decoded, with what it is."""
    return PeerError(
        f"{api.name} v{context.api_version} (correlation id {context.correlation_id}) "
        f"from client {context.client_id!r}: {error}"
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


async def authorized(api: apis.Api, handler: Handler, context: RequestContext, request: Any) -> Any:
    """Handle a request if the whole of it is allowed. Raises RequestError."""
    for operation, resource_type, named_by in api.whole:
        context.require(operation, resource_type, getattr(request, named_by) if named_by else CLUSTER_NAME)
    return await handler(context, request)


async def _by_controller(
    handler: Handler, metadata: MetadataStore, broker_id: int, context: RequestContext, request: Any
) -> Any:
    """Handle a request if this broker is the controller. Raises NOT_CONTROLLER, upon which clients ask who is."""
    if metadata.image.controller_id != broker_id:
        raise RequestError(ErrorCode.NOT_CONTROLLER)
    return await handler(context, request)


async def _with_feature(
    feature: str, handler: Handler, metadata: MetadataStore, context: RequestContext, request: Any
) -> Any:
    """Handle a request if its feature is on in the cluster. Raises UNSUPPORTED_VERSION, as Kafka answers."""
    if not (metadata.image.features or {}).get(feature, 0):
        raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"{feature} is 0 in this cluster")
    return await handler(context, request)


def _failed(context: RequestContext, api: apis.Api, request: object, code: int, message: str) -> object:
    """Return the API's own response with the error in every place where a client looks for it."""
    from barnabas.handlers.errors import error_response

    return error_response(api, context, request, code, message)
