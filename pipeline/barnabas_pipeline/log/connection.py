"""A plain blocking connection to a broker, on the broker's own wire codecs.

The rule: one request, one response. A broken connection or a retriable error raises `ConnectionLostError`, and whoever
asked starts over with fresh metadata; nothing is retried here.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Any, cast

from barnabas.wire import registry
from barnabas.wire.errors import DecodeError
from barnabas.wire.framing import check_frame_size
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import API_VERSIONS, decode_response, encode_request
from barnabas_pipeline.errors import IncompleteError, UsageError

CLIENT_ID = "barnabas-pipeline"
TIMEOUT_SECONDS = 30.0
FETCH, LIST_OFFSETS, METADATA, DESCRIBE_CONFIGS = 1, 2, 3, 32
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
_CODES = {int(code): code for code in ErrorCode}

# A broker older than 0.10 closes the connection on ApiVersions; these it has.
ANCIENT_VERSIONS = {FETCH: (0, 0), LIST_OFFSETS: (0, 0), METADATA: (0, 0)}


class ConnectionLostError(IncompleteError):
    """The broker cannot be reached, or went away, or does not answer in time."""


class Connection:
    """One connection, open after construction. Raises ConnectionLostError, UsageError."""

    def __init__(self, host: str, port: int, settings: Mapping[str, str]) -> None:
        self.peer = f"{host}:{port}"
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection((host, port), TIMEOUT_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            protocol = settings.get("security.protocol", "PLAINTEXT").upper()
            if protocol in ("SSL", "SASL_SSL"):
                self._socket = _tls_context(settings).wrap_socket(self._socket, server_hostname=host)
            elif protocol not in ("PLAINTEXT", "SASL_PLAINTEXT"):
                raise UsageError(f"security.protocol {protocol!r} is unknown")
            self.versions = self._learn_versions()
            if protocol.startswith("SASL"):
                from barnabas_pipeline.log.sasl import authenticate

                authenticate(self, settings)
        except OSError as error:
            raise ConnectionLostError(f"cannot connect to {self.peer}: {error}") from None

    def _learn_versions(self) -> dict[int, tuple[int, int]]:
        try:
            response = self.call(API_VERSIONS, ApiVersionsRequest(CLIENT_ID, "1"), version=0)
        except ConnectionLostError:
            return dict(ANCIENT_VERSIONS)
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def best(self, key: int, wanted_max: int) -> int:
        """The newest version of an API that both know, `wanted_max` at most. Raises IncompleteError."""
        low, high = self.versions.get(key, (0, -1))
        codec = registry.request_codec(key)
        version = min(high, wanted_max, codec.max_version)
        if version < max(low, codec.min_version):
            raise IncompleteError(f"{self.peer} serves no usable version of {codec.name}")
        return version

    def call(self, key: int, message: Any, *, version: int) -> Any:
        """Send a request and wait for its response."""
        self._correlation_id += 1
        try:
            chunks = encode_request(key, version, self._correlation_id, CLIENT_ID, message)
            self._socket.sendall(b"".join(cast("list[bytes]", chunks)))
            size = check_frame_size(self._receive(4), 0)
            correlation_id, response = decode_response(self._receive(size), key, version)
        except (OSError, DecodeError) as error:
            self.close()
            raise ConnectionLostError(f"{self.peer}: {error}") from None
        if correlation_id != self._correlation_id:
            self.close()
            raise ConnectionLostError(f"{self.peer} answered {correlation_id}, not {self._correlation_id}")
        return response

    def _receive(self, size: int) -> memoryview:
        buf = bytearray(size)
        view = memoryview(buf)
        at = 0
        while at < size:
            count = self._socket.recv_into(view[at:])
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            at += count
        return view

    def close(self) -> None:
        """Close it."""
        self._socket.close()


def describe(error_code: int) -> str:
    """Name an error code as Kafka does."""
    known = _CODES.get(error_code)
    return known.name if known is not None else f"error {error_code}"


def is_retriable(error_code: int) -> bool:
    """Whether the same request may succeed later or elsewhere."""
    known = _CODES.get(error_code)
    return known is not None and known.retriable


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """`host:port,...` as pairs. Raises UsageError."""
    pairs = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or not port.isdigit():
            raise UsageError(f"bootstrap server {part!r} is not host:port")
        pairs.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not pairs:
        raise UsageError("no bootstrap servers")
    return pairs


def _tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.get("ssl.ca.location"))
    if settings.get("ssl.endpoint.identification.algorithm", "https") in ("", "none"):
        context.check_hostname = False
    certificate = settings.get("ssl.certificate.location")
    if certificate:
        context.load_cert_chain(
            certificate, settings.get("ssl.key.location"), settings.get("ssl.key.password")
        )
    return context
