"""Log lines that clients cause again and again are written a few times a minute, and then counted."""

import logging

import pytest

from barnabas.serving.log_limit import LINES_MAX, OTHER_SOURCES, PERIOD_SECONDS, SOURCES_MAX, LogLimit

log = logging.getLogger("test")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_the_first_few_lines_are_written_and_the_others_counted(clock, caplog):
    limit = LogLimit(clock)
    for n in range(1000):
        limit.log(log, logging.WARNING, "malformed requests", "10.0.0.1", "line %d", n)
    limit.log(log, logging.WARNING, "malformed requests", "10.0.0.2", "of another host")
    limit.log(log, logging.WARNING, "requests cut short", "10.0.0.1", "of another kind")
    written = [*(f"line {n}" for n in range(LINES_MAX)), "of another host", "of another kind"]
    assert caplog.messages == written
    clock.now = PERIOD_SECONDS
    limit.summarize()
    assert caplog.messages == [
        *written,
        f"{1000 - LINES_MAX} more malformed requests from 10.0.0.1 within 60 s",
    ]
    assert limit.left_out == 1000 - LINES_MAX
    limit.log(log, logging.WARNING, "malformed requests", "10.0.0.1", "in the next period")
    assert caplog.messages[-1] == "in the next period"


def test_the_next_line_after_the_period_tells_what_was_left_out(clock, caplog):
    limit = LogLimit(clock)
    for _ in range(LINES_MAX + 3):
        limit.log(log, logging.WARNING, "things", "host", "line")
    clock.now = PERIOD_SECONDS
    limit.log(log, logging.WARNING, "things", "host", "later")
    assert caplog.messages[-2:] == ["3 more things from host within 60 s", "later"]


def test_many_sources_count_as_one(clock, caplog):
    limit = LogLimit(clock)
    for n in range(100_000):
        limit.log(log, logging.WARNING, "things", f"host {n}", "line")
    assert len(caplog.messages) == SOURCES_MAX + LINES_MAX
    clock.now = PERIOD_SECONDS
    limit.summarize()
    assert caplog.messages[-1].endswith(f"more things from {OTHER_SOURCES} within 60 s")
    lines = len(caplog.messages)
    limit.summarize()
    assert len(caplog.messages) == lines
