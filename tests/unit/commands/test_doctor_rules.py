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
from barnabas.commands.doctor import _check_advertised, _examine, _tell
from barnabas.commands.findings import NOTE, OK, PROBLEM, SKIPPED, Finding, Findings
from barnabas.commands.listening import PLAINTEXT, Seen

A, B, C = Endpoint("a", 1), Endpoint("b", 2), Endpoint("c", 3)


def connecting(*endpoints: Endpoint, sasl: SaslCredentials | None = None) -> Connecting:
    return Connecting(list(endpoints), ClientSettings(sasl=sasl), {})


@pytest.fixture
def findings() -> Findings:
    return Findings(lambda _: None)


def brief(findings: Findings) -> list[tuple[str, str, str, str]]:
    return [(finding.check, finding.subject, finding.status, finding.text) for finding in findings.all]


# --- the order of checks -------------------------------------------------------------------------------------------


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """All that is looked at, each of which notes that it was, and may fail."""
    created = SimpleNamespace(
        calls=[], looks={A: Seen(PLAINTEXT), B: Seen(PLAINTEXT)}, logins=[A, B], failing={}, findings={},
        brokers={2: B, 1: A},
    )  # fmt: skip

    async def look_at(endpoint: Endpoint, _: Any, findings: Findings) -> Any:
        created.calls.append(("look", endpoint))
        for entry in created.findings.get(endpoint, ()):
            findings.add("protocol", str(endpoint), *entry)
        return created.looks.get(endpoint)

    async def try_login(endpoint: Endpoint, *_: Any) -> Any:
        created.calls.append(("login", endpoint))
        return endpoint if endpoint in created.logins else None

    async def resolve(endpoint: Endpoint, findings: Findings) -> list[str]:
        if endpoint.host == "nowhere":
            findings.add("name", "x", PROBLEM, "nowhere does not resolve")
            return []
        return ["127.0.0.1"]

    @asynccontextmanager
    async def opened(endpoint: Endpoint | list[Endpoint], _: Any) -> AsyncIterator[Any]:
        created.calls.append(("open", endpoint))
        if not isinstance(endpoint, list) and endpoint in created.failing:
            raise created.failing[endpoint]

        async def refresh() -> None:
            created.calls.append(("refresh",))

        yield SimpleNamespace(refresh=refresh, brokers=created.brokers)

    async def getaddrinfo(host: str, port: int) -> list[Any]:
        return [(2, 1, 6, "", (f"{host}-address", port))]

    def check(name: str) -> Any:
        async def checked(_: Any, findings: Findings, **more: Any) -> None:
            created.calls.append((name, more))
            if name in created.failing:
                raise created.failing[name]
            findings.add(name, "", OK, "")

        return checked

    for name, stand_in in (
        ("look_at", look_at), ("try_login", try_login), ("resolve", resolve), ("open_connection", opened),
        ("open_client", opened), ("Admin", lambda client: client),
        ("check_versions", lambda *_: created.calls.append(("versions",))),
        ("check_local_files", lambda endpoint, addresses, _: created.calls.append(("files", endpoint, addresses))),
        ("check_controller", check("controller")), ("check_partitions", check("partitions")),
        ("check_log_dirs", check("log dirs")), ("check_clock", check("clock")),
    ):  # fmt: skip
        monkeypatch.setattr(doctor, name, stand_in)
    monkeypatch.setattr(doctor.trio.socket, "getaddrinfo", getaddrinfo)
    return created


async def test_doctor_checks_addresses_then_the_cluster(findings: Findings, steps: SimpleNamespace) -> None:
    await _examine(connecting(C, B, A), findings, writes=True)
    assert steps.calls == [
        ("look", C), ("look", B), ("login", B), ("look", A), ("login", A), ("open", B), ("versions",),
        ("files", B, ["b-address"]), ("files", A, ["a-address"]), ("open", [B, A]), ("refresh",), ("controller", {}),
        ("partitions", {}), ("log dirs", {}), ("clock", {"writes": True}),
    ]  # fmt: skip
    assert [finding.subject for finding in findings.all if finding.check == "advertised"] == [
        "broker 1 at a:1",
        "broker 2 at b:2",
    ]


async def test_refused_checks_are_skipped_and_others_made(findings: Findings, steps: SimpleNamespace) -> None:
    steps.failing = {"controller": ClientError("not you"), "clock": ClientError("nor you")}
    await _examine(connecting(A), findings, writes=False)
    assert [(row.check, row.status, row.text) for row in findings.all if row.check != "advertised"] == [
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
    ("seen", "own", "told"),
    [
        (Seen(PLAINTEXT), [(NOTE, "first"), (PROBLEM, "second"), (PROBLEM, "third")], (PROBLEM, "second")),
        (None, [(NOTE, "first"), (PROBLEM, "second")], (PROBLEM, "second")),
        (Seen(PLAINTEXT), [(NOTE, "first")], (OK, "it can be reached")),
    ],
)
async def test_the_first_problem_of_an_advertised_address_is_told(
    findings: Findings, steps: SimpleNamespace, seen: Seen | None, own: list[Any], told: tuple[str, str]
) -> None:
    steps.looks[B], steps.findings[B] = seen, own
    await _check_advertised(7, B, [A], connecting(A), findings)
    assert [(finding.status, finding.text) for finding in findings.all] == [told]


async def test_an_advertised_address_that_refuses_clients_is_a_problem(
    findings: Findings, steps: SimpleNamespace
) -> None:
    steps.failing = {B: ClientError("not you")}
    await _check_advertised(7, B, [A], connecting(A), findings)
    assert brief(findings) == [("advertised", "broker 7 at b:2", PROBLEM, "not you")]
    assert findings.all[0].advice == "clients go there after the first answer"


# --- what is said --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("finding", "lines"),
    [
        (Finding("port", "h:1", OK, "fine"), ["ok      port: h:1: fine"]),
        (Finding("port", "h:1", NOTE, "hm", "look"), ["note    port: h:1: hm", "        -> look"]),
        (
            Finding("port", "h\x1b", PROBLEM, "b\x1bad", "mend"),
            ["PROBLEM port: h\\x1b: b\\x1bad", "        -> mend"],
        ),
        (Finding("port", "h:1", SKIPPED, "not told"), ["-       port: h:1: not told"]),
    ],
)
def test_a_finding_is_a_line_and_its_advice_another(
    finding: Finding, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    _tell(finding)
    assert capsys.readouterr().out.splitlines() == lines
