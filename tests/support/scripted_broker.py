"""The broker's end of connections, with scripted responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from barnabas.client import Endpoint
from barnabas.client.background import background
from barnabas.wire.generated.api_versions import ApiVersionsResponse
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.headers import encode_response, parse_request_header
from barnabas.wire.registry import request_codec

VERSIONS = {0: (0, 13), 1: (4, 17), 3: (0, 13), 10: (0, 6), 17: (0, 1), 18: (0, 4), 36: (0, 2), 60: (0, 2)}
"""The versions that it serves: (first, last) by API key."""
BOOTSTRAP = Endpoint("bootstrap", 9092)
TOPIC_ID = b"0123456789abcdef"
UNKNOWN_TOPIC = 3
SILENCE = object()
"""Result of a scripted cluster's `answer` for a request that is never answered."""


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

    async def greet(self, versions: dict[int, tuple[int, int]] = VERSIONS) -> None:
        """Answer ApiVersions."""
        header, _ = await self.next()
        keys = [ApiVersionsResponse.ApiVersion(key, *span) for key, span in versions.items()]
        await self.answer(header, ApiVersionsResponse(api_keys=keys))


class ScriptedCluster:
    """Brokers that answer Metadata with `leader` and `epoch`, and everything else with `answer`."""

    def __init__(self) -> None:
        self.addresses = {1: Endpoint("one", 1), 2: Endpoint("two", 2)}
        self.leader, self.epoch, self.controller = 1, 5, 1
        self.asked: list[tuple[str, str]] = []
        self.dialled: list[str] = []
        self.versions = VERSIONS
        self.latency_s = 0.0
        """Time that each answer takes; requests that come meanwhile wait for their turn."""
        self.topic_ids: dict[str, bytes | None] = {}
        """The ids of topics other than TOPIC_ID; None for topics that do not exist."""
        self.answer: Callable[[str, Any], Any] = lambda host, request: FetchResponse()
        self.spawn: Callable[..., object] = trio.lowlevel.spawn_system_task
        """Starts a task that serves a connection."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve connections for the length of the block; exceptions of the block are raised ungrouped."""
        async with background() as nursery:
            self.spawn = nursery.start_soon
            yield

    async def dial(self, endpoint: Endpoint) -> trio.abc.Stream:
        """Connect to one of the brokers. Raises ConnectionRefusedError."""
        self.dialled.append(endpoint.host)
        await trio.lowlevel.checkpoint()
        if endpoint not in (BOOTSTRAP, *self.addresses.values()):
            raise ConnectionRefusedError(f"nobody at {endpoint}")
        ours, theirs = trio.testing.memory_stream_pair()
        self.spawn(self._serve, endpoint.host, theirs)
        return ours

    async def _serve(self, host: str, stream: trio.abc.Stream) -> None:
        peer = Peer(stream)
        try:
            await peer.greet(self.versions)
            while True:
                header, request = await peer.next()
                self.asked.append((host, type(request).__name__.removesuffix("Request")))
                if self.latency_s:
                    await trio.sleep(self.latency_s)
                if isinstance(request, MetadataRequest):
                    await peer.answer(header, self.metadata(request))
                elif (answer := self.answer(host, request)) is None:
                    await stream.aclose()
                elif answer is not SILENCE:
                    await peer.answer(header, answer)
        except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Answer for the topics that are asked for."""
        partition = MetadataResponse.MetadataResponsePartition(
            partition_index=0, leader_id=self.leader, leader_epoch=self.epoch
        )
        return MetadataResponse(
            cluster_id="c",
            controller_id=self.controller,
            brokers=[MetadataResponse.MetadataResponseBroker(id_, *at) for id_, at in self.addresses.items()],
            topics=[
                MetadataResponse.MetadataResponseTopic(
                    name=name,
                    error_code=UNKNOWN_TOPIC if id_ is None else 0,
                    topic_id=id_ or bytes(16),
                    partitions=[partition],
                )
                for name in (topic.name or "" for topic in request.topics or [])
                for id_ in (self.topic_ids.get(name, TOPIC_ID),)
            ],
        )
