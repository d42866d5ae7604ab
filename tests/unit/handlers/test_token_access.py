"""Delegation tokens: which right, on which name, lets a user create and see them; each field of an answer by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from barnabas.security.authorizer import Operation, Requester, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from tests.support.broker import NOW_MS, Asked, broker_to_ask
from tests.support.plain_requests import ask

SETTINGS = {"delegation.token.secret.key": "key"}
TOKEN, USER = ResourceType.DELEGATION_TOKEN, ResourceType.USER
ALICE, BOB, EVE = "User:alice", "User:bob", "User:eve"


@dataclass
class Allow:
    """Allows operations on resources by name, and nothing else."""

    allowed: set[tuple[Operation, ResourceType, str]] = field(default_factory=set)

    def allows(self, _: Requester, operation: Operation, resource_type: ResourceType, name: str, /) -> bool:
        return (operation, resource_type, name) in self.allowed

    def allows_on_any(self, _: Requester, _operation: Operation, _type: ResourceType, /) -> bool:
        return False

    def reason(self, _: Requester, _operation: Operation, _type: ResourceType, _name: str, /) -> str:
        return "a test"


@pytest.fixture
async def asked(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        asked.authorizer = Allow()
        asked.connection.security_protocol = "SASL_SSL"
        yield asked


async def create(asked: Asked, who: str, owner: str | None, *renewers: str, version: int = 3) -> Any:
    asked.connection.principal = who
    people = [{"PrincipalType": "User", "PrincipalName": each} for each in renewers]
    values: dict[str, Any] = {"Renewers": people, "MaxLifetimeMs": 1_000}
    if version >= 3 and owner is not None:
        values["OwnerPrincipalType"], values["OwnerPrincipalName"] = owner.split(":")
    return await ask(asked, "CreateDelegationToken", version, values)


async def seen(asked: Asked, who: str, *owners: str, version: int = 3) -> list[Any]:
    asked.connection.principal = who
    people = [dict(zip(("PrincipalType", "PrincipalName"), name.split(":"), strict=True)) for name in owners]
    answer = await ask(asked, "DescribeDelegationToken", version, {"Owners": people or None})
    assert answer.error_code == 0
    return list(answer.tokens)


async def test_a_token_for_another_needs_a_right_on_its_owner(asked):
    create_tokens = Operation.CREATE_TOKENS
    assert (await create(asked, ALICE, None)).error_code == 0
    assert (await create(asked, ALICE, ALICE)).error_code == 0, "for oneself none is needed"
    refused = await create(asked, ALICE, BOB)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.token_id, refused.hmac, refused.expiry_timestamp_ms) == ("", b"", -1)
    asked.authorizer.allowed = {(create_tokens, USER, ALICE), (Operation.DESCRIBE_TOKENS, USER, BOB)}
    assert (await create(asked, ALICE, BOB)).error_code == refused.error_code
    asked.authorizer.allowed = {(create_tokens, USER, BOB)}
    token = await create(asked, ALICE, BOB, "eve")
    assert token.error_code == 0
    assert (token.principal_type, token.principal_name) == ("User", "bob")
    assert (token.token_requester_principal_type, token.token_requester_principal_name) == ("User", "alice")
    times = (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms)
    assert times == (NOW_MS, NOW_MS + 1_000, NOW_MS + 1_000)


async def test_versions_before_3_create_tokens_for_who_asks(asked):
    token = await create(asked, ALICE, BOB, version=2)
    assert (token.error_code, token.principal_name) == (0, "alice")


async def test_token_is_seen_by_its_people_and_by_described_rights(asked):
    asked.authorizer.allowed = {(Operation.CREATE_TOKENS, USER, BOB)}
    token = await create(asked, ALICE, BOB, "eve")
    asked.authorizer.allowed = set()

    async def see(who: str, *allowed: tuple[Operation, ResourceType, str]) -> bool:
        asked.authorizer.allowed = set(allowed)
        tokens = await seen(asked, who)
        assert [token.token_id for token in tokens] in ([], [token.token_id])
        return bool(tokens)

    assert [await see(who) for who in (BOB, EVE, ALICE, "User:other")] == [True, True, False, False]
    other = "User:other"
    assert await see(other, (Operation.DESCRIBE, TOKEN, token.token_id))
    assert await see(other, (Operation.DESCRIBE_TOKENS, USER, BOB))
    assert not await see(other, (Operation.DESCRIBE, TOKEN, "another"))
    assert not await see(other, (Operation.DESCRIBE_TOKENS, USER, ALICE))
    assert not await see(other, (Operation.DESCRIBE_TOKENS, USER, EVE))
    assert not await see(other, (Operation.DESCRIBE, USER, BOB), (Operation.DESCRIBE_TOKENS, TOKEN, BOB))


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_tokens_of_named_owners_are_described_with_their_people(asked, version):
    asked.authorizer.allowed = {
        *((Operation.CREATE_TOKENS, USER, who) for who in (ALICE, BOB)),
        *((Operation.DESCRIBE_TOKENS, USER, who) for who in (ALICE, BOB)),
    }
    first = await create(asked, EVE, ALICE, "r1", "r2")
    second = await create(asked, EVE, BOB)
    both = {token.token_id: token for token in await seen(asked, EVE, version=version)}
    assert both.keys() == {first.token_id, second.token_id}
    assert both[first.token_id].hmac == first.hmac != second.hmac == both[second.token_id].hmac
    [token] = await seen(asked, EVE, ALICE, version=version)
    assert (token.token_id, token.principal_type, token.principal_name) == (first.token_id, "User", "alice")
    assert [(each.principal_type, each.principal_name) for each in token.renewers] == [
        ("User", "r1"),
        ("User", "r2"),
    ]
    assert (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp) == (
        NOW_MS, NOW_MS + 1_000, NOW_MS + 1_000,
    )  # fmt: skip
    requester = (token.token_requester_principal_type, token.token_requester_principal_name)
    assert requester == (("User", "eve") if version >= 3 else ("", ""))
    assert [each.token_id for each in await seen(asked, EVE, "User:r2", version=version)] == [first.token_id]
    assert len(await seen(asked, EVE, BOB, ALICE, version=version)) == 2
    assert await seen(asked, EVE, "Group:alice", version=version) == []


@pytest.mark.parametrize(
    ("protocol", "principal", "may"),
    [
        ("SSL", ALICE, True),
        ("SASL_SSL", ALICE, True),
        ("SASL_PLAINTEXT", ALICE, True),
        ("SSL", "User:ANONYMOUS", False),
        ("SASL_SSL", "User:ANONYMOUS", True),
        ("PLAINTEXT", ALICE, False),
    ],
)
async def test_tokens_are_asked_for_by_those_who_have_authenticated(asked, protocol, principal, may):
    asked.connection.security_protocol = protocol
    token = await create(asked, principal, None)
    assert (token.error_code == 0) is may
