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
from barnabas_pipeline.jobs import report
from barnabas_pipeline.jobs.derived import Derived
from barnabas_pipeline.jobs.feed import Feed
from barnabas_pipeline.jobs.monitor import Monitor
from barnabas_pipeline.jobs.rank import Rank
from barnabas_pipeline.jobs.security import Rules, Security
from barnabas_pipeline.jobs.sites import Cluster, Site, Topic
from barnabas_pipeline.jobs.visitors import Visitors
from barnabas_pipeline.lake.ledger import State, hour_name, hour_number


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
    job = job_of(Security, "--rules", str(rules), "--allow", "a", "--allow", "b")
    assert (job.rules, job.allowed) == (Rules(spam_votes=3), ("a", "b"))
    assert vars(job_of(Security)) == vars(Security())
    rules.write_text('{"spam_votes": 3, "other": 1}')
    with pytest.raises(UsageError, match="there is no rule 'other'"):
        job_of(Security, "--rules", str(rules))


def test_a_feed_needs_to_know_who_follows_whom(tmp_path: Path) -> None:
    follows, truth = tmp_path / "follows.json", tmp_path / "truth.json"
    follows.write_text('{"a": ["b"]}')
    truth.write_text('{"follows": {"c": ["d"]}}')
    assert job_of(Feed, "--follows", str(follows), "--items", "3", truth=str(truth)).follows == {"a": ["b"]}
    feed = job_of(Feed, truth=str(truth))
    assert (feed.follows, feed.items_max) == ({"c": ["d"]}, 20)
    with pytest.raises(UsageError, match="feed needs --follows, or --truth"):
        job_of(Feed, truth=None)


def test_params_are_the_settings_that_partials_depend_on() -> None:
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


# --- reports ----------------------------------------------------------------------------------------------------------


def test_report_has_the_hours_of_its_day_and_unsealed_ones() -> None:
    first = hour_number("2026-11-20T00")
    views = State(version=7, hours={first - 1, first, first + 5, first + 23, first + 24}, sealed={first})
    votes = State(version=3, hours={first + 5, first + 6}, sealed={first + 5, first + 6})
    states = {"views": views, "votes": votes, "logins": State(hours={first})}
    summary = report.judged(report.ReportSummary("2026-11-20"), states, first)
    assert summary.versions == {"views": 7, "votes": 3}
    assert summary.unsealed == [f"views {hour_name(first + n)}" for n in (5, 23)]
    assert summary.hours == 4


def test_a_report_is_of_a_day_that_there_is(tmp_path: Path) -> None:
    for day in ("2026-11", "2026-11-31", "today", ""):
        with pytest.raises(UsageError, match="is no day, like 2026-11-20"):
            report.report(None, lake=str(tmp_path), out=str(tmp_path), day=day)
    with pytest.raises(UsageError, match=r"there is nothing in file://.*/views, file://.*/clicks"):
        report.report(None, lake=str(tmp_path), out=str(tmp_path), day="2026-11-20")
    with pytest.raises(UsageError, match=r"there is nothing in file://.*/p-profiles$"):
        Derived(Visitors(), lake=str(tmp_path), root=str(tmp_path), prefix="p-").update(None)


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


def test_topics_with_metadata_errors_are_left_out() -> None:
    answers = SimpleNamespace(
        cluster_id="c",
        topics=[
            info("a", 1, -1, 2, topic_id=b"\1" * 16), info("b", error=3), info(None, 1), info("c", internal=True),
        ],
    )  # fmt: skip
    site = Site(Cluster("", "127.0.0.1:1"))
    assert site.cluster_id() == ""
    site.ask = lambda work: answers  # type: ignore[method-assign, assignment, return-value]
    topics = site.topics()
    assert topics == {
        "a": Topic("a", "AQEBAQEBAQEBAQEBAQEBAQ", 3, False, (10, 11, 12), frozenset({1})),
        "c": Topic("c", "", 0, True, (), frozenset()),
    }
    assert site.cluster_id() == "c"
    answers.cluster_id = None
    site.topics()
    assert site.cluster_id() == ""
    site.close()


def test_refused_login_is_usage_and_other_errors_incomplete() -> None:
    site = Site(Cluster("name", "127.0.0.1:1"))
    for error, kind in ((AuthenticationError("no"), UsageError), (ClientError("away"), IncompleteError)):

        def fail(_: Any, error: Exception = error) -> Any:
            raise error

        site._client = SimpleNamespace(run=fail)  # type: ignore[assignment]
        with pytest.raises(kind, match=f"^name: {error}"):
            site.ask(lambda _: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(UsageError):
        Site(Cluster("", "nowhere"))
