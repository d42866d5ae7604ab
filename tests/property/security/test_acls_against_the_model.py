"""Random requests that create, delete and describe ACLs, and questions to the authorizer: the model says each answer.

`SLIPS` are slips that the comparison must notice.
"""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from barnabas.cluster.metadata import acl_requests
from barnabas.cluster.metadata.image import ClusterImage
from barnabas.config.loading import BrokerConfig
from barnabas.handlers import create_acls, delete_acls, describe_acls
from barnabas.security import acls as access_lists
from barnabas.security import standard_authorizer
from barnabas.security.acls import AclFilter, Acls
from barnabas.security.authorizer import (
    OPERATIONS_ON,
    Operation,
    Requester,
    ResourceType,
    authorized_operations,
)
from barnabas.security.standard_authorizer import StandardAuthorizer
from barnabas.wire.generated.create_acls import CreateAclsRequest
from barnabas.wire.generated.delete_acls import DeleteAclsRequest
from barnabas.wire.generated.describe_acls import DescribeAclsRequest
from barnabas.wire.generated.errors import ErrorCode
from tests.models.acls import (
    ALL,
    ALLOW,
    ANY,
    CLUSTER,
    CLUSTER_NAME,
    DENY,
    LITERAL,
    MATCH,
    PREFIXED,
    SOME_NAME,
    Acl,
    Filter,
    allows,
    allows_somewhere,
    check_new,
    delete,
    describe,
)
from tests.support.at_once import LocalMetadata, at_once, no_turns
from tests.support.effort import examples
from tests.support.outcomes import outcome
from tests.support.slips import unnoticed

TOPIC = 2
WRITE, ALTER, DESCRIBE = 4, 7, 8
NAMES = ["a", "ab", "abc", "b", "*", SOME_NAME]
USERS, HOSTS = ["User:a", "User:b"], ["1.1.1.1", "2.2.2.2"]
HARDLY_EVER = [False] * 14 + [True]
KINDS = st.sampled_from([TOPIC] * 6 + [3, CLUSTER, 5, 7])
OPERATIONS = st.sampled_from([ALL, 3, WRITE, WRITE, 6, ALTER, DESCRIBE, DESCRIBE, 10, 11])
NONSENSE = {"kind": [0, 1, 99], "pattern": [0, 1, 2, 99], "operation": [0, 1, 99], "permission": [0, 1, 99],
            "name": ["", "other"], "principal": ["a", ""]}  # fmt: skip


@st.composite
def acls(draw: st.DrawFn) -> Acl:
    """Draw an ACL, now and then with one thing in it that cannot be."""
    kind = draw(KINDS)
    acl = Acl(
        kind,
        draw(st.sampled_from([LITERAL, PREFIXED])),
        draw(st.sampled_from([CLUSTER_NAME] * 5 + NAMES[:1] if kind == CLUSTER else NAMES)),
        draw(st.sampled_from([*USERS, *USERS, "User:*"])),
        draw(st.sampled_from(["*", *HOSTS])),
        draw(OPERATIONS),
        draw(st.sampled_from([ALLOW, ALLOW, DENY])),
    )
    if draw(st.sampled_from(HARDLY_EVER)):
        what = draw(st.sampled_from([*NONSENSE]))
        acl = acl._replace(**{what: draw(st.sampled_from(NONSENSE[what]))})
    return acl


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    """Draw a filter, now and then with a number that says nothing."""
    filter_ = Filter(
        draw(st.sampled_from([ANY, ANY, TOPIC, TOPIC, CLUSTER])),
        draw(st.sampled_from([ANY, MATCH, MATCH, LITERAL, PREFIXED])),
        draw(st.sampled_from([None, *NAMES, "abcd"])),
        draw(st.sampled_from([None, None, None, "User:a", "User:*"])),
        draw(st.sampled_from([None, None, None, "*", HOSTS[0]])),
        draw(st.sampled_from([ANY, ANY, ANY, ALL, WRITE])),
        draw(st.sampled_from([ANY, ANY, ALLOW, DENY])),
    )
    if draw(st.sampled_from(HARDLY_EVER)):
        what = draw(st.sampled_from(["kind", "pattern", "operation", "permission"]))
        filter_ = filter_._replace(**{what: draw(st.sampled_from([0, 99]))})
    return filter_


class Requests(RuleBasedStateMachine):
    """One broker's ACLs; `acls` are those that the model knows of."""

    @initialize(
        has_super_user=st.booleans(),
        everyone_if_none=st.booleans(),
        first=st.lists(acls(), min_size=1, max_size=12),
    )
    def begin(self, has_super_user: bool, everyone_if_none: bool, first: list[Acl]) -> None:
        self.metadata = LocalMetadata(ClusterImage("c"))
        super_users = ["User:b"] if has_super_user else []
        self.rules = {"super_users": super_users, "everyone_if_none": everyone_if_none}
        self.authorizer = StandardAuthorizer(
            lambda: self.metadata.image.acls, super_users, allows_without_acls=everyone_if_none
        )
        self.acls: set[Acl] = set()
        self.create(first)

    async def reserve(self, size: int) -> None:
        assert size >= 0

    def ask(self, handler, request, **services):
        context = SimpleNamespace(asks_authorizer=True, reserve=self.reserve)
        handling = handler(metadata=self.metadata, budget=no_turns(), **services)
        return at_once(handling.handle(context, request))

    # --- requests -------------------------------------------------------------------------------------------

    @rule(new=st.lists(acls(), min_size=1, max_size=5))
    def create(self, new: list[Acl]) -> None:
        creations = [
            CreateAclsRequest.AclCreation(
                acl.kind, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission
            )
            for acl in new
        ]
        response = self.ask(create_acls.CreateAcls, CreateAclsRequest(creations), config=BrokerConfig({}))
        expected = [outcome(lambda acl=acl: check_new(acl)) or "NONE" for acl in new]
        self.acls |= {acl for acl, code in zip(new, expected, strict=True) if code == "NONE"}
        assert [ErrorCode(result.error_code).name for result in response.results] == expected
        assert self.metadata.image.acls.count == len(self.acls)

    @rule(chosen=st.lists(filters(), min_size=1, max_size=3))
    def delete(self, chosen: list[Filter]) -> None:
        asked = [
            DeleteAclsRequest.DeleteAclsFilter(
                row.kind, row.name, row.pattern, row.principal, row.host, row.operation, row.permission
            )
            for row in chosen
        ]
        response = self.ask(delete_acls.DeleteAcls, DeleteAclsRequest(asked))
        deleted: set[Acl] = set()
        for row, result in zip(chosen, response.filter_results, strict=True):
            removed = [
                Acl(
                    acl.resource_type, acl.pattern_type, acl.resource_name, acl.principal, acl.host, acl.operation,
                    acl.permission_type,
                )
                for acl in result.matching_acls
            ]  # fmt: skip
            expected = outcome(lambda row=row: sorted(delete(self.acls, row)))
            code = ErrorCode(result.error_code)
            assert (code.name if code else sorted(removed)) == expected
            if not code:
                deleted.update(removed)
        self.acls -= deleted
        assert self.metadata.image.acls.count == len(self.acls)

    @rule(filter_=filters())
    def describe(self, filter_: Filter) -> None:
        request = DescribeAclsRequest(
            filter_.kind, filter_.name, filter_.pattern, filter_.principal, filter_.host, filter_.operation,
            filter_.permission,
        )  # fmt: skip
        response = outcome(lambda: self.ask(describe_acls.DescribeAcls, request))
        expected = outcome(lambda: sorted(describe(self.acls, filter_)))
        if isinstance(response, str):
            assert response == expected
            return
        assert expected == sorted(
            Acl(
                row.resource_type, row.pattern_type, row.resource_name, acl.principal, acl.host, acl.operation,
                acl.permission_type,
            )
            for row in response.resources
            for acl in row.acls
        )  # fmt: skip
        patterns = [(row.resource_type, row.pattern_type, row.resource_name) for row in response.resources]
        assert len(patterns) == len(set(patterns))

    # --- decisions ------------------------------------------------------------------------------------------

    @rule(user=st.sampled_from(USERS), host=st.sampled_from(HOSTS))
    def decide(self, user: str, host: str) -> None:
        """Ask for everything at once, twice: what was decided is remembered."""
        who = Requester(user, host)
        for kind in (TOPIC, CLUSTER):
            for name in [CLUSTER_NAME] if kind == CLUSTER else [*NAMES, "abcd", "c"]:
                may = {
                    operation: allows(self.acls, user, host, operation, kind, name, **self.rules)
                    for operation in (3, WRITE, 6, ALTER, DESCRIBE, 10, 11)
                }
                for operation, expected in [*may.items(), *may.items()]:
                    allowed = self.authorizer.allows(who, Operation(operation), ResourceType(kind), name)
                    assert allowed is expected
                bits = authorized_operations(self.authorizer, who, ResourceType(kind), name)
                assert bits == sum(
                    1 << operation
                    for operation in OPERATIONS_ON[ResourceType(kind)]
                    if allows(self.acls, user, host, operation, kind, name, **self.rules)
                )

    @rule(user=st.sampled_from(USERS), host=st.sampled_from(HOSTS), operation=st.sampled_from([3, WRITE]))
    def decide_on_any(self, user: str, host: str, operation: int) -> None:
        """As InitProducerId asks for the right to write to some topic (KIP-679)."""
        expected = allows_somewhere(self.acls, user, host, operation, TOPIC, **self.rules)
        for _ in range(2):
            allowed = self.authorizer.allows_on_any(
                Requester(user, host), Operation(operation), ResourceType(TOPIC)
            )
            assert allowed is expected


Requests.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=15, deadline=None)
TestRequests = Requests.TestCase


# --- planted slips ----------------------------------------------------------------------------------------------


def _without_prefixes(self, resource_type, name):
    return [row for row in _patterns_for(self, resource_type, name) if row[1] == LITERAL]


def _without_wildcard(self, resource_type, name):
    return [row for row in _patterns_for(self, resource_type, name) if row[2] != "*" or name == "*"]


def _prefixes_below(self, resource_type, name):
    return [row for row in _patterns_for(self, resource_type, name) if row[1] == LITERAL or row[2] != name]


def _keeps_decisions(self):
    self._acls = self._newest()


def _prefix_the_wrong_way_round(self, pattern):
    if self.pattern_type == MATCH and self.name and pattern.pattern_type == PREFIXED:
        return self.resource_type in (ANY, pattern.resource_type) and pattern.name.startswith(self.name)
    return _matches_pattern(self, pattern)


def _match_is_any(self, pattern):
    return _matches_pattern(self._replace(pattern_type=ANY) if self.pattern_type == MATCH else self, pattern)


def _any_host(self, entry):
    return _matches_entry(self._replace(host=None), entry)


def _deny_implies(self, requester, operation, resource_type, name):
    if (
        operation == DESCRIBE
        and not _decide(self, requester, Operation(WRITE), resource_type, name).is_allowed
    ):
        return _decide(self, requester, Operation(WRITE), resource_type, name)
    return _decide(self, requester, operation, resource_type, name)


def _everywhere(self, requester, operation, resource_type, name):
    return _decide(self, requester._replace(host=HOSTS[0]), operation, resource_type, name)


def _no_super_user(self, requester, operation, resource_type, name):
    self._super_users = frozenset()
    return _decide(self, requester, operation, resource_type, name)


def _everyone_where_none_allows(self, requester, operation, resource_type, name):
    decision = _decide(self, requester, operation, resource_type, name)
    return self._default if decision.rule == standard_authorizer.DEFAULT_DENY else decision


def _implied_by(operation, operations):
    def decide(self, *asked):
        with mock.patch.object(standard_authorizer, "_IMPLIED_BY", implied):
            return _decide(self, *asked)

    implied = {**standard_authorizer._IMPLIED_BY, Operation(operation): operations}
    return decide


def _filter_as_it_is(asked):
    return acl_requests.filter_of(asked)


def _any_cluster(asked, **named):
    if asked.resource_type == CLUSTER and asked.resource_name:
        asked.resource_name = CLUSTER_NAME
    return _binding_of(asked, **named)


_patterns_for = Acls.patterns_for
_matches_pattern, _matches_entry = AclFilter.matches_pattern, AclFilter.matches_entry
_decide = StandardAuthorizer.decide
_binding_of = create_acls.binding_of

SLIPS = {
    "prefixed ACLs do not count": (Acls, "patterns_for", _without_prefixes),
    "the wildcard does not count": (Acls, "patterns_for", _without_wildcard),
    "a prefix does not stand for its own name": (Acls, "patterns_for", _prefixes_below),
    "decisions are kept when ACLs change": (StandardAuthorizer, "_forget", _keeps_decisions),
    "a filter matches longer prefixes": (AclFilter, "matches_pattern", _prefix_the_wrong_way_round),
    "MATCH is taken for ANY": (AclFilter, "matches_pattern", _match_is_any),
    "a filter forgets the host": (AclFilter, "matches_entry", _any_host),
    "what is denied implies more": (StandardAuthorizer, "decide", _deny_implies),
    "hosts are not told apart": (StandardAuthorizer, "decide", _everywhere),
    "there are no super users": (StandardAuthorizer, "decide", _no_super_user),
    "everyone may where no ACL allows": (StandardAuthorizer, "decide", _everyone_where_none_allows),
    "ALTER does not imply DESCRIBE": (StandardAuthorizer, "decide", _implied_by(DESCRIBE, (8, 3, 4, 6, 2))),
    "ALTER_CONFIGS does not imply DESCRIBE_CONFIGS": (StandardAuthorizer, "decide", _implied_by(10, (10, 2))),
    "somewhere means in one place": (
        StandardAuthorizer, "_decide_on_any",
        lambda self, who, operation, kind: self.decide(who, operation, kind, SOME_NAME).is_allowed,
    ),
    "denied prefixes do not count somewhere": (standard_authorizer, "_is_below", lambda name, prefixes: False),
    "a filter that means nothing deletes nothing": (delete_acls, "filter_to_delete", _filter_as_it_is),
    "a cluster may have any name": (create_acls, "binding_of", _any_cluster),
    "an ACL that is taken away stays": (access_lists.Draft, "remove", lambda self, binding: False),
}  # fmt: skip


def test_slips_are_noticed() -> None:
    assert unnoticed(Requests, SLIPS, f"{__file__}::test_slips_are_noticed") == []
