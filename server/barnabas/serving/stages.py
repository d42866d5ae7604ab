"""The stages of a request, from its frame to the sent response.

`STAGES`, at the end, is the table of contents. The rule: every request of every API runs these stages in this order,
whether they wait or not. A stage does its part and returns None, or a `Deferred` with the rest of it that must wait.
`Request` (`serving/request.py`) runs them.

A stage before `intercept` refuses by setting `refusal`: the request is decoded, and `check` refuses it, or `answer` by the
same rule if there is an interceptor. A response that the stage itself set would be replaced by the interceptor's.

The table in `apis` decides which requests are served: any other request closes the connection, as in Kafka, except
ApiVersions: unsupported versions of it are answered with the supported ones (KIP-511).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.errors import PeerError
from barnabas.network.sockets import in_memory
from barnabas.serving import apis
from barnabas.serving.context import shown_client
from barnabas.serving.deferred import Deferred, Future, resolved
from barnabas.serving.encoding import INLINE_BYTES_MAX, INLINE_ENTRIES_MAX, encode_with_texts_cut
from barnabas.serving.last_request import AFTER_CORRELATION_ID, BYTES_MAX, LastRequest
from barnabas.serving.login import answer_token, out_of_turn, wait_after_failure
from barnabas.serving.meter import count_error_codes
from barnabas.serving.request import NOT_READ, Request, Stage
from barnabas.wire import registry
from barnabas.wire.errors import TooManyEntriesError
from barnabas.wire.extent import has_more_entries
from barnabas.wire.framing import PRODUCE, api_key_of
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import RequestHeader, encode_response, parse_request_header, response_start
from barnabas.wire.regions import FileRegion

if TYPE_CHECKING:
    from barnabas.serving.context import RequestContext

log = logging.getLogger(__name__)

# --- before the request is decoded ------------------------------------------------------------------------------------


def take_token(request: Request) -> Deferred[None] | None:
    """Answer a frame that is a bare token of a login (SaslHandshake v0)."""
    login = request.connection.login
    if login is None or not login.expects_token(is_known_api=registry.is_known(api_key_of(request.frame))):
        return None
    return Deferred(partial(send_token, request))


async def send_token(request: Request) -> None:
    """Answer a login's token, with a token if the mechanism has one; a failed login closes the connection."""
    answer, is_alive = await answer_token(
        request.connection, bytes(request.frame), request.parts.clock_ms, request.shared.log_limit
    )
    request.end(is_alive=is_alive)
    if answer is not None:
        await request.transport.send([len(answer).to_bytes(4, "big") + answer])


def read_header(request: Request) -> None:
    """Read API and version. Raises PeerError for an API that is not served, or not before a login."""
    parts, connection = request.parts, request.connection
    last = connection.last_request
    if last is not None and last.is_repeated_by(request.frame):
        request.last_heartbeat, request.message, header = last, last.message, last.header
        if parts.interceptor is None and not (request.shared.quotas and request.shared.quotas.is_set):
            request.last_response = last.response  # which no stage changes
    else:
        header = parse_request_header(request.frame)
    if connection.login is not None:
        request.refusal = out_of_turn(connection.login, header)
    api = parts.served.get(header.api_key)
    if api is None or not api.min_version <= header.api_version <= api.max_version:
        answer_unserved(request, header)
        return
    request.api = api
    request.api_key = header.api_key
    request.api_version = header.api_version
    request.correlation_id = header.correlation_id
    request.client_id = header.client_id
    request.now_ms = parts.clock_ms()
    request.header = header
    if parts.meter is not None:
        request.started_s = parts.now_s()
    connection.request = request


def answer_unserved(request: Request, header: RequestHeader) -> None:
    """Tell which versions of ApiVersions there are, and nothing else. Raises PeerError for any other API."""
    if header.api_key != apis.API_VERSIONS or header.api_key not in request.parts.served:
        client = f"client {shown_client(header.client_id)}"
        reason = apis.refusal(request.parts.served, header.api_key, header.api_version, client)
        raise PeerError(f"{reason} (correlation id {header.correlation_id})")
    from barnabas.serving.error_responses import unsupported_version

    response = unsupported_version(request.parts.served[header.api_key], request.parts.release)
    request.chunks = encode_response(header.api_key, 0, header.correlation_id, response)
    request.is_alive = request.refusal is None
    request.skip_to(send)


def find_handler(request: Request) -> Deferred[None] | None:
    """Find the handler, also of a request that is refused: its module has the codec."""
    request.handler = request.parts.handlers.made.get(request.api_key)
    return None if request.handler is not None else Deferred(partial(make_handler, request))


async def make_handler(request: Request) -> None:
    """Make the handler. Where the API is not served yet the connection is reset, which is no SASL error to franz-go."""
    if request.parts.handlers.is_served(request.api):
        request.handler = await request.parts.handlers.make(request.api)
    else:
        request.transport.reset()
        request.end(is_alive=False)


def begin_quotas(request: Request) -> None:
    """Begin to count the request against its client's quotas, if there are any."""
    quotas, connection = request.shared.quotas, request.connection
    if quotas is not None and quotas.is_set and (connection.login is None or connection.login.is_done):
        request.quotas = quotas.begin(connection.user, request.client_id, request.api_key)


# --- from the message to its response ---------------------------------------------------------------------------------


def decode(request: Request) -> Deferred[None] | None:
    """Decode the body; in a thread if it is large. Raises PeerError."""
    api, frame = request.api, request.frame
    if request.last_heartbeat is not None:
        return None
    is_produce = api.key == PRODUCE
    if len(frame) <= INLINE_BYTES_MAX or is_produce:
        # single bytes of `bytes` are read in two thirds of the time; only produced records stay in place
        data = frame if is_produce else bytes(frame)
        try:
            decoder = api.decoders[request.api_version]
            request.message, _ = decoder(data, request.header.body_position, INLINE_ENTRIES_MAX)
            if api.key in apis.HEARTBEATS and len(frame) <= BYTES_MAX:
                request.last_heartbeat = request.connection.last_request = LastRequest(
                    frame, request.header, request.message
                )
            return None
        except TooManyEntriesError:
            pass
        except PeerError as error:
            raise malformed(request, error) from error
    return Deferred(partial(decode_aside, request))


async def decode_aside(request: Request) -> None:
    """Decode a large body in a thread. Raises PeerError."""
    try:
        request.message = await request.parts.codecs.decode(
            request.api, request, request.frame, request.header.body_position
        )
    except TooManyEntriesError as error:
        refuse_entries(request, error)
    except PeerError as error:
        raise malformed(request, error) from error


def malformed(request: Request, error: PeerError) -> PeerError:
    """Return the error of a request that cannot be decoded, with its description."""
    return PeerError(
        f"{request.api.name} v{request.api_version} (correlation id {request.correlation_id}) "
        f"from client {shown_client(request.client_id)}: {error}"
    )


def refuse_entries(request: Request, error: TooManyEntriesError) -> None:
    """Answer a request with too many entries, which are not decoded.

    Raises PeerError if the response has no field for the error.
    """
    from barnabas.serving.error_responses import top_level_response

    problem = (
        f"{request.size:,} bytes with more than {request.parts.codecs.entries_max:,} entries, "
        "which max.request.entries allows"
    )
    response = top_level_response(request.api, request.api_version, ErrorCode.INVALID_REQUEST, problem)
    if response is None:  # errors stand beside each entry: such a response is as large as the refused request
        raise malformed(request, PeerError(problem)) from error
    request.log(log, logging.WARNING, "requests with too many entries", "refused %s", problem)
    request.respond(response)
    request.skip_to(encode)


def intercept(request: Request) -> Deferred[Any] | None:
    """Call the interceptor, if there is one: it can have the request checked and handled."""
    interceptor = request.parts.interceptor
    if interceptor is None:
        return None
    request.is_handling = True
    return Deferred(partial(interceptor, request, request.message, partial(answer, request)))


async def answer(request: Request, context: RequestContext, message: Any) -> Any:
    """Check and handle a request for an interceptor, which may have changed it. Raises RequestError."""
    assert request.handler is not None, "found"
    raise_refusal(request, message)
    return await resolved(request.handler(context, message))


def check(request: Request) -> Deferred[None] | None:
    """Refuse the whole request where its login, a feature, the authorizer or the controller's place demands it."""
    api = request.api
    may_be_refused = (
        request.refusal is not None or api.is_conditional or (request.asks_authorizer and api.whole)
    )
    if request.is_responded or not may_be_refused:
        return None
    try:
        raise_refusal(request, request.message)
    except Exception as error:
        return request.refuse(error)
    return None


def raise_refusal(request: Request, message: Any) -> None:
    """Raise the RequestError that refuses the whole request, with this message, if anything does."""
    if request.refusal is not None:
        raise request.refusal
    request.parts.handlers.check(request.api, request, message)


def have_handled(request: Request) -> Deferred[Any] | None:
    """Call the handler."""
    if request.is_responded:
        return None
    assert request.handler is not None, "found"
    try:
        response = request.handler(request, request.message)
    except Exception as error:
        return request.refuse(error)
    if isinstance(response, Deferred):
        request.is_handling = True
        request.future = response if isinstance(response, Future) else None
        return response
    request.respond(response)
    return None


def throttle(request: Request) -> None:
    """Charge the client's quotas; a client above a quota gets the throttle time, and its connection is muted."""
    if request.quotas is None:
        return
    throttle_ms = request.quotas.throttle_ms(request.message, request.size)
    if throttle_ms:
        request.connection.muted_ms = throttle_ms
        if hasattr(request.response, "throttle_time_ms"):
            request.response.throttle_time_ms = throttle_ms


# --- from the response to its bytes -----------------------------------------------------------------------------------


def encode(request: Request) -> Deferred[None] | None:
    """Encode the response; in a thread if it is large."""
    response, last = request.response, request.last_heartbeat
    if response is None:
        return None
    if last is not None and (response is last.response or response == last.response):
        request.chunks = [response_start(len(last.body), request.correlation_id) + last.body]
        request.codes = last.codes
        return None
    if has_more_entries(response, INLINE_ENTRIES_MAX):
        return Deferred(partial(encode_aside, request))
    try:
        request.chunks = encode_with_texts_cut(request, response)
    except Exception:
        encode_failure(request)
    else:
        if request.parts.meter is not None:
            if request.api_key == apis.FETCH:
                request.parts.meter.fetched(response)
            request.codes = count_error_codes(response)
        if last is not None:
            last.keep(response, bytes(request.chunks[0])[AFTER_CORRELATION_ID:], request.codes)  # type: ignore[arg-type]
    keep_bytes_alone(request)
    return None


async def encode_aside(request: Request) -> None:
    """Encode a large response in a thread."""
    response = request.response
    try:
        request.chunks, request.codes = await request.parts.codecs.encode(request, response)
    except Exception:
        encode_failure(request)
    else:
        if request.parts.meter is not None and request.api_key == apis.FETCH:
            for _ in request.parts.meter.fetched_in_steps(response):
                await request.parts.budget.checkpoint()
    del response  # to drop all of it takes a while, and so does the request after it
    request.response = None
    await request.parts.budget.checkpoint()
    keep_bytes_alone(request)


def encode_failure(request: Request) -> None:
    """Answer with an error that the client can act on, since ours cannot be written. Called while it is handled."""
    log.exception("the answer cannot be written: %s", request)
    response = request.failed(ErrorCode.UNKNOWN_SERVER_ERROR, "")
    if response is None:
        request.end(is_alive=False)
        return
    request.chunks = encode_with_texts_cut(request, response)
    if request.parts.meter is not None:
        request.codes = count_error_codes(response)


def keep_bytes_alone(request: Request) -> None:
    """Drop request and response: while a slow client reads, only the bytes for it are held."""
    request.message = request.response = None
    if request.reservation is not None:
        request.reservation.reduce_to(
            sum([len(chunk) for chunk in request.chunks if not isinstance(chunk, FileRegion)])
        )


def send(request: Request) -> Deferred[None] | None:
    """Send the answer, if there is any. Raises OSError."""
    login = request.connection.login
    if (login is not None and login.has_failed) or request.parts.sender is not None:
        return Deferred(partial(send_slowly, request))
    if not request.chunks:
        return None
    data = in_memory(request.chunks)
    if data is None:
        return Deferred(partial(request.transport.send, request.chunks))
    sent = request.transport.send_now(data)
    if sent == len(data):
        return None
    return Deferred(partial(request.transport.send, [memoryview(data)[sent:]]))


async def send_slowly(request: Request) -> None:
    """Send with a delay after a failed login, or through a replacement of the transport."""
    login = request.connection.login
    if login is not None and login.has_failed:
        request.close_after_response = True
        await wait_after_failure(request.connection)
    if request.parts.sender is not None:
        if not await request.parts.sender(request, request.transport, request.chunks):
            request.end(is_alive=False)
    elif request.chunks:
        await request.transport.send(request.chunks)


def count(request: Request) -> None:
    """Count the request, where the counts are read."""
    if request.parts.meter is not None and request.api_key != NOT_READ:
        request.parts.meter.answered(
            request.api.name,
            request.api_version,
            request.codes,
            request.size,
            sum([len(chunk) for chunk in request.chunks]),
            request.parts.now_s() - request.started_s,
        )
    if request.close_after_response:
        request.is_alive = False


STAGES: Final[tuple[Stage, ...]] = (
    take_token,
    read_header,
    find_handler,
    begin_quotas,
    decode,
    intercept,
    check,
    have_handled,
    throttle,
    encode,
    send,
    count,
)
