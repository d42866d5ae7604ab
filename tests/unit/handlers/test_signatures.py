"""What handlers name in their signatures is there, and of the type that they expect."""

from __future__ import annotations

import inspect

import pytest

from barnabas import apis
from barnabas.broker.services import Services

NOT_FIELDS = {
    "delegation_tokens": "DelegationTokens",
    "shares": "Shares",
    "telemetry": "Telemetry",
    "member": "Member",
}
"""Services that are made by their first use, or that some brokers do not have."""
TYPES = {name: one.__forward_arg__ for name, one in Services.__annotations__.items()} | NOT_FIELDS


@pytest.mark.parametrize("api", apis.BY_KEY.values(), ids=lambda api: api.name)
def test_a_handler_names_services_with_their_types(api: apis.Api) -> None:
    parameters = list(inspect.signature(api.handle).parameters.values())
    assert [one.kind for one in parameters[:2]] == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 2
    for one in parameters[2:]:
        assert one.kind is inspect.Parameter.KEYWORD_ONLY
        assert one.default is inspect.Parameter.empty
        assert TYPES[one.name] == str(one.annotation), one.name


def test_every_service_is_named_by_a_handler() -> None:
    named = {
        name
        for api in apis.BY_KEY.values()
        for name, one in inspect.signature(api.handle).parameters.items()
        if one.kind is inspect.Parameter.KEYWORD_ONLY
    }
    others = {
        "lazy_delegation_tokens",
        "lazy_shares",
        "lazy_telemetry",
        "membership",
        "failures",
    }  # the pipeline's own
    assert set(TYPES) - others <= named
