"""Reports of a load while it runs: events, lines, bars, the log, and metrics; without a load."""

from __future__ import annotations

import io
import json
import logging
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from barnabas_pipeline.commands import metrics, reporting
from barnabas_pipeline.errors import DataLossError, IncompleteError, MissingOffsets, UsageError


@dataclass
class Counts:
    loaded: int = 10
    dead: int = 2
    files: int = 3
    bytes_read: int = 4_000
    commits: int = 1
    reasons: dict[str, int] = field(default_factory=lambda: {"json": 2})


@dataclass
class Commit:
    topic: str = "orders"
    version: int = 7
    offsets: dict[int, tuple[int, int]] = field(default_factory=lambda: {0: (5, 12), 3: (0, 5)})
    summary: Counts = field(default_factory=Counts)
    behind: int = 1_000
    seconds: float = 0.1234
    count: int = 12


@dataclass
class Round:
    number: int = 4
    topics: int = 300
    seconds: float = 1.5
    steps: dict[str, float] = field(default_factory=lambda: {"ask": 0.01, "tasks": 0.5})
    commits: list[Commit] = field(default_factory=lambda: [Commit()])
    failures: int = 1
    offsets: int = 12
    behind: int = 1_000


LOSS = DataLossError("topic orders is gone", [MissingOffsets(0, 12, None)])


def story(watcher: Any) -> None:
    watcher.joined("orders")
    watcher.committed(Commit())
    watcher.failed("votes", IncompleteError("votes-0 has no leader"), is_over=False)
    watcher.recovered("votes")
    watcher.failed("orders", LOSS, is_over=True)
    watcher.ended(Round())
    watcher.ended(Round(commits=[]))


def test_events_are_plain_values_one_for_each_commit_and_round() -> None:
    lines: list[dict[str, Any]] = []
    story(reporting.Events(lambda event: lines.append(json.loads(json.dumps(event)))))
    assert [row["event"] for row in lines] == ["joined", "commit", "failed", "recovered", "failed", "round"]
    assert all(row.pop("time").endswith("+00:00") for row in lines)
    assert lines[1] == {
        "event": "commit", "topic": "orders", "version": 7, "offsets": {"0": [5, 12], "3": [0, 5]}, "rows": 10, "dead": 2,
        "reasons": {"json": 2}, "files": 3, "bytes_read": 4000, "seconds": 0.123, "lag": 1000,
    }  # fmt: skip
    assert lines[4] == {
        "event": "failed", "topic": "orders", "error": str(LOSS), "exit_code": 3, "left_out": True,
    }  # fmt: skip
    assert lines[5] == {
        "event": "round", "round": 4, "topics": 300, "commits": 1, "rows": 10, "dead": 2, "lag": 1000, "failing": 1,
        "seconds": 1.5, "steps": {"ask": 0.01, "tasks": 0.5},
    }  # fmt: skip


def test_people_read_a_line_for_each_round_that_did_something() -> None:
    file = io.StringIO()
    story(reporting.Events(reporting.lines_to(file)))
    assert file.getvalue().splitlines() == [
        "orders: joined",
        "votes: tried again: votes-0 has no leader",
        "votes: recovered",
        "orders: left out: topic orders is gone; missing: partition 0: [12, ?)",
        "round 4: 10 rows of 1 of 300 topics in 1.5 s, 2 dead letters, 1,000 behind, 1 topics failing",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bars_show_all_topics_and_the_largest_lags(set_environment: Callable[..., None]) -> None:
    set_environment(COLUMNS="200")
    set_environment(TERM="xterm")
    file = Terminal()
    with reporting.Bars(file) as bars:
        story(bars)
        for n in range(reporting.BARS_MAX + 3):
            bars.committed(Commit(topic=f"t{n}", behind=100 * (n + 1)))
        bars.committed(Commit(topic="done", behind=0))
        tasks = {task.description: task for task in bars._progress.tasks}
        assert (tasks["load"].completed, tasks["load"].total) == (12, 1012)
        assert len(tasks) == 1 + reporting.BARS_MAX
        assert "t0" not in tasks, "the least behind made room"
        assert f"t{reporting.BARS_MAX + 2}" in tasks
        assert "done" not in tasks
    assert "orders: left out: topic orders is gone; missing: partition 0: [12, ?)" in file.getvalue()


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    yield root
    root.handlers[:], root.level = handlers, level


def test_the_log_is_json_with_the_fields_of_each_event(root_logger: logging.Logger) -> None:
    file = io.StringIO()
    story(reporting.Events(reporting.begin_log(file, is_json=True)))
    try:
        raise ValueError("a defect")
    except ValueError:
        logging.getLogger("pyiceberg").exception("of another library")
    logging.getLogger("py4j").info("nobody wants to know")
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [(line["level"], line.get("event")) for line in lines] == [
        ("info", "joined"), ("info", "commit"), ("warning", "failed"), ("info", "recovered"), ("warning", "failed"),
        ("info", "round"), ("error", None),
    ]  # fmt: skip
    assert lines[1]["message"] == "orders: version 7, 10 rows, 2 dead letters, 1,000 behind"
    assert (lines[1]["topic"], lines[1]["offsets"]) == ("orders", {"0": [5, 12], "3": [0, 5]})
    assert "ValueError: a defect" in lines[6]["exception"]


def test_the_log_is_text_for_people(root_logger: logging.Logger) -> None:
    file = io.StringIO()
    story(reporting.Events(reporting.begin_log(file, is_json=False)))
    assert "WARNING barnabas_pipeline.load votes: tried again" in file.getvalue()


# --- metrics --------------------------------------------------------------------------------------------------------


@dataclass
class Stream:
    summary: Counts = field(default_factory=Counts)
    behind: dict[int, int] = field(default_factory=lambda: {0: 5, 1: 0})
    committed_at: float = 1_700_000_000.5
    error: Exception | None = None
    is_over: bool = False


@dataclass
class Rounds:
    streams: dict[str, Stream]


def test_metrics_are_read_when_they_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    streams = {"orders": Stream(), "votes": Stream(Counts(0, 0, 0, 0, 0, {}), {}, 0.0, LOSS, True)}
    with ExitStack() as stack:
        metrics.serve("127.0.0.1:0", stack, metrics.LoadCollector(Rounds(streams)))
        url = capsys.readouterr().err.split()[1]

        def scrape() -> list[str]:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.read().decode().splitlines()

        lines = scrape()
        for line in (
            'barnabas_load_lag_records{partition="0",topic="orders"} 5.0',
            'barnabas_load_lag_records{partition="1",topic="orders"} 0.0',
            'barnabas_load_rows_total{topic="orders"} 10.0',
            'barnabas_load_dead_letters_total{reason="json",topic="orders"} 2.0',
            'barnabas_load_commits_total{topic="orders"} 1.0',
            'barnabas_load_files_total{topic="orders"} 3.0',
            'barnabas_load_read_bytes_total{topic="orders"} 4000.0',
            'barnabas_load_last_commit_timestamp_seconds{topic="orders"} 1.7000000005e+09',
            'barnabas_load_failing{left_out="true",topic="votes"} 1.0',
            "barnabas_load_topics 2.0",
        ):
            assert line in lines
        assert any(line.startswith("process_cpu_seconds_total") for line in lines)
        streams["orders"].behind[0] = 0
        del streams["votes"]
        later = scrape()
    assert 'barnabas_load_lag_records{partition="0",topic="orders"} 0.0' in later
    assert not any("votes" in line for line in later)
    with pytest.raises(OSError, match="refused"):
        scrape()


def test_a_port_that_is_taken_is_a_wrong_option(capsys: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as stack:
        metrics.serve("127.0.0.1:0", stack)
        port = capsys.readouterr().err.rsplit(":", 1)[1].split("/")[0]
        with pytest.raises(UsageError, match=f"--metrics 127.0.0.1:{port}: Address already in use"):
            metrics.serve(f"127.0.0.1:{port}", stack)


@dataclass
class MirrorFigures:
    rounds: int = 3
    mirrored: int = 40
    skipped_loops: int = 1
    transactions: int = 2
    created_topics: int = 1
    groups_committed: int = 5
    topics: int = 7
    partitions: int = 9
    behind: int = 11
    groups_waiting: int = 0


@dataclass
class Mirror:
    summary: MirrorFigures = field(default_factory=MirrorFigures)
    failures: list[str] = field(default_factory=lambda: ["orders-0"])


def test_a_mirror_has_metrics_too() -> None:
    metric = {
        sample.name: sample.value
        for family in metrics.MirrorCollector(Mirror()).collect()
        for sample in family.samples
    }
    assert metric["barnabas_mirror_mirrored_total"] == 40
    assert (metric["barnabas_mirror_behind"], metric["barnabas_mirror_failures"]) == (11, 1)
    assert len(metric) == len(metrics.MirrorCollector.COUNTERS) + len(metrics.MirrorCollector.GAUGES) + 1
