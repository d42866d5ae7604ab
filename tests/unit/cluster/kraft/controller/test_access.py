"""ACLs of an active controller, and what callers may do by them."""

import pytest

from barnabas.cluster.kraft.controller import access
from barnabas.cluster.kraft.controller.access import Permissions
from barnabas.cluster.kraft.values import Acl
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError
from barnabas.errors import RequestError
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.create_acls import CreateAclsRequest
from barnabas.wire.generated.delete_acls import DeleteAclsRequest
from barnabas.wire.generated.describe_acls import DescribeAclsRequest
from barnabas.wire.generated.errors import ErrorCode
from tests.support.active_controller import AUTHORIZER, RECORDS, ActiveController

TOPIC, GROUP, CLUSTER = 2, 3, 4
LITERAL, PREFIXED, MATCH, ANY = 3, 4, 2, 1
READ, WRITE, ALTER = 3, 4, 7
DENY, ALLOW = 2, 3
ALICE = Acl(TOPIC, "orders", LITERAL, "User:alice", "*", READ, ALLOW)
BOB = ALICE._replace(principal="User:bob", operation=WRITE)
PREFIX = Acl(TOPIC, "ord", PREFIXED, "User:alice", "10.0.0.1", READ, DENY)
REPORTS = ALICE._replace(resource_type=GROUP, resource_name="reports")


def new(*acls, level=30, config=None):
    bench = ActiveController(level, AUTHORIZER if config is None else config)
    if acls:
        assert create(bench, *acls) == ["NONE"] * len(acls)
    return bench


def create(bench, *acls, **caller):
    kind = CreateAclsRequest
    creations = [
        kind.AclCreation(
            resource_type=acl.resource_type, resource_name=acl.resource_name, resource_pattern_type=acl.pattern_type,
            principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission,
        )
        for acl in acls
    ]  # fmt: skip
    results = bench.ask(access.CREATE_ACLS, kind(creations), **caller).results
    assert all(bool(result.error_code) == bool(result.error_message) for result in results)
    assert None not in [result.error_message for result in results]
    return [ErrorCode(result.error_code).name for result in results]


def a_filter(kind=ANY, name=None, pattern=ANY, principal=None, host=None, operation=ANY, permission=ANY):
    return (kind, name, pattern, principal, host, operation, permission)


def delete(bench, *filters, **caller):
    """Return the ACLs that each filter has removed, or its code."""
    asked = [DeleteAclsRequest.DeleteAclsFilter(*fields) for fields in filters]
    results = bench.ask(access.DELETE_ACLS, DeleteAclsRequest(asked), **caller).filter_results
    matches = [match for result in results for match in result.matching_acls]
    assert all((match.error_code, match.error_message) == (0, None) for match in matches)
    return [
        ErrorCode(result.error_code).name if result.error_code else list(map(acl_of, result.matching_acls))
        for result in results
    ]


def acl_of(match):
    """Return an ACL that a filter has matched."""
    return Acl(match.resource_type, match.resource_name, match.pattern_type, *vars_of(match))


def describe(bench, asked=None, **caller):
    response = bench.ask(access.DESCRIBE_ACLS, DescribeAclsRequest(*(asked or a_filter())), **caller)
    assert (response.error_code, response.error_message) == (0, "")
    return [
        Acl(resource.resource_type, resource.resource_name, resource.pattern_type, *vars_of(acl))
        for resource in response.resources
        for acl in resource.acls
    ]


def vars_of(acl):
    return acl.principal, acl.host, acl.operation, acl.permission_type


# --- CreateAcls -----------------------------------------------------------------------------------------------------


def test_id_that_is_taken_is_drawn_again():
    class Entropy:
        def __init__(self):
            self.ids = [b"1" * 16, b"1" * 16, b"1" * 16, b"2" * 16, b"2" * 16, b"3" * 16]

        def token_bytes(self, size):
            return self.ids.pop(0)

    bench = new()
    bench.state.entropy = Entropy()
    assert create(bench, ALICE) == ["NONE"]
    assert create(bench, BOB, REPORTS) == ["NONE", "NONE"]
    assert [acl_id[:1] for acl_id in bench.image.acls] == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type": 0},
        {"resource_type": ANY},
        {"resource_type": 99},
        {"resource_type": CLUSTER},
        {"resource_name": ""},
        {"pattern_type": ANY},
        {"pattern_type": MATCH},
        {"operation": ANY},
        {"operation": 0},
        {"permission": ANY},
        {"principal": "alice"},
    ],
)
def test_acl_that_makes_no_sense_is_refused_alone(changes):
    bench = new()
    assert create(bench, ALICE._replace(**changes), BOB) == ["INVALID_REQUEST", "NONE"]
    assert list(bench.image.acls.values()) == [BOB]


@pytest.mark.parametrize(
    ("level", "host", "code"),
    [
        (31, "10.0.0.0/8", "UNSUPPORTED_VERSION"),
        (32, "10.0.0.0/8", "NONE"),
        (31, "10.0.0.1", "NONE"),
        (31, "10/x", "UNSUPPORTED_VERSION"),
        (31, "", "INVALID_REQUEST"),
        (32, "10/x", "INVALID_REQUEST"),
    ],
)
def test_host_may_be_a_network_from_its_level_on(level, host, code):
    assert create(new(level=level), ALICE._replace(host=host)) == [code]


def test_too_many_acls_at_once_are_refused_as_a_whole():
    bench = new()
    many = [ALICE._replace(resource_name=str(number)) for number in range(10_001)]
    with pytest.raises(RequestError) as raised:
        create(bench, *many)
    assert raised.value.code == ErrorCode.POLICY_VIOLATION
    assert create(bench, *many[1:], many[1]) == ["NONE"] * 10_001
    bench.commit(RECORDS["AccessControlEntry"](b"x" * 16, *many[0]))
    with pytest.raises(RequestError, match="Cannot remove more than 10000 acls"):
        delete(bench, a_filter())
    with pytest.raises(RequestError) as raised:
        delete(bench, a_filter(name="0"), a_filter())
    assert raised.value.code == ErrorCode.INVALID_REQUEST
    first, rest = delete(bench, a_filter(name="1"), a_filter(principal="User:none"))
    assert (len(first), rest) == (1, [])


# --- DeleteAcls, DescribeAcls ---------------------------------------------------------------------------------------


def test_filters_remove_what_matches_them():
    bench = new(ALICE, BOB, PREFIX, REPORTS)
    assert delete(bench, a_filter(principal="User:bob"), a_filter(kind=GROUP), a_filter(host="1")) == [
        [BOB], [REPORTS], [],
    ]  # fmt: skip
    assert list(bench.image.acls.values()) == [ALICE, PREFIX]
    assert delete(bench, a_filter(TOPIC, "orders", MATCH)) == [[ALICE, PREFIX]]
    assert bench.image.acls == {}


@pytest.mark.parametrize(
    "bad",
    [
        a_filter(kind=0),
        a_filter(kind=99),
        a_filter(pattern=9),
        a_filter(operation=99),
        a_filter(permission=0),
    ],
)
def test_filter_that_makes_no_sense_is_refused_alone(bad):
    bench = new(ALICE)
    assert delete(bench, bad, a_filter()) == ["INVALID_REQUEST", [ALICE]]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (a_filter(), {ALICE, BOB, PREFIX, REPORTS}),
        (a_filter(TOPIC), {ALICE, BOB, PREFIX}),
        (a_filter(TOPIC, "orders", LITERAL), {ALICE, BOB}),
        (a_filter(TOPIC, "orders", MATCH), {ALICE, BOB, PREFIX}),
        (a_filter(TOPIC, "orders", MATCH, permission=DENY), {PREFIX}),
        (a_filter(99), set()),
    ],
)
def test_acls_that_match_are_described(asked, expected):
    described = describe(new(ALICE, BOB, PREFIX, REPORTS), asked)
    assert (len(described), set(described)) == (len(expected), expected)


def test_acls_of_a_pattern_are_described_together():
    bench = new(ALICE, REPORTS, BOB)
    response = bench.ask(access.DESCRIBE_ACLS, DescribeAclsRequest(*a_filter()))
    assert [(resource.resource_name, len(resource.acls)) for resource in response.resources] == [
        ("orders", 2), ("reports", 1),
    ]  # fmt: skip


def test_description_of_unknown_numbers_is_refused():
    with pytest.raises(RequestError) as raised:
        describe(new(), a_filter(kind=0))
    assert raised.value.code == ErrorCode.INVALID_REQUEST


ASKS = {
    access.CREATE_ACLS: (lambda bench, **caller: create(bench, ALICE, **caller), Operation.ALTER),
    access.DELETE_ACLS: (lambda bench, **caller: delete(bench, a_filter(), **caller), Operation.ALTER),
    access.DESCRIBE_ACLS: (describe, Operation.DESCRIBE),
}


@pytest.mark.parametrize("key", ASKS)
def test_acls_need_an_authorizer_and_a_permission(key):
    ask, operation = ASKS[key]
    asked = []
    with pytest.raises(RequestError) as raised:
        ask(new(), may=lambda *permission: asked.append(permission))
    assert raised.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert asked == [(operation, ResourceType.CLUSTER, CLUSTER_NAME)]
    with pytest.raises(RequestError) as raised:
        ask(new(config={}))
    assert raised.value.code == ErrorCode.SECURITY_DISABLED


# --- what callers may do --------------------------------------------------------------------------------------------


def may(permissions, bench, principal, operation=Operation.READ, name="orders", host="10.0.0.2"):
    return permissions.of(bench.image, principal, host)(operation, ResourceType.TOPIC, name)


def test_callers_may_do_what_acls_and_super_users_say():
    bench = new(ALICE, PREFIX)
    permissions = Permissions(bench.state.config)
    assert may(permissions, bench, "User:admin", Operation.ALTER)
    assert may(permissions, bench, "User:alice")
    assert may(permissions, bench, "User:alice", Operation.DESCRIBE)
    assert not may(permissions, bench, "User:alice", Operation.WRITE)
    assert not may(permissions, bench, "User:alice", host="10.0.0.1")
    assert not may(permissions, bench, "User:alice", host="::ffff:10.0.0.1")
    assert not may(permissions, bench, "User:bob")
    assert (
        permissions.reason("User:bob", "::1", Operation.READ, ResourceType.TOPIC, "orders") == "DefaultDeny"
    )


def test_permissions_follow_the_image():
    bench = new(ALICE)
    permissions = Permissions(bench.state.config)
    assert [may(permissions, bench, user) for user in ("User:alice", "User:bob")] == [True, False]
    create(bench, ALICE._replace(principal="User:bob"))
    assert [may(permissions, bench, user) for user in ("User:alice", "User:bob")] == [True, True]
    delete(bench, a_filter(principal="User:alice"))
    assert [may(permissions, bench, user) for user in ("User:alice", "User:bob")] == [False, True]


def test_hosts_are_networks_from_their_level_on():
    bench = new(level=31)
    bench.commit(RECORDS["AccessControlEntry"](b"x" * 16, *ALICE._replace(host="10.0.0.0/8")))
    permissions = Permissions(bench.state.config)
    assert not may(permissions, bench, "User:alice")
    bench.commit(RECORDS["FeatureLevel"]("metadata.version", 32))
    assert may(permissions, bench, "User:alice")
    assert not may(permissions, bench, "User:alice", host="11.0.0.1")


def test_resource_without_acls_is_open_if_the_settings_say_so():
    bench = new(REPORTS, config={**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"})
    permissions = Permissions(bench.state.config)
    assert may(permissions, bench, "User:carol")
    create(bench, ALICE)
    assert not may(permissions, bench, "User:carol")


def test_without_an_authorizer_everything_is_allowed():
    bench = new(config={})
    assert may(Permissions(bench.state.config), bench, "User:carol", Operation.ALTER)


def test_super_users_that_are_none_stop_the_start():
    with pytest.raises(SettingError, match=r"super\.users=admin"):
        Permissions(BrokerConfig({**AUTHORIZER, "super.users": "admin"}))
