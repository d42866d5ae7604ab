"""Jobs from a topic in files to a table and back, their tasks run here: without Spark, without a broker."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.log.format.properties import encode_uuid
from barnabas_pipeline.errors import DataLossError, IncompleteError, UsageError
from barnabas_pipeline.jobs import audit as audits
from barnabas_pipeline.jobs import coverage
from barnabas_pipeline.jobs.audit import audit, raise_if_lossy
from barnabas_pipeline.jobs.backfill import backfill
from barnabas_pipeline.jobs.compact import compact
from barnabas_pipeline.jobs.compare import Differences
from barnabas_pipeline.jobs.load import LoadOptions, find_loss
from barnabas_pipeline.jobs.loading import Load, load
from barnabas_pipeline.jobs.redrive import redrive
from barnabas_pipeline.jobs.rounds import parse_trigger, repeat
from barnabas_pipeline.lake.columns import PARTITION
from barnabas_pipeline.lake.ledger import HOUR_MS, hour_name
from barnabas_pipeline.lake.store import local_path
from barnabas_pipeline.lake.table import ConflictError, Table
from barnabas_pipeline.log.model import Bounds, TopicIdentity
from barnabas_pipeline.log.planning import Selection
from barnabas_pipeline.worker import Worker
from tests.pipeline.mirroring import wait_until
from tests.pipeline.tables import BEGAN_MS, GROWN, scan, stock
from tests.pipeline.topics import WRITTEN_MS, Here, Topic, login

NOW = BEGAN_MS + 100 * HOUR_MS
COUNTS = ("loaded", "dead", "control", "aborted", "compacted")


def audited(options: LoadOptions, **more: Any) -> audits.AuditReport:
    return audit(Here(), options, **{"now_ms": NOW, "lateness_ms": HOUR_MS, **more})


def counts(of: Any) -> list[int]:
    return [getattr(of, name) for name in COUNTS]


# --- load -----------------------------------------------------------------------------------------------------------


def test_a_load_takes_each_offset_once(topic: Topic, options: LoadOptions) -> None:
    spark = Here()
    told: list[tuple[int, int]] = []
    summary = load(spark, options, lambda done, of: told.append((done, of)))
    assert counts(summary) == [4, 2, 1, 2, 0]
    assert (summary.commits, summary.files, summary.reasons) == (1, 4, {"json": 1, "missing_field": 1})
    assert summary.bytes_read == sum(topic.file(number).stat().st_size for number in (0, 1))
    assert told == [(9, 9)]
    assert spark.slices == []
    assert scan(options.root) == [0, 0, 2, 5]  # type: ignore[arg-type]
    assert counts(load(spark, options)) == [0] * 5, "there is nothing new"
    topic.append(login(2), partition=1)
    summary = Load(lambda: spark, options, worker_offsets_max=0).run()
    assert (summary.commits, summary.loaded, spark.slices) == (1, 1, [1])
    assert Table(options.root).state().ends == {0: 3, 1: 7}


def test_worker_returns_results_and_survives_what_kills_it() -> None:
    worker = Worker()
    assert worker.run(sorted, [2, 1]) == [1, 2]
    assert worker.run(signal.raise_signal, signal.SIGKILL) is None  # type: ignore[arg-type, func-returns-value]
    with pytest.raises(TypeError, match="not supported"):
        worker.run(sorted, [1, "a"])
    assert worker.run(sorted, [2, 1]) == [1, 2]
    worker.close()


def test_load_in_portions_commits_each_and_reports_progress(options: LoadOptions) -> None:
    told: list[tuple[int, int]] = []
    summary = load(
        Here(), replace(options, offsets_per_commit_max=4), lambda done, of: told.append((done, of))
    )
    assert (summary.commits, counts(summary)) == (3, [4, 2, 1, 2, 0])
    assert told == [(4, 9), (8, 9), (9, 9)]
    assert scan(options.root) == [0, 0, 2, 5]  # type: ignore[arg-type]


def test_a_load_begins_and_ends_where_it_is_told_to(options: LoadOptions) -> None:
    chosen = Selection(starting='{"0": 2}', ending='{"0": 3, "1": 1}')
    summary = load(Here(), replace(options, selection=chosen))
    assert (summary.loaded, summary.dead) == (2, 0)
    state = Table(options.root).state()
    assert state.ends == {0: 3, 1: 1}
    assert load(Here(), options).loaded == 1, "the rest, from where the first one has ended"


def test_records_lost_before_a_load_are_raised_or_recorded(topic: Topic, options: LoadOptions) -> None:
    load(Here(), options)
    topic.append(login(3), login(3), login(3))
    topic.trim(0, 5)
    with pytest.raises(DataLossError, match="retention has overtaken logins") as lost:
        load(Here(), options)
    assert [tuple(span) for span in lost.value.missing] == [(0, 3, 5)]
    assert load(Here(), replace(options, on_data_loss="record")).loaded == 1
    entry = next(entry for entry in Table(options.root).entries() if entry.kind == "restart")
    assert (entry.lost, entry.note) == ({"0": [3, 5]}, "retention has overtaken logins")


# --- follow ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("available", None), ("5 seconds", 5.0), ("500 milliseconds", 0.5), ("1 minute", 60.0), ("1.5 hours", 5400.0),
        (" 2 Seconds ", 2.0), ("1second", 1.0),
    ],
)  # fmt: skip
def test_a_trigger_is_an_interval_or_what_is_there(text: str, seconds: float | None) -> None:
    assert parse_trigger(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "seconds", "-1 seconds", "5 days", "once"])
def test_any_other_trigger_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="a trigger is available, or an interval"):
        parse_trigger(text)


def test_rounds_begin_an_interval_apart_and_pause_when_idle() -> None:
    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout or 0)
            return False

    waited: list[float] = []
    rounds = iter([(True, False), (False, False), (True, False), (False, True)])
    repeat(lambda: next(rounds), 0, Stopping())
    assert [seconds > 0 for seconds in waited] == [False, True, False]
    stopping, rounds = Stopping(), iter([(True, False)])

    def step() -> tuple[bool, bool]:
        stopping.set()
        return next(rounds)

    waited.clear()
    repeat(step, 50, stopping)
    assert [49 < seconds <= 50 for seconds in waited] == [True], "what a round has taken counts"
    repeat(step, 50, stopping)
    assert len(waited) == 1, "nothing begins after a stop"


def test_a_load_takes_what_is_there_in_rounds_and_ends(topic: Topic, options: LoadOptions) -> None:
    done: list[int] = []

    def later() -> None:
        topic.append(login(9))  # after the beginning: of another run
        done.append(1)

    loading = Load(Here, options, offsets_max=4)
    assert loading.run("available", later) is loading.summary
    assert (loading.summary.commits, len(done)) == (3, 3)
    assert counts(loading.summary) == [4, 2, 1, 2, 0]


def test_load_in_rounds_continues_until_it_is_stopped(topic: Topic, options: LoadOptions) -> None:
    loading = Load(Here, options)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(loading.run, "1 millisecond")
        wait_until(lambda: loading.summary.commits == 1, "nothing is loaded")
        topic.append(login(4))
        wait_until(lambda: loading.summary.commits == 2, "what came later is not loaded")
        loading.stop()
        assert running.result(10).loaded == 5


def test_data_loss_ends_a_load_in_rounds(topic: Topic, options: LoadOptions) -> None:
    load(Here(), options)
    topic.append(login(3), login(3))
    topic.trim(0, 4)
    with pytest.raises(DataLossError):
        Load(Here, options).run("1 millisecond")


# --- audit ----------------------------------------------------------------------------------------------------------


def test_audit_accounts_for_offsets_and_seals_hours(topic: Topic, options: LoadOptions) -> None:
    load(Here(), options)
    report = audited(options)
    assert report.problems == []
    assert [report.offsets, *counts(report)] == [9, 4, 2, 1, 2, 0]
    assert (report.version, report.lag, report.files_checked, report.files_of_others) == (1, 0, 6, 0)
    assert (report.rows_compared, report.rows_decoded, report.rows_gone_from_log) == (6, 0, 0)
    first = BEGAN_MS // HOUR_MS
    assert report.sealed == [hour_name(first + n) for n in range(99)], "the clock has passed them"
    raise_if_lossy(report)
    table = Table(options.root)
    entry = table.entries()[-1]
    assert (entry.kind, entry.sealed, entry.job["name"]) == ("seal", report.sealed, "audit")
    kept = local_path(f"{stock(options.root).location()}/_audit/{1:020d}.json")  # type: ignore[arg-type]
    assert kept is not None
    assert json.loads(kept.read_text())["sealed"] == report.sealed
    topic.append(login(2), b"no JSON")
    again = audited(options, seal=False)
    assert (again.problems, again.sealed, again.lag) == ([], [], 2)


def test_an_audit_misses_what_is_not_in_the_table(options: LoadOptions) -> None:
    load(Here(), options)
    file = next(iter(Table(options.root).files().rows.values()))
    path = local_path(file.path)
    assert path is not None
    path.unlink()
    report = audited_without_values(options)
    assert report.problems[0] == f"{file.path} is missing: {file.rows} rows"
    assert f"{file.rows} rows of the log are not in the lake" in report.problems
    assert report.sealed == []
    assert all(partition == file.partition and end == start + 1 for partition, start, end in report.missing)
    with pytest.raises(DataLossError, match=f"audit of version 1: .* is missing: {file.rows} rows") as lost:
        raise_if_lossy(report)
    assert [tuple(span) for span in lost.value.missing] == [tuple(span) for span in report.missing]


def audited_without_values(options: LoadOptions) -> audits.AuditReport:
    """Audit, but do not decode anything again, which takes Spark; remembers which ranges would be."""
    compared: list[Any] = []

    def compare(*arguments: Any) -> Differences:
        compared.append((arguments[5], arguments[6]))
        return Differences()

    report = audited(options, comparing=compare)
    audited_without_values.compared = compared[0]  # type: ignore[attr-defined]
    return report


def changed(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def test_values_are_compared_where_file_or_log_changed(topic: Topic, options: LoadOptions) -> None:
    load(Here(), options)
    files = Table(options.root).files().rows.values()
    file = next(file for file in files if file.partition == 1)
    path = local_path(file.path)
    assert path is not None
    changed(path, lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    report = audited_without_values(options)
    assert f"{file.path} is not as it was written, and no Parquet" in report.problems
    ranges, unreadable = audited_without_values.compared  # type: ignore[attr-defined]
    assert [(span.partition, span.start, span.end) for span in ranges] == [(1, 0, 6)]
    assert unreadable == {file.path}


def test_another_record_at_an_offset_is_noticed_by_its_batch(topic: Topic, options: LoadOptions) -> None:
    load(Here(), options)
    data = topic.file(0).read_bytes()
    topic.file(0).write_bytes(b"")
    topic.ends[0] = 0
    topic.append(login(0), b"no JSON", login(1, member="somebody else"))
    assert len(topic.file(0).read_bytes()) != len(data)
    report = audited_without_values(options)
    assert report.problems == []
    ranges, _ = audited_without_values.compared  # type: ignore[attr-defined]
    assert [(span.partition, span.start, span.end) for span in ranges] == [(0, 0, 3)]


def test_rows_gone_from_the_log_are_counted(topic: Topic, options: LoadOptions) -> None:
    load(Here(), options)
    topic.trim(0, 2)
    report = audited_without_values(options)
    assert (report.problems, report.rows_gone_from_log) == ([], 2)


def test_audit_continues_after_losses_of_the_same_topic(topic: Topic, options: LoadOptions) -> None:
    load(Here(), options)
    topic.append(*[login(1)] * 5)
    topic.trim(0, 6)
    report = audited_without_values(options)
    assert report.problems == ["retention has overtaken logins; missing: partition 0: [3, 6)"]
    assert (report.rows_gone_from_log, report.rows_compared, report.sealed) == (3, 6, [])


def test_what_looks_at_a_table_needs_a_load_before(options: LoadOptions) -> None:
    for work in (
        lambda: audited(options),
        lambda: redrive(options),
        lambda: backfill(Here(), options, from_ms=0, to_ms=NOW, reason=""),
    ):
        with pytest.raises(UsageError, match=r"nothing was loaded into file://.*/logins yet"):
            work()
    assert not Table(options.root).exists()
    assert compact(Here(), options.root).files_before == 0


def test_a_table_of_another_topic_is_not_audited(tmp_path: Path, options: LoadOptions) -> None:
    load(Here(), options)
    other = Topic(tmp_path / "other", 2, topic_id=b"o" * 16)
    with pytest.raises(DataLossError, match="is another one now"):
        audited(replace(options, log=other.options))


def test_differences_of_values_are_told_with_their_offsets() -> None:
    report = audits.AuditReport(1)
    audits.tell(Differences(9, 0, 2, [(0, 5), (1, 6)], 1, [(0, 7)]), report)
    assert report.problems == ["1 rows of the log are altered"]
    assert report.missing == [[0, 7, 8]], "what is missing is told once"
    report = audits.AuditReport(1)
    audits.tell(Differences(9, 0, 30, [(0, n) for n in range(30)]), report)
    assert report.problems == ["30 rows of the log are not in the lake"]
    assert report.missing == [[0, n, n + 1] for n in range(coverage.EXAMPLES_MAX)]


# --- compact, backfill, redrive -------------------------------------------------------------------------------------


def test_many_loads_become_few_files_with_the_same_rows(topic: Topic, options: LoadOptions) -> None:
    load(Here(), options)
    for hour in (0, 0, 1):
        topic.append(login(hour))
        load(Here(), options)
    before = scan(options.root)  # type: ignore[arg-type]
    spark = Here()
    summary = compact(spark, options.root)
    assert (summary.hours, summary.files_before, summary.files_after, summary.rows) == (2, 6, 2, 6)
    assert spark.slices == [2]
    assert scan(options.root) == before  # type: ignore[arg-type]
    assert compact(Here(), options.root).files_before == 0
    assert compact(Here(), options.root, files_min=1).files_before == 3, "those of single hours too"
    assert audited(options).problems == []


def test_compaction_is_planned_again_after_a_concurrent_load(topic: Topic, options: LoadOptions) -> None:
    load(Here(), options)
    topic.append(login(0))
    load(Here(), options)
    topic.append(login(0))
    meanwhile = [lambda: load(Here(), options)]
    summary = compact(Here(lambda: meanwhile.pop()() if meanwhile else None), options.root)
    assert summary.rows == 4
    assert audited(options).problems == []


def test_a_backfill_gives_the_rows_of_some_hours_new_columns(topic: Topic, options: LoadOptions) -> None:
    topic.append(login(0, device="old"), login(1, device="phone"))
    load(Here(), options)
    summary = backfill(
        Here(),
        replace(options, schema=GROWN),
        from_ms=BEGAN_MS + HOUR_MS,
        to_ms=BEGAN_MS + 2 * HOUR_MS,
        reason="devices",
    )
    assert (summary.hours, summary.rows, summary.files_before, summary.files_after) == (1, 2, 1, 1)
    rows = stock(options.root).scan().to_arrow().to_pylist()  # type: ignore[arg-type]
    assert {(row["_offset"], row["device"]) for row in rows if row[PARTITION] == 0} == {
        (0, None), (2, None), (3, None), (4, "phone"),
    }  # fmt: skip
    entry = Table(options.root).entries()[-1]
    assert (entry.kind, entry.note, entry.job["hours"]) == (
        "backfill",
        "devices",
        [hour_name(BEGAN_MS // HOUR_MS + 1)],
    )
    assert audited_without_values(options).problems == []


def test_backfill_without_hours_or_log_is_refused(topic: Topic, options: LoadOptions) -> None:
    load(Here(), options)
    with pytest.raises(UsageError, match="no rows in these hours"):
        backfill(Here(), options, from_ms=BEGAN_MS + 3 * HOUR_MS, to_ms=NOW, reason="")
    topic.trim(0, 1)
    with pytest.raises(DataLossError, match="not all of these hours") as lost:
        backfill(Here(), options, from_ms=BEGAN_MS, to_ms=BEGAN_MS + 1, reason="")
    assert [tuple(span) for span in lost.value.missing] == [(0, 0, 1)]


def test_a_backfill_that_would_lose_rows_leaves_them(options: LoadOptions) -> None:
    load(Here(), options)
    before = scan(options.root)  # type: ignore[arg-type]
    strict = replace(options, value_bytes_max=10)
    with pytest.raises(IncompleteError, match=r"1 rows would not be rows any more, the first at .0.; hours"):
        backfill(Here(), strict, from_ms=BEGAN_MS, to_ms=BEGAN_MS + HOUR_MS, reason="")
    assert scan(options.root) == before  # type: ignore[arg-type]
    assert Table(options.root).state().version == 1


def test_dead_letters_that_are_good_now_become_rows(topic: Topic, options: LoadOptions) -> None:
    topic.append(login(0, member="x" * 150), b"no JSON either")
    strict = replace(options, value_bytes_max=100)
    assert load(Here(), strict).reasons == {"json": 2, "missing_field": 1, "too_large": 1}
    before = redrive(strict)
    assert (before.tried, before.resolved, before.still_dead) == (4, 0, 4)
    assert redrive(options, reasons={"json"}).tried == 2
    assert redrive(options, since_ms=WRITTEN_MS + 1).tried == 0
    summary = redrive(options, reasons={"too_large"}, since_ms=WRITTEN_MS)
    assert (summary.tried, summary.resolved, summary.still_dead) == (1, 1, 0)
    assert summary.reasons == {"json": 2, "missing_field": 1}
    assert scan(options.root) == [0, 0, 2, 3, 5]  # type: ignore[arg-type]
    report = audited_without_values(options)
    assert (report.problems, report.loaded, report.dead) == ([], 5, 3)


# --- what an audit forgives, and what not ----------------------------------------------------------------------------


def test_markers_that_the_log_has_no_more_are_no_problem(topic: Topic, options: LoadOptions) -> None:
    load(Here(), options)
    topic.trim(1, 5)
    report = audited_without_values(options)
    assert (report.problems, report.rows_gone_from_log) == ([], 2)


def test_missing_file_is_reported_once_with_its_rows(options: LoadOptions) -> None:
    load(Here(), options)
    file = next(file for file in Table(options.root).files().rows.values() if file.rows == 1)
    path = local_path(file.path)
    assert path is not None
    path.unlink()
    report = audited_without_values(options)
    assert report.problems == [f"{file.path} is missing: 1 rows", "1 rows of the log are not in the lake"]
    assert report.missing == [[file.partition, file.offset_min, file.offset_min + 1]]


def test_a_loss_can_be_gone_on_from_only_if_all_of_it_can(topic: Topic, options: LoadOptions) -> None:
    load(Here(), options)
    state, identity = Table(options.root).state(), TopicIdentity("cluster", "logins", encode_uuid(b"t" * 16))
    overtaken, shorter, fine = Bounds(9, 20, 20, 0), Bounds(0, 1, 1, 0), Bounds(0, 20, 20, 0)
    for bounds, can_go_on in (
        ({0: overtaken, 1: fine}, True),
        ({0: overtaken, 1: shorter}, False),
        ({0: overtaken, 1: overtaken}, True),
        ({0: overtaken}, False),
    ):
        loss = find_loss(state, identity, bounds)
        assert loss is not None
        assert loss.can_go_on is can_go_on, bounds
    assert find_loss(state, identity, {0: fine, 1: fine}) is None


def test_refused_compaction_without_progress_ends(
    topic: Topic, options: LoadOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(Here(), options)
    topic.append(login(0))
    load(Here(), options)

    def refuse(*_: Any, **__: Any) -> None:
        raise ConflictError("no reason")

    monkeypatch.setattr(Table, "commit", refuse)
    with pytest.raises(ConflictError, match="no reason"):
        compact(Here(), options.root)
