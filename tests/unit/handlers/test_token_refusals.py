"""Requests for delegation tokens that a broker of a quorum forwards, or refuses on a connection without a login."""

import pytest
import trio

from barnabas.handlers.shared.token_refusals import unless_refused
from barnabas.serving.context import ConnectionInfo, RequestContext
from barnabas.wire.generated.create_delegation_token import CreateDelegationTokenRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.wire.generated.renew_delegation_token import RenewDelegationTokenRequest
from tests.support.contexts import open_parts

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def answered(request, protocol, version=3):
    async def forward(context, request):
        return "what the controller answers"

    info = ConnectionInfo(1, "L", protocol, ("127.0.0.1", 9092), ("10.0.0.7", 5000), "User:alice")
    context = RequestContext(open_parts(), info, 38, version, 77, "app", 0)
    return trio.run(unless_refused, forward, context, request)


def test_request_after_a_login_is_forwarded():
    assert answered(CreateDelegationTokenRequest(), "SASL_PLAINTEXT") == "what the controller answers"


@pytest.mark.parametrize(("version", "requester"), [(2, ("", "")), (3, ("User", "alice"))])
def test_refused_creation_names_owner_and_requester(version, requester):
    response = answered(CreateDelegationTokenRequest(), "PLAINTEXT", version)
    assert (response.error_code, response.principal_type, response.principal_name) == (
        NOT_ALLOWED, "User", "alice",
    )  # fmt: skip
    assert (response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms) == (
        -1,
        -1,
        -1,
    )
    assert (response.token_requester_principal_type, response.token_requester_principal_name) == requester


def test_renewer_that_is_no_user_is_refused_here():
    renewer = CreateDelegationTokenRequest.CreatableRenewers(principal_type="Group", principal_name="g")
    response = answered(CreateDelegationTokenRequest(renewers=[renewer]), "SASL_SSL")
    assert (response.error_code, response.issue_timestamp_ms) == (ErrorCode.INVALID_PRINCIPAL_TYPE, -1)


@pytest.mark.parametrize("request_", [RenewDelegationTokenRequest(), ExpireDelegationTokenRequest()])
def test_refused_change_has_no_time_of_expiry(request_):
    response = answered(request_, "PLAINTEXT")
    assert (response.error_code, response.expiry_timestamp_ms) == (NOT_ALLOWED, -1)


@pytest.mark.parametrize(
    "request_",
    [CreateDelegationTokenRequest(), RenewDelegationTokenRequest(), ExpireDelegationTokenRequest()],
)
def test_version_that_controllers_may_lack_is_for_them(request_):
    assert answered(request_, "PLAINTEXT", version=0) == "what the controller answers"
