"""Client requests that the broker forwards to the active controller (KIP-590).

The rule: the controller sees the client's request with its correlation id, principal and address, authorizes and answers
it; the broker checks nothing before, and returns the answer unchanged.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.errors import RequestError, UnansweredError
from barnabas.network.sockets import joined
from barnabas.wire.generated.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import decode_response, encode_request
from barnabas.wire.primitives import encode_string_length

if TYPE_CHECKING:
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.serving.apis import Api
    from barnabas.serving.context import RequestContext

FORWARDING_SECONDS = 60.0
"""Longest wait for an active controller, as in Kafka's forwarding manager."""
CHANNEL = "forwarding"


class Forwarder:
    """Forwards requests of clients to the active controller."""

    def __init__(self, controllers: Peers) -> None:
        self._controllers = controllers

    def advertised(self, api: Api) -> Api | None:
        """Return a forwarded API with the versions that both broker and controller serve; None without a common version.

        Without a connection to a controller the broker's own versions are returned, as in Kafka.
        """
        versions = self._controllers.controller_versions()
        if versions is None or not api.forwarded:
            return api
        lowest, highest = versions.get(api.key, (0, -1))
        first, last = max(lowest, api.min_version), min(highest, api.max_version)
        return api.in_versions(first, last) if first <= last else None

    async def forward(self, context: RequestContext, message: Any) -> Any:
        """Return the controller's response to a client's request.

        Its throttle time mutes the client's connection. Raises REQUEST_TIMED_OUT without a controller,
        UNKNOWN_SERVER_ERROR for a request that may not be forwarded; UnansweredError where the controller cannot read
        it, as Kafka's broker closes the connection.
        """
        key, version = context.api_key, context.api_version
        chunks = encode_request(key, version, context.correlation_id, context.client_id, message)
        request = EnvelopeRequest(
            request_data=joined(chunks)[4:],
            request_principal=principal_data(
                context.connection.principal, is_token=context.connection.token_authenticated
            ),
            client_host_address=ip_address(context.connection.peer_address[0].partition("%")[0]).packed,
        )
        try:
            response: EnvelopeResponse = await self._controllers.ask_controller(
                request, timeout_s=FORWARDING_SECONDS, channel=CHANNEL
            )
        except PeerUnavailableError as error:
            raise RequestError(
                ErrorCode.REQUEST_TIMED_OUT, f"no active controller has answered: {error}"
            ) from error
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            raise UnansweredError(f"the controller cannot read version {version} of API {key}")
        if response.error_code or response.response_data is None:
            raise RequestError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the controller refuses to answer API {key}: {response.error_code}",
            )
        _, answer = decode_response(response.response_data, key, version)
        context.connection.muted_ms = max(context.connection.muted_ms, getattr(answer, "throttle_time_ms", 0))
        return answer


def principal_data(principal: str, *, is_token: bool) -> bytes:
    """Return a principal in the encoding of an envelope: DefaultPrincipalData v0 after its version (KIP-590)."""
    kind, _, name = principal.partition(":")
    parts = b"".join(encode_string_length(len(text) + 1) + text for text in (kind.encode(), name.encode()))
    return b"\0\0" + parts + bytes([is_token, 0])
