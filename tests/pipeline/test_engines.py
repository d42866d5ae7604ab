"""Engines that are not ours read a table after all that happens to it: the same counts and sums from each."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from barnabas_pipeline.lake import scan
from barnabas_pipeline.lake.columns import lake_schema
from barnabas_pipeline.lake.iceberg import Place
from barnabas_pipeline.lake.store import local_path
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.vacuum import vacuum

from .conftest import fetched
from .tables import BEGAN_MS, GROWN, compact, load, local_place, stock

Sums = tuple[int, int, int, int]
"""Rows, the sums of their offsets and event times, and how many have a device."""
SQL = "SELECT count(*), sum(_offset), sum(ts), count(device) FROM"
TABLE = "barnabas.barnabas.logins"  # of the catalog barnabas, the namespace barnabas
# What bin/spark-submit would add for Java 17.
OPEN = ("java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.nio", "java.base/java.util",
        "java.base/sun.nio.ch", "java.base/sun.util.calendar", "java.base/java.net", "java.base/java.io",
        "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic", "java.base/sun.security.action",
        "java.base/sun.nio.cs", "java.base/jdk.internal.ref")  # fmt: skip


def of_table(rows: Any) -> Sums:
    devices = rows["device"].length() - rows["device"].null_count
    return rows.num_rows, pc.sum(rows["_offset"]).as_py(), pc.sum(rows["ts"]).as_py(), devices


def ours(place: Place) -> Sums:
    table = Table(place)
    return of_table(pa.concat_tables(scan.rows(table.layout, table.pieces(), lake_schema(GROWN))))


def pyiceberg(place: Place) -> Sums:
    return of_table(stock(place).scan().to_arrow())


def duckdb(place: Place) -> Sums:
    import duckdb

    packages = find_spec("duckdb_ext")
    assert packages is not None
    assert packages.submodule_search_locations is not None
    extensions = (
        Path(next(iter(packages.submodule_search_locations))) / "extensions" / f"v{duckdb.__version__}"
    )
    with duckdb.connect() as connection:
        for name in ("avro", "iceberg"):  # of wheels, as nothing is fetched from DuckDB's own host
            [file] = extensions.glob(f"*/{name}.duckdb_extension")
            connection.execute(f"LOAD '{file}'")
        metadata = local_path(stock(place).metadata_location)
        sums = connection.execute(f"{SQL} iceberg_scan('{metadata}')").fetchone()
    assert sums is not None
    return sums  # type: ignore[no-any-return]


def polars(place: Place) -> Sums:
    import polars as pl

    device, ts, offset = pl.col("device").count(), pl.col("ts").sum(), pl.col("_offset").sum()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # the other one is a package of its own
        scanned = pl.scan_iceberg(stock(place), reader_override="native")
        return scanned.select(pl.len(), offset, ts, device).collect().row(0)  # type: ignore[no-any-return]


def run_spark(place: Place, *statements: str) -> list[list[str]]:
    """Run statements in the newest Spark that Apache Iceberg has a runtime for; returns the rows as text."""
    opened = [word for package in OPEN for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
    program = str(Path(__file__).parent / "spark41" / "Query.java")
    lake = str(local_path(place.location.rpartition("/")[0]))
    command = ["java", "-Xmx700m", *opened, "-cp", f"{fetched('spark-4.1.3', 'spark41')}/*", program, lake]
    done = subprocess.run([*command, *statements], capture_output=True, text=True, timeout=240)
    errors = [line for line in done.stderr.splitlines() if "Exception" in line]
    assert done.returncode == 0, errors or done.stderr[-3000:]
    return [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("row ")]


def spark(place: Place) -> Sums:
    [row] = run_spark(place, f"{SQL} {TABLE}")
    return tuple(map(int, row))  # type: ignore[return-value]


def sums(offsets: set[int]) -> Sums:
    """Sums as they must be: `load` gives ten rows an hour, and a device to those from 50 on."""
    times = sum(BEGAN_MS + n // 10 * 3_600_000 for n in offsets)
    return len(offsets), sum(offsets), times, sum(n >= 50 for n in offsets)


@pytest.mark.parametrize("engine", [ours, pyiceberg, duckdb, polars, spark])
def test_engine_reads_tables_after_each_kind_of_change(place: Place, engine: Callable[[Place], Sums]) -> None:
    is_slow = engine is spark  # and so is asked twice
    for _ in range(2):
        load(place, 25)
    load(place, 10, GROWN)
    assert is_slow or engine(place) == sums(set(range(60))), "after loads"
    compact(place)
    assert is_slow or engine(place) == sums(set(range(60))), "after a compaction"
    assert vacuum(place, age_seconds=-1)
    assert engine(place) == sums(set(range(60))), "after expiry"
    load(place, 10, GROWN)
    stock(place).delete("_offset < 7")
    assert engine(place) == sums(set(range(7, 70))), "after a delete that writes files again"


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A table in which Spark has deleted rows by files of positions, and to which a load has come then."""
    place = local_place(tmp_path_factory.mktemp("marked"))
    load(place, 50)
    load(place, 10, GROWN)
    property_ = "'write.delete.mode'='merge-on-read'"
    run_spark(
        place,
        f"ALTER TABLE {TABLE} SET TBLPROPERTIES ({property_})",
        f"DELETE FROM {TABLE} WHERE _offset IN (3, 17, 55)",
    )
    assert int(stock(place).current_snapshot().summary["added-position-deletes"]) == 3
    load(place, 10, GROWN)
    return place


@pytest.mark.parametrize("engine", [ours, pyiceberg, duckdb, polars, spark])
def test_engine_respects_positional_deletes_of_spark(marked: Place, engine: Callable[[Place], Sums]) -> None:
    assert engine(marked) == sums(set(range(70)) - {3, 17, 55})
