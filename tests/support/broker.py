"""A broker without listeners for tests of handlers: real settings, metadata and logs in a temporary directory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from barnabas import apis
from barnabas.broker import storage
from barnabas.broker.app import Broker
from barnabas.config.loading import BrokerConfig
from barnabas.errors import RequestError
from barnabas.handlers.errors import error_response
from barnabas.requests.context import ConnectionInfo, RequestContext
from barnabas.wire.headers import decode_response, encode_request, encode_response, parse_request_header

NOW_MS = 1_700_000_000_000
CONNECTION = ConnectionInfo(1, "PLAINTEXT", "PLAINTEXT", ("127.0.0.1", 9092), ("127.0.0.1", 50_000))


class Asked:
    """A broker to ask: `await asked(request, version)` is the response, both having been bytes on the way."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def __call__(self, request: Any, version: int) -> Any:
        name = type(request).__name__.removesuffix("Request")
        api = next(api for api in apis.SERVED.values() if api.name == name)
        assert api.min_version <= version <= api.max_version
        frame = b"".join(bytes(chunk) for chunk in encode_request(api.key, version, 1, "test", request))[4:]
        header = parse_request_header(frame)
        received, _ = api.decoders[version](memoryview(frame), header.body_position)
        context = RequestContext(self.broker, CONNECTION, api.key, version, 1, "test", NOW_MS)
        try:
            response = await api.handle(context, received)
        except RequestError as error:
            response = error_response(api, context, received, error.code, error.message)
        answer = b"".join(bytes(chunk) for chunk in encode_response(api.key, version, 1, response))[4:]
        return decode_response(answer, api.key, version)[1]


@asynccontextmanager
async def broker_to_ask(directory: Path, settings: Mapping[str, str] | None = None) -> AsyncIterator[Asked]:
    """Open a broker's storage in a directory, and close it cleanly."""
    config = BrokerConfig({"log.dirs": str(directory / "logs"), **(settings or {})})
    broker = Broker(config, now_ms=lambda: NOW_MS)
    async with trio.open_nursery() as background:
        broker._background = background  # what is only made when it is needed runs there
        await storage.open_storage(broker)
        try:
            yield Asked(broker)
        finally:
            background.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await storage.close_storage(broker)
