"""`barnabas probe` itself: exit codes and standard error, the report as text, JSON and a page."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.errors import ClientError
from barnabas.ending import DONE, FAILED, USAGE_ERROR
from barnabas.tools.probing import command
from barnabas.tools.probing.exchanges import NonsenseError
from barnabas.tools.probing.honoured import Status, Verdict
from barnabas.tools.probing.limits import Limits
from barnabas.tools.probing.probe import Feature, Report
from barnabas.tools.probing.quirks import Quirk
from barnabas.tools.probing.release import Guess
from barnabas.tools.probing.text import lines_of


def report(**more: Any) -> Report:
    verdicts = [
        Verdict(3, 1, Status.HONOURED, "", (5, 6)), Verdict(3, 2, Status.HONOURED, "", (6, 3)),
        Verdict(18, 0, Status.HONOURED), Verdict(18, 1, Status.CLOSED, "closed"), Verdict(18, 2, Status.CLOSED, "closed"),
        Verdict(9999, 0, Status.NOT_TRIED, "an API that is not known here"),
    ]  # fmt: skip
    parts: dict[str, Any] = {
        "address": "h:1", "cluster_id": "cluster", "node_id": 11, "controller_id": 12, "brokers": ["11: h:1", "12: i:2"],
        "release": Guess(("4.0", "4.1"), (3, 18)), "advertised": {9999: (0, 0), 18: (0, 2), 3: (1, 2)},
        "verdicts": verdicts,
        "features": [Feature("f", (1, 2), None), Feature("g", None, 3)], "limits": Limits({"a.b": "5"}, ""),
        "quirks": [Quirk("one", "seen", False, "r"), Quirk("two", "as it should", True, "r"),
                   Quirk("three", "any", None, "r")],
        "timings": [], "needs": [], "written": [],
    }  # fmt: skip
    return Report(**parts | more)


def run(outcome: Any, *arguments: str) -> tuple[int, Any]:
    values: dict[str, Any] = {}

    async def probe(target: Any, *, writes: bool) -> Report:
        values.update(target=target, writes=writes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    return command.main(arguments, examine=probe), SimpleNamespace(**values)


def test_a_report_is_printed_as_text_or_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, arguments = run(report(), "h:1", "--timeout", "3")
    assert (code, arguments.writes, str(arguments.target.endpoint), arguments.target.timeout_s) == (
        DONE,
        False,
        "h:1",
        3.0,
    )
    out, err = capsys.readouterr()
    assert (out.splitlines(), err) == (list(lines_of(report())), "")
    code, arguments = run(report(), "h:1", "--json", "--write")
    assert (code, arguments.writes) == (DONE, True)
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(report().as_json()))


def test_what_went_wrong_is_one_line_with_a_code_of_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for outcome, arguments, code, words in (
        (ClientError("nobody answers"), ("h:1",), FAILED, "nobody answers"),
        (NonsenseError("the answer is odd"), ("h:1",), FAILED, "the answer is odd"),
        (None, ("nowhere",), USAGE_ERROR, "nowhere"),
        (None, ("h:1,i:2",), USAGE_ERROR, "h:1,i:2: one broker is asked at a time"),
        (None, ("h:1", "--property", "x"), USAGE_ERROR, "--property: 'x' is not KEY=VALUE"),
        (
            None,
            ("h:1", "--client-config", f"{tmp_path}/none"),
            USAGE_ERROR,
            f"--client-config {tmp_path}/none: ",
        ),
    ):
        assert run(outcome, *arguments)[0] == code
        out, err = capsys.readouterr()
        assert (out, err.count("\n"), err.startswith("barnabas probe: ")) == ("", 1, True)
        assert words in err
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert command.main([f"127.0.0.1:{port}"]) == FAILED


def test_settings_of_options_go_before_those_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("# a comment\n! another\n\n client.id = of-file \nsecurity.protocol=plaintext\n")
    _, arguments = run(report(), "h:1", "--client-config", str(path))
    assert arguments.target.settings.client_id == "of-file"
    _, arguments = run(report(), "h:1", "--client-config", str(path), "--property", "client.id=of=option")
    assert arguments.target.settings.client_id == "of=option"


@pytest.mark.parametrize("text", ["0", "-1", "3601", "x", "nan"])
def test_seconds_are_above_zero_and_at_most_an_hour(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["h:1", "--timeout", text])
    assert "a number of seconds expected" in capsys.readouterr().err
    assert command.parser().parse_args(["h:1", "--timeout", "3600"]).timeout == 3600.0


def test_a_report_as_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    path = tmp_path / "card.html"
    assert run(report(), "h:1", "--html", str(path))[0] == DONE
    assert "nearest to Apache Kafka" in capsys.readouterr().out
    page = path.read_text()
    for words in (
        "ApiVersions",
        "LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION",
        "h:1",
    ):
        assert words in page
