"""The lake as an Iceberg table: what stock readers see is what the manifests say, whatever dies and whoever is faster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas_pipeline.decode import Decoder
from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.jobs.compact import FILES_MIN, _plan, merge, vacuum
from barnabas_pipeline.lake import files
from barnabas_pipeline.lake.files import HOUR_MS, HourWriter
from barnabas_pipeline.lake.iceberg import LAST, IcebergOptions, Publisher
from barnabas_pipeline.lake.manifest import BrokenLakeError, DataFile, Manifest, PartitionCommit
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.task import to_table
from barnabas_pipeline.log.columns import HEADERS_TYPE, Columns
from barnabas_pipeline.schema import BUILT_IN, EventSchema, Field

from .conftest import ROOT

SCHEMA = BUILT_IN["logins"]
GROWN = EventSchema("logins", "ts", (*SCHEMA.fields, Field("device", "string")))
BEGAN_MS = 490_000 * HOUR_MS
OPTIONS = IcebergOptions("barnabas.logins")


def catalog(root: Path) -> Any:
    """Opened by pyiceberg alone, as a reader would who knows nothing of us."""
    from pyiceberg.catalog import load_catalog

    lake = root.parent
    return load_catalog(
        "barnabas", type="sql", uri=f"sqlite:///{lake}/iceberg.db", warehouse=f"file://{lake}"
    )


def scan(root: Path, **more: Any) -> list[int]:
    rows = catalog(root).load_table("barnabas.logins").scan(**more).to_arrow()
    return sorted(rows["_offset"].to_pylist())


def summaries(root: Path) -> list[dict[str, str]]:
    table = catalog(root).load_table("barnabas.logins")
    return [one.summary.additional_properties for one in table.snapshots()]


def rows(start: int, count: int, schema: EventSchema = SCHEMA) -> Any:
    """Decoded events, one hour after each ten."""
    offsets = np.arange(start, start + count)
    values = [
        b'{"ts":%d,"member":"m%d","ip":"i","ok":true,"device":"d%d"}' % (BEGAN_MS + n // 10 * HOUR_MS, n, n)
        for n in offsets.tolist()
    ]
    times = BEGAN_MS + offsets // 10 * HOUR_MS
    headers = pa.array([[("kind", b"login")]] * count, HEADERS_TYPE)
    keys = pa.array([b"%d" % n for n in offsets.tolist()], pa.binary())
    columns = Columns(
        offsets, times, np.zeros(count, np.int32), np.zeros(count, np.int32), keys, pa.array(values, pa.binary()), headers
    )  # fmt: skip
    table, bad = to_table(columns, Decoder(schema), "id", 0)
    assert not bad
    return table


def manifest(table: Table, kind: str, schema: EventSchema = SCHEMA) -> Manifest:
    state = table.state()
    return Manifest(
        state.version + 1, kind, "c", "logins", "id", state.digest, {"name": kind}, schema.to_dict()
    )


def load(root: Path, count: int, schema: EventSchema = SCHEMA) -> None:
    """Commit as a load does, without a broker and Spark."""
    table = Table(root)
    start = table.state().ends.get(0, 0)
    made = manifest(table, "load", schema)
    made.partitions["0"] = PartitionCommit(start, start + count, 0, start + count, count, 0, 0, 0, 0)
    writer = HourWriter(root, schema, "id", 0)
    if count:
        writer.write(rows(start, count, schema))
    made.add = writer.close()
    table.commit(made)


def compact(root: Path) -> list[DataFile]:
    """Commit as a compaction does, and return the files that it adds."""
    table = Table(root)
    state = table.state()
    groups = list(_plan(table, state, 128 << 20, FILES_MIN))
    made = manifest(table, "compact", EventSchema.from_dict(state.schema))
    made.add, made.remove = (
        [merge(one) for one in groups],
        [file.path for one in groups for file in one.files],
    )
    table.commit(made)
    return made.add


def publish(root: Path) -> bool:
    return Publisher(Table(root), OPTIONS).publish()


def differences(root: Path) -> list[str]:
    return Publisher(Table(root), OPTIONS).differences()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "logins"


def test_a_snapshot_has_the_rows_of_its_manifest_and_says_which_it_is(root: Path) -> None:
    load(root, 25)
    assert publish(root)
    load(root, 10)
    assert publish(root)
    assert not publish(root), "nothing is published twice"
    assert scan(root) == list(range(35))
    table = catalog(root).load_table("barnabas.logins")
    assert {one.file.file_path for one in table.scan().plan_files()} == {
        f"file://{root}/{path}" for path in Table(root).state().files
    }, "the lake's own files"
    found = summaries(root)
    assert [one["barnabas.manifest-last"] for one in found] == ["1", "2"]
    assert [json.loads(one["barnabas.offsets"]) for one in found] == [
        {"id": {"0": [0, 25]}}, {"id": {"0": [25, 35]}}
    ]  # fmt: skip
    assert found[-1]["barnabas.manifest-sha256"] == Table(root).state().digest
    assert found[-1]["total-records"] == "35"
    assert differences(root) == []


def test_columns_of_all_types_are_read_back(root: Path) -> None:
    load(root, 12)
    publish(root)
    found = (
        catalog(root).load_table("barnabas.logins").scan(row_filter="_offset == 11").to_arrow().to_pylist()
    )
    found[0]["_partition"] = found[0].pop("_topic_partition")
    expected = rows(11, 1).to_pylist()
    assert found[0].pop("_timestamp").timestamp() == expected[0].pop("_timestamp").timestamp()
    assert found == expected
    assert found[0]["_headers"] == [{"key": "kind", "value": b"login"}]
    assert json.loads(found[0]["_extra"]) == {"device": "d11"}


def test_files_of_an_earlier_release_that_have_no_field_ids_are_read_by_names(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(files, "numbered", lambda schema: schema)
        load(root, 10)
    load(root, 10, GROWN)
    publish(root)
    ids = [pq.read_schema(root / path).field("ts").metadata for path in Table(root).state().files]
    assert None in ids
    assert any(ids)
    found = catalog(root).load_table("barnabas.logins").scan().to_arrow().sort_by("_offset")
    assert found["member"].to_pylist() == [f"m{n}" for n in range(20)]
    assert found["_topic_partition"].to_pylist() == [0] * 20
    assert found["device"].to_pylist() == [None] * 10 + [f"d{n}" for n in range(10, 20)]


def test_a_filter_on_the_event_time_opens_only_its_hours(root: Path) -> None:
    load(root, 50)
    publish(root)
    table = catalog(root).load_table("barnabas.logins")
    low = BEGAN_MS + 2 * HOUR_MS
    asked = table.scan(row_filter=f"ts >= {low} and ts < {low + HOUR_MS}")
    assert len(list(asked.plan_files())) == 1 < len(list(table.scan().plan_files()))
    assert sorted(asked.to_arrow()["_offset"].to_pylist()) == list(range(20, 30))


def test_many_manifests_that_were_not_published_become_one_snapshot(root: Path) -> None:
    load(root, 25)
    publish(root)
    for _ in range(3):
        load(root, 5)
    compact(root)
    vacuum_without_iceberg(root)
    load(root, 5)
    assert publish(root)
    assert scan(root) == list(range(45))
    last = summaries(root)[-1]
    assert (last["barnabas.manifest-first"], last["barnabas.manifest-last"]) == ("2", "6")
    assert last["barnabas.kinds"] == "load,compact"
    assert json.loads(last["barnabas.offsets"]) == {"id": {"0": [25, 45]}}
    assert differences(root) == []


def vacuum_without_iceberg(root: Path) -> None:
    for path in Table(root).orphans(0):
        path.unlink()


def test_manifests_without_files_are_snapshots_too(root: Path) -> None:
    load(root, 5)
    publish(root)
    load(root, 0)
    assert publish(root)
    assert [one[LAST] for one in summaries(root)] == ["1", "2"]
    assert scan(root) == list(range(5))


def test_a_schema_that_grows_gives_old_rows_nulls(root: Path) -> None:
    load(root, 10)
    publish(root)
    load(root, 10, GROWN)
    publish(root)
    found = catalog(root).load_table("barnabas.logins").scan().to_arrow().sort_by("_offset")
    assert found["device"].to_pylist() == [None] * 10 + [f"d{n}" for n in range(10, 20)]
    compact(root)
    publish(root)
    again = catalog(root).load_table("barnabas.logins").scan().to_arrow().sort_by("_offset")
    assert again["device"].to_pylist() == found["device"].to_pylist()


def test_a_compaction_changes_files_and_no_rows_and_a_vacuum_respects_old_snapshots(root: Path) -> None:
    for _ in range(4):
        load(root, 15)
        publish(root)
    old = set(Table(root).state().files)
    before = catalog(root).load_table("barnabas.logins").current_snapshot().snapshot_id
    compact(root)
    publish(root)
    assert scan(root) == list(range(60))
    assert set(Table(root).state().files) != old
    with pytest.raises(UsageError, match="--table iceberg"):
        vacuum(str(root), age_seconds=0)
    assert vacuum(str(root), age_seconds=3600, iceberg=OPTIONS) == 0
    assert scan(root, snapshot_id=before) == list(range(60)), "a snapshot that is kept keeps its files"
    assert vacuum(str(root), age_seconds=-1, iceberg=OPTIONS) > len(old - set(Table(root).state().files))
    assert len(summaries(root)) == 1
    assert scan(root) == list(range(60))
    assert differences(root) == []
    load(root, 5)
    publish(root)
    assert scan(root) == list(range(65))


def test_apache_icebergs_own_library_for_java_reads_it(root: Path, iceberg_classpath: str) -> None:
    load(root, 25)
    publish(root)
    load(root, 10, GROWN)
    publish(root)
    compact(root)
    publish(root)
    load(root, 5, GROWN)
    publish(root)
    low = BEGAN_MS + HOUR_MS
    command = [
        "java",
        "-Xmx256m",
        "-cp",
        iceberg_classpath,
        str(Path(__file__).parent / "iceberg" / "Read.java"),
    ]
    done = subprocess.run(
        [*command, str(root.parent), "barnabas.logins", str(low)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[1] for line in lines if line[0] == "manifest"] == ["1", "2", "3", "4"]
    found = sorted((int(line[2]), line[1], line[3], line[4]) for line in lines if line[0] == "row")
    assert found == [(n, "0", f"m{n}", "null" if n < 25 else f"d{n}") for n in range(10, 40)]


# --- others, and crashes ----------------------------------------------------------------------------------------------


def test_of_two_publishers_at_once_one_adds_the_rows(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second has planned the same manifest when the first commits it."""
    load(root, 10)
    publish(root)
    load(root, 10)
    overtaken = Publisher(Table(root), OPTIONS)
    commit, others = overtaken._commit, list[bool]()

    def late(changes: Any) -> None:
        if not others:
            others.append(publish(root))
            load(root, 3)  # and there is more by then
        commit(changes)

    monkeypatch.setattr(overtaken, "_commit", late)
    assert overtaken.publish()
    assert others == [True]
    assert scan(root) == list(range(23))
    assert [(one["barnabas.manifest-first"], one[LAST]) for one in summaries(root)] == [
        ("1", "1"), ("2", "2"), ("3", "3")
    ]  # fmt: skip


def test_two_publishers_that_both_have_staged_a_snapshot(root: Path) -> None:
    """Not even if somebody allows pyiceberg to repeat commits on top of what it has not seen."""
    load(root, 10)
    publish(root)
    table = catalog(root).load_table("barnabas.logins")
    with table.transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "4"})
    load(root, 10)
    first, second = (Publisher(Table(root), OPTIONS) for _ in range(2))
    for one in (first, second):
        assert one._open()
    assert first.publish()
    assert not second.publish(), "the snapshot it had in hand is old, the new one has it all"
    assert scan(root) == list(range(20))


def test_snapshots_of_others_are_looked_through_and_expired_ones_are_remembered(root: Path) -> None:
    load(root, 10)
    publish(root)
    table = catalog(root).load_table("barnabas.logins")
    with table.transaction() as transaction:
        transaction.update_snapshot(snapshot_properties={"who": "somebody"}).fast_append().commit()
    load(root, 10)
    assert publish(root)
    with (table := table.refresh()).transaction() as transaction:
        transaction.update_snapshot(snapshot_properties={"who": "somebody"}).fast_append().commit()
    ids = [one.snapshot_id for one in table.snapshots()][:-1]
    table.maintenance.expire_snapshots().by_ids(ids).commit()
    load(root, 10)
    assert publish(root)
    assert scan(root) == list(range(30))
    assert summaries(root)[-1]["barnabas.manifest-first"] == "3"


def test_a_table_that_was_rolled_back_gets_again_what_it_lacks(root: Path) -> None:
    for _ in range(3):
        load(root, 10)
        publish(root)
    table = catalog(root).load_table("barnabas.logins")
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    assert scan(root) == list(range(10))
    assert publish(root)
    assert scan(root) == list(range(30))


def test_what_others_have_done_to_the_rows_is_told(root: Path) -> None:
    load(root, 15)
    load(root, 5)
    publish(root)
    catalog(root).load_table("barnabas.logins").delete("_offset >= 10")
    assert len([one for one in differences(root) if "lacks" in one]) == 2
    compact(root)
    with pytest.raises(BrokenLakeError, match="drop it in the catalog"):
        publish(root)
    catalog(root).drop_table("barnabas.logins")
    assert publish(root)
    assert scan(root) == list(range(20))
    assert differences(root) == []


def test_an_iceberg_table_of_another_lake_is_refused(root: Path) -> None:
    load(root, 10)
    publish(root)
    other = root.parent / "others"
    load(other, 10)
    with pytest.raises(UsageError, match="is not of"):
        publish(other)
    with pytest.raises(UsageError, match="already"):
        Publisher(Table(root), IcebergOptions("barnabas.second")).publish()
    with pytest.raises(UsageError, match=r"NAMESPACE\.TABLE"):
        Publisher(Table(root), IcebergOptions("logins"))
    with pytest.raises(UsageError, match="catalog"):
        Publisher(Table(root), IcebergOptions("barnabas.logins", "barnabas", (("type", "none"),))).publish()
    broken = (("type", "sql"), ("uri", f"sqlite:///{root}/no/such/dir/x.db"))
    with pytest.raises(IncompleteError, match="unable to open"):
        Publisher(Table(root), IcebergOptions("barnabas.logins", "barnabas", broken)).publish()


def test_a_catalog_of_pyicebergs_configuration_is_used(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    load(root, 10)
    other = root.parent / "other.db"
    for name, value in {"TYPE": "sql", "URI": f"sqlite:///{other}", "WAREHOUSE": f"file://{root}"}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__MINE__{name}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # as a new process reads it
    with pytest.raises(UsageError, match="hierarchical namespaces"):
        Publisher(Table(root), IcebergOptions("many.names.logins", "mine")).publish()
    assert sorted(path.name for path in root.parent.iterdir()) == ["logins", "other.db"]
    assert Publisher(Table(root), IcebergOptions("names.logins", "mine")).publish()
    assert load_catalog("mine").load_table("names.logins").scan().to_arrow().num_rows == 10


def test_a_lake_that_went_back_is_not_taken_for_the_same(root: Path) -> None:
    load(root, 10)
    load(root, 10)
    publish(root)
    (root / "_log" / f"{2:020d}.json").unlink()
    with pytest.raises(BrokenLakeError, match="it has manifest 2, the lake has 1"):
        publish(root)
    load(root, 7)
    with pytest.raises(BrokenLakeError, match="was changed by others, or the lake was"):
        publish(root)
    load(root, 7)
    with pytest.raises(BrokenLakeError, match="its manifest 2 is another one"):
        publish(root)


DYING = """
from pyiceberg.catalog.sql import SqlCatalog
from barnabas_pipeline import faults

class Catalog(SqlCatalog):
    '''Dies when a commit has written its metadata, and names it to nobody.'''

    @staticmethod
    def _write_metadata(metadata, io, metadata_path, *more, **options):
        SqlCatalog._write_metadata(metadata, io, metadata_path, *more, **options)
        if metadata.snapshots:
            faults.POINTS["catalog.before_swap"] = ""
            faults.point("catalog.before_swap")
"""


@pytest.mark.parametrize(
    "point", ["commit.after", "iceberg.before_commit", "catalog.before_swap", "iceberg.after_commit"]
)
@pytest.mark.parametrize("first", [True, False])
def test_a_publisher_that_dies_anywhere_neither_loses_nor_doubles(
    root: Path, point: str, first: bool
) -> None:
    if not first:
        load(root, 10)
        publish(root)
    (root.parent.parent / "dying.py").write_text(DYING)
    code = f"""
from tests.pipeline.test_iceberg import *
root = Path({str(root)!r})
load(root, 10)
properties = {{"py-catalog-impl": "dying.Catalog", "uri": f"sqlite:///{{root.parent}}/iceberg.db"}}
Publisher(Table(root), IcebergOptions("barnabas.logins", properties=tuple(properties.items()))).publish()
"""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [f"{ROOT}/server", f"{ROOT}/pipeline", str(ROOT), str(root.parent.parent)]
        ),
        "BARNABAS_FAULT": point,
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, timeout=120, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    published = publish(root)
    assert published == (point != "iceberg.after_commit")
    total = 10 if first else 20
    assert scan(root) == list(range(total))
    assert [one[LAST] for one in summaries(root)] == [str(n + 1) for n in range(total // 10)]
    assert differences(root) == []
    load(root, 5)
    publish(root)
    assert scan(root) == list(range(total + 5))
    assert vacuum(str(root), age_seconds=-1, iceberg=OPTIONS) >= 0
    assert scan(root) == list(range(total + 5))
    assert not [path for path in Table(root).orphans(-1) if path.name.startswith(".")]
