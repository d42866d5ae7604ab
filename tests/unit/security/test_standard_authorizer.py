"""Decisions of the authorizer, by hand for each rule; at random: tests/property/security."""

import pytest

from barnabas.security.acls import NO_ACLS, AclBinding, PatternType
from barnabas.security.authorizer import (
    ALL_OPERATIONS,
    CLUSTER_NAME,
    Operation,
    Requester,
    ResourceType,
    authorized_operations,
)
from barnabas.security.standard_authorizer import DECISIONS_MAX, StandardAuthorizer

from .test_acls import DENY, GROUP, PREFIXED, TOPIC, acl

ALICE = Requester("User:alice", "10.0.0.1")
READ, WRITE, DESCRIBE, DELETE = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DELETE


def authorizer(*acls, **options) -> StandardAuthorizer:
    held = NO_ACLS.changed(acls)
    return StandardAuthorizer(lambda: held, **options)


def mine(name="t", **more) -> AclBinding:
    return acl(name, "User:alice", **more)


def reads(*acls, name="t", **options) -> bool:
    return authorizer(*acls, **options).allows(ALICE, READ, TOPIC, name)


def test_nobody_may_anything_without_acls():
    assert not reads()
    assert reads(allows_without_acls=True)


def test_super_users_may_everything_whatever_is_denied():
    assert reads(mine(permission=DENY, operation=Operation.ALL), super_users=["User:alice"])
    assert not reads(super_users=["User:bob"])


def test_an_acl_is_for_its_principal_host_operation_and_resource():
    assert reads(mine())
    assert not reads(acl(principal="User:bob"))
    assert reads(acl(principal="User:*"))
    assert not reads(acl(principal="Group:*"))
    assert not reads(acl(principal="User:Alice"))
    assert reads(mine(host="10.0.0.1"))
    assert not reads(mine(host="10.0.0.2"))
    assert reads(mine(operation=Operation.ALL))
    assert not reads(mine(operation=WRITE))
    assert not reads(mine(kind=GROUP))
    assert not reads(mine("T"))
    assert reads(mine("*"))
    assert reads(mine("t", pattern=PREFIXED), name="topic")
    assert not reads(mine("t"), name="topic")
    assert not reads(mine("topic", pattern=PREFIXED), name="t")
    assert not reads(mine("*", pattern=PREFIXED))
    assert reads(mine("*", pattern=PREFIXED), name="*x")


@pytest.mark.parametrize("other", [acl(principal="User:*"), mine("*"), mine(pattern=PREFIXED)])
def test_what_is_denied_anywhere_is_denied(other):
    for allowed, denied in ((mine(), other), (other, mine())):
        denied = AclBinding(denied.pattern, denied.entry._replace(permission=DENY))
        assert not reads(allowed, denied)


def test_allow_implies_describe_and_deny_does_not():
    for operation in (READ, WRITE, DELETE, Operation.ALTER, DESCRIBE):
        assert authorizer(mine(operation=operation)).allows(ALICE, DESCRIBE, TOPIC, "t")
        denied = mine(operation=operation, permission=DENY)
        may = authorizer(mine(operation=Operation.ALL), denied).allows(ALICE, DESCRIBE, TOPIC, "t")
        assert may is (operation is not DESCRIBE)
    altering = authorizer(mine(operation=Operation.ALTER_CONFIGS))
    assert altering.allows(ALICE, Operation.DESCRIBE_CONFIGS, TOPIC, "t")
    assert not altering.allows(ALICE, DESCRIBE, TOPIC, "t")


def test_everybody_may_use_what_has_no_acls_if_that_is_set():
    options = {"allows_without_acls": True}
    assert reads(mine(kind=GROUP), **options)
    assert not reads(acl(principal="User:bob"), **options)
    assert not reads(acl("*", "User:bob"), **options)
    assert not reads(acl("t", "User:bob", pattern=PREFIXED), name="topic", **options)


def test_some_topic_is_writable_unless_each_allow_is_denied():
    def any_topic(*acls, **options):
        return authorizer(*acls, **options).allows_on_any(ALICE, WRITE, TOPIC)

    writes, denies = {"operation": WRITE}, {"operation": WRITE, "permission": DENY}
    assert not any_topic()
    assert any_topic(super_users=["User:alice"])
    assert any_topic(allows_without_acls=True)
    assert not any_topic(acl("*", "User:bob"), allows_without_acls=True)
    assert any_topic(mine(**writes))
    assert any_topic(mine(operation=Operation.ALL))
    assert not any_topic(mine(operation=READ))
    assert not any_topic(mine(kind=GROUP, **writes))
    assert not any_topic(mine(host="10.0.0.2", **writes))
    assert not any_topic(mine(**writes), mine(**denies))
    assert any_topic(mine(**writes), mine("u", **denies))
    assert not any_topic(mine(**writes), acl("*", "User:*", **denies))
    assert not any_topic(mine("topic", **writes), mine("t", pattern=PREFIXED, **denies))
    assert not any_topic(mine("topic", pattern=PREFIXED, **writes), mine("t", pattern=PREFIXED, **denies))
    assert any_topic(mine("t", pattern=PREFIXED, **writes), mine("topic", pattern=PREFIXED, **denies))
    assert any_topic(mine("*", **writes), mine("t", pattern=PREFIXED, **denies))
    assert not any_topic(mine("t", pattern=PREFIXED, **writes), mine("t", pattern=PREFIXED, **denies))
    two_denied = [mine(name, pattern=PREFIXED, **denies) for name in ("t", "other")]
    assert not any_topic(mine("topic", **writes), *two_denied)
    assert not any_topic(mine("topic", **writes), *reversed(two_denied))
    assert any_topic(mine("topic", **writes), mine("u", **writes), *two_denied)
    assert any_topic(
        mine("topic", **writes), mine("topic", pattern=PREFIXED, **writes), mine("topic", **denies)
    )
    assert not any_topic(mine("*", **writes), mine("*", **denies))


def test_a_decision_names_the_rule_that_it_follows_from():
    held = authorizer(mine(), mine("u", permission=DENY), super_users=["User:root"])
    assert held.reason(ALICE, READ, TOPIC, "t").startswith(
        "MatchingAcl(User:alice has ALLOW permission for READ"
    )
    assert "DENY" in held.reason(ALICE, READ, TOPIC, "u")
    assert held.reason(ALICE, READ, TOPIC, "v") == "DefaultDeny"
    assert held.reason(Requester("User:root", "h"), READ, TOPIC, "v") == "SuperUser"


def test_authorized_operations_are_those_that_the_acls_allow():
    bits = authorized_operations(authorizer(mine()), ALICE, TOPIC, "t")
    assert bits == 1 << READ | 1 << DESCRIBE
    everything = mine(operation=Operation.ALL)
    assert authorized_operations(authorizer(everything), ALICE, TOPIC, "t") == ALL_OPERATIONS[TOPIC]
    assert authorized_operations(authorizer(everything), ALICE, ResourceType.CLUSTER, CLUSTER_NAME) == 0


def test_other_acls_make_other_decisions_at_once():
    held = NO_ACLS
    standard = StandardAuthorizer(lambda: held)
    for _ in range(2):
        assert not standard.allows(ALICE, WRITE, TOPIC, "t")
        assert not standard.allows_on_any(ALICE, WRITE, TOPIC)
    held = held.changed([mine(operation=WRITE)])
    assert standard.allows(ALICE, WRITE, TOPIC, "t")
    assert standard.allows_on_any(ALICE, WRITE, TOPIC)
    held = held.changed([mine(operation=WRITE, permission=DENY)])
    assert not standard.allows(ALICE, WRITE, TOPIC, "t")
    assert not standard.allows_on_any(ALICE, WRITE, TOPIC)


def test_what_is_remembered_of_decisions_is_bounded():
    standard = authorizer(mine("x" * 300))
    for number in range(DECISIONS_MAX + 10):
        assert not standard.allows(ALICE, READ, TOPIC, str(number))
    assert standard.allows(ALICE, READ, TOPIC, "x" * 300)
    decisions = standard._decisions
    assert len(decisions) <= DECISIONS_MAX
    assert not any(len(key[3]) > 256 for key in decisions)


def test_a_decision_looks_at_few_of_many_acls():
    """Ten thousand ACLs, half of them prefixed, of a thousand principals: what one decision looks at stays small."""
    bindings = [
        acl(f"{'p' * (number % 40)}{number}", f"User:{number % 1000}", pattern=PatternType(3 + number % 2))
        for number in range(10_000)
    ]
    acls = NO_ACLS.changed(bindings)
    assert acls.count == 10_000
    assert len(acls.patterns_for(TOPIC, "p" * 249)) <= 2 + 50
    assert max(len(acls.of(f"User:{number}")) for number in range(1000)) == 10
