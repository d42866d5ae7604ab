"""The four APIs of delegation tokens, as clients see them."""

import pytest

from barnabas.security.tokens import token_hmac
from barnabas.wire.generated.create_delegation_token import CreateDelegationTokenRequest
from barnabas.wire.generated.describe_delegation_token import DescribeDelegationTokenRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.wire.generated.renew_delegation_token import RenewDelegationTokenRequest
from tests.support.broker import NOW_MS, broker_to_ask

DAY_MS = 86_400_000
SETTINGS = {"delegation.token.secret.key": "key"}


def as_user(asked, user, protocol="SASL_SSL", *, by_token=False):
    asked.connection.principal = user
    asked.connection.security_protocol = protocol
    asked.connection.token_authenticated = by_token


async def create(asked, *renewers, version=3, owner=None, lifetime_ms=-1):
    people = [
        CreateDelegationTokenRequest.CreatableRenewers(principal_type=kind, principal_name=name)
        for kind, name in (renewer.split(":") for renewer in renewers)
    ]
    kind, _, name = (owner or ":").partition(":")
    request = CreateDelegationTokenRequest(renewers=people, max_lifetime_ms=lifetime_ms)
    if version >= 3:
        request.owner_principal_type, request.owner_principal_name = kind or None, name or None
    return await asked(request, version)


async def renew(asked, hmac, period_ms=-1, version=2):
    answer = await asked(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), version)
    return answer.error_code, answer.expiry_timestamp_ms


async def expire(asked, hmac, period_ms=-1, version=2):
    answer = await asked(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), version)
    return answer.error_code, answer.expiry_timestamp_ms


async def describe(asked, *owners, version=3, everybody=False):
    people = [
        DescribeDelegationTokenRequest.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
        for kind, name in (owner.split(":") for owner in owners)
    ]
    answer = await asked(DescribeDelegationTokenRequest(owners=None if everybody else people), version)
    return answer.error_code, answer.tokens


@pytest.mark.parametrize("version", range(4))
async def test_token_is_created_with_the_hmac_of_its_id_and_described(tmp_path, version):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        as_user(asked, "User:alice")
        created = await create(asked, "User:bob", version=version)
        assert (created.error_code, created.principal_type, created.principal_name) == (0, "User", "alice")
        assert created.hmac == token_hmac("key", created.token_id)
        times = created.issue_timestamp_ms, created.expiry_timestamp_ms, created.max_timestamp_ms
        assert times == (NOW_MS, NOW_MS + DAY_MS, NOW_MS + 7 * DAY_MS)
        code, (token,) = await describe(asked, everybody=True, version=version)
        assert (code, token.token_id, token.hmac, token.principal_name) == (
            0, created.token_id, created.hmac, "alice",
        )  # fmt: skip
        assert (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp) == times
        assert [renewer.principal_name for renewer in token.renewers] == ["bob"]
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        as_user(asked, "User:alice")
        assert [token.token_id for token in (await describe(asked, everybody=True))[1]] == [created.token_id]


async def test_owner_has_at_most_the_brokers_limit_of_tokens(tmp_path):
    settings = SETTINGS | {"delegation.token.max.per.owner": "2"}
    async with broker_to_ask(tmp_path, settings) as asked:
        as_user(asked, "User:alice")
        first = await create(asked)
        assert [first.error_code, (await create(asked)).error_code] == [0, 0]
        refused = await create(asked)
        assert (refused.error_code, refused.token_id, refused.hmac) == (ErrorCode.POLICY_VIOLATION, "", b"")
        assert len((await describe(asked, everybody=True))[1]) == 2
        assert (await create(asked, owner="User:bob")).error_code == 0
        assert (await expire(asked, first.hmac))[0] == 0
        assert (await create(asked)).error_code == 0


async def test_token_has_at_most_as_many_renewers_as_an_owner_tokens(tmp_path):
    settings = SETTINGS | {"delegation.token.max.per.owner": "2"}
    async with broker_to_ask(tmp_path, settings) as asked:
        as_user(asked, "User:alice")
        assert (await create(asked, "User:a", "User:b")).error_code == 0
        assert (await create(asked, "User:a", "User:b", "User:c")).error_code == ErrorCode.POLICY_VIOLATION


async def test_only_owners_and_renewers_renew_and_expire(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        as_user(asked, "User:alice")
        hmac = (await create(asked, "User:bob")).hmac
        assert await renew(asked, hmac, 2_000) == (0, NOW_MS + 2_000)
        as_user(asked, "User:bob")
        assert await renew(asked, hmac) == (0, NOW_MS + DAY_MS)
        assert await expire(asked, hmac, 3_000) == (0, NOW_MS + 3_000)
        as_user(asked, "User:mallory")
        assert await renew(asked, hmac) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, -1)
        assert await expire(asked, hmac) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, -1)
        as_user(asked, "User:alice")
        assert await renew(asked, b"another") == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)
        assert await expire(asked, hmac) == (0, NOW_MS)
        assert await expire(asked, hmac) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)


async def test_an_expired_token_is_not_renewed_and_is_removed(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        as_user(asked, "User:alice")
        hmac = (await create(asked, lifetime_ms=1_000)).hmac
        tokens = asked.services.delegation_tokens
        await tokens.remove_expired()
        tokens._clock_ms = lambda: NOW_MS + 1_001
        assert await renew(asked, hmac) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, -1)
        assert await expire(asked, hmac, 5) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, -1)
        await tokens.remove_expired()
        assert await describe(asked, everybody=True) == (0, [])


async def test_without_a_secret_key_tokens_are_disabled(tmp_path):
    async with broker_to_ask(tmp_path) as asked:
        as_user(asked, "User:alice")
        disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert (await create(asked)).error_code == disabled
        assert await renew(asked, b"x") == await expire(asked, b"x") == (disabled, -1)
        assert await describe(asked, everybody=True) == (disabled, [])


async def test_the_older_name_of_the_secret_key_is_known(tmp_path):
    async with broker_to_ask(tmp_path, {"delegation.token.master.key": "old"}) as asked:
        as_user(asked, "User:alice")
        created = await create(asked)
        assert created.hmac == token_hmac("old", created.token_id)


async def test_renewers_are_users(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        as_user(asked, "User:alice")
        assert (await create(asked, "Group:x")).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


async def test_empty_owner_list_gets_nothing_and_named_ones_theirs(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        as_user(asked, "User:alice")
        token_id = (await create(asked, "User:bob")).token_id
        assert await describe(asked) == (0, [])
        for owner, token_ids in (("User:alice", [token_id]), ("User:bob", [token_id]), ("User:eve", [])):
            assert [token.token_id for token in (await describe(asked, owner))[1]] == token_ids
