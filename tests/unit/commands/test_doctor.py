"""`barnabas doctor`: each thing that usually goes wrong, made to go wrong."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from barnabas.cli import main
from barnabas.client import ClientSettings, Endpoint
from barnabas.commands import listening
from barnabas.commands.findings import Findings
from barnabas.commands.listening import judge_certificate
from barnabas.commands.wellness import Processes, check_local_files
from barnabas.system.processes import listening_process
from barnabas.testing import KafkaBroker, start_thread
from tests.support.systems import linux_only

NOW = datetime(2026, 6, 1, tzinfo=UTC)
TLS = ssl.create_default_context()


def examined(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> list[dict[str, Any]]:
    """The findings about an address."""
    assert main(["doctor", *arguments, "--json"]) == code
    result: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
    return result


def problems(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[tuple[str, str]]:
    return [
        (entry["check"], entry["text"])
        for entry in examined(capsys, *arguments, code=1)
        if entry["status"] == "problem"
    ]


def test_a_broker_that_is_well_has_no_problems(
    broker: KafkaBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.create_topic("well", 1)
    broker.produce("well", "x")
    result = examined(capsys, broker.bootstrap, "--write", code=0)
    states = {entry["check"]: entry["status"] for entry in result}
    assert states == {
        "port": "ok", "protocol": "ok", "login": "skipped", "versions": "ok", "open files": states["open files"],
        "advertised": "ok", "controller": "ok", "partitions": "ok", "log dirs": "ok", "clock": "ok",
    }  # fmt: skip
    assert [name for name in broker.topics() if name.startswith("barnabas-doctor")] == []
    assert main(["doctor", broker.bootstrap]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 problems"


def test_nothing_listens_or_a_name_does_not_resolve(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert problems(capsys, f"127.0.0.1:{port}") == [
        ("port", f"nothing listens on 127.0.0.1 port {port}: connection refused")
    ]
    [(check, text)] = problems(capsys, "nowhere.invalid:1")
    assert check == "name"
    assert text.startswith("nowhere.invalid does not resolve")


def test_plaintext_against_tls_is_told(broker: KafkaBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert problems(capsys, broker.bootstrap, "--tls") == [
        ("protocol", "the port is plaintext, and the settings ask for TLS")
    ]


@pytest.mark.parametrize(
    ("speaks", "tls", "is_seen", "told"),
    [
        (listening.PLAINTEXT, None, True, [("ok", "Kafka over plaintext, as the settings ask")]),
        (
            listening.PLAINTEXT,
            TLS,
            False,
            [("problem", "the port is plaintext, and the settings ask for TLS")],
        ),
        (listening.TLS, TLS, True, [("ok", "Kafka over TLS, as the settings ask")]),
        (
            listening.TLS,
            None,
            False,
            [("problem", "the port speaks TLS, and the settings do not ask for it")],
        ),
        (listening.OTHER, None, False, [("problem", "what listens there speaks neither Kafka nor TLS")]),
        (listening.OTHER, TLS, False, [("problem", "what listens there speaks neither Kafka nor TLS")]),
    ],
)
async def test_what_a_port_speaks_is_held_against_the_settings(
    speaks: str, tls: Any, is_seen: bool, told: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stand_in(name: str, answer: object) -> None:
        async def answered(*_: object) -> object:
            return answer

        monkeypatch.setattr(listening, name, answered)

    answers = {
        "resolve": ["::1"],
        "connect": ["::1"],
        "spoken": speaks,
        "peer_certificate": b"",
        "_offered": ("PLAIN",),
    }
    for name, answer in answers.items():
        stand_in(name, answer)
    findings = Findings(lambda _: None)
    seen = await listening.look_at(Endpoint("here", 1), ClientSettings(tls=tls), findings)
    assert seen == (listening.Seen(speaks, ("PLAIN",)) if is_seen else None)
    assert [(finding.status, finding.text) for finding in findings.all] == told
    for name in ("connect", "resolve"):
        stand_in(name, [])
        assert await listening.look_at(Endpoint("here", 1), ClientSettings(tls=tls), findings) is None


def test_logins_that_do_not_fit_are_told(
    secured: KafkaBroker,
    broker: KafkaBroker,
    capsys: pytest.CaptureFixture[str],
    set_environment: Callable[..., None],
) -> None:
    [(check, text)] = problems(capsys, secured.bootstrap)
    assert check == "login"
    assert "wants a login, and the settings have none; it offers PLAIN, SCRAM-SHA-512" in text
    set_environment(BARNABAS_PASSWORD="wrong")
    [(_, text)] = problems(capsys, secured.bootstrap, "--user", "admin", "--mechanism", "SCRAM-SHA-256")
    assert text == "it offers PLAIN, SCRAM-SHA-512, not SCRAM-SHA-256"
    [(_, text)] = problems(capsys, secured.bootstrap, "--user", "admin", "--mechanism", "PLAIN")
    assert "refuses the login" in text
    [(_, text)] = problems(capsys, broker.bootstrap, "--user", "admin")
    assert text == "the listener wants no login, and the settings have one"
    set_environment(BARNABAS_PASSWORD="secret")
    result = examined(capsys, secured.bootstrap, "--user", "admin", "--mechanism", "PLAIN", code=0)
    assert ("login", "ok") in {(row["check"], row["status"]) for row in result}


@contextmanager
def talking(answer: bytes) -> Iterator[str]:
    """A server that answers so to whatever it is sent."""

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.recv(64)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_another_protocol_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with talking(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        assert problems(capsys, address) == [("protocol", "what listens there speaks neither Kafka nor TLS")]


def test_advertised_listeners_that_cannot_be_reached_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for advertised, text in (
        (f"127.0.0.1:{port}", f"nothing listens on 127.0.0.1 port {port}"),
        ("inside.invalid:9092", "inside.invalid does not resolve"),
    ):
        started = start_thread({"advertised.listeners": f"PLAINTEXT://{advertised}"})
        try:
            result = [
                entry
                for entry in examined(capsys, started.bootstrap, code=1)
                if entry["check"] == "advertised"
            ]
        finally:
            started.close()
        assert text in result[0]["text"]
        assert "advertised.listeners" in result[0]["advice"]


def test_records_from_the_future_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    started = start_thread()
    try:
        started.create_topic("ahead", 1)
        started.produce("ahead", {"value": "x", "timestamp": int(time.time() * 1000) + 60_000})
        result = problems(capsys, started.bootstrap)
    finally:
        started.close()
    assert [check for check, _ in result] == ["clock"]
    assert "from the future" in result[0][1]


def test_partitions_below_their_minimum_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    started = start_thread()
    try:
        started.create_topic("thin", 1, settings={"min.insync.replicas": "2"})
        assert problems(capsys, started.bootstrap) == [
            ("partitions", "1 of 1 have fewer replicas in sync than min.insync.replicas")
        ]
    finally:
        started.close()


def certificate(names: list[str], before: timedelta, after: timedelta) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW + before).not_valid_after(NOW + after)
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(entry) for entry in names]), critical=False
        )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    ("names", "days", "expected"),
    [
        (["broker.test"], (-1, 90), [("ok", "good until 2026-08-30")]),
        (["*.test"], (-1, 90), [("ok", "good until 2026-08-30")]),
        (["broker.test"], (-1, 10), [("note", "it expires on 2026-06-11")]),
        (["broker.test"], (-20, -10), [("problem", "it has expired on 2026-05-22")]),
        (["broker.test"], (2, 90), [("problem", "it is good only from 2026-06-03 00:00 on")]),
        (["a.test"], (-1, 90), [("ok", "good until 2026-08-30"), ("problem", "it is for a.test, not for broker.test")]),
        ([], (-1, 90), [("ok", "good until 2026-08-30"), ("problem", "it is for no name, not for broker.test")]),
    ],
)  # fmt: skip
def test_certificates_are_judged_by_names_and_time(
    names: list[str], days: tuple[int, int], expected: list[tuple[str, str]]
) -> None:
    findings = Findings(lambda _: None)
    data = certificate(names, timedelta(days=days[0]), timedelta(days=days[1]))
    judge_certificate(data, Endpoint("broker.test", 9093), findings, NOW)
    assert [(finding.status, finding.text) for finding in findings.all] == expected


@linux_only
def test_open_files_of_a_local_broker_are_counted() -> None:
    import os

    findings = Findings(lambda _: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listening_process(port) == os.getpid()
        endpoint = Endpoint("127.0.0.1", port)
        for limit in (1_000_000, 2000, 1):
            processes = Processes(open_files=lambda _, most=limit: (10, most))  # type: ignore[misc]
            check_local_files(endpoint, ["127.0.0.1"], findings, processes)
    assert [finding.status for finding in findings.all] == ["ok", "note", "problem"]
    check_local_files(Endpoint("kafka.example", 9092), ["192.0.2.1"], findings)
    assert findings.all[-1].text == "the broker is not on this machine"
