"""Telemetry as clients ask for it and push it: the whole way of both requests through a broker."""

import logging

import pytest

from barnabas.metrics.client_telemetry import address_text
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.generated.push_telemetry import PushTelemetryRequest
from barnabas.wire.ids import parse_uuid
from tests.support.broker import broker_to_ask

CLIENT_METRICS = 16
ME = bytes(range(16))


def subscribe(**settings):
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=CLIENT_METRICS,
        resource_name="sub",
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name=name.replace("_", "."), value=value)
            for name, value in settings.items()
        ],
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


def get(instance_id=ME):
    return GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)


def push(subscription_id, **changed):
    return PushTelemetryRequest(client_instance_id=ME, subscription_id=subscription_id, **changed)


async def test_a_new_client_is_given_an_id_and_nothing_to_push(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        answer = await ask(get(bytes(16)), 0)
        assert answer.error_code == ErrorCode.NONE
        assert answer.client_instance_id not in (bytes(16), ME)
        assert answer.requested_metrics == []
        assert answer.push_interval_ms == 300_000
        assert answer.accepted_compression_types == [4, 3, 1, 2]
        assert answer.telemetry_max_bytes == 1_048_576
        assert answer.delta_temporality


async def test_subscription_reaches_its_clients_at_once(tmp_path):
    async with broker_to_ask(tmp_path, {"telemetry.max.bytes": "777"}) as ask:
        before = await ask(get(), 0)
        await ask(subscribe(metrics="a.,b.", interval_ms="5000", match="client_id=te.t"), 1)
        after = await ask(get(), 0)
        assert after.requested_metrics == ["a.", "b."]
        assert after.push_interval_ms == 5000
        assert after.telemetry_max_bytes == 777
        assert after.subscription_id != before.subscription_id
        await ask(subscribe(match="client_id=other"), 1)
        assert (await ask(get(), 0)).requested_metrics == []
        assert (await ask(get(), 0)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_subscriptions_are_there_after_a_restart(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await ask(subscribe(metrics="a."), 1)
    async with broker_to_ask(tmp_path) as ask:
        assert (await ask(get(), 0)).requested_metrics == ["a."]


async def test_a_push_is_refused_with_its_error(tmp_path):
    async with broker_to_ask(tmp_path, {"telemetry.max.bytes": "50"}) as ask:
        id_ = (await ask(get(), 0)).subscription_id
        for request, code in [
            (PushTelemetryRequest(subscription_id=id_), ErrorCode.INVALID_REQUEST),
            (push(id_ + 1), ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
            (push(id_), ErrorCode.THROTTLING_QUOTA_EXCEEDED),
        ]:
            assert (await ask(request, 0)).error_code == code


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(51)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": b"\xff" * 9, "compression_type": 4}, ErrorCode.INVALID_RECORD),
        ({"metrics": b""}, ErrorCode.NONE),
    ],
)
async def test_a_first_push_is_judged(tmp_path, changed, code):
    async with broker_to_ask(tmp_path, {"telemetry.max.bytes": "50"}) as ask:
        id_ = (await ask(get(), 0)).subscription_id
        assert (await ask(push(id_, **changed), 0)).error_code == code
        telemetry = ask.services.telemetry
        assert telemetry.instances.by_id[ME].last_error == code
        assert telemetry.unreadable == (code == ErrorCode.INVALID_RECORD)
        assert not telemetry.pushed.clients


async def test_what_is_pushed_is_kept_and_told(tmp_path, caplog):
    pytest.importorskip(
        "opentelemetry.proto.metrics.v1.metrics_pb2", reason="opentelemetry-proto is not installed"
    )
    point = b"\x21" + bytes(6) + b"\xf0\x3f"  # as_double 1.0
    metrics = field(1, field(2, field(2, field(1, b"some.metric") + field(5, field(1, point)))))
    async with broker_to_ask(tmp_path) as ask:
        id_ = (await ask(get(), 0)).subscription_id
        with caplog.at_level(logging.INFO):
            assert (await ask(push(id_, metrics=metrics), 0)).error_code == ErrorCode.NONE
            assert (await ask(push(id_, terminating=True, metrics=metrics), 0)).error_code == ErrorCode.NONE
        client = ask.services.telemetry.pushed.clients[ME]
        assert client.series == {("some.metric", "gauge", ()): 1.0}
        assert client.attributes["client_id"] == "test"
        assert client.pushes == 2
        assert sum("client metrics: client 'test'" in line for line in caplog.messages) == 1
        ask.broker.connections.parts.on_closed(ask.connection.connection_id)
        assert not ask.services.telemetry.instances.by_id
        assert ME in ask.services.telemetry.pushed.clients  # until it has been silent for long enough
        ask.clock.now_ms += 900_000
        ask.services.telemetry.expire()
        assert not ask.services.telemetry.pushed.clients


@pytest.mark.parametrize("match", ["client_software_name=unknown", "client_source_address=127\\.0\\.0\\.1"])
async def test_a_client_is_matched_by_what_kafka_would_know_of_it(tmp_path, match):
    async with broker_to_ask(tmp_path) as ask:
        await ask(subscribe(metrics="a.", match=match), 1)
        assert (await ask(get(), 0)).requested_metrics == ["a."]


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::a:0b%eth0", "fe80:0:0:0:0:0:a:b"),
    ],
)
def test_addresses_are_those_of_java(host, text):
    assert address_text(host) == text


METRICS = {"metrics.listener": "127.0.0.1:0"}


@pytest.mark.parametrize(
    ("settings", "is_advertised"),
    [
        ({}, False),
        (METRICS, True),
        ({"telemetry.enable": "true"}, True),
        ({**METRICS, "telemetry.enable": "false"}, False),
    ],
)
async def test_telemetry_is_advertised_where_somebody_can_read_it(tmp_path, settings, is_advertised):
    async with broker_to_ask(tmp_path, settings) as ask:
        keys = {api.api_key for api in (await ask(ApiVersionsRequest(), 0)).api_keys}
        assert keys == ask.services.served.keys()
        assert keys & {71, 72} == ({71, 72} if is_advertised else set())


async def test_a_client_is_matched_by_its_id(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await ask(subscribe(metrics="a.", match="client_instance_id=AAECAwQFBgcICQoLDA0ODw"), 1)
        assert (await ask(get(), 0)).requested_metrics == ["a."]
        assert (await ask(get(parse_uuid("AAECAwQFBgcICQoLDA0ODg")), 0)).requested_metrics == []


def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data
