"""Results of increments: what came since, exactly once, whatever is killed, at a cost that does not grow with the table."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as sf

from barnabas_pipeline import faults
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.jobs import monitor, rank, results, security
from barnabas_pipeline.jobs.compact import compact
from barnabas_pipeline.jobs.derived import Derived, DerivedJob
from barnabas_pipeline.jobs.feed import Feed
from barnabas_pipeline.jobs.report import report
from barnabas_pipeline.jobs.results import Results
from barnabas_pipeline.jobs.visitors import Visitors
from barnabas_pipeline.lake.iceberg import Lake
from barnabas_pipeline.lake.ledger import HOUR_MS
from barnabas_pipeline.lake.store import StoreIO
from barnabas_pipeline.lake.table import ConflictError
from barnabas_pipeline.lake.vacuum import vacuum
from barnabas_pipeline.simulate.model import DAY_MS, Event, Simulation, Site
from tests.pipeline.stores import Where
from tests.pipeline.test_faults import run_cli
from tests.pipeline.written import append

START_MS = 1_700_000_000_000 // DAY_MS * DAY_MS
SITE = Site(seed=5, events=3_000, start_ms=START_MS, hours=60.0, members=60, items=40, late_hours_max=30.0)
DAYS = ("2023-11-14", "2023-11-15", "2023-11-16")
somewhere = pytest.mark.parametrize("where", ["local", "s3"], indirect=True)
POINTS = [name for name in faults.POINTS if name.startswith("derived.")]


class Killed(BaseException):
    """Ends a run where it is."""


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return Simulation(SITE)


@pytest.fixture(scope="module")
def events(simulation: Simulation) -> list[Event]:
    return simulation.events()


def jobs(simulation: Simulation) -> list[Any]:
    follows = simulation.truth.follows
    return [rank.Rank(), Feed(follows), security.Security(), monitor.Monitor(window_ms=600_000), Visitors()]


def published(root: Where) -> dict[str, bytes]:
    names = (
        name for name in root.names() if not {"files", "commits", "published", "_days"} & {*name.split("/")}
    )
    return {name: root.read(name) for name in names}


def derived(job: Any, lake: Path, root: Where, **more: Any) -> Derived:
    return Derived(job, lake=lake_for(lake, root), root=root.location, **more)


def lake_for(lake: Path, root: Where) -> Lake:
    """A lake on this machine with the properties of another store, too."""
    return Lake(str(lake), properties=tuple(root.io.properties.items()))


def update(spark: Any, job: Any, lake: Path, root: Where, **more: Any) -> Any:
    return derived(job, lake, root).update(spark, **more)


@pytest.fixture
def out(tmp_path: Path) -> Where:
    """A directory for results."""
    return Where(f"file://{tmp_path}/out", StoreIO({}))


def portions(events: list[Event], count: int) -> Iterator[list[Event]]:
    size = -(-len(events) // count)
    return (events[at : at + size] for at in range(0, len(events), size))


@somewhere
def test_killed_increments_give_the_result_of_one_run(
    spark: Any,
    simulation: Simulation,
    events: list[Event],
    tmp_path: Path,
    where: Where,
    out: Where,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The results of one run are in a directory, those of many also in another store: they are the same bytes."""
    first = random.randrange(len(POINTS))
    print(f"begins with {POINTS[first]}")
    lake, point = tmp_path / "lake", ""

    def die(name: str) -> None:
        if name == point:
            raise Killed

    monkeypatch.setattr(faults, "point", die)
    killed: list[str] = []
    for n, portion in enumerate(portions(events, 3)):
        append(lake, portion)
        for m, job in enumerate(jobs(simulation)):
            if (n + m) % 2:
                point = POINTS[(len(killed) + first) % len(POINTS)]
                with pytest.raises(Killed):
                    update(spark, job, lake, where)
                killed.append(point)
                point = ""
            done = update(spark, job, lake, where)
            assert not done.is_replay or n == 0
        for day in DAYS[:2] if n == 1 else ():
            report(spark, lake=lake_for(lake, where), out=where.location, day=day, partial=True)
    assert {*killed} == {*POINTS}
    for job in jobs(simulation):
        assert update(spark, job, lake, out).is_replay
    for day in DAYS:
        again = report(spark, lake=lake_for(lake, where), out=where.location, day=day, partial=True)
        once = report(spark, lake=str(lake), out=out.location, day=day, partial=True)
        assert again.rows == once.rows
        assert again.rows_read < once.rows_read or day == DAYS[2]
    steps, whole = published(where), published(out)
    assert steps == whole
    assert {"monitor/results/rollups/2023-11-15.csv", "2023-11-15-partial/top_items.csv"} <= {*steps}
    seen = pq.read_table(pa.BufferReader(steps["visitors/results/visitors.parquet"]))
    assert sum(seen["views"].to_pylist()) == sum(event.kind == "profiles" for event in events)


@somewhere
def test_a_killed_process_neither_loses_nor_doubles(
    spark: Any, events: list[Event], tmp_path: Path, where: Where, out: Where
) -> None:
    lake, once = tmp_path / "lake", tmp_path / "once"
    once.mkdir()
    watched = [event for event in events if event.kind in ("metrics", "logs")]
    words = ["monitor", "--lake", str(lake), "--out", where.location, "--window", "600", "--json"]
    for name, value in where.io.properties.items():
        words += ["--catalog-property", f"{name}={value}"]
    spark_words = ["--master", "local[2]", "--conf", "spark.driver.memory=512m"]
    for name, portion in zip(POINTS, portions(watched, len(POINTS)), strict=True):
        append(lake, portion)
        done = run_cli(*words, *spark_words, fault=name, once=once)
        assert done.returncode == -signal.SIGKILL, f"{name}:\n{done.stderr[-2000:]}"
    job = monitor.Monitor(window_ms=600_000)
    update(spark, job, lake, where)
    update(spark, job, lake, out)
    assert published(where) == published(out)
    rollups = derived(job, lake, where).result("rollups")
    assert sum(rollups["count"].to_pylist()) == len(watched), "each event is in one window"


# --- cost -----------------------------------------------------------------------------------------------------------


def days_of(events: list[Event], count: int) -> list[Event]:
    """Repeat a day's events on other days."""
    of_day = [event for event in events if START_MS <= event.ts < START_MS + DAY_MS]
    return [
        Event(event.ts + n * DAY_MS, event.delivered + n * DAY_MS, event.kind, event.key,
              event.fields | {"ts": event.ts + n * DAY_MS})
        for n in range(count) for event in of_day
    ]  # fmt: skip


def test_reads_of_a_run_grow_with_new_events_only(
    spark: Any, simulation: Simulation, events: list[Event], tmp_path: Path, out: Where
) -> None:
    costs = []
    for days in (2, 8):
        lake, found_in = tmp_path / f"lake{days}", out / str(days)
        lasting = days_of(events, days + 1)
        last = START_MS + days * DAY_MS + 20 * HOUR_MS
        append(lake, [event for event in lasting if event.ts < last])
        for job in jobs(simulation):
            update(spark, job, lake, found_in)
        append(lake, [event for event in lasting if event.ts >= last])
        updates = [update(spark, job, lake, found_in) for job in jobs(simulation)]
        costs.append({
            job.name: (done.rows_read, done.files_read, done.partials_read, done.parts)
            for job, done in zip(jobs(simulation), updates, strict=True)
        })  # fmt: skip
        assert not any(done.is_replay for done in updates)
        assert all(0 < done.rows_read < 600 for done in updates), updates
    assert costs[0] == costs[1]
    assert costs[1]["monitor"][3] == costs[1]["security"][3] == 1, "the last day alone is made again"


def test_partition_without_news_is_skipped(spark: Any, tmp_path: Path, out: Where) -> None:
    def seen(ts: int, member: str, visitor: str) -> Event:
        fields = {"ts": START_MS + ts, "member": member, "visitor": visitor}
        return Event(START_MS + ts, START_MS + ts, "profiles", member, fields)

    lake = tmp_path / "lake"
    append(lake, [seen(n, f"m{n % 9}", f"v{n % 2}") for n in range(36)])
    assert update(spark, Visitors(), lake, out).parts == 3
    append(lake, [seen(100, "m1", "v0"), seen(101, "m1", "v7")])
    done = update(spark, Visitors(), lake, out)
    assert (done.parts, done.rows_read) == (1, 2)
    rows = {row.pop("member"): row for row in
            derived(Visitors(), lake, out).result("visitors").to_pylist()}  # fmt: skip
    assert rows["m1"] == {"views": 6, "visitors": 3, "last": START_MS + 101}
    assert rows["m2"] == {"views": 4, "visitors": 2, "last": START_MS + 29}
    append(lake, [seen(102, f"m{n}", "v0") for n in range(9)], partitions=5)
    with pytest.raises(UsageError, match=r"is in partitions .*--rekeyed"):
        update(spark, Visitors(), lake, out)
    assert update(spark, Visitors(rekeyed=True), lake, out).is_replay
    rows = {row["member"]: row["views"] for row in
            derived(Visitors(), lake, out).result("visitors").to_pylist()}  # fmt: skip
    assert rows == {f"m{n}": 5 + 2 * (n == 1) for n in range(9)}


class ByVisitor(DerivedJob):
    """Counts by a name that is also the part."""

    name = "by_visitor"
    kinds = ("profiles",)

    def partial(self, tables: Mapping[str, Any]) -> Any:
        named = sf.when(tables["profiles"].visitor == "nothing", sf.lit("")).otherwise(
            tables["profiles"].visitor
        )
        return tables["profiles"].groupBy(named.alias("visitor")).count()

    def part(self) -> Any:
        return sf.when(sf.col("visitor") != "null", sf.col("visitor"))

    def by_part(self, partials: Any) -> Mapping[str, Any]:
        return {"counts": partials.select("part", "visitor", "count")}

    def finish(self, condensed: Any) -> Mapping[str, Any]:
        return {"all": condensed.select("visitor", "count")}


@pytest.mark.parametrize("where", ["local", "s3", "hdfs"], indirect=True)
def test_a_part_may_have_any_name_and_none(spark: Any, tmp_path: Path, where: Where, out: Where) -> None:
    lake = tmp_path / "lake"
    names = ["nothing", "null", "none", "a/b", "..", "x=1 y%2F", "ä"]
    for n in range(3):
        seen = [(START_MS + n, {"ts": START_MS + n, "member": "m", "visitor": id_}) for id_ in names[: 7 - n]]
        append(lake, [Event(at, at, "profiles", "m", fields) for at, fields in seen])
        update(spark, ByVisitor(), lake, where)
    expected = {"" if name == "nothing" else name: min(7 - n, 3) for n, name in enumerate(names)}
    results = derived(ByVisitor(), lake, where)
    for result in ("all", "counts"):
        rows = results.result(result).to_pylist()
        assert {row["visitor"]: row["count"] for row in rows} == expected
        assert len(rows) == len(expected)
    update(spark, ByVisitor(), lake, out)
    assert published(where) == published(out)
    assert {name for name in (where / "by_visitor/results/counts").names() if name.endswith("csv")} == {
        "none.csv", "a%2Fb.csv", "...csv", "x%3D1%20y%252F.csv", "%C3%A4.csv",
    }  # fmt: skip


@somewhere
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_parts_have_values_of_each_type_as_they_were(spark: Any, where: Where, zone: str) -> None:
    kept = Results(where.location, where.io)
    frame = spark.range(30_000).selectExpr(
        "concat('p', cast(id % 3 as string)) as part", "id", "cast(id as string) as text", "id % 2 = 0 as flag",
        "cast(id as decimal(20, 3)) / 7 as exact", "id / 7 as fraction", "timestamp_millis(id * 1000000000) as at",
        "timestamp_ntz'2024-01-01 00:00:00' as there", "date_add(date'2024-01-01', cast(id as int)) as day",
        "array(id, null) as several", "named_struct('a', id, 'b', array(named_struct('c', text))) as nested",
        "map(text, id) as mapped", "cast(text as binary) as bytes", "if(id > 9, null, id) as few",
        "cast(null as string) as no",
    )  # fmt: skip
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        named = kept.write_parts(frame, kept.begin(1))
        again = kept.read_parts(spark, named, frame.schema)
        assert again.schema.simpleString() == frame.schema.simpleString()
        rows, expected = (either.orderBy("id").toArrow() for either in (again, frame))
        assert rows.equals(expected.cast(rows.schema))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert sorted(named) == ["p0", "p1", "p2"]
    assert [kept.rows(path) for path in named.values()] == [10_000] * 3
    wider = spark.createDataFrame([], "part string, id bigint, added struct<a: bigint>").schema
    collected = kept.read_parts(spark, {"p1": named["p1"]}, wider).orderBy("id").limit(2).collect()
    assert [(row.part, row.id, row.added) for row in collected] == [("p1", 1, None), ("p1", 4, None)]
    assert kept.read_parts(spark, {}, wider).count() == 0
    assert kept.write_parts(frame.where("false"), kept.begin(2)) == {}


# --- commits --------------------------------------------------------------------------------------------------------


@somewhere
def test_of_two_runs_one_wins_and_what_nobody_names_goes(
    spark: Any, events: list[Event], tmp_path: Path, where: Where
) -> None:
    lake = tmp_path / "lake"
    shares = list(portions([event for event in events if event.kind == "profiles"], 6))
    append(lake, shares[0])

    def overtake() -> None:
        update(spark, Visitors(), lake, where)

    with (
        faults.acting("derived.before_commit", overtake),
        pytest.raises(ConflictError, match="by another run"),
    ):
        update(spark, Visitors(), lake, where)
    for share in shares[1:]:
        append(lake, share)
        derived(Visitors(), lake, where, commits_kept=2).update(spark)
    compact(spark, Lake(str(lake)).place("profiles"))
    vacuum(Lake(str(lake)).place("profiles"), age_seconds=0)
    done = derived(Visitors(), lake, where, commits_kept=2).update(spark)
    assert (done.files_read, done.is_replay) == (0, False), "a compaction brings nothing"
    kept = where / "visitors"
    assert derived(Visitors(), lake, where).store.state().inputs == {"profiles": 7}
    commits = [json.loads(text) for text in (kept / "commits").all().values()]
    assert len(commits) == 2
    named = {path for commit in commits for path in results.ResultState(**commit).paths}
    there = {f"files/{name}" for name in (kept / "files").names()}
    assert named <= there
    assert all(int(path.split("/")[1].partition("-")[0]) > 5 for path in there - named), "but for the newest"


def test_other_rules_judge_what_was_counted_before(
    spark: Any, events: list[Event], tmp_path: Path, out: Where
) -> None:
    lake = tmp_path / "lake"
    append(lake, events)
    update(spark, security.Security(), lake, out)
    strict = security.Security(replace(security.Rules(), login_failures=1))
    done = update(spark, strict, lake, out)
    assert (done.files_read, done.is_replay) == (0, False)
    update(spark, strict, lake, out / "whole")
    assert published(out / "security") == published(out / "whole/security")
