"""Services that handlers name are there, and of the type that they expect."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from barnabas.broker.handlers import services_of
from barnabas.broker.services import Services
from barnabas.serving import apis

NOT_FIELDS = {
    "delegation_tokens": "DelegationTokens", "shares": "Shares", "telemetry": "Telemetry", "member": "Member",
}  # fmt: skip
"""Services that are made by their first use, or that some brokers do not have."""
TYPES = {name: hint.__forward_arg__ for name, hint in Services.__annotations__.items()} | NOT_FIELDS


@pytest.mark.parametrize("api", apis.BY_KEY.values(), ids=lambda api: api.name)
def test_a_handler_names_services_with_their_types(api: apis.Api) -> None:
    assert len(inspect.signature(api.handler.handle).parameters) == len(("self", "context", "request"))
    if not services_of(api.handler):
        return
    for field in dataclasses.fields(api.handler):
        if field.init:  # others are state of the handler's own
            assert field.default is dataclasses.MISSING
            # Of a compiled handler it is the type itself.
            assert TYPES[field.name] == (
                field.type if isinstance(field.type, str) else field.type.__name__
            ), field.name


def test_every_service_is_named_by_a_handler() -> None:
    named = {name for api in apis.BY_KEY.values() for name in services_of(api.handler)}
    others = {"lazy_delegation_tokens", "lazy_shares", "lazy_telemetry", "membership"}  # behind others
    assert set(TYPES) - others <= named
