"""`barnabas acls`, `users`, `tokens` and `quotas`: what is asked for with each option, and what is shown."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.client import ResponseError
from barnabas.client.admin import Acl, Principal, Quota, Token

from .conftest import StandIn

REFUSED = ResponseError(31, "asking", None)
REFUSED_TEXT = "CLUSTER_AUTHORIZATION_FAILED"


def values(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows]


# --- ACLs ----------------------------------------------------------------------------------------------------------


def test_a_new_acl_is_for_any_host_and_for_a_literal_name(cluster: StandIn) -> None:
    cluster.answers["create_acls"] = lambda acls: dict.fromkeys(acls)
    cluster("acls", "create", "--group", "a", "--operation", "all", "--deny", "User:bob")
    assert cluster.asked_for("create_acls") == [
        [[Acl("group", "a", "literal", "User:bob", "*", "all", "deny")]]
    ]


def test_acls_are_shown_once_before_they_are_deleted(
    cluster: StandIn, at_terminal: Callable[[str], None]
) -> None:
    entry, two = (Acl("topic", name, "literal", "User:ann", "*", "read", "allow") for name in "ab")
    cluster.answers["acls"] = lambda filter_: [entry, two] if filter_.resource_name == "a" else [two]
    at_terminal("n\n")
    _, err = cluster("acls", "delete", "--topic", "a", "--topic", "b", code=1)
    shown = "topic a literal User:ann * read allow\ntopic b literal User:ann * read allow\n"
    assert err.startswith(f"{shown}delete 2 ACLs? [y/N]: ")
    cluster.answers["delete_acls"] = {entry: None}
    assert cluster("acls", "delete", "--topic", "a", "--yes")[1] == ""
    cluster.answers["acls"] = []
    assert "no ACL matches" in cluster("acls", "delete", "--yes", code=1)[1]


# --- users ---------------------------------------------------------------------------------------------------------


def test_users_are_listed_by_mechanism(cluster: StandIn) -> None:
    cluster.answers["users"] = {"ann": {"SCRAM-SHA-512": 8192, "SCRAM-SHA-256": 4096}, "bob": REFUSED}
    assert values(cluster.rows("users", "users", "list", "ann", "bob", code=1)) == [
        ("ann", "SCRAM-SHA-256", 4096, None), ("ann", "SCRAM-SHA-512", 8192, None), ("bob", None, None, REFUSED_TEXT),
    ]  # fmt: skip
    cluster("users", "list", code=1)
    assert cluster.asked_for("users") == [[("ann", "bob")], [None]]


# --- tokens --------------------------------------------------------------------------------------------------------

ANN, BOB, NOBODY = Principal("User", "ann"), Principal("User", "bob"), Principal("", "")
TOKENS = [Token("t1", ANN, BOB, (ANN, BOB), 1, 2, 3, b"one"), Token("t2", BOB, NOBODY, (), 4, 5, 6, b"two")]


def test_token_secret_is_shown_on_creation_and_on_request(cluster: StandIn) -> None:
    cluster.answers |= {"create_token": TOKENS[0], "tokens": TOKENS}
    first = ("t1", "User:ann", "User:bob", ["User:ann", "User:bob"], 1, 2, 3)
    second = ("t2", "User:bob", None, [], 4, 5, 6)
    assert values(cluster.rows("tokens", "tokens", "create")) == [(*first, b64encode(b"one").decode())]
    assert values(cluster.rows("tokens", "tokens", "describe")) == [(*first, None), (*second, None)]
    with_secret = cluster.rows(
        "tokens", "tokens", "describe", "--secret", "--owner", "User:ann", "--owner", "User:bob"
    )
    assert [row["hmac"] for row in with_secret] == [b64encode(b"one").decode(), b64encode(b"two").decode()]
    assert cluster.asked_for("tokens") == [[None], [(ANN, BOB)]]
    options = "--owner User:ann --renewer User:bob --renewer User:ann --lifetime 0s"
    cluster("tokens", "create", *options.split())
    assert cluster.asked_for("create_token") == [
        [{"owner": None, "renewers": (), "lifetime_ms": -1}],
        [{"owner": ANN, "renewers": (BOB, ANN), "lifetime_ms": 0}],
    ]


# --- quotas --------------------------------------------------------------------------------------------------------


def test_quotas_are_set_and_removed_of_one_entity(cluster: StandIn) -> None:
    cluster.answers["alter_quotas"] = None
    alter = (
        "quotas",
        "alter",
        *["--name", "user=ann", "--default", "client-id", "--set", "a=1e3", "--set", "b=0", "--delete", "c"],
    )
    assert values(cluster.rows("quotas", *alter)) == [
        ("ann", "<default>", None, "c", "removed"), ("ann", "<default>", None, "a", "set"),
        ("ann", "<default>", None, "b", "set"),
    ]  # fmt: skip
    dry = cluster.rows("quotas", *alter, "--dry-run")
    assert [row["outcome"] for row in dry] == ["would be removed", "would be set", "would be set"]
    entity, changes = {"user": "ann", "client-id": None}, {"c": None, "a": 1000.0, "b": 0.0}
    assert cluster.asked_for("alter_quotas") == [
        [entity, changes, {"only_check": only_check}] for only_check in (False, True)
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("alter --set a=1", "give --name or --default, and --set or --delete"),
        ("alter --name user=ann", "give --name or --default, and --set or --delete"),
        ("alter --name user=ann --set a=x", "--set a=x: a number is expected"),
        ("alter --name user=ann --default user --set a=1", "user is named twice"),
        ("describe --name user=ann --name user=bob", "user is named twice"),
        ("describe --name group=ann", "--name group=ann: one of user, client-id, ip is expected"),
        ("resolve", "give --name user=NAME"),
        ("resolve --name ip=1 --name user=ann", "give --name user=NAME"),
    ],
)
def test_what_quotas_are_not_of_is_told(cluster: StandIn, arguments: str, reason: str) -> None:
    assert reason in cluster("quotas", *arguments.split(), code=2)[1]
    assert cluster.asked == []


def test_quotas_of_several_entities_apply_together(cluster: StandIn) -> None:
    near = Quota((("user", "ann"),), {"a": 1.0, "b": 2.0})
    far = Quota((("user", None),), {"b": 3.0, "c": 4.0})
    cluster.answers["quotas"] = [far, near]
    assert values(cluster.rows("quotas", "quotas", "resolve", "--name", "user=ann")) == [
        ("ann", None, None, "a", 1.0), ("ann", None, None, "b", 2.0), ("<default>", None, None, "c", 4.0),
    ]  # fmt: skip
