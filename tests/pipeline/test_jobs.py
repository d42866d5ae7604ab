"""The jobs on top of the lake: compaction, redriving, backfilling; results that do not depend on the way."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from barnabas_pipeline.cli import main
from barnabas_pipeline.errors import IncompleteError
from barnabas_pipeline.jobs import monitor, rank, security, visitors
from barnabas_pipeline.jobs.derived import Derived
from barnabas_pipeline.jobs.feed import Feed
from barnabas_pipeline.jobs.loading import Load, load
from barnabas_pipeline.jobs.publish import publish
from barnabas_pipeline.jobs.report import report
from barnabas_pipeline.jobs.rounds import AVAILABLE
from barnabas_pipeline.lake.ledger import hour_name
from barnabas_pipeline.lake.store import StoreIO
from barnabas_pipeline.simulate.model import KINDS

from .conftest import SITE, Stream
from .test_lake import check, options

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def lake(spark: Any, stream: Stream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All topics of the simulation, loaded at once."""
    root = tmp_path_factory.mktemp("lake")
    for kind in KINDS:
        load(spark, options(stream, root, kind))
    return root


# --- the lake's own jobs --------------------------------------------------------------------------------------------


def consume(bootstrap: str, topic: str, count: int) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "mirror-test", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    messages: list[Any] = []
    while len(messages) < count:
        batch = consumer.consume(count - len(messages), timeout=20)
        assert batch, f"{len(messages)} of {count} records came"
        messages += batch
    assert not consumer.consume(1, timeout=1), "and no more"
    consumer.close()
    return messages


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


def test_batch_stream_and_replay_give_the_same_bytes(
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

        Load(lambda: spark, loading, offsets_max=4000).run(AVAILABLE, after)
    assert updates["rank"] > 4
    for job in jobs(stream):
        directory = tmp_path / "stream" / job.name / "results"
        assert files(directory) == batch[job.name], job.name
        derived = Derived(job, lake=str(streamed), root=str(tmp_path / "stream"))
        assert not derived.update(spark).is_replay
        derived.update(spark, replay=True)
        assert files(directory) == batch[job.name], job.name


def test_command_loads_its_topics_and_sends_results(
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


def test_only_what_has_changed_is_sent(stream: Stream, tmp_path: Path) -> None:
    memory = {"io": StoreIO({}), "memory": f"file://{tmp_path}/published.json"}
    assert publish(stream.bootstrap, "out", {"a": 1, "b": 2}, **memory) == 2
    assert publish(stream.bootstrap, "out", {"a": 1, "b": 3}, **memory) == 1
    assert publish(stream.bootstrap, "out", {"b": 3}, **memory) == 1
    records = consume(stream.bootstrap, "out", 4)
    assert {record.key(): record.value() for record in records} == {b"a": None, b"b": b"3"}


def test_report_refuses_unsealed_hours_and_is_repeatable(
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
