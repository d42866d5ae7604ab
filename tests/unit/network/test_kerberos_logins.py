"""Logins with Kerberos, of services and of clients, by a library that keeps what it is asked."""

from __future__ import annotations

import sys
from enum import IntFlag
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from barnabas.network import kerberos
from barnabas.network.kerberos import Acceptor, KerberosError, Login, Tickets


class RefusedError(Exception):
    """An error of the library's: the ticket has expired."""

    min_code, maj_code = kerberos._TABLE + 32, 1

    def get_all_statuses(self, code: int, is_major: bool) -> list[str]:
        return [f"status {code - kerberos._TABLE} {is_major}"]


class Flag(IntFlag):
    mutual_authentication = 2
    integrity = 32
    replay_detection = 4
    out_of_sequence_detection = 8
    confidentiality = 16


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library: what it is asked, and what fails."""
    made: Any = ModuleType("gssapi")
    made.asked = []
    made.fails = False

    def call(kind: str, *given: Any, **named: Any) -> Any:
        if made.fails:
            raise RefusedError
        made.asked.append((kind, *given, named))
        return (kind, *given)

    class Name(str):
        def __new__(cls, text: str, kind: str) -> Any:
            call("name", text, kind)
            return super().__new__(cls, text)

        def canonicalize(self, mechanism: str) -> str:
            if made.fails:
                raise RefusedError
            return f"{self}@REALM" if mechanism == "krb5" else ""

    def context(**given: Any) -> Any:
        call("context", **given)
        return SimpleNamespace(
            complete=1, initiator_name="ann@REALM", actual_flags=Flag.mutual_authentication, __DEFER_STEP_ERRORS__=True,
            step=lambda token: call("step", token)[1],
            wrap=lambda *given: SimpleNamespace(message=bytearray(call("wrap", *given)[1])),
            unwrap=lambda token: SimpleNamespace(message=bytearray(call("unwrap", token)[1])),
        )  # fmt: skip

    made.exceptions = SimpleNamespace(GSSError=RefusedError)
    made.Name = Name
    made.NameType = SimpleNamespace(kerberos_principal="principal", hostbased_service="service")
    made.MechType = SimpleNamespace(kerberos="krb5")
    made.RequirementFlag = Flag
    made.Credentials = lambda **given: call("credentials", **given)
    made.SecurityContext = context
    monkeypatch.setitem(sys.modules, "gssapi", made)
    return made


def asked(fake: Any, kind: str) -> list[Any]:
    return [call[-1] or call[1:-1] for call in fake.asked if call[0] == kind]


@pytest.mark.parametrize(("keytab", "store"), [("/etc/k", {"keytab": "/etc/k"}), (None, None), ("", None)])
def test_a_service_looks_for_its_key_in_its_keytab_or_in_that_of_the_library(
    fake: Any, keytab: str | None, store: dict[str, str] | None
) -> None:
    context = Acceptor("kafka/host@REALM", keytab).context()
    assert asked(fake, "name") == [("kafka/host@REALM", "principal")]
    assert asked(fake, "credentials") == [
        {"name": "kafka/host@REALM", "usage": "accept", "mechs": ["krb5"], "store": store}
    ]
    assert asked(fake, "context") == [{"creds": ("credentials",), "usage": "accept"}]
    assert (context.is_established, context.initiator, context.is_mutual) == (True, "ann@REALM", True)
    assert context._context.__DEFER_STEP_ERRORS__ is False


@pytest.mark.parametrize("call", ["step", "wrap", "unwrap"])
def test_what_the_library_refuses_is_told_in_words(fake: Any, call: str) -> None:
    context = Acceptor("p", None).context()
    fake.fails = True
    with pytest.raises(KerberosError, match=r"^status 32 False \(the ticket has expired\)$"):
        getattr(context, call)(b"x")
    with pytest.raises(KerberosError, match="the ticket has expired"):
        Acceptor("p", None)
    tickets = Tickets(Login("kafka"))
    with pytest.raises(KerberosError, match="the ticket has expired"):
        tickets.context("host")


@pytest.mark.parametrize(
    ("login", "name", "store", "reads_key"),
    [
        (Login("kafka"), None, None, False),
        (Login("kafka", "ann@REALM"), "ann@REALM", None, False),
        (Login("kafka", None, None, "/tmp/cc"), None, {"ccache": "/tmp/cc"}, False),
        (Login("kafka", "ann@REALM", "/etc/k", "/tmp/cc"), "ann@REALM", {"client_keytab": "/etc/k"}, True),
        (Login("kafka", None, "/etc/k"), None, {"client_keytab": "/etc/k"}, False),
    ],
)
def test_who_logs_in_uses_a_keytab_or_tickets_of_somebody_else(
    fake: Any, login: Login, name: str | None, store: dict[str, str] | None, reads_key: bool
) -> None:
    tickets = Tickets(login)
    assert [one["usage"] for one in asked(fake, "credentials")] == ["accept"] * reads_key, (
        "the key is looked for at once"
    )
    assert tickets.limiter.total_tokens == 1
    fake.asked.clear()
    tickets.context("broker.test")
    (credentials,) = asked(fake, "credentials")
    cache = (credentials["store"] or {}).get("ccache", "")
    if login.keytab:
        assert cache.startswith("MEMORY:barnabas-")
        assert cache != Tickets(login)._store["ccache"], "a cache of its own"  # type: ignore[index]
        store = {**(store or {}), "ccache": cache}
    assert credentials == {"name": name, "usage": "initiate", "mechs": ["krb5"], "store": store}
    assert ("kafka@broker.test", "service") in asked(fake, "name")
    context = asked(fake, "context")[0]
    assert context == {
        "name": "kafka@broker.test", "creds": ("credentials",), "usage": "initiate", "mech": "krb5",
        "flags": Flag.mutual_authentication | Flag.integrity | Flag.replay_detection | Flag.out_of_sequence_detection,
    }  # fmt: skip
