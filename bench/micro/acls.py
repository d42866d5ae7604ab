"""Time of a decision of the authorizer, computed and cached, with up to 10,000 ACLs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle

from bench.micro.timing import Timing, measure

COUNTS = (100, 10_000)
USERS = 100


def run() -> Iterator[Timing]:
    """Yield times for ACLs of many users: three quarters are literal, the rest prefixed (20 lengths); a tenth denies."""
    from barnabas.security.acls import (
        NO_ACLS,
        AccessControlEntry,
        AclBinding,
        PatternType,
        Permission,
        ResourcePattern,
    )
    from barnabas.security.authorizer import Operation, Requester, ResourceType
    from barnabas.security.standard_authorizer import StandardAuthorizer

    for count in COUNTS:
        draw = random.Random(1)
        bindings = []
        for number in range(count):
            kind = PatternType.PREFIXED if number % 4 == 0 else PatternType.LITERAL
            name = f"topic-{number}".ljust(20, "x")
            pattern = ResourcePattern(
                ResourceType.TOPIC, kind, name[: 1 + number % 20] if number % 4 == 0 else name
            )
            permission = Permission.DENY if number % 10 == 0 else Permission.ALLOW
            operation = draw.choice((Operation.READ, Operation.WRITE, Operation.ALL))
            entry = AccessControlEntry(f"User:user-{number % USERS}", "*", operation, permission)
            bindings.append(AclBinding(pattern, entry))
        acls = NO_ACLS.changed(bindings)
        authorizer = StandardAuthorizer(lambda acls=acls: acls)
        asked = cycle(
            (Requester(f"User:user-{draw.randrange(USERS)}", "10.0.0.1"), draw.choice(bindings).pattern.name)
            for _ in range(4096)
        )

        def decide(authorizer: StandardAuthorizer = authorizer, asked: Iterator = asked) -> None:  # type: ignore[type-arg]
            requester, name = next(asked)
            authorizer.decide(requester, Operation.WRITE, ResourceType.TOPIC, name)

        def allows(authorizer: StandardAuthorizer = authorizer, asked: Iterator = asked) -> None:  # type: ignore[type-arg]
            requester, name = next(asked)
            authorizer.allows(requester, Operation.WRITE, ResourceType.TOPIC, name)

        yield measure(f"{len(list(acls)):,} ACLs: a decision", decide)
        yield measure(f"{len(list(acls)):,} ACLs: a decision that is remembered", allows)
