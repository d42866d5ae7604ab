"""Rounds of a load of many topics without broker and Spark: what is loaded, fails and is stopped by that, fair portions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from barnabas.client import ClientError
from barnabas_pipeline.errors import DataLossError, IncompleteError, NoTopicError, TopicsError, UsageError
from barnabas_pipeline.jobs import streams as streams_module
from barnabas_pipeline.jobs.loading import Load
from barnabas_pipeline.lake.table import ConflictError, Table
from barnabas_pipeline.lake.task import TaskResult
from barnabas_pipeline.log.model import Bounds
from barnabas_pipeline.log.planning import Selection

from .loading import CLUSTER, CrashError, FakeCluster, Tasks, World
from .tables import failing


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "lake", FakeCluster(), Tasks())


# --- one job, one request -------------------------------------------------------------------------------------------


def test_round_reads_all_topics_in_one_job_and_commits_each(world: World) -> None:
    for n in range(20):
        world.cluster.put(f"t{n}", n, n)
    world.load(patterns=("t.*",))
    assert world.cluster.requests == ["topics", "bounds"]
    assert world.cluster.closed
    assert len(world.tasks.jobs) == 1
    assert [world.ends(f"t{n}") for n in range(1, 20)] == [{0: n, 1: n} for n in range(1, 20)]
    assert not Table(world.place("t0")).exists(), "of what is empty there is no table"
    assert sorted((commit.topic, commit.count, commit.behind) for commit in world.noted.commits) == sorted(
        (f"t{n}", 2 * n, 0) for n in range(1, 20)
    )


def test_topic_without_new_records_costs_no_task_or_commit(world: World) -> None:
    world.cluster.put("a", 5)
    world.cluster.put("b", 5)
    rounds = world.rounds(world.topics("a", "b"))
    rounds.round()
    world.cluster.put("b", 7)
    rounds.round()
    rounds.round()
    rounds.close()
    assert [sorted(topics) for topics in world.tasks.topics] == [["a", "b"], ["b"]]
    assert (Table(world.place("a")).state().version, Table(world.place("b")).state().version) == (1, 2)


def test_what_joins_while_a_load_runs(world: World) -> None:
    world.cluster.put("logs.a", 3)
    world.cluster.put("other", 3)
    rounds = world.rounds(world.topics("named", patterns=(r"logs\..*",), excluded=(r".*\.secret",)))
    rounds.round()
    world.cluster.put("logs.b", 4)
    world.cluster.put("logs.secret", 4)
    world.cluster.put("logs.a", 3, 2)
    world.cluster.put("named", 1)
    world.cluster.put("__logs.x", 1)
    rounds.round()
    rounds.close()
    assert sorted(rounds.streams) == ["logs.a", "logs.b", "named"]
    assert [world.ends(name) for name in ("logs.a", "logs.b", "named")] == [{0: 3, 1: 2}, {0: 4}, {0: 1}]
    assert rounds.failures == {}


def test_bounded_load_ends_at_the_ends_of_its_first_round(world: World) -> None:
    world.cluster.put("a", 10)
    world.more["a"] = {"offsets_per_commit_max": 4}

    def more() -> None:
        world.cluster.put("a", 100)
        world.cluster.put("b", 5)

    world.tasks.before["a"] = more
    summary = world.load(patterns=("a|b",))
    assert (summary.commits, summary.loaded, world.ends("a")) == (3, 10, {0: 10})
    assert not Table(world.place("b")).exists()


def test_latest_is_where_the_topic_ended_when_it_joined(world: World) -> None:
    world.cluster.put("a", 10)
    world.more["a"] = {"selection": Selection(starting="latest")}
    rounds = world.rounds(world.topics("a"))
    rounds.round()
    world.cluster.put("a", 12)
    rounds.round()
    rounds.close()
    state = Table(world.place("a")).state()
    assert (state.starts, state.ends) == ({0: 10}, {0: 12})


def test_recreated_topic_without_loads_is_read_from_its_start(world: World) -> None:
    world.cluster.put("a", 10)
    world.more["a"] = {"selection": Selection(starting="latest")}
    rounds = world.rounds(world.topics("a"))
    rounds.round()
    world.cluster.put("a", 1, topic_id="another")
    rounds.round()
    world.cluster.put("a", 3, topic_id="another")
    rounds.round()
    rounds.close()
    assert world.noted.commits[0].offsets == {0: (1, 3)}


# --- fair -----------------------------------------------------------------------------------------------------------


def test_a_topic_with_a_lot_of_data_starves_nobody(world: World) -> None:
    world.cluster.put("big", 1_000_000)
    for n in range(9):
        world.cluster.put(f"small{n}", 10)
    rounds = world.rounds(world.topics(patterns=(".*",)), offsets_max=1000)
    done = rounds.round()
    first = {commit.topic: commit.count for commit in done.commits}
    assert first == {"big": 910, **{f"small{n}": 10 for n in range(9)}}
    assert done.behind == 1_000_000 - 910
    world.cluster.put("small0", 2000)
    second = {commit.topic: commit.count for commit in rounds.round().commits}
    rounds.close()
    assert second == {"big": 500, "small0": 500}


# --- what fails -----------------------------------------------------------------------------------------------------


def test_failing_topics_stop_no_other_and_set_the_exit_code(world: World) -> None:
    for name in ("bad", "good", "lossy", "worse"):
        world.cluster.put(name, 5)
    world.refused["bad"] = UsageError("no such schema")
    world.tasks.outcomes["lossy"] = DataLossError("retention has overtaken lossy", [])
    with pytest.raises(TopicsError) as caught:
        world.load("bad", "good", "lossy", "worse", "none")
    assert caught.value.exit_code == 3
    text = str(caught.value)
    assert text.startswith("3 of 5 topics have failed: lossy: retention has overtaken lossy")
    assert "bad: no such schema" in text
    assert "none: there is no topic 'none' at 127.0.0.1:1" in text
    assert (world.ends("good"), world.ends("worse")) == ({0: 5}, {0: 5})
    assert not Table(world.place("lossy")).exists()


def test_a_failure_of_one_topic_is_raised_as_it_is(world: World) -> None:
    with pytest.raises(NoTopicError, match="there is no topic 'none'"):
        world.load("none")
    world.cluster.put("a", 5)
    world.tasks.outcomes["a"] = DataLossError("gone", [])
    with pytest.raises(DataLossError, match="gone"):
        world.load("a")


def test_unmatched_pattern_fails_a_bounded_load_only(world: World) -> None:
    with pytest.raises(NoTopicError, match=r"no topic of 127\.0\.0\.1:1 matches x\.\*, y"):
        world.load(patterns=("x.*", "y"))
    rounds = world.rounds(world.topics(patterns=("x.*",)))
    rounds.round()
    assert not rounds.is_over
    world.cluster.put("x1", 3)
    rounds.round()
    rounds.close()
    rounds.raise_worst()
    assert world.ends("x1") == {0: 3}


def test_what_may_pass_is_tried_again_and_told_once(world: World) -> None:
    world.cluster.put("a", 5)
    world.cluster.put("b", 5)
    world.cluster.errors["a", 0] = ClientError("a-0 has no leader")
    rounds = world.rounds(world.topics("a", "b"))
    for _ in range(6):
        rounds.round()
    assert not rounds.is_over, "b goes on"
    world.cluster.errors.clear()
    rounds.round()
    rounds.close()
    assert world.noted.told[-2:] == [("failed", "a", "a-0 has no leader"), ("recovered", "a")]
    assert (world.ends("a"), world.ends("b"), rounds.failures) == ({0: 5}, {0: 5}, {})


def test_bounded_load_gives_up_a_topic_that_keeps_failing(world: World) -> None:
    world.cluster.put("a", 5)
    world.cluster.put("b", 5)
    world.tasks.outcomes["a"] = IncompleteError("the disk is full")
    with pytest.raises(TopicsError, match="1 of 2 topics have failed: a: the disk is full") as caught:
        world.load("a", "b")
    assert caught.value.exit_code == 2
    assert world.ends("b") == {0: 5}
    assert sum("a" in topics for topics in world.tasks.topics) == streams_module.TRIES_MAX


def test_a_load_that_goes_on_ends_once_nothing_works(world: World) -> None:
    world.cluster.put("a", 5)
    world.tasks.outcomes["a"] = IncompleteError("the store is away")
    with pytest.raises(IncompleteError, match="the store is away"):
        Load(None, world.topics("a")).run("0 seconds")


def test_worker_killed_by_one_topic_leaves_others_loaded(world: World) -> None:
    for name in ("a", "b", "c"):
        world.cluster.put(name, 5)
    world.tasks.outcomes["b"] = CrashError()
    with pytest.raises(TopicsError, match="1 of 3 topics have failed: b: Spark could not do it"):
        world.load("a", "b", "c")
    assert (world.ends("a"), world.ends("c")) == ({0: 5}, {0: 5})


def test_a_mistake_of_ours_is_shown_and_fails_one_topic(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "c"):
        world.cluster.put(name, 5)

    def broken(name: str, commit: Any) -> Any:
        if name == "b":
            raise ZeroDivisionError("of all things")
        return commit()

    world.catalogs.on_commit = broken
    world.tasks.outcomes["c"] = BrokenPipeError("a task of c")
    with pytest.raises(
        TopicsError, match=r"2 of 3 topics have failed: b: ZeroDivisionError: of all things; c: "
    ) as caught:
        world.load("a", "b", "c")
    assert caught.value.exit_code == 1
    assert "Traceback" in capsys.readouterr().err
    assert world.ends("a") == {0: 5}
    with pytest.raises(ZeroDivisionError):
        world.load("b")


def test_deleted_topic_is_left_out_once_it_is_certain(world: World) -> None:
    world.cluster.put("a", 5)
    world.cluster.put("b", 5)
    rounds = world.rounds(world.topics(patterns=(".*",)))
    rounds.round()
    held = world.cluster.held.pop("a")
    rounds.round()
    assert rounds.failures == {}, "a broker that has just started may not know it yet"
    world.cluster.held["a"] = held
    rounds.round()
    del world.cluster.held["a"]
    rounds.round()
    rounds.round()
    world.cluster.put("b", 9)
    rounds.round()
    rounds.close()
    assert world.noted.told[-1] == ("left out", "a", "topic a is gone; missing: partition 0: [5, ?)")
    assert world.ends("b") == {0: 9}
    with pytest.raises(TopicsError) as caught:
        rounds.raise_worst()
    assert caught.value.exit_code == 3


def test_recreated_topic_joins_if_losses_are_recorded(world: World) -> None:
    for name in ("a", "b"):
        world.cluster.put(name, 5)
    world.more["b"] = {"on_data_loss": "record"}
    rounds = world.rounds(world.topics("a", "b"))
    rounds.round()
    held = {**world.cluster.held}
    world.cluster.held.clear()
    for _ in range(3):
        rounds.round()
    assert sorted(rounds.failures) == ["a", "b"]
    for name in held:
        world.cluster.put(name, 2, topic_id="another")
    rounds.round()
    rounds.close()
    assert sorted(rounds.failures) == ["a"]
    assert Table(world.place("b")).state().topic_id == "another"
    assert world.ends("b") == {0: 2}


# --- names of tables ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("a.b", "a_b"), ("a", "a__dead"), ("x__dead", "x"), ("a", "a__current")])
def test_topics_with_one_table_are_refused_before_writing(world: World, names: tuple[str, str]) -> None:
    for name in (*names, "fine"):
        world.cluster.put(name, 5)
    with pytest.raises(UsageError, match="would both have a table barnabas"):
        world.load("fine", patterns=(f"{names[0]}|{names[1]}",))
    assert not world.root.exists()


def test_joining_topic_with_a_taken_table_is_left_out(world: World) -> None:
    world.cluster.put("a.b", 5)
    rounds = world.rounds(world.topics(patterns=(".*",)))
    rounds.round()
    world.cluster.put("a_b", 5)
    world.cluster.put("a-c", 5)
    rounds.round()
    rounds.close()
    assert [*rounds.failures] == ["a_b"]
    assert "would both have a table barnabas.a_b" in str(rounds.failures["a_b"])
    assert (world.ends("a.b"), world.ends("a-c")) == ({0: 5}, {0: 5})


def test_a_table_of_its_own_makes_room(world: World) -> None:
    world.tables["a_b"] = "barnabas.other"
    for name in ("a.b", "a_b"):
        world.cluster.put(name, 5)
    world.load("a.b", "a_b")
    assert (world.ends("a.b"), world.ends("a_b")) == ({0: 5}, {0: 5})


# --- others who commit ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [1, 5, 12])
def test_a_load_goes_on_however_often_others_were_faster(world: World, others: int) -> None:
    world.cluster.put("a", 50)
    other = World(world.root, FakeCluster(), Tasks())
    remaining = [others]

    def faster() -> None:
        from barnabas_pipeline.jobs.load import Plan
        from barnabas_pipeline.log.model import OffsetRange, TopicIdentity

        table = Table(world.place("a"))
        end = table.state().ends.get(0, 0)
        span = OffsetRange(0, end, end + 1)
        bounds = {0: Bounds(0, 50, 50, 1)}
        plan = Plan(table, TopicIdentity(CLUSTER, "a", "id-a"), bounds, [span], [span], other.options("a"))
        plan.prepare()
        plan.commit([TaskResult(span, loaded=1)])
        remaining[0] -= 1
        if remaining[0]:
            world.tasks.before["a"] = faster

    world.tasks.before["a"] = faster
    summary = world.load("a")
    assert world.ends("a") == {0: 50}
    assert (summary.commits, summary.loaded) == (1, 50 - others)


def test_a_conflict_that_nobody_has_caused_ends_a_load(world: World) -> None:
    world.cluster.put("a", 5)
    world.catalogs.on_commit, _ = failing(*[lambda: ConflictError("stuck")] * 99)
    with pytest.raises(ConflictError):
        world.load("a")


def test_idle_tables_are_closed_and_opened_again(world: World) -> None:
    world.tables_open_max = 2
    for n in range(6):
        world.cluster.put(f"t{n}", 5)
    rounds = world.rounds(world.topics(patterns=(".*",)))
    rounds.round()
    for _ in range(2):
        assert sum(stream._table is not None for stream in rounds.streams.values()) == 2
        rounds.round()  # which finds nothing, and opens none to see that
    for n in range(6):
        world.cluster.put(f"t{n}", 8)
    rounds.round()
    rounds.close()
    assert [world.ends(f"t{n}") for n in range(6)] == [{0: 8}] * 6
    assert rounds.summary.loaded == 48


def test_closed_table_is_refreshed_before_its_next_load(world: World) -> None:
    world.cluster.put("a", 5)
    rounds = world.rounds(world.topics("a"))
    rounds.round()
    rounds.streams["a"].put_away()
    world.cluster.put("a", 9)
    other = world.rounds(world.topics("a"))
    other.round()
    world.cluster.put("a", 12)
    rounds.round()
    for load in (rounds, other):
        load.close()
    assert world.ends("a") == {0: 12}
    assert [commit.offsets for commit in world.noted.commits] == [{0: (0, 5)}, {0: (5, 9)}, {0: (9, 12)}]
    assert rounds.failures == {}


def test_what_fails_for_days_is_still_tried_each_minute(world: World) -> None:
    world.cluster.put("a", 5)
    rounds = world.rounds(world.topics("a"))
    rounds.round()
    rounds.close()
    stream = rounds.streams["a"]
    for _ in range(2_000):
        stream.fail(IncompleteError("the store is away"))
    assert not stream.is_over
    assert stream.retry_at < time.monotonic() + 65
