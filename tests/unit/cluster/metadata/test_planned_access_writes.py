"""Writes to ZooKeeper for users, tokens and ACLs: beside what else a znode has, and beside what others change."""

from __future__ import annotations

import pytest

from barnabas.cluster.metadata.access_changes import (
    ClientQuotaChanged,
    DelegationTokenChanged,
    DelegationTokenRemoved,
)
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.cluster.zookeeper import acl_znodes
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper.session import Create, Delete, Operation, SetData, Stat
from barnabas.security.acls import AccessControlEntry, Permission
from barnabas.security.authorizer import Operation as Does
from barnabas.security.tokens import Token
from barnabas.serving.quotas.entities import QuotaEntity
from tests.support.planned_writes import EMPTY, config, operations, planned

# --- users, clients, tokens, ACLs ---------------------------------------------------------------------------------

ALICE = QuotaEntity("alice")
USER_PATH = "/config/users/alice"
TOKEN = Token("id", "User:a", "User:b", ("User:c",), 1, 2, 3)
TOKEN_PATH = "/delegation_token/tokens/id"


def quota(value: float | None, *, name: str = "producer_byte_rate") -> ClientQuotaChanged:
    return ClientQuotaChanged(ALICE, ((name, value),) if value is not None else ())


def user(there: bytes | None, version: int = 4) -> dict[str, tuple[bytes, Stat] | None]:
    return {USER_PATH: (there, Stat(version, 1)) if there is not None else None}


LIMITED = EMPTY.apply([quota(10)])


@pytest.mark.parametrize(
    ("there", "image", "change", "expected"),
    [
        (None, EMPTY, quota(10), [Create(USER_PATH, config(producer_byte_rate="10"))]),
        (None, EMPTY, quota(None), []),
        (config(other="x"), EMPTY, quota(10), [SetData(USER_PATH, config(other="x", producer_byte_rate="10"), 4)]),
        (config(producer_byte_rate="10.0", other="x"), LIMITED, quota(10), []),
        (config(producer_byte_rate="10", other="x"), LIMITED, quota(None), [SetData(USER_PATH, config(other="x"), 4)]),
        (config(producer_byte_rate="20"), LIMITED, quota(20), []),
        (b"{", EMPTY, quota(10), [SetData(USER_PATH, config(producer_byte_rate="10"), 4)]),
    ],
)  # fmt: skip
def test_quotas_are_written_beside_what_else_the_znode_has(
    there: bytes | None, image: ClusterImage, change: Change, expected: list[Operation]
) -> None:
    plan = planned([change], user(there), image)
    assert operations(plan) == expected
    assert plan.notifications == ["users/alice"]


@pytest.mark.parametrize(
    ("there", "change", "expected"),
    [
        (None, DelegationTokenChanged(TOKEN), [Create(TOKEN_PATH, resources.encode_token(TOKEN))]),
        (b"x", DelegationTokenChanged(TOKEN), [SetData(TOKEN_PATH, resources.encode_token(TOKEN), 4)]),
        (resources.encode_token(TOKEN), DelegationTokenChanged(TOKEN), []),
        (b"x", DelegationTokenRemoved("id"), [Delete(TOKEN_PATH, 4)]),
        (None, DelegationTokenRemoved("id"), []),
    ],
)
def test_tokens_are_written_and_removed(
    there: bytes | None, change: Change, expected: list[Operation]
) -> None:
    plan = planned([change], {TOKEN_PATH: (there, Stat(4, 1)) if there is not None else None})
    assert operations(plan) == expected
    assert plan.changed_tokens == ["id"]


def acl(principal: str) -> AccessControlEntry:
    return AccessControlEntry(principal, "*", Does.READ, Permission.ALLOW)


def held(*principals: str) -> bytes:
    return acl_znodes.encode([acl(principal) for principal in principals], [])
