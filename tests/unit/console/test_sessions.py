"""Logins, tokens and sessions of a console, and what stays outside."""

import re
from pathlib import Path

import pytest

from barnabas.console import backend, sessions
from barnabas.console.routes import router
from barnabas.console.server import ConsoleServer
from barnabas.console.static_files import FOLDER, files
from barnabas.console.target import Cluster, Target
from barnabas.network.visitors import Address, AddressError
from tests.support.console import Visitor, console_beside
from tests.support.secured import SECURED

PUBLIC = ("/", "/index.html", "/js/main.js", "/css/base.css", "/vendor/uplot/uPlot.esm.js")


async def test_a_page_needs_no_session_and_no_other_host(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        visitor = Visitor(console.server.url)
        for path in PUBLIC:
            answer = await visitor.ask("GET", path)
            assert answer.status == 200, path
            assert "default-src 'none'" in answer.headers["content-security-policy"]
        tag = (await visitor.ask("GET", "/js/main.js")).headers["etag"]
        assert (await visitor.ask("GET", "/js/main.js", headers={"If-None-Match": tag})).status == 304
        for path in ("/../server.py", "/js/../../http.py", "/%2e%2e/http.py", "/nothing", "//evil/x"):
            assert (await visitor.ask("GET", path)).status in (400, 404), path


def test_the_page_names_no_other_host() -> None:
    for name, file in files().items():
        text = file.content.decode()
        if "vendor" in name:
            continue
        urls = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not urls, name
        assert "innerHTML" not in text, name
        assert "eval(" not in text, name
        assert not re.search(r"\son\w+=", text) or not name.endswith(".html"), name
    assert (FOLDER / "vendor" / "uplot" / "LICENSE.txt").is_file()


async def test_a_change_needs_a_session_and_its_token(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        stranger = Visitor(console.server.url)
        assert (await stranger.get("/api/topics"))["total"] == 0  # nobody logs in here, so anybody may look
        assert (await stranger.ask("POST", "/api/topics", {"name": "t"})).status == 401
        visitor, other = await console.visitor(), await console.visitor()
        for token in ("", "x", other.csrf):
            answer = await visitor.ask(
                "POST", "/api/topics", {"name": "t"}, headers={"X-Console-CSRF": token}
            )
            assert answer.status == 403, token
        await visitor.do("POST", "/api/topics", {"name": "t"})
        assert (await visitor.get("/api/topics"))["total"] == 1


async def test_a_cookie_is_for_no_script_and_no_other_site(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        answer = await Visitor(console.server.url).ask("GET", "/api/session")
        cookie = answer.headers["set-cookie"]
        assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
        assert cookie.partition("=")[2].partition(";")[0] not in answer.content.decode()
        assert answer.headers["cache-control"] == "no-store"


def test_other_machines_are_let_in_with_a_token_alone() -> None:
    def where() -> Target:
        return Target(())

    with pytest.raises(AddressError, match="give a token"):
        ConsoleServer(Address("0.0.0.0", 0), Cluster(where))
    ConsoleServer(Address("0.0.0.0", 0), Cluster(where), token="long-and-secret").close()


async def test_a_token_is_asked_for_before_anything_is_shown(tmp_path: Path) -> None:
    async with console_beside(tmp_path, token="long-and-secret") as console:
        visitor = Visitor(console.server.url)
        for route in router().routes:
            path = re.sub(r"\{\w+\}", "x", route.path)
            assert (await visitor.ask(route.method, path)).status == 401, route
        wrong = await visitor.ask("POST", "/api/session", {"token": "wrong"})
        assert (wrong.status, wrong.json["error"]) == (401, "the token is wrong")
        await visitor.begin(token="long-and-secret")
        assert (await visitor.get("/api/topics"))["total"] == 0
        await visitor.do("DELETE", "/api/session")
        assert (await visitor.ask("GET", "/api/topics")).status == 401


async def test_a_user_sees_and_does_what_the_broker_lets_them(tmp_path: Path) -> None:
    async with console_beside(tmp_path, SECURED) as console:
        stranger = Visitor(console.server.url)
        session = (await stranger.ask("GET", "/api/session")).json
        assert (session["logged_in"], session["mechanisms"], session["csrf"]) == (False, ["PLAIN"], "")
        assert (await stranger.ask("GET", "/api/topics")).status == 401
        wrong = await stranger.ask("POST", "/api/session", {"user": "ann", "password": "guess"})
        assert wrong.status == 401
        assert "guess" not in wrong.content.decode()

        admin = await console.visitor(user="admin", password="admin-secret")
        ann = await console.visitor(user="ann", password="ann-secret")
        await admin.do("POST", "/api/topics", {"name": "shared"})
        await admin.do("POST", "/api/topics", {"name": "private"})
        acl = {
            "resource_type": "topic", "resource_name": "shared", "pattern_type": "literal", "principal": "User:ann",
            "host": "*", "operation": "read", "permission": "allow",
        }  # fmt: skip
        await admin.do("POST", "/api/acls", acl)
        assert [row["name"] for row in (await admin.get("/api/topics"))["rows"]] == ["private", "shared"]
        assert [row["name"] for row in (await ann.get("/api/topics"))["rows"]] == ["shared"]
        assert (await ann.ask("GET", "/api/topics/private/records")).status == 403
        assert (await ann.get("/api/topics/shared/records"))["records"] == []
        for method, path, body in (
            ("POST", "/api/topics", {"name": "mine"}),
            ("DELETE", "/api/topics/shared", {"confirm": "shared"}),
            ("POST", "/api/topics/shared/records", {"records": [{"value": "x"}]}),
            ("GET", "/api/acls", None),
            ("GET", "/api/users", None),
        ):
            assert (await ann.ask(method, path, body)).status == 403, path
        for path in ("/api/connections", "/api/requests", "/api/log", "/api/metrics"):
            assert (await ann.ask("GET", path)).status == 403, path
        assert (await ann.ask("POST", "/api/control/faults", {})).status == 403
        assert (await admin.get("/api/connections"))["total"] >= 2
        await admin.do("DELETE", "/api/acls", {**acl, "confirm": "User:ann"})
        assert (await admin.get("/api/acls"))["total"] == 0


async def test_a_right_that_was_taken_away_is_gone_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "OPERATIONS_SECONDS", 0.0)
    async with console_beside(tmp_path, SECURED) as console:
        admin = await console.visitor(user="admin", password="admin-secret")
        ann = await console.visitor(user="ann", password="ann-secret")
        acl = {
            "resource_type": "cluster", "resource_name": "kafka-cluster", "pattern_type": "literal",
            "principal": "User:ann", "host": "*", "operation": "alter", "permission": "allow",
        }  # fmt: skip
        await admin.do("POST", "/api/acls", acl)
        assert (await ann.ask("GET", "/api/log")).status == 200
        async with ann.events("/api/requests") as tap:
            assert await tap.next("begun") == {}
            await admin.do("DELETE", "/api/acls", {**acl, "confirm": "User:ann"})
            assert (await ann.ask("GET", "/api/log")).status == 403
            assert (await ann.ask("POST", "/api/control/faults", {})).status == 403
            assert "alter" in (await tap.next("failed"))["error"], "an open view ends too"


async def test_a_user_whose_password_is_gone_is_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scram = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"}
    async with console_beside(tmp_path, {**SECURED, **scram}) as console:
        admin = await console.visitor(user="admin", password="admin-secret", mechanism="PLAIN")
        await admin.do("PUT", "/api/users/bob", {"password": "b", "mechanism": "SCRAM-SHA-512"})
        bob = await console.visitor(user="bob", password="b", mechanism="SCRAM-SHA-512")
        monkeypatch.setattr(sessions, "LOGIN_SECONDS", 0.0)
        assert (await bob.ask("GET", "/api/topics")).status == 200
        await admin.do("DELETE", "/api/users/bob", {"mechanism": "SCRAM-SHA-512", "confirm": "bob"})
        refused = await bob.ask("GET", "/api/topics")
        assert (refused.status, "log in again" in refused.json["error"]) == (401, True)
        assert (await bob.get("/api/session"))["logged_in"] is False
        assert (await admin.ask("GET", "/api/topics")).status == 200


async def test_no_secret_is_in_a_url_or_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with console_beside(tmp_path, SECURED, token="long-and-secret") as console:
        visitor = await console.visitor(token="long-and-secret", user="admin", password="admin-secret")
        await visitor.ask("PUT", "/api/users/bob", {"password": "bobs-secret"})
        await visitor.ask(
            "POST", "/api/session", {"token": "long-and-secret", "user": "ann", "password": "wrong-secret"}
        )
        users = (await visitor.ask("GET", "/api/users")).content.decode()
        settings = (await visitor.ask("GET", "/api/brokers/1/settings")).content.decode()
    for secret in (
        "long-and-secret",
        "admin-secret",
        "bobs-secret",
        "wrong-secret",
        visitor.csrf,
        visitor.cookie,
    ):
        assert secret not in caplog.text
        assert secret not in users + settings
    assert not any(field.name in ("token", "password") for route in router().routes for field in route.query)
