"""The directory of a result: its files for people are those of the newest commit, and files of others stay."""

from __future__ import annotations

from pathlib import Path

from barnabas_pipeline.jobs.results import Results, ResultState


def test_only_results_of_earlier_commits_are_removed(tmp_path: Path) -> None:
    results, shown = Results(tmp_path / "job"), tmp_path / "shown"
    shown.mkdir()
    (shown / "mine.csv").write_text("of a person")
    for version, names in ((1, ("a.csv", "b.csv")), (2, ("b.csv",))):
        directory = results.begin(version)
        for name in names:
            (directory / name).write_text(f"{name} of {version}")
        files = {name: results.below(directory / name) for name in names}
        results.commit(ResultState(version, results=files))
        results.publish(shown)
    assert {one.name: one.read_text() for one in shown.iterdir()} == {
        "mine.csv": "of a person",
        "b.csv": "b.csv of 2",
    }
