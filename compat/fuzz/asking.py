"""A client that waits for each response, over any stream, without threads, as a simulated clock would advance meanwhile."""

from __future__ import annotations

import struct
from typing import Any

import trio

from barnabas.client.sasl import exchange
from barnabas.client.settings import SaslCredentials
from barnabas.wire import registry
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest
from barnabas.wire.headers import decode_response, encode_request


class LoginRefused(Exception):  # noqa: N818 (what a broker may do)
    """The broker refuses these credentials."""


class Asker:
    """A connection that is used by one task. Raises ConnectionResetError when the broker closes it."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._data = b""

    async def ask(self, request: Any, version: int) -> Any:
        """Return the response."""
        key = registry.key_of(type(request).__name__.removesuffix("Request"))
        await self._stream.send_all(b"".join(map(bytes, encode_request(key, version, 1, "fuzz", request))))  # type: ignore[arg-type]
        return decode_response(memoryview(await self._frame()), key, version)[1]

    async def _frame(self) -> bytes:
        while len(self._data) < 4 or len(self._data) < 4 + struct.unpack_from(">i", self._data)[0]:
            part = await self._stream.receive_some()
            if not part:
                raise ConnectionResetError("the broker has closed the connection")
            self._data += part
        end = 4 + struct.unpack_from(">i", self._data)[0]
        frame, self._data = self._data[4:end], self._data[end:]
        return frame

    async def log_in(self, credentials: SaslCredentials, nonce: bytes = b"nonce-of-16-byte") -> None:
        """Log in. Raises LoginRefused."""
        answer = await self.ask(SaslHandshakeRequest(mechanism=credentials.mechanism), 1)
        if answer.error_code:
            raise LoginRefused(f"{credentials.mechanism} is not offered")
        messages = exchange(credentials, nonce)
        data = next(messages)
        while True:
            answer = await self.ask(SaslAuthenticateRequest(auth_bytes=data), 2)
            if answer.error_code:
                raise LoginRefused(str(answer.error_message))
            try:
                data = messages.send(bytes(answer.auth_bytes))
            except StopIteration:
                return
