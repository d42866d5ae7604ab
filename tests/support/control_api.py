"""The control API of a broker in the test's own process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from barnabas.config.loading import BrokerConfig
from barnabas.tools.control.host import Host
from barnabas.tools.control.recorder import Recorder
from barnabas.tools.control.routes import dispatch
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.headers import encode_request

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class Api:
    """The control API of a broker in this process."""

    def __init__(self, host: Host) -> None:
        self.host = host

    async def __call__(self, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
        return await dispatch(
            self.host, method, f"/v1/{path}", {name: str(value) for name, value in query.items()}, body
        )

    async def get(self, path: str, **query: Any) -> Any:
        status, value = await self("GET", path, **query)
        assert status == 200, value
        return value

    async def do(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        status, value = await self(method, path, body, **query)
        assert status in (200, 204), value
        return value

    async def refused(self, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, str]:
        status, value = await self(method, path, body, **query)
        assert status >= 400
        return status, value["error"]


def host_in(directory: Path, **more: Any) -> Host:
    return Host(BrokerConfig({"log.dirs": str(directory / "data"), **SETTINGS}), recorder=Recorder(), **more)


async def connected(api: Api, client_id: str = "app") -> trio.SocketStream:
    """Return a connection on which one request was answered."""
    name, _, port = api.host.bootstrap.rpartition(":")
    stream = await trio.open_tcp_stream(name, int(port))
    await stream.send_all(
        b"".join(bytes(chunk) for chunk in encode_request(3, 12, 1, client_id, MetadataRequest(topics=[])))
    )
    assert len(await stream.receive_some()) > 8
    return stream
