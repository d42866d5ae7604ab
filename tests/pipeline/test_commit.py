"""A load's one commit without Spark: which ranges it covers, what it counts, what it refuses, and another, faster run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas_pipeline import cli, schema
from barnabas_pipeline.errors import DataLossError, NoTopicError, UsageError
from barnabas_pipeline.jobs import load as load_job
from barnabas_pipeline.jobs.load import LoadOptions, Plan, adopt, fill, find_loss, gone, new_entry, unwrap
from barnabas_pipeline.jobs.streams import pending
from barnabas_pipeline.lake.ledger import BrokenLakeError, DataFile, Entry, State, hour_number
from barnabas_pipeline.lake.store import location_of
from barnabas_pipeline.lake.table import ConflictError, Table
from barnabas_pipeline.lake.task import LoadTask, TaskResult
from barnabas_pipeline.log import digest
from barnabas_pipeline.log.model import Bounds, LogOptions, OffsetRange, TopicIdentity

IDENTITY = TopicIdentity("cluster", "logins", "topic-id")
ICEBERG = {"partition": (0,), "spec_id": 1}
COUNTS = ("loaded", "dead", "control", "aborted", "compacted")


def options(root: Path, **more: Any) -> LoadOptions:
    return LoadOptions(LogOptions("logins"), str(root), schema.load("logins"), **more)


def result(partition: int, start: int, end: int, *, name: str = "", **counts: int) -> TaskResult:
    task_result = TaskResult(OffsetRange(partition, start, end))
    for count, value in (counts or {"loaded": end - start}).items():
        setattr(task_result, count, value)
    task_result.digest = 1 << (start % 60)
    if name:
        hours = [hour_number("2026-11-20T07")]
        task_result.files = [
            DataFile(f"data/{name}", 1, 1, "f", "topic-id", partition, hours, iceberg=ICEBERG)
        ]
        task_result.dead_files = [
            DataFile(f"dead/{name}", 1, 1, "f", "topic-id", partition, reasons={"json": 2})
        ]
    return task_result


def bounds_of(*ends: int, start: int = 0) -> dict[int, Bounds]:
    return {partition: Bounds(start, end, end + 5, 3 + partition) for partition, end in enumerate(ends)}


def empty(root: Path) -> Entry:
    return new_entry(Table(root), "load", IDENTITY, schema.load("logins"), {"name": "load"})


# --- what an entry says ----------------------------------------------------------------------------------------------


def test_entry_sums_the_tasks_of_each_partition(tmp_path: Path) -> None:
    manifest = empty(tmp_path)
    results = [
        result(1, 0, 4, name="c", loaded=1, dead=3),
        result(0, 10, 31, name="b", loaded=1, dead=2, control=3, aborted=5, compacted=10),
        result(0, 0, 10, name="a", loaded=10),
    ]
    ranges = [OffsetRange(0, 0, 31), OffsetRange(1, 0, 4), OffsetRange(2, 7, 7)]
    fill(manifest, ranges, results, bounds_of(31, 4, 7))
    assert [*manifest.partitions] == ["0", "1", "2"], "what is empty is named once"
    first, second, third = manifest.partitions.values()
    assert (third.start, third.end, third.span) == (7, 7, 0)
    later = empty(tmp_path)
    fill(later, ranges, results, bounds_of(31, 4, 7), known_partitions={2})
    assert [*later.partitions] == ["0", "1"]
    assert [getattr(first, name) for name in COUNTS] == [11, 2, 3, 5, 10]
    assert (first.start, first.end, first.high_watermark, first.leader_epoch) == (0, 31, 36, 3)
    assert (second.start, second.end, second.high_watermark, second.leader_epoch) == (0, 4, 9, 4)
    assert first.log_digest == digest.encode(digest.add(results[1].digest, results[2].digest))
    assert [file.path for file in manifest.add] == ["data/c", "data/b", "data/a"]
    assert [file.path for file in manifest.dead_add] == ["dead/c", "dead/b", "dead/a"]


@pytest.mark.parametrize(
    "ranges",
    [
        [(0, 0, 9), (0, 9, 20)],  # one short of the end
        [(0, 1, 21)],
        [(0, 0, 10), (0, 11, 21)],
        [(0, 0, 11), (0, 10, 21)],
        [(0, 0, 10), (0, 0, 10), (0, 10, 21)],
        [(1, 0, 21)],
        [],
    ],
    ids=str,
)
def test_tasks_that_do_not_cover_the_range_are_a_defect(tmp_path: Path, ranges: Any) -> None:
    with pytest.raises(AssertionError):
        fill(empty(tmp_path), [OffsetRange(0, 0, 21)], [result(*span) for span in ranges], bounds_of(21, 21))


def test_an_entry_follows_the_state_of_its_table(
    tmp_path: Path, set_environment: Callable[..., None]
) -> None:
    set_environment(BARNABAS_ATTEMPT="4")
    table = Table(tmp_path)
    first = new_entry(table, "load", IDENTITY, schema.load("logins"), {"name": "load"})
    assert (first.version, first.previous, first.previous_path, first.kind) == (1, "", "", "load")
    assert (first.cluster_id, first.topic, first.topic_id) == IDENTITY
    assert first.job == {"name": "load", "attempt": "4"}
    assert first.schema == schema.load("logins").to_dict()
    table.commit(first)
    second = new_entry(table, "seal", IDENTITY, schema.load("logins"), {})
    state = table.state()
    assert (second.version, second.kind) == (2, "seal")
    assert (second.previous, second.previous_path) == (state.digest, state.path)


# --- one commit -----------------------------------------------------------------------------------------------------


def commit(root: Path, results: list[TaskResult], *ranges: OffsetRange, **more: Any) -> list[LoadTask]:
    meanwhile = more.pop("meanwhile", lambda: None)
    loading = options(root, target_file_bytes=77, **more)
    loaded_ranges = [result.offset_range for result in results]
    plan = Plan(Table(root), IDENTITY, bounds_of(*[100] * 3), [*ranges], loaded_ranges, loading)
    tasks = plan.prepare()
    meanwhile()
    plan.commit(results)
    return tasks


def test_a_load_is_committed_with_its_tasks(tmp_path: Path) -> None:
    results = [result(0, 0, 10, name="a"), result(0, 10, 20, name="b")]
    asked = commit(tmp_path, results, OffsetRange(0, 0, 20))
    assert [task.offset_range for task in asked] == [result.offset_range for result in results]
    assert {(task.topic_id, task.target_file_bytes) for task in asked} == {("topic-id", 77)}
    assert {task.layout.open()[0].location for task in asked} == {location_of(tmp_path)}
    table = Table(tmp_path)
    files = table.files()
    assert (table.state().ends, [*files.rows], [*files.dead]) == (
        {0: 20},
        ["data/a", "data/b"],
        ["dead/a", "dead/b"],
    )
    assert sorted(piece.path for piece in table.pieces()) == ["data/a", "data/b"]
    [entry] = table.entries()
    assert (entry.kind, entry.job["name"]) == ("load", "load")


@pytest.mark.parametrize("off", [-1, 1])
def test_a_load_whose_counts_do_not_add_up_is_not_committed(tmp_path: Path, off: int) -> None:
    wrong = result(0, 0, 10, loaded=5, dead=5 + off)
    with pytest.raises(BrokenLakeError, match="partition 0: its counts do not add up"):
        commit(tmp_path, [wrong], OffsetRange(0, 0, 10))
    assert not Table(tmp_path).exists()


def test_a_load_that_another_has_overtaken_is_not_committed(tmp_path: Path) -> None:
    def other() -> None:
        commit(tmp_path, [result(0, 0, 7)], OffsetRange(0, 0, 7))

    with pytest.raises(ConflictError):
        commit(tmp_path, [result(0, 0, 10, name="a")], OffsetRange(0, 0, 10), meanwhile=other)
    state = Table(tmp_path).state()
    assert (state.version, state.ends, Table(tmp_path).pieces()) == (1, {0: 7}, [])


# --- what is next, and what is gone ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loaded", "starts", "expected"),
    [
        ({}, {}, [(0, 3, 20), (1, 3, 30)]),
        ({0: 10}, {}, [(0, 10, 20), (1, 3, 30)]),
        ({0: 10}, {0: 5, 1: 7}, [(0, 10, 20), (1, 7, 30)]),
        ({0: 25, 1: 30}, {}, [(0, 25, 25), (1, 30, 30)]),
    ],
)
def test_load_begins_at_the_last_end_or_the_given_start(loaded: Any, starts: Any, expected: Any) -> None:
    state = State(ends=loaded)
    ranges = pending(state, starts, {1: 30, 0: 20}, bounds_of(99, 99, start=3))
    assert ranges == [OffsetRange(*span) for span in expected]


def state_of(ends: dict[int, int], marks: dict[int, int] | None = None) -> State:
    state = State(1, "p", "d", *IDENTITY, schema=schema.load("logins").to_dict(), ends=dict(ends))
    state.high_watermarks = dict(marks or {})
    return state


@pytest.mark.parametrize(
    ("bounds", "missing", "cause", "can_go_on"),
    [
        ({0: (0, 10)}, None, "", True),
        ({0: (10, 10)}, None, "", True),
        ({0: (11, 12)}, [(0, 10, 11)], "retention has overtaken logins", True),
        ({0: (0, 9)}, [(0, 9, 10)], "has become shorter", False),
        ({}, [(0, 10, None)], "partitions of logins are gone", False),
        ({0: (0, 10), 1: (0, 7)}, None, "", True),
        ({0: (0, 10), 1: (5, 7)}, [(1, 0, 5)], "retention has overtaken logins", True),
        ({0: (11, 12), 1: (5, 5)}, [(0, 10, 11), (1, 0, 5)], "retention has overtaken logins", True),
    ],
    ids=str,
)
def test_what_can_never_be_loaded_is_named_to_the_offset(
    bounds: Any, missing: Any, cause: str, can_go_on: bool
) -> None:
    log_bounds = {partition: Bounds(start, mark, mark, 0) for partition, (start, mark) in bounds.items()}
    loss = find_loss(state_of({0: 10}), IDENTITY, log_bounds)
    if missing is None:
        assert loss is None
        return
    assert loss is not None
    assert [tuple(span) for span in loss.missing] == missing
    assert cause in loss.cause
    assert loss.can_go_on is can_go_on


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (IDENTITY._replace(cluster_id="another"), "cluster  is another one now: another, was cluster"),
        (IDENTITY._replace(topic_id="another"), "topic logins is another one now: another, was topic-id"),
        (TopicIdentity("another", "logins", "another"), "cluster  is another one now"),
    ],
)
def test_recreated_topic_loses_all_known_offsets(other: TopicIdentity, what: str) -> None:
    state = state_of({0: 10, 1: 10, 2: 10}, {0: 15, 1: 10})
    loss = find_loss(state, other, bounds_of(99, 99, 99))
    assert loss is not None
    assert loss.cause.startswith(what)
    assert [tuple(span) for span in loss.missing] == [(0, 10, 15)]
    assert loss.can_go_on


def test_a_loss_is_raised_or_recorded_with_what_is_missing(tmp_path: Path) -> None:
    loading = options(tmp_path)
    adopt(Table(tmp_path), IDENTITY, {}, loading)  # nothing was ever loaded
    commit(tmp_path, [result(0, 0, 10)], OffsetRange(0, 0, 10))
    table = Table(tmp_path)
    adopt(table, IDENTITY, {0: Bounds(0, 20, 20, 0)}, loading)
    assert table.state().version == 1
    overtaken = {0: Bounds(15, 20, 20, 0)}
    with pytest.raises(DataLossError, match="retention has overtaken"):
        adopt(table, IDENTITY, overtaken, loading)
    adopt(table, IDENTITY, overtaken, replace(loading, on_data_loss="record"))
    state = table.state()
    assert (state.version, state.ends) == (2, {0: 15})
    last = table.entries()[-1]
    assert (last.kind, last.lost, last.note) == ("restart", {"0": [10, 15]}, "retention has overtaken logins")
    shorter = {0: Bounds(0, 12, 12, 0)}
    with pytest.raises(DataLossError, match="become shorter"):
        adopt(table, IDENTITY, shorter, replace(loading, on_data_loss="record"))
    with pytest.raises(UsageError, match="was loaded from topic logins, not other"):
        adopt(table, IDENTITY._replace(topic="other"), overtaken, loading)


def test_losses_of_an_added_partition_are_raised_or_recorded(tmp_path: Path) -> None:
    loading = options(tmp_path)
    commit(tmp_path, [result(0, 0, 10)], OffsetRange(0, 0, 10))
    added = {0: Bounds(0, 10, 10, 0), 1: Bounds(5, 9, 9, 0)}
    with pytest.raises(DataLossError, match=r"partition 1: \[0, 5\)"):
        adopt(Table(tmp_path), IDENTITY, added, loading)
    adopt(Table(tmp_path), IDENTITY, added, replace(loading, on_data_loss="record"))
    assert Table(tmp_path).state().ends == {0: 10, 1: 5}
    adopt(Table(tmp_path), IDENTITY, added, loading)


def test_deleted_topic_is_a_loss_and_an_unknown_one_usage() -> None:
    assert isinstance(gone("logins", "b:1", State()), NoTopicError)
    loss = gone("logins", "b:1", state_of({0: 10}))
    assert str(loss) == "topic logins is gone; missing: partition 0: [10, ?)"
    assert loss.exit_code == 3


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ([], "give --topic, --topic-pattern, or --topics"),
        (["--topic-pattern", "a("], "neither a name nor a regular expression"),
        (["--topic", "a", "--exclude", "a("], "neither a name nor a regular expression"),
        (["--topic", "a.b,a_b"], "topics a.b and a_b would both have a table barnabas.a_b"),
        (["--topic", "a,b", "--table", "x.y"], "topics a and b would both have a table x.y"),
        (["--topic", "a,b"], "2 of 2 topics have failed: a: 'a' is no schema file"),
        (["--topics", "none.yaml"], "none.yaml: No such file or directory"),
        (["--topic", "views", "--metrics", "nowhere"], "--metrics 'nowhere' is not HOST:PORT"),
        (
            ["--topic-pattern", "a.*", "--transport", "disk", "--log-dir", "d"],
            "topics of log dirs are given by",
        ),
    ],
    ids=str,
)
def test_wrong_choice_of_topics_fails_before_writing(
    tmp_path: Path, more: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    assert cli.main(["load", *more, "--bootstrap", "127.0.0.1:1", "--lake", str(lake)]) == 4
    assert why in capsys.readouterr().err
    assert not [*lake.rglob("*.parquet"), *lake.rglob("*.json")]


@pytest.mark.parametrize("topic", ["a,b", "re.*"])
def test_another_job_reads_one_topic(tmp_path: Path, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["audit", "--topic", topic, "--bootstrap", "127.0.0.1:1", "--lake", str(tmp_path)]
    assert cli.main(arguments) == 4
    assert "is not the name of a topic" in capsys.readouterr().err


def test_another_job_takes_the_settings_of_its_topic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "topics.toml"
    settings.write_text('[topics.logins]\ntable = "nothing"\nlateness = 3\n')
    arguments = ["redrive", "--topics", str(settings), "--lake", str(tmp_path / "lake")]
    assert cli.main([*arguments, "--topic", "logins"]) == 4
    assert "'nothing' is no NAMESPACE.NAME" in capsys.readouterr().err
    settings.write_text("[topics.logins]\nbroker = 3\n")
    assert cli.main([*arguments, "--topic", "logins"]) == 4
    assert "topics.toml: topics.logins.broker is no setting of a topic" in capsys.readouterr().err


def test_a_lake_without_a_catalog_is_a_wrong_option(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["load", "--topic", "views", "--bootstrap", "127.0.0.1:1", "--lake", "s3a://bucket/lake"]
    assert cli.main(arguments) == 4
    assert "usage: s3a://bucket/lake needs a catalog" in capsys.readouterr().err


# --- what Spark hands up --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        (
            "x\n barnabas_pipeline.errors.DataLossError: gone; missing: partition 0: [3, 7), partition 1: [5, ?)\n",
            DataLossError,
            "gone",
        ),
        (
            "OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device",
            load_job.IncompleteError,
            "a task could not read or write: [Errno 28]",
        ),
        (
            "Job aborted due to stage failure\nModuleNotFoundError: No module named 'barnabas_pipeline'\n",
            load_job.UsageError,
            "executors lack a package: No module named 'barnabas_pipeline'",
        ),
        ("barnabas_pipeline.errors.UsageError: no topic", load_job.IncompleteError, "no topic"),
        (
            "a\nPython worker exited unexpectedly (crashed)\nJob aborted",
            load_job.IncompleteError,
            "Python worker exited",
        ),
        ("Job aborted due to stage failure", load_job.IncompleteError, "Job aborted"),
    ],
)
def test_what_a_task_raised_comes_out(text: str, kind: type[Exception], why: str) -> None:
    error = unwrap(RuntimeError(text))
    assert type(error) is kind
    assert why in str(error)
    if isinstance(error, DataLossError):
        assert [tuple(span) for span in error.missing] == [(0, 3, 7), (1, 5, None)]


@pytest.mark.parametrize("text", ["something else", "AssertionError\nJob aborted", ""])
def test_defects_stay_as_they_are(text: str) -> None:
    error = RuntimeError(text)
    assert unwrap(error) is error
