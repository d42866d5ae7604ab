"""A lake of the earlier format becomes a table: the ledger goes on from its manifests, and an audit finds nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas_pipeline import cli
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.jobs.compact import compact as compact_job
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.jobs.loading import load as load_job
from barnabas_pipeline.jobs.migrate import migrate
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.iceberg import Lake, Place
from barnabas_pipeline.lake.ledger import BrokenLakeError
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.vacuum import vacuum

from . import old_lake
from .conftest import Stream
from .stores import BUCKET, FailingS3
from .tables import GROWN, compact, load, local_place, scan, stock, versions
from .test_lake import check, good_events, options, rows_of


def old_of(tmp_path: Path, *, with_ids: bool = True) -> Path:
    """An old lake of a topic with four loads, a compaction, dead letters and a schema that has grown."""
    place = local_place(tmp_path / "made")
    load(place, 15)
    load(place, 10, dead=2)
    compact(place)
    load(place, 5, GROWN, dead=1)
    load(place, 5, GROWN)
    old_lake.make(Table(place), tmp_path / "old" / "logins", with_ids=with_ids)
    return tmp_path / "old" / "logins"


@pytest.mark.parametrize("with_ids", [True, False], ids=["field ids", "as the first releases wrote"])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_table_has_the_rows_and_the_ledger_of_the_old_lake(
    tmp_path: Path, with_ids: bool, in_place: bool
) -> None:
    old = old_of(tmp_path, with_ids=with_ids)
    place = Lake(str(old.parent if in_place else tmp_path / "new")).place("logins")
    summary = migrate(old, place)
    migrated = Table(local_place(tmp_path / "made"))
    assert (summary.version, summary.rows, summary.dead_files, summary.bytes_copied) == (5, 35, 2, 0)
    assert scan(place) == scan(migrated.place)
    assert versions(place) == ["5"]
    assert all(piece.path.startswith(f"file://{old}/data/") for piece in Table(place).pieces()), (
        "no row is copied"
    )
    rows = stock(place).scan().to_arrow().sort_by("_offset")
    assert (
        rows["device"].to_pylist()
        == stock(migrated.place).scan().to_arrow().sort_by("_offset")["device"].to_pylist()
    )
    assert rows["_topic_partition"].to_pylist() == [0] * 35
    table = Table(place)
    assert [entry.kind for entry in table.entries()] == ["load", "load", "compact", "load", "load"]
    manifest = (old / "_log" / f"{2:020d}.json").read_bytes()
    from barnabas_pipeline.lake.ledger import digest

    assert table.entries()[1].job["manifest_sha256"] == digest(manifest)
    before = migrated.state().to_dict()
    assert {**table.state().to_dict(), "dead_version": 0} == {**before, "dead_version": 0}
    assert DeadLetters(table).differences(table.entries()) == []
    load(place, 5, GROWN)
    compact(place)
    assert vacuum(place, age_seconds=-1) > 0
    assert len(scan(place)) == 40
    assert [entry.version for entry in Table(place).entries()] == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(UsageError, match="has 7 commits already"):
        migrate(old, place)


def test_migrated_lake_passes_an_audit_and_a_load_resumes(spark: Any, stream: Stream, tmp_path: Path) -> None:
    loading = options(stream, tmp_path / "made", "logins", offsets_per_commit_max=300)
    loading.selection = type(loading.selection)(ending='{"0": 200, "1": 200, "2": 200}')
    load_job(spark, loading)
    compact_job(spark, str(loading.root))
    old = tmp_path / "old" / "logins"
    old_lake.make(Table(loading.root), old)
    migrate(old, Lake(str(tmp_path / "new")).place("logins"))
    again = LoadOptions(loading.log, str(tmp_path / "new" / "logins"), loading.schema)
    for deep in (False, True):
        report = check(spark, again, deep=deep, seal=False)
        assert report.problems == []
        assert report.rows_compared == report.offsets == 600
    assert load_job(spark, again).loaded > 0
    assert rows_of(spark, again) == good_events(stream, "logins")
    assert check(spark, again).problems == []


def test_a_command_that_meets_an_old_lake_names_migrate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = old_of(tmp_path)
    assert cli.main(["redrive", "--topic", "logins", "--lake", str(old.parent)]) == 4
    output = capsys.readouterr().err
    assert f"barnabas-pipeline migrate --from {old.parent} --lake NEW --topic logins" in output
    arguments = [
        "migrate",
        "--from",
        str(old.parent),
        "--lake",
        str(tmp_path / "new"),
        "--topic",
        "logins",
        "--json",
    ]
    assert cli.main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 35
    assert (
        cli.main(["migrate", "--from", str(tmp_path), "--lake", str(tmp_path / "n"), "--topic", "logins"])
        == 4
    )
    assert "no lake of the earlier format" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["changed", "missing"])
def test_an_old_lake_whose_chain_is_broken_is_refused(tmp_path: Path, how: str) -> None:
    old = old_of(tmp_path)
    path = old / "_log" / f"{2:020d}.json"
    if how == "changed":
        path.write_bytes(path.read_bytes().replace(b'"note": ""', b'"note": "!"'))
    else:
        path.unlink()
    place = Lake(str(tmp_path / "new")).place("logins")
    with pytest.raises(BrokenLakeError, match=r"does not follow|is missing"):
        migrate(old, place)
    assert not Table(place).exists()


@pytest.fixture
def s3() -> Iterator[FailingS3]:
    store = FailingS3()
    yield store
    store.stop()


def test_files_are_copied_into_another_store(s3: FailingS3, tmp_path: Path) -> None:
    old = old_of(tmp_path)
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", **s3.properties}
    place: Place = Lake(f"s3://{BUCKET}/{tmp_path.name}", properties=tuple(properties.items())).place(
        "logins"
    )
    summary = migrate(old, place)
    assert summary.bytes_copied > 0
    for path in [*old.glob("*/*.parquet")]:
        path.unlink()
    assert len(scan(place)) == summary.rows == 35
    table = Table(place)
    files = table.files()
    assert {piece.path for piece in table.pieces()} <= set(files.rows)
    assert vacuum(place, age_seconds=-1) >= 0
    assert len(scan(place)) == 35
