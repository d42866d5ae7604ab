"""A response to a control request is dropped once its broker is forgotten, at whatever moment."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import ClientSettings, Endpoint
from barnabas.cluster.controller.channels import ConnectedChannels
from barnabas.cluster.controller.state import Broker
from barnabas.cluster.controller.state import Endpoint as Listening
from barnabas.cluster.controller.steps import Outgoing
from barnabas.wire.generated.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.support.scripted_broker import ScriptedCluster


class AfterAResponse:
    """The client's end of a connection, with something to do between a response and the task that waits for it."""

    def __init__(self, stream: trio.abc.Stream, then: Any) -> None:
        self._stream = stream
        self._then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive_some(self, count: int | None = None) -> Any:
        self._then()  # whoever waits for what came last has been woken, and has not run yet
        return await self._stream.receive_some(count)


@pytest.mark.parametrize("ending", ["close", "registered again", "stop"])
def test_response_of_a_departing_broker_is_dropped(ending: str) -> None:
    async def program() -> None:
        scripted = ScriptedCluster()
        answered: list[Any] = []
        asked = trio.Event()
        ended = trio.Event()
        broker = Broker(1, 7, (Listening("PLAINTEXT", "one", 1),))

        def answer(_host: str, _request: Any) -> Any:
            asked.set()
            return DescribeClusterResponse()

        def then() -> None:
            if asked.is_set() and not ended.is_set():
                ended.set()
                endings[ending]()

        class Network:
            async def dial(self, host: str, port: int) -> Any:
                return AfterAResponse(await scripted.dial(Endpoint(host, port)), then)

        scripted.answer = answer
        channels = ConnectedChannels("PLAINTEXT", Network(), ClientSettings(), timeout_ms=60_000)  # type: ignore[arg-type]
        endings = {
            "close": lambda: channels.close(1),
            "registered again": lambda: channels.open(Broker(1, 8, broker.endpoints)),
            "stop": channels.stop,
        }
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channels.run)
            channels.open(broker)
            channels.send(Outgoing(1, 7, 0, DescribeClusterRequest()), lambda *args: answered.append(args))
            await ended.wait()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert not answered

    trio.run(program)
