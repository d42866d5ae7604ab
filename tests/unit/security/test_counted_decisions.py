"""An authorizer counts each answer once, by the kind of resource, whether it was remembered or worked out."""

from barnabas.security.authorizer import ResourceType

from .test_standard_authorizer import ALICE, READ, WRITE, authorizer, mine

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


def test_each_decision_is_counted_as_allowed_or_denied():
    held = authorizer(mine("t"))
    for _ in range(3):
        assert held.allows(ALICE, READ, TOPIC, "t")
    for _ in range(2):
        assert not held.allows(ALICE, WRITE, TOPIC, "t")
    assert not held.allows(ALICE, READ, GROUP, "t")
    assert (held.allowed_counts[TOPIC], held.denied_counts[TOPIC]) == (3, 2)
    assert (held.allowed_counts[GROUP], held.denied_counts[GROUP]) == (0, 1)
    assert (sum(held.allowed_counts), sum(held.denied_counts)) == (3, 3)


def test_a_look_at_any_resource_is_not_counted():
    held = authorizer(mine("t"))
    assert held.allows_on_any(ALICE, READ, TOPIC)
    assert (sum(held.allowed_counts), sum(held.denied_counts)) == (0, 0)
