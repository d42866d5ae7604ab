"""Limits of settings follow the release that a broker is told to be; what was set under another one still counts."""

import pytest

from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.describe_configs import DescribeConfigsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.support.broker import broker_to_ask

TOPIC = 2
TAKES_SMALL = {"2.6": True, "3.7": True, "3.9": True, "4.0": True, "4.1": False, "4.3": False, "": False}


async def made(ask, name, segment_bytes):
    config = CreateTopicsRequest.CreatableTopicConfig(name="segment.bytes", value=segment_bytes)
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, configs=[config]
    )
    answer = await ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 4)
    return answer.topics[0].error_code


async def altered(ask, name, segment_bytes):
    config = IncrementalAlterConfigsRequest.AlterableConfig(
        name="segment.bytes", config_operation=0, value=segment_bytes
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC, resource_name=name, configs=[config]
    )
    answer = await ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return answer.responses[0].error_code


async def described(ask, name):
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=name, configuration_keys=["segment.bytes"]
    )
    answer = await ask(DescribeConfigsRequest(resources=[resource]), 1)
    return [(config.name, config.value) for config in answer.results[0].configs]


@pytest.mark.parametrize("release", TAKES_SMALL)
async def test_a_topic_with_small_segments(tmp_path, release):
    settings = {"kafka.version": release} if release else {}
    refused = 0 if TAKES_SMALL[release] else ErrorCode.INVALID_CONFIG
    async with broker_to_ask(tmp_path, settings) as ask:
        assert await made(ask, "small", "200") == refused
        assert await made(ask, "large", "1048576") == 0
        assert await altered(ask, "large", "14") == refused
        assert await altered(ask, "large", "13") == ErrorCode.INVALID_CONFIG


async def test_what_was_set_under_an_older_release_counts_and_may_stay(tmp_path):
    async with broker_to_ask(tmp_path, {"kafka.version": "3.9"}) as ask:
        assert await made(ask, "small", "200") == 0
    async with broker_to_ask(tmp_path) as ask:
        assert await described(ask, "small") == [("segment.bytes", "200")]
        assert ask.services.replicas.leader("small", 0).log.config.segment_bytes == 200
        assert await altered(ask, "small", "300") == ErrorCode.INVALID_CONFIG
        assert await altered(ask, "small", "1048576") == 0
