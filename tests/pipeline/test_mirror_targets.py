"""Targets of a mirror, without clusters: offsets of groups, topics that are made, settings that follow."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from barnabas.client import ClientError
from barnabas.client.admin import (
    CommittedOffset,
    ConfigEntry,
    PartitionInfo,
    TopicInfo,
)
from barnabas.client.administration.configs import DELETE, SET
from barnabas.client.errors import ResponseError
from barnabas.wire.generated.errors import ErrorCode
from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.jobs.choices import Choice
from barnabas_pipeline.jobs.mirror import groups as groups_module
from barnabas_pipeline.jobs.mirror import topics as topics_module
from barnabas_pipeline.jobs.mirror.groups import Groups, Mirrored
from barnabas_pipeline.jobs.mirror.model import MirrorOptions, MirrorSummary, Place
from barnabas_pipeline.jobs.mirror.topics import TargetTopics
from barnabas_pipeline.jobs.sites import Cluster, Topic
from barnabas_pipeline.log.model import Bounds

PLACE = Place("c", "tid", 1, "copy", "cid")
OPTIONS = MirrorOptions((Cluster("", "s:1"),), Cluster("", "t:1"), Choice())


# --- groups -----------------------------------------------------------------------------------------------------------


class Administered:
    """A cluster whose administrator answers as the test says."""

    cluster = Cluster("", "h:1")

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.calls: list[tuple[str, Any]] = []

    def ask(self, work: Any) -> Any:
        asked: list[Any] = []

        class Admin:
            def __getattr__(_, name: str) -> Any:  # noqa: N805 - `self` is the cluster
                def call(*given: Any, **options: Any) -> Any:
                    self.calls.append((name, given[0] if given else options))
                    asked.append(self.answers[name])

                return call

        work(Admin())
        answer = asked[-1]
        return answer(self.calls[-1][1]) if callable(answer) else answer

    def committed(self, group: str) -> Any:
        return self.answers["have"].get(group, {})

    def topics(self) -> dict[str, Topic]:
        return dict(self.answers["there"])


class Moving:
    """Group g has committed 5 of topic-1, which is mirrored up to 9 and is offset 50 of the target."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, have: int | None = None, state: str = "", **options: Any
    ) -> None:
        self.offset = 5
        one = CommittedOffset(5, 3, "note")
        self.source = Administered(
            list_groups=lambda _: ({"g": 1, "h": 1, "barnabas-mirror.x": 1}, {}),
            committed=lambda names: {
                name: {("topic", 1): replace(one, offset=self.offset), ("topic", 2): one} for name in names
            },
        )
        there = {} if not state else {"g": SimpleNamespace(state=state)}
        mine = {} if have is None else {"g": {("copy", 1): CommittedOffset(have)}}
        self.target = Administered(
            list_groups=lambda _: (there, {}), have=mine, commit_offsets=lambda group: {("copy", 1): None}
        )
        self.wanted: list[Any] = []
        usual = self.target.ask

        def ask(work: Any) -> Any:
            with suppress(TypeError, AttributeError):
                cells = {
                    name: cell.cell_contents
                    for name, cell in zip(work.__code__.co_freevars, work.__closure__, strict=True)
                }
                if "wanted" in cells:
                    self.wanted.append((cells["group"], dict(cells["wanted"])))
            return usual(work)

        self.target.ask = ask  # type: ignore[method-assign]
        self.groups = Groups(self.target, replace(OPTIONS, **{"groups": "g|barnabas.*", **options}))  # type: ignore[arg-type]
        self.summary = MirrorSummary()
        self.position = 9
        self.settled = True
        log = SimpleNamespace(bounds=lambda: {1: Bounds(0, 9, 9, 0)}, close=lambda: None)
        monkeypatch.setattr(groups_module, "open_log", lambda options: log)

        def translator(*_: Any) -> Any:
            return SimpleNamespace(is_settled=self.settled, offset_of=lambda offset: offset * 10)

        monkeypatch.setattr(groups_module, "Translator", translator)

    def move(self) -> tuple[int, int, int, int]:
        mirrored = {("topic", 1): Mirrored(PLACE, self.position)}
        before = replace(self.summary)
        self.groups.move(self.source, mirrored, self.summary)  # type: ignore[arg-type]
        names = ("groups_committed", "groups_waiting", "groups_live", "groups_kept")
        committed, waiting, live, kept = (getattr(self.summary, one) - getattr(before, one) for one in names)
        return committed, waiting, live, kept


def test_offsets_of_a_group_are_committed_once_with_their_note(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Moving(monkeypatch)
    assert case.move() == (1, 0, 0, 0)
    assert case.wanted == [("g", {("copy", 1): CommittedOffset(50, metadata="note")})]
    assert ("committed", ["g"]) in case.source.calls, "no group of mirrors, and none that was not asked for"
    assert case.move() == (0, 0, 0, 0), "nothing has changed"
    case.offset = 6
    assert case.move() == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("have", "back", "counts"),
    [
        (None, False, (1, 0, 0, 0)),
        (49, False, (1, 0, 0, 0)),
        (50, False, (0, 0, 0, 0)),
        (51, False, (0, 0, 0, 1)),
        (51, True, (1, 0, 0, 0)),
    ],
)
def test_a_group_that_is_further_stays_unless_it_is_to_be_moved_back(
    monkeypatch: pytest.MonkeyPatch, have: int | None, back: bool, counts: tuple[int, ...]
) -> None:
    case = Moving(monkeypatch, have=have, moves_groups_back=back)
    assert case.move() == counts
    assert case.move() == (0, 0, 0, 0), "it is not looked at again"


@pytest.mark.parametrize(
    ("state", "counts"),
    [
        ("Empty", (1, 0, 0, 0)),
        ("Dead", (1, 0, 0, 0)),
        ("Stable", (0, 0, 1, 0)),
        ("PreparingRebalance", (0, 0, 1, 0)),
    ],
)
def test_nothing_is_taken_from_a_group_that_lives(
    monkeypatch: pytest.MonkeyPatch, state: str, counts: tuple[int, ...]
) -> None:
    case = Moving(monkeypatch, state=state)
    assert (case.move(), case.move()) == (counts, counts if counts[2] else (0, 0, 0, 0))


@pytest.mark.parametrize(
    ("position", "settled", "waits"), [(4, True, True), (5, True, False), (9, False, True)]
)
def test_an_offset_beyond_what_is_mirrored_waits(
    monkeypatch: pytest.MonkeyPatch, position: int, settled: bool, waits: bool
) -> None:
    case = Moving(monkeypatch)
    case.position, case.settled = position, settled
    assert case.move() == ((0, 1, 0, 0) if waits else (1, 0, 0, 0))


def test_a_group_that_gets_members_meanwhile_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Moving(monkeypatch)
    refused = ResponseError(ErrorCode.UNKNOWN_MEMBER_ID, "committing")
    case.target.answers["commit_offsets"] = lambda _: {("copy", 1): refused}
    assert [case.move(), case.move()] == [(0, 0, 1, 0)] * 2


def test_what_some_brokers_did_not_tell_of_groups_is_an_error_after_the_others_were_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Moving(monkeypatch)
    case.source.answers["list_groups"] = lambda _: ({"g": 1}, {3: ClientError("gone")})
    with pytest.raises(IncompleteError, match="groups of h:1: gone"):
        case.move()
    assert case.summary.groups_committed == 1


# --- topics -----------------------------------------------------------------------------------------------------------


def entry(name: str, value: str | None, source: str = "topic") -> ConfigEntry:
    return ConfigEntry(name, value, source, False, False, "", ())


class Preparing:
    """Topics of a source with some settings, and a target that has `there`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, there: dict[str, int], **options: Any) -> None:
        self.source = Administered(
            describe_configs=lambda resources: {one: self.theirs.get(one.name, []) for one in resources}
        )
        self.theirs: dict[str, Any] = {}
        self.mine: dict[str, Any] = {}
        self.there = {name: Topic(name, f"id-{name}", count, False) for name, count in there.items()}
        self.errors: dict[str, Any] = {}
        self.target = Administered(
            there=self.there,
            describe_configs=lambda resources: {one: self.mine.get(one.name, []) for one in resources},
            create_topics=self._create,
            create_partitions=self._grow,
            alter_configs=lambda changes: {one: self.errors.get(one.name) for one in changes},
        )
        self.topics = TargetTopics(self.target, replace(OPTIONS, **options))  # type: ignore[arg-type]
        monkeypatch.setattr(self.topics, "_wait_for", lambda counts: self.target.topics())
        self.summary = MirrorSummary()

    def _create(self, topics: Any) -> Any:
        (one,) = topics
        error = self.errors.get(one.name)
        if error is None or error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            self.target.answers["there"][one.name] = Topic(one.name, "new", one.partitions, False)
        return {one.name: error}

    def _grow(self, counts: Any) -> Any:
        return {name: self.errors.get(name) for name in counts}

    def prepare(self, *, disk: bool = False, **wanted: int) -> dict[str, Any]:
        sites: Any = None if disk else self.source
        found = {name: (sites, Topic(f"s-{name}", "", count, False)) for name, count in wanted.items()}
        return self.topics.prepare(found, self.summary)  # type: ignore[arg-type]


def test_topics_are_made_with_the_settings_that_were_set_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Preparing(monkeypatch, {"b": 2}, replication_factor=3)
    case.theirs["s-a"] = [
        entry("retention.ms", "5"), entry("segment.ms", "6", "default"), entry("min.insync.replicas", "2"),
        entry("cleanup.policy", None),
    ]  # fmt: skip
    found = case.prepare(a=4, b=2)
    assert [found[name].partitions for name in ("a", "b")] == [4, 2]
    ((made,),) = [given for name, given in case.target.calls if name == "create_topics"]
    assert (made.name, made.partitions, made.replication_factor, made.configs) == (
        "a",
        4,
        3,
        {"retention.ms": "5"},
    )
    assert (case.summary.created_topics, case.summary.added_partitions) == (1, 0)
    case = Preparing(monkeypatch, {})
    case.prepare(disk=True, a=4)
    ((made,),) = [given for name, given in case.target.calls if name == "create_topics"]
    assert made.configs == {}


@pytest.mark.parametrize(
    ("code", "kind", "created"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, Topic, 0), (ErrorCode.TOPIC_AUTHORIZATION_FAILED, UsageError, 0),
        (ErrorCode.REQUEST_TIMED_OUT, IncompleteError, 0), (0, Topic, 1),
    ],
)  # fmt: skip
def test_what_the_target_refuses_is_wrong_or_may_pass(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type, created: int
) -> None:
    case = Preparing(monkeypatch, {})
    case.errors["a"] = ResponseError(code, "creating") if code else None
    found = case.prepare(a=1, b=1)
    assert type(found["a"]) is kind
    assert isinstance(found["b"], Topic)
    assert case.summary.created_topics == 1 + created


def test_topics_grow_and_never_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Preparing(monkeypatch, {"a": 2, "b": 2, "c": 5, "d": 1})
    case.errors["d"] = ResponseError(ErrorCode.INVALID_PARTITIONS, "growing")
    found = case.prepare(a=5, b=2, c=3, d=9)
    assert [given for name, given in case.target.calls if name == "create_partitions"] == [{"a": 5, "d": 9}]
    assert case.summary.added_partitions == 3
    assert isinstance(found["d"], IncompleteError)


def test_nothing_is_made_where_that_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Preparing(monkeypatch, {"a": 2, "b": 2}, creates_topics=False)
    found = case.prepare(a=3, b=2, c=1)
    assert [type(found[name]) for name in "abc"] == [UsageError, Topic, UsageError]
    assert "a has 2 partitions, s-a has 3" in str(found["a"])
    assert case.target.calls == []


def test_settings_follow_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Preparing(monkeypatch, {"a": 1, "b": 1, "c": 1}, syncs_configs=True)
    case.theirs = {
        "s-a": [entry("retention.ms", "5"), entry("segment.ms", "6")],
        "s-b": [entry("retention.ms", "7")],
        "s-c": [entry("retention.ms", "8")],
    }
    case.mine = {
        "a": [
            entry("retention.ms", "4"),
            entry("segment.bytes", "9"),
            entry("min.insync.replicas", "2"),
            entry("segment.ms", "6"),
        ],
        "b": [entry("retention.ms", "7")],
    }
    case.errors["c"] = ResponseError(ErrorCode.INVALID_CONFIG, "changing")
    found = case.prepare(a=1, b=1, c=1)
    (changes,) = [given for name, given in case.target.calls if name == "alter_configs"]
    assert {one.name: [tuple(each) for each in given] for one, given in changes.items()} == {
        "a": [("retention.ms", SET, "5"), ("segment.bytes", DELETE, None)], "c": [("retention.ms", SET, "8")],
    }  # fmt: skip
    assert case.summary.changed_settings == 2
    assert isinstance(found["c"], IncompleteError)
    case.target.calls.clear()
    case.mine, case.theirs = {}, {}
    case.prepare(a=1)
    assert "alter_configs" not in [name for name, _ in case.target.calls]


@pytest.mark.parametrize(
    ("partitions", "leader", "waits"), [(2, 1, False), (2, 0, False), (1, 1, True), (2, -1, True)]
)
def test_new_topics_are_waited_for_until_they_have_leaders(
    monkeypatch: pytest.MonkeyPatch, partitions: int, leader: int, waits: bool
) -> None:

    infos = {
        "a": TopicInfo(
            "a", "", False, tuple(PartitionInfo(n, leader, 0, (), (), ()) for n in range(partitions))
        )
    }

    async def topics(_: Any) -> Any:
        return infos

    admin: Any = SimpleNamespace(topics=topics)
    target: Any = SimpleNamespace(ask=lambda work: trio.run(work, admin), topics=lambda: {"a": 1})
    monkeypatch.setattr(topics_module, "READY_SECONDS_MAX", 0.0)
    waiting = TargetTopics(target, OPTIONS)
    if waits:
        with pytest.raises(IncompleteError, match="not ready yet: a"):
            waiting._wait_for({"a": 2})
    else:
        assert waiting._wait_for({"a": 2}) == {"a": 1}
    assert waiting._wait_for({}) == {"a": 1}
