"""ACLs as values: what filters match, and what is found of them after any changes."""

from random import Random

import pytest

from barnabas.security.acls import (
    ANY,
    MATCH,
    NO_ACLS,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    Draft,
    PatternType,
    Permission,
    ResourcePattern,
    host_of,
    type_name,
)
from barnabas.security.authorizer import Operation, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def acl(
    name="t",
    principal="User:a",
    *,
    kind=TOPIC,
    pattern=LITERAL,
    host="*",
    operation=Operation.READ,
    permission=ALLOW,
):
    return AclBinding(
        ResourcePattern(kind, pattern, name), AccessControlEntry(principal, host, operation, permission)
    )


@pytest.mark.parametrize(
    ("filter_", "binding", "expected"),
    [
        (AclFilter(), acl(), True),
        (AclFilter(resource_type=GROUP), acl(), False),
        (AclFilter(resource_type=99), acl(), False),
        (AclFilter(name="t"), acl(pattern=PREFIXED), True),
        (AclFilter(name="tt"), acl(pattern=PREFIXED), False),
        (AclFilter(name="t", pattern_type=LITERAL), acl(pattern=PREFIXED), False),
        (AclFilter(name="t", pattern_type=PREFIXED), acl("t", pattern=PREFIXED), True),
        (AclFilter(name="topic", pattern_type=MATCH), acl("t", pattern=PREFIXED), True),
        (AclFilter(name="topic", pattern_type=MATCH), acl("t"), False),
        (AclFilter(name="topic", pattern_type=MATCH), acl("*"), True),
        (AclFilter(name="topic", pattern_type=MATCH), acl("topic"), True),
        (AclFilter(name="topic", pattern_type=ANY), acl("*"), False),
        (AclFilter(name="*", pattern_type=ANY), acl("*"), True),
        (AclFilter(pattern_type=MATCH), acl("x", pattern=PREFIXED), True),
        (AclFilter(principal="User:a"), acl(), True),
        (AclFilter(principal="User:*"), acl(), False),
        (AclFilter(host="10.0.0.1"), acl(), False),
        (AclFilter(operation=Operation.DESCRIBE), acl(), False),
        (AclFilter(operation=Operation.READ, permission=DENY), acl(), False),
    ],
)
def test_a_filter_matches_what_kafkas_would(filter_, binding, expected):
    assert filter_.matches(binding) is expected
    assert [acl for piece in NO_ACLS.changed([binding]).matching(filter_) for acl in piece] == (
        [binding] if expected else []
    )


def random_acl(random: Random) -> AclBinding:
    pattern = ResourcePattern(
        random.choice((TOPIC, GROUP)),
        random.choice(list(PatternType)),
        random.choice(("*", "a", "ab", "abc", "b")),
    )
    entry = AccessControlEntry(
        random.choice(("User:a", "User:b", "User:*")), random.choice(("*", "10.0.0.1")),
        random.choice((Operation.ALL, Operation.READ)), random.choice(list(Permission)),
    )  # fmt: skip
    return AclBinding(pattern, entry)


def test_acls_are_those_that_were_added_and_not_removed():
    seed = Random().randrange(2**32)
    print("seed", seed)
    random = Random(seed)
    acls, expected = NO_ACLS, set()
    for _ in range(300):
        draft = Draft(acls)
        before = set(acls)
        for _ in range(random.randrange(4)):
            acl = random_acl(random)
            if random.random() < 0.5:
                assert draft.add(acl) is (acl not in expected)
                expected.add(acl)
            else:
                assert draft.remove(acl) is (acl in expected)
                expected.discard(acl)
        assert set(acls) == before
        acls = draft.acls()
        assert sorted(acls) == sorted(expected)
        assert acls.count == len(expected)
        assert all(acl in acls for acl in expected)
        assert acls.principals == {
            pattern: {acl.entry.principal for acl in expected if acl.pattern == pattern}
            for pattern in {acl.pattern for acl in expected}
        }
        for kind in (TOPIC, GROUP):
            for name in ("", "a", "abc", "abcd", "b", "c", "*"):
                patterns = {
                    pattern for pattern in acls.patterns_for(kind, name) if pattern in acls.principals
                }
                applies = AclFilter(resource_type=kind, pattern_type=MATCH, name=name)
                assert patterns == {acl.pattern for acl in expected if applies.matches(acl)}


def test_nothing_changed_gives_the_same_object():
    acls = NO_ACLS.changed([acl()])
    assert acls.changed() is acls
    assert acls.changed([acl()]) is acls
    assert acls.changed(removed=[acl("other")]) is acls
    assert acls.changed(removed=[acl()]) is not acls


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::00ff:0:2", "2001:db8:0:0:0:ff:0:2"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_hosts_are_written_as_java_writes_addresses(address, host):
    assert host_of(address) == host


def test_types_have_the_names_of_znodes():
    assert [type_name(kind) for kind in ResourceType] == [
        "Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User",
    ]  # fmt: skip
