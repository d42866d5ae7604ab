"""Rules of loads without Spark and broker: what is tried again, what is next, when hours are whole, what audits say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_pipeline.errors import (
    DataLossError,
    DefectError,
    IncompleteError,
    NoTopicError,
    TopicsError,
    UsageError,
)
from barnabas_pipeline.jobs import monitor, rank, security, streams
from barnabas_pipeline.jobs.coverage import RUN_OFFSETS, plan_runs
from barnabas_pipeline.jobs.load import find_loss, gone, only_end
from barnabas_pipeline.jobs.loading import Load
from barnabas_pipeline.jobs.seal import _is_complete
from barnabas_pipeline.jobs.streams import MISSED_MAX, TRIES_MAX, Stream, pending
from barnabas_pipeline.lake.ledger import State
from barnabas_pipeline.log import digest
from barnabas_pipeline.log.model import Bounds, OffsetRange, TopicIdentity
from barnabas_pipeline.log.planning import Selection

IDENTITY = TopicIdentity("c", "t", "tid")


def stream_of(*, is_bounded: bool = True, on_data_loss: str = "fail") -> Any:
    stream = Stream("t", lambda _: None, None, is_bounded=is_bounded)  # type: ignore[arg-type,return-value]
    stream._options = SimpleNamespace(on_data_loss=on_data_loss)  # type: ignore[assignment]
    return stream


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "may_pass"),
    [
        (IncompleteError("later"), True), (NoTopicError("none"), True), (UsageError("wrong"), False),
        (DataLossError("lost", []), False), (DefectError("ours"), False),
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("is_bounded", [True, False])
def test_transient_errors_are_retried_and_bounded_in_a_batch(
    error: Any, may_pass: bool, is_bounded: bool
) -> None:
    stream = stream_of(is_bounded=is_bounded)
    for tries in range(1, TRIES_MAX + 1):
        stream.fail(error)
        assert stream.tries == tries
        assert stream.is_over is (not may_pass or (is_bounded and tries == TRIES_MAX))
        assert stream.is_stuck is (stream.is_over or tries == TRIES_MAX or isinstance(error, NoTopicError))
    assert stream.error is error
    assert stream.succeed()
    assert (stream.error, stream.tries, stream.retry_at) == (None, 0, 0.0)
    assert not stream.succeed(), "nothing was wrong"


def test_pauses_double_up_to_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams.time, "monotonic", lambda: 100.0)
    stream = stream_of(is_bounded=False)
    pauses = []
    for _ in range(11):
        stream.fail(IncompleteError("later"))
        pauses.append(stream.retry_at - 100)
    assert pauses == [0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 64, 64]


@pytest.mark.parametrize(("on_data_loss", "is_over"), [("fail", True), ("record", False)])
def test_a_topic_that_is_gone_may_come_back_as_another_one(on_data_loss: str, is_over: bool) -> None:
    stream = stream_of(is_bounded=False, on_data_loss=on_data_loss)
    stream.fail(DataLossError("lost", []))
    assert stream.is_over, "it is there"
    stream = stream_of(is_bounded=False, on_data_loss=on_data_loss)
    for _ in range(MISSED_MAX - 1):
        assert stream.miss("here") is None
    assert isinstance(stream.miss("here"), NoTopicError)
    stream.fail(DataLossError("lost", []))
    assert stream.is_over is is_over


def test_a_topic_is_settled_when_nothing_is_left_of_it() -> None:
    stream = stream_of(is_bounded=False)
    assert stream.is_settled
    for change, is_settled in (
        ({"behind": {0: 0, 1: 1}}, False),
        ({"behind": {0: 0}}, True),
        ({"_missed": 1}, False),
    ):
        stream = stream_of(is_bounded=False)
        for name, value in change.items():
            setattr(stream, name, value)
        assert stream.is_settled is is_settled, change
        stream.is_over = True
        assert stream.is_settled
    stream = stream_of(is_bounded=False)
    stream.fail(IncompleteError("later"))
    assert not stream.is_settled


@pytest.mark.parametrize(
    ("failures", "count", "is_bounded", "raised"),
    [
        ({}, 2, True, None),
        ({"a": UsageError("wrong")}, 1, True, UsageError),
        ({"a": UsageError("wrong")}, 2, True, TopicsError),
        ({"a": UsageError("wrong"), "b": IncompleteError("later")}, 2, False, TopicsError),
        ({}, 0, True, NoTopicError),
        ({}, 0, False, None),
    ],
)
def test_one_failure_is_raised_as_it_is_and_several_together(
    failures: dict[str, Any], count: int, is_bounded: bool, raised: Any
) -> None:
    load: Any = Load.__new__(Load)
    load.is_bounded, load._count, load._cluster = is_bounded, 1, "here"
    load._topics = SimpleNamespace(choice=SimpleNamespace(patterns=("x.*",)))
    names = ["a", "b"][:count]
    load.streams = {name: SimpleNamespace(error=failures.get(name), is_stuck=True) for name in names}
    assert load.failures == failures
    assert load.is_over is (bool(failures) and len(failures) == count)
    if raised is None:
        load.raise_worst()
    else:
        with pytest.raises(raised):
            load.raise_worst()


# --- what is next -----------------------------------------------------------------------------------------------------


def test_pending_ranges_begin_at_the_last_end_or_given_start() -> None:
    state = State(ends={0: 5, 1: 9})
    bounds = {n: Bounds(2, 20, 20, 0) for n in range(4)}
    spans = pending(state, {1: 3, 2: 4}, {3: 20, 0: 8, 1: 7, 2: 20}, bounds)
    assert spans == [OffsetRange(0, 5, 8), OffsetRange(1, 9, 9), OffsetRange(2, 4, 20), OffsetRange(3, 2, 20)]


@pytest.mark.parametrize(
    ("bounds", "missing", "can_go_on"),
    [
        ({0: Bounds(5, 9, 9, 0), 1: Bounds(0, 3, 3, 0)}, None, None),
        ({0: Bounds(6, 9, 9, 0), 1: Bounds(0, 3, 3, 0)}, [(0, 5, 6)], True),
        ({0: Bounds(0, 4, 5, 0), 1: Bounds(0, 3, 3, 0)}, None, None),
        ({0: Bounds(0, 4, 4, 0), 1: Bounds(0, 3, 3, 0)}, [(0, 4, 5)], False),
        ({0: Bounds(0, 9, 9, 0)}, [(1, 3, None)], False),
        ({0: Bounds(0, 9, 9, 0), 1: Bounds(0, 3, 3, 0), 2: Bounds(1, 1, 1, 0)}, [(2, 0, 1)], True),
        ({0: Bounds(7, 9, 9, 0), 1: Bounds(0, 2, 2, 0)}, [(0, 5, 7), (1, 2, 3)], False),
    ],
)
def test_a_loss_is_what_can_never_be_loaded(bounds: Any, missing: Any, can_go_on: Any) -> None:
    state = State(version=1, cluster_id="c", topic_id="tid", ends={0: 5, 1: 3})
    loss = find_loss(state, IDENTITY, bounds)
    if missing is None:
        assert loss is None
        return
    assert loss is not None
    assert [tuple(span) for span in loss.missing] == missing
    assert loss.can_go_on is can_go_on


@pytest.mark.parametrize(
    ("cluster", "topic", "reason"), [("x", "tid", "cluster  is another"), ("c", "x", "topic t is another")]
)
def test_unloaded_offsets_of_a_replaced_topic_are_lost(cluster: str, topic: str, reason: str) -> None:
    state = State(version=1, cluster_id=cluster, topic_id=topic, ends={0: 5, 1: 3}, high_watermarks={0: 8})
    loss = find_loss(state, IDENTITY, {})
    assert loss is not None
    assert reason in str(loss)
    assert [tuple(span) for span in loss.missing] == [(0, 5, 8)]


def test_missing_topic_is_a_loss_if_it_was_loaded() -> None:
    assert isinstance(gone("t", "here", State()), NoTopicError)
    loss: Any = gone("t", "here", State(version=1, ends={1: 3, 0: 5}))
    assert [tuple(span) for span in loss.missing] == [(0, 5, None), (1, 3, None)]
    chosen = Selection(starting='{"0": 2}', ending='{"0": 3}', ending_timestamp_ms=7)
    assert only_end(chosen) == Selection(ending='{"0": 3}', ending_timestamp_ms=7)


# --- hours ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "loaded", "end", "now", "is_whole"),
    [
        (None, 10, 10, 1_000, True), (None, 10, 10, 999, False), (None, 9, 10, 2_000, False), (None, 11, 10, 1_000, True),
        (7, 7, 10, 0, True), (7, 8, 10, 0, True), (7, 6, 10, 9_999, False), (0, -1, 10, 0, False), (0, 0, 10, 0, True),
    ],
)  # fmt: skip
def test_an_hour_is_whole_when_nothing_can_come_for_it(
    offset: int | None, loaded: int, end: int, now: int, is_whole: bool
) -> None:
    def offset_for_time(partition: int, time_ms: int) -> int | None:
        return offset if (partition, time_ms) == (3, 1_000) else None

    log: Any = SimpleNamespace(offset_for_time=offset_for_time)
    state = State(ends={3: loaded} if loaded >= 0 else {})
    assert _is_complete(log, {3: Bounds(0, end, end, 0)}, state, 1_000, now) is is_whole


# --- audits -----------------------------------------------------------------------------------------------------------


def commit_of(start: int, end: int, *, log_digest: int | None = 1, **more: int) -> Any:
    counts = {"loaded": end - start, "dead": 0, "control": 0, "aborted": 0, **more}
    return SimpleNamespace(
        start=start, end=end, log_digest=digest.encode(log_digest) if log_digest is not None else "", **counts
    )


def entries_of(*commits: Any, partition: int = 0, topic_id: str = "tid") -> list[Any]:
    return [
        SimpleNamespace(cluster_id="c", topic_id=topic_id, partitions={str(partition): commit})
        for commit in commits
    ]


def runs_of(*entries: Any, bounds: Any = None) -> list[tuple[int, int]]:
    log_bounds = {0: Bounds(0, 1 << 40, 1 << 40, 0)} if bounds is None else bounds
    runs = plan_runs(entries, State(cluster_id="c", topic_id="tid"), log_bounds)
    return [(run.offset_range.start, run.offset_range.end) for run in runs]


def test_consecutive_commits_are_one_run_up_to_a_size() -> None:
    assert runs_of(*entries_of(commit_of(0, 5), commit_of(5, 9))) == [(0, 9)]
    assert runs_of(*entries_of(commit_of(0, 5), commit_of(6, 9))) == [(0, 5), (6, 9)]
    assert runs_of(*entries_of(commit_of(0, 5), commit_of(5, RUN_OFFSETS))) == [(0, RUN_OFFSETS)]
    assert runs_of(*entries_of(commit_of(0, 5), commit_of(5, RUN_OFFSETS + 1))) == [
        (0, 5),
        (5, RUN_OFFSETS + 1),
    ]
    far = 10 * RUN_OFFSETS
    assert runs_of(*entries_of(commit_of(far, far + 5), commit_of(far + 5, far + 9))) == [(far, far + 9)]
    whole = entries_of(commit_of(far, far + 5), commit_of(far + 5, far + RUN_OFFSETS))
    assert runs_of(*whole) == [(far, far + RUN_OFFSETS)]
    assert runs_of(*entries_of(commit_of(0, 5), commit_of(5, 9, log_digest=None))) == [(0, 5), (5, 9)]
    assert runs_of(*entries_of(commit_of(0, 5, log_digest=None), commit_of(5, 9, log_digest=None))) == [
        (0, 9)
    ]
    assert runs_of(*entries_of(commit_of(3, 3))) == [], "nothing is no run"
    assert runs_of(*entries_of(commit_of(0, 5)), *entries_of(commit_of(5, 9), topic_id="old")) == [(0, 5)]
    both = [
        *entries_of(commit_of(0, 5)),
        *entries_of(commit_of(0, 4), partition=1),
        *entries_of(commit_of(5, 6)),
    ]
    assert runs_of(*both) == [(0, 6), (0, 4)]


@pytest.mark.parametrize(
    ("start", "runs", "in_log"),
    [
        (0, [(0, 9)], [(0, 9)]),
        (3, [(0, 5), (5, 9)], [(3, 5), (5, 9)]),
        (5, [(0, 5), (5, 9)], [(5, 5), (5, 9)]),
        (7, [(0, 5), (5, 9)], [(5, 5), (7, 9)]),
        (9, [(0, 9)], [(9, 9)]),
        (20, [(0, 9)], [(9, 9)]),
    ],
)
def test_the_run_in_which_the_log_begins_is_kept_short(start: int, runs: Any, in_log: Any) -> None:
    bounds = {0: Bounds(start, 30, 30, 0)}
    planned = plan_runs(
        entries_of(commit_of(0, 5), commit_of(5, 9)), State(cluster_id="c", topic_id="tid"), bounds
    )
    assert [(run.offset_range.start, run.offset_range.end) for run in planned] == runs
    assert [(run.in_log.start, run.in_log.end) for run in planned] == in_log


# --- scores -----------------------------------------------------------------------------------------------------------


def span(service: str, start: int, end: int) -> dict[str, Any]:
    return {"service": service, "start": start, "end": end}


@pytest.mark.parametrize(
    ("alerts", "incidents", "precision", "recall"),
    [
        ([], [], 1.0, 1.0),
        ([("a", 0, 5)], [], 0.0, 1.0),
        ([], [("a", 0, 5)], 1.0, 0.0),
        ([("a", 0, 5)], [("a", 4, 9)], 1.0, 1.0),
        ([("a", 0, 5)], [("a", 5, 9)], 0.0, 0.0),
        ([("a", 5, 9)], [("a", 0, 5)], 0.0, 0.0),
        ([("b", 0, 5)], [("a", 4, 9)], 0.0, 0.0),
        ([("a", 0, 5), ("a", 7, 8), ("b", 0, 1)], [("a", 4, 9)], 0.6667, 1.0),
    ],
)
def test_alerts_are_right_where_they_overlap_an_incident(
    alerts: Any, incidents: Any, precision: float, recall: float
) -> None:
    scores = monitor.score([span(*alert) for alert in alerts], [span(*incident) for incident in incidents])
    assert scores == {"precision": precision, "recall": recall}


@pytest.mark.parametrize(
    ("subjects", "truth", "precision", "recall"),
    [
        ([], [], 1.0, 1.0),
        (["a"], [], 0.0, 1.0),
        ([], ["a"], 1.0, 0.0),
        (["a", "b", "a"], ["a", "c", "d"], 0.5, 0.3333),
    ],
)
def test_verdicts_are_right_by_kind(subjects: Any, truth: list[str], precision: float, recall: float) -> None:
    rows = [{"subject": subject, "kind": "spam"} for subject in subjects] + [{"subject": "c", "kind": "rate"}]
    assert security.score(rows, "spam", truth) == {"precision": precision, "recall": recall}


def test_a_ranking_is_as_good_as_its_order() -> None:
    quality = {"a": 0.9, "b": 0.5, "c": 0.1}
    rows = [{"item": item, "views": 20} for item in "abc"]
    assert rank.score(rows, quality) == {"spearman": 1.0, "ndcg": 1.0, "items": 3}
    assert rank.score(rows[::-1], quality) == {"spearman": -1.0, "ndcg": 0.6839, "items": 3}
    rows[1]["views"] = 19
    assert rank.score(rows, quality) == {"spearman": 0.0, "ndcg": 1.0, "items": 2}
    assert rank.score(rows[::-1], quality, top=1) == {"spearman": 0.0, "ndcg": 0.1111, "items": 2}
