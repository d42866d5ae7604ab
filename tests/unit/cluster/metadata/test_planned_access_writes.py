"""Writes to ZooKeeper for users, tokens and ACLs: beside what else a znode has, and beside what others change."""

from __future__ import annotations

import pytest

from barnabas.cluster.metadata.access_changes import (
    AclAdded,
    AclRemoved,
    ClientQuotaChanged,
    DelegationTokenChanged,
    DelegationTokenRemoved,
    ScramCredentialChanged,
)
from barnabas.cluster.metadata.changes import (
    ConfigChanged,
    LogDirsRegistered,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import (
    GROUP,
    Change,
    ClusterImage,
)
from barnabas.cluster.zookeeper import acl_znodes, entity_settings, writes, znodes
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper.session import Create, Delete, Operation, SetData, Stat
from barnabas.cluster.zookeeper.writes import ConflictError, Truth
from barnabas.errors import RequestError
from barnabas.security.acls import (
    AccessControlEntry,
    AclBinding,
    PatternType,
    Permission,
    ResourcePattern,
)
from barnabas.security.authorizer import Operation as Does
from barnabas.security.authorizer import ResourceType
from barnabas.security.tokens import Token
from barnabas.serving.quotas.entities import QuotaEntity
from barnabas.wire.generated.errors import ErrorCode
from tests.support.planned_writes import (
    CONFIG_PATH,
    DELETE_PATH,
    EMPTY,
    TOPIC_PATH,
    config,
    info,
    operations,
    planned,
    topic,
)

NEW = topic(info(1, 2), info(2, 1))
# --- users, clients, tokens, ACLs ---------------------------------------------------------------------------------

ALICE = QuotaEntity("alice")
USER_PATH = "/config/users/alice"
PATTERN = ResourcePattern(ResourceType.TOPIC, PatternType.LITERAL, "t")
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
    ("there", "image"),
    [(config(producer_byte_rate="20"), LIMITED), (config(producer_byte_rate="20"), EMPTY), (None, LIMITED)],
)
def test_quotas_that_others_have_changed_are_a_conflict(there: bytes | None, image: ClusterImage) -> None:
    with pytest.raises(ConflictError) as caught:
        planned([quota(30)], user(there), image)
    truth = {"producer_byte_rate": "20"} if there else {}
    assert caught.value.truth == Truth(configs={(entity_settings.USERS, "alice"): truth})


def test_several_changes_of_a_user_are_one_write_and_others_parts_of_it_are_no_conflict() -> None:
    there = config(**{"SCRAM-SHA-256": "nonsense", "consumer_byte_rate": "5"})
    changes: list[Change] = [
        ScramCredentialChanged("alice", "SCRAM-SHA-512", None),
        ScramCredentialChanged("alice", "SCRAM-SHA-256", None),
    ]
    assert operations(planned(changes, user(there))) == [
        SetData(USER_PATH, config(consumer_byte_rate="5"), 4)
    ], "that its quotas are not known here does not matter"


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
    return acl_znodes.encode([acl(one) for one in principals], [])


@pytest.mark.parametrize(
    ("there", "added", "removed", "expected"),
    [
        (None, ["User:a"], [], held("User:a")),
        (held("User:b"), ["User:a"], [], held("User:b", "User:a")),
        (held("User:a"), ["User:a"], [], None),
        (held("User:a", "User:b"), [], ["User:a"], held("User:b")),
        (held("User:a"), [], ["User:a"], b""),
        (held("User:a"), [], ["User:b"], None),
        (None, [], ["User:a"], None),
        (held("User:a"), ["User:b"], ["User:a"], held("User:b")),
    ],
)
def test_acls_are_added_and_removed_beside_others(
    there: bytes | None, added: list[str], removed: list[str], expected: bytes | None
) -> None:
    path = acl_znodes.path_of(PATTERN)
    changes: list[Change] = [AclAdded(AclBinding(PATTERN, acl(one))) for one in added]
    changes += [AclRemoved(AclBinding(PATTERN, acl(one))) for one in removed]
    plan = planned(changes, {path: (there, Stat(4, 1)) if there is not None else None})
    if expected is None:
        assert operations(plan) == []
    elif not expected:
        assert operations(plan) == [Delete(path, 4)]
    else:
        assert operations(plan) == [Create(path, expected) if there is None else SetData(path, expected, 4)]
    assert plan.changed_acls == [PATTERN]


@pytest.mark.parametrize("more", [0, 1])
def test_acls_have_to_fit_into_a_znode(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    monkeypatch.setattr(writes, "ZNODE_BYTES_MAX", len(held("User:a")) - more)
    change = AclAdded(AclBinding(PATTERN, acl("User:a")))
    if not more:
        assert operations(planned([change], {}))
        return
    with pytest.raises(RequestError) as caught:
        planned([change], {})
    assert caught.value.code == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    ("change", "paths"),
    [
        (TopicCreated(NEW), (TOPIC_PATH, CONFIG_PATH, DELETE_PATH)),
        (PartitionsAdded("t", ()), (TOPIC_PATH,)),
        (TopicDeleted("t"), (TOPIC_PATH, DELETE_PATH)),
        (ConfigChanged(GROUP, "a b", ()), ("/config/groups/a%20b",)),
        (ProducerIdsAllocated(1), (znodes.PRODUCER_IDS,)),
        (LogDirsRegistered(1, frozenset()), ()),
        (DelegationTokenChanged(TOKEN), (TOKEN_PATH,)),
        (DelegationTokenRemoved("id"), (TOKEN_PATH,)),
        (AclAdded(AclBinding(PATTERN, acl("User:a"))), ("/kafka-acl/Topic/t",)),
        (quota(1), (USER_PATH,)),
        (ScramCredentialChanged("alice", "SCRAM-SHA-256", None), (USER_PATH,)),
    ],
)
def test_a_plan_needs_to_know_these_znodes(change: Change, paths: tuple[str, ...]) -> None:
    assert writes.paths_of(change) == paths
