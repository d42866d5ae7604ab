"""Request and response headers, and whole frames.

The rule: which header a message has follows from its key and version alone, with two exceptions that have
names here. A header is read before anybody knows whether the version is supported, so its client id never
became compact.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from barnabas.wire.errors import EncodeError
from barnabas.wire.primitives import (
    UVARINT,
    Buffer,
    Chunk,
    cut_short,
    read_unknown_tags,
    write_tags,
)
from barnabas.wire.registry import is_flexible, request_codec, response_codec

API_VERSIONS: Final = 18
"""Its response header is always version 0, since the client does not know the broker's versions yet."""

CONTROLLED_SHUTDOWN: Final = 7
"""Its requests of version 0 have a header without a client id, older than all others."""

_START: Final = Struct(">hhi")
_START_AND_LENGTH: Final = Struct(">hhih")
_CORRELATION_ID: Final = Struct(">i")
_SIZE_AND_CORRELATION_ID: Final = Struct(">ii")
_SIZE: Final = Struct(">i")


class RequestHeader:
    """Header of a request; the body starts at `body_position` of the frame."""

    __slots__ = (
        "api_key",
        "api_version",
        "body_position",
        "client_id",
        "correlation_id",
        "unknown_tagged_fields",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body_position: int,
        unknown_tagged_fields: dict[int, bytes] | None,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_position = body_position
        self.unknown_tagged_fields = unknown_tagged_fields

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


def response_header_version(key: int, version: int) -> int:
    """0: the correlation id. 1: with tagged fields."""
    return 0 if key == API_VERSIONS or not is_flexible(key, version) else 1


def parse_request_header(buf: Buffer, pos: int = 0) -> RequestHeader:
    """Decode the request header at `pos` of a frame without its size field. Raises DecodeError.

    The API key and the version are not checked.
    """
    end = len(buf)
    key: int
    version: int
    correlation_id: int
    length: int
    if end - pos < 8:
        raise cut_short("RequestHeader", pos, end)
    if end - pos < 10:
        key, version, correlation_id = _START.unpack_from(buf, pos)
        if key != CONTROLLED_SHUTDOWN or version != 0:
            raise cut_short("RequestHeader.ClientId", pos + 8, end)
        return RequestHeader(key, version, correlation_id, None, pos + 8, None)
    key, version, correlation_id, length = _START_AND_LENGTH.unpack_from(buf, pos)
    if key == CONTROLLED_SHUTDOWN and version == 0:
        return RequestHeader(key, version, correlation_id, None, pos + 8, None)
    pos += 10
    client_id: str | None = None
    tags: dict[int, bytes] | None = None
    if length >= 0:
        stop = pos + length
        if stop > end:
            raise cut_short("RequestHeader.ClientId", pos, end)
        client_id = str(buf[pos:stop], "utf-8", "replace")
        pos = stop
    if is_flexible(key, version):
        if pos >= end:
            raise cut_short("RequestHeader.tagged fields", pos, end)
        if buf[pos]:
            tags, pos = read_unknown_tags(buf, pos, end, "RequestHeader")
        else:
            pos += 1
    return RequestHeader(key, version, correlation_id, client_id, pos, tags)


def encode_request(
    key: int, version: int, correlation_id: int, client_id: str | None, message: Any
) -> list[Chunk]:
    """A whole request: size, header and body. Raises EncodeError, KeyError for an unknown key."""
    codec = request_codec(key)
    header: list[Chunk] = [b""]
    if key == CONTROLLED_SHUTDOWN and version == 0:
        start = _START.pack(key, version, correlation_id)
    else:
        name = b"" if client_id is None else client_id.encode()
        if len(name) > 0x7FFF:
            raise EncodeError(f"the client id takes {len(name)} bytes")
        length = -1 if client_id is None else len(name)
        start = _START_AND_LENGTH.pack(key, version, correlation_id, length) + name
        if is_flexible(key, version):
            start += UVARINT[0]
    codec.encode_into(message, version, header)
    header[0] = _SIZE.pack(len(start) + sum(map(len, header))) + start
    return codec.joined(header)


def encode_response(
    key: int,
    version: int,
    correlation_id: int,
    message: Any,
    header_tags: dict[int, bytes] | None = None,
) -> list[Chunk]:
    """A whole response: size, header and body. Raises EncodeError, KeyError for an unknown key.

    `header_tags` are tagged fields for the header, where its version has any.
    """
    out: list[Chunk] = []
    encode_into(out, key, version, correlation_id, message, header_tags)
    return response_codec(key).joined(out)


def encode_into(
    out: list[Chunk],
    key: int,
    version: int,
    correlation_id: int,
    message: Any,
    header_tags: dict[int, bytes] | None = None,
) -> None:
    """Append the encoded response to `out`, which must be empty; the first chunk is the size and the correlation id."""
    codec = response_codec(key)
    out.append(b"")
    if codec.flexible_from is not None and version >= codec.flexible_from and key != API_VERSIONS:
        if header_tags:
            write_tags(out, [], header_tags)
        else:
            out.append(UVARINT[0])
    codec.encode_into(message, version, out)
    out[0] = _SIZE_AND_CORRELATION_ID.pack(4 + sum(map(len, out)), correlation_id)


def response_start(size: int, correlation_id: int) -> bytes:
    """Return the bytes before `size` bytes that follow a response's correlation id."""
    return _SIZE_AND_CORRELATION_ID.pack(4 + size, correlation_id)


def parse_response_header(buf: Buffer, key: int, version: int, pos: int = 0) -> tuple[int, int]:
    """Read the header of a response: (correlation id, position of the body). Raises DecodeError."""
    end = len(buf)
    if end - pos < 4:
        raise cut_short("ResponseHeader", pos, end)
    correlation_id: int = _CORRELATION_ID.unpack_from(buf, pos)[0]
    pos += 4
    if response_header_version(key, version):
        if pos >= end:
            raise cut_short("ResponseHeader.tagged fields", pos, end)
        pos = read_unknown_tags(buf, pos, end, "ResponseHeader")[1]
    return correlation_id, pos


def decode_response(buf: Buffer, key: int, version: int) -> tuple[int, Any]:
    """Decode a whole response without its size field: (correlation id, message).

    Raises DecodeError, also if bytes are left over; KeyError for an unknown key.
    """
    correlation_id, pos = parse_response_header(buf, key, version)
    return correlation_id, response_codec(key).decode_whole(buf, version, pos)
