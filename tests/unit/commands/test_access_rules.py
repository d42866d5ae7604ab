"""`barnabas acls`, `users`, `tokens` and `quotas`: what is asked for with each option, and what is shown."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.client import ClientError, ResponseError
from barnabas.client.admin import Acl, Principal, Quota, Token

from .conftest import StandIn

REFUSED = ResponseError(31, "asking", None)
REFUSED_TEXT = "CLUSTER_AUTHORIZATION_FAILED"


def values(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(one.values()) for one in rows]


# --- ACLs ----------------------------------------------------------------------------------------------------------


def test_a_new_acl_is_for_any_host_and_for_a_literal_name(cluster: StandIn) -> None:
    cluster.answers["create_acls"] = lambda made: dict.fromkeys(made)
    cluster("acls", "create", "--group", "a", "--operation", "all", "--deny", "User:bob")
    assert cluster.asked_for("create_acls") == [
        [[Acl("group", "a", "literal", "User:bob", "*", "all", "deny")]]
    ]


def test_acls_are_shown_once_before_they_are_deleted(
    cluster: StandIn, at_terminal: Callable[[str], None]
) -> None:
    one, two = (Acl("topic", name, "literal", "User:ann", "*", "read", "allow") for name in "ab")
    cluster.answers["acls"] = lambda wanted: [one, two] if wanted.resource_name == "a" else [two]
    at_terminal("n\n")
    _, err = cluster("acls", "delete", "--topic", "a", "--topic", "b", code=1)
    shown = "topic a literal User:ann * read allow\ntopic b literal User:ann * read allow\n"
    assert err.startswith(f"{shown}delete 2 ACLs? [y/N]: ")
    cluster.answers["delete_acls"] = {one: None}
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


def test_passwords_are_deleted_of_all_mechanisms_or_of_one(
    cluster: StandIn, at_terminal: Callable[[str], None]
) -> None:
    def delete(_user: str, mechanism: str) -> Exception | None:
        return REFUSED if mechanism == "SCRAM-SHA-512" else None

    known = {"ann": {"SCRAM-SHA-512": 8192, "SCRAM-SHA-256": 4096}, "bob": ClientError("no bob")}
    cluster.answers |= {"users": known, "delete_password": delete}
    assert values(cluster.rows("users", "users", "delete", "ann", "bob", "--yes", code=1)) == [
        ("ann", "SCRAM-SHA-256", "deleted", None), ("ann", "SCRAM-SHA-512", "failed", REFUSED_TEXT),
        ("bob", None, "failed", "no bob"),
    ]  # fmt: skip
    del known["bob"]
    only = ("users", "delete", "ann", "--scram", "SCRAM-SHA-256", "--yes")
    assert values(cluster.rows("users", *only)) == [("ann", "SCRAM-SHA-256", "deleted", None)]
    assert cluster.asked_for("delete_password") == [
        ["ann", "SCRAM-SHA-256"], ["ann", "SCRAM-SHA-512"], ["ann", "SCRAM-SHA-256"],
    ]  # fmt: skip
    at_terminal("n\n")
    assert cluster("users", "delete", "ann", "bob", code=1)[1].startswith("delete ann, bob?")


def test_a_password_is_asked_for_twice_and_not_shown(
    cluster: StandIn, at_terminal: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.answers["set_password"] = None
    prompts: list[str] = []
    answers = iter(["one", "other", "same", "same"])

    def hidden(prompt: str) -> str:
        prompts.append(prompt)
        return next(answers)

    monkeypatch.setattr("click.termui.hidden_prompt_func", hidden)
    at_terminal("")
    out, err = cluster("users", "set", "ann")
    assert len(prompts) == 4, "two that differ are asked for again"
    assert cluster.asked_for("set_password")[0][1] == "same"
    assert "do not match" in err
    assert "do not match" not in out


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
    assert [one["hmac"] for one in with_secret] == [b64encode(b"one").decode(), b64encode(b"two").decode()]
    assert cluster.asked_for("tokens") == [[None], [(ANN, BOB)]]
    options = "--owner User:ann --renewer User:bob --renewer User:ann --lifetime 0s"
    cluster("tokens", "create", *options.split())
    assert cluster.asked_for("create_token") == [
        [{"owner": None, "renewers": (), "lifetime_ms": -1}],
        [{"owner": ANN, "renewers": (BOB, ANN), "lifetime_ms": 0}],
    ]


def test_token_is_renewed_and_expired_by_id_or_secret(cluster: StandIn, tmp_path: Path) -> None:
    cluster.answers |= {"tokens": TOKENS, "renew_token": 77, "expire_token": 88}
    file = tmp_path / "hmac"
    file.touch(0o600)
    file.write_text(b64encode(b"other").decode() + "\n")
    by_file = ("--hmac-file", str(file))
    assert cluster.rows("tokens", "tokens", "renew", "t2") == [{"token_id": "t2", "expires_at_ms": 77}]
    cluster("tokens", "renew", "t3", "--period", "0s", *by_file)
    assert cluster.rows("tokens", "tokens", "expire", "t1", "--yes") == [
        {"token_id": "t1", "expires_at_ms": 88}
    ]
    cluster("tokens", "expire", "t3", "--in", "2s", "--yes", *by_file)
    assert [call for call in cluster.asked if call[0] != "tokens"] == [
        ("renew_token", b"two", -1), ("renew_token", b"other", 0), ("expire_token", b"one", -1),
        ("expire_token", b"other", 2000),
    ]  # fmt: skip
    assert "there is no token 't3' that you may see" in cluster("tokens", "renew", "t3", code=1)[1]
    file.write_text("no base64!\n")
    assert cluster("tokens", "renew", "t3", *by_file, code=1)[1].startswith(
        f"barnabas tokens renew: {file}: "
    )


# --- quotas --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
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
def test_what_quotas_are_not_of_is_told(cluster: StandIn, arguments: str, said: str) -> None:
    assert said in cluster("quotas", *arguments.split(), code=2)[1]
    assert cluster.asked == []


def test_quotas_of_several_entities_apply_together(cluster: StandIn) -> None:
    near = Quota((("user", "ann"),), {"a": 1.0, "b": 2.0})
    far = Quota((("user", None),), {"b": 3.0, "c": 4.0})
    cluster.answers["quotas"] = [far, near]
    assert values(cluster.rows("quotas", "quotas", "resolve", "--name", "user=ann")) == [
        ("ann", None, None, "a", 1.0), ("ann", None, None, "b", 2.0), ("<default>", None, None, "c", 4.0),
    ]  # fmt: skip
