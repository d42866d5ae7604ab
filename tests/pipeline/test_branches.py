"""Loads into a branch, which readers see once it was audited and published, and tags of runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from barnabas_pipeline import cli, faults
from barnabas_pipeline.errors import DataLossError, IncompleteError, UsageError
from barnabas_pipeline.jobs import branches
from barnabas_pipeline.jobs.audit import audit, raise_if_lossy
from barnabas_pipeline.jobs.backfill import backfill
from barnabas_pipeline.jobs.branches import PublishSummary
from barnabas_pipeline.jobs.compact import compact
from barnabas_pipeline.jobs.erase import erase
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.jobs.loading import load
from barnabas_pipeline.lake.ledger import HOUR_MS
from barnabas_pipeline.lake.store import local_path
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.vacuum import vacuum
from barnabas_pipeline.schema import EventSchema

from .cells import BAD, Cell, compared
from .tables import BEGAN_MS, GROWN, SCHEMA, local_place, stock
from .test_engines import duckdb, run_spark
from .topics import Here, Topic, login

ALL = [n for n in range(12) if n != BAD]


@pytest.fixture(params=["local", "rest"])
def cell(request: pytest.FixtureRequest, tmp_path: Path) -> Cell:
    """A table of three loads, in each kind of catalog."""
    if request.param == "local":
        return Cell.made(tmp_path)
    from barnabas_pipeline.lake.iceberg import Lake

    served = request.getfixturevalue("rest_catalog")
    place = Lake(f"{tmp_path}/lake", properties=tuple(sorted(served.properties.items()))).place("logins")
    return Cell.made(tmp_path, place, served.database)


def staged(cell: Cell, **more: object) -> LoadOptions:
    """The options of a load into a branch."""
    return replace(cell.options, root=replace(cell.place, branch="staged"), **more)


def load_more(cell: Cell, options: LoadOptions, *values: bytes) -> None:
    cell.topic.append(*(values or (login(0), b"no JSON", login(1))))
    load(Here(), options)


def publish(options: LoadOptions, **more: str) -> PublishSummary:
    return branches.publish(Here(), options, comparing=compared, **more)  # type: ignore[arg-type]


def seen(cell: Cell, ref: str = "main") -> list[int]:
    """The offsets that pyiceberg alone sees on a branch or at a tag."""
    scanned = cell.iceberg.scan().use_ref(ref) if ref != "main" else cell.iceberg.scan()
    return sorted(scanned.to_arrow()["_offset"].to_pylist())


def letters(cell: Cell) -> int:
    catalog = Table(cell.place).catalogs.of(cell.place)
    return int(catalog.load_table(f"{cell.place.name}__dead").scan().to_arrow().num_rows)


def test_branch_is_seen_once_it_is_published(cell: Cell) -> None:
    options = staged(cell)
    load_more(cell, options)
    load_more(cell, options)
    on_branch = [*ALL, 12, 14, 15, 17]
    assert (seen(cell), seen(cell, "staged"), cell.offsets()) == (ALL, on_branch, ALL)
    assert Table(cell.place).state().ends == {0: 12}
    assert Table(options.root).state().ends == {0: 18}
    assert letters(cell) == 1, "dead letters of a branch are not seen either"
    summary = publish(options, tag="released")
    assert (summary.version, summary.loaded, summary.dead) == (5, 15, 3)
    assert (seen(cell), seen(cell, "released"), letters(cell)) == (on_branch, on_branch, 3)
    assert [*cell.iceberg.refs()] == ["main", "released"], "the branch has ended"
    cell.load()
    cell.audit()
    load_more(cell, options)
    assert publish(options).offsets == 25, "the next one begins at main"


def test_branch_that_is_not_exact_is_not_published(cell: Cell) -> None:
    options = staged(cell)
    load_more(cell, options)
    [file] = [file for file in Table(options.root).entries(3)[0].add if file.hours == [BEGAN_MS // HOUR_MS]]
    path = local_path(file.path)
    assert path is not None
    path.unlink()
    with pytest.raises(DataLossError, match="is missing: 1 rows"):
        publish(options)
    assert (seen(cell), cell.iceberg.refs().keys()) == (ALL, {"main", "staged"})


def test_branch_of_an_older_main_is_refused_and_dropped(cell: Cell) -> None:
    options = staged(cell)
    load_more(cell, options)
    load(Here(), cell.options)  # the same offsets, into main
    with pytest.raises(UsageError, match="main has moved since: publish --drop"):
        publish(options)
    dropped = branches.drop(options.root)
    assert (dropped.branch, [*cell.iceberg.refs()]) == ("staged", ["main"])
    load_more(cell, options)
    publish(options)
    cell.audit()
    with pytest.raises(UsageError, match="has no branch staged"):
        branches.drop(options.root)
    with pytest.raises(UsageError, match="has no branch staged"):
        publish(options)


@pytest.mark.parametrize("moved", ["branch", "main"])
def test_what_moves_during_an_audit_is_not_published(cell: Cell, moved: str) -> None:
    options = staged(cell)
    load_more(cell, options)

    def move() -> None:
        load_more(cell, options if moved == "branch" else cell.options)

    with faults.acting("publish.before_commit", move), pytest.raises(IncompleteError):
        publish(options)
    assert "staged" in cell.iceberg.refs()
    if moved == "branch":
        assert publish(options).offsets == 18
    cell.audit()


def test_new_table_is_published_from_its_branch(tmp_path: Path) -> None:
    topic = Topic(tmp_path / "data")
    topic.append(login(0), login(1))
    options = LoadOptions(topic.options, replace(local_place(tmp_path), branch="staged"), SCHEMA)
    load(Here(), options)
    assert stock(options.root).scan().to_arrow().num_rows == 0  # type: ignore[arg-type]
    assert Table(local_place(tmp_path)).state().version == 0
    publish(options)
    assert sorted(stock(options.root).scan().to_arrow()["_offset"].to_pylist()) == [0, 1]  # type: ignore[arg-type]
    load(Here(), replace(options, root=local_place(tmp_path)))
    raise_if_lossy(audit(Here(), options, now_ms=0, lateness_ms=0, comparing=compared))


def test_other_jobs_work_on_a_branch_alone(cell: Cell) -> None:
    options = staged(cell, schema=GROWN)
    load_more(cell, options, login(0, "m12", device="d"))
    place = options.root
    backfill(Here(), options, from_ms=BEGAN_MS, to_ms=BEGAN_MS + HOUR_MS, reason="")  # type: ignore[arg-type]
    assert compact(Here(), place).files_after == 2  # type: ignore[arg-type]
    assert erase(place, "member = 'm5'").rows == 1
    assert cell.offsets() == ALL
    assert stock(cell.place).snapshot_by_name("staged").summary.operation.value == "overwrite"
    assert publish(options).loaded == 11
    assert seen(cell) == [n for n in [*ALL, 12] if n != 5]
    assert EventSchema.from_dict(Table(cell.place).state().schema) == GROWN


def test_vacuum_keeps_what_a_branch_has(cell: Cell) -> None:
    options = staged(cell)
    load_more(cell, options)
    load_more(cell, options)
    erase(options.root, "_offset = 0")
    vacuum(cell.place, age_seconds=-1)
    raise_if_lossy(audit(Here(), options, now_ms=0, lateness_ms=0, seal=False, comparing=compared))
    publish(options)
    cell.audit()
    with pytest.raises(UsageError, match="not with --branch"):
        vacuum(options.root, age_seconds=0)


def test_publisher_that_dies_has_published_all_or_nothing(cell: Cell) -> None:
    for point, is_published in (("publish.before_commit", False), ("publish.after_commit", True)):
        options = staged(cell)
        load_more(cell, options)
        before = letters(cell)

        def die() -> None:
            raise KeyboardInterrupt

        with faults.acting(point, die), pytest.raises(KeyboardInterrupt):
            publish(options)
        assert ("staged" in cell.iceberg.refs()) is not is_published
        if not is_published:
            publish(options)
        cell.load()
        assert letters(cell) == before + 1, "the next load publishes dead letters"
        cell.audit()


def test_tag_names_the_last_commit_of_a_run(cell: Cell) -> None:
    options = replace(cell.options, tag="nightly", offsets_per_commit_max=2)
    load_more(cell, options, *(login(0) for _ in range(5)))
    tagged = [*ALL, *range(12, 17)]
    assert seen(cell, "nightly") == tagged
    assert Table(cell.place).state().version == 6
    cell.load()
    assert seen(cell, "nightly") == tagged
    cell.topic.append(login(0))
    with pytest.raises(UsageError, match=r"--tag nightly: .* has it already, of another run"):
        load(Here(), replace(options, job_id="another"))
    with pytest.raises(UsageError, match="has it already"):
        load_more(cell, staged(cell, tag="main"))
    vacuum(cell.place, age_seconds=-1)
    assert seen(cell, "nightly") == tagged


def test_name_of_a_tag_is_no_branch(cell: Cell) -> None:
    load_more(cell, replace(cell.options, tag="nightly"))
    with pytest.raises(UsageError, match="nightly is a tag of table"):
        load(Here(), replace(cell.options, root=replace(cell.place, branch="nightly")))


def test_duckdb_and_spark_see_branches_as_they_are(tmp_path: Path) -> None:
    cell = Cell.made(tmp_path)
    options = staged(cell)
    load_more(cell, replace(options, schema=GROWN))
    assert duckdb(cell.place)[0] == len(ALL)
    count = "SELECT count(*) FROM barnabas.barnabas.logins"
    [[main], [branch]] = run_spark(cell.place, count, f"{count} VERSION AS OF 'staged'")
    assert (int(main), int(branch)) == (len(ALL), len(ALL) + 2)
    publish(replace(options, schema=GROWN), tag="released")
    assert duckdb(cell.place)[0] == len(ALL) + 2
    [[main], [tagged]] = run_spark(cell.place, count, f"{count} VERSION AS OF 'released'")
    assert (int(main), int(tagged)) == (len(ALL) + 2, len(ALL) + 2)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["load", "--branch", "staged", "--keep-snapshots", "5", "--log-dir", "DATA"], "not with --branch"),
        (["publish", "--log-dir", "DATA"], "say by --branch what is published"),
        (["publish", "--branch", "none", "--log-dir", "DATA"], "has no branch none"),
        (["publish", "--branch", "main", "--drop"], "has no branch main that could be dropped"),
    ],
)
def test_wrong_options_of_branches_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], told: str
) -> None:
    cell = Cell.made(tmp_path)
    job, *more = [word.replace("DATA", str(cell.topic.directory)) for word in command]
    assert cli.main([job, "--topic", "logins", "--lake", str(tmp_path / "lake"), *more]) == 4
    captured = capsys.readouterr()
    assert told in captured.err
    assert len(captured.err.splitlines()) == 1
