"""The jobs on top of the lake: compaction, redriving, backfilling; results that do not depend on the way."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from barnabas_pipeline import schema
from barnabas_pipeline.cli import main
from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.jobs import monitor, rank, security, visitors
from barnabas_pipeline.jobs.backfill import backfill
from barnabas_pipeline.jobs.compact import compact
from barnabas_pipeline.jobs.derived import Derived
from barnabas_pipeline.jobs.feed import Feed
from barnabas_pipeline.jobs.follow import Follower, load
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.jobs.publish import publish
from barnabas_pipeline.jobs.redrive import redrive
from barnabas_pipeline.jobs.report import report
from barnabas_pipeline.jobs.triggers import AVAILABLE
from barnabas_pipeline.lake import frames
from barnabas_pipeline.lake.ledger import hour_name
from barnabas_pipeline.lake.store import StoreIO, local_path
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.vacuum import vacuum
from barnabas_pipeline.schema import EventSchema, Field
from barnabas_pipeline.simulate.model import KINDS

from .conftest import SITE, Stream
from .test_lake import check, good_events, options, rows_of

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def lake(spark: Any, stream: Stream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All topics of the simulation, loaded at once."""
    root = tmp_path_factory.mktemp("lake")
    for kind in KINDS:
        load(spark, options(stream, root, kind))
    return root


# --- the lake's own jobs --------------------------------------------------------------------------------------------


def test_compaction_keeps_every_row_and_readers_of_an_older_version(
    spark: Any, stream: Stream, tmp_path: Path
) -> None:
    loading = options(stream, tmp_path, "votes", offsets_per_commit_max=500)
    load(spark, loading)
    table = Table(loading.root)
    version, files = table.state().version, [local_path(one.path) for one in table.pieces()]
    reader = frames.events(spark, Table(loading.root), version=version)
    before = rows_of(spark, loading)
    summary = compact(spark, loading.root)
    assert summary.files_before == len(files)
    assert summary.files_after == summary.hours == len(table.state().hours) < len(files)
    assert rows_of(spark, loading) == before
    assert reader.count() == sum(before.values()), "the old version can still be read"
    assert check(spark, loading).problems == []
    assert vacuum(loading.root, age_seconds=3600) == 0, "not yet"
    assert all(path is not None and path.exists() for path in files)
    assert vacuum(loading.root, age_seconds=0) >= len(files)
    assert not any(path is not None and path.exists() for path in files)
    assert rows_of(spark, loading) == before
    assert compact(spark, loading.root).files_before == 0, "nothing is left to do"


def test_a_dead_letter_that_is_good_now_becomes_a_row_and_nothing_is_both(
    spark: Any, stream: Stream, tmp_path: Path
) -> None:
    loading = options(stream, tmp_path, "views")
    load(spark, loading)
    before, dead = rows_of(spark, loading), frames.dead_letters(spark, Table(loading.root)).count()
    assert redrive(loading, reasons={"missing_field"}).resolved == 0
    # Whoever wants events that are a year ahead of their time can have them.
    loading.past_max_ms = 500 * 24 * HOUR_MS
    patient = schema.BUILT_IN["views"]
    wide = LoadOptions(loading.log, loading.root, patient, past_max_ms=500 * 24 * HOUR_MS)
    assert redrive(wide, reasons={"time"}).resolved == 0, "they lie in the future, not in the past"
    lenient = EventSchema(
        "views", "ts", tuple(Field(one.name, one.type, one.required and one.name == "ts") for one in patient.fields)
    )  # fmt: skip
    relaxed = LoadOptions(loading.log, loading.root, lenient)
    summary = redrive(relaxed, reasons={"missing_field"})
    assert summary.resolved == summary.tried > 0
    after = rows_of(spark, relaxed)
    assert sum(after.values()) == sum(before.values()) + summary.resolved
    assert frames.dead_letters(spark, Table(loading.root)).count() == dead - summary.resolved
    report = check(spark, relaxed)
    assert report.problems == []
    assert report.offsets == report.rows_compared == len(stream.of("views"))


def test_a_backfill_decodes_hours_anew_and_leaves_the_others(
    spark: Any, stream: Stream, tmp_path: Path
) -> None:
    fields = schema.BUILT_IN["votes"].fields
    short = EventSchema("votes", "ts", fields[:-1])
    votes = EventSchema("votes", "ts", (*fields[:-1], Field("vote", "long")))
    loading = options(stream, tmp_path, "votes")
    loading.schema = short
    load(spark, loading)
    assert frames.events(spark, Table(loading.root)).where("_extra is null").count() == 0
    loading.schema = votes
    start = SITE.start_ms
    summary = backfill(spark, loading, from_ms=start, to_ms=start + 2 * HOUR_MS, reason="votes count")
    rows = frames.events(spark, Table(loading.root))
    per_hour = {row["first"]: row["count"] for row in rows.groupBy(
        ((rows.ts - start) / HOUR_MS < 2).alias("first")).count().collect()}  # fmt: skip
    assert summary.hours == 2
    assert summary.rows == per_hour[True]
    assert rows.where("vote is not null and _extra is null").count() == per_hour[True]
    assert rows.where("vote is null and _extra is not null").count() == per_hour[False]
    assert check(spark, loading).problems == []
    with pytest.raises(UsageError, match="no rows in these hours"):
        backfill(spark, loading, from_ms=0, to_ms=HOUR_MS, reason="")


def consume(bootstrap: str, topic: str, count: int) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "mirror-test", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < count:
        batch = consumer.consume(1000, timeout=20)
        assert batch, f"{len(found)} of {count} records came"
        found += batch
    assert not consumer.consume(1, timeout=1), "and no more"
    consumer.close()
    return found


# --- results --------------------------------------------------------------------------------------------------------


def files(directory: Path) -> dict[Path, bytes]:
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def jobs(stream: Stream) -> list[Any]:
    return [
        rank.Rank(),
        Feed(stream.simulation.truth.follows),
        security.Security(),
        monitor.Monitor(window_ms=60_000),
        visitors.Visitors(),
    ]


def test_results_are_the_same_bytes_from_a_batch_a_stream_and_a_replay(
    spark: Any, stream: Stream, lake: Path, tmp_path: Path
) -> None:
    batch = {}
    for job in jobs(stream):
        derived = Derived(job, lake=str(lake), root=str(tmp_path / "batch"))
        assert derived.update(spark).is_replay, "the first time is from the start"
        batch[job.name] = files(tmp_path / "batch" / job.name / "results")
        assert batch[job.name]
    streamed = tmp_path / "streamed"
    updates: Counter[str] = Counter()
    for kind in KINDS:
        loading = options(stream, streamed, kind)

        def after(kind: str = kind) -> None:
            for job in jobs(stream):
                if kind in job.kinds:
                    Derived(job, lake=str(streamed), root=str(tmp_path / "stream")).update(spark)
                    updates[job.name] += 1

        follower = Follower(spark, loading, trigger=AVAILABLE, offsets_max=4000, after=after)
        assert follower.start().wait(300)
    assert updates["rank"] > 4
    for job in jobs(stream):
        directory = tmp_path / "stream" / job.name / "results"
        assert files(directory) == batch[job.name], job.name
        derived = Derived(job, lake=str(streamed), root=str(tmp_path / "stream"))
        assert not derived.update(spark).is_replay
        derived.update(spark, replay=True)
        assert files(directory) == batch[job.name], job.name


def test_a_command_loads_all_of_its_topics_in_one_load_and_sends_what_it_finds(
    spark: Any, stream: Stream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["monitor", "--lake", str(tmp_path / "lake"), "--out", str(tmp_path / "out"), "--window", "60"]
    words += ["--bootstrap", stream.bootstrap, "--trigger", "available", "--to-topic", "alerts", "--json"]
    assert main(words) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert facts["updates"] == 1, "of two topics that came in one round"
    derived = Derived(
        monitor.Monitor(window_ms=60_000), lake=str(tmp_path / "lake"), root=str(tmp_path / "out")
    )
    assert derived.store.state().inputs == {"metrics": 1, "logs": 1}
    alerts = derived.result("alerts").num_rows
    assert facts["sent"] == alerts == len(consume(stream.bootstrap, "alerts", alerts)) > 0
    assert main([*words, "--prefix", "none-"]) == 4, "no topic matches"


def test_security_finds_the_guilty_and_nobody_else(
    spark: Any, stream: Stream, lake: Path, tmp_path: Path
) -> None:
    derived = Derived(security.Security(), lake=str(lake), root=str(tmp_path))
    derived.update(spark)
    verdicts = derived.result("verdicts").to_pylist()
    truth = stream.simulation.truth
    assert security.score(verdicts, "crawler", truth.crawlers) == {"precision": 1.0, "recall": 1.0}
    assert security.score(verdicts, "spam", truth.spammers) == {"precision": 1.0, "recall": 1.0}
    allowing = Derived(
        security.Security(allowed=(truth.crawlers[0],)), lake=str(lake), root=str(tmp_path / "allowing")
    )
    allowing.update(spark)
    found = {row["subject"] for row in allowing.result("verdicts").to_pylist()}
    assert truth.crawlers[0] not in found
    assert truth.crawlers[1] in found


def test_rank_follows_quality_and_spam_does_not_pay(
    spark: Any, stream: Stream, lake: Path, tmp_path: Path
) -> None:
    derived = Derived(rank.Rank(), lake=str(lake), root=str(tmp_path))
    derived.update(spark)
    rows = sorted(derived.result("rank").to_pylist(), key=lambda row: row["position"])
    truth = stream.simulation.truth
    result = rank.score(rows, truth.quality)
    assert result["spearman"] > 0.5, result
    top = {row["item"] for row in rows[:20]}
    assert not top & set(truth.spammed_items)
    by_item = {row["item"]: row for row in rows}
    votes = {(event.fields["member"], event.fields["item"]) for event in stream.of("votes")}
    for item in truth.spammed_items:
        assert by_item[item]["votes_up"] + by_item[item]["votes_down"] <= sum(one == item for _, one in votes)


def test_feeds_have_the_newest_items_of_those_one_follows(
    spark: Any, stream: Stream, lake: Path, tmp_path: Path
) -> None:
    follows = stream.simulation.truth.follows
    derived = Derived(Feed(follows, items_max=5), lake=str(lake), root=str(tmp_path))
    derived.update(spark)
    feeds: dict[str, list[str]] = {}
    for row in sorted(derived.result("feed").to_pylist(), key=lambda row: (row["member"], row["place"])):
        feeds.setdefault(row["member"], []).append(row["item"])
    good = [json.loads(text) for text in good_events(stream, "votes").elements()]
    ups = sorted((one for one in good if one["vote"] > 0), key=lambda one: -one["ts"])
    for member, followed in list(follows.items())[:50]:
        newest: list[str] = []
        for one in ups:
            if one["member"] in followed and one["item"] not in newest:
                newest.append(one["item"])
        assert feeds.get(member, []) == newest[:5], member


def test_monitor_raises_an_alert_for_each_incident_and_no_other(
    spark: Any, stream: Stream, lake: Path, tmp_path: Path
) -> None:
    derived = Derived(monitor.Monitor(window_ms=60_000), lake=str(lake), root=str(tmp_path))
    derived.update(spark)
    alerts = derived.result("alerts").to_pylist()
    assert monitor.score(alerts, stream.simulation.truth.incidents) == {"precision": 1.0, "recall": 1.0}
    rollups = derived.result("rollups").to_pylist()
    lines = [row for row in rollups if row["metric"].startswith("log_")]
    good = {kind: sum(good_events(stream, kind).values()) for kind in ("metrics", "logs")}
    assert sum(row["count"] for row in rollups) == sum(good.values())
    assert sum(row["count"] for row in lines) == good["logs"]
    assert {row["metric"] for row in alerts} == {"latency_ms", "errors", "log_error"}
    late = sum(event.delivered - event.ts > monitor.LATE_MS for kind in good for event in stream.of(kind))
    assert 0 < sum(row["late"] for row in rollups) <= late, "late ones are counted, and in their windows"


def test_only_what_has_changed_is_sent(stream: Stream, tmp_path: Path) -> None:
    memory = {"io": StoreIO({}), "memory": f"file://{tmp_path}/published.json"}
    assert publish(stream.bootstrap, "out", {"a": 1, "b": 2}, **memory) == 2
    assert publish(stream.bootstrap, "out", {"a": 1, "b": 3}, **memory) == 1
    assert publish(stream.bootstrap, "out", {"b": 3}, **memory) == 1
    records = consume(stream.bootstrap, "out", 4)
    assert {record.key(): record.value() for record in records} == {b"a": None, b"b": b"3"}


def test_a_report_refuses_unsealed_hours_and_is_the_same_bytes_twice(
    spark: Any, stream: Stream, lake: Path, tmp_path: Path
) -> None:
    day = hour_name(SITE.start_ms // HOUR_MS)[:10]
    with pytest.raises(IncompleteError, match="not sealed yet: views"):
        report(spark, lake=str(lake), out=str(tmp_path / "a"), day=day)
    partial = report(spark, lake=str(lake), out=str(tmp_path / "a"), day=day, partial=True)
    assert partial.unsealed
    assert (tmp_path / "a" / f"{day}-partial" / "top_items.csv").exists()
    for kind in ("views", "clicks", "votes", "logins"):
        check(spark, options(stream, lake, kind), now_ms=SITE.start_ms + 100 * HOUR_MS)
    for out in ("b", "c"):
        assert report(spark, lake=str(lake), out=str(tmp_path / out), day=day).unsealed == []
    names = sorted(path.name for path in (tmp_path / "b" / day).iterdir())
    assert "traffic_by_hour.csv" in names
    for name in names:
        assert (tmp_path / "b" / day / name).read_bytes() == (tmp_path / "c" / day / name).read_bytes(), name
