"""Committed offsets: permissions to commit, fetch and delete, in each state of each kind of group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from compat.groups import classic, epochs
from compat.groups.classic import TOPIC, GroupFixture
from compat.groups.epochs import EPOCH_STATES, EpochGroupFixture
from compat.kit.scenarios import Scenario, ScenarioRun
from compat.kit.wire import ZERO_UUID, Values

BACKS = tuple(range(10))
OTHER = "groups-of-others"
UNKNOWN_ID = bytes(range(16))
LONGEST = "m" * 4096
STATES = classic.STATES | EPOCH_STATES
MANY_BACKS = ("absent", "only offsets", "stable", "stable static", "consumer stable")

Ids = dict[str, bytes]
"""The topics that there are, by name."""


def place(ids: Ids, name: str, *partitions: int, offset: int = 5, **changes: Any) -> Values:
    """One topic of a commit."""
    entries = [
        {"PartitionIndex": number, "CommittedOffset": offset, "CommittedMetadata": "by hand"} | changes
        for number in partitions
    ]
    return {"Name": name, "TopicId": ids.get(name, UNKNOWN_ID), "Partitions": entries}


def committing(fixture: GroupFixture, who: str, *topics: Values, **changes: Any) -> Values:
    """Return an OffsetCommit of a member, or without a member."""
    return {
        "GroupId": fixture.group,
        "GenerationIdOrMemberEpoch": fixture.generation if who else -1,
        "MemberId": fixture.id(who) if who else "",
        "Topics": list(topics),
    } | changes


def _one(ids: Ids) -> Values:
    return place(ids, TOPIC, 0)


COMMITS: dict[str, Callable[[GroupFixture, Ids], Values]] = {
    "anna": lambda s, ids: committing(s, "anna", _one(ids)),
    "anna, next generation": lambda s, ids: committing(
        s, "anna", _one(ids), GenerationIdOrMemberEpoch=s.generation + 1
    ),
    "anna, last generation": lambda s, ids: committing(
        s, "anna", _one(ids), GenerationIdOrMemberEpoch=s.generation - 1
    ),
    "anna, no generation": lambda s, ids: committing(s, "anna", _one(ids), GenerationIdOrMemberEpoch=-1),
    "anna by her instance": lambda s, ids: committing(s, "anna", _one(ids), GroupInstanceId="i-anna"),
    "anna by bert's instance": lambda s, ids: committing(s, "anna", _one(ids), GroupInstanceId="i-bert"),
    "anna by a new instance": lambda s, ids: committing(s, "anna", _one(ids), GroupInstanceId="i-carl"),
    "bert": lambda s, ids: committing(s, "bert", _one(ids)),
    "unknown": lambda s, ids: committing(s, "nobody", _one(ids)),
    "unknown, no generation": lambda s, ids: committing(s, "nobody", _one(ids), GenerationIdOrMemberEpoch=-1),
    "nobody": lambda s, ids: committing(s, "", _one(ids)),
    "nobody, a generation": lambda s, ids: committing(s, "", _one(ids), GenerationIdOrMemberEpoch=1),
    "nobody, generation 0": lambda s, ids: committing(s, "", _one(ids), GenerationIdOrMemberEpoch=0),
    "nobody, generation -2": lambda s, ids: committing(s, "", _one(ids), GenerationIdOrMemberEpoch=-2),
    "nobody by anna's instance": lambda s, ids: committing(s, "", _one(ids), GroupInstanceId="i-anna"),
    "unknown topic": lambda s, ids: committing(s, "anna", place(ids, "nowhere", 0), _one(ids)),
    "unknown topic alone": lambda s, ids: committing(s, "", place(ids, "nowhere", 0)),
    "unknown partition": lambda s, ids: committing(s, "anna", place(ids, TOPIC, 0, 3, -1)),
    "metadata longest": lambda s, ids: committing(s, "anna", place(ids, TOPIC, 0, CommittedMetadata=LONGEST)),
    "metadata too long": lambda s, ids: committing(
        s, "anna", place(ids, TOPIC, 1, CommittedMetadata=LONGEST + "m"), place(ids, OTHER, 0)
    ),
    "metadata too long in bytes": lambda s, ids: committing(
        s, "anna", place(ids, TOPIC, 1, CommittedMetadata="ä" * 2049)
    ),
    "no metadata": lambda s, ids: committing(s, "anna", place(ids, TOPIC, 0, CommittedMetadata=None)),
    "negative": lambda s, ids: committing(s, "anna", place(ids, TOPIC, 0, offset=-1)),
    "a leader epoch": lambda s, ids: committing(s, "anna", place(ids, TOPIC, 0, CommittedLeaderEpoch=3)),
    "retention": lambda s, ids: committing(s, "anna", _one(ids), RetentionTimeMs=60_000),
    "two topics": lambda s, ids: committing(s, "anna", place(ids, TOPIC, 0, 1, 2), place(ids, OTHER, 0, 1)),
    "a topic twice": lambda s, ids: committing(s, "anna", _one(ids), place(ids, TOPIC, 0, offset=9)),
    "nothing": lambda s, _: committing(s, "anna"),
    "nothing, unknown": lambda s, _: committing(s, "nobody"),
    "no group": lambda s, ids: committing(s, "", _one(ids), GroupId=""),
    "no topic id": lambda s, ids: committing(s, "", place(ids, TOPIC, 0) | {"TopicId": ZERO_UUID}),
}


def end(run: ScenarioRun, fixture: GroupFixture) -> None:
    """All members leave the group."""
    if isinstance(fixture, EpochGroupFixture):
        epochs.end(run, fixture)
    else:
        classic.end(run, fixture)


def topics_of(run: ScenarioRun) -> Ids:
    """The topics of these scenarios, made."""
    return {name: run.topic(name) for name in (TOPIC, OTHER)}


def fetching(group: str, topics: list[Values] | None = None, **changes: Any) -> Values:
    """Return an OffsetFetch of one group; `topics` None: all topics."""
    return {
        "GroupId": group,
        "Topics": topics,
        "Groups": [{"GroupId": group, "Topics": topics, "MemberEpoch": -1} | changes],
    }


def look(run: ScenarioRun, label: str, group: str, **changes: Any) -> None:
    """All that a group has committed; the oldest version cannot ask for everything."""
    if run.version("OffsetFetch") >= 2:
        run.ask(label, "OffsetFetch", **fetching(group, None, **changes))
    else:
        topics = [{"Name": name, "PartitionIndexes": [0, 1, 2]} for name in (TOPIC, OTHER)]
        run.ask(label, "OffsetFetch", **fetching(group, topics))


def commit_cell(
    state: Callable[[ScenarioRun], GroupFixture],
    values: Callable[[GroupFixture, Ids], Values],
    run: ScenarioRun,
) -> None:
    """Commit once, then fetch offsets and describe the group."""
    ids = topics_of(run)
    fixture = state(run)
    run.ask("asked", "OffsetCommit", "anna", **values(fixture, ids))
    look(run, "then fetched", fixture.group)
    listed = [entry for entry in run.look("ListGroups", 5)["Groups"] if entry["GroupId"] == fixture.group]
    run.note("then listed", listed)
    end(run, fixture)


def _by_version(run: ScenarioRun, ids: Ids, name: str, *partitions: int) -> Values:
    topic: Values = {"PartitionIndexes": list(partitions), "Name": name}
    if run.version("OffsetFetch") >= 10:
        topic["TopicId"] = ids.get(name, UNKNOWN_ID)
    elif run.version("OffsetFetch") >= 8:
        topic.pop("TopicId", None)
    return topic


FETCHES: dict[str, Callable[[ScenarioRun, GroupFixture, Ids], Values]] = {
    "everything": lambda p, s, ids: fetching(s.group),
    "one": lambda p, s, ids: fetching(s.group, [_by_version(p, ids, TOPIC, 0)]),
    "some": lambda p, s, ids: fetching(
        s.group, [_by_version(p, ids, TOPIC, 0, 1, 7, -1), _by_version(p, ids, OTHER, 0)]
    ),
    "unknown topic": lambda p, s, ids: fetching(s.group, [_by_version(p, ids, "nowhere", 0)]),
    "nothing": lambda p, s, ids: fetching(s.group, []),
    "no partitions": lambda p, s, ids: fetching(s.group, [_by_version(p, ids, TOPIC)]),
    "stable": lambda p, s, ids: fetching(s.group) | {"RequireStable": True},
    "a member": lambda p, s, ids: fetching(s.group, MemberId=s.id("anna"), MemberEpoch=s.generation),
    "a member behind": lambda p, s, ids: fetching(s.group, MemberId=s.id("anna"), MemberEpoch=s.generation - 1),
    "a member ahead": lambda p, s, ids: fetching(s.group, MemberId=s.id("anna"), MemberEpoch=s.generation + 1),
    "an unknown member": lambda p, s, ids: fetching(s.group, MemberId="nobody", MemberEpoch=1),
    "an unknown member without epoch": lambda p, s, ids: fetching(s.group, MemberId="nobody", MemberEpoch=-1),
    "an empty member": lambda p, s, ids: fetching(s.group, MemberId="", MemberEpoch=0),
    "no member with epoch": lambda p, s, ids: fetching(s.group, MemberId=None, MemberEpoch=0),
    "a member, topics": lambda p, s, ids: fetching(
        s.group, [_by_version(p, ids, TOPIC, 0)], MemberId=s.id("anna"), MemberEpoch=s.generation + 1
    ),
    "no group": lambda p, s, ids: fetching(""),
    "many groups": lambda p, s, ids: {
        "GroupId": "",
        "Topics": [],
        "Groups": [
            {"GroupId": s.group, "Topics": None, "MemberEpoch": -1},
            {"GroupId": "no-such-group", "Topics": None, "MemberEpoch": -1},
            {"GroupId": "", "Topics": None, "MemberEpoch": -1},
            {"GroupId": s.group, "Topics": [_by_version(p, ids, TOPIC, 0)], "MemberEpoch": -1},
        ],
    },
    "no groups": lambda p, s, ids: {"Groups": [], "Topics": []},
}  # fmt: skip


def fetch_cell(
    state: Callable[[ScenarioRun], GroupFixture],
    values: Callable[[ScenarioRun, GroupFixture, Ids], Values],
    run: ScenarioRun,
) -> None:
    """Fetch from a group that has committed, if it could."""
    ids = topics_of(run)
    fixture = state(run)
    who = "anna" if "anna" in fixture.members else ""
    commit = committing(fixture, who, place(ids, TOPIC, 0, 1), place(ids, OTHER, 0, CommittedMetadata=None))
    run.ask("commit", "OffsetCommit", "anna", version=9, **commit)
    run.ask("asked", "OffsetFetch", "anna", **values(run, fixture, ids))
    end(run, fixture)


DELETES: dict[str, Any] = {
    "one": [(TOPIC, 0)],
    "not committed": [(OTHER, 1)],
    "some": [(TOPIC, 0), (TOPIC, 1), (OTHER, 0)],
    "unknown topic": [("nowhere", 0), (OTHER, 0)],
    "unknown partition": [(OTHER, 77)],
    "a place twice": [(OTHER, 0), (OTHER, 0)],
    "nothing": [],
}


def delete_cell(
    state: Callable[[ScenarioRun], GroupFixture], places: list[tuple[str, int]], run: ScenarioRun
) -> None:
    """Delete offsets of a group, then the group itself, in this state and when it is empty."""
    ids = topics_of(run)
    fixture = state(run)
    who = "anna" if "anna" in fixture.members else ""
    commit = committing(fixture, who, place(ids, TOPIC, 0, 1), place(ids, OTHER, 0))
    run.ask("commit", "OffsetCommit", "anna", version=9, **commit)
    topics = [
        {"Name": name, "Partitions": [{"PartitionIndex": index} for at, index in places if at == name]}
        for name in dict.fromkeys(name for name, _ in places)
    ]
    run.ask("asked", "OffsetDelete", GroupId=fixture.group, Topics=topics)
    look(run, "then fetched", fixture.group)
    run.ask("delete", "DeleteGroups", GroupsNames=[fixture.group])
    end(run, fixture)
    run.ask("delete at last", "DeleteGroups", GroupsNames=[fixture.group, "no-such-group", ""])
    run.ask("delete again", "DeleteGroups", GroupsNames=[fixture.group, fixture.group])
    run.ask("delete nothing", "DeleteGroups", GroupsNames=[])
    run.ask("delete of nobody", "OffsetDelete", GroupId="", Topics=topics)
    run.ask("delete of an absent group", "OffsetDelete", GroupId=fixture.group, Topics=topics)
    look(run, "at last fetched", fixture.group)


def scenarios() -> Iterator[Scenario]:
    """Every state with every commit, fetch and deletion."""
    for name, state in STATES.items():
        backs = BACKS if name in MANY_BACKS else (0,)
        for label, commit in COMMITS.items():
            yield Scenario(f"{name}: OffsetCommit {label}", partial(commit_cell, state, commit), backs)
        for label, fetch in FETCHES.items():
            yield Scenario(f"{name}: OffsetFetch {label}", partial(fetch_cell, state, fetch), backs)
        for label, places in DELETES.items():
            yield Scenario(f"{name}: OffsetDelete {label}", partial(delete_cell, state, places), (0, 2))
