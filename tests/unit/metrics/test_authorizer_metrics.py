"""Metrics show the decisions of the authorizer."""

from barnabas.metrics.families import Families
from barnabas.metrics.of_authorizer import PREFIX, authorizer_families
from barnabas.security.acls import (
    NO_ACLS,
    AccessControlEntry,
    AclBinding,
    PatternType,
    Permission,
    ResourcePattern,
)
from barnabas.security.authorizer import AllowEverything, Operation, Requester, ResourceType
from barnabas.security.standard_authorizer import StandardAuthorizer

ALICE = Requester("User:alice", "10.0.0.1")


def shown(authorizer):
    families = Families()
    authorizer_families(families, authorizer)
    return {
        (name.removeprefix(PREFIX), dict(labels).get("resource_type", "")): value
        for family in families
        for name, labels, value in family.samples()
        if value
    }


def test_decisions_are_counted_by_outcome_and_type_of_resource():
    acls = NO_ACLS.changed(
        [
            AclBinding(
                ResourcePattern(ResourceType.TOPIC, PatternType.LITERAL, "t"),
                AccessControlEntry("User:alice", "*", Operation.READ, Permission.ALLOW),
            )
        ]
    )
    authorizer = StandardAuthorizer(lambda: acls)
    for name in ("t", "t", "u"):  # the second time from what is remembered
        authorizer.allows(ALICE, Operation.READ, ResourceType.TOPIC, name)
    authorizer.allows(ALICE, Operation.READ, ResourceType.GROUP, "g")
    assert shown(authorizer) == {
        ("acls_total_count", ""): 1,
        ("authorization_allowed_total", "TOPIC"): 2,
        ("authorization_denied_total", "TOPIC"): 1,
        ("authorization_denied_total", "GROUP"): 1,
    }


def test_without_an_authorizer_there_are_none():
    assert shown(AllowEverything()) == {}
