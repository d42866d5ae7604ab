"""`serve --tap`: what gets a line, and what is counted only."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.errors import RequestError
from barnabas.tools.tap.broker_tap import BrokerTap
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse

PRODUCE = 0


def context(connection_id: int = 1) -> Any:
    connection = SimpleNamespace(
        connection_id=connection_id,
        peer_address=("127.0.0.1", 4000),
        local_address=("127.0.0.1", 9092),
        login=None,
        user="ANONYMOUS",
    )
    return SimpleNamespace(
        api_key=PRODUCE, api_version=9, correlation_id=1, client_id="app", connection=connection
    )


def answer(code: int = 0) -> ProduceResponse:
    partition = ProduceResponse.PartitionProduceResponse(0, code, 5, -1, 0, [], None)
    return ProduceResponse(
        responses=[ProduceResponse.TopicProduceResponse(name="t", partition_responses=[partition])]
    )


async def test_requests_over_the_line_limit_count_and_failures_show(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.5)
    tap = BrokerTap("lines=1")
    intercept = tap.around(None)

    async def ask(response: ProduceResponse | RequestError) -> Any:
        async def handler(*_: Any) -> Any:
            if isinstance(response, RequestError):
                raise response
            return response

        return await intercept(context(), ProduceRequest(acks=1), handler)

    async with tap.running():
        for _ in range(5):
            assert await ask(answer()) == answer()
        await ask(answer(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        with pytest.raises(RequestError):
            await ask(RequestError(ErrorCode.INVALID_REQUEST, "no"))
    lines = capsys.readouterr().out.splitlines()
    shown = [line for line in lines if "Produce" in line]
    failed = [line for line in shown if "NOT_LEADER_OR_FOLLOWER" in line or "INVALID_REQUEST" in line]
    assert len(failed) == 2
    assert any("more in this second" in line for line in shown)
    counted = next(line for line in shown if "more in this second" in line)
    # The line of this second went to the connection itself.
    assert "Produce 5" in counted
