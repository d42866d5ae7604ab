"""A broker without listeners for tests of handlers: real settings, metadata and logs in a temporary directory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import trio

from barnabas.broker.app import Broker
from barnabas.broker.assembly import assembled
from barnabas.broker.authorization import authorizer_of
from barnabas.broker.handlers import Handlers
from barnabas.broker.services import Services
from barnabas.config.loading import BrokerConfig
from barnabas.environment import Threads
from barnabas.environment.real import real_environment
from barnabas.log.disk import Disk
from barnabas.serving import apis
from barnabas.serving.context import ContextParts
from barnabas.serving.encoding import CodecWorker
from barnabas.serving.log_limit import LogLimit
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.request_parts import RequestParts
from barnabas.serving.seams import NO_SEAMS, Seams
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.headers import decode_response
from tests.support.request_parts import ENTRIES_MAX, Transport, answered, frame_of, new_connection

NOW_MS = 1_700_000_000_000


class Clock:
    """A wall clock that a test moves."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


class Asked:
    """A broker to ask: `await asked(request, version)` is the response; both are encoded and decoded on the way."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self.broker = broker
        self.services = broker.services
        self.clock = clock
        self.connection = new_connection()
        self.client_id = "test"
        self.log_limit = LogLimit()
        self.authorizer = authorizer_of(self.services.config, self.services.metadata)
        self.is_closed = False
        """True if the connection is closed after the last response, or without one: then the response was None."""

    @property
    def services(self) -> Services:
        """The services of the handlers; setting them also creates new handlers."""
        return self._services

    @services.setter
    def services(self, services: Services) -> None:
        self._services = services
        self.handlers = Handlers(services)

    async def __call__(self, request: Any, version: int) -> Any:
        name = type(request).__name__.removesuffix("Request")
        api = next(api for api in apis.BY_KEY.values() if api.name == name)
        assert api.min_version <= version <= api.max_version
        services = self.services
        parts = RequestParts(
            apis.BY_KEY,  # those between brokers, too, which a broker that is alone does not serve
            self.handlers,
            ContextParts(self.broker.memory, self.log_limit, self.authorizer),
            CodecWorker(services.threads, ENTRIES_MAX),
            budget=services.budget,
            failures=services.failures,
            release=services.release,
            clock_ms=services.clock_ms,
            now_s=trio.current_time,
        )
        transport = Transport()
        frame = frame_of(api.key, version, request, self.client_id)
        self.is_closed = not await answered(parts, self.connection, transport, frame)
        return decode_response(transport.sent[4:], api.key, version)[1] if transport.sent else None


async def ask_for_topic(
    asked: Asked, name: str = "t", *, partitions: int = 2, settings: Mapping[str, str] | None = None
) -> None:
    """Create a topic with one replica."""
    configs = [
        CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
        for key, value in (settings or {}).items()
    ]
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=configs
    )
    answer = await asked(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    assert [topic.error_code for topic in answer.topics] == [0]


A = TypeVar("A", bound=Asked)


@asynccontextmanager
async def broker_to_ask(
    directory: Path,
    settings: Mapping[str, str] | None = None,
    *,
    disk: Disk | None = None,
    budget: LoopBudget | None = None,
    threads: Threads | None = None,
    kind: type[A] = Asked,  # type: ignore[assignment]
    seams: Seams = NO_SEAMS,
) -> AsyncIterator[A]:
    """Yield a whole broker without listeners, with its data in a directory; it is closed cleanly at the end.

    `disk`, `budget` and `threads` replace the usual ones. A clock that jumps needs simulated threads: it would jump while
    a real thread works.
    """
    values = {"log.dirs": str(directory / "logs"), "listeners": "PLAINTEXT://127.0.0.1:0", **(settings or {})}
    clock = Clock()
    environment = real_environment(disk, clock)
    if threads is not None:
        environment = environment._replace(threads=threads)
    async with assembled(BrokerConfig(values), environment, budget=budget, seams=seams) as broker:
        yield kind(broker, clock)
