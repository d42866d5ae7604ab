"""`barnabas acls`, `users`, `tokens` and `quotas`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.client.admin import Quota
from barnabas.commands.quotas import applying

from .conftest import Commands


def test_acls_are_created_found_and_deleted(admin: Commands) -> None:
    create = ("acls", "create", "--topic", "orders", "--pattern", "prefixed", "--allow", "User:ann")
    created = admin.rows("acls", *create, "--operation", "read", "--operation", "describe")
    assert [(entry["operation"], entry["error"]) for entry in created] == [("read", None), ("describe", None)]
    (entry,) = admin.rows("acls", "acls", "list", "--operation", "read")
    assert entry == {
        "principal": "User:ann", "host": "*", "permission": "allow", "operation": "read", "resource_type": "topic",
        "resource_name": "orders", "pattern_type": "prefixed", "error": None,
    }  # fmt: skip
    assert len(admin.rows("acls", "acls", "list", "--topic", "orders-1", "--pattern", "match")) == 2
    assert admin.rows("acls", "acls", "list", "--topic", "other") == []
    _, err = admin("acls", "delete", "--principal", "User:ann", code=1)
    assert "delete 2 ACLs: standard input is no terminal" in err
    assert len(admin.rows("acls", "acls", "delete", "--principal", "User:ann", "--yes")) == 2
    assert "no ACL matches" in admin("acls", "delete", "--principal", "User:ann", "--yes", code=1)[1]


def test_an_acl_needs_a_resource_and_a_principal(admin: Commands) -> None:
    assert "give --topic" in admin("acls", "create", "--allow", "User:a", "--operation", "read", code=2)[1]
    assert "give --allow" in admin("acls", "create", "--topic", "t", "--operation", "read", code=2)[1]
    wrong = ("acls", "create", "--topic", "t", "--operation", "read", "--allow", "ann")
    assert "User:ann is expected" in admin(*wrong, code=2)[1]


def test_a_broker_without_an_authorizer_says_so(run: Commands) -> None:
    _, err = run("acls", "list", code=1)
    assert "SECURITY_DISABLED" in err
    assert "set authorizer.class.name" in err


def test_passwords_come_from_a_file_or_from_a_terminal(
    admin: Commands, tmp_path: Path, at_terminal: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, err = admin("users", "set", "carol", code=1)
    assert "give --new-password-file" in err
    file = tmp_path / "password"
    file.write_text("open sesame\n")
    file.chmod(0o644)
    assert f"chmod 600 {file}" in admin("users", "set", "carol", "--new-password-file", str(file), code=1)[1]
    file.chmod(0o600)
    assert "set" in admin("users", "set", "carol", "--new-password-file", str(file))[0]
    assert admin.rows("users", "users", "list", "carol") == [
        {"user": "carol", "mechanism": "SCRAM-SHA-512", "iterations": 8192, "error": None}
    ]
    answers = iter(["first", "first"])
    monkeypatch.setattr("getpass.getpass", lambda *_: next(answers))
    monkeypatch.setattr("click.termui.hidden_prompt_func", lambda _: next(answers))
    at_terminal("")
    assert "set" in admin("users", "set", "dave", "--scram", "SCRAM-SHA-256")[0]


def test_a_user_logs_in_with_what_was_set_until_it_is_deleted(
    admin: Commands, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "password"
    file.write_text("open sesame\n")
    file.chmod(0o600)
    admin("users", "set", "erin", "--new-password-file", str(file))
    erin = Commands(admin.address, capsys, "--user", "erin", "--password-file", str(file))
    assert erin("topics", "list")[0] == "no topics\n"
    assert admin.rows("users", "users", "delete", "erin", "--yes")[0]["outcome"] == "deleted"
    erin("topics", "list", code=1)
    assert admin.rows("users", "users", "list", "erin", code=1)[0]["error"].startswith("RESOURCE_NOT_FOUND")


def test_tokens_live_and_end(admin: Commands) -> None:
    (created,) = admin.rows("tokens", "tokens", "create", "--renewer", "User:bob", "--lifetime", "7d")
    assert (created["owner"], created["renewers"], bool(created["hmac"])) == (
        "User:admin",
        ["User:bob"],
        True,
    )
    token = created["token_id"]
    (seen,) = admin.rows("tokens", "tokens", "describe")
    assert seen == {**created, "hmac": None}
    (renewed,) = admin.rows("tokens", "tokens", "renew", token, "--period", "1h")
    assert renewed["expires_at_ms"] > created["issued_at_ms"]
    out, _ = admin("tokens", "describe")
    assert "T" in out.splitlines()[1].split()[4]  # a date for people
    assert "no terminal" in admin("tokens", "expire", token, code=1)[1]
    admin("tokens", "expire", token, "--yes")
    assert "there is no token" in admin("tokens", "renew", token, code=1)[1]
    assert "'soon' is no duration" in admin("tokens", "renew", token, "--period", "soon", code=2)[1]


def test_quotas_are_set_found_and_removed(run: Commands) -> None:
    alter = ("quotas", "alter", "--name", "user=ann", "--default", "client-id")
    run(*alter, "--set", "producer_byte_rate=1e6", "--set", "request_percentage=50", "--dry-run")
    assert run.rows("quotas", "quotas", "describe") == []
    run(*alter, "--set", "producer_byte_rate=1e6", "--set", "request_percentage=50")
    result = run.rows("quotas", "quotas", "describe", "--any", "user")
    assert result[0] == {
        "user": "ann",
        "client_id": "<default>",
        "ip": None,
        "key": "producer_byte_rate",
        "value": 1e6,
    }
    assert len(run.rows("quotas", "quotas", "resolve", "--name", "user=ann", "--name", "client-id=x")) == 2
    assert run.rows("quotas", "quotas", "resolve", "--name", "user=bob", "--name", "client-id=x") == []
    run(*alter, "--delete", "producer_byte_rate", "--delete", "request_percentage")
    assert run("quotas", "describe")[0] == "no quotas\n"
    assert "a number is expected" in run(*alter, "--set", "producer_byte_rate=fast", code=2)[1]
    assert "INVALID_REQUEST" in run(*alter, "--set", "no_such_quota=1", code=1)[1]
    assert "one of user, client-id, ip" in run("quotas", "describe", "--name", "group=x", code=2)[1]


def test_the_nearest_quota_applies_as_in_kafka() -> None:
    def quota(value: float, **entity: str | None) -> Quota:
        named = {name.replace("_", "-"): entry for name, entry in entity.items()}
        return Quota(tuple(sorted(named.items())), {"producer_byte_rate": value})

    every = [
        quota(1, user="ann", client_id="app"), quota(2, user="ann", client_id=None), quota(3, user="ann"),
        quota(4, user=None, client_id="app"), quota(5, user=None, client_id=None), quota(6, user=None),
        quota(7, client_id="app"), quota(8, client_id=None),
    ]  # fmt: skip
    for number in range(len(every)):
        (result,) = applying(every[number:], {"user": "ann", "client-id": "app"})
        assert result.values == {"producer_byte_rate": number + 1}
    assert applying(every[:1], {"user": "bob", "client-id": "app"}) == []
