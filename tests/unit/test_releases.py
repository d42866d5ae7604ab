"""A broker that is one release of Apache Kafka: what it serves, its defaults, and which releases there are."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.cluster.kraft.offline import image_of
from barnabas.cluster.metadata.config_description import synonyms_of_broker_setting
from barnabas.config import broker as settings
from barnabas.config import releases
from barnabas.config.loading import DEFAULT_CONFIG, BrokerConfig
from barnabas.config.setting import SettingError
from barnabas.log.disk import OsDisk
from barnabas.serving import apis
from barnabas.serving.release import KAFKA_4, profile_of, release
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.stop_replica import StopReplicaRequest
from tests.support.broker import ask_for_topic, broker_to_ask
from tests.support.brokers import serving
from tests.support.raw_client import RawClient

NOT_SERVED = {55, 58, 64, 80, 81, 94}
"""APIs of a quorum of controllers, and what brokers forward to them (docs/reference/not-implemented.md)."""
TELEMETRY = {71, 72}


def config_as(version: str, **more: str) -> BrokerConfig:
    return BrokerConfig(
        {"kafka.version": version, **{name.replace("_", "."): text for name, text in more.items()}}
    )


@pytest.mark.parametrize("name", releases.NAMES)
def test_each_release_serves_its_apis_and_versions(name):
    published = releases.versions_of(name)
    served = release(name).served_by(config_as(name, telemetry_enable="true"))
    first = release(name).advertised_first
    advertised = {key: (api.min_version, api.max_version) for key, api in served.items()}
    assert advertised == {key: published[key] for key in published.keys() - NOT_SERVED}
    assert set(first) <= {0}, "Produce: librdkafka looks for v0"
    assert (18 in served) == releases.is_at_least(name, "0.10.0")


BEFORE_ANY_RELEASE = {76: {0}, 77: {0}, 78: {0}, 79: {0}}
"""Served versions by API key that 4.0 had for its preview of share groups and did not advertise."""


def test_every_served_version_is_one_of_a_kafka_release():
    released = {key: set(versions) for key, versions in BEFORE_ANY_RELEASE.items()}
    for name in releases.NAMES:
        for key, (first, last) in releases.versions_of(name).items():
            released.setdefault(key, set()).update(range(first, last + 1))
    for key, version in apis.UNSTABLE.items():
        released[key].add(version)
    unknown = [
        f"{api.name} v{version}"
        for api in apis.BY_KEY.values()
        for version in range(api.min_version, api.max_version + 1)
        if version not in released.get(api.key, ())
    ]
    assert not unknown, (
        f"no release of Kafka in config/releases.py serves {', '.join(unknown)}: correct the row in serving/apis.py, or "
        "add the release there, with the versions in the ApiKeys of its kafka-clients"
    )


async def ask(bootstrap: str, request: Any, version: int) -> Any:
    def alone() -> Any:
        with RawClient(bootstrap) as client:
            return client.ask(request, version)

    return await trio.to_thread.run_sync(alone)


async def advertised(bootstrap: str, version: int) -> dict[int, tuple[int, int]]:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    answer = await ask(bootstrap, request, version)
    assert answer.error_code == 0
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


@pytest.mark.parametrize(("name", "version"), [("0.10.0", 0), ("2.8", 3), ("3.9", 3), ("4.3", 4), ("4.4", 5)])
async def test_a_client_is_told_of_exactly_these(name, version, tmp_path):
    config = BrokerConfig(
        {"kafka.version": name, "log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    )
    async with serving(config) as broker:
        told = await advertised(broker.bootstrap, version)
    published = {**releases.versions_of(name)}
    if name.startswith("4"):
        published[0] = (0, published[0][1])
    assert told == {key: published[key] for key in published.keys() - NOT_SERVED - TELEMETRY}


async def test_what_a_release_does_not_have_closes_the_connection(tmp_path):
    config = BrokerConfig(
        {"kafka.version": "0.9.0", "log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    )
    async with serving(config) as broker:
        assert await ask(broker.bootstrap, ApiVersionsRequest(), 0) is None
        assert await ask(broker.bootstrap, ListOffsetsRequest(replica_id=-1), 1) is None
        assert (await ask(broker.bootstrap, ListOffsetsRequest(replica_id=-1), 0)).topics == []


async def test_what_brokers_ask_each_other_is_advertised_and_refused(tmp_path):
    """A client that looks for the keys of old releases finds them; a broker that is alone has no controller."""
    config = BrokerConfig(
        {"kafka.version": "2.8", "log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    )
    async with serving(config) as broker:
        answer = await ask(broker.bootstrap, StopReplicaRequest(controller_id=1, controller_epoch=1), 0)
    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH


def test_defaults_are_those_of_the_release():
    config = config_as("0.10.2")
    assert config.get(settings.OFFSETS_RETENTION_MINUTES) == 1440
    assert config.value_of("unclean.leader.election.enable") is True
    assert not config.is_set("unclean.leader.election.enable")
    assert synonyms_of_broker_setting(config, "message.max.bytes") == [
        ("message.max.bytes", "1000012", DEFAULT_CONFIG)
    ]
    config.set_dynamic({"message.max.bytes": "5"}, {})
    assert config.value_of("message.max.bytes") == 5
    config.set_dynamic({}, {})
    assert config.value_of("message.max.bytes") == 1000012
    assert config_as("0.10.2", message_max_bytes="7").value_of("message.max.bytes") == 7
    assert config_as("4.3").value_of("message.max.bytes") == 1048588


@pytest.mark.parametrize(("name", "level"), [("", 33), ("4.4", 33), ("4.3", 30), ("2.8", 30)])
async def test_new_log_dirs_have_the_levels_of_the_release(name, level, tmp_path):
    async with broker_to_ask(tmp_path, {"kafka.version": name}) as asked:
        await ask_for_topic(asked)
    assert image_of(OsDisk(), [str(tmp_path / "logs")]).metadata_version == level


@pytest.mark.parametrize(
    ("text", "name"),
    [("2.8", "2.8"), ("2.8.1", "2.8"), ("v3.9.2", "3.9"), ("0.8.2.2", "0.8.2"), ("0.10.2", "0.10.2")],
)
def test_a_release_is_named_as_people_do(text, name):
    assert releases.named(text) == name


@pytest.mark.parametrize("text", ["", "5.0", "0.7", "2", "2.8.x", "latest", "0.8"])
def test_what_is_no_release_is_refused_with_those_that_are(text):
    with pytest.raises(ValueError, match=r"is no release .* 0\.8\.0, .* 4\.4"):
        releases.named(text)
    if text:
        with pytest.raises(SettingError):
            config_as(text)


def test_default_release_is_the_newest_with_older_versions():
    newest = release(releases.NAMES[-1])
    assert profile_of(BrokerConfig()) is KAFKA_4
    assert KAFKA_4.features == newest.features
    assert KAFKA_4.apis.keys() == apis.BY_KEY.keys()
    for key, api in newest.apis.items():
        assert KAFKA_4.apis[key].max_version == api.max_version, api.name
        assert KAFKA_4.apis[key].min_version <= api.min_version, api.name
