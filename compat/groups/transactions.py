"""Transactional ids: every state of a transaction, every request of a producer, right and wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

from compat.kit.play import Play, Scene, SceneError
from compat.kit.records import record_batch
from compat.kit.wire import Values

TOPICS = 64
"""So many share the work, lest lists of producers grow long."""
TIMEOUT_MS = 600_000
BACKS = (0, 1, 5)
CONCURRENT_TRANSACTIONS = 51


def topic_of(transactional_id: str) -> str:
    """The topic of an id's transactions."""
    return f"transacted-{crc32(transactional_id.encode()) % TOPICS}"


@dataclass
class Stage:
    """A transactional id and who uses it."""

    id: str
    producer_id: int = 5
    epoch: int = 0
    sequence: int = 0

    @property
    def topic(self) -> str:
        """The topic that is written to."""
        return topic_of(self.id)

    @property
    def group(self) -> str:
        """The group whose offsets are part of the transaction."""
        return f"group-{self.id}"


def initializing(stage: Stage, **changes: Any) -> Values:
    """An InitProducerId of a new instance."""
    return {"TransactionalId": stage.id, "TransactionTimeoutMs": TIMEOUT_MS} | changes


def producer(stage: Stage, **changes: Any) -> Values:
    """The fields that say who asks."""
    return {
        "TransactionalId": stage.id,
        "ProducerId": stage.producer_id,
        "ProducerEpoch": stage.epoch,
    } | changes


def adding(stage: Stage, *topics: tuple[str, list[int]], verify: bool = False, **changes: Any) -> Values:
    """An AddPartitionsToTxn, in the fields of the old versions and of the new ones."""
    who = producer(stage, **changes)
    places = [{"Name": name, "Partitions": partitions} for name, partitions in topics]
    return {
        "Transactions": [who | {"VerifyOnly": verify, "Topics": places}],
        **{f"V3AndBelow{name}": value for name, value in who.items()},
        "V3AndBelowTopics": places,
    }


def committing(stage: Stage, *topics: str, **changes: Any) -> Values:
    """A TxnOffsetCommit."""
    entries = [
        {
            "Name": name,
            "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 3, "CommittedMetadata": "in it"}],
        }
        for name in topics or (stage.topic,)
    ]
    return producer(stage) | {"GroupId": stage.group, "Topics": entries} | changes


def _place(stage: Stage, partition: int, **changes: Any) -> Values:
    return {
        "Name": stage.topic,
        "Partitions": [{"PartitionIndex": partition, "CommittedOffset": 3} | changes],
    }


def producing(play: Play, stage: Stage, topic_id: bytes, **changes: Any) -> Values:
    """A Produce of one transactional record to partition 0."""
    who = (stage.producer_id, stage.epoch, stage.sequence)
    now_ms = time.time_ns() // 1_000_000
    records = record_batch([b"v"], now_ms, producer=changes.pop("who", who), transactional=True)
    data = {"PartitionData": [{"Index": 0, "Records": records}]}
    return {"TransactionalId": stage.id, "Acks": -1, "TimeoutMs": 9_000} | {
        "TopicData": [data | ({"TopicId": topic_id} if play.version("Produce") >= 13 else {"Name": stage.topic})]
    } | changes  # fmt: skip


# --- states -----------------------------------------------------------------------------------------------------


def absent(play: Play) -> Stage:
    """Nobody has used this id."""
    return Stage(play.group)


def empty(play: Play, **changes: Any) -> Stage:
    """A producer has begun and done nothing."""
    stage = Stage(play.group)
    answer = play.ask("set-up: begin", "InitProducerId", **initializing(stage, **changes))
    if answer["ErrorCode"]:
        raise SceneError(f"InitProducerId is answered {answer['ErrorCode']}")
    stage.producer_id, stage.epoch = answer["ProducerId"], answer["ProducerEpoch"]
    return stage


def ongoing(play: Play) -> Stage:
    """A transaction with a partition, and nothing written to it."""
    stage = empty(play)
    play.ask(
        "set-up: add",
        "AddPartitionsToTxn",
        version=min(3, play.version("AddPartitionsToTxn")),
        **adding(stage, (stage.topic, [0, 1])),
    )
    return stage


def ongoing_written(play: Play) -> Stage:
    """A transaction with a record, and offsets of a group."""
    stage = ongoing(play)
    topic_id = play.topic(topic_of(play.group))
    play.ask("set-up: write", "Produce", **producing(play, stage, topic_id))
    stage.sequence = 1
    play.ask("set-up: add offsets", "AddOffsetsToTxn", **producer(stage), GroupId=stage.group)
    play.ask("set-up: commit offsets", "TxnOffsetCommit", **committing(stage))
    return stage


def ongoing_at_once(play: Play) -> Stage:
    """As version 2 of the protocol has it: what is written is part of the transaction without being added."""
    stage = empty(play)
    topic_id = play.topic(topic_of(play.group))
    play.ask("set-up: write", "Produce", **producing(play, stage, topic_id))
    stage.sequence = 1
    play.ask("set-up: commit offsets", "TxnOffsetCommit", **committing(stage))
    return stage


def _ended(play: Play, stage: Stage, *, commit: bool) -> Stage:
    answer = play.ask("set-up: end", "EndTxn", **producer(stage), Committed=commit)
    if answer.get("ProducerId", -1) >= 0:
        stage.producer_id, stage.epoch, stage.sequence = answer["ProducerId"], answer["ProducerEpoch"], 0
    settle(play, stage, "set-up: ended")
    return stage


def committed(play: Play) -> Stage:
    """The last transaction has been committed."""
    return _ended(play, ongoing_written(play), commit=True)


def aborted(play: Play) -> Stage:
    """The last transaction has been aborted."""
    return _ended(play, ongoing_written(play), commit=False)


def fenced(play: Play) -> Stage:
    """A second instance has begun; who asks is the first."""
    stage = empty(play)
    play.ask("set-up: second", "InitProducerId", **initializing(stage))
    return stage


def fenced_ongoing(play: Play) -> Stage:
    """A second instance has begun while a transaction of the first was open."""
    stage = ongoing_written(play)
    play.until(
        "set-up: second", "InitProducerId",
        lambda answer: answer["ErrorCode"] != CONCURRENT_TRANSACTIONS, **initializing(stage),
    )  # fmt: skip
    return stage


def timed_out(play: Play) -> Stage:
    """The coordinator has aborted a transaction that was open for too long."""
    stage = empty(play, TransactionTimeoutMs=200)
    add = min(3, play.version("AddPartitionsToTxn"))
    play.ask("set-up: add", "AddPartitionsToTxn", version=add, **adding(stage, (stage.topic, [0, 1])))
    play.until(
        "set-up: timed out", "DescribeTransactions",
        lambda answer: answer["TransactionStates"][0]["TransactionState"] == "CompleteAbort",
        TransactionalIds=[stage.id],
    )  # fmt: skip
    return stage


STATES: dict[str, Callable[[Play], Stage]] = {
    state.__name__.replace("_", " "): state
    for state in (
        absent,
        empty,
        ongoing,
        ongoing_written,
        ongoing_at_once,
        committed,
        aborted,
        fenced,
        fenced_ongoing,
        timed_out,
    )
}


# --- what is asked ----------------------------------------------------------------------------------------------


def _others(stage: Stage, ask: Callable[..., Values]) -> dict[str, Values]:
    """A request of the right producer and of wrong ones."""
    return {
        "": ask(stage),
        "older epoch": ask(stage, ProducerEpoch=stage.epoch - 1),
        "newer epoch": ask(stage, ProducerEpoch=stage.epoch + 1),
        "no epoch": ask(stage, ProducerEpoch=-1),
        "largest epoch": ask(stage, ProducerEpoch=32767),
        "other producer": ask(stage, ProducerId=stage.producer_id + 1_000_000),
        "no producer": ask(stage, ProducerId=-1, ProducerEpoch=-1),
        "no transactional id": ask(stage, TransactionalId=""),
        "other transactional id": ask(stage, TransactionalId=f"other-{stage.id}"),
    }


def init_requests(stage: Stage) -> dict[str, Values]:
    """InitProducerId."""
    asked = {
        f"goes on {label}": values
        for label, values in _others(stage, lambda s, **c: initializing(s) | producer(s, **c)).items()
    }
    return asked | {
        "begins": initializing(stage),
        "timeout 0": initializing(stage, TransactionTimeoutMs=0),
        "timeout -1": initializing(stage, TransactionTimeoutMs=-1),
        "timeout too long": initializing(stage, TransactionTimeoutMs=900_001),
        "timeout longest": initializing(stage, TransactionTimeoutMs=900_000),
        "producer without epoch": initializing(stage, ProducerId=stage.producer_id),
        "epoch without producer": initializing(stage, ProducerEpoch=0),
        "idempotent": initializing(stage, TransactionalId=None),
        "idempotent, timeout -1": initializing(stage, TransactionalId=None, TransactionTimeoutMs=-1),
        "idempotent goes on": initializing(
            stage, TransactionalId=None, ProducerId=stage.producer_id, ProducerEpoch=0
        ),
        "empty id": initializing(stage, TransactionalId=""),
    }


def add_requests(stage: Stage) -> dict[str, Values]:
    """AddPartitionsToTxn."""
    asked = {
        f"one {label}": values
        for label, values in _others(stage, lambda s, **c: adding(s, (s.topic, [0]), **c)).items()
    }
    asked |= {
        f"only asked {label}": values
        for label, values in _others(
            stage, lambda s, **c: adding(s, (s.topic, [0]), verify=True, **c)
        ).items()
    }
    several = adding(stage, (stage.topic, [0])) | {
        "Transactions": [
            adding(stage, (stage.topic, [0]))["Transactions"][0],
            adding(stage, (stage.topic, [0]), TransactionalId=f"other-{stage.id}")["Transactions"][0],
            adding(stage, (stage.topic, [2]), ("nowhere", [0]), TransactionalId=f"another-{stage.id}")[
                "Transactions"
            ][0],
        ]
    }
    return asked | {
        "more": adding(stage, (stage.topic, [0, 1, 2])),
        "none": adding(stage),
        "no partitions": adding(stage, (stage.topic, [])),
        "unknown topic": adding(stage, ("nowhere", [0])),
        "unknown topic and one": adding(stage, ("nowhere", [0]), (stage.topic, [0])),
        "unknown partition": adding(stage, (stage.topic, [0, 9])),
        "negative partition": adding(stage, (stage.topic, [-1])),
        "internal topic": adding(stage, ("__consumer_offsets", [0])),
        "a partition twice": adding(stage, (stage.topic, [0, 0])),
        "only asked of more": adding(stage, (stage.topic, [0, 2]), verify=True),
        "only asked of an unknown topic": adding(stage, ("nowhere", [0]), verify=True),
        "several": several,
    }


def offset_requests(stage: Stage) -> dict[str, Values]:
    """AddOffsetsToTxn."""
    asked = _others(stage, lambda s, **c: producer(s, **c) | {"GroupId": s.group})
    return asked | {
        "no group": producer(stage) | {"GroupId": ""},
        "other group": producer(stage) | {"GroupId": f"x-{stage.id}"},
    }


def commit_requests(stage: Stage) -> dict[str, Values]:
    """TxnOffsetCommit."""
    asked = _others(stage, lambda s, **c: committing(s, **c))
    return asked | {
        "unknown topic": committing(stage, "nowhere"),
        "unknown topic and one": committing(stage, "nowhere", stage.topic),
        "no group": committing(stage, GroupId=""),
        "other group": committing(stage, GroupId=f"x-{stage.id}"),
        "unknown member": committing(stage, MemberId="nobody", GenerationIdOrMemberEpoch=1),
        "member without generation": committing(stage, MemberId="nobody"),
        "generation without member": committing(stage, GenerationIdOrMemberEpoch=3),
        "an instance": committing(stage, GroupInstanceId="i"),
        "nothing": committing(stage, Topics=[]),
        "metadata too long": committing(stage, Topics=[_place(stage, 0, CommittedMetadata="m" * 4097)]),
        "unknown partition": committing(stage, Topics=[_place(stage, 9)]),
        "negative": committing(stage, Topics=[_place(stage, 0, CommittedOffset=-3)]),
    }


def end_requests(stage: Stage) -> dict[str, Values]:
    """EndTxn."""
    return {
        f"{word} {label}": values
        for word, commit in (("commit", True), ("abort", False))
        for label, values in _others(
            stage, lambda s, commit=commit, **c: producer(s, **c) | {"Committed": commit}
        ).items()  # type: ignore[misc]
    }


REQUESTS: dict[str, Callable[[Stage], dict[str, Values]]] = {
    "InitProducerId": init_requests,
    "AddPartitionsToTxn": add_requests,
    "AddOffsetsToTxn": offset_requests,
    "TxnOffsetCommit": commit_requests,
    "EndTxn": end_requests,
}


# --- the cells --------------------------------------------------------------------------------------------------


def settle(play: Play, stage: Stage, label: str) -> None:
    """Wait until a transaction that ends has ended, and keep what is said of it."""
    play.until(
        label, "DescribeTransactions",
        lambda answer: not answer["TransactionStates"][0]["TransactionState"].startswith("Prepare"),
        TransactionalIds=[stage.id],
    )  # fmt: skip


def look(play: Play, stage: Stage, label: str) -> None:
    """All that is said of the id, its producer, and what it has committed."""
    settle(play, stage, f"{label} described")
    listed = play.look("ListTransactions", 0, ProducerIdFilters=[stage.producer_id])["TransactionStates"]
    play.note(f"{label} listed", [one for one in listed if one["TransactionalId"].endswith(stage.id)])
    asked = [{"Name": stage.topic, "PartitionIndexes": [0, 1, 2]}]
    for at in play.look("DescribeProducers", 0, Topics=asked)["Topics"][0]["Partitions"]:
        mine = [one for one in at["ActiveProducers"] if one["ProducerId"] == stage.producer_id]
        for one in mine:
            one["CurrentTxnStartOffset"] = one["CurrentTxnStartOffset"] >= 0
        play.note(f"{label} producers of {at['PartitionIndex']}", mine)
    groups = [{"GroupId": stage.group, "Topics": None, "MemberEpoch": -1}]
    play.ask(f"{label} offsets", "OffsetFetch", version=9, Groups=groups, RequireStable=True)


def _patiently(play: Play, label: str, api: str, values: Values) -> None:
    """Ask; InitProducerId until a transaction that was open has ended: Barnabas waits for it, Kafka has one come again."""
    if api == "InitProducerId":
        play.until(label, api, lambda answer: answer["ErrorCode"] != CONCURRENT_TRANSACTIONS, **values)
    else:
        play.ask(label, api, **values)


def cell(state: Callable[[Play], Stage], api: str, label: str, play: Play) -> None:
    """Bring an id into a state, ask one thing twice, and see what has become of it."""
    play.topic(topic_of(play.group))
    stage = state(play)
    _patiently(play, "asked", api, REQUESTS[api](stage)[label])
    look(play, stage, "then")
    _patiently(play, "asked again", api, REQUESTS[api](stage)[label])
    look(play, stage, "after that")
    play.until(
        "another begins", "InitProducerId",
        lambda answer: answer["ErrorCode"] != CONCURRENT_TRANSACTIONS, version=4, **initializing(stage),
    )  # fmt: skip
    look(play, stage, "at last")


def produce_cell(state: Callable[[Play], Stage], who: Callable[[Stage], Values], play: Play) -> None:
    """Write in a state."""
    topic_id = play.topic(topic_of(play.group))
    stage = state(play)
    play.ask("asked", "Produce", **producing(play, stage, topic_id, **who(stage)))
    look(play, stage, "then")


PRODUCES: dict[str, Callable[[Stage], Values]] = {
    "next": lambda s: {},
    "again": lambda s: {"who": (s.producer_id, s.epoch, max(s.sequence - 1, 0))},
    "a gap": lambda s: {"who": (s.producer_id, s.epoch, s.sequence + 5)},
    "older epoch": lambda s: {"who": (s.producer_id, s.epoch - 1, s.sequence)},
    "newer epoch": lambda s: {"who": (s.producer_id, s.epoch + 1, 0)},
    "other producer": lambda s: {"who": (s.producer_id + 1_000_000, 0, 0)},
    "other transactional id": lambda s: {"TransactionalId": f"other-{s.id}"},
    "no transactional id": lambda s: {"TransactionalId": None},
}


def markers(stage: Stage, *, commit: bool, version: int = 2, epoch: int = 0, **changes: Any) -> Values:
    """A WriteTxnMarkers of the stage's producer."""
    marker = {
        "ProducerId": stage.producer_id, "ProducerEpoch": stage.epoch, "TransactionResult": commit,
        "Topics": [{"Name": stage.topic, "PartitionIndexes": [0]}],
        "CoordinatorEpoch": epoch, "TransactionVersion": version,
    }  # fmt: skip
    return {"Markers": [marker | changes]}


MARKERS: dict[str, Callable[[Stage], Values]] = {
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


def marker_cell(state: Callable[[Play], Stage], values: Callable[[Stage], Values], play: Play) -> None:
    """Markers from outside, as an admin client writes them to end what hangs."""
    play.topic(topic_of(play.group))
    stage = state(play)
    play.ask("asked", "WriteTxnMarkers", **values(stage))
    look(play, stage, "then")


def filters(play: Play) -> None:
    """ListTransactions and DescribeTransactions with every filter."""
    play.topic(topic_of(play.group))
    stage = ongoing(play)
    state = "StateFilters"
    for label, asked in {
        "state": {state: ["Ongoing"]},
        "state in capitals": {state: ["ONGOING"]},
        "state in lower case": {state: ["ongoing"]},
        "other state": {state: ["Empty"]},
        "unknown state": {state: ["Ongoing", "Gone"]},
        "unknown state alone": {state: ["Gone"]},
        "empty state": {state: [""]},
        "producer": {"ProducerIdFilters": [stage.producer_id]},
        "producer and unknown": {"ProducerIdFilters": [stage.producer_id, -1]},
        "unknown producer": {"ProducerIdFilters": [1 << 40]},
        "duration 0": {"DurationFilter": 0},
        "duration long": {"DurationFilter": 1 << 40},
        "duration -1": {"DurationFilter": -1},
        "duration -2": {"DurationFilter": -2},
        "pattern": {"TransactionalIdPattern": f".*{stage.id}"},
        "pattern of a part": {"TransactionalIdPattern": stage.id[:4]},
        "empty pattern": {"TransactionalIdPattern": ""},
        "bad pattern": {"TransactionalIdPattern": "(x"},
    }.items():
        for version in (0, 1, 2):
            answer = play.look("ListTransactions", version, **asked)
            found = [one for one in answer["TransactionStates"] if one["TransactionalId"] == stage.id]
            play.note(f"v{version} {label}", answer | {"TransactionStates": found})
    for label, ids in {
        "one": [stage.id],
        "unknown": ["nobody"],
        "empty": [""],
        "twice": [stage.id] * 2,
        "none": [],
        "some": [stage.id, "nobody", ""],
    }.items():
        play.ask(f"describe {label}", "DescribeTransactions", TransactionalIds=ids)
    for label, topics in {
        "unknown topic": [("nowhere", [0])], "unknown partition": [(stage.topic, [99, -1])], "empty topic": [("", [0])],
        "bad topic": [("a b", [0])], "none": [], "no partitions": [(stage.topic, [])],
    }.items():  # fmt: skip
        asked = [{"Name": name, "PartitionIndexes": list(partitions)} for name, partitions in topics]
        play.ask(f"producers of {label}", "DescribeProducers", Topics=asked)
    play.ask("add to no transaction", "AddPartitionsToTxn", version=5, Transactions=[])
    play.ask("the end", "EndTxn", **producer(stage), Committed=False)


def rounds(play: Play) -> None:
    """Transactions one after the other, ended by turns, with the epochs that each of them has."""
    topic_id = play.topic(topic_of(play.group))
    stage = empty(play)
    for number in range(4):
        if play.version("EndTxn") < 5:
            play.ask(f"add {number}", "AddPartitionsToTxn", version=3, **adding(stage, (stage.topic, [0])))
        play.until(
            f"write {number}", "Produce",
            lambda answer: answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"] != CONCURRENT_TRANSACTIONS,
            **producing(play, stage, topic_id),
        )  # fmt: skip
        stage.sequence += 1
        ended = play.ask(f"end {number}", "EndTxn", **producer(stage), Committed=number % 2 == 0)
        if ended.get("ProducerId", -1) >= 0:
            stage.producer_id, stage.epoch, stage.sequence = ended["ProducerId"], ended["ProducerEpoch"], 0
        look(play, stage, f"round {number}")


def scenes() -> Iterator[Scene]:
    """Every state with every request."""
    for name, state in STATES.items():
        for api, asked in REQUESTS.items():
            for label in asked(Stage("x")):
                yield Scene(f"{name}: {api} {label}", partial(cell, state, api, label), BACKS)
        for label, who in PRODUCES.items():
            yield Scene(f"{name}: Produce {label}", partial(produce_cell, state, who), BACKS)
        for label, values in MARKERS.items():
            yield Scene(f"{name}: WriteTxnMarkers {label}", partial(marker_cell, state, values), (0, 1))
    yield Scene("filters", filters)
    yield Scene("rounds", rounds, BACKS)
