"""Requests that a broker of a quorum forwards: settings that it checks before, and those that no controller reads."""

import pytest

from barnabas.cluster.metadata.image import BROKER
from barnabas.errors import PeerError, UnansweredError
from barnabas.wire.generated.create_acls import CreateAclsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.broker import broker_to_ask

SET, APPEND = 0, 2


class Controller:
    """The active controller of a quorum, which takes any text for a setting of a broker."""

    def __init__(self):
        self.altered = []

    async def forward(self, context, request):
        self.altered += [
            (resource.resource_name, entry.name)
            for resource in request.resources
            for entry in resource.configs
        ]
        answers = [
            IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
            )
            for resource in request.resources
        ]
        return IncrementalAlterConfigsResponse(responses=answers)


@pytest.mark.parametrize(
    ("name", "setting", "code"),
    [
        ("1", ("message.max.bytes", SET, "-1"), ErrorCode.INVALID_REQUEST),
        ("", ("message.max.bytes", SET, "x"), ErrorCode.INVALID_REQUEST),
        ("1", ("message.max.bytes", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        ("1", ("node.id", SET, "4"), ErrorCode.INVALID_REQUEST),
        ("1", ("message.max.bytes", SET, "2000"), 0),
        ("1", ("a.plugins.setting", SET, "x"), 0),
    ],
)
async def test_brokers_of_a_quorum_check_settings_of_brokers(tmp_path, name, setting, code):
    async with broker_to_ask(tmp_path) as ask:
        controller = Controller()
        ask.services = ask.services._replace(forwarder=controller)
        key, operation, value = setting
        entry = IncrementalAlterConfigsRequest.AlterableConfig(key, operation, value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(BROKER, name, [entry])
        [answer] = (await ask(IncrementalAlterConfigsRequest([resource]), 1)).responses
        assert answer.error_code == code
        assert controller.altered == ([] if code else [(name, setting[0])])


class UnreadingController:
    """An active controller that cannot read what it is sent."""

    async def forward(self, context, request):
        raise UnansweredError("the controller cannot read it")


async def test_request_that_no_controller_reads_closes_the_connection(tmp_path, caplog):
    async with broker_to_ask(tmp_path) as ask:
        ask.services = ask.services._replace(forwarder=UnreadingController())
        with pytest.raises(PeerError, match="cannot read it"):
            await ask(CreateAclsRequest(), 3)
    assert "internal error" not in caplog.text
