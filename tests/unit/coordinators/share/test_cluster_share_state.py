"""The state of share partitions at a coordinator on another broker: asked over the wire, again while it moves."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from barnabas.cluster.metadata.changes import PartitionChanged
from barnabas.cluster.metadata.image import PartitionInfo
from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.coordinators.share.attempts import PAUSES
from barnabas.coordinators.share.batches import StateBatch
from barnabas.coordinators.share.cluster_state import ClusterShareState
from barnabas.coordinators.share.coordinator import ShareStateCoordinator
from barnabas.coordinators.share.records import ShareState
from barnabas.coordinators.share.state import StateWrite
from barnabas.errors import RequestError
from barnabas.handlers.delete_share_group_state import DeleteShareGroupState
from barnabas.handlers.initialize_share_group_state import InitializeShareGroupState
from barnabas.handlers.read_share_group_state import ReadShareGroupState
from barnabas.handlers.read_share_group_state_summary import ReadShareGroupStateSummary
from barnabas.handlers.write_share_group_state import WriteShareGroupState
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire import registry
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import decode_response, encode_request, encode_response, parse_request_header
from tests.support.journals import MemoryJournal
from tests.support.peers import ME, THREE, TWO, cluster, topic

HANDLERS: dict[str, type[Any]] = {
    handler.__name__: handler
    for handler in (
        DeleteShareGroupState,
        InitializeShareGroupState,
        ReadShareGroupState,
        ReadShareGroupStateSummary,
        WriteShareGroupState,
    )
}


class Shares:
    def __init__(self, state) -> None:
        self.state = state


def coordinator(metadata) -> ShareStateCoordinator:
    return ShareStateCoordinator(MemoryJournal(), lambda: 0, lambda: metadata.image, updates_max=10)


class Wire:
    """Stands for `Peers`: coordinators by broker id, reached through bytes of the newest version and their handlers."""

    def __init__(self, **coordinators) -> None:
        self.coordinators: dict[int, ShareStateCoordinator] = {}
        self.failures: list[Exception | int] = []
        self.asked: list[int] = []
        self.received: list[tuple[object, dict[str, object]]] = []
        """Requests as they came over the wire, and the options of each."""

    async def ask(self, broker_id, request, **options):
        self.asked.append(broker_id)
        name = type(request).__name__.removesuffix("Request")
        key = registry.key_of(name)
        version = {84: 0, 83: 0, 86: 0}.get(key, 1)
        frame = b"".join(bytes(chunk) for chunk in encode_request(key, version, 1, "b", request))[4:]
        header = parse_request_header(frame)
        received, _ = registry.request_codec(key).decoders[version](memoryview(frame), header.body_position)
        self.received.append((received, options))
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, Exception):
            raise failure
        shares = Shares(self.coordinators[broker_id])
        response = await HANDLERS[name](shares=shares, budget=LoopBudget()).handle(None, received)
        if failure:
            response.results[0].partitions[0].error_code = failure
        answer = b"".join(bytes(chunk) for chunk in encode_response(key, version, 1, response))[4:]
        return decode_response(answer, key, version)[1]


@asynccontextmanager
async def state_in(leader=TWO):
    metadata = cluster(topic("__share_group_state", leader), topic("t", ME))
    wire = Wire()
    wire.coordinators = {broker_id: coordinator(metadata) for broker_id in (ME, TWO, THREE)}
    state = ClusterShareState(metadata, ME, local=wire.coordinators[ME], peers=wire, timeout_ms=1000)  # type: ignore[arg-type]
    yield state, wire, metadata


KEY = ("g", b"t".rjust(16), 0)


@pytest.mark.parametrize("leader", [ME, TWO])
async def test_a_state_is_the_same_wherever_it_is_kept(leader, autojump_clock) -> None:
    async with state_in(leader) as (state, wire, _):
        assert await state.summary(KEY) is None
        await state.initialize(KEY, 1, 100)
        read = await state.read_state(KEY, 3)
        assert (read.state_epoch, read.start_offset, read.batches) == (1, 100, ())
        batches = (StateBatch(105, 107, 2, 1),)
        await state.write_state(KEY, StateWrite(1, 3, 103, 4, batches))
        read = await state.read_state(KEY, 3)
        assert (read.state_epoch, read.start_offset, read.batches) == (1, 103, batches)
        summary = await state.summary(KEY)
        assert isinstance(summary, ShareState)
        assert (summary.state_epoch, summary.leader_epoch, summary.start_offset, summary.complete_count) == (
            1,
            3,
            103,
            4,
        )
        with pytest.raises(RequestError) as caught:
            await state.write_state(KEY, StateWrite(1, 2, 110))
        assert caught.value.code == ErrorCode.FENCED_LEADER_EPOCH
        await state.delete(KEY)
        assert await state.summary(KEY) is None
        assert wire.asked == ([] if leader == ME else [TWO] * 9)


def only(message):
    """The group, topic id and only partition of a message."""
    [one_topic] = message.topics
    [partition] = one_topic.partitions
    return message.group_id, one_topic.topic_id, partition


async def test_what_is_asked_says_which_epoch_is_which(autojump_clock) -> None:
    async with state_in(TWO) as (state, wire, _):
        await state.initialize(KEY, 7, 100)
        await state.read_state(KEY, 3)
        await state.write_state(KEY, StateWrite(7, 3, 103, 4, (StateBatch(105, 107, 2, 1),)))
        asked = [only(message) for message, _ in wire.received]
        assert {(group, topic_id, part.partition) for group, topic_id, part in asked} == {KEY}
        initialize, read, write = (part for _, _, part in asked)
        assert (initialize.state_epoch, initialize.start_offset) == (7, 100)
        assert read.leader_epoch == 3
        assert (write.state_epoch, write.leader_epoch, write.start_offset) == (7, 3, 103)
        assert write.delivery_complete_count == 4
        assert [
            (part.first_offset, part.last_offset, part.delivery_state, part.delivery_count)
            for part in write.state_batches
        ] == [(105, 107, 2, 1)]
        assert [options for _, options in wire.received] == [{"timeout_s": 1.0, "channel": "share-state"}] * 3


class Told:
    """Stands for `Peers`: answers all with the same results, given by field."""

    def __init__(self, *results) -> None:
        self.results = [SimpleNamespace(**{"error_code": 0, "error_message": None} | row) for row in results]

    async def ask(self, broker_id, request, **options):
        return SimpleNamespace(results=[SimpleNamespace(partitions=[result]) for result in self.results])


def told(*results):
    """States with a coordinator on another broker that answers with these results."""
    metadata = cluster(topic("__share_group_state", TWO), topic("t", ME))
    return ClusterShareState(metadata, ME, local=coordinator(metadata), peers=Told(*results), timeout_ms=1000)  # type: ignore[arg-type]


SUMMARY = {"state_epoch": 5, "leader_epoch": 2, "start_offset": 40, "delivery_complete_count": 9}


@pytest.mark.parametrize(
    ("says", "is_there"),
    [
        ({}, True),
        ({"start_offset": -1}, True),
        ({"state_epoch": 0}, True),
        ({"start_offset": -1, "state_epoch": 0}, False),
    ],
)
async def test_only_a_summary_that_says_nothing_is_that_of_no_state(says, is_there) -> None:
    summary = await told(SUMMARY | says).summary(KEY)
    assert (summary is not None) is is_there
    if summary is not None:
        expected = SUMMARY | says
        assert (summary.state_epoch, summary.start_offset) == (
            expected["state_epoch"],
            expected["start_offset"],
        )
        assert (summary.leader_epoch, summary.complete_count) == (2, 9)


@pytest.mark.parametrize("results", [(), (SUMMARY, SUMMARY)], ids=["none", "two"])
async def test_answer_without_exactly_one_result_is_an_error(results) -> None:
    with pytest.raises(RequestError) as caught:
        await told(*results).summary(KEY)
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (PeerUnavailableError("it is too old", lacks_version=True), ErrorCode.UNSUPPORTED_VERSION),
        (PeerUnavailableError("it is gone"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_STATE_EPOCH),
    ],
    ids=str,
)
async def test_what_keeps_a_coordinator_from_answering_is_told(failure, code, autojump_clock) -> None:
    async with state_in(TWO) as (state, wire, _):
        wire.failures = [failure] * 100
        with pytest.raises(RequestError) as caught:
            await state.delete(KEY)
        assert caught.value.code == code
        has_moved = code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(wire.asked) == (len(PAUSES) if has_moved else 1), "again only where that may help"


@pytest.mark.parametrize(
    "failure",
    [
        PeerUnavailableError("it is gone"),
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
    ids=str,
)
async def test_a_coordinator_that_moves_is_looked_up_again(failure, autojump_clock) -> None:
    async with state_in(TWO) as (state, wire, metadata), trio.open_nursery() as nursery:
        wire.failures = [failure]
        nursery.start_soon(state.initialize, KEY, 1, 100)
        await trio.testing.wait_all_tasks_blocked()
        await metadata.apply(
            [PartitionChanged("__share_group_state", 0, PartitionInfo(THREE, (THREE,), (THREE,), 1))]
        )
    assert wire.asked == [TWO, THREE]


async def test_it_is_asked_a_few_times_only(autojump_clock) -> None:
    async with state_in(TWO) as (state, wire, _):
        wire.failures = [ErrorCode.NOT_COORDINATOR] * 100
        with pytest.raises(RequestError) as caught:
            await state.read_state(KEY, 0)
        assert caught.value.code == ErrorCode.NOT_COORDINATOR
        assert wire.asked == [TWO] * len(PAUSES)


@pytest.mark.parametrize("leader", [-1, 9])
async def test_nobody_coordinates(leader, autojump_clock) -> None:
    async with state_in(leader) as (state, wire, _):
        with pytest.raises(RequestError) as caught:
            await state.read_state(KEY, 0)
        assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert wire.asked == []
