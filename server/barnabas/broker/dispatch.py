"""From a frame to its answer: header, version check, decode, handler, encode.

The rule: the table in `apis` decides what is served. A request for anything else closes the connection, as Kafka
does, except ApiVersions, whose unsupported versions are answered with the supported ones (KIP-511).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from barnabas import apis
from barnabas.broker.codecs import INLINE_BYTES_MAX
from barnabas.errors import PeerError, RequestError, StorageError
from barnabas.requests.context import RequestContext
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import encode_response, parse_request_header
from barnabas.wire.regions import FileRegion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.broker.app import Broker
    from barnabas.broker.transport import PlainTransport
    from barnabas.requests.context import ConnectionInfo
    from barnabas.wire.headers import RequestHeader

log = logging.getLogger(__name__)


async def answer(
    broker: Broker, connection: ConnectionInfo, transport: PlainTransport, frame: memoryview
) -> bool:
    """Answer the request in `frame` (without its size field); false when the connection must be closed.

    Raises PeerError for a frame that cannot be understood, OSError when the peer is gone.
    """
    header = parse_request_header(frame)
    key, version = header.api_key, header.api_version
    api = broker.served.get(key)
    if api is None or not api.min_version <= version <= api.max_version:
        if key != apis.API_VERSIONS:
            raise PeerError(
                f"{apis.refusal(key, version, header.client_id)} (correlation id {header.correlation_id})"
            )
        from barnabas.handlers.api_versions import unsupported_version

        await transport.send(
            encode_response(key, 0, header.correlation_id, unsupported_version(broker.served))
        )
        return True

    context = RequestContext(
        broker, connection, key, version, header.correlation_id, header.client_id, broker.now_ms()
    )
    connection.request = context
    try:
        return await _answer_with(broker, api, context, header, transport, frame)
    finally:
        if context.reservation is not None:
            context.reservation.reduce(context.reservation.size)


async def _answer_with(
    broker: Broker,
    api: apis.Api,
    context: RequestContext,
    header: RequestHeader,
    transport: PlainTransport,
    frame: memoryview,
) -> bool:
    key, version = header.api_key, header.api_version
    metrics = broker.metrics
    started = time.perf_counter() if metrics is not None else 0.0
    try:
        if len(frame) <= INLINE_BYTES_MAX:
            request, _ = api.decoders[version](frame, header.body_position)
        else:
            request = await broker.codecs.decode(api, context, frame, header.body_position)
    except PeerError as error:
        raise PeerError(
            f"{api.name} v{version} (correlation id {header.correlation_id}) from client {header.client_id!r}: {error}"
        ) from error
    try:
        response = await api.handle(context, request)
    except RequestError as error:
        response = _failed(context, api, request, error.code, error.message)
    except StorageError as failure:
        seen = broker.storage_failed(failure)
        response = _failed(context, api, request, seen.code, seen.message)
    except Exception:
        log.exception("internal error in %s", context)
        response = _failed(context, api, request, ErrorCode.UNKNOWN_SERVER_ERROR, "")
    size = 0
    codes: Mapping[int, int] | None = None  # where they have been counted already
    if response is not None:
        try:
            if broker.codecs.is_large(response):
                chunks, codes = await broker.codecs.encode(context, response)
            else:
                chunks = encode_response(key, version, header.correlation_id, response)
        except Exception:
            # Our own mistake: the client still gets an answer that it can act on.
            log.exception("the answer cannot be written: %s", context)
            response = _failed(context, api, request, ErrorCode.UNKNOWN_SERVER_ERROR, "")
            if response is None:
                return False
            chunks = encode_response(key, version, header.correlation_id, response)
        if context.reservation is not None:
            # What the handler needed is dropped now; what is sent stays until it is read.
            context.reservation.reduce_to(sum(len(one) for one in chunks if not isinstance(one, FileRegion)))
        request = None
        if codes is not None and key != apis.FETCH:
            response = None
        await transport.send(chunks)
        if metrics is not None:
            size = sum(len(chunk) for chunk in chunks)
    if metrics is not None:
        metrics.meter.answered(
            api.name, key, version, response, len(frame), size, time.perf_counter() - started, codes
        )
    return not context.close_after_response


def _failed(context: RequestContext, api: apis.Api, request: object, code: int, message: str) -> object:
    """The API's own response with the error in every place where a client looks for it."""
    from barnabas.handlers.errors import error_response

    return error_response(api, context, request, code, message)
