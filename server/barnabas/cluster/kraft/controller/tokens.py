"""Delegation tokens: CreateDelegationToken v1-v3, Renew- and ExpireDelegationToken v1-v2, and removal of expired tokens
(KIP-48).

The rule: errors are those of Apache Kafka's controller, in its order; records do not have the password: it is the HMAC
of the token's id with `delegation.token.secret.key`. Brokers answer DescribeDelegationToken.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.cluster.kraft.controller.outcome import Caller, ControllerState, Handlers, Outcome
from barnabas.cluster.kraft.controller.versions import TOKENS_LEVEL
from barnabas.cluster.kraft.value_records import token_record
from barnabas.config import broker as settings
from barnabas.config.authorizer import token_secret_key
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.security.tokens import USER_TYPE, Lifetime, Token, token_hmac
from barnabas.wire.generated.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.wire.generated.metadata_records.remove_delegation_token import RemoveDelegationTokenRecord
from barnabas.wire.generated.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from barnabas.wire.ids import new_uuid, uuid_text

CREATE_DELEGATION_TOKEN, RENEW_DELEGATION_TOKEN, EXPIRE_DELEGATION_TOKEN = 38, 39, 40
NO_TIMESTAMP: Final = -1
"""Timestamp in the answer to a request that may not be made; other errors have 0."""
OWNER_SINCE: Final = 3
"""Version of CreateDelegationToken that may name another owner (KIP-373)."""
REMOVED_AT_ONCE_MAX: Final = 1_000
ANONYMOUS: Final = "User:ANONYMOUS"
_FORBIDDEN: Final = (
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
)
_MACS, _CHECK_DUE = "token_macs", "token_check_due_ms"
"""In `ControllerState.parts`: ids of tokens by HMAC, and the time of the next search for expired tokens."""


def create_delegation_token(
    state: ControllerState, request: CreateDelegationTokenRequest, caller: Caller
) -> Outcome:
    """Create a token for the caller or the owner that it names; a lifetime of 0 or less means the longest."""
    owner = caller.principal
    if caller.version >= OWNER_SINCE and request.owner_principal_name:
        owner = f"{request.owner_principal_type or ''}:{request.owner_principal_name}"
    response = CreateDelegationTokenResponse()
    response.principal_type, response.principal_name = _parts_of(owner)
    if caller.version >= OWNER_SINCE:
        kind, name = _parts_of(caller.principal)
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    try:
        secret_key = _check_creation(state, request, caller, owner)
    except RequestError as error:
        response.error_code = error.code
        response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = _timestamp(
            error
        )
        return Outcome(response)
    token = _lifetime(state).new_token(
        uuid_text(new_uuid(state.entropy)),
        owner,
        caller.principal,
        (f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers),
        request.max_lifetime_ms,
        state.now_ms,
    )
    response.issue_timestamp_ms = token.issued_ms
    response.expiry_timestamp_ms = token.expires_ms
    response.max_timestamp_ms = token.expires_max_ms
    response.token_id = token.token_id
    response.hmac = token_hmac(secret_key, token.token_id)
    return Outcome(response, (token_record(token),))


def _check_creation(
    state: ControllerState, request: CreateDelegationTokenRequest, caller: Caller, owner: str
) -> str:
    """Return the secret key. Raises RequestError if the token may not be created."""
    if not _may_handle_tokens(caller):
        raise RequestError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if owner != caller.principal:
        caller.require(Operation.CREATE_TOKENS, ResourceType.USER, owner)
    secret_key = _check_served(state)
    per_owner_max = state.config.get(settings.DELEGATION_TOKEN_MAX_PER_OWNER)
    if len(request.renewers) > per_owner_max:
        raise RequestError(ErrorCode.POLICY_VIOLATION)
    if any(renewer.principal_type != USER_TYPE for renewer in request.renewers) or owner.startswith(":"):
        raise RequestError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    held = sum(
        token.owner == owner and not token.is_expired(state.now_ms) for token in state.image.tokens.values()
    )
    if held >= per_owner_max:
        raise RequestError(ErrorCode.POLICY_VIOLATION)
    return secret_key


def renew_delegation_token(
    state: ControllerState, request: RenewDelegationTokenRequest, caller: Caller
) -> Outcome:
    """Extend a token by the requested period; 0 or less means the period of the settings."""
    try:
        token = _token(state, bytes(request.hmac), caller)
        token = token.renewed(caller.principal, request.renew_period_ms, _lifetime(state), state.now_ms)
    except RequestError as error:
        return Outcome(
            RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=_timestamp(error))
        )
    return Outcome(RenewDelegationTokenResponse(expiry_timestamp_ms=token.expires_ms), (token_record(token),))


def expire_delegation_token(
    state: ControllerState, request: ExpireDelegationTokenRequest, caller: Caller
) -> Outcome:
    """Set a token to expire after the requested period; a negative period removes it, expired or not."""
    try:
        token = _token(state, bytes(request.hmac), caller)
        after = token.expiring(caller.principal, request.expiry_time_period_ms, state.now_ms)
    except RequestError as error:
        return Outcome(
            ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=_timestamp(error))
        )
    if after is None:
        removal = RemoveDelegationTokenRecord(token.token_id)
        return Outcome(ExpireDelegationTokenResponse(expiry_timestamp_ms=state.now_ms), (removal,))
    return Outcome(
        ExpireDelegationTokenResponse(expiry_timestamp_ms=after.expires_ms), (token_record(after),)
    )


def tick(state: ControllerState) -> tuple[Any, ...]:
    """Return removals of expired tokens every `delegation.token.expiry.check.interval.ms`, of many over several calls."""
    interval_ms = state.config.get(settings.DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS)
    if state.monotonic_ms < state.parts.setdefault(_CHECK_DUE, state.monotonic_ms + interval_ms):
        return ()
    expired = [token.token_id for token in state.image.tokens.values() if token.is_expired(state.now_ms)]
    if len(expired) <= REMOVED_AT_ONCE_MAX:
        state.parts[_CHECK_DUE] = state.monotonic_ms + interval_ms
    return tuple(RemoveDelegationTokenRecord(token_id) for token_id in expired[:REMOVED_AT_ONCE_MAX])


def _may_handle_tokens(caller: Caller) -> bool:
    """Return whether the caller may handle tokens: it must have logged in, and not with a token.

    For a forwarded request, the broker has checked that the client has logged in.
    """
    if caller.is_token_authenticated:
        return False
    if caller.is_forwarded:
        return True
    if caller.security_protocol == "PLAINTEXT":
        return False
    return caller.security_protocol != "SSL" or caller.principal != ANONYMOUS


def _check_served(state: ControllerState) -> str:
    """Return the secret key. Raises DELEGATION_TOKEN_AUTH_DISABLED, UNSUPPORTED_VERSION."""
    secret_key = token_secret_key(state.config)
    if secret_key is None:
        raise RequestError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if state.image.metadata_version < TOKENS_LEVEL:
        raise RequestError(ErrorCode.UNSUPPORTED_VERSION)
    return secret_key


def _token(state: ControllerState, mac: bytes, caller: Caller) -> Token:
    """Return the token of an HMAC; computes the HMACs of new tokens first. Raises RequestError."""
    if not _may_handle_tokens(caller):
        raise RequestError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    secret_key = _check_served(state)
    tokens, remembered = state.image.tokens, state.parts.get(_MACS, {})
    ids = {other: token_id for other, token_id in remembered.items() if token_id in tokens}
    for token_id in tokens.keys() - ids.values():
        ids[token_hmac(secret_key, token_id)] = token_id
    state.parts[_MACS] = ids
    if mac not in ids:
        raise RequestError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return tokens[ids[mac]]


def _lifetime(state: ControllerState) -> Lifetime:
    return Lifetime(
        state.config.get(settings.DELEGATION_TOKEN_MAX_LIFETIME_MS),
        state.config.get(settings.DELEGATION_TOKEN_EXPIRY_TIME_MS),
    )


def _timestamp(error: RequestError) -> int:
    return NO_TIMESTAMP if error.code in _FORBIDDEN else 0


def _parts_of(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


HANDLERS: Handlers = {
    CREATE_DELEGATION_TOKEN: create_delegation_token,
    RENEW_DELEGATION_TOKEN: renew_delegation_token,
    EXPIRE_DELEGATION_TOKEN: expire_delegation_token,
}
