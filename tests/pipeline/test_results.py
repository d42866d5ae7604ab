"""The files of a result: what commits name stays and nothing else; people see the newest, others keep their files."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc_csv
import pytest

from barnabas_pipeline import faults
from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.jobs.results import COMMITS_KEPT, Results, ResultState, results_location
from barnabas_pipeline.lake import store
from barnabas_pipeline.lake.store import StoreIO
from barnabas_pipeline.lake.table import TRIES_MAX, ConflictError
from tests.support.effort import drawing

from .stores import FailingS3, Where
from .using import run_here

KEPT = 3
somewhere = pytest.mark.parametrize("where", ["local", "s3"], indirect=True)
everywhere = pytest.mark.parametrize("where", ["local", "s3", "hdfs"], indirect=True)
POINTS = {"derived.before_commit": False, "derived.after_commit": True, "derived.during_publish": True}
"""Places where a run dies when its partials are there, and whether it has committed by then."""


def results_at(where: Where, commits_kept: int = COMMITS_KEPT, tries_max: int = TRIES_MAX) -> Results:
    return Results(f"{where.location}/job", where.io, commits_kept=commits_kept, tries_max=tries_max)


def write(kept: Results, state: ResultState, parts: Iterable[str], names: Iterable[str]) -> ResultState:
    """Write what a run writes: partials of some parts and results, each with a text of its own."""
    version = state.version + 1
    directory = kept.begin(version)

    def put(name: str) -> str:
        store.write(kept.io, f"{directory}/{name}", f"{name} of {directory}".encode())
        return kept.below(f"{directory}/{name}")

    partials = {part: put(f"partials/{part}.parquet") for part in parts}
    return ResultState(
        version, partials=state.partials | partials, results={name: put(f"results/{name}") for name in names}
    )


def texts_of(kept: Results, paths: Iterable[str]) -> dict[str, bytes]:
    return {path: store.read(kept.io, kept.path(path)) for path in paths}


def named_by(kept: Results, state: ResultState) -> dict[str, bytes]:
    """The results of a commit with their bytes, as people are to see them."""
    return {name: store.read(kept.io, kept.path(path)) for name, path in state.results.items()}


# --- any history -----------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """The same location as a list: of each commit, the texts that it names."""

    commits: list[dict[str, bytes]] = field(default_factory=list)
    published: int = 0


@pytest.mark.parametrize(
    ("where", "steps", "run"),
    [*(("local", 40, run) for run in range(8)), ("s3", 40, 8), ("s3", 40, 9), ("hdfs", 15, 10)],
    indirect=["where"],
)
def test_kept_commits_are_whole_and_other_files_removed(where: Where, steps: int, run: int) -> None:
    """Runs at random: one after the other, two from the same state, some that die before or after their commit."""
    draw = drawing(run)
    kept, shown, model = results_at(where, KEPT), where / "shown", Model()
    older: list[ResultState] = []
    for _ in range(steps):
        state = kept.state()
        assert state.version == len(model.commits)
        parts = draw.sample("abcd", draw.randrange(3))
        names = draw.sample(["x.csv", "y.csv", "days/1.csv", "days/2.csv"], draw.randrange(1, 4))
        old = state.results.keys() - names
        new = write(kept, state, parts, names)
        new.results |= {name: state.results[name] for name in old if name.startswith("days/")}
        what = draw.choice(["done", "done", "died", "late"])
        if what == "late" and older:
            late = write(kept, draw.choice(older), parts, names)
            with pytest.raises(ConflictError, match=rf"version {late.version} of .* by another run"):
                kept.commit(late)
        elif what == "done":
            older.append(state)
            model.commits.append(texts_of(kept, new.paths))
            kept.commit(new)
            assert kept.state() == new
            _check_files(kept, model, new.version)
        if draw.random() < 0.5 or len(model.commits) - model.published == KEPT - 1:
            kept.publish(shown.location)
            model.published = len(model.commits)
            assert shown.all() == named_by(kept, kept.state())


def _check_files(kept: Results, model: Model, newest: int) -> None:
    """Look whether all is there that the newest commits name, and of older runs nothing else."""
    named = {path: text for commit in model.commits[-KEPT:] for path, text in commit.items()}
    there = {kept.below(entry.location) for entry in store.listing(kept.io, kept.path("files"))}
    assert texts_of(kept, named) == named
    if newest > KEPT:
        old = {path for path in there if int(path.split("/")[1].partition("-")[0]) <= newest - KEPT}
        assert old <= named.keys()
        assert len([*store.listing(kept.io, kept.path("commits"))]) == KEPT


@pytest.mark.parametrize("where", ["local"], indirect=True)
def test_a_run_that_nobody_names_has_no_directory(where: Where, tmp_path: Any) -> None:
    kept = results_at(where, KEPT)
    for _ in range(2 * KEPT):
        kept.commit(write(kept, kept.state(), "a", ["x"]))
    assert len([*(tmp_path / "where" / "job" / "files").iterdir()]) == KEPT


# --- commits ---------------------------------------------------------------------------------------------------------


@somewhere
def test_a_commit_that_another_has_built_on_at_once_is_one(
    where: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, real = results_at(where), store.put_if_absent

    def put(*arguments: Any) -> bool:
        done = real(*arguments)
        monkeypatch.undo()
        kept.commit(write(kept, kept.state(), "b", ["x"]))
        return done

    monkeypatch.setattr(store, "put_if_absent", put)
    kept.commit(write(kept, ResultState(), "a", ["x"]))
    assert (kept.state().version, [*kept.state().partials]) == (2, ["a", "b"])


@somewhere
@pytest.mark.parametrize("behind", [1, 2, KEPT - 1, KEPT, KEPT + 1, 2 * KEPT + 1])
def test_a_run_is_refused_however_many_commits_it_is_behind(where: Where, behind: int) -> None:
    kept = results_at(where, KEPT)
    kept.commit(write(kept, ResultState(), "a", ["x"]))
    late = write(kept, kept.state(), "b", ["x"])
    for _ in range(behind):
        kept.commit(write(kept, kept.state(), "c", ["x"]))
    with pytest.raises(ConflictError):
        kept.commit(late)
    assert (kept.state().version, [*kept.state().partials]) == (1 + behind, ["a", "c"])


@everywhere
def test_of_many_who_commit_at_the_same_time_one_has(where: Where) -> None:
    kept = results_at(where)
    words = f"kept = Results({kept.root!r}, StoreIO({kept.io.properties!r}))"
    code = f"""
import sys, threading
from barnabas_pipeline.jobs.results import Results
from barnabas_pipeline.lake.store import StoreIO
from tests.pipeline.test_results import *
{words}
ready, done = threading.Barrier(8), []
def run(number):
    made = write(kept, ResultState(), [str(number)], ["x"])
    ready.wait()
    try:
        kept.commit(made)
        done.append(number)
    except ConflictError:
        pass
threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
[one.start() for one in threads]
[one.join() for one in threads]
assert [str(one) for one in done] == [*kept.state().partials], done
"""
    done = run_here(code)
    assert done.returncode == 0, done.stderr


@everywhere
@pytest.mark.parametrize(("point", "is_committed"), POINTS.items())
def test_a_run_that_dies_has_done_nothing_or_all_of_it(where: Where, point: str, is_committed: bool) -> None:
    kept, shown = results_at(where), where / "shown"
    kept.commit(write(kept, ResultState(), "a", ["x", "y"]))
    kept.publish(shown.location)
    before = shown.all()
    code = f"""
from barnabas_pipeline.jobs.results import Results
from barnabas_pipeline.lake.store import StoreIO
from tests.pipeline.test_results import *
kept = Results({kept.root!r}, StoreIO({kept.io.properties!r}))
kept.commit(write(kept, kept.state(), "b", ["y", "z"]))
kept.publish({shown.location!r})
"""
    done = run_here(code, BARNABAS_FAULT=point)
    assert done.returncode == -signal.SIGKILL, done.stderr
    state = kept.state()
    assert [*state.partials] == (["a", "b"] if is_committed else ["a"])
    now = shown.all()
    assert (now == before) is (point != "derived.during_publish")
    assert all(text in (before.get(name), named_by(kept, state).get(name)) for name, text in now.items())
    kept.publish(shown.location)
    assert shown.all() == named_by(kept, state)
    kept.commit(write(kept, state, "c", ["x"]))
    assert kept.state().version == 2 + is_committed


@pytest.mark.parametrize("what", ["error", "lost", "error after"])
@pytest.mark.parametrize("where", ["s3"], indirect=True)
def test_run_finds_its_commit_after_a_lost_answer(where: Where, s3: FailingS3, what: str) -> None:
    kept, puts = results_at(where), []

    def rule(method: str, path: str) -> str:
        if method != "PUT" or "/commits/" not in path:
            return ""
        puts.append(path)
        return what if len(puts) == 1 else ""

    new = write(kept, ResultState(), "a", ["x"])
    with s3.failing(rule) as failed:
        kept.commit(new)
    assert len(failed) == 1
    assert len(puts) == 2, "it was asked again"
    assert kept.state() == new


@pytest.mark.parametrize("where", ["s3"], indirect=True)
def test_a_store_that_does_not_answer_leaves_all_as_it_was(where: Where, s3: FailingS3) -> None:
    kept = results_at(where, tries_max=2)
    new = write(kept, ResultState(), "a", ["x"])
    with s3.failing(lambda method, path: "error" if method == "PUT" else "") as failed:
        with pytest.raises(IncompleteError, match=r"cannot be reached: OSError: s3://.*503"):
            kept.commit(new)
        with pytest.raises(IncompleteError, match="cannot be reached"):
            kept.write_tables([("t", pa.table({"a": [1]}))], kept.begin(1))
    assert failed
    assert kept.state() == ResultState()
    kept.commit(new)


# --- files for people ------------------------------------------------------------------------------------------------


@somewhere
def test_only_results_of_earlier_commits_are_removed(where: Where) -> None:
    kept, shown = results_at(where), where / "shown"
    shown.write("mine.csv", b"of a person")
    for names in (["a.csv", "b.csv", "days/1.csv"], ["b.csv"]):
        new = write(kept, kept.state(), "", names)
        kept.commit(new)
        kept.publish(shown.location)
    assert shown.all() == {"mine.csv": b"of a person", **named_by(kept, new)}
    assert [*named_by(kept, new)] == ["b.csv"]


@everywhere
def test_publication_ends_with_the_newest_commit(where: Where) -> None:
    kept, shown = results_at(where), where / "shown"
    kept.commit(write(kept, ResultState(), "", ["a", "b"]))

    def meanwhile() -> None:
        kept.commit(write(kept, kept.state(), "", ["b", "c"]))
        kept.publish(shown.location)

    with faults.acting("derived.during_publish", meanwhile):
        kept.publish(shown.location)
    newest = kept.state()
    assert newest.version == 2
    assert shown.all() == named_by(kept, newest)


@somewhere
def test_late_publication_is_replaced_by_the_next(where: Where) -> None:
    kept, shown = results_at(where, KEPT), where / "shown"
    first = write(kept, ResultState(), "", ["days/1"])
    kept.commit(first)
    for n in range(KEPT + 1):
        new = write(kept, kept.state(), "", ["x"])
        new.results |= {"days/1": first.results["days/1"]}
        kept.publish(shown.location)
        assert shown.read("days/1") == named_by(kept, first)["days/1"], n
        shown.write("days/1", b"of a run that was overtaken")
        kept.commit(new)
    kept.publish(shown.location)
    assert shown.read("days/1") == b"of a run that was overtaken"
    assert shown.read("x") == named_by(kept, new)["x"]


@pytest.mark.parametrize("where", ["local", "s3"], indirect=True)
def test_failed_publication_is_repeated_later(where: Where, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, shown, real = results_at(where, KEPT), where / "shown", store.replace
    kept.commit(write(kept, ResultState(), "", ["days/1", "days/2"]))
    kept.publish(shown.location)

    def refuse(files: StoreIO, location: str, data: bytes) -> None:
        if location.endswith("/days/1"):
            raise OSError("refused")
        real(files, location, data)

    changed = write(kept, kept.state(), "", ["days/1"])
    changed.results |= {"days/2": kept.state().results["days/2"]}
    kept.commit(changed)
    monkeypatch.setattr(store, "replace", refuse)
    for _ in range(KEPT + 2):
        with pytest.raises(IncompleteError, match="the place of results cannot be reached: OSError: refused"):
            kept.publish(shown.location)
        new = write(kept, kept.state(), "", ["x"])
        new.results |= changed.results
        kept.commit(new)
    monkeypatch.undo()
    kept.publish(shown.location)
    assert shown.all() == named_by(kept, kept.state())


# --- tables ----------------------------------------------------------------------------------------------------------


@somewhere
def test_tables_are_sorted_and_plain_ones_written_as_csv(where: Where) -> None:
    kept = results_at(where)
    plain = pa.table({"a": [2, 1, 1], "b": ["x", "z", "y"]})
    lists = pa.table({"l": [[2], [1]], "a": [2, 1]})
    structs = pa.table({"a": [1], "s": [{"x": 1}]})
    named = kept.write_tables(
        [("plain", plain), ("lists", lists), ("days/1", plain), ("structs", structs)],
        f"{kept.begin(1)}/results",
    )
    assert sorted(named) == [
        "days/1.csv", "days/1.parquet", "lists.parquet", "plain.csv", "plain.parquet", "structs.parquet",
    ]  # fmt: skip
    read = {name: kept.read_table(path) for name, path in named.items() if name.endswith("parquet")}
    in_order = {"a": [1, 1, 2], "b": ["y", "z", "x"]}
    assert read["plain.parquet"].to_pydict() == read["days/1.parquet"].to_pydict() == in_order
    assert read["lists.parquet"].to_pydict() == {"l": [[1], [2]], "a": [1, 2]}
    assert (
        pc_csv.read_csv(io.BytesIO(store.read(kept.io, kept.path(named["plain.csv"])))).to_pydict()
        == in_order
    )
    kept.commit(ResultState(1, results=named))
    assert replace(kept.state(), version=0).results == named


# --- stores ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ftp://host/x", "oss://bucket/x", "viewfs://x/y", "http://h/x"])
def test_a_store_that_cannot_keep_results_is_a_wrong_option(name: str) -> None:
    with pytest.raises(UsageError, match=r"results are kept in a directory, or in abfs, .*hdfs.*, s3, "):
        results_location(name)
