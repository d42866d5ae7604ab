"""The broker's end of a connection, for tests that say what it answers."""

from __future__ import annotations

from typing import Any

import trio

from barnabas.wire.generated.api_versions import ApiVersionsResponse
from barnabas.wire.headers import encode_response, parse_request_header
from barnabas.wire.registry import request_codec

VERSIONS = {0: (0, 13), 1: (4, 17), 3: (0, 13), 10: (0, 6), 17: (0, 1), 18: (0, 4), 36: (0, 2), 60: (0, 2)}
"""What it serves: (first, last version) by API key."""


class Peer:
    """The broker's end: frames come in, responses go out."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.data = b""

    async def next(self) -> tuple[Any, Any]:
        """Return header and request of the next frame. Raises EOFError at the end."""
        while len(self.data) < 4 or len(self.data) < 4 + int.from_bytes(self.data[:4], "big"):
            part = await self.stream.receive_some()
            if not part:
                raise EOFError
            self.data += part
        end = 4 + int.from_bytes(self.data[:4], "big")
        frame, self.data = self.data[4:end], self.data[end:]
        header = parse_request_header(frame)
        request, _ = request_codec(header.api_key).decoders[header.api_version](
            memoryview(frame), header.body_position
        )
        return header, request

    async def answer(self, header: Any, response: Any, *, version: int | None = None) -> None:
        """Send a response to the request with that header."""
        chunks = encode_response(
            header.api_key,
            header.api_version if version is None else version,
            header.correlation_id,
            response,
        )
        await self.stream.send_all(b"".join(bytes(chunk) for chunk in chunks))  # type: ignore[arg-type]

    async def greet(self) -> None:
        """Answer ApiVersions with VERSIONS."""
        header, _ = await self.next()
        keys = [ApiVersionsResponse.ApiVersion(key, *span) for key, span in VERSIONS.items()]
        await self.answer(header, ApiVersionsResponse(api_keys=keys))
