"""Pushes of clients that cannot be read: what the client is told, what is counted, and that the next one is taken."""

from __future__ import annotations

import pytest

from barnabas.errors import RequestError
from barnabas.metrics import client_telemetry
from barnabas.metrics.telemetry.payload import COUNTER, Point, Pushed
from barnabas.wire.generated.errors import ErrorCode
from tests.support.broker import broker_to_ask
from tests.support.plain_requests import ask

ME = bytes(range(16))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ZeroDivisionError(), ErrorCode.INVALID_RECORD),
        (RequestError(ErrorCode.TELEMETRY_TOO_LARGE), ErrorCode.TELEMETRY_TOO_LARGE),
        (RequestError(ErrorCode.INVALID_RECORD), ErrorCode.INVALID_RECORD),
    ],
    ids=repr,
)
async def test_unreadable_push_is_refused_counted_and_the_next_taken(tmp_path, monkeypatch, error, code):
    failures = [error]
    points = tuple(Point("m", COUNTER, (("n", str(number)),), 1.0) for number in range(450))

    def read(codec: int, data: bytes, bytes_max: int) -> Pushed:
        assert (codec, bytes(data), bytes_max) == (0, b"metrics", 777)
        if failures:
            raise failures.pop()
        return Pushed((("resource", "r"),), points)

    monkeypatch.setattr(client_telemetry, "_read", read)
    async with broker_to_ask(tmp_path, {"telemetry.max.bytes": "777"}) as asked:
        subscription = await ask(asked, "GetTelemetrySubscriptions", 0, {"ClientInstanceId": ME})
        push = {"ClientInstanceId": ME, "SubscriptionId": subscription.subscription_id, "Metrics": b"metrics"}
        assert (await ask(asked, "PushTelemetry", 0, push)).error_code == code
        telemetry = asked.services.telemetry
        assert (telemetry.unreadable, telemetry.taken) == (1, 0)
        assert telemetry.instances.by_id[ME].last_error == code
        assert not telemetry.pushed.clients
        last = await ask(asked, "PushTelemetry", 0, {**push, "Terminating": True})
        assert last.error_code == 0
        assert (telemetry.unreadable, telemetry.taken) == (1, 1)
        assert telemetry.instances.by_id[ME].last_error == 0
        kept = telemetry.pushed.clients[ME]
        assert (len(kept.series), kept.resource, kept.pushes) == (450, (("resource", "r"),), 1)
