"""Handlers of a controller: the voter's, those of the active controller, and those of any controller.

The rule: only the active controller changes metadata; any other answers NOT_CONTROLLER. A request in an Envelope is
checked and answered as if its client had sent it; only its broker is informed that another controller leads. Any controller
answers some requests from its image.
"""

from __future__ import annotations

import logging
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.broker.controller_apis import (
    AS_BROKERS,
    BROKER_HEARTBEAT,
    BY_KEY,
    DESCRIBE_CLUSTER,
    ENVELOPE,
    FORWARDABLE,
    LOOKING,
    RAFT,
    UNANSWERED,
)
from barnabas.broker.handlers import deferred, handler_of, require_whole
from barnabas.cluster.kraft.controller.outcome import Caller
from barnabas.cluster.kraft.controller.versions import CONTROLLER_REGISTRATION_LEVEL
from barnabas.errors import PeerError, RequestError
from barnabas.handlers.describe_cluster import BROKERS, CONTROLLERS
from barnabas.network.sockets import joined
from barnabas.serving.apis import Api
from barnabas.serving.context import ConnectionInfo, RequestContext
from barnabas.serving.deferred import resolved
from barnabas.serving.encoding import INLINE_BYTES_MAX, INLINE_ENTRIES_MAX, encode_with_texts_cut
from barnabas.serving.error_responses import error_response
from barnabas.serving.meter import count_error_codes
from barnabas.wire import registry
from barnabas.wire.extent import has_more_entries
from barnabas.wire.generated.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.wire.generated.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import parse_request_header
from barnabas.wire.primitives import read_uvarint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from barnabas.cluster.kraft.controller.active import ActiveController
    from barnabas.cluster.kraft.image import QuorumImage
    from barnabas.cluster.kraft.raft.ports import Raft
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Threads
    from barnabas.serving.encoding import CodecWorker
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.serving.release import ReleaseProfile
    from barnabas.wire.generated.broker_heartbeat import BrokerHeartbeatRequest

log = logging.getLogger(__name__)

WITH_TIMEOUT: Final = frozenset((19, 20, 37, 43, 45))
"""APIs with a timeout in their requests."""
QUOTA_ERROR_SINCE: Final = {19: 6, 20: 5, 37: 3}
"""Version of each API that changes partitions, from which on it has an error for a client over its quota (KIP-599)."""
ENDPOINT_TYPE_SINCE: Final = 1
"""Version of DescribeCluster that names the type of endpoint (KIP-919)."""
FORWARDED: Final = ""
"""In place of the security protocol of a forwarded client, which its broker alone knows."""


class ControllerServices(NamedTuple):
    """Parts of a controller: those with the names of a broker's services, and those for its own handlers only."""

    config: BrokerConfig
    release: ReleaseProfile
    broker_id: int
    clock_ms: Callable[[], int]
    threads: Threads
    served: Mapping[int, Api]
    budget: LoopBudget
    metadata: MetadataStore
    """The committed metadata, as a broker has them."""
    codecs: CodecWorker
    raft: Raft
    active: ActiveController
    committed: Callable[[], QuorumImage]
    on_heartbeat: Callable[[int, BrokerHeartbeatRequest], None]
    """Told the id of the connection, before the request is handled."""
    forwarder: None = None


class ControllerHandlers:
    """Implements `request_parts.Handlers`."""

    def __init__(self, services: ControllerServices) -> None:
        self._services = services
        self.made: dict[int, Callable[[RequestContext, Any], Any]] = {}

    def is_served(self, _api: Api) -> bool:
        """Return true: all APIs are served from the beginning, as voters need each other to begin."""
        return True

    async def make(self, api: Api) -> Callable[[RequestContext, Any], Any]:
        """Import the codecs of an API in a thread, and return its handler."""
        await self._services.threads.run(partial(_load, api, is_of_brokers=api.key in AS_BROKERS))
        handle: Callable[[RequestContext, Any], Awaitable[Any]]
        if api.key in RAFT:
            handle = self._ask_raft
        elif api.key == ENVELOPE:
            handle = self._open_envelope
        elif api.key == DESCRIBE_CLUSTER:
            handle = self._describe_cluster
        elif api.key in AS_BROKERS:
            self.made[api.key] = handler_of(api, self._services)
            return self.made[api.key]
        elif api.key in LOOKING:
            handle = self._look
        elif api.key in UNANSWERED:
            handle = _refuse
        else:
            handle = self._ask_active
        self.made[api.key] = partial(deferred, handle)
        return self.made[api.key]

    def check(self, api: Api, context: RequestContext, message: Any) -> None:
        """Raise the RequestError that refuses a whole request: it is denied."""
        require_whole(api, context, message)

    async def _ask_raft(self, context: RequestContext, message: Any) -> Any:
        return await self._services.raft.answer(context.api_key, context.api_version, message)

    async def _ask_active(self, context: RequestContext, message: Any) -> Any:
        if context.api_key == BROKER_HEARTBEAT:
            self._services.on_heartbeat(context.connection.connection_id, message)
        timeout_ms = message.timeout_ms if context.api_key in WITH_TIMEOUT else None
        return await self._services.active.handle(
            context.api_key, message, _caller(context), timeout_ms=timeout_ms
        )

    async def _look(self, context: RequestContext, message: Any) -> Any:
        return self._services.active.look(context.api_key, message, _caller(context))

    # --- DescribeCluster ------------------------------------------------------------------------------------

    async def _describe_cluster(
        self, context: RequestContext, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        """Describe the controllers that have registered, by the listener that the client has reached."""
        image = self._services.committed()
        if image.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
            raise RequestError(
                ErrorCode.UNSUPPORTED_VERSION,
                "Direct-to-controller communication is not supported with the current MetadataVersion.",
            )
        if request.endpoint_type not in (BROKERS, CONTROLLERS):
            raise RequestError(
                ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}"
            )
        if request.endpoint_type == BROKERS:
            has_types = context.api_version >= ENDPOINT_TYPE_SINCE
            raise RequestError(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE if has_types else ErrorCode.INVALID_REQUEST,
                "this is a controller's endpoint, not a broker's",
            )
        response = DescribeClusterResponse(
            cluster_id=self._services.metadata.image.cluster_id,
            controller_id=self._services.raft.leader_id,
            endpoint_type=CONTROLLERS,
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = context.cluster_operations()
        listener = context.connection.listener
        response.brokers = [
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=controller.id, host=endpoint.host, port=endpoint.port, rack=None
            )
            for controller in image.controllers.values()
            for endpoint in controller.endpoints
            if endpoint.name == listener
        ]
        return response

    # --- Envelope -------------------------------------------------------------------------------------------

    async def _open_envelope(self, context: RequestContext, envelope: EnvelopeRequest) -> EnvelopeResponse:
        """Answer the request within, in its own frame."""
        data = bytes(envelope.request_data)
        client = _client_of(context, envelope)
        try:
            header = parse_request_header(data)
        except PeerError as error:
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"the header within: {error}") from error
        if header.api_key not in FORWARDABLE:
            name = registry.name_of(header.api_key) if registry.is_known(header.api_key) else header.api_key
            raise RequestError(ErrorCode.INVALID_REQUEST, f"API {name} may not be forwarded")
        api = BY_KEY[header.api_key]
        if not api.min_version <= header.api_version <= api.max_version:
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name} v{header.api_version} within")
        inner = RequestContext(
            context.shared,
            client,
            api.key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            context.now_ms,
        )
        quotas = context.shared.quotas
        if quotas is not None and quotas.is_set:
            inner.quotas = quotas.begin(client.user, header.client_id, api.key)
        handler = self.made.get(api.key) or await self.make(api)
        message = await self._decoded(api, inner, data, header.body_position)
        try:
            self.check(api, inner, message)
            response = await resolved(handler(inner, message))
        except RequestError as error:
            if error.code == ErrorCode.NOT_CONTROLLER:
                raise
            response = error_response(api, inner, message, error.code, error.message)
        except Exception:
            log.exception("internal error in %s, forwarded by %s", inner, context)
            response = error_response(api, inner, message, ErrorCode.UNKNOWN_SERVER_ERROR, "")
        if ErrorCode.NOT_CONTROLLER in count_error_codes(response):
            raise RequestError(ErrorCode.NOT_CONTROLLER)
        _throttle(inner, message, len(data), response)
        return EnvelopeResponse(response_data=await self._encoded(inner, response))

    async def _decoded(self, api: Api, inner: RequestContext, data: bytes, position: int) -> Any:
        codecs = self._services.codecs
        try:
            if len(data) > INLINE_BYTES_MAX:
                return await codecs.decode(api, inner, memoryview(data), position)
            return api.decoders[inner.api_version](data, position, codecs.entries_max)[0]
        except PeerError as error:
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name} within: {error}") from error

    async def _encoded(self, inner: RequestContext, response: Any) -> bytes:
        """Return the frame for the client without its size, and release the memory that the request has reserved."""
        if has_more_entries(response, INLINE_ENTRIES_MAX):
            chunks, _ = await self._services.codecs.encode(inner, response)
        else:
            chunks = encode_with_texts_cut(inner, response)
        if inner.reservation is not None:
            inner.reservation.reduce(inner.reservation.size)
        return joined(chunks)[4:]


def _throttle(inner: RequestContext, message: Any, size: int, response: Any) -> None:
    """Charge the quotas of a forwarded client, and set its throttle time; its broker mutes the connection."""
    if inner.quotas is None:
        return
    throttle_ms = inner.quotas.throttle_ms(message, size)
    if throttle_ms and hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = throttle_ms
    inner.quotas.end()


def _charging(context: RequestContext) -> Callable[[str, int], None]:
    """Return the function that charges partitions to the client's quota of mutations."""
    since = QUOTA_ERROR_SINCE.get(context.api_key)
    mutations = None if since is None else context.mutations(refuses=context.api_version >= since)
    return _charge_nothing if mutations is None else mutations.charge


def _charge_nothing(_topic: str, _partitions: int) -> None:
    """Charge nothing: the client has no quota."""


def _caller(context: RequestContext) -> Caller:
    connection = context.connection
    return Caller(
        context.api_version,
        connection.principal,
        connection.requester.host,
        context.client_id,
        connection.token_authenticated,
        context.authorizes,
        _charging(context),
        is_forwarded=connection.security_protocol == FORWARDED,
        security_protocol=connection.security_protocol,
    )


def _client_of(context: RequestContext, envelope: EnvelopeRequest) -> ConnectionInfo:
    """Return the client of a forwarded request. Raises PRINCIPAL_DESERIALIZATION_FAILURE, INVALID_REQUEST."""
    principal, is_token = principal_of(bytes(envelope.request_principal or b""))
    try:
        address = str(ip_address(bytes(envelope.client_host_address)))
    except ValueError as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"the address of the client: {error}") from error
    sender = context.connection
    return ConnectionInfo(
        sender.connection_id,
        sender.listener,
        FORWARDED,
        sender.local_address,
        (address, 0),
        principal,
        token_authenticated=is_token,
    )


def principal_of(data: bytes) -> tuple[str, bool]:
    """Return the principal in an envelope, and whether it has logged in with a token; as `forwarding.principal_data`.

    Raises PRINCIPAL_DESERIALIZATION_FAILURE.
    """
    end = len(data)
    try:
        if data[:2] != b"\0\0":
            raise PeerError("its version is not 0")
        kind, position = _text(data, 2, end)
        name, position = _text(data, position, end)
        return f"{kind}:{name}", bool(data[position])
    except (PeerError, UnicodeDecodeError, IndexError) as error:
        raise RequestError(
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
            f"the principal of the client cannot be read: {error}",
        ) from error


def _text(data: bytes, position: int, end: int) -> tuple[str, int]:
    size, position = read_uvarint(data, position, end, "principal")
    stop = position + size - 1
    if not position <= stop <= end:
        raise PeerError("a name in it is cut short")
    return data[position:stop].decode(), stop


async def _refuse(_context: RequestContext, _message: Any) -> Any:
    raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, "a controller does not answer this API")


def _load(api: Api, *, is_of_brokers: bool) -> None:
    if is_of_brokers:
        api.load()
    registry.response_codec(api.key)
    assert api.decoders is not None  # asking for them imports them
