"""Results by partial aggregates: when all is read again, what a commit keeps, which results are written how."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc_csv
import pytest

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.jobs import current
from barnabas_pipeline.jobs import derived as module
from barnabas_pipeline.jobs.derived import Derived, DerivedState, _is_sortable, write_table
from barnabas_pipeline.lake.table import ConflictError


class Rows:
    """A frame: a list of numbers, which can be joined, kept in a file and read again."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)

    def unionByName(self, other: Rows) -> Rows:  # noqa: N802 - Spark's name
        return Rows(*self.numbers, *other.numbers)

    def coalesce(self, count: int) -> Any:
        assert count == 1
        return SimpleNamespace(write=SimpleNamespace(parquet=self._write))

    def _write(self, path: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(json.dumps(self.numbers))


SPARK = SimpleNamespace(read=SimpleNamespace(parquet=lambda path: Rows(*json.loads(Path(path).read_text()))))


class Job:
    """Adds numbers up, which are those of the files that are read."""

    name = "job"
    kinds = ("a", "b")

    def __init__(self) -> None:
        self.read: list[dict[str, list[int]]] = []
        self.merged = 0

    def partial(self, tables: Any) -> Rows:
        self.read.append({kind: rows.numbers for kind, rows in tables.items()})
        return Rows(*(number for rows in tables.values() for number in rows.numbers))

    def merge(self, partials: Rows) -> Rows:
        self.merged += 1
        return Rows(sum(partials.numbers))

    def finish(self, partials: Rows) -> Any:
        table = pa.table({"total": [3, 1], "sum": [partials.numbers[0]] * 2})
        return {"sums": SimpleNamespace(toArrow=lambda: table)}


class Case:
    """Two tables of which the test says version, all files, and those that are new."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.job = Job()
        self.versions = {"a": 1, "b": 1}
        self.files = {"a": [1, 2], "b": [10]}
        self.news: Any = {"a": [], "b": []}
        self.root = str(tmp_path)
        monkeypatch.setattr(module, "Table", self._table)
        monkeypatch.setattr(module, "lake_of", lambda _: SimpleNamespace(place=lambda name: name))
        monkeypatch.setattr(module.frames, "read_pieces", lambda spark, table, state, pieces: Rows(*pieces))
        monkeypatch.setattr(Derived, "_news", lambda _, known, states: self.news)

    def _table(self, name: str) -> Any:
        kind = name.removeprefix("p-")
        return SimpleNamespace(
            refresh=lambda: SimpleNamespace(version=self.versions[kind]), pieces=lambda: self.files[kind],
            place=SimpleNamespace(location=name),
        )  # fmt: skip

    def made(self, **params: Any) -> Derived:
        return Derived(self.job, lake="/l", root=self.root, prefix="p-", params=params)  # type: ignore[arg-type]


def test_the_first_run_reads_everything_and_the_next_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path, monkeypatch)
    summary = case.made(x=1).update(SPARK)
    assert case.job.read == [{"a": [1, 2], "b": [10]}]
    assert (summary.version, summary.files_read, summary.is_replay, summary.rows) == (1, 3, True, {"sums": 2})
    assert case.made().state().inputs == {"a": 1, "b": 1}
    case.news, case.versions = {"a": [], "b": [100]}, {"a": 1, "b": 2}
    summary = case.made(x=1).update(SPARK)
    assert case.job.read[1:] == [{"a": [], "b": [100]}]
    assert (summary.version, summary.files_read, summary.is_replay) == (2, 1, False)
    state = case.made().state()
    assert (state.version, state.inputs, state.params) == (2, {"a": 1, "b": 2}, {"x": 1})
    assert case.made().result("sums").to_pylist() == [{"total": 1, "sum": 113}, {"total": 3, "sum": 113}], (
        "in order"
    )
    assert summary.results == {"sums": str(tmp_path / "job" / "results" / "sums.parquet")}
    assert case.job.merged == 2


def test_nothing_new_is_no_commit_but_the_results_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path, monkeypatch)
    case.made().update(SPARK)
    summary = case.made().update(SPARK)
    assert (summary.version, summary.files_read, summary.is_replay, summary.rows) == (
        1,
        0,
        False,
        {"sums": 2},
    )
    assert len(case.job.read) == 1


@pytest.mark.parametrize("why", ["asked for", "rows have changed", "other parameters"])
def test_everything_is_read_again_where_the_partials_say_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    case = Case(tmp_path, monkeypatch)
    case.made(x=1).update(SPARK)
    case.news = None if why == "rows have changed" else case.news
    case.files = {"a": [], "b": []}
    summary = case.made(x=2 if why == "other parameters" else 1).update(SPARK, replay=why == "asked for")
    assert (summary.version, summary.is_replay, summary.files_read) == (2, True, 0)
    assert case.made().result("sums")["sum"].to_pylist() == [0, 0], "nothing of what was before"


def test_a_table_that_was_never_loaded_is_left_out_and_without_any_there_is_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path, monkeypatch)
    case.versions = {"a": 0, "b": 0}
    with pytest.raises(UsageError, match="there is nothing in p-a, p-b"):
        case.made().update(SPARK)
    case.versions = {"a": 0, "b": 1}
    case.made().update(SPARK)
    assert case.job.read == [{"b": [10]}]


def test_of_two_runs_at_once_one_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(tmp_path, monkeypatch)
    one = case.made()
    states: Any = {"a": SimpleNamespace(version=3)}
    assert one._commit(DerivedState(), states, Rows(1)).version == 1
    with pytest.raises(ConflictError, match=r"version 1 of .* was committed by another run"):
        one._commit(DerivedState(), states, Rows(2))
    assert one.state().inputs == {"a": 3}


def test_a_result_is_csv_too_unless_it_has_lists(tmp_path: Path) -> None:
    plain, nested = pa.table({"x": [1, 2]}), pa.table({"x": [1], "y": [[1, 2]]})
    assert [_is_sortable(nested, name) for name in ("x", "y")] == [True, False]
    assert not _is_sortable(pa.table({"z": [{"a": 1}]}), "z")
    write_table(tmp_path / "plain", plain)
    write_table(tmp_path / "nested", nested)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["nested.parquet", "plain.csv", "plain.parquet"]
    assert pc_csv.read_csv(tmp_path / "plain.csv") == plain


# --- files of events --------------------------------------------------------------------------------------------------


def piece_of(name: str, topic_id: str, *, partition: int = 0, start: int = 10, end: int = 20) -> Any:
    def may_have(wanted: int, first: int, last: int) -> bool:
        assert first < last
        return wanted == partition and first < end and start < last

    return SimpleNamespace(path=name, bounds=SimpleNamespace(topic_id=topic_id), may_have=may_have)


@pytest.mark.parametrize(
    ("ranges", "names"),
    [
        ({0: (10, 20)}, ["mine", "any"]),
        ({0: (19, 30), 1: (0, 5)}, ["mine", "any"]),
        ({0: (20, 30)}, []),
        ({0: (0, 10)}, []),
        ({1: (10, 20)}, ["beside"]),
        ({0: (10, 11), 1: (12, 13)}, ["mine", "any", "beside"]),
        ({0: (15, 15)}, []),
        ({}, []),
    ],
)
def test_only_files_that_may_have_the_events_are_read(
    ranges: dict[int, tuple[int, int]], names: list[str]
) -> None:
    pieces = [
        piece_of("mine", "tid"), piece_of("any", ""), piece_of("before", "old"), piece_of("beside", "tid", partition=1),
    ]  # fmt: skip
    found = current._pieces(SimpleNamespace(pieces=lambda: pieces), "tid", ranges)  # type: ignore[arg-type]
    assert [one.path for one in found] == names
