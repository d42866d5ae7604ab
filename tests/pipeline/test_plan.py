"""A plan says what a load then does, and writes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from barnabas_pipeline import cli
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.jobs.loading import load
from barnabas_pipeline.lake.table import Table

from .cells import Cell
from .conftest import Stream
from .tables import SCHEMA, local_place
from .topics import Here, Topic, login


def plan(capsys: pytest.CaptureFixture[str], *more: str, code: int = 0) -> dict[str, Any]:
    assert cli.main(["plan", *more, "--json"]) == code
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def files_of(directory: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}


def test_plan_of_a_new_table_is_what_a_load_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topic = Topic(tmp_path / "data", 2)
    topic.append(*(login(n % 3) for n in range(30)))
    topic.append(*(login(n % 3) for n in range(7)), partition=1)
    lake = tmp_path / "lake"
    command = ["--topic", "logins", "--log-dir", str(topic.directory), "--lake", str(lake)]
    [told] = plan(capsys, *command, "--offsets-per-commit-max", "10")["topics"]
    assert not lake.exists(), "nothing is written"
    assert told["creates"]
    assert told["offsets"] == {"0": [0, 30], "1": [0, 7]}
    assert (told["records_max"], told["commits"]) == (37, 4)
    size = sum(os.stat(topic.file(number)).st_size for number in range(2))
    assert told["log_bytes"] == size
    assert told["file_bytes"] is None, "no commit tells it yet"
    options = LoadOptions(topic.options, local_place(tmp_path), SCHEMA, offsets_per_commit_max=10)
    summary = load(Here(), options)
    assert (summary.commits, summary.loaded) == (4, 37)


def test_plan_after_a_load_has_the_rest_and_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = Cell.made(tmp_path)
    command = ["--topic", "logins", "--log-dir", str(cell.topic.directory), "--lake", str(tmp_path / "lake")]
    [nothing] = plan(capsys, *command)["topics"]
    assert (nothing["records_max"], nothing["commits"], nothing["compactable_files"]) == (0, 0, 8)
    cell.topic.append(*(login(0) for _ in range(100)))
    before = files_of(tmp_path)
    [told] = plan(capsys, *command)["topics"]
    assert files_of(tmp_path) == before
    assert (told["offsets"], told["commits"], told["creates"]) == ({"0": [12, 112]}, 1, False)
    assert told["file_bytes"] > 1_000
    assert told["adds_columns"] == []
    assert cli.main(["plan", *command]) == 0
    assert "partition 0: offsets 12 to 112, 100 of them" in capsys.readouterr().out


def test_plan_tells_what_a_load_would_end_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = Cell.made(tmp_path)
    cell.topic.append(login(0))
    cell.topic.append(login(0))
    cell.topic.trim(0, 13)
    command = ["--topic", "logins", "--log-dir", str(cell.topic.directory), "--lake", str(tmp_path / "lake")]
    [told] = plan(capsys, *command, code=3)["topics"]
    assert "retention has overtaken logins" in told["problem"]
    [recorded] = plan(capsys, *command, "--on-data-loss", "record")["topics"]
    assert recorded["offsets"] == {"0": [13, 14]}
    assert Table(cell.place).state().version == 3
    command += ["--on-data-loss", "record", "--topic", "views"]
    with_absent = plan(capsys, *command, code=4)["topics"]
    assert [each["exit_code"] for each in with_absent] == [0, 4]
    assert with_absent[1]["problem"].startswith("there is no topic 'views'")


def test_plan_of_many_topics_over_the_wire(
    stream: Stream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "--topic-pattern",
        "view.*|clicks",
        "--bootstrap",
        stream.bootstrap,
        "--lake",
        str(tmp_path / "lake"),
    ]
    told = plan(capsys, *command, "--offsets-per-trigger-max", "1000")
    by_name = {topic["topic"]: topic for topic in told["topics"]}
    assert by_name.keys() == {"views", "clicks"}
    assert by_name["views"]["records_max"] == len(stream.of("views"))
    assert told["rounds"] == -(-sum(len(stream.of(kind)) for kind in by_name) // 1000)
    assert told["total"]["log_bytes"] > 0, "as the broker says"
    assert not (tmp_path / "lake").exists()
