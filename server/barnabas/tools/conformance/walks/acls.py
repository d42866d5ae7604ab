"""Walks over ACLs of two users: what is made, found and removed by filters, and what a user may do with topics.

The decisions are seen where the broker offers SCRAM-SHA-256 and the run has logged in: the walk makes a user of its own,
as which it asks for the topics' authorized operations (KIP-430).
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from barnabas.client.errors import AuthenticationError
from barnabas.client.settings import SaslCredentials
from barnabas.tools.conformance.acls import (
    ALLOW,
    ANY,
    ANY_FILTER,
    DENY,
    GROUP,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    TOPIC,
    Acl,
)
from barnabas.tools.conformance.cases import NotApplicableError
from barnabas.tools.conformance.fixture import PAUSE_S, READY_S, make_topic
from barnabas.tools.conformance.trial import Trial
from barnabas.tools.conformance.walks.walk import NO_ERROR, Walk
from barnabas.tools.inspection.errors import code_name
from barnabas.tools.probing.exchanges import Wire
from barnabas.tools.probing.messages import make
from barnabas.wire.generated.errors import ErrorCode

STEPS = 30
ALL, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 2, 4, 5, 6, 7, 8, 10, 11
OF_TOPICS = (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
IMPLIED = {DESCRIBE: (READ, WRITE, DELETE, ALTER), DESCRIBE_CONFIGS: (ALTER_CONFIGS,)}
"""Operations that are also allowed by permission for one of these."""
ELSEWHERE = "192.0.2.1"
"""A host from which no client connects (RFC 5737)."""
SCRAM_SHA_256, MECHANISM, ITERATIONS = 1, "SCRAM-SHA-256", 4096
METADATA_VERSION_MIN = 8
"""The first version that has authorized operations."""


@dataclass
class Acls(Walk):
    """The model: the existing ACLs; `wire` is the user's connection, None without one."""

    base: str = ""
    users: list[str] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    there: set[Acl] = field(default_factory=set)
    wire: Wire | None = None

    @property
    def names(self) -> list[str]:
        """Names of resources, each the beginning of the next."""
        return [self.base, f"{self.base}-a", f"{self.base}-ab"]

    def principal(self) -> str:
        """Choose the principal of an ACL."""
        return f"User:{self.random.choice(self.users)}"

    def acl(self) -> Acl:
        """Return some ACL."""
        operations = (
            (*OF_TOPICS, ALL)
            if (kind := self.random.choice((TOPIC, TOPIC, GROUP))) == TOPIC
            else (READ, DESCRIBE, ALL)
        )
        everything = self.random.random() < 0.15
        return Acl(
            kind,
            "*" if everything else self.random.choice(self.names),
            LITERAL if everything else self.random.choice((LITERAL, PREFIXED)),
            self.principal() if everything or self.random.random() < 0.8 else "User:*",
            self.random.choice(("*", "*", ELSEWHERE)),
            self.random.choice(operations),
            self.random.choice((ALLOW, ALLOW, ALLOW, DENY)),
        )

    def filter(self) -> dict[str, Any]:
        """Return a filter that matches ACLs of this walk only: by one of its users, or one of its names."""
        by_name = self.random.random() < 0.5
        return {
            "resource_type_filter": self.random.choice((ANY, TOPIC, GROUP)),
            "resource_name_filter": self.random.choice(self.names) if by_name else None,
            "pattern_type_filter": self.random.choice((ANY, LITERAL, PREFIXED, *(() if by_name else (MATCH,)))),
            "principal_filter": None if by_name and self.random.random() < 0.5 else self.principal(),
            "host_filter": self.random.choice((None, None, "*", ELSEWHERE)),
            "operation": self.random.choice((ANY, ANY, READ, ALL)),
            "permission_type": self.random.choice((ANY, ANY, ALLOW, DENY)),
        }  # fmt: skip


async def run(trial: Trial) -> None:
    """ACLs are found and removed by filters, and decide what a user may do, as the model says."""
    walk = Acls.of(trial)
    walk.base = f"{trial.fresh('acls')}-t"  # no walk's names begin with those of another one
    walk.users = [trial.fresh("user") for _ in range(2)]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_without_acls_at_the_end(walk))
        await _make(walk, [walk.acl()])
        walk.wire = await _user_connection(walk, stack)
        for _ in range(STEPS):
            await walk.random.choice(_STEPS)(walk)
            if walk.wire is not None:
                await _decisions(walk)


@asynccontextmanager
async def _without_acls_at_the_end(walk: Acls) -> AsyncIterator[None]:
    try:
        yield
    finally:
        with trio.move_on_after(READY_S, shield=True):
            if walk.there:
                everything = [acl.filter() for acl in walk.there]
                await walk.trial.ask("DeleteAcls", {"filters": everything})


# --- making, finding, removing ------------------------------------------------------------------------------------


async def _make(walk: Acls, acls: list[Acl]) -> None:
    walk.step(f"make {', '.join(map(_text, acls))}")
    creations = [acl.creation() for acl in acls]
    answer = await walk.trial.ask("CreateAcls", {"creations": creations})
    codes = [result.error_code for result in answer.results]
    if ErrorCode.SECURITY_DISABLED in codes:
        raise NotApplicableError("the broker has no authorizer")
    walk.check(codes == [0] * len(acls), f"answered {', '.join(map(code_name, codes))}")
    walk.there.update(acls)
    await _is_there(walk)


async def _make_some(walk: Acls) -> None:
    acls = [walk.acl() for _ in range(walk.random.randint(1, 3))]
    if walk.there and walk.random.random() < 0.3:
        acls.append(walk.random.choice(sorted(walk.there)))  # one that is there already
    await _make(walk, acls)


async def _make_wrong(walk: Acls) -> None:
    """An invalid ACL is refused. Kafka 4.3 has no code of its own where a filter's ANY or MATCH stands in an ACL."""
    of_filters: list[dict[str, Any]] = [{"pattern": ANY}, {"pattern": MATCH}, {"operation": ANY}]
    changes = walk.random.choice([*of_filters, {"principal": "nobody"}, {"name": ""}])
    acl = walk.acl()._replace(**changes)
    walk.step(f"make {_text(acl)} with {changes}")
    answer = await walk.trial.ask("CreateAcls", {"creations": [acl.creation()]})
    more = ("UNKNOWN_SERVER_ERROR",) if changes in of_filters else ()
    walk.check_code(answer.results[0].error_code, "INVALID_REQUEST", *more)


async def _remove(walk: Acls) -> None:
    acl_filter = walk.filter()
    if walk.there and walk.random.random() < 0.5:
        acl_filter = walk.random.choice(sorted(walk.there)).filter()
    walk.step(f"remove what {_filter_text(acl_filter)} finds")
    answer = await walk.trial.ask("DeleteAcls", {"filters": [acl_filter]})
    result = answer.filter_results[0]
    walk.check_code(result.error_code, NO_ERROR)
    removed = {Acl.of_answer(matching_acl, matching_acl) for matching_acl in result.matching_acls}
    matching = {acl for acl in walk.there if _is_found(acl, acl_filter)}
    walk.check(removed == matching, f"removed are {_texts(removed)}, not {_texts(matching)}")
    walk.there -= matching
    await _is_there(walk)


async def _find(walk: Acls) -> None:
    acl_filter = walk.filter()
    walk.step(f"look for {_filter_text(acl_filter)}")
    described = _described(await walk.trial.ask("DescribeAcls", acl_filter))
    matching = {acl for acl in walk.there if _is_found(acl, acl_filter)}
    walk.check(described == matching, f"found are {_texts(described)}, not {_texts(matching)}")


async def _is_there(walk: Acls) -> None:
    """Wait until this broker has a change."""
    mine = (*(f"User:{user}" for user in walk.users),)

    def holds(answer: Any) -> bool:
        described = {
            acl for acl in _described(answer) if acl.principal in mine or acl.name.startswith(walk.base)
        }
        return described == walk.there

    await walk.trial.until("DescribeAcls", ANY_FILTER, holds, f"the ACLs are {_texts(walk.there)}")


def _described(answer: Any) -> set[Acl]:
    return {Acl.of_answer(resource, acl) for resource in answer.resources for acl in resource.acls}


def _is_found(acl: Acl, acl_filter: dict[str, Any]) -> bool:
    """Return whether a filter finds an ACL (KIP-140, KIP-290)."""
    name, pattern = acl_filter["resource_name_filter"], acl_filter["pattern_type_filter"]
    if pattern in (LITERAL, PREFIXED) and acl.pattern != pattern:
        return False
    return (
        acl_filter["resource_type_filter"] in (ANY, acl.resource_type)
        and name in (None, acl.name)
        and acl_filter["principal_filter"] in (None, acl.principal)
        and acl_filter["host_filter"] in (None, acl.host)
        and acl_filter["operation"] in (ANY, acl.operation)
        and acl_filter["permission_type"] in (ANY, acl.permission)
    )


def _text(acl: Acl) -> str:
    kind = "topic" if acl.resource_type == TOPIC else "group"
    name = f"{acl.name}..." if acl.pattern == PREFIXED else acl.name
    verb = "may" if acl.permission == ALLOW else "may not"
    return f"{acl.principal} {verb} {acl.operation} on {kind} {name} from {acl.host}"


def _texts(acls: set[Acl]) -> str:
    return "; ".join(sorted(map(_text, acls))) or "none"


def _filter_text(acl_filter: dict[str, Any]) -> str:
    return ", ".join(f"{key.removesuffix('_filter')}={value}" for key, value in acl_filter.items())


# --- decisions ----------------------------------------------------------------------------------------------------


async def _user_connection(walk: Acls, stack: AsyncExitStack) -> Wire | None:
    """Log in as the first user with a random password; None if the broker does not offer such logins."""
    trial = walk.trial
    if trial.fixture.newest("Metadata") < METADATA_VERSION_MIN or not await _offers_scram(trial):
        return None
    user, password = walk.users[0], walk.random.randbytes(12).hex()
    salt = walk.random.randbytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
    credential = {
        "name": user,
        "mechanism": SCRAM_SHA_256,
        "iterations": ITERATIONS,
        "salt": salt,
        "salted_password": salted,
    }
    await trial.expecting(
        "AlterUserScramCredentials", {"upsertions": [credential]}, {"results.0.error_code": 0}
    )
    stack.push_async_callback(
        trial.ask, "AlterUserScramCredentials", {"deletions": [{"name": user, "mechanism": SCRAM_SHA_256}]}
    )
    for name in walk.names[:2]:
        await make_topic(await trial.wire(), trial.fixture, name, controller=await trial.wire("CreateTopics"))
    walk.topics = walk.names[:2]
    settings = replace(trial.fixture.target.settings, sasl=SaslCredentials(MECHANISM, user, password))
    target = replace(trial.fixture.target, settings=settings)
    with trio.move_on_after(READY_S):
        while True:
            try:
                return await stack.enter_async_context(target.connect(trial.journal))
            except AuthenticationError:  # the broker may not know the user yet
                await trio.sleep(PAUSE_S)
    walk.check(False, f"a user cannot log in {READY_S:g} s after it was made")
    return None


async def _offers_scram(trial: Trial) -> bool:
    if trial.fixture.target.settings.sasl is None or not trial.fixture.serves("AlterUserScramCredentials"):
        return False
    async with trial.fixture.target.connect(log_in=False) as wire:
        answer = await wire.ask(make("SaslHandshake", 1, {"mechanism": MECHANISM}), 1)
        return not answer.error_code


async def _decisions(walk: Acls) -> None:
    """Check that the user may do with each topic what the ACLs allow, and does not see the others."""
    version = walk.trial.fixture.newest("Metadata")
    asked = {
        "topics": [{"name": name} for name in walk.topics],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }
    answer = await walk.trial.ask("Metadata", asked, version, wire=walk.wire)
    for topic in answer.topics:
        allowed = {operation for operation in OF_TOPICS if _is_allowed(walk, topic.name, operation)}
        if DESCRIBE not in allowed:
            walk.check_code(topic.error_code, "TOPIC_AUTHORIZATION_FAILED")
            continue
        walk.check_code(topic.error_code, NO_ERROR)
        bits = topic.topic_authorized_operations
        seen = {bit for bit in range(31) if bits >> bit & 1}
        walk.check(
            seen == allowed, f"operations {sorted(seen)} are allowed on {topic.name}, not {sorted(allowed)}"
        )


def _is_allowed(walk: Acls, name: str, operation: int) -> bool:
    """Return whether the first user may do something with a topic: DENY takes precedence, some operations imply others."""
    rules = [
        acl
        for acl in walk.there
        if acl.resource_type == TOPIC
        and acl.host == "*"
        and acl.principal in ("User:*", f"User:{walk.users[0]}")
        and (name.startswith(acl.name) if acl.pattern == PREFIXED else acl.name in ("*", name))
    ]
    if any(acl.permission == DENY and acl.operation in (operation, ALL) for acl in rules):
        return False
    enough = (operation, ALL, *IMPLIED.get(operation, ()))
    return any(acl.permission == ALLOW and acl.operation in enough for acl in rules)


Step = Callable[[Acls], Awaitable[None]]
_STEPS: list[Step] = [_make_some, _make_some, _make_some, _make_wrong, _remove, _remove, _find, _find]
