"""Rows and offsets are traced to their records, commits and ends, by the ledger, the files and the log."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas_pipeline import cli
from barnabas_pipeline.jobs import lineage
from barnabas_pipeline.jobs.backfill import backfill
from barnabas_pipeline.jobs.compact import compact
from barnabas_pipeline.jobs.erase import erase, retain
from barnabas_pipeline.jobs.lineage import Lineage, Trace
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.jobs.loading import load
from barnabas_pipeline.jobs.redrive import redrive
from barnabas_pipeline.lake.ledger import HOUR_MS
from barnabas_pipeline.lake.store import local_path
from barnabas_pipeline.lake.table import Table

from .cells import BAD, Cell
from .tables import BEGAN_MS, SCHEMA, local_place
from .test_other_engines import append_without_coordinates, delete, delete_and_expire, expire
from .topics import Here, Topic, login


def trace(options: LoadOptions, partition: int, offset: int, *, is_log_asked: bool = False) -> Trace:
    log = options.log if is_log_asked else None
    return Lineage(Table(options.root), log).offset(partition, offset)[0]


def test_offsets_of_each_kind_are_told_apart(options: LoadOptions) -> None:
    load(Here(), options)
    outcomes = {
        (partition, offset): (each.outcome, each.detail)
        for partition, count in ((0, 4), (1, 7))
        for offset in range(count)
        for each in [trace(options, partition, offset, is_log_asked=True)]
    }
    assert outcomes == {
        (0, 0): ("row", ""),
        (0, 1): ("dead letter", "json"),
        (0, 2): ("row", ""),
        (0, 3): ("not loaded", "the newest load ended before 3"),
        (1, 0): ("row", ""),
        (1, 1): ("dead letter", "missing_field"),
        (1, 2): ("no record", "of a transaction that was aborted"),
        (1, 3): ("no record", "of a transaction that was aborted"),
        (1, 4): ("no record", "the marker of a transaction"),
        (1, 5): ("row", ""),
        (1, 6): ("not loaded", "the newest load ended before 6"),
    }
    alone = trace(options, 1, 4)
    assert (alone.outcome, alone.detail) == (
        "no record",
        "the marker of a transaction or of a transaction that was aborted",
    ), "without the log, since all records of the commit are there"
    assert trace(options, 2, 0).detail == "nothing was loaded of partition 2"


def test_row_is_traced_to_its_load_and_the_file_it_is_in_now(tmp_path: Path) -> None:
    cell = Cell.made(tmp_path)
    [before] = Lineage(Table(cell.place)).rows("member = 'm5'")
    snapshot = cell.snapshot(2).snapshot_id
    assert (before.partition, before.offset, before.outcome, before.row["ip"]) == (0, 5, "row", "i")
    assert (before.loaded["version"], before.loaded["kind"], before.loaded["snapshot"]) == (
        2,
        "load",
        snapshot,
    )
    assert before.file["version"] == 2
    assert compact(Here(), cell.place).files_after  # type: ignore[arg-type]
    [after] = Lineage(Table(cell.place)).rows("member = 'm5'")
    assert (after.loaded, after.file["kind"]) == (before.loaded, "compact")
    assert after.file["path"] != before.file["path"]
    expire(cell)
    assert trace(cell.options, 0, 5).loaded["snapshot"] is None, "its snapshot has expired, its entry has not"


def test_removed_rows_name_what_removed_them(tmp_path: Path) -> None:
    cell = Cell.made(tmp_path)
    erase(cell.place, "member = 'm5'", reason="request 17")
    retain(cell.place, before_ms=BEGAN_MS + HOUR_MS)
    erased, retained = trace(cell.options, 0, 5), trace(cell.options, 0, 3)
    assert (erased.outcome, erased.detail, erased.removed["version"]) == ("erased", "request 17", 4)
    assert (retained.outcome, retained.removed["kind"]) == ("removed for its age", "retain")
    assert erased.loaded["version"] == 2


def test_deletion_by_others_is_told_from_a_loss(tmp_path: Path) -> None:
    cell = Cell.made(tmp_path)
    delete(cell)
    before = trace(cell.options, 0, 1)
    assert before.outcome == "deleted"
    assert "deleted 1 rows" in before.detail
    cell.audit()
    after = trace(cell.options, 0, 1)
    assert (after.outcome, after.removed["kind"]) == ("deleted", "erase"), "the audit has noted it"


def test_row_that_is_gone_without_a_trace_is_missing(tmp_path: Path) -> None:
    cell = Cell.made(tmp_path)
    delete_and_expire(cell)
    assert trace(cell.options, 0, 1).outcome == "missing"


def test_redriven_row_says_what_it_was(tmp_path: Path) -> None:
    topic = Topic(tmp_path / "data")
    topic.append(
        login(0),
        json.dumps({"ts": BEGAN_MS - 40 * 24 * HOUR_MS, "member": "m", "ip": "i", "ok": True}).encode(),
    )
    options = LoadOptions(topic.options, local_place(tmp_path), SCHEMA)
    load(Here(), options)
    assert (trace(options, 0, 1).outcome, trace(options, 0, 1).detail) == ("dead letter", "time")
    redrive(replace(options, past_max_ms=100 * 24 * HOUR_MS))
    row = trace(options, 0, 1)
    assert (row.outcome, row.detail) == ("row", "a dead letter until version 2")
    assert (row.loaded["version"], row.file["kind"]) == (1, "redrive")


def test_offset_of_a_topic_made_again_has_both_incarnations(tmp_path: Path) -> None:
    cell = Cell.made(tmp_path)
    again = Topic(tmp_path / "again", topic_id=b"u" * 16)
    again.append(login(0, "other"))
    load(Here(), replace(cell.options, log=again.options, on_data_loss="record"))
    newest, oldest = Lineage(Table(cell.place)).offset(0, 0)
    assert (newest.row["member"], oldest.row["member"]) == ("other", "m0")
    assert newest.topic_id != oldest.topic_id
    assert [each.outcome for each in Lineage(Table(cell.place)).offset(0, 7)] == ["not loaded", "row"]


def test_lost_offsets_are_named_as_lost(tmp_path: Path) -> None:
    topic = Topic(tmp_path / "data")
    topic.append(login(0))
    options = LoadOptions(topic.options, local_place(tmp_path), SCHEMA, on_data_loss="record")
    load(Here(), options)
    topic.append(login(0))
    topic.append(login(0))
    topic.trim(0, 2)
    load(Here(), options)
    assert [trace(options, 0, offset).outcome for offset in range(3)] == ["row", "lost", "row"]
    assert trace(options, 0, 1).removed["kind"] == "restart"


def test_backfilled_row_and_one_of_another_engine(tmp_path: Path) -> None:
    cell = Cell.made(tmp_path)
    backfill(
        Here(),  # type: ignore[arg-type]
        cell.options,
        from_ms=BEGAN_MS,
        to_ms=BEGAN_MS + HOUR_MS,
        reason="",
    )
    assert trace(cell.options, 0, 0).file["kind"] == "backfill"
    append_without_coordinates(cell)
    traces = Lineage(Table(cell.place)).rows("member = 'm1'")
    assert sorted(each.outcome for each in traces) == ["row", "unknown"]
    assert {each.detail for each in traces} == {"", "another engine has written this row"}
    assert trace(cell.options, 0, 1).outcome == "row"


@pytest.mark.parametrize(
    ("more", "code", "told"),
    [
        (["--at", "0:5"], 0, "logins-0 offset 5: row"),
        (["--at", f"0:{BAD}"], 0, "dead letter (json)"),
        (["--at", "0:99"], 2, "not loaded"),
        (["--where", "member = 'm5'"], 0, '"member": "m5"'),
        (["--where", "member = 'nobody'"], 2, ""),
        (["--where", "nothing = 1"], 4, ""),
        (["--at", "5"], 4, ""),
        (["--at", "0:5", "--json"], 0, '"outcome": "row"'),
        (["--at", "0:5", "--where", "member = 'm5'"], 4, ""),
    ],
)
def test_command_prints_traces_and_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], code: int, told: str
) -> None:
    cell = Cell.made(tmp_path)
    here = local_path(cell.place.location)
    assert here is not None
    command = ["lineage", "--topic", "logins", "--lake", str(here.parent), *more]
    assert cli.main(command) == code
    captured = capsys.readouterr()
    assert told in captured.out
    assert len(captured.err.splitlines()) == (code == 4)


def test_words_of_outcomes_differ() -> None:
    words = [lineage.ROW, lineage.DEAD, lineage.ERASED, lineage.RETAINED, lineage.DELETED, lineage.NO_RECORD]
    assert len(set(words)) == len(words)
