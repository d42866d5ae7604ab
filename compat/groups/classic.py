"""Classic groups: every state, every request of a member, valid and invalid.

The rule: a cell of the matrix is a separate group that is brought into a state, gets one request, is described, and
ended.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from compat.kit.scenarios import Pending, Scenario, ScenarioError, ScenarioRun
from compat.kit.wire import Values

MEMBER_ID_REQUIRED = 79
SESSION_MS = 10_000
REBALANCE_MS = 2_000
TOPIC = "groups-of-members"
BACKS = tuple(range(10))
Asking = Callable[[ScenarioRun, "GroupFixture"], Pending]


@dataclass
class GroupFixture:
    """A group in some state: its members by client id, and the waiting ones."""

    group: str
    generation: int = 0
    members: dict[str, str] = field(default_factory=dict)
    waiting: list[Pending] = field(default_factory=list)

    def id(self, who: str) -> str:
        """Return the member id of a client, which may never have joined."""
        return self.members.get(who, f"{who}-was-never-here")


def subscription(*topics: str) -> bytes:
    """A consumer's description of itself in JoinGroup, in version 0."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def assignment(topic: str, *partitions: int) -> bytes:
    """The assignment that a consumer is given by its leader, in version 0."""
    head = struct.pack(">hih", 0, 1, len(topic)) + topic.encode()
    return head + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions) + struct.pack(">i", -1)


# --- requests ---------------------------------------------------------------------------------------------------


def joining(group: str, member_id: str = "", instance_id: str | None = None, **changes: Any) -> Values:
    """A JoinGroup request."""
    protocols = [{"Name": name, "Metadata": subscription(TOPIC)} for name in ("range", "roundrobin")]
    return {
        "GroupId": group,
        "SessionTimeoutMs": SESSION_MS,
        "RebalanceTimeoutMs": REBALANCE_MS,
        "MemberId": member_id,
        "GroupInstanceId": instance_id,
        "ProtocolType": "consumer",
        "Protocols": protocols,
    } | changes


def join(
    run: ScenarioRun, fixture: GroupFixture, who: str, instance_id: str | None = None, **changes: Any
) -> Pending:
    """Begin to join, and join again with the id that the first answer gives."""
    asked = joining(fixture.group, fixture.members.get(who, ""), instance_id, **changes)
    pending = run.begin(f"{who} joins", "JoinGroup", who, **asked)
    if who in fixture.members or instance_id is not None or run.version("JoinGroup") < 4:
        return pending
    first = run.end(pending)
    fixture.members[who] = first["MemberId"]
    if first["ErrorCode"] != MEMBER_ID_REQUIRED:
        raise ScenarioError(f"{who} is answered {first['ErrorCode']}")
    asked["MemberId"] = first["MemberId"]
    return run.begin(f"{who} joins with the id", "JoinGroup", who, **asked)


def joined(run: ScenarioRun, fixture: GroupFixture, who: str, pending: Pending) -> None:
    """Handle a JoinGroup response."""
    answer = run.end(pending)
    fixture.members[who] = answer["MemberId"]
    fixture.generation = answer["GenerationId"]


def syncing(fixture: GroupFixture, who: str, *assigned: str, **changes: Any) -> Values:
    """A SyncGroup request; the leader assigns each member a partition."""
    entries = [
        {"MemberId": fixture.members[name], "Assignment": assignment(TOPIC, number)}
        for number, name in enumerate(assigned)
    ]
    return {
        "GroupId": fixture.group,
        "GenerationId": fixture.generation,
        "MemberId": fixture.id(who),
        "ProtocolType": "consumer",
        "ProtocolName": "range",
        "Assignments": entries,
    } | changes


def leaving(group: str, *members: tuple[str, str | None]) -> Values:
    """A LeaveGroup request of members by id and instance id; old versions take the first alone."""
    identities = [{"MemberId": member_id, "GroupInstanceId": instance} for member_id, instance in members]
    return {"GroupId": group, "MemberId": members[0][0] if members else "", "Members": identities}


# --- states -----------------------------------------------------------------------------------------------------


def absent(run: ScenarioRun) -> GroupFixture:
    """The group has never existed."""
    return GroupFixture(run.group)


def only_offsets(run: ScenarioRun) -> GroupFixture:
    """A client that is no member has committed."""
    topic = {
        "Name": TOPIC,
        "TopicId": run.topic(TOPIC),
        "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 7}],
    }
    run.ask(
        "set-up: commit", "OffsetCommit",
        GroupId=run.group, GenerationIdOrMemberEpoch=-1, Topics=[topic],
    )  # fmt: skip
    return GroupFixture(run.group)


def empty(run: ScenarioRun) -> GroupFixture:
    """There was a member, which has left."""
    fixture = stable_alone(run)
    run.ask(
        "set-up: anna leaves", "LeaveGroup", "anna", **leaving(fixture.group, (fixture.members["anna"], None))
    )
    return fixture


def pending(run: ScenarioRun) -> GroupFixture:
    """A client has got a member id and has not rejoined with it (from v4 on)."""
    fixture = GroupFixture(run.group)
    first = run.end(run.begin("set-up: anna asks", "JoinGroup", "anna", **joining(fixture.group)))
    fixture.members["anna"] = first["MemberId"]
    return fixture


def completing_alone(run: ScenarioRun, **changes: Any) -> GroupFixture:
    """One member has joined and not synced."""
    fixture = GroupFixture(run.group)
    joined(run, fixture, "anna", join(run, fixture, "anna", **changes))
    return fixture


def stable_alone(run: ScenarioRun, **changes: Any) -> GroupFixture:
    """One member, with its assignment."""
    fixture = completing_alone(run, **changes)
    run.ask("set-up: anna syncs", "SyncGroup", "anna", **syncing(fixture, "anna", "anna"))
    return fixture


def preparing(run: ScenarioRun) -> GroupFixture:
    """A second member waits for the first to join again."""
    fixture = stable_alone(run)
    fixture.waiting.append(join(run, fixture, "bert"))
    return fixture


def completing(run: ScenarioRun, **changes: Any) -> GroupFixture:
    """Two members have joined, and one of them waits for the assignment."""
    fixture = stable_alone(run, **changes)
    late = join(run, fixture, "bert", **changes)
    joined(run, fixture, "anna", join(run, fixture, "anna", **changes))
    joined(run, fixture, "bert", late)
    fixture.waiting.append(run.begin("bert syncs", "SyncGroup", "bert", **syncing(fixture, "bert")))
    return fixture


def stable(run: ScenarioRun, **changes: Any) -> GroupFixture:
    """Two members with their assignments."""
    fixture = completing(run, **changes)
    run.ask("set-up: anna assigns", "SyncGroup", "anna", **syncing(fixture, "anna", "anna", "bert"))
    run.end(fixture.waiting.pop())
    return fixture


def full(run: ScenarioRun) -> GroupFixture:
    """As many as may be in: three."""
    fixture = stable(run)
    last = join(run, fixture, "carl")
    again = join(run, fixture, "anna"), join(run, fixture, "bert")
    for who, request in zip(("anna", "bert", "carl"), (*again, last), strict=True):
        joined(run, fixture, who, request)
    run.ask("set-up: anna assigns", "SyncGroup", "anna", **syncing(fixture, "anna", "anna", "bert", "carl"))
    return fixture


def stable_static(run: ScenarioRun, **changes: Any) -> GroupFixture:
    """Two static members."""
    fixture = GroupFixture(run.group)
    joined(run, fixture, "anna", join(run, fixture, "anna", "i-anna", **changes))
    late = join(run, fixture, "bert", "i-bert", **changes)
    joined(run, fixture, "anna", join(run, fixture, "anna", "i-anna", **changes))
    joined(run, fixture, "bert", late)
    run.ask(
        "set-up: anna assigns",
        "SyncGroup",
        "anna",
        **syncing(fixture, "anna", "anna", "bert", GroupInstanceId="i-anna"),
    )
    run.ask("set-up: bert syncs", "SyncGroup", "bert", **syncing(fixture, "bert", GroupInstanceId="i-bert"))
    return fixture


def stable_pending(run: ScenarioRun) -> GroupFixture:
    """Two members, and a client that has got a member id and has not rejoined with it."""
    fixture = stable(run)
    first = run.begin("set-up: carl asks", "JoinGroup", "carl", version=9, **joining(fixture.group))
    fixture.members["carl"] = run.end(first)["MemberId"]
    return fixture


def deleted(run: ScenarioRun) -> GroupFixture:
    """There was a group, which was deleted."""
    fixture = empty(run)
    run.ask("set-up: delete", "DeleteGroups", GroupsNames=[fixture.group])
    return fixture


def of_connect(run: ScenarioRun) -> GroupFixture:
    """A member other than a consumer, with metadata that only its own kind can read."""
    fixture = GroupFixture(run.group)
    protocols = [{"Name": "sessioned", "Metadata": b"\x01config"}]
    joined(run, fixture, "anna", join(run, fixture, "anna", ProtocolType="connect", Protocols=protocols))
    run.ask(
        "set-up: anna syncs", "SyncGroup", "anna",
        **syncing(fixture, "anna", "anna", ProtocolType="connect", ProtocolName="sessioned"),
    )  # fmt: skip
    return fixture


STATES = {
    state.__name__.replace("_", " "): state
    for state in (
        absent, only_offsets, empty, pending, completing_alone, stable_alone, preparing, completing, stable, full,
        stable_static, stable_pending, deleted, of_connect,
    )
}  # fmt: skip


# --- requests ---------------------------------------------------------------------------------------------------


def _protocol(name: str, metadata: bytes = b"") -> list[Values]:
    return [{"Name": name, "Metadata": metadata or subscription(TOPIC)}]


JOINS: dict[str, Callable[[GroupFixture], Values]] = {
    "new": lambda s: joining(s.group),
    "new, other protocols": lambda s: joining(s.group, Protocols=_protocol("mine")),
    "new, other type": lambda s: joining(s.group, ProtocolType="connect"),
    "new, empty type": lambda s: joining(s.group, ProtocolType=""),
    "new, no protocols": lambda s: joining(s.group, Protocols=[]),
    "new, bad subscription": lambda s: joining(s.group, Protocols=_protocol("range", b"\x07")),
    "new, session too short": lambda s: joining(s.group, SessionTimeoutMs=5_999),
    "new, session too long": lambda s: joining(s.group, SessionTimeoutMs=1_800_001),
    "new, no session": lambda s: joining(s.group, SessionTimeoutMs=-1),
    "new, no rebalance timeout": lambda s: joining(s.group, RebalanceTimeoutMs=-1, SessionTimeoutMs=6_000),
    "new static": lambda s: joining(s.group, "", "i-carl"),
    "new, empty instance": lambda s: joining(s.group, "", ""),
    "new, bad instance": lambda s: joining(s.group, "", "a b/c"),
    "unknown": lambda s: joining(s.group, "nobody"),
    "unknown, session too short": lambda s: joining(s.group, "nobody", SessionTimeoutMs=1),
    "unknown static": lambda s: joining(s.group, "nobody", "i-carl"),
    "anna": lambda s: joining(s.group, s.id("anna")),
    "anna, new metadata": lambda s: joining(s.group, s.id("anna"), Protocols=_protocol("range", subscription("x"))),
    "anna, other protocols": lambda s: joining(s.group, s.id("anna"), Protocols=_protocol("mine")),
    "anna, no protocols": lambda s: joining(s.group, s.id("anna"), Protocols=[]),
    "anna, other type": lambda s: joining(s.group, s.id("anna"), ProtocolType="connect"),
    "anna by her instance": lambda s: joining(s.group, s.id("anna"), "i-anna"),
    "anna by bert's instance": lambda s: joining(s.group, s.id("anna"), "i-bert"),
    "anna by a new instance": lambda s: joining(s.group, s.id("anna"), "i-carl"),
    "anna's instance": lambda s: joining(s.group, "", "i-anna"),
    "anna's instance, new metadata": lambda s: joining(
        s.group, "", "i-anna", Protocols=_protocol("range", subscription("x"))
    ),
    "anna's instance, other protocols": lambda s: joining(s.group, "", "i-anna", Protocols=_protocol("roundrobin")),
    "bert": lambda s: joining(s.group, s.id("bert")),
    "bert, new metadata": lambda s: joining(s.group, s.id("bert"), Protocols=_protocol("range", subscription("x"))),
    "carl": lambda s: joining(s.group, s.id("carl")),
    "carl, other protocols": lambda s: joining(s.group, s.id("carl"), Protocols=_protocol("mine")),
    "bert's instance": lambda s: joining(s.group, "", "i-bert"),
    "bert's instance, other id": lambda s: joining(s.group, s.id("anna"), "i-bert"),
    "no group": lambda s: joining(""),
    "no group, no session": lambda s: joining("", SessionTimeoutMs=-1),
}  # fmt: skip

SYNCS: dict[str, Callable[[GroupFixture], Values]] = {
    "anna assigns": lambda s: syncing(s, "anna", *s.members),
    "anna": lambda s: syncing(s, "anna"),
    "anna, next generation": lambda s: syncing(s, "anna", GenerationId=s.generation + 1),
    "anna, last generation": lambda s: syncing(s, "anna", GenerationId=s.generation - 1),
    "anna, no generation": lambda s: syncing(s, "anna", GenerationId=-1),
    "anna, other type": lambda s: syncing(s, "anna", ProtocolType="connect"),
    "anna, other protocol": lambda s: syncing(s, "anna", ProtocolName="mine"),
    "anna, no protocol": lambda s: syncing(s, "anna", ProtocolName=None, ProtocolType=None),
    "anna, half a protocol": lambda s: syncing(s, "anna", ProtocolName=None),
    "anna, empty protocol": lambda s: syncing(s, "anna", ProtocolName="", ProtocolType=""),
    "anna by her instance": lambda s: syncing(s, "anna", GroupInstanceId="i-anna"),
    "anna by bert's instance": lambda s: syncing(s, "anna", GroupInstanceId="i-bert"),
    "anna by a new instance": lambda s: syncing(s, "anna", GroupInstanceId="i-carl"),
    "bert": lambda s: syncing(s, "bert"),
    "bert assigns": lambda s: syncing(s, "bert", *s.members),
    "unknown": lambda s: syncing(s, "nobody"),
    "nobody": lambda s: syncing(s, "anna", MemberId=""),
    "nobody by anna's instance": lambda s: syncing(s, "anna", MemberId="", GroupInstanceId="i-anna"),
    "no group": lambda s: syncing(s, "anna", GroupId=""),
}


def _beat(fixture: GroupFixture, who: str, **changes: Any) -> Values:
    return {
        "GroupId": fixture.group,
        "GenerationId": fixture.generation,
        "MemberId": fixture.id(who),
    } | changes


HEARTBEATS: dict[str, Callable[[GroupFixture], Values]] = {
    "anna": lambda s: _beat(s, "anna"),
    "bert": lambda s: _beat(s, "bert"),
    "anna, next generation": lambda s: _beat(s, "anna", GenerationId=s.generation + 1),
    "anna, last generation": lambda s: _beat(s, "anna", GenerationId=s.generation - 1),
    "anna, no generation": lambda s: _beat(s, "anna", GenerationId=-1),
    "anna by her instance": lambda s: _beat(s, "anna", GroupInstanceId="i-anna"),
    "anna by bert's instance": lambda s: _beat(s, "anna", GroupInstanceId="i-bert"),
    "anna by a new instance": lambda s: _beat(s, "anna", GroupInstanceId="i-carl"),
    "unknown": lambda s: _beat(s, "nobody"),
    "nobody": lambda s: _beat(s, "anna", MemberId=""),
    "no group": lambda s: _beat(s, "anna", GroupId=""),
}

LEAVES: dict[str, Callable[[GroupFixture], Values]] = {
    "anna": lambda s: leaving(s.group, (s.id("anna"), None)),
    "bert": lambda s: leaving(s.group, (s.id("bert"), None)),
    "carl": lambda s: leaving(s.group, (s.id("carl"), None)),
    "both": lambda s: leaving(s.group, (s.id("anna"), None), (s.id("bert"), None)),
    "anna twice": lambda s: leaving(s.group, (s.id("anna"), None), (s.id("anna"), None)),
    "anna's instance": lambda s: leaving(s.group, ("", "i-anna")),
    "both instances": lambda s: leaving(s.group, ("", "i-anna"), ("", "i-bert")),
    "anna by her instance": lambda s: leaving(s.group, (s.id("anna"), "i-anna")),
    "anna by bert's instance": lambda s: leaving(s.group, (s.id("anna"), "i-bert")),
    "anna by a new instance": lambda s: leaving(s.group, (s.id("anna"), "i-carl")),
    "unknown": lambda s: leaving(s.group, ("nobody", None)),
    "unknown instance": lambda s: leaving(s.group, ("", "i-carl")),
    "unknown of anna's instance": lambda s: leaving(s.group, ("nobody", "i-anna")),
    "nobody": lambda s: leaving(s.group, ("", None)),
    "none": lambda s: leaving(s.group),
    "good and bad": lambda s: leaving(s.group, ("nobody", None), (s.id("bert"), None), ("", "i-carl")),
    "no group": lambda s: leaving("", ("nobody", None)),
}


def requests() -> Iterator[tuple[str, str, Callable[[GroupFixture], Values]]]:
    """Yield label, API and values of every request that is sent in every state."""
    for api, asked in (
        ("JoinGroup", JOINS), ("SyncGroup", SYNCS), ("Heartbeat", HEARTBEATS), ("LeaveGroup", LEAVES),
    ):  # fmt: skip
        for label, values in asked.items():
            yield label, api, values


def cell(
    state: Callable[[ScenarioRun], GroupFixture],
    api: str,
    values: Callable[[GroupFixture], Values],
    run: ScenarioRun,
) -> None:
    """Bring a group into a state, send one request, and describe the group."""
    fixture = state(run)
    asked = run.begin("asked", api, "carl", **values(fixture))
    waits = run.waits(asked)
    if not waits:
        run.end(asked)
    run.ask("then described", "DescribeGroups", version=5, Groups=[fixture.group])
    for other in fixture.waiting:
        if not run.waits(other):
            run.end(other)
    run.ask("anna's heartbeat", "Heartbeat", "anna", **_beat(fixture, "anna"))
    end(run, fixture, asked)


def end(run: ScenarioRun, fixture: GroupFixture, *asked: Pending) -> None:
    """Make all members leave, so that no request stays pending."""
    for who, member_id in fixture.members.items():
        run.ask(f"{who} leaves", "LeaveGroup", who, **leaving(fixture.group, (member_id, None)))
    for call in (*fixture.waiting, *asked):
        if call.is_open:
            run.end(call)
    run.ask("at last described", "DescribeGroups", version=5, Groups=[fixture.group])


def scenarios() -> Iterator[Scenario]:
    """Yield the matrix, in the newest and the oldest versions, and in intermediate ones where they differ."""
    for state_name, state in STATES.items():
        for label, api, values in requests():
            backs = BACKS if state_name in ("stable", "stable static") else (0, 9)
            yield Scenario(f"{state_name}: {api} {label}", partial(cell, state, api, values), backs)
