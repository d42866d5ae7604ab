"""The table of APIs agrees with the messages that it is about."""

import pytest

from barnabas.security.authorizer import OPERATIONS_ON, ResourceType
from barnabas.serving import apis
from barnabas.wire import registry

# Nobody has authenticated yet, or everybody may ask, or who may is said by what is asked for, as by a token.
OPEN_TO_ALL = {
    "SaslHandshake", "ApiVersions", "SaslAuthenticate", "GetTelemetrySubscriptions", "PushTelemetry",
    "RenewDelegationToken", "ExpireDelegationToken",
}  # fmt: skip


@pytest.mark.parametrize("api", apis.BY_KEY.values(), ids=lambda api: api.name)
def test_every_api_says_who_may_ask(api: apis.Api) -> None:
    assert bool(api.whole or api.each) is (api.name not in OPEN_TO_ALL)
    for access in (*api.whole, *api.each):
        assert access.operation in OPERATIONS_ON[access.resource_type]
    for access in api.whole:
        assert (access.resource_type is ResourceType.CLUSTER) is not bool(access.named_by)
        assert "." not in access.named_by


@pytest.mark.parametrize("api", apis.BY_KEY.values(), ids=lambda api: api.name)
def test_the_resources_are_where_the_table_says(api: apis.Api) -> None:
    for access in (*api.whole, *api.each):
        holder = registry.request_codec(api.key).message
        for name in access.named_by.split(".") if access.named_by else ():
            fields = getattr(holder, "__dataclass_fields__", {})
            assert name in fields, f"{api.name} has no {access.named_by}"
            inner = (
                str(fields[name].type).replace("list[", "").replace("]", "").split(" | ")[0].split(".")[-1]
            )
            holder = getattr(registry.request_codec(api.key).message, inner, object)
