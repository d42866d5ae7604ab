"""The matrix must not take silence, or an end that belies the verdicts, for success."""

from __future__ import annotations

import os
import select
import socket
from pathlib import Path

import pytest

from compat.matrix import brokers, clients, restart
from compat.matrix.clients import Verdict
from compat.matrix.known import Known
from compat.matrix.report import Matrix

ERRORS = Path("client.err")


def verdicts(output: str, code: int, *cases: str) -> clients.Verdicts:
    return clients._verdicts(list(cases), output, code, ERRORS)


def test_verdicts_are_read_with_detail_and_seconds() -> None:
    output = "chatter\nPASS acks 500 records (with each) (1.3 s)\nSKIP admin has none\nFAIL interop Oops: 1 (2.0 s)\n"
    assert verdicts(output, 1, "acks", "admin", "interop") == {
        "acks": Verdict("PASS", "500 records (with each)", 1.3),
        "admin": Verdict("SKIP", "has none"),
        "interop": Verdict("FAIL", "Oops: 1", 2.0),
    }


def test_a_case_without_a_verdict_has_failed() -> None:
    result = verdicts("PASS acks (0.1 s)\n", -9, "acks", "admin")
    assert result["acks"] == Verdict("PASS", "", 0.1)
    assert result["admin"].status == "FAIL"
    assert "-9" in result["admin"].detail


def test_an_exit_code_that_belies_the_verdicts_is_a_failure() -> None:
    assert verdicts("PASS acks (0.1 s)\n", 1, "acks")["exit-code"].status == "FAIL"
    assert verdicts("FAIL acks no (0.1 s)\n", 0, "acks")["exit-code"].status == "FAIL"


def test_what_a_client_leaves_behind_is_ended(tmp_path: Path) -> None:
    program = tmp_path / "client" / "run"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\nexec 3>{tmp_path}/alive\nsleep 600 >/dev/null 2>&1 &\necho PASS acks fine\n"
    )
    program.chmod(0o755)
    os.mkfifo(tmp_path / "alive")
    alive = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert clients.run(program, "127.0.0.1:1", ["acks"], {}, tmp_path / "errors")["acks"].status == "PASS"
        ended, _, _ = select.select([alive], [], [], 60)
        assert ended, "the program's child still has the pipe open"
        assert os.read(alive, 1) == b""
    finally:
        os.close(alive)


@pytest.mark.parametrize(("status", "code"), [("SKIP", 0), ("FAIL", 1)])
def test_a_setup_that_does_not_work_holds_for_every_case(status: str, code: int) -> None:
    result = verdicts(f"{status} setup go is missing\n", code, "acks", "admin")
    assert result == dict.fromkeys(("acks", "admin"), Verdict(status, "go is missing"))


def test_only_failures_that_are_not_known_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compat.matrix.known.KNOWN", (Known("transactions", "not built", "old-*"),))
    failed, passed = Verdict("FAIL", "no"), Verdict("PASS")
    rows = {"old-a": {"transactions": failed, "acks": passed}, "new": {"transactions": failed}}
    assert [cell[:2] for cell in Matrix(True, rows).unexpected()] == [("new", "transactions")]
    assert len(Matrix(False, rows).unexpected()) == 2
    recovered = Matrix(True, {"old-a": {"transactions": passed}})
    assert recovered.recovered() == [("old-a", "transactions")]
    assert "PASSES old-a transactions" in recovered.text()


def test_reasons_are_in_both_tables() -> None:
    matrix = Matrix(
        True, {"kcat": {"acks": Verdict("PASS", "", 1.0), "admin": Verdict("SKIP", "kcat has none")}}
    )
    assert "SKIP   kcat admin: kcat has none" in matrix.text()
    page = matrix.markdown(100)
    assert "| ✓ | – 1 |" in page
    assert "1. kcat has none" in page


class FakeBroker(brokers.Broker):
    bootstrap = "127.0.0.1:1"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        if self.calls == ["kill"]:
            raise brokers.BrokerError("no such\nluck")
        self.calls.append("start")

    def stop(self, how: str = "term") -> None:
        self.calls.append(how)

    def complaints(self) -> list[str]:
        return []


def test_clients_can_restart_the_broker_and_hear_when_it_fails(tmp_path: Path) -> None:
    broker = FakeBroker()
    with brokers.RestartService(broker, tmp_path) as command:
        path = command.split()[-1]
        assert restart.main(path, "term") is None
        assert broker.calls == ["term", "start"]
        assert "no such way" in str(restart.main(path, "gently"))
        broker.calls.clear()
        assert restart.main(path, "kill") == "BrokerError: no such luck"
    with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as late:
        late.connect(path)
