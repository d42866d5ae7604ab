"""Jobs that make results, as far as no Spark is needed: their options, how they are judged, which hours a report takes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client import AuthenticationError, ClientError
from barnabas.wire.generated.metadata import MetadataResponse
from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.jobs import audit as audits
from barnabas_pipeline.jobs import monitor, rank, report, security
from barnabas_pipeline.jobs.derived import Derived
from barnabas_pipeline.jobs.feed import Feed
from barnabas_pipeline.jobs.monitor import Monitor
from barnabas_pipeline.jobs.rank import Rank
from barnabas_pipeline.jobs.security import Rules, Security
from barnabas_pipeline.jobs.sites import Cluster, Site, Topic
from barnabas_pipeline.jobs.visitors import Visitors
from barnabas_pipeline.lake.ledger import State, hour_name, hour_number
from barnabas_pipeline.log.model import OffsetRange


def job_of(kind: Any, *words: str, **more: Any) -> Any:
    """The job that a command line asks for."""
    parser = argparse.ArgumentParser()
    kind.add_options(parser)
    return kind.from_options(argparse.Namespace(**{**vars(parser.parse_args(words)), **more}))


# --- options ----------------------------------------------------------------------------------------------------------


def test_options_of_jobs_are_in_units_that_people_use(tmp_path: Path) -> None:
    assert vars(job_of(Rank)) == vars(Rank())
    assert vars(job_of(Rank, "--half-life", "1.5", "--window", "2.5")) == {
        "window_ms": 150_000, "half_life_ms": 5_400_000,
    }  # fmt: skip
    assert vars(job_of(Monitor)) == vars(Monitor())
    words = ["--window", "2.5", "--watermark", "0.5", "--rule", "a=1.5", "--rule", "b=2"]
    assert vars(job_of(Monitor, *words)) == {"window_ms": 2500, "late_ms": 500, "rules": {"a": 1.5, "b": 2.0}}
    for rule in ("a", "a=x", "a="):
        with pytest.raises(UsageError, match="--rule"):
            job_of(Monitor, "--rule", rule)
    assert (job_of(Visitors).rekeyed, job_of(Visitors, "--rekeyed").rekeyed) == (False, True)
    rules = tmp_path / "rules.json"
    rules.write_text('{"spam_votes": 3}')
    made = job_of(Security, "--rules", str(rules), "--allow", "a", "--allow", "b")
    assert (made.rules, made.allowed) == (Rules(spam_votes=3), ("a", "b"))
    assert vars(job_of(Security)) == vars(Security())
    rules.write_text('{"spam_votes": 3, "other": 1}')
    with pytest.raises(UsageError, match="there is no rule 'other'"):
        job_of(Security, "--rules", str(rules))


def test_a_feed_needs_to_know_who_follows_whom(tmp_path: Path) -> None:
    given, truth = tmp_path / "follows.json", tmp_path / "truth.json"
    given.write_text('{"a": ["b"]}')
    truth.write_text('{"follows": {"c": ["d"]}}')
    assert job_of(Feed, "--follows", str(given), "--items", "3", truth=str(truth)).follows == {"a": ["b"]}
    made = job_of(Feed, truth=str(truth))
    assert (made.follows, made.items_max) == ({"c": ["d"]}, 20)
    with pytest.raises(UsageError, match="feed needs --follows, or --truth"):
        job_of(Feed, truth=None)


def test_what_makes_partials_other_is_a_setting_of_theirs_and_what_judges_them_is_not() -> None:
    def params(job: Any) -> str:
        return json.dumps(job.params(), sort_keys=True)

    for same, other in (
        ((Rank(), Rank(half_life_ms=1)), Rank(window_ms=1)),
        ((Monitor(), Monitor(rules={"a": 1})), Monitor(window_ms=1)),
        ((Monitor(), Monitor(rules={"a": 1})), Monitor(late_ms=1)),
        ((Feed({}), Feed({"a": ["b"]})), Feed({}, items_max=1)),
        ((Visitors(), Visitors()), Visitors(rekeyed=True)),
    ):
        assert params(same[0]) == params(same[1]) != params(other)
    assert params(Security()) == params(Security(Rules(spam_votes=1), allowed=("a",)))


# --- scores -----------------------------------------------------------------------------------------------------------


def alert(service: str, start: int, end: int) -> dict[str, Any]:
    return {"service": service, "start": start, "end": end}


@pytest.mark.parametrize(
    ("alerts", "incidents", "precision", "recall"),
    [
        ([], [], 1.0, 1.0),
        ([], [("s", 0, 10)], 1.0, 0.0),
        ([("s", 0, 10)], [], 0.0, 1.0),
        ([("s", 0, 10)], [("s", 9, 20)], 1.0, 1.0),
        ([("s", 0, 10)], [("s", 10, 20)], 0.0, 0.0),
        ([("s", 10, 20)], [("s", 0, 10)], 0.0, 0.0),
        ([("s", 0, 10)], [("t", 0, 10)], 0.0, 0.0),
        ([("s", 0, 10), ("s", 0, 4), ("t", 0, 1)], [("s", 5, 6), ("s", 30, 40), ("s", 3, 9)], 0.6667, 0.6667),
    ],
)
def test_an_alert_is_right_if_it_overlaps_an_incident_of_its_service(
    alerts: Any, incidents: Any, precision: float, recall: float
) -> None:
    found = monitor.score([alert(*one) for one in alerts], [alert(*one) for one in incidents])
    assert found == {"precision": precision, "recall": recall}


def test_verdicts_of_one_kind_are_held_against_the_guilty() -> None:
    verdicts = [
        {"kind": kind, "subject": name}
        for kind, name in (("spam", "a"), ("spam", "b"), ("spam", "c"), ("rate", "d"))
    ]
    for truth, precision, recall in ((["a", "b", "c"], 1.0, 1.0), (["a", "d"], 0.3333, 0.5), ([], 0.0, 1.0)):
        assert security.score(verdicts, "spam", truth) == {"precision": precision, "recall": recall}
    assert security.score(verdicts, "other", ["a"]) == {"precision": 1.0, "recall": 0.0}


def test_a_ranking_is_judged_by_those_that_were_seen() -> None:
    quality = {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}

    def ranked(names: str, views: int = 20) -> list[dict[str, Any]]:
        return [{"item": name, "views": views} for name in names]

    assert rank.score(ranked("abcd"), quality) == {"spearman": 1.0, "ndcg": 1.0, "items": 4}
    assert rank.score(ranked("dcba"), quality)["spearman"] == -1.0
    assert rank.score(ranked("bacd"), quality) == {"spearman": 0.8, "ndcg": 0.9496, "items": 4}
    assert rank.score(ranked("abcd", 19), quality) == {"spearman": 0.0, "ndcg": 1.0, "items": 0}
    assert rank.score([*ranked("d", 19), *ranked("abc")], quality)["spearman"] == 1.0
    assert rank.score(ranked("ba"), quality)["spearman"] == 0.0, "two say nothing"
    assert rank.score(ranked("cab"), quality)["spearman"] == -0.5
    assert rank.score(ranked("ab"), quality, top=1)["ndcg"] == 1.0
    assert rank.score(ranked("ba"), quality, top=1)["ndcg"] == 0.75


def test_scores_are_of_a_jobs_own_results() -> None:
    def derived(**results: list[dict[str, Any]]) -> Any:
        return SimpleNamespace(result=lambda name: SimpleNamespace(to_pylist=lambda: results[name]))

    truth = SimpleNamespace(
        follows={"m": ["a"]}, crawlers=["x"], spammers=[], quality={"a": 1.0}, incidents=[]
    )
    feed = [{"member": "m", "voter": "a"}, {"member": "m", "voter": "b"}]
    assert Feed({}).score(derived(feed=feed), truth) == {"entries_of_strangers": 1}
    found = Security().score(derived(verdicts=[{"kind": "crawler", "subject": "x"}]), truth)
    assert found == {"crawler": {"precision": 1.0, "recall": 1.0}, "spam": {"precision": 1.0, "recall": 1.0}}
    assert Monitor().score(derived(alerts=[]), truth) == {"precision": 1.0, "recall": 1.0}
    assert Rank().score(derived(rank=[{"item": "a", "views": 1}]), truth)["ndcg"] == 1.0


# --- reports ----------------------------------------------------------------------------------------------------------


def test_a_report_takes_the_hours_of_its_day_and_names_those_that_are_not_sealed() -> None:
    first = hour_number("2026-11-20T00")
    views = State(version=7, hours={first - 1, first, first + 5, first + 23, first + 24}, sealed={first})
    votes = State(version=3, hours={first + 5, first + 6}, sealed={first + 5, first + 6})
    states = {"views": views, "votes": votes, "logins": State(hours={first})}
    found = report._judged(report.ReportSummary("2026-11-20"), states, first)
    assert found.versions == {"views": 7, "votes": 3}
    assert found.unsealed == [f"views {hour_name(first + n)}" for n in (5, 23)]
    assert found.hours == 4


def test_a_report_is_of_a_day_that_there_is(tmp_path: Path) -> None:
    for day in ("2026-11", "2026-11-31", "today", ""):
        with pytest.raises(UsageError, match="is no day, like 2026-11-20"):
            report.report(None, lake=str(tmp_path), out=str(tmp_path), day=day)
    with pytest.raises(UsageError, match=r"there is nothing in file://.*/views, file://.*/clicks"):
        report.report(None, lake=str(tmp_path), out=str(tmp_path), day="2026-11-20")
    with pytest.raises(UsageError, match=r"there is nothing in file://.*/p-profiles$"):
        Derived(Visitors(), lake=str(tmp_path), root=str(tmp_path), prefix="p-").update(None)


# --- which values an audit compares -----------------------------------------------------------------------------------


def run_of(
    partition: int, start: int, end: int, kept: int | None = None, *, is_as_loaded: bool = True
) -> Any:
    wanted = OffsetRange(partition, start, end)
    in_log = OffsetRange(partition, start if kept is None else kept, end)
    return SimpleNamespace(wanted=wanted, in_log=in_log, is_as_loaded=is_as_loaded)


class FileAt(SimpleNamespace):
    def may_have(self, partition: int, start: int, end: int) -> bool:
        return bool(self.partition == partition and start <= self.offset < end)


@pytest.mark.parametrize(
    ("runs", "is_all", "expected"),
    [
        ([], True, []),
        ([run_of(0, 0, 5)], False, []),
        ([run_of(0, 0, 5)], True, [(0, 0, 5)]),
        ([run_of(0, 0, 5, is_as_loaded=False)], False, [(0, 0, 5)]),
        ([run_of(1, 5, 10), run_of(1, 0, 5)], False, [(1, 5, 10)]),
        ([run_of(0, 5, 10), run_of(0, 0, 5)], True, [(0, 0, 10)]),
        ([run_of(0, 0, 5), run_of(0, 6, 10)], True, [(0, 0, 5), (0, 6, 10)]),
        ([run_of(0, 0, 5), run_of(1, 5, 10)], True, [(0, 0, 5), (1, 5, 10)]),
        ([run_of(0, 0, 5, 5), run_of(0, 5, 10, 7)], True, [(0, 7, 10)]),
        ([run_of(0, 0, 5), run_of(0, 5, 10, 7), run_of(0, 10, 12)], True, [(0, 0, 5), (0, 7, 12)]),
        ([run_of(0, 0, 5, is_as_loaded=False), run_of(0, 5, 9), run_of(0, 9, 10, is_as_loaded=False)], False,
         [(0, 0, 5), (0, 9, 10)]),
    ],
)  # fmt: skip
def test_values_are_compared_in_ranges_that_the_log_still_has_side_by_side_in_one(
    runs: Any, is_all: bool, expected: Any
) -> None:
    files = [FileAt(path="bad", partition=1, offset=7), FileAt(path="good", partition=0, offset=2)]
    inventory: Any = SimpleNamespace(files=files)
    found = audits._doubtful(runs, {"bad"}, inventory, is_all=is_all)
    assert found == [OffsetRange(*one) for one in expected]


# --- clusters ---------------------------------------------------------------------------------------------------------


def info(
    name: str | None, *leaders: int, error: int = 0, topic_id: bytes = b"", internal: bool = False
) -> Any:
    partition = MetadataResponse.MetadataResponsePartition
    parts = [
        partition(
            error_code=0,
            partition_index=n,
            leader_id=leader,
            leader_epoch=10 + n,
            replica_nodes=[],
            isr_nodes=[],
        )
        for n, leader in enumerate(leaders)
    ]
    return MetadataResponse.MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=topic_id or bytes(16),
        is_internal=internal,
        partitions=parts[::-1],
    )


def test_topics_of_a_cluster_are_those_that_it_can_say_something_of() -> None:
    answers = SimpleNamespace(
        cluster_id="c",
        topics=[
            info("a", 1, -1, 2, topic_id=b"\1" * 16), info("b", error=3), info(None, 1), info("c", internal=True),
        ],
    )  # fmt: skip
    site = Site(Cluster("", "127.0.0.1:1"))
    assert site.cluster_id() == ""
    site.ask = lambda work: answers  # type: ignore[method-assign, assignment, return-value]
    found = site.topics()
    assert found == {
        "a": Topic("a", "AQEBAQEBAQEBAQEBAQEBAQ", 3, False, (10, 11, 12), frozenset({1})),
        "c": Topic("c", "", 0, True, (), frozenset()),
    }
    assert site.cluster_id() == "c"
    answers.cluster_id = None
    site.topics()
    assert site.cluster_id() == ""
    site.close()


def test_a_login_that_is_refused_is_a_wrong_option_and_what_may_pass_is_not() -> None:
    site = Site(Cluster("name", "127.0.0.1:1"))
    for error, kind in ((AuthenticationError("no"), UsageError), (ClientError("away"), IncompleteError)):

        def fail(_: Any, error: Exception = error) -> Any:
            raise error

        site._client = SimpleNamespace(run=fail)  # type: ignore[assignment]
        with pytest.raises(kind, match=f"^name: {error}"):
            site.ask(lambda _: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(UsageError):
        Site(Cluster("", "nowhere"))
