"""The directory of a result: what commits name stays and nothing else; people see the newest, others keep their files."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq
import pytest

from barnabas_pipeline import faults
from barnabas_pipeline.jobs import results as results_module
from barnabas_pipeline.jobs.results import Results, ResultState
from barnabas_pipeline.lake.table import ConflictError
from tests.support.effort import drawing

KEPT = 3


@pytest.fixture
def few_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_module, "COMMITS_KEPT", KEPT)


def write(store: Results, known: ResultState, parts: Iterable[str], names: Iterable[str]) -> ResultState:
    """Write what a run writes: partials of some parts and results, each with a text that nobody else writes."""
    version = known.version + 1
    directory = store.begin(version)
    partials = {}
    for part in parts:
        place = directory / "partials" / f"_part={part}"
        place.mkdir(parents=True)
        (place / "rows").write_text(f"{part} of {directory.name}")
        partials[part] = store.below(place)
    shown = {}
    for name in names:
        place = directory / "results" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{name} of {directory.name}")
        shown[name] = store.below(place)
    return ResultState(version, partials=known.partials | partials, results=shown)


def shown_in(directory: Path) -> dict[str, str]:
    """All that people see there."""
    found = directory.rglob("*")
    return {one.relative_to(directory).as_posix(): one.read_text() for one in found if one.is_file()}


# --- any history -----------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """The same directory as a list: of each commit, the texts that it names."""

    commits: list[dict[str, str]] = field(default_factory=list)
    published: int = 0

    def commit(self, store: Results, state: ResultState) -> None:
        texts = {path: (store.root / path).read_text() for path in state.results.values()}
        texts |= {path: (store.root / path / "rows").read_text() for path in state.partials.values()}
        self.commits.append(texts)


@pytest.mark.usefixtures("few_commits")
@pytest.mark.parametrize("run", range(8))
def test_whatever_runs_do_kept_commits_are_whole_and_nothing_else_is_left(tmp_path: Path, run: int) -> None:
    """Runs at random: one after the other, two from the same state, some that die before or after their commit."""
    draw = drawing(run)
    store, shown, model = Results(tmp_path / "job"), tmp_path / "shown", Model()
    older: list[ResultState] = []
    for _ in range(40):
        known = store.state()
        assert known.version == len(model.commits)
        parts = draw.sample("abcd", draw.randrange(3))
        names = draw.sample(["x.csv", "y.csv", "days/1.csv", "days/2.csv"], draw.randrange(1, 4))
        made = write(store, known, parts, names)
        what = draw.choice(["done", "done", "died", "late"])
        if what == "late" and older:
            late = write(store, draw.choice(older), parts, names)
            with pytest.raises(ConflictError, match=rf"version {late.version} of .* by another run"):
                store.commit(late)
        elif what == "done":
            older.append(known)
            model.commit(store, made)
            store.commit(made)
            assert store.state() == made
            _check_files(store, model, made.version)
        if draw.random() < 0.5 or len(model.commits) - model.published == KEPT - 1:
            store.publish(shown)
            model.published = len(model.commits)
            newest = store.state().results
            assert shown_in(shown) == {name: (store.root / path).read_text() for name, path in newest.items()}


def _check_files(store: Results, model: Model, newest: int) -> None:
    """Look whether all is there that the newest commits name, and of older runs nothing else."""
    named = {path: text for one in model.commits[-KEPT:] for path, text in one.items()}
    there = {
        store.below(one): (one / "rows" if one.is_dir() else one).read_text()
        for one in [
            *store.root.glob("files/*/partials/*"),
            *(one for one in store.root.glob("files/*/results/**/*") if one.is_file()),
        ]
    }
    assert named.items() <= there.items()
    if newest > KEPT:
        runs = {one.name for one in (store.root / "files").iterdir()}
        old = {one for one in runs if int(one.partition("-")[0]) <= newest - KEPT}
        assert {path.split("/")[1] for path in named} >= old, "a run that nobody names has no directory"
        assert {path for path in there.keys() - named.keys() if path.split("/")[1] in old} == set()
        assert len([*(store.root / "commits").iterdir()]) == KEPT


# --- commits ---------------------------------------------------------------------------------------------------------


def test_a_commit_that_another_has_built_on_at_once_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, real = Results(tmp_path), results_module.put_if_absent

    def put(path: Path, data: bytes) -> bool:
        done = real(path, data)
        monkeypatch.undo()
        store.commit(write(store, store.state(), "b", ["x"]))
        return done

    monkeypatch.setattr(results_module, "put_if_absent", put)
    store.commit(write(store, ResultState(), "a", ["x"]))
    assert (store.state().version, [*store.state().partials]) == (2, ["a", "b"])


@pytest.mark.usefixtures("few_commits")
@pytest.mark.parametrize("behind", range(1, 3 * KEPT))
def test_a_run_is_refused_however_many_commits_it_is_behind(tmp_path: Path, behind: int) -> None:
    store = Results(tmp_path)
    store.commit(write(store, ResultState(), "a", ["x"]))
    late = write(store, store.state(), "b", ["x"])
    for _ in range(behind):
        store.commit(write(store, store.state(), "c", ["x"]))
    with pytest.raises(ConflictError):
        store.commit(late)
    assert (store.state().version, [*store.state().partials]) == (1 + behind, ["a", "c"])


@pytest.mark.usefixtures("few_commits")
def test_of_two_that_clean_up_at_the_same_time_neither_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, removed = Results(tmp_path), shutil.rmtree
    for _ in range(KEPT + 1):
        store.commit(write(store, store.state(), "a", ["x", "days/1"]))

    def remove(path: Any, *more: Any, **options: Any) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(results_module, "COMMITS_KEPT", KEPT)
        store.commit(write(store, store.state(), "a", ["x"]))
        removed(path, *more, **options)

    monkeypatch.setattr(shutil, "rmtree", remove)
    store.commit(write(store, store.state(), "a", ["x"]))
    assert store.state().version == KEPT + 3
    assert len([*(tmp_path / "commits").iterdir()]) == KEPT
    store.publish(tmp_path / "shown")


def test_a_commit_that_goes_while_it_is_looked_at_is_none(tmp_path: Path) -> None:
    store = Results(tmp_path / "job")
    store.commit(write(store, ResultState(), "a", ["x"]))
    (tmp_path / "job" / "commits" / f"{0:020d}.json").symlink_to("gone")  # listed, and gone when it is read
    store.publish(tmp_path / "shown")
    assert [*shown_in(tmp_path / "shown")] == ["x"]


# --- files for people ------------------------------------------------------------------------------------------------


def test_only_results_of_earlier_commits_are_removed(tmp_path: Path) -> None:
    results, shown = Results(tmp_path / "job"), tmp_path / "shown"
    shown.mkdir()
    (shown / "mine.csv").write_text("of a person")
    for names in (["a.csv", "b.csv", "days/1.csv"], ["b.csv"]):
        made = write(results, results.state(), "", names)
        results.commit(made)
        results.publish(shown)
    assert shown_in(shown) == {
        "mine.csv": "of a person",
        "b.csv": (results.root / made.results["b.csv"]).read_text(),
    }


def test_results_are_those_of_a_commit_that_comes_while_they_are_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, shown = Results(tmp_path / "job"), tmp_path / "shown"
    store.commit(write(store, ResultState(), "", ["a", "b"]))

    def meanwhile(name: str) -> None:
        if name == "derived.during_publish":
            monkeypatch.undo()
            store.commit(write(store, store.state(), "", ["b", "c"]))
            store.publish(shown)

    monkeypatch.setattr(faults, "point", meanwhile)
    store.publish(shown)
    newest = store.state()
    assert newest.version == 2
    assert shown_in(shown) == {name: (store.root / path).read_text() for name, path in newest.results.items()}


@pytest.mark.parametrize("has_links", [True, False])
def test_results_are_linked_and_copied_where_files_cannot_have_two_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EXDEV, "another file system")

    store, shown = Results(tmp_path / "job"), tmp_path / "shown"
    made = write(store, ResultState(), "", ["a", "days/1"])
    store.commit(made)
    with monkeypatch.context() as patch:
        if not has_links:
            patch.setattr(os, "link", refuse)
        store.publish(shown)
        store.publish(shown)
    for name, path in made.results.items():
        assert (shown / name).samefile(store.path(path)) is has_links
        assert (shown / name).read_text() == Path(store.path(path)).read_text()
    assert sorted(shown_in(shown)) == ["a", "days/1"], "and no temporary file"


# --- tables ----------------------------------------------------------------------------------------------------------


def test_tables_are_sorted_and_those_without_lists_are_read_by_anything(tmp_path: Path) -> None:
    store = Results(tmp_path / "job")
    directory = store.begin(1) / "results"
    plain = pa.table({"a": [2, 1, 1], "b": ["x", "z", "y"]})
    lists = pa.table({"l": [[2], [1]], "a": [2, 1]})
    structs = pa.table({"a": [1], "s": [{"x": 1}]})
    named = store.write_tables(
        [("plain", plain), ("lists", lists), ("days/1", plain), ("structs", structs)], directory
    )
    assert sorted(named) == [
        "days/1.csv", "days/1.parquet", "lists.parquet", "plain.csv", "plain.parquet", "structs.parquet",
    ]  # fmt: skip
    read = {name: pq.read_table(store.path(path)) for name, path in named.items() if name.endswith("parquet")}
    in_order = {"a": [1, 1, 2], "b": ["y", "z", "x"]}
    assert read["plain.parquet"].to_pydict() == read["days/1.parquet"].to_pydict() == in_order
    assert read["lists.parquet"].to_pydict() == {"l": [[1], [2]], "a": [1, 2]}
    assert pc_csv.read_csv(store.path(named["plain.csv"])).to_pydict() == in_order
    store.commit(ResultState(1, results=named))
    assert replace(store.state(), version=0).results == named
