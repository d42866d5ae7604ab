"""The broker's log: what is repeated without end takes little room, and what was left out is said."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import threading

import pytest

from barnabas.environment.log_lines import (
    LINE_CHARS_MAX,
    LINES_MAX,
    PERIOD_SECONDS,
    TRACEBACK_CHARS_MAX,
    TRACEBACKS_MAX,
    LimitedFormatter,
    LimitedHandler,
)
from barnabas.testing.running import import_path

SECONDS_MAX = 10.0


class Output:
    """A logger with the broker's handler, and what it has written."""

    def __init__(self, name: str = "barnabas.handlers.test") -> None:
        self.now = 0.0
        self._stream = io.StringIO()
        self.handler = LimitedHandler(self._stream, clock=lambda: self.now)
        self.handler.setFormatter(LimitedFormatter("%(levelname)s %(message)s"))
        self.log = logging.Logger(name, logging.DEBUG)
        self.log.addHandler(self.handler)

    @property
    def lines(self) -> list[str]:
        """All lines so far."""
        return self._stream.getvalue().splitlines()


@pytest.fixture
def output() -> Output:
    return Output()


def test_a_warning_that_is_repeated_without_end_is_counted(output: Output) -> None:
    for n in range(20 * LINES_MAX):
        output.log.warning("it is %d", n)
    assert output.lines[:LINES_MAX] == [f"WARNING it is {n}" for n in range(LINES_MAX)]
    (note,) = output.lines[LINES_MAX:]
    assert note.startswith("WARNING what test_log_lines.py:")
    assert note.endswith(" logs is left out for up to 60 s")
    output.now = PERIOD_SECONDS
    output.log.warning("another place")
    assert output.lines[-2].endswith(f" has logged {19 * LINES_MAX} more lines")
    assert output.lines[-1] == "WARNING another place"


@pytest.mark.parametrize("more", [0, 1, 2])
def test_how_many_were_left_out_is_said_unless_none_were(output: Output, more: int) -> None:
    for _ in range(LINES_MAX + more):
        output.log.warning("again")
    output.now = PERIOD_SECONDS
    output.log.warning("another place")
    lines = [line for line in output.lines if "has logged" in line]
    assert [line.partition(" has logged ")[2] for line in lines] == [f"{more} more lines"] * bool(more)


def test_a_handler_that_is_closed_lets_others_close_theirs(output: Output) -> None:
    output.log.warning("once")
    output.handler.close()
    assert output.lines == ["WARNING once"]
    handler = output.handler
    others = threading.Thread(target=lambda: (handler.acquire(), handler.release()), daemon=True)
    others.start()
    others.join(SECONDS_MAX)
    assert not others.is_alive(), "it still holds its lock"


def test_places_are_counted_apart_and_again_in_each_period(output: Output) -> None:
    for _ in range(2):
        for n in range(LINES_MAX + 10):
            output.log.error("one")
            output.log.error("two %d", n)
        output.now += PERIOD_SECONDS
    assert output.lines.count("ERROR one") == 2 * LINES_MAX
    assert sum(line.startswith("ERROR two") for line in output.lines) == 2 * LINES_MAX


def test_fewer_tracebacks_are_written(output: Output) -> None:
    for _ in range(1_000):
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            output.log.exception("our mistake")
    assert output.lines.count("ERROR our mistake") == TRACEBACKS_MAX
    assert output.lines.count("ZeroDivisionError") == TRACEBACKS_MAX


def test_what_was_left_out_is_said_at_the_end(output: Output) -> None:
    for _ in range(LINES_MAX + 7):
        output.log.warning("again")
    output.handler.close()
    assert output.lines[-1].endswith(" has logged 7 more lines")


def test_what_somebody_has_asked_for_is_written_in_full(output: Output) -> None:
    for n in range(10 * LINES_MAX):
        output.log.info("%d", n)
    assert len(output.lines) == 10 * LINES_MAX


@pytest.mark.parametrize("name", ["barnabas.log.damage", "barnabas.log"])
def test_every_offset_that_a_damaged_log_has_lost_is_written(name: str) -> None:
    output = Output(name)
    for n in range(2 * LINES_MAX):
        output.log.error("lost offset %d", n)
    assert len(output.lines) == 2 * LINES_MAX


def test_the_middle_of_a_very_long_line_is_left_out(output: Output) -> None:
    output.log.warning("from client %r to the end", "x" * 32_767)
    (line,) = output.lines
    assert LINE_CHARS_MAX <= len(line) < LINE_CHARS_MAX + 100
    assert line.startswith("WARNING from client 'xxx")
    assert line.endswith("xxx' to the end")


def test_a_traceback_keeps_its_beginning_and_its_error(output: Output) -> None:
    try:
        raise ValueError("y" * 100_000 + " is too long")
    except ValueError:
        output.log.exception("our mistake")
    text = "\n".join(output.lines)
    assert TRACEBACK_CHARS_MAX <= len(text) < TRACEBACK_CHARS_MAX + 100
    assert text.startswith("ERROR our mistake\nTraceback")
    assert text.endswith("y is too long")


@pytest.mark.parametrize("name", ["barnabas.logs", "barnabas", "x.barnabas.log"])
def test_places_of_similar_names_are_limited(name: str) -> None:
    output = Output(name)
    for n in range(2 * LINES_MAX):
        output.log.error("it is %d", n)
    assert len(output.lines) == LINES_MAX + 1


def test_a_line_and_a_traceback_of_the_largest_size_are_whole(output: Output) -> None:
    output.log.warning("x" * (LINE_CHARS_MAX - len("WARNING ")))
    output.log.warning("x" * (LINE_CHARS_MAX - len("WARNING ") + 1))
    whole, cut = output.lines
    assert len(whole) == LINE_CHARS_MAX
    assert " ... 1 characters ... " in cut


def test_without_a_stream_lines_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    handler = LimitedHandler()
    handler.handle(logging.LogRecord("x", logging.ERROR, "file", 1, "said", (), None))
    handler.close()
    assert capsys.readouterr() == ("", "said\n")


def test_a_process_that_has_begun_its_log_is_limited_to_its_end() -> None:
    program = (
        "import logging\n"
        "from barnabas.environment import log_lines\n"
        "log_lines.begin('warning')\n"
        f"for n in range({LINES_MAX + 9}): logging.getLogger('x').warning('it is %d', n)\n"
    )
    environment = {**os.environ, "PYTHONPATH": import_path()}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=environment,
    )
    *lines, note, left_out = done.stderr.splitlines()
    assert len(lines) == LINES_MAX
    assert lines[0].endswith(" WARNING x it is 0")
    assert "is left out" in note
    assert left_out.endswith(" has logged 9 more lines")
