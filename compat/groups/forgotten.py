"""Offsets that are forgotten while something holds them: an open transaction, a member with an odd subscription."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

from compat.groups.classic import TOPIC, end, stable_alone, subscription
from compat.groups.offsets import OTHER, committing, look, place, topics_of
from compat.groups.transaction_states import TransactionFixture, empty, initializing, producer, settle
from compat.kit.scenarios import Scenario, ScenarioRun
from compat.kit.wire import Values

OWNED = struct.pack(">i", 0)
GENERATION = struct.pack(">i", 3)
RACK = struct.pack(">h", 4) + b"rack"
VERSIONS = (-1, 0, 1, 2, 3, 4, 32767)
TAILS = {
    "nothing": b"",
    "owned": OWNED,
    "generation": OWNED + GENERATION,
    "rack": OWNED + GENERATION + RACK,
    "more": OWNED + GENERATION + RACK + b"more",
    "half": OWNED[:2],
}
"""Bytes after the user data of a subscription, by the last field that is in them."""


def subscribed(version: int, tail: bytes) -> bytes:
    """Return a subscription to `TOPIC` with a version field."""
    return struct.pack(">h", version) + subscription(TOPIC)[2:] + tail


def delete_of_subscribed(metadata: bytes, run: ScenarioRun) -> None:
    """Delete offsets of topics that a member with this subscription reads, and of others."""
    ids = topics_of(run)
    protocols = [{"Name": "range", "Metadata": metadata}]
    fixture = stable_alone(run, Protocols=protocols)
    run.ask("commit", "OffsetCommit", "anna", version=9,
            **committing(fixture, "anna", place(ids, TOPIC, 0), place(ids, OTHER, 0)))  # fmt: skip
    topics = [{"Name": name, "Partitions": [{"PartitionIndex": 0}]} for name in (TOPIC, OTHER)]
    run.ask("asked", "OffsetDelete", GroupId=fixture.group, Topics=topics)
    look(run, "then fetched", fixture.group)
    end(run, fixture)


def _delete_group(run: ScenarioRun, group: str, topic: str) -> None:
    run.ask("asked", "DeleteGroups", GroupsNames=[group])


def _delete_offset(run: ScenarioRun, group: str, topic: str) -> None:
    topics = [{"Name": topic, "Partitions": [{"PartitionIndex": 0}]}]
    run.ask("asked", "OffsetDelete", GroupId=group, Topics=topics)


def _delete_topic(run: ScenarioRun, group: str, topic: str) -> None:
    run.ask("asked", "DeleteTopics", version=5, TopicNames=[topic], TimeoutMs=9_000)


FORGETTING: dict[str, Callable[[ScenarioRun, str, str], None]] = {
    "the group": _delete_group,
    "the offset": _delete_offset,
    "the topic": _delete_topic,
}


def _committed(group: str, topic: str, who: Values, offset: int) -> Values:
    partitions = [{"PartitionIndex": 0, "CommittedOffset": offset, "CommittedMetadata": ""}]
    return who | {"GroupId": group, "Topics": [{"Name": topic, "Partitions": partitions}]}


def forget_pending(
    forget: Callable[[ScenarioRun, str, str], None], before: bool, is_commit: bool, run: ScenarioRun
) -> None:
    """Delete a group, an offset or a topic while a transaction has committed an offset, then end the transaction."""
    topic = f"{run.group}-of-its-own"
    run.topic(topic)
    fixture = empty(run)
    group = fixture.group
    if before:
        run.ask(
            "commit before",
            "OffsetCommit",
            version=7,
            **_committed(group, topic, {"GenerationIdOrMemberEpoch": -1}, 5),
        )
    run.ask("add offsets", "AddOffsetsToTxn", version=3, **producer(fixture), GroupId=group)
    run.ask("commit", "TxnOffsetCommit", version=3, **_committed(group, topic, producer(fixture), 10))
    forget(run, group, topic)

    def is_there(answer: Values) -> bool:
        """Return whether a response is final: the offsets of a topic are removed some time after it."""
        offset: int = answer["Groups"][0]["Topics"][0]["Partitions"][0]["CommittedOffset"]
        return forget is not _delete_topic or offset < 0

    def fetched(label: str) -> None:
        topics = [{"Name": topic, "PartitionIndexes": [0]}]
        groups: list[dict[str, Any]] = [{"GroupId": group, "Topics": topics}]
        run.until(label, "OffsetFetch", is_there, version=8, Groups=groups, RequireStable=False)
        listed = [row["GroupState"] for row in run.look("ListGroups", 5)["Groups"] if row["GroupId"] == group]
        run.note(f"{label}: listed", listed)

    if forget is not _delete_topic:
        fetched("then fetched")
    run.ask("end", "EndTxn", version=3, **producer(fixture), Committed=is_commit)
    settle(run, fixture, "ended")
    fetched("at last fetched")
    run.look("DeleteTopics", 5, TopicNames=[topic], TimeoutMs=9_000)
    run.look("DeleteGroups", 1, GroupsNames=[group])


def overrule(commits: str, ends: str, are_commits: tuple[bool, bool], run: ScenarioRun) -> None:
    """Commit an offset for one place in transactions A and B and without one (`p`), then end both; look after each end."""
    group = f"{run.group}-group"
    run.topic(TOPIC)
    fixtures = {name: TransactionFixture(f"{run.group}-{name}") for name in "AB"}
    for name, fixture in fixtures.items():
        answer = run.until(
            f"{name} begins", "InitProducerId", lambda begun: not begun["ErrorCode"], **initializing(fixture)
        )
        fixture.producer_id, fixture.epoch = answer["ProducerId"], answer["ProducerEpoch"]
        run.ask(f"{name} adds offsets", "AddOffsetsToTxn", version=3, **producer(fixture), GroupId=group)
    for number, name in enumerate(commits):
        if name == "p":
            asked = _committed(group, TOPIC, {"GenerationIdOrMemberEpoch": -1}, number)
            run.ask("commit of nobody", "OffsetCommit", version=7, **asked)
        else:
            asked = _committed(group, TOPIC, producer(fixtures[name]), number)
            run.ask(f"{name} commits", "TxnOffsetCommit", version=3, **asked)
    for name, is_commit in zip(ends, are_commits, strict=True):
        run.ask(f"{name} ends", "EndTxn", version=3, **producer(fixtures[name]), Committed=is_commit)
        settle(run, fixtures[name], f"{name} has ended")
        groups = [{"GroupId": group, "Topics": [{"Name": TOPIC, "PartitionIndexes": [0]}]}]
        for stable in (False, True):
            label = f"fetched after {name}" + (", stable" if stable else "")
            run.ask(label, "OffsetFetch", version=8, Groups=groups, RequireStable=stable)
    run.look("DeleteGroups", 1, GroupsNames=[group])


COMMITS = ("AB", "ABA", "ABp", "ApB", "pAB", "ABpA", "Ap")
"""Orders of the commits in transactions A and B, and without a transaction (`p`)."""


def scenarios() -> Iterator[Scenario]:
    """Each version with each tail, each way to forget an offset of a transaction, each order of commits and ends."""
    for commits, ends in product(COMMITS, ("AB", "BA")):
        for are_commits in product((True, False), repeat=2):
            how = " ".join("commits" if is_commit else "aborts" for is_commit in are_commits)
            act = partial(overrule, commits, ends, (are_commits[0], are_commits[1]))
            yield Scenario(f"offset of {commits}, ends {ends} {how}", act)
    for version in VERSIONS:
        for name, tail in TAILS.items():
            act = partial(delete_of_subscribed, subscribed(version, tail))
            yield Scenario(f"subscription v{version} up to {name}: OffsetDelete", act)
    for name, forget in FORGETTING.items():
        for before in (False, True):
            for is_commit in (True, False):
                how = f"{'over another' if before else 'alone'}, {'committed' if is_commit else 'aborted'}"
                yield Scenario(
                    f"pending offset {how}: {name} is deleted",
                    partial(forget_pending, forget, before, is_commit),
                )
