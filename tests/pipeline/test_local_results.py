"""When hours are sealed, how the log is read again, and what becomes of results: without Spark, without a broker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from barnabas_pipeline.errors import IncompleteError
from barnabas_pipeline.jobs.backfill import backfill
from barnabas_pipeline.jobs.compact import compact
from barnabas_pipeline.jobs.derived import Derived
from barnabas_pipeline.jobs.erase import erase
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.jobs.loading import load
from barnabas_pipeline.jobs.publish import publish
from barnabas_pipeline.jobs.redrive import redrive
from barnabas_pipeline.jobs.reread import BAD_TYPE, plan_rereading, reread
from barnabas_pipeline.jobs.results import ResultState
from barnabas_pipeline.jobs.seal import IDLE_HOURS_MAX, sealable_hours
from barnabas_pipeline.lake.columns import lake_schema
from barnabas_pipeline.lake.ledger import HOUR_MS, DataFile, State, hour_name
from barnabas_pipeline.lake.store import StoreIO, local_path
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.log.model import Bounds, OffsetRange
from barnabas_pipeline.log.transports import open_log
from barnabas_pipeline.schema import EventSchema
from tests.pipeline.tables import BEGAN_MS, GROWN
from tests.pipeline.topics import Here, Topic, login

# --- sealing ---------------------------------------------------------------------------------------------------------


class Times:
    """A log of partitions with records at these times, one an offset."""

    def __init__(self, *times: list[int]) -> None:
        self.times = times
        self.bounds = {number: Bounds(0, len(stamps), len(stamps), 0) for number, stamps in enumerate(times)}

    def offset_for_time(self, partition: int, time_ms: int) -> int | None:
        return next((at for at, time in enumerate(self.times[partition]) if time >= time_ms), None)


@pytest.mark.parametrize(
    ("times", "ends", "now", "lateness", "sealed"),
    [
        ([[0, 1, 2]], {0: 3}, 9, 0, [0, 1, 2, 3, 4, 5, 6, 7, 8]),  # all is loaded: by the clock, to the hour before this
        ([[0, 1, 2]], {0: 3}, 3, 0, [0, 1, 2]),
        ([[0, 1, 2]], {0: 3}, 3, 1, [0, 1]),
        ([[0, 1, 2]], {0: 2}, 9, 0, [0, 1]),  # the third is not loaded, which is of hour 2
        ([[0, 1, 2]], {0: 2}, 9, 1, [0]),
        ([[0, 2], [0]], {0: 2, 1: 1}, 3, 0, [0, 1, 2]),
        ([[0, 2], [0, 1]], {0: 2, 1: 1}, 9, 0, [0]),  # of the other partition something of hour 1 is missing
        ([[0, 2], [0]], {0: 2}, 9, 0, []),
        ([[0]], {0: 1}, 10_000, 0, list(range(1 + IDLE_HOURS_MAX))),
    ],
)  # fmt: skip
def test_hours_are_sealed_that_nothing_can_come_for(
    times: list[list[int]], ends: dict[int, int], now: int, lateness: int, sealed: list[int]
) -> None:
    log: Any = Times(*([hour * HOUR_MS for hour in hours] for hours in times))
    state = State()
    state.ends = ends
    state.hours = {hour for number, hours in enumerate(times) for hour in hours[: ends.get(number, 0)]}
    sealable = sealable_hours(log, log.bounds, state, now_ms=now * HOUR_MS, lateness_ms=lateness * HOUR_MS)
    assert sealable == [hour_name(hour) for hour in sealed]


def test_no_hours_are_sealed_of_a_table_without_rows() -> None:
    log: Any = Times([])
    assert sealable_hours(log, log.bounds, State(), now_ms=9 * HOUR_MS, lateness_ms=0) == []


# --- reading again ---------------------------------------------------------------------------------------------------


def test_rereading_uses_the_latest_decoder_of_a_record(topic: Topic, options: LoadOptions) -> None:
    topic.append(login(0, device="d0"), login(1, member="x" * 150, device="d1"), login(1, device="d2"))
    load(Here(), replace(options, value_bytes_max=100))
    redrive(options, reasons={"too_large"})
    backfill(
        Here(),
        replace(options, schema=GROWN),
        from_ms=BEGAN_MS + HOUR_MS,
        to_ms=BEGAN_MS + 2 * HOUR_MS,
        reason="",
    )
    compact(Here(), options.root)
    table = Table(options.root)
    entries, state = table.entries(), table.state()
    assert {entry.kind for entry in entries} >= {"load", "redrive", "backfill"}
    log = open_log(options.log)
    try:
        plan = list(plan_rereading(entries, state, log, [OffsetRange(0, 0, 6)]))
        assert [(part.offset_range.start, part.offset_range.end) for part in plan] == [(0, 6)]
        assert [(row.offsets, len(row.hours)) for row in plan[0].overrides] == [((4,), 0), ((), 1)]
        elsewhere = list(plan_rereading(entries, state, log, [OffsetRange(0, 0, 2), OffsetRange(1, 2, 6)]))
        assert [
            (row.offset_range.partition, row.offset_range.start, row.offset_range.end) for row in elsewhere
        ] == [(0, 0, 2), (1, 2, 6)]
        assert [len(part.overrides) for part in elsewhere] == [1, 1], "what was redriven is in neither"
    finally:
        log.close()
    arrow = lake_schema(EventSchema.from_dict(state.schema)).append(pa.field("_bad", BAD_TYPE))
    rows = [row for part in reread(plan[0], options.log, state.topic_id, arrow) for row in part.to_pylist()]
    judged = {row["_offset"]: row["_bad"]["reason"] if row["_bad"] else row["device"] for row in rows}
    assert judged == {0: None, 1: "json", 2: None, 3: None, 4: "d1", 5: "d2"}


# --- results ---------------------------------------------------------------------------------------------------------


class Acknowledging:
    """Stands in for a producer; `refused` are keys that are not acknowledged."""

    sent: ClassVar[list[tuple[bytes, bytes | None]]] = []
    refused: ClassVar[set[bytes]] = set()

    def __init__(self, settings: dict[str, Any]) -> None:
        assert settings["enable.idempotence"]

    def produce(self, _: str, value: bytes | None, key: bytes, on_delivery: Any) -> None:
        self.sent.append((key, value))
        on_delivery("refused" if key in self.refused else None, None)

    def flush(self, _: float) -> int:
        return 0


def test_changed_results_are_sent_and_gone_ones_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import confluent_kafka

    monkeypatch.setattr(confluent_kafka, "Producer", Acknowledging)
    monkeypatch.setattr(Acknowledging, "sent", [])
    memory = f"file://{tmp_path}/memory.json"

    def published(**messages: Any) -> tuple[int, list[tuple[bytes, bytes | None]]]:
        Acknowledging.sent.clear()
        return publish("h:1", "t", messages, io=StoreIO({}), memory=memory), list(Acknowledging.sent)

    assert published(b={"y": 1, "x": 2}, a=1) == (2, [(b"a", b"1"), (b"b", b'{"x":2,"y":1}')])
    assert published(a=1, b={"x": 2, "y": 1}) == (0, [])
    monkeypatch.setattr(Acknowledging, "refused", {b"a"})
    with pytest.raises(IncompleteError, match="1 messages failed"):
        published(a=2)
    monkeypatch.setattr(Acknowledging, "refused", set())
    assert published(a=2) == (2, [(b"a", b"2"), (b"b", None)])
    assert published(a=2) == (0, [])


def test_result_reads_new_files_or_all_after_changed_rows(topic: Topic, options: LoadOptions) -> None:
    load(Here(), options)
    lake = options.root.location.rpartition("/")[0]  # type: ignore[union-attr]
    job: Any = SimpleNamespace(name="job", kinds=("logins",))
    hour = BEGAN_MS, BEGAN_MS + HOUR_MS
    whole, one_hour = (
        Derived(job, lake=local_path(lake) or "", root=str(Path(lake).name), span_ms=span)
        for span in (None, hour)
    )

    digests = {0: ""}

    def news(version: int, derived: Derived = whole) -> list[str] | None:
        states = derived.states()
        digests[states["logins"].version] = states["logins"].digest
        state = ResultState(1, {"logins": version}, {"logins": digests.get(version, "another")})
        changes = derived.news(state, states)
        return None if changes is None else [piece.path for piece in changes.all]

    first = {*Table(options.root).files().rows}
    assert {*(news(0) or [])} == first
    assert news(1) == []
    topic.append(login(0))
    load(Here(), options)
    second = {*Table(options.root).files().rows} - first
    assert {*(news(1) or [])} == second
    assert news(9) is None, "the table went back"
    digests[1], right = "another", digests[1]
    assert news(1) is None, "another table has this name now"
    digests[1] = right
    compact(Here(), options.root)
    assert {*(news(1) or [])} == second, "a compaction brings nothing"
    assert news(3) == []
    backfill(Here(), options, from_ms=BEGAN_MS, to_ms=BEGAN_MS + HOUR_MS, reason="")
    assert news(3) is None, "rows have changed"
    assert news(3, one_hour) is None
    assert news(4) == []
    topic.append(login(7))
    load(Here(), options)
    assert len(news(4) or []) == 1
    assert news(4, one_hour) == [], "another hour"
    backfill(Here(), options, from_ms=BEGAN_MS + 7 * HOUR_MS, to_ms=BEGAN_MS + 8 * HOUR_MS, reason="")
    assert (news(5), news(5, one_hour)) == (None, []), "rows of another hour have changed"
    assert len(news(4, one_hour) or []) == 0, "rows that were written again are no new ones"
    erase(options.root, "_offset = 0", reason="")
    assert (news(6), news(6, one_hour)) == (None, None)


def test_news_are_of_existing_tables_and_files(topic: Topic, options: LoadOptions) -> None:
    load(Here(), options)
    lake = options.root.location.rpartition("/")[0]  # type: ignore[union-attr]
    job: Any = SimpleNamespace(name="job", kinds=("logins", "views"))
    derived = Derived(job, lake=local_path(lake) or "", root="out")
    news = derived.news(ResultState(1), derived.states())
    assert news is not None
    assert (news.is_replay, [*news.pieces]) == (False, ["logins"])
    assert sum(piece.rows for piece in news.all) == 4
    path = local_path(news.all[0].path)
    assert path is not None
    path.unlink()
    assert derived.news(ResultState(1), derived.states()) is None, "compacted, and removed by a vacuum"


@pytest.mark.parametrize(
    ("first", "last", "hours", "is_wanted"),
    [
        (5, 5, [5], True),
        (5, 5, [4, 6], False),
        (5, 7, [5], True),
        (5, 7, [7], True),
        (5, 7, [4], False),
        (5, 7, [8], False),
        (5, 7, [3, 6], True),
        (5, 7, [], True),
    ],
)
@pytest.mark.parametrize("partly", [0, 1])
def test_files_of_other_hours_are_not_read(
    tmp_path: Path, first: int, last: int, hours: list[int], is_wanted: bool, partly: int
) -> None:
    """Of hours that are asked for in part, to the millisecond, too; a file that says no hours may have any."""
    span = (first * HOUR_MS + partly, (last + 1) * HOUR_MS - partly)
    job: Any = SimpleNamespace(name="job", kinds=("logins",))
    derived = Derived(job, lake=str(tmp_path), root="out", span_ms=span)
    file = DataFile("f", 1, 1, "", "id", hours=hours)
    assert derived.is_in_span(file) is is_wanted
    derived = Derived(job, lake=str(tmp_path), root="out", span_ms=(first * HOUR_MS, first * HOUR_MS + 1))
    assert derived.is_in_span(file) is (first in hours or not hours)
    assert Derived(job, lake=str(tmp_path), root="out").is_in_span(file)
