"""Frames of requests and responses, without their size field, decoded as far as possible.

The rule: nothing here raises; `problem` is the reason why a frame is not decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from barnabas.wire import registry
from barnabas.wire.errors import DecodeError
from barnabas.wire.headers import parse_request_header, parse_response_header
from barnabas.wire.primitives import Buffer

PRODUCE = 0
API_VERSIONS = 18


@dataclass(slots=True)
class Request:
    """A request, decoded as far as possible; without a `message`, `problem` is the reason."""

    size: int
    api_key: int = -1
    api: str = "?"
    version: int = -1
    correlation_id: int = 0
    client_id: str | None = None
    message: Any = None
    problem: str = ""
    body_position: int = 0

    @property
    def is_answered(self) -> bool:
        """True if the broker answers the request: not a Produce request with acks=0."""
        return self.api_key != PRODUCE or self.message is None or self.message.acks != 0


@dataclass(slots=True)
class Response:
    """A response, decoded as far as possible."""

    size: int
    correlation_id: int = 0
    message: Any = None
    problem: str = ""
    version: int = -1
    """The version that it was decoded as: 0 where a broker refuses that of an ApiVersions request."""


def api_name(key: int) -> str:
    """Return Kafka's name of an API, or its key if unknown."""
    return registry.name_of(key) if registry.is_known(key) else f"API key {key}"


def read_header(frame: Buffer) -> Request:
    """Read a request's header only, from its first bytes."""
    request = Request(len(frame))
    try:
        header = parse_request_header(frame)
    except DecodeError as error:
        request.problem = f"no request header: {error}"
        return request
    request.api_key = header.api_key
    request.api = api_name(header.api_key)
    request.version = header.api_version
    request.correlation_id = header.correlation_id
    request.client_id = header.client_id
    request.body_position = header.body_position
    return request


def read_request(frame: Buffer) -> Request:
    """Decode a request."""
    request = read_header(frame)
    if request.problem:
        return request
    key, version = request.api_key, request.version
    if not registry.is_known(key):
        request.problem = f"unknown API key {key}"
        return request
    codec = registry.request_codec(key)
    if not codec.min_version <= version <= codec.max_version:
        request.problem = (
            f"{request.api} v{version} is unknown: v{codec.min_version} to v{codec.max_version} are decoded"
        )
        return request
    try:
        request.message = codec.decode_whole(frame, version, request.body_position)
    except (DecodeError, UnicodeDecodeError) as error:
        request.problem = f"{request.api} v{version}: {error}"
    return request


def read_response(frame: Buffer, api_key: int, version: int) -> Response:
    """Decode the answer to a request of this API and version."""
    response = Response(len(frame), version=version)
    if len(frame) < 4:
        response.problem = f"{len(frame)} bytes are too few for a correlation id"
        return response
    response.correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    if not registry.is_known(api_key):
        response.problem = f"unknown API key {api_key}"
        return response
    codec = registry.response_codec(api_key)
    if not codec.min_version <= version <= codec.max_version and api_key != API_VERSIONS:
        versions = f"v{codec.min_version} to v{codec.max_version}"
        response.problem = f"{registry.name_of(api_key)} v{version} is unknown: {versions} are decoded"
        return response
    # A broker that does not know the version of ApiVersions answers with error 35 in version 0 (KIP-511).
    is_refused = api_key == API_VERSIONS and (version > codec.max_version or bytes(frame[4:6]) == b"\0\x23")
    for candidate in (0, version) if is_refused else (version,):
        if candidate > codec.max_version:
            continue
        try:
            _, position = parse_response_header(frame, api_key, candidate)
            response.message = codec.decode_whole(frame, candidate, position)
        except (DecodeError, UnicodeDecodeError) as error:
            response.problem = f"{registry.name_of(api_key)} v{candidate}: {error}"
        else:
            response.version, response.problem = candidate, ""
            return response
    return response


def looks_like_request(frame: Buffer, size: int) -> bool:
    """Return whether the first bytes of a frame of `size` bytes can be the header of a Kafka request.

    Used where a frame may be something else: a bare token of a login, or bytes in the middle of a captured stream.
    """
    if len(frame) < 8 or size < 8:
        return False
    key = int.from_bytes(frame[:2], "big", signed=True)
    version = int.from_bytes(frame[2:4], "big", signed=True)
    if not registry.is_known(key) or not 0 <= version <= registry.info(key).request_max_version + 8:
        return False
    if len(frame) < 10 or size < 10:
        return key == 7 and version == 0
    length = int.from_bytes(frame[8:10], "big", signed=True)
    return -1 <= length <= size - 10
