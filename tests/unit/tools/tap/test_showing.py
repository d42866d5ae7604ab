"""The exchanges that are shown: filters, lines of each second, JSON lines, and lines that are written aside."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.tools.inspection.errors import FoundError
from barnabas.tools.inspection.frames import Request, Response
from barnabas.tools.tap import observers
from barnabas.tools.tap.exchange import Connection, Exchange, TopicNames
from barnabas.tools.tap.filters import Filter, has_failed
from barnabas.tools.tap.observers import JsonLines, Several, Terminal, left_out_as_json, left_out_as_text
from barnabas.wire.generated.heartbeat import HeartbeatResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse


def exchange(
    api: str = "Metadata", *topics: str, at: float = 5.5, took_s: float | None = 0.25, code: int = 0,
    client_id: str | None = "app", of: Connection | None = None,
) -> Exchange:  # fmt: skip
    message = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in topics])
    request = Request(9, 3, api, 12, 7, client_id, message)
    connection = of or Connection(1, "10.0.0.1:1000", "10.0.0.2:9092", client_id="of-connection")
    result = Exchange(connection, 2, request, at, TopicNames())
    if took_s is not None:
        result.response, result.answered_at = Response(9, 7, MetadataResponse()), at + took_s
    if code:
        result.refuse([FoundError(code, "error_code", "")])
    return result


@pytest.mark.parametrize(
    ("filter_", "taken", "omitted"),
    [
        (Filter(("metadata",)), exchange(), exchange("Fetch")),
        (Filter(("FETCH", "Meta*")), exchange(), exchange("Produce")),
        (Filter(client_ids=("a?p",)), exchange(), exchange(client_id="APP")),
        (Filter(client_ids=("of-*",)), exchange(client_id=None), exchange()),
        (Filter(client_ids=("x", "")), exchange(client_id=None, of=Connection(1, "a:1", "b:2")), exchange()),
        (Filter(topics=("b*",)), exchange("Metadata", "a", "b1"), exchange("Metadata", "ab")),
        (Filter(topics=("T",)), exchange("Metadata", "T"), exchange("Metadata", "t")),
        (Filter(topics=("*",)), exchange("Metadata", "t"), exchange()),
        (Filter(errors_only=True), exchange(code=3), exchange()),
        (Filter(slower_ms=250.0), exchange(), exchange(took_s=0.249)),
        (Filter(slower_ms=0.1), exchange(), exchange(took_s=None)),
        (Filter(("Metadata",), ("app",)), exchange(), exchange(client_id="b")),
        (Filter(("Metadata",), errors_only=True), exchange(code=3), exchange("Fetch", code=3)),
    ],
)
def test_an_exchange_passes_where_all_conditions_are_met(
    filter_: Filter, taken: Exchange, omitted: Exchange
) -> None:
    assert not filter_.is_empty
    assert (filter_.takes(taken), filter_.takes(omitted)) == (True, False)
    assert Filter().is_empty
    assert Filter().takes(omitted)


def test_what_has_failed() -> None:
    assert not has_failed(exchange())
    assert has_failed(exchange(code=1))
    for reason, failed in (("", False), ("acks=0", False), ("the broker closed", True)):
        silent = exchange(took_s=None)
        silent.unanswered = reason
        assert has_failed(silent) is failed
    for name in ("request", "response"):
        odd = exchange()
        getattr(odd, name).problem = "cut"
        assert has_failed(odd)
    coded = exchange()
    assert coded.response is not None
    coded.response.message = HeartbeatResponse(error_code=27)
    assert has_failed(coded)


# --- the terminal ---------------------------------------------------------------------------------------------------


class Shown:
    """A terminal, and the lines that it has shown, by their last words."""

    def __init__(self, filter_: Filter | None = None, **more: Any) -> None:
        self.lines: list[str] = []
        self.terminal = Terminal(self.lines.append, filter_ or Filter(), **more)

    def kinds(self) -> list[str]:
        result = []
        for line in self.lines:
            if line.startswith("..."):
                result.append(line)
            else:
                result.append(next(word for word in ("connects", "closed", "!", "->", line) if word in line))
        self.lines.clear()
        return result


CONNECTION = Connection(4, "10.0.0.1:1000", "10.0.0.2:9092")


def test_lines_of_a_second_are_shared_by_all_that_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observers, "FAILED_LINES_PER_SECOND", 2)
    shown = Shown(lines_per_second=3)
    terminal = shown.terminal
    assert terminal.is_full(5.0) is False
    terminal.opened(CONNECTION, 5.1)
    terminal.exchanged(exchange(code=3))
    assert not terminal.is_full(5.9)
    terminal.closed(CONNECTION, 5.8, "closed")
    assert shown.kinds() == ["connects", "->", "closed"]
    assert terminal.is_full(5.9)
    assert not terminal.is_full(6.0)
    for name in ("Metadata", "Fetch", "Fetch"):
        terminal.exchanged(exchange(name))
    terminal.opened(CONNECTION, 5.9)
    terminal.closed(CONNECTION, 5.9, "closed")
    assert shown.kinds() == []
    terminal.exchanged(exchange(code=3))
    terminal.noted(CONNECTION, 5.9, "odd", b"\1")
    assert shown.kinds() == ["->", "!"], "what failed has lines of its own"
    terminal.noted(CONNECTION, 5.95, "odd")
    terminal.exchanged(exchange("Produce", code=3))
    terminal.skip("Fetch")
    assert shown.kinds() == []
    terminal.exchanged(exchange(at=5.9))  # which is answered in the next second
    kinds = "Fetch 3, Metadata 1, new connections 1, ends of connections 1, notes 1"
    assert shown.kinds() == [f"... 8 more in this second: {kinds} (--lines 0 shows all)", "->"]
    terminal.finish()
    assert shown.kinds() == [], "what was counted is told once"


def test_fields_are_shown_where_they_or_records_are_asked_for() -> None:
    def lines(**more: Any) -> list[str]:
        shown = Shown(**more)
        entry = exchange("Metadata", "ä\x1b")
        entry.token, entry.request_bytes, entry.response_bytes = {"user": "ann"}, b"\1\2", b"\3"
        shown.terminal.exchanged(entry)
        return shown.lines[1:]

    assert lines() == []
    for more in ({"is_verbose": True}, {"view": lambda _: "records"}):
        result = lines(**more)
        assert [line.split(" ")[4] for line in result] == [
            "request",
            "response",
            "sasl",
            "request_hex",
            "response_hex",
        ]
        assert all(line.startswith("    ") for line in result)
        assert "ä\\\\u001b" in result[0] or "ä\\u001b" in result[0]
        assert result[2:] == ['    sasl {"user": "ann"}', "    request_hex 0102", "    response_hex 03"]
        assert json.loads(result[1].removeprefix("    response "))["brokers"] == []
    shown = Shown(is_verbose=True)
    shown.terminal.exchanged(exchange("Metadata", *("t" * 100 for _ in range(50))))
    assert not shown.lines[1].endswith("..."), "fields are shown whole"


def test_json_lines_have_every_event_and_the_exchanges_that_pass() -> None:
    lines: list[str] = []
    writer = JsonLines(lines.append, Filter(("Fetch",)), lambda _: "records")
    secured = Connection(5, "10.0.0.3:1000", "10.0.0.2:9092", tls="TLS to the client")
    writer.opened(CONNECTION, 1.5)
    writer.opened(secured, 2.5)
    writer.exchanged(exchange())
    writer.exchanged(exchange("Fetch"))
    writer.noted(CONNECTION, 3.5, "odd")
    writer.noted(CONNECTION, 3.5, "odd", b"\x0a\x0b")
    writer.closed(secured, 4.5, "why")
    assert all(" " not in line.replace("TLS to the client", "") for line in lines)
    result = [json.loads(line) for line in lines]
    assert [row["type"] for row in result] == ["opened", "opened", "exchange", "noted", "noted", "closed"]
    assert [row["connection"] for row in result] == [4, 5, 1, 4, 4, 5]
    assert [row["at"][17:21] for row in result] == ["01.5", "02.5", "05.5", "03.5", "03.5", "04.5"]
    assert [row["tls"] for row in result[:2]] == [None, "TLS to the client"]
    assert [(row["text"], row["hex"]) for row in result[3:5]] == [("odd", None), ("odd", "0a0b")]
    assert result[5]["reason"] == "why"


class Recorder:
    """An observer that remembers, and fails at what it is told to fail at."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.failure = failure

    def _note(self, *what: Any) -> None:
        self.seen.append(what)
        if self.failure is not None:
            raise self.failure

    def opened(self, *what: Any) -> None:
        self._note("opened", *what)

    def exchanged(self, *what: Any) -> None:
        self._note("exchanged", *what)

    def noted(self, *what: Any) -> None:
        self._note("noted", *what)

    def closed(self, *what: Any) -> None:
        self._note("closed", *what)


def told(several: Several) -> list[tuple[Any, ...]]:
    entry = exchange()
    several.opened(CONNECTION, 1.0)
    several.exchanged(entry)
    several.noted(CONNECTION, 2.0, "odd", b"x")
    several.closed(CONNECTION, 3.0, "why")
    return [
        ("opened", CONNECTION, 1.0), ("exchanged", entry), ("noted", CONNECTION, 2.0, "odd", b"x"),
        ("closed", CONNECTION, 3.0, "why"),
    ]  # fmt: skip


def test_failing_observer_hides_nothing_from_others(caplog: pytest.LogCaptureFixture) -> None:
    failing, good = Recorder(RuntimeError("a mistake")), Recorder()
    events = told(Several([failing, good]))
    assert failing.seen == good.seen == events
    assert caplog.text.count("internal error: an exchange cannot be shown") == 4
    for failure in (BrokenPipeError(), KeyboardInterrupt()):
        with pytest.raises(type(failure)):
            Several([Recorder(failure)]).opened(CONNECTION, 1.0)


# --- lines aside ----------------------------------------------------------------------------------------------------


def test_what_stands_for_lost_lines() -> None:
    assert json.loads(left_out_as_json(7)) == {"type": "left_out", "lines": 7}
    assert left_out_as_text(7) == "... 7 lines are left out: the terminal is slower than the traffic"
