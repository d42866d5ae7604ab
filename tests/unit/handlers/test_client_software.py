"""ApiVersions and DescribeCluster: what a client says it is, which broker it has reached, which endpoint it asks."""

from __future__ import annotations

import pytest

from barnabas.wire.generated.errors import ErrorCode
from tests.support.broker import broker_to_ask
from tests.support.plain_requests import DenyNamed, ask

BAD = ErrorCode.INVALID_REQUEST


@pytest.fixture
async def asked(tmp_path):
    async with broker_to_ask(tmp_path) as asked:
        yield asked


def software(name: str, version: str) -> dict[str, str]:
    return {"ClientSoftwareName": name, "ClientSoftwareVersion": version}


@pytest.mark.parametrize("name", ["a", "Z9", "apache-kafka-java", "lib.rdkafka", "a--b..c"])
async def test_a_client_is_remembered_as_it_calls_itself(asked, name):
    assert (await ask(asked, "ApiVersions", 3, software(name, "1.2-3"))).error_code == 0
    connection = asked.connection
    assert (connection.client_software_name, connection.client_software_version) == (name, "1.2-3")
    await ask(asked, "ApiVersions", 3, software("other", "4"))
    assert (connection.client_software_name, connection.client_software_version) == ("other", "4")


@pytest.mark.parametrize("wrong", ["", "-a", "a-", ".a", "a.", "a b", "ü", "a/b", "a\n", "a_b"])
@pytest.mark.parametrize("is_name", [True, False])
async def test_invalid_software_name_is_refused_and_forgotten(asked, wrong, is_name):
    body = software(wrong, "1") if is_name else software("a", wrong)
    answer = await ask(asked, "ApiVersions", 3, body)
    assert (answer.error_code, answer.api_keys) == (BAD, [])
    assert (asked.connection.client_software_name, asked.connection.client_software_version) == ("", "")


async def test_versions_before_3_say_nothing_of_software(asked):
    answer = await ask(asked, "ApiVersions", 2, {})
    assert answer.error_code == 0
    assert asked.connection.client_software_name == ""


@pytest.mark.parametrize(
    ("endpoint", "code"),
    [
        (1, 0),
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
async def test_describe_cluster_serves_the_endpoint_type_of_brokers(asked, endpoint, code):
    answer = await ask(asked, "DescribeCluster", 1, {"EndpointType": endpoint})
    assert answer.error_code == code
    if not code:
        image = asked.services.metadata.image
        assert (answer.cluster_id, answer.controller_id) == (image.cluster_id, image.controller_id)
        assert [broker.broker_id for broker in answer.brokers] == [*image.brokers]
        assert [broker.host for broker in answer.brokers] == ["127.0.0.1"]


@pytest.mark.parametrize("asks", [False, True])
async def test_operations_on_the_cluster_are_told_when_asked(asked, asks):
    asked.authorizer = DenyNamed()
    answer = await ask(asked, "DescribeCluster", 0, {"IncludeClusterAuthorizedOperations": asks})
    assert (answer.cluster_authorized_operations != -(2**31)) is asks
