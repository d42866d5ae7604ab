"""Transactional ids: every state of a transaction, every request of a producer, right and wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from compat.groups.transaction_states import (
    CONCURRENT_TRANSACTIONS,
    STATES,
    TransactionFixture,
    adding,
    committing,
    empty,
    initializing,
    ongoing,
    producer,
    producing,
    settle,
    topic_of,
)
from compat.kit.scenarios import Scenario, ScenarioRun
from compat.kit.wire import Values

BACKS = (0, 1, 5)


def _place(fixture: TransactionFixture, partition: int, **changes: Any) -> Values:
    return {
        "Name": fixture.topic,
        "Partitions": [{"PartitionIndex": partition, "CommittedOffset": 3} | changes],
    }


# --- requests ---------------------------------------------------------------------------------------------------


def _others(fixture: TransactionFixture, ask: Callable[..., Values]) -> dict[str, Values]:
    """Return a request with the right producer and with wrong ones."""
    return {
        "": ask(fixture),
        "older epoch": ask(fixture, ProducerEpoch=fixture.epoch - 1),
        "newer epoch": ask(fixture, ProducerEpoch=fixture.epoch + 1),
        "no epoch": ask(fixture, ProducerEpoch=-1),
        "largest epoch": ask(fixture, ProducerEpoch=32767),
        "other producer": ask(fixture, ProducerId=fixture.producer_id + 1_000_000),
        "no producer": ask(fixture, ProducerId=-1, ProducerEpoch=-1),
        "no transactional id": ask(fixture, TransactionalId=""),
        "other transactional id": ask(fixture, TransactionalId=f"other-{fixture.id}"),
    }


def init_requests(fixture: TransactionFixture) -> dict[str, Values]:
    """InitProducerId."""
    asked = {
        f"goes on {label}": values
        for label, values in _others(fixture, lambda s, **c: initializing(s) | producer(s, **c)).items()
    }
    return asked | {
        "begins": initializing(fixture),
        "timeout 0": initializing(fixture, TransactionTimeoutMs=0),
        "timeout -1": initializing(fixture, TransactionTimeoutMs=-1),
        "timeout too long": initializing(fixture, TransactionTimeoutMs=900_001),
        "timeout longest": initializing(fixture, TransactionTimeoutMs=900_000),
        "producer without epoch": initializing(fixture, ProducerId=fixture.producer_id),
        "epoch without producer": initializing(fixture, ProducerEpoch=0),
        "idempotent": initializing(fixture, TransactionalId=None),
        "idempotent, timeout -1": initializing(fixture, TransactionalId=None, TransactionTimeoutMs=-1),
        "idempotent goes on": initializing(
            fixture, TransactionalId=None, ProducerId=fixture.producer_id, ProducerEpoch=0
        ),
        "empty id": initializing(fixture, TransactionalId=""),
        "two phases": initializing(fixture, Enable2Pc=True),
        "two phases, timeout 0": initializing(fixture, Enable2Pc=True, TransactionTimeoutMs=0),
        "two phases, idempotent": initializing(fixture, TransactionalId=None, Enable2Pc=True),
        "keeps what is prepared": initializing(fixture, KeepPreparedTxn=True),
        "two phases, keeps what is prepared": initializing(fixture, Enable2Pc=True, KeepPreparedTxn=True),
    }


def add_requests(fixture: TransactionFixture) -> dict[str, Values]:
    """AddPartitionsToTxn."""
    asked = {
        f"one {label}": values
        for label, values in _others(fixture, lambda s, **c: adding(s, (s.topic, [0]), **c)).items()
    }
    asked |= {
        f"only asked {label}": values
        for label, values in _others(
            fixture, lambda s, **c: adding(s, (s.topic, [0]), verify=True, **c)
        ).items()
    }
    several = adding(fixture, (fixture.topic, [0])) | {
        "Transactions": [
            adding(fixture, (fixture.topic, [0]))["Transactions"][0],
            adding(fixture, (fixture.topic, [0]), TransactionalId=f"other-{fixture.id}")["Transactions"][0],
            adding(fixture, (fixture.topic, [2]), ("nowhere", [0]), TransactionalId=f"another-{fixture.id}")[
                "Transactions"
            ][0],
        ]
    }
    return asked | {
        "more": adding(fixture, (fixture.topic, [0, 1, 2])),
        "none": adding(fixture),
        "no partitions": adding(fixture, (fixture.topic, [])),
        "unknown topic": adding(fixture, ("nowhere", [0])),
        "unknown topic and one": adding(fixture, ("nowhere", [0]), (fixture.topic, [0])),
        "unknown partition": adding(fixture, (fixture.topic, [0, 9])),
        "negative partition": adding(fixture, (fixture.topic, [-1])),
        "internal topic": adding(fixture, ("__consumer_offsets", [0])),
        "a partition twice": adding(fixture, (fixture.topic, [0, 0])),
        "only asked of more": adding(fixture, (fixture.topic, [0, 2]), verify=True),
        "only asked of an unknown topic": adding(fixture, ("nowhere", [0]), verify=True),
        "several": several,
    }


def offset_requests(fixture: TransactionFixture) -> dict[str, Values]:
    """AddOffsetsToTxn."""
    asked = _others(fixture, lambda s, **c: producer(s, **c) | {"GroupId": s.group})
    return asked | {
        "no group": producer(fixture) | {"GroupId": ""},
        "other group": producer(fixture) | {"GroupId": f"x-{fixture.id}"},
    }


def commit_requests(fixture: TransactionFixture) -> dict[str, Values]:
    """TxnOffsetCommit."""
    asked = _others(fixture, lambda s, **c: committing(s, **c))
    return asked | {
        "unknown topic": committing(fixture, "nowhere"),
        "unknown topic and one": committing(fixture, "nowhere", fixture.topic),
        "no group": committing(fixture, GroupId=""),
        "other group": committing(fixture, GroupId=f"x-{fixture.id}"),
        "unknown member": committing(fixture, MemberId="nobody", GenerationIdOrMemberEpoch=1),
        "member without generation": committing(fixture, MemberId="nobody"),
        "generation without member": committing(fixture, GenerationIdOrMemberEpoch=3),
        "an instance": committing(fixture, GroupInstanceId="i"),
        "nothing": committing(fixture, Topics=[]),
        "metadata too long": committing(fixture, Topics=[_place(fixture, 0, CommittedMetadata="m" * 4097)]),
        "unknown partition": committing(fixture, Topics=[_place(fixture, 9)]),
        "negative": committing(fixture, Topics=[_place(fixture, 0, CommittedOffset=-3)]),
    }


def end_requests(fixture: TransactionFixture) -> dict[str, Values]:
    """EndTxn."""
    return {
        f"{word} {label}": values
        for word, commit in (("commit", True), ("abort", False))
        for label, values in _others(
            fixture, lambda s, commit=commit, **c: producer(s, **c) | {"Committed": commit}
        ).items()  # type: ignore[misc]
    }


REQUESTS: dict[str, Callable[[TransactionFixture], dict[str, Values]]] = {
    "InitProducerId": init_requests,
    "AddPartitionsToTxn": add_requests,
    "AddOffsetsToTxn": offset_requests,
    "TxnOffsetCommit": commit_requests,
    "EndTxn": end_requests,
}


# --- the cells --------------------------------------------------------------------------------------------------


def look(run: ScenarioRun, fixture: TransactionFixture, label: str) -> None:
    """Note all descriptions of the id, its producer, and its committed offsets."""
    settle(run, fixture, f"{label} described")
    listed = run.look("ListTransactions", 0, ProducerIdFilters=[fixture.producer_id])["TransactionStates"]
    run.note(f"{label} listed", [state for state in listed if state["TransactionalId"].endswith(fixture.id)])
    asked = [{"Name": fixture.topic, "PartitionIndexes": [0, 1, 2]}]
    for at in run.look("DescribeProducers", 0, Topics=asked)["Topics"][0]["Partitions"]:
        mine = [state for state in at["ActiveProducers"] if state["ProducerId"] == fixture.producer_id]
        for state in mine:
            state["CurrentTxnStartOffset"] = state["CurrentTxnStartOffset"] >= 0
        run.note(f"{label} producers of {at['PartitionIndex']}", mine)
    groups = [{"GroupId": fixture.group, "Topics": None, "MemberEpoch": -1}]
    run.ask(f"{label} offsets", "OffsetFetch", version=9, Groups=groups, RequireStable=True)


def _patiently(run: ScenarioRun, label: str, api: str, values: Values) -> None:
    """Send a request; repeat InitProducerId until an open transaction has ended: Kafka makes clients retry."""
    if api == "InitProducerId":
        run.until(label, api, lambda answer: answer["ErrorCode"] != CONCURRENT_TRANSACTIONS, **values)
    else:
        run.ask(label, api, **values)


def cell(state: Callable[[ScenarioRun], TransactionFixture], api: str, label: str, run: ScenarioRun) -> None:
    """Bring an id into a state, send one request twice, and describe the id."""
    run.topic(topic_of(run.group))
    fixture = state(run)
    _patiently(run, "asked", api, REQUESTS[api](fixture)[label])
    look(run, fixture, "then")
    _patiently(run, "asked again", api, REQUESTS[api](fixture)[label])
    look(run, fixture, "after that")
    run.until(
        "another begins", "InitProducerId",
        lambda answer: answer["ErrorCode"] != CONCURRENT_TRANSACTIONS, version=4, **initializing(fixture),
    )  # fmt: skip
    look(run, fixture, "at last")


def produce_cell(
    state: Callable[[ScenarioRun], TransactionFixture],
    who: Callable[[TransactionFixture], Values],
    run: ScenarioRun,
) -> None:
    """Write in a state."""
    topic_id = run.topic(topic_of(run.group))
    fixture = state(run)
    run.ask("asked", "Produce", **producing(run, fixture, topic_id, **who(fixture)))
    look(run, fixture, "then")


PRODUCES: dict[str, Callable[[TransactionFixture], Values]] = {
    "next": lambda s: {},
    "again": lambda s: {"who": (s.producer_id, s.epoch, max(s.sequence - 1, 0))},
    "a gap": lambda s: {"who": (s.producer_id, s.epoch, s.sequence + 5)},
    "older epoch": lambda s: {"who": (s.producer_id, s.epoch - 1, s.sequence)},
    "newer epoch": lambda s: {"who": (s.producer_id, s.epoch + 1, 0)},
    "other producer": lambda s: {"who": (s.producer_id + 1_000_000, 0, 0)},
    "other transactional id": lambda s: {"TransactionalId": f"other-{s.id}"},
    "no transactional id": lambda s: {"TransactionalId": None},
}


def markers(
    fixture: TransactionFixture, *, commit: bool, version: int = 2, epoch: int = 0, **changes: Any
) -> Values:
    """A WriteTxnMarkers of the fixture's producer."""
    marker = {
        "ProducerId": fixture.producer_id, "ProducerEpoch": fixture.epoch, "TransactionResult": commit,
        "Topics": [{"Name": fixture.topic, "PartitionIndexes": [0]}],
        "CoordinatorEpoch": epoch, "TransactionVersion": version,
    }  # fmt: skip
    return {"Markers": [marker | changes]}


MARKERS: dict[str, Callable[[TransactionFixture], Values]] = {
    "commit": lambda s: markers(s, commit=True),
    "abort": lambda s: markers(s, commit=False),
    "abort, next epoch": lambda s: markers(s, commit=False, ProducerEpoch=s.epoch + 1),
    "abort, older epoch": lambda s: markers(s, commit=False, ProducerEpoch=s.epoch - 1),
    "abort, version 0": lambda s: markers(s, commit=False, version=0),
    "abort, next epoch, version 0": lambda s: markers(s, commit=False, version=0, ProducerEpoch=s.epoch + 1),
    "abort, coordinator epoch -1": lambda s: markers(s, commit=False, epoch=-1),
    "other producer": lambda s: markers(s, commit=False, ProducerId=s.producer_id + 1_000_000),
    "unknown topic": lambda s: markers(
        s, commit=False, Topics=[{"Name": "nowhere", "PartitionIndexes": [0]}]
    ),
    "unknown partition": lambda s: markers(
        s, commit=False, Topics=[{"Name": s.topic, "PartitionIndexes": [0, 9]}]
    ),
    "no topics": lambda s: markers(s, commit=False, Topics=[]),
    "none": lambda s: {"Markers": []},
    "two": lambda s: {"Markers": markers(s, commit=True)["Markers"] + markers(s, commit=False)["Markers"]},
}


def marker_cell(
    state: Callable[[ScenarioRun], TransactionFixture],
    values: Callable[[TransactionFixture], Values],
    run: ScenarioRun,
) -> None:
    """Send markers as an admin client does to end a hanging transaction."""
    run.topic(topic_of(run.group))
    fixture = state(run)
    run.ask("asked", "WriteTxnMarkers", **values(fixture))
    look(run, fixture, "then")


def filters(run: ScenarioRun) -> None:
    """ListTransactions and DescribeTransactions with every filter."""
    run.topic(topic_of(run.group))
    fixture = ongoing(run)
    state = "StateFilters"
    filters: dict[str, dict[str, Any]] = {
        "state": {state: ["Ongoing"]},
        "state in capitals": {state: ["ONGOING"]},
        "state in lower case": {state: ["ongoing"]},
        "other state": {state: ["Empty"]},
        "unknown state": {state: ["Ongoing", "Gone"]},
        "unknown state alone": {state: ["Gone"]},
        "empty state": {state: [""]},
        "producer": {"ProducerIdFilters": [fixture.producer_id]},
        "producer and unknown": {"ProducerIdFilters": [fixture.producer_id, -1]},
        "unknown producer": {"ProducerIdFilters": [1 << 40]},
        "duration 0": {"DurationFilter": 0},
        "duration long": {"DurationFilter": 1 << 40},
        "duration -1": {"DurationFilter": -1},
        "duration -2": {"DurationFilter": -2},
        "pattern": {"TransactionalIdPattern": f".*{fixture.id}"},
        "pattern of a part": {"TransactionalIdPattern": fixture.id[:4]},
        "empty pattern": {"TransactionalIdPattern": ""},
        "bad pattern": {"TransactionalIdPattern": "(x"},
    }
    for label, asked in filters.items():
        for version in (0, 1, 2):
            answer = run.look("ListTransactions", version, **asked)
            own = [entry for entry in answer["TransactionStates"] if entry["TransactionalId"] == fixture.id]
            run.note(f"v{version} {label}", answer | {"TransactionStates": own})
    for label, ids in {
        "one": [fixture.id],
        "unknown": ["nobody"],
        "empty": [""],
        "twice": [fixture.id] * 2,
        "none": [],
        "some": [fixture.id, "nobody", ""],
    }.items():
        run.ask(f"describe {label}", "DescribeTransactions", TransactionalIds=ids)
    cases: dict[str, list[tuple[str, list[int]]]] = {
        "unknown topic": [("nowhere", [0])], "unknown partition": [(fixture.topic, [99, -1])], "empty topic": [("", [0])],
        "bad topic": [("a b", [0])], "none": [], "no partitions": [(fixture.topic, [])],
    }  # fmt: skip
    for label, topics in cases.items():
        values = [{"Name": name, "PartitionIndexes": partitions} for name, partitions in topics]
        run.ask(f"producers of {label}", "DescribeProducers", Topics=values)
    run.ask("add to no transaction", "AddPartitionsToTxn", version=5, Transactions=[])
    run.ask("the end", "EndTxn", **producer(fixture), Committed=False)


def durations(state: Callable[[ScenarioRun], TransactionFixture], run: ScenarioRun) -> None:
    """ListTransactions of a state by how long ago it began."""
    run.topic(topic_of(run.group))
    fixture = state(run)
    time.sleep(0.01)  # longer ago than 0 ms
    for duration in (0, 1 << 40):
        for version in (1, 2):
            answer = run.look("ListTransactions", version, DurationFilter=duration)
            own = [entry for entry in answer["TransactionStates"] if entry["TransactionalId"] == fixture.id]
            run.note(f"v{version} {duration}", answer | {"TransactionStates": own})


def rounds(run: ScenarioRun) -> None:
    """Successive transactions, committed and aborted in turn, with the epoch of each."""
    topic_id = run.topic(topic_of(run.group))
    fixture = empty(run)
    for number in range(4):
        if run.version("EndTxn") < 5:
            run.ask(f"add {number}", "AddPartitionsToTxn", version=3, **adding(fixture, (fixture.topic, [0])))
        run.until(
            f"write {number}", "Produce",
            lambda answer: answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"] != CONCURRENT_TRANSACTIONS,
            **producing(run, fixture, topic_id),
        )  # fmt: skip
        fixture.sequence += 1
        ended = run.ask(f"end {number}", "EndTxn", **producer(fixture), Committed=number % 2 == 0)
        if ended.get("ProducerId", -1) >= 0:
            fixture.producer_id, fixture.epoch, fixture.sequence = (
                ended["ProducerId"],
                ended["ProducerEpoch"],
                0,
            )
        look(run, fixture, f"round {number}")


def scenarios() -> Iterator[Scenario]:
    """Every state with every request."""
    for name, state in STATES.items():
        for api, asked in REQUESTS.items():
            for label in asked(TransactionFixture("x")):
                yield Scenario(f"{name}: {api} {label}", partial(cell, state, api, label), BACKS)
        for label, who in PRODUCES.items():
            yield Scenario(f"{name}: Produce {label}", partial(produce_cell, state, who), BACKS)
        for label, values in MARKERS.items():
            yield Scenario(f"{name}: WriteTxnMarkers {label}", partial(marker_cell, state, values), (0, 1))
        yield Scenario(f"{name}: durations", partial(durations, state))
    yield Scenario("filters", filters)
    yield Scenario("rounds", rounds, BACKS)
