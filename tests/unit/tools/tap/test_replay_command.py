"""`barnabas replay` in this process: options, exit codes, and what is said of differences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.errors import ClientError
from barnabas.client.settings import ClientSettings, Endpoint
from barnabas.ending import DONE, FOUND
from barnabas.tools.tap import replay_command
from barnabas.tools.tap.comparison import Difference
from barnabas.tools.tap.replaying import Outcome, Result
from barnabas.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.unit.tools.tap.test_captures import CONVERSATION, written
from tests.unit.tools.tap.test_session import request, response


def replay(outcomes: list[Outcome], *arguments: object, sent: int = 4) -> tuple[int, dict[str, Any]]:
    """Run the command against brokers with these outcomes as answers; with what the replay was made."""
    created: dict[str, Any] = {}

    async def brokers_of(endpoints: Any, settings: Any) -> Any:
        created.update(endpoints=endpoints, settings=settings)
        return {1: Endpoint("live", 9092)}

    class Replay:
        def __init__(self, recording: Any, brokers: Any, settings: Any, **more: Any) -> None:
            created.update(recording=recording, brokers=brokers, given=settings, **more)

        async def run(self) -> Result:
            if sent < 0:
                raise ClientError("nobody answers")
            for entry in outcomes:
                created["on_outcome"](entry)
            return Result(sent, 3, 1.25, outcomes)

    code = replay_command.main([str(entry) for entry in arguments], find_brokers=brokers_of, replay=Replay)
    return code, created


def outcomes() -> list[Outcome]:
    from tests.unit.tools.tap.test_rendering import exchange

    beat = exchange(12, HeartbeatRequest("g", 8, "m"), HeartbeatResponse())
    result = [Difference("a.b", "1", "2"), Difference("c\x1b", "3", "4")]
    return [Outcome(beat, result), Outcome(beat, [], "the connection broke")]


def test_a_replay_says_what_was_sent_and_what_differs(
    capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, created = replay([], capture, "--to", "h:9,i:8", "--allow", "x", "--allow", "offsets")
    out, err = capsys.readouterr()
    assert (code, out) == (DONE, "")
    assert err.splitlines()[-1] == (
        "barnabas replay: 4 of 4 requests sent on 1 connection in 1.2 s, 3 answers compared, 0 differ"
    )
    assert err.splitlines()[0] == "barnabas replay: 14 packets, 1 connection with Kafka brokers"
    assert created["endpoints"] == [Endpoint("h", 9), Endpoint("i", 8)]
    assert created["settings"] == created["given"]
    assert created["given"].client_id == "barnabas-replay"
    assert (created["is_timed"], created["allowed"]) == (False, ["x", "offsets"])
    assert created["recording"].count == 4
    code, created = replay(outcomes(), capture, "--to", "h:9", "--speed", "as-recorded", sent=3)
    out, err = capsys.readouterr()
    assert (code, created["is_timed"]) == (FOUND, True)
    lines = out.splitlines()
    assert lines[0].endswith("#3.9 app Api v4 group=g generation=8 member=m -> ok 12.3 ms")
    assert lines[1:3] == ["    a.b: recorded 1, now 2", "    c\\x1b: recorded 3, now 4"]
    assert lines[4:] == ["    no answer: the connection broke"]
    assert "3 of 4 requests sent" in err
    assert err.endswith("2 differ\n")


def test_a_replay_as_json_has_a_line_for_each_request(
    capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(outcomes(), capture, "--to", "h:9", "--json")[0] == FOUND
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first == {
        "connection": 3, "number": 9, "api": "Api", "version": 4, "client_id": "app", "failure": None,
        "differences": [
            {"path": "a.b", "recorded": "1", "live": "2"}, {"path": "c\x1b", "recorded": "3", "live": "4"},
        ],
    }  # fmt: skip
    assert (second["failure"], second["differences"]) == ("the connection broke", [])


def test_settings_of_a_replay_come_from_a_file(
    capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config"
    path.write_text("# of the client\n\n  # more\nclient.id = mine=1 \n security.protocol=PLAINTEXT\n")
    assert replay_command.properties_of(str(path)) == {
        "client.id": "mine=1",
        "security.protocol": "PLAINTEXT",
    }
    assert replay_command.properties_of(None) == {}
    _, created = replay([], capture, "--to", "h:9", "--config", path)
    assert isinstance(created["given"], ClientSettings)
    path.write_text("\n#\nnonsense\n")
    capsys.readouterr()
    assert replay([], capture, "--to", "h:9", "--config", path)[0] == 2
    assert capsys.readouterr().err == f"barnabas replay: {path}:3: NAME=VALUE expected\n"


def test_a_replay_that_cannot_be_is_a_failure_with_its_reason(
    capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, words in (
        ((tmp_path / "none", "--to", "h:9"), "No such file"),
        ((__file__, "--to", "h:9"), f"barnabas replay: {__file__}: neither pcap"),
        ((capture, "--to", "nowhere"), "nowhere"),
        ((capture, "--to", "h:9", "--port", "1"), f"{capture}: there is no request to be sent again"),
    ):
        assert replay([], *arguments)[0] == 2
        assert words in capsys.readouterr().err
    assert replay([], capture, "--to", "h:9", sent=-1)[0] == 2
    assert capsys.readouterr().err.endswith("barnabas replay: nobody answers\n")


def test_requests_that_are_not_sent_again_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

    path = tmp_path / "login.pcapng"
    login = (
        (True, request(17, 1, 9, SaslHandshakeRequest("PLAIN"))),
        (False, response(17, 1, 9, SaslHandshakeResponse())),
    )
    path.write_bytes(written(*login, *CONVERSATION))
    assert replay([], path, "--to", "h:9", sent=3)[0] == DONE
    assert (
        "barnabas replay: not sent again: 1 logins: the replay logs in by itself" in capsys.readouterr().err
    )
