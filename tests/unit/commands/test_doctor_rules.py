"""`barnabas doctor`: in which order it looks, what keeps it from looking further, what it says at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client import ClientError, ClientSettings, Endpoint
from barnabas.client.settings import SaslCredentials
from barnabas.commands import doctor
from barnabas.commands.connection import Connecting
from barnabas.commands.doctor import _check_advertised, _examine
from barnabas.commands.findings import NOTE, OK, PROBLEM, SKIPPED, Findings
from barnabas.commands.listening import PLAINTEXT, Seen

A, B, C = Endpoint("a", 1), Endpoint("b", 2), Endpoint("c", 3)


def connecting(*endpoints: Endpoint, sasl: SaslCredentials | None = None) -> Connecting:
    return Connecting(list(endpoints), ClientSettings(sasl=sasl), {})


@pytest.fixture
def findings() -> Findings:
    return Findings(lambda _: None)


def brief(findings: Findings) -> list[tuple[str, str, str, str]]:
    return [(one.check, one.subject, one.status, one.text) for one in findings.all]


# --- the order of checks -------------------------------------------------------------------------------------------


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """All that is looked at, each of which notes that it was, and may fail."""
    made = SimpleNamespace(
        calls=[], looks={A: Seen(PLAINTEXT), B: Seen(PLAINTEXT)}, logins=[A, B], failing={}, findings={},
        brokers={2: B, 1: A},
    )  # fmt: skip

    async def look_at(endpoint: Endpoint, _: Any, findings: Findings) -> Any:
        made.calls.append(("look", endpoint))
        for one in made.findings.get(endpoint, ()):
            findings.add("protocol", str(endpoint), *one)
        return made.looks.get(endpoint)

    async def try_login(endpoint: Endpoint, *_: Any) -> Any:
        made.calls.append(("login", endpoint))
        return endpoint if endpoint in made.logins else None

    async def resolve(endpoint: Endpoint, findings: Findings) -> list[str]:
        if endpoint.host == "nowhere":
            findings.add("name", "x", PROBLEM, "nowhere does not resolve")
            return []
        return ["127.0.0.1"]

    @asynccontextmanager
    async def opened(endpoint: Endpoint | list[Endpoint], _: Any) -> AsyncIterator[Any]:
        made.calls.append(("open", endpoint))
        if not isinstance(endpoint, list) and endpoint in made.failing:
            raise made.failing[endpoint]

        async def refresh() -> None:
            made.calls.append(("refresh",))

        yield SimpleNamespace(refresh=refresh, brokers=made.brokers)

    async def getaddrinfo(host: str, port: int) -> list[Any]:
        return [(2, 1, 6, "", (f"{host}-address", port))]

    def check(name: str) -> Any:
        async def checked(_: Any, findings: Findings, **more: Any) -> None:
            made.calls.append((name, more))
            if name in made.failing:
                raise made.failing[name]
            findings.add(name, "", OK, "")

        return checked

    for name, stand_in in (
        ("look_at", look_at), ("try_login", try_login), ("resolve", resolve), ("open_connection", opened),
        ("open_client", opened), ("Admin", lambda client: client),
        ("check_versions", lambda *_: made.calls.append(("versions",))),
        ("check_local_files", lambda endpoint, addresses, _: made.calls.append(("files", endpoint, addresses))),
        ("check_controller", check("controller")), ("check_partitions", check("partitions")),
        ("check_log_dirs", check("log dirs")), ("check_clock", check("clock")),
    ):  # fmt: skip
        monkeypatch.setattr(doctor, name, stand_in)
    monkeypatch.setattr(doctor.trio.socket, "getaddrinfo", getaddrinfo)
    return made


async def test_refused_checks_are_skipped_and_others_made(findings: Findings, steps: SimpleNamespace) -> None:
    steps.failing = {"controller": ClientError("not you"), "clock": ClientError("nor you")}
    await _examine(connecting(A), findings, writes=False)
    assert [(one.check, one.status, one.text) for one in findings.all if one.check != "advertised"] == [
        ("controller", SKIPPED, "not you"), ("partitions", OK, ""), ("log dirs", OK, ""),
        ("clock", SKIPPED, "nor you"),
    ]  # fmt: skip


# --- advertised listeners ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint", "status", "text", "advice"),
    [
        (
            Endpoint("0.0.0.0", 1),
            PROBLEM,
            "no client can connect to this address",
            "set advertised.listeners to a name",
        ),
        (
            Endpoint("::", 1),
            PROBLEM,
            "no client can connect to this address",
            "set advertised.listeners to a name",
        ),
        (
            Endpoint("", 1),
            PROBLEM,
            "no client can connect to this address",
            "set advertised.listeners to a name",
        ),
        (
            Endpoint("nowhere", 1),
            PROBLEM,
            "nowhere does not resolve",
            "set advertised.listeners (`--advertise`)",
        ),
        (A, OK, "it is the address that was asked", ""),
        (B, OK, "it can be reached", ""),
        (C, PROBLEM, "it cannot be reached", "clients go there after the first answer: start that broker"),
    ],
)
async def test_an_advertised_address_is_one_that_clients_reach(
    findings: Findings, steps: SimpleNamespace, endpoint: Endpoint, status: str, text: str, advice: str
) -> None:
    await _check_advertised(7, endpoint, [A], connecting(A), findings)
    assert brief(findings) == [("advertised", f"broker 7 at {endpoint}", status, text)]
    assert findings.all[0].advice.startswith(advice)
    assert bool(findings.all[0].advice) == bool(advice)
    assert steps.calls == {B: [("look", B), ("open", B)], C: [("look", C)]}.get(endpoint, [])


@pytest.mark.parametrize(
    ("seen", "found", "told"),
    [
        (Seen(PLAINTEXT), [(NOTE, "first"), (PROBLEM, "second"), (PROBLEM, "third")], (PROBLEM, "second")),
        (None, [(NOTE, "first"), (PROBLEM, "second")], (PROBLEM, "second")),
        (Seen(PLAINTEXT), [(NOTE, "first")], (OK, "it can be reached")),
    ],
)
async def test_the_first_problem_of_an_advertised_address_is_told(
    findings: Findings, steps: SimpleNamespace, seen: Seen | None, found: list[Any], told: tuple[str, str]
) -> None:
    steps.looks[B], steps.findings[B] = seen, found
    await _check_advertised(7, B, [A], connecting(A), findings)
    assert [(one.status, one.text) for one in findings.all] == [told]


async def test_an_advertised_address_that_refuses_clients_is_a_problem(
    findings: Findings, steps: SimpleNamespace
) -> None:
    steps.failing = {B: ClientError("not you")}
    await _check_advertised(7, B, [A], connecting(A), findings)
    assert brief(findings) == [("advertised", "broker 7 at b:2", PROBLEM, "not you")]
    assert findings.all[0].advice == "clients go there after the first answer"
