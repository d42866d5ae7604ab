"""CreateAcls, DescribeAcls and DeleteAcls as clients see them; decisions follow them at once, and after a restart."""

from __future__ import annotations

import logging

import pytest

from barnabas.cluster.metadata.acl_requests import binding_of
from barnabas.errors import RequestError
from barnabas.wire.generated.create_acls import CreateAclsRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.delete_acls import DeleteAclsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.describe_acls import DescribeAclsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest
from tests.support.broker import broker_to_ask

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
ADMIN, ALICE = "User:admin", "User:alice"
READ, WRITE, DESCRIBE = 3, 4, 8


def creation(name="t", *, kind=2, pattern=3, principal=ALICE, host="*", operation=READ, permission=3):
    return CreateAclsRequest.AclCreation(kind, name, pattern, principal, host, operation, permission)


def described(name=None, *, kind=1, pattern=1, principal=None, host=None, operation=1, permission=1):
    return DescribeAclsRequest(kind, name, pattern, principal, host, operation, permission)


def to_delete(name=None, *, kind=1, pattern=1, principal=None, host=None, operation=1, permission=1):
    return DeleteAclsRequest.DeleteAclsFilter(kind, name, pattern, principal, host, operation, permission)


async def create(asked, *creations, version=3):
    answer = await asked(CreateAclsRequest(list(creations)), version)
    return [(result.error_code, result.error_message) for result in answer.results]


async def listed(asked, resources=None, version=3):
    answer = await asked(resources or described(pattern=1 if version else 3), version)
    assert answer.error_code == 0
    return {
        (
            resource.resource_type, resource.pattern_type, resource.resource_name,
            acl.principal, acl.host, acl.operation, acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
    }  # fmt: skip


async def delete(asked, *filters, version=3):
    for filter_ in filters:
        filter_.pattern_type_filter = filter_.pattern_type_filter if version else 3
    answer = await asked(DeleteAclsRequest(list(filters)), version)
    return [(result.error_code, len(result.matching_acls)) for result in answer.filter_results]


@pytest.fixture
async def asked(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as ask:
        ask.connection.principal = ADMIN
        yield ask


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_acls_are_created_described_and_deleted(asked, version):
    assert (
        await create(asked, creation(), creation("u", permission=2), creation(), version=version)
        == [(0, "")] * 3
    )
    mine = {(2, 3, "t", ALICE, "*", READ, 3), (2, 3, "u", ALICE, "*", READ, 2)}
    assert await listed(asked, version=version) == mine
    only = described("u", kind=2, pattern=3, principal=ALICE)
    assert await listed(asked, only, version) == {acl for acl in mine if acl[2] == "u"}
    assert await delete(asked, to_delete("u"), to_delete("u"), to_delete("none"), version=version) == [
        (0, 1), (0, 1), (0, 0),
    ]  # fmt: skip
    assert await listed(asked, version=version) == {acl for acl in mine if acl[2] == "t"}


async def test_prefixed_acl_is_hidden_from_versions_without_prefixes(asked):
    await create(asked, creation(pattern=4))
    assert await listed(asked, version=0) == set()
    assert await delete(asked, to_delete(), version=0) == [(0, 0)]
    assert await listed(asked, version=1) == {(2, 4, "t", ALICE, "*", READ, 3)}


WRONG = {
    "Invalid resourceType UNKNOWN": creation(kind=99),
    "Invalid resourceType ANY": creation(kind=1),
    "Invalid patternType UNKNOWN": creation(pattern=99),
    "Invalid patternType MATCH": creation(pattern=2),
    "Invalid operation UNKNOWN": creation(operation=99),
    "Invalid operation ANY": creation(operation=1),
    "Invalid permissionType UNKNOWN": creation(permission=9),
    "Invalid empty resource name": creation(""),
    "The only valid name for the CLUSTER resource is kafka-cluster": creation("x", kind=4),
    "Could not parse principal from `bad` (no colon is present separating the principal type from the principal name)":
        creation(principal="bad"),
}  # fmt: skip


async def test_each_acl_is_judged_by_itself_in_kafkas_words(asked):
    answers = await create(asked, creation(), *WRONG.values(), creation("u"))
    assert answers == [(0, ""), *((ErrorCode.INVALID_REQUEST, text) for text in WRONG), (0, "")]
    assert {acl[2] for acl in await listed(asked)} == {"t", "u"}


def test_texts_that_no_answer_could_hold_are_refused():
    for asked in (
        creation("x" * 32_768),
        creation(principal="User:" + "\ufffd" * 11_000),
        creation(host="x" * 32_768),
    ):
        with pytest.raises(RequestError, match="longer than 32767 bytes"):
            binding_of(asked, in_znodes=False)


def test_names_of_resources_that_become_znodes():
    for name in ("a/b", ".", "..", "a\nb", "\x80"):
        assert binding_of(creation(name), in_znodes=False).pattern.name == name
        with pytest.raises(RequestError, match="Failed to create ACL"):
            binding_of(creation(name), in_znodes=True)
    assert binding_of(creation("a.b c:ü*"), in_znodes=True)


def test_prefixes_need_brokers_that_know_of_them():
    with pytest.raises(RequestError, match=r"inter\.broker\.protocol\.version"):
        binding_of(creation(pattern=4), in_znodes=True, has_prefixes=False)
    assert binding_of(creation(), in_znodes=True, has_prefixes=False)


async def test_filters_that_mean_nothing(asked):
    await create(asked, creation())
    for number in ({"kind": 0}, {"pattern": 0}, {"operation": 0}, {"permission": 0}):
        assert (await asked(described(**number), 3)).error_code == ErrorCode.INVALID_REQUEST
        assert await delete(asked, to_delete(**number), to_delete("none")) == [
            (ErrorCode.INVALID_REQUEST, 0),
            (0, 0),
        ]
    for number in ({"kind": 99}, {"pattern": 99}, {"operation": 99}, {"permission": 9}):
        assert await listed(asked, described(**number)) == set()
        assert await delete(asked, to_delete(**number)) == [(ErrorCode.INVALID_REQUEST, 0)]
    assert await listed(asked)


async def test_too_many_at_once_are_refused_as_a_whole(asked):
    many = [creation(f"t{number}") for number in range(10_001)]
    assert {code for code, _ in await create(asked, *many)} == {ErrorCode.POLICY_VIOLATION}
    assert await listed(asked) == set()
    assert {code for code, _ in await create(asked, *many[1:])} == {0}
    assert await create(asked, many[0]) == [(0, "")]
    assert await delete(asked, to_delete("t5"), to_delete()) == [(ErrorCode.INVALID_REQUEST, 0)] * 2
    assert len(await listed(asked)) == 10_001
    assert await delete(asked, to_delete("t5")) == [(0, 1)]
    assert await delete(asked, to_delete()) == [(0, 10_000)]


async def test_who_may_see_and_change_acls(asked):
    asked.connection.principal = ALICE
    for description in ([], [DESCRIBE], [7]):
        asked.connection.principal = ADMIN
        await delete(asked, to_delete())
        await create(
            asked, *(creation("kafka-cluster", kind=4, operation=operation) for operation in description)
        )
        asked.connection.principal = ALICE
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert (await asked(described(), 3)).error_code == (0 if description else refused)
        may_alter = description == [7]
        assert (await create(asked, creation()))[0][0] == (0 if may_alter else refused)
        assert (await delete(asked, to_delete("none")))[0][0] == (0 if may_alter else refused)


async def test_decisions_follow_acls_at_once(asked):
    answer = await asked(CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic("t", 1, 1)]), 7)
    assert answer.topics[0].error_code == 0

    async def sees() -> int:
        asked.connection.principal = ALICE
        topics = [MetadataRequest.MetadataRequestTopic(name="t")]
        answer = await asked(MetadataRequest(topics, allow_auto_topic_creation=False), 12)
        asked.connection.principal = ADMIN
        return answer.topics[0].error_code

    assert await sees() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await create(asked, creation())
    assert await sees() == 0
    await create(asked, creation(operation=DESCRIBE, permission=2))
    assert await sees() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await delete(asked, to_delete(permission=2))
    assert await sees() == 0


STANDARD, IN_ZOOKEEPER = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
REFUSED, UNKNOWN = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
DELETE = 6
DELETERS = {
    "of the cluster": (
        [creation("kafka-cluster", kind=4, operation=DELETE)],
        (0, UNKNOWN, 0),
        (REFUSED,) * 3,
    ),
    "who may describe": (
        [creation("*", operation=DESCRIBE)],
        (REFUSED, UNKNOWN, REFUSED),
        (REFUSED, REFUSED, REFUSED),
    ),
    "who may delete": ([creation("*", operation=DELETE)], (0, UNKNOWN, 0), (0, UNKNOWN, 0)),
    "who may delete and not describe": (
        [creation("*", operation=DELETE), creation("*", operation=DESCRIBE, permission=2)],
        (REFUSED, REFUSED, 0),
        (0, UNKNOWN, REFUSED),
    ),
}


@pytest.mark.parametrize("who", DELETERS)
@pytest.mark.parametrize("authorizer", [STANDARD, IN_ZOOKEEPER])
async def test_topics_are_deleted_by_whom_the_named_authorizer_lets(tmp_path, authorizer, who):
    acls, with_kraft, with_zookeeper = DELETERS[who]
    async with broker_to_ask(tmp_path, {**SETTINGS, "authorizer.class.name": authorizer}) as asked:
        asked.connection.principal = ADMIN
        topics = [CreateTopicsRequest.CreatableTopic(name, 1, 1) for name in ("t", "u")]
        created = await asked(CreateTopicsRequest(topics=topics), 7)
        await create(asked, *acls)
        asked.connection.principal = ALICE
        codes = []
        for name in ("t", "none"):
            answer = await asked(DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000), 5)
            codes.append(answer.responses[0].error_code)
        state = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=created.topics[1].topic_id)
        answer = await asked(DeleteTopicsRequest(topics=[state], timeout_ms=60_000), 6)
        codes.append(answer.responses[0].error_code)
    assert tuple(codes) == (with_kraft if authorizer == STANDARD else with_zookeeper)


async def test_acls_are_there_after_a_restart(tmp_path):
    creations = [
        creation(),
        creation("t*ü/\n", pattern=4, principal="User:*", host="10.0.0.1", operation=2, permission=2),
    ]
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        asked.connection.principal = ADMIN
        await create(asked, *creations, creation("gone"))
        await delete(asked, to_delete("gone"))
        before = await listed(asked)
    assert len(before) == 2
    for _ in range(2):
        async with broker_to_ask(tmp_path, SETTINGS) as asked:
            asked.connection.principal = ADMIN
            assert await listed(asked) == before


async def test_without_an_authorizer_there_are_no_acls(tmp_path):
    async with broker_to_ask(tmp_path, {}) as asked:
        assert (await asked(described(), 3)).error_code == ErrorCode.SECURITY_DISABLED
        assert (await asked(described(), 3)).error_message == "No Authorizer is configured on the broker"
        assert (await create(asked, creation()))[0][0] == ErrorCode.SECURITY_DISABLED
        assert (await delete(asked, to_delete()))[0][0] == ErrorCode.SECURITY_DISABLED


async def test_refusals_are_logged_few_of_one_principal(asked, caplog):
    asked.connection.principal = "User:eve\nroot"
    with caplog.at_level(logging.DEBUG, "barnabas.authorizer"):
        await asked(described(), 3)
        asked.connection.principal = ADMIN
        await asked(described(), 3)
    first, second = caplog.records
    assert (first.levelname, second.levelname) == ("WARNING", "DEBUG")
    assert first.getMessage() == (
        r"Principal = 'User:eve\nroot' is Denied operation = DESCRIBE from host = 127.0.0.1 on resource = "
        "Cluster:LITERAL:kafka-cluster for request = DescribeAcls based on rule DefaultDeny"
    )
    assert second.getMessage().endswith("based on rule SuperUser")


# --- networks as hosts (KIP-1276) -----------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["", "3.9", "4.3", "4.4"])
async def test_a_host_may_be_a_network_since_4_4(tmp_path, release):
    async with broker_to_ask(tmp_path, SETTINGS | {"kafka.version": release}) as asked:
        asked.connection.principal = ADMIN
        is_new = release in ("", "4.4")
        hosts = [
            "10.0.0.0/8", "10.1.2.3/8", "2001:db8::/32", "10.0.0.0/33", "host/8", "*/8", "", "*", "10.0.0.1",
        ]  # fmt: skip
        codes = [code for code, _ in await create(asked, *(creation(host=host) for host in hosts))]
        assert codes == [ErrorCode.INVALID_REQUEST if is_new and 3 <= place <= 6 else 0 for place in range(9)]
        kept = {host for host, code in zip(hosts, codes, strict=True) if not code}
        assert {acl[4] for acl in await listed(asked)} == kept, "as they were written"
        for host in ("10.0.0.0/8", "10.0.0.1", "10.2.0.0/8"):  # a filter is a text, in every release
            assert {acl[4] for acl in await listed(asked, described(host=host))} == kept & {host}
        await delete(asked, to_delete(host="10.0.0.0/8"))
        assert {acl[4] for acl in await listed(asked)} == kept - {"10.0.0.0/8"}


@pytest.mark.parametrize(("release", "is_read"), [("4.3", False), ("4.4", True), ("", True)])
@pytest.mark.parametrize("address", ["10.0.0.1", "::ffff:10.0.0.1"])
async def test_a_network_is_enforced_also_after_a_restart(tmp_path, release, is_read, address):
    settings = SETTINGS | {"kafka.version": release}

    async def sees(asked, topic):
        asked.connection.principal, asked.connection.peer_address = ALICE, (address, 5)
        topics = [MetadataRequest.MetadataRequestTopic(name=topic)]
        answer = await asked(MetadataRequest(topics, allow_auto_topic_creation=False), 12)
        return answer.topics[0].error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED

    async with broker_to_ask(tmp_path, settings) as asked:
        asked.connection.principal = ADMIN
        allowed = [creation(host="10.0.0.0/8"), creation("all")]
        await create(asked, *allowed, creation("all", host="10.0.0.0/8", operation=DESCRIBE, permission=2))
        assert [await sees(asked, topic) for topic in ("t", "all")] == [is_read, not is_read]
    async with broker_to_ask(tmp_path, settings) as asked:
        assert [await sees(asked, topic) for topic in ("t", "all")] == [is_read, not is_read]
