"""Requests between brokers of a cluster are refused without the right to CLUSTER_ACTION, in every version."""

from pathlib import Path

import pytest

from barnabas.broker.handlers import Handlers
from barnabas.errors import RequestError
from barnabas.security.authorizer import CLUSTER_NAME, Operation, Requester, ResourceType
from barnabas.serving import apis
from barnabas.serving.context import ContextParts, RequestContext
from barnabas.serving.error_responses import error_response
from barnabas.serving.log_limit import LogLimit
from barnabas.wire import registry
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import encode_response
from tests.support.broker import NOW_MS, broker_to_ask


class NobodyInTheCluster:
    """Refuses CLUSTER_ACTION, and nothing else."""

    def allows(self, _: Requester, operation: Operation, _type: ResourceType, name: str, /) -> bool:
        return (operation, name) != (Operation.CLUSTER_ACTION, CLUSTER_NAME)

    def allows_on_any(self, _: Requester, _operation: Operation, _type: ResourceType, /) -> bool:
        return True

    def reason(self, _: Requester, _operation: Operation, _type: ResourceType, _name: str, /) -> str:
        return "a test"


MEMBER_APIS = [api for api in apis.BY_KEY.values() if api.member_only]


def test_what_brokers_say_to_each_other_needs_cluster_action() -> None:
    assert {api.name for api in MEMBER_APIS} == {
        "LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "AlterPartition", "AllocateProducerIds",
    }  # fmt: skip


@pytest.mark.parametrize("api", MEMBER_APIS, ids=lambda api: api.name)
async def test_non_broker_is_refused_the_apis_between_brokers(tmp_path: Path, api: apis.Api) -> None:
    async with broker_to_ask(tmp_path) as asked:
        for version in range(api.min_version, api.max_version + 1):
            shared = ContextParts(asked.broker.memory, LogLimit(), NobodyInTheCluster())
            context = RequestContext(shared, asked.connection, api.key, version, 1, "b", NOW_MS)
            request = registry.request_codec(api.key).message()
            with pytest.raises(RequestError) as refused:
                Handlers(asked.services).check(api, context, request)
            response = error_response(api, context, request, refused.value.code, refused.value.message)
            assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            encode_response(api.key, version, 1, response)
