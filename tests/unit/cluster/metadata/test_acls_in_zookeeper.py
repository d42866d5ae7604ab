"""ACLs in ZooKeeper: the znodes of Kafka's AclAuthorizer, written, followed, and shared with what others have made."""

import json

import pytest

from barnabas.cluster.metadata.access_changes import AclAdded, AclRemoved
from barnabas.cluster.zookeeper.acl_znodes import CHANGES, TYPE_PATHS
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.errors import RequestError
from barnabas.security.acls import AccessControlEntry, AclBinding, PatternType, Permission, ResourcePattern
from barnabas.security.authorizer import Operation, Requester, ResourceType
from barnabas.security.standard_authorizer import StandardAuthorizer
from barnabas.wire.generated.errors import ErrorCode
from tests.support.zookeeper_stores import Cluster, settled

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
WITH_ACLS = {"has_acls": True}


def acl(name="t", principal="User:a", *, kind=ResourceType.TOPIC, pattern=LITERAL, operation=Operation.READ):
    return AclBinding(
        ResourcePattern(kind, pattern, name), AccessControlEntry(principal, "*", operation, Permission.ALLOW)
    )


def adding(*acls):
    return lambda _: map(AclAdded, acls)


def removing(*acls):
    return lambda _: map(AclRemoved, acls)


def entry(principal="User:a", operation="Read", permission="Allow", host="*"):
    return {"principal": principal, "permissionType": permission, "operation": operation, "host": host}


def notified(cluster, root):
    return [data for path, data in cluster.server.dump().items() if path.startswith(f"{root}/acl_changes_")]


async def test_acls_are_written_where_and_as_kafka_writes_them():
    cluster = Cluster()
    wide = acl(
        "p", kind=ResourceType.TRANSACTIONAL_ID, pattern=PREFIXED, operation=Operation.DESCRIBE_CONFIGS
    )
    exact = acl("p", kind=ResourceType.TRANSACTIONAL_ID)
    async with cluster.store(1, **WITH_ACLS) as first, cluster.store(2, **WITH_ACLS) as two:
        assert {*TYPE_PATHS, *CHANGES} <= cluster.server.dump().keys()
        image = await first.change(adding(acl(), acl("t", "User:b"), wide, exact))
        assert set(image.acls) == {acl(), acl("t", "User:b"), wide, exact}
        assert cluster.znode("/kafka-acl/Topic/t") == {"version": 1, "acls": [entry(), entry("User:b")]}
        path = "/kafka-acl-extended/prefixed/TransactionalId/p"
        assert cluster.znode(path) == {"version": 1, "acls": [entry(operation="DescribeConfigs")]}
        assert sorted(notified(cluster, "/kafka-acl-changes")) == [b"TOPIC:t", b"TRANSACTIONAL_ID:p"]
        (extended,) = notified(cluster, "/kafka-acl-extended-changes")
        assert json.loads(extended) == {
            "version": 1, "resourceType": "TRANSACTIONAL_ID", "name": "p", "patternType": "PREFIXED",
        }  # fmt: skip
        await settled(3)
        assert set(two.image.acls) == set(image.acls)
        await two.change(removing(acl(), wide))
        assert cluster.znode("/kafka-acl/Topic/t")["acls"] == [entry("User:b")]
        assert path not in cluster.server.dump()
        await settled(3)
        assert set(first.image.acls) == set(two.image.acls) == {acl("t", "User:b"), exact}


async def test_what_kafka_has_made_and_changes_is_followed():
    cluster = Cluster()
    session = cluster.server.session()
    await session.create(
        "/kafka-acl/Group/g", json.dumps({"version": 1, "acls": [entry()]}).encode(), parents=True
    )
    await session.create("/kafka-acl/NoSuchType/g", b"{}", parents=True)
    group = acl("g", kind=ResourceType.GROUP)
    async with cluster.store(1, **WITH_ACLS) as first:
        assert set(first.image.acls) == {group}
        acls = [entry(operation="READ"), entry("User:c", "Describe", "Deny", "10.0.0.1")]
        await session.set("/kafka-acl/Group/g", json.dumps({"version": 1, "acls": acls}).encode())
        await session.create("/kafka-acl-changes/acl_changes_", b"Group:g", sequence=True)
        await settled(3)
        denied = AccessControlEntry("User:c", "10.0.0.1", Operation.DESCRIBE, Permission.DENY)
        assert set(first.image.acls) == {group, AclBinding(group.pattern, denied)}
        await session.delete("/kafka-acl/Group/g")
        await session.create("/kafka-acl-changes/acl_changes_", b"Group:g", sequence=True)
        await settled(3)
        assert first.image.acls.count == 0


async def test_an_acl_for_a_network_that_kafka_has_written_is_enforced():
    cluster = Cluster()
    entries = [entry(), *(entry(permission="Deny", host=host) for host in ("10.0.0.0/8", "11.0.0.0/33"))]
    written = json.dumps({"version": 1, "acls": entries}).encode()
    await cluster.server.session().create("/kafka-acl/Topic/t", written, parents=True)
    async with cluster.store(1, **WITH_ACLS) as store:
        for knows_networks, host, is_allowed in (
            (True, "10.0.0.1", False), (True, "11.0.0.1", True), (False, "10.0.0.1", True),
        ):  # fmt: skip
            authorizer = StandardAuthorizer(lambda: store.image.acls, knows_networks=knows_networks)
            requester = Requester("User:a", host)
            assert authorizer.allows(requester, Operation.READ, ResourceType.TOPIC, "t") is is_allowed


async def test_acls_that_another_broker_has_just_made_are_kept():
    cluster = Cluster()
    async with cluster.store(1, **WITH_ACLS) as first:
        session = cluster.sessions[0]
        held = {"version": 1, "acls": [entry("User:other"), entry("User:x", operation="OfTheFuture")]}
        await session.create("/kafka-acl/Topic/t", json.dumps(held).encode(), parents=True)
        await first.change(adding(acl()))
        entries = cluster.znode("/kafka-acl/Topic/t")["acls"]
        assert sorted(map(str, entries)) == sorted(map(str, [*held["acls"], entry()]))
        await settled(3)
        assert set(first.image.acls) == {acl(), acl("t", "User:other")}


async def test_unreadable_quotas_are_not_overwritten(caplog):
    cluster = Cluster()
    async with cluster.store(1, **WITH_ACLS) as first:
        await first.change(adding(acl()))
        session = cluster.sessions[0]
        await session.set("/kafka-acl/Topic/t", b"{")
        for data in (b"TOPIC:t", b"nonsense", b"Wrong:t"):
            await session.create("/kafka-acl-changes/acl_changes_", data, sequence=True)
        await settled(3)
        assert set(first.image.acls) == {acl()}
        with pytest.raises(Exception, match="/kafka-acl/Topic/t"):
            await first.change(adding(acl("t", "User:b")))
        assert cluster.server.dump()["/kafka-acl/Topic/t"] == b"{"
    assert "ACLs are left as they were" in caplog.text
    assert "a notification of changed ACLs is left out" in caplog.text


async def test_a_broker_that_cannot_read_an_acl_does_not_start():
    cluster = Cluster()
    await cluster.server.session().create("/kafka-acl/Topic/t", b"{", parents=True)
    with pytest.raises(ZnodeError, match="/kafka-acl/Topic/t"):
        async with cluster.store(1, **WITH_ACLS):
            pass


async def test_more_acls_than_a_znode_holds_are_refused():
    cluster = Cluster()
    async with cluster.store(1, **WITH_ACLS) as first:
        many = [acl("t", "User:" + "x" * 30_000 + str(number)) for number in range(40)]
        with pytest.raises(RequestError) as refused:
            await first.change(adding(*many))
        assert refused.value.code == ErrorCode.POLICY_VIOLATION
        assert first.image.acls.count == 0


async def test_without_an_authorizer_acls_are_not_read():
    cluster = Cluster()
    async with cluster.store(1) as first:
        assert not any("kafka-acl" in path for path in cluster.server.dump())
        assert first.image.acls.count == 0
