"""Coordinators ask other brokers in batches by broker, retry if that helps, and answer in Kafka's error classes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from barnabas.cluster.metadata.changes import BrokerUnregistered, PartitionChanged
from barnabas.cluster.metadata.image import PartitionInfo
from barnabas.cluster.metadata.partitioning import partition_for
from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.coordinators.transactions import broker_batches
from barnabas.coordinators.transactions.broker_batches import BrokerBatches
from barnabas.coordinators.transactions.cluster_markers import ClusterMarkers
from barnabas.coordinators.transactions.cluster_verification import ClusterVerifier
from barnabas.coordinators.transactions.controller_producer_ids import ControllerProducerIds
from barnabas.coordinators.transactions.transaction import Producer
from barnabas.errors import RequestError
from barnabas.wire.generated.add_partitions_to_txn import AddPartitionsToTxnResponse
from barnabas.wire.generated.allocate_producer_ids import AllocateProducerIdsResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.write_txn_markers import WriteTxnMarkersResponse
from tests.support.peers import ME, THREE, TWO, ScriptedPeers, cluster, topic

PRODUCER = Producer(7, 3)


@asynccontextmanager
async def running(part):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(part.run)
        await trio.testing.wait_all_tasks_blocked()
        yield part
        nursery.cancel_scope.cancel()


async def code_of(function, *args, **kwargs) -> int:
    try:
        await function(*args, **kwargs)
    except RequestError as error:
        return error.code
    return 0


# --- batches ------------------------------------------------------------------------------------------------


async def test_one_request_at_a_time_with_all_that_is_wanted_meanwhile(autojump_clock) -> None:
    sent: list[tuple[int, list[str]]] = []
    may_answer = trio.Event()

    async def send(broker_id, items):
        sent.append((broker_id, list(items)))
        await may_answer.wait()
        return [item.upper() for item in items]

    answers: list[str] = []
    async with running(BrokerBatches(send, lambda item: item[0])) as batches, trio.open_nursery() as nursery:

        async def want(broker_id, item):
            answers.append(await batches.ask(broker_id, item))

        async def settle():
            await trio.testing.wait_all_tasks_blocked()

        for broker_id, item in ((TWO, "a"), (TWO, "b"), (THREE, "c")):
            nursery.start_soon(want, broker_id, item)
        await settle()
        for _, items in sent:
            items.sort()  # trio starts tasks in any order
        assert sorted(sent) == [(TWO, ["a", "b"]), (THREE, ["c"])]
        for item in ("d", "e1", "e2", "f"):
            nursery.start_soon(want, TWO, item)
            await settle()
        assert len(sent) == 2, "the broker has not answered yet"
        may_answer.set()
        await settle()
    assert [items for broker_id, items in sent if broker_id == TWO][1:] == [["d", "e1", "f"], ["e2"]]
    assert sorted(answers) == ["A", "B", "C", "D", "E1", "E2", "F"]


async def test_failure_reaches_all_items_of_its_request_alone(autojump_clock) -> None:
    async def send(broker_id, items):
        if broker_id == TWO:
            raise PeerUnavailableError("it is gone")
        return items

    async with running(BrokerBatches(send, lambda item: item)) as batches:
        with pytest.raises(PeerUnavailableError):
            await batches.ask(TWO, "a")
        assert await batches.ask(THREE, "a") == "a"
    with pytest.raises(PeerUnavailableError):
        await batches.ask(THREE, "a")


async def test_items_above_the_limit_go_with_the_next_request(autojump_clock, monkeypatch) -> None:
    monkeypatch.setattr(broker_batches, "ITEMS_MAX", 3)
    sent: list[list[int]] = []

    async def send(broker_id, items):
        sent.append(list(items))
        return items

    async with running(BrokerBatches(send, lambda item: item)) as batches, trio.open_nursery() as nursery:
        for item in range(7):
            nursery.start_soon(batches.ask, TWO, item)
    assert [len(items) for items in sent] == [3, 3, 1]
    assert sorted(item for items in sent for item in items) == list(range(7))


# --- markers ------------------------------------------------------------------------------------------------


class LocalWriter:
    def __init__(self) -> None:
        self.written: list[Any] = []

    async def write(self, *marker) -> None:
        self.written.append(marker)


def marking(codes):
    """An answer to WriteTxnMarkers with these codes by topic and partition, 0 for all others."""

    def answer(broker_id, request):
        response = WriteTxnMarkersResponse()
        for marker in request.markers:
            result = WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=marker.producer_id)
            for part in marker.topics:
                result.topics.append(
                    WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                        name=part.name,
                        partitions=[
                            WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=codes.get((part.name, index), 0)
                            )
                            for index in part.partition_indexes
                        ],
                    )
                )
            response.markers.append(result)
        return response

    return answer


@asynccontextmanager
async def markers_in(metadata, codes=None):
    local, peers = LocalWriter(), ScriptedPeers(marking(codes or {}))
    writer = ClusterMarkers(metadata, ME, local=local, peers=peers, timeout_ms=1000)  # type: ignore[arg-type]
    async with running(writer):
        yield writer, local, peers


async def test_markers_go_to_the_leaders_in_one_request_each(autojump_clock) -> None:
    metadata = cluster(topic("a", ME, TWO, TWO, THREE), topic("b", TWO))
    async with markers_in(metadata) as (writer, local, peers):
        other = Producer(8, 0)
        async with trio.open_nursery() as nursery:
            for index in range(4):
                nursery.start_soon(writer.write, ("a", index), PRODUCER, 5, True, 2)
            nursery.start_soon(writer.write, ("b", 0), PRODUCER, 5, True, 2)
            nursery.start_soon(writer.write, ("b", 0), other, 5, False, 2)
        assert local.written == [(("a", 0), PRODUCER, 5, True, 2)]
        markers = {
            broker_id: sorted(
                (
                    marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result,
                    marker.transaction_version,
                    sorted((part.name, sorted(part.partition_indexes)) for part in marker.topics),
                )
                for marker in request.markers
            )
            for broker_id, request in peers.asked
        }  # fmt: skip
        assert len(peers.asked) == 2
        assert markers == {
            TWO: [(7, 3, 5, True, 2, [("a", [1, 2]), ("b", [0])]), (8, 0, 5, False, 2, [("b", [0])])],
            THREE: [(7, 3, 5, True, 2, [("a", [3])])],
        }


async def test_only_the_metadata_say_that_a_partition_is_gone(autojump_clock) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    metadata = cluster(topic("a", TWO))
    async with markers_in(metadata, {("a", 0): unknown}) as (writer, _, peers):
        assert await code_of(writer.write, ("a", 0), PRODUCER, 5, True, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await code_of(writer.write, ("a", 1), PRODUCER, 5, True, 2) == unknown
        assert await code_of(writer.write, ("z", 0), PRODUCER, 5, True, 2) == unknown
        assert len(peers.asked) == 1


async def test_who_leads_is_looked_up_each_time(autojump_clock) -> None:
    metadata = cluster(topic("a", TWO))
    async with markers_in(metadata) as (writer, local, peers):
        await metadata.apply([BrokerUnregistered(TWO)])
        assert await code_of(writer.write, ("a", 0), PRODUCER, 5, True, 2) == ErrorCode.LEADER_NOT_AVAILABLE
        await metadata.apply([PartitionChanged("a", 0, PartitionInfo(THREE, (TWO, THREE), (THREE,), 1))])
        await writer.write(("a", 0), PRODUCER, 5, True, 2)
        await metadata.apply([PartitionChanged("a", 0, PartitionInfo(ME, (ME,), (ME,), 2))])
        await writer.write(("a", 0), PRODUCER, 5, True, 2)
        assert [broker_id for broker_id, _ in peers.asked] == [THREE]
        assert len(local.written) == 1


async def test_marker_missing_in_the_response_is_an_unknown_error(autojump_clock) -> None:
    async with markers_in(cluster(topic("a", TWO))) as (writer, _, peers):
        peers.answer = lambda broker_id, request: WriteTxnMarkersResponse()
        assert await code_of(writer.write, ("a", 0), PRODUCER, 5, True, 2) == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_leader_that_cannot_be_reached_is_asked_again_later(autojump_clock) -> None:
    async with markers_in(cluster(topic("a", TWO))) as (writer, _, peers):

        def fail(broker_id, request):
            raise PeerUnavailableError("it is gone")

        peers.answer = fail
        assert await code_of(writer.write, ("a", 0), PRODUCER, 5, True, 2) == ErrorCode.NETWORK_EXCEPTION


# --- verification -------------------------------------------------------------------------------------------

TRANSACTIONS = "__transaction_state"
A0, A1 = ("a", 0), ("a", 1)


class Coordinator:
    async def verify(self, *args, implicit):
        return {A0: 99}


def verifying(codes=None, error=0):
    def answer(broker_id, request):
        response = AddPartitionsToTxnResponse(error_code=error)
        for asked in request.transactions if not error else ():
            response.results_by_transaction.append(
                AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                    transactional_id=asked.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                            name=part.name,
                            results_by_partition=[
                                AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                                    partition_index=index,
                                    partition_error_code=(codes or {}).get((part.name, index), 0),
                                )
                                for index in part.partitions
                            ],
                        )
                        for part in asked.topics
                    ],
                )
            )
        return response

    return answer


@asynccontextmanager
async def verifier_in(metadata, answer, version=5):
    peers = ScriptedPeers(answer, version)
    local = Coordinator()
    verifier = ClusterVerifier(metadata, ME, local=local, peers=peers, timeout_ms=1000)  # type: ignore[arg-type]
    async with running(verifier):
        yield verifier, peers


async def test_transactions_are_verified_by_their_coordinator_together(autojump_clock) -> None:
    leaders = (ME, TWO, TWO)
    ids = {leader: [] for leader in leaders}
    for number in range(30):
        ids[leaders[partition_for(f"id{number}", 3)]].append(f"id{number}")
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    async with verifier_in(cluster(topic(TRANSACTIONS, *leaders)), verifying({A1: abortable})) as (
        verifier,
        peers,
    ):
        results: dict[str, Any] = {}

        async def want(transactional_id, implicit):
            results[transactional_id] = await verifier.verify(
                transactional_id, PRODUCER, frozenset({A0, A1}), implicit=implicit
            )

        async with trio.open_nursery() as nursery:
            for number, transactional_id in enumerate([*ids[ME], *ids[TWO]]):
                nursery.start_soon(want, transactional_id, number % 2 == 0)
        assert {transactional_id for transactional_id, codes in results.items() if codes == {A0: 99}} == set(
            ids[ME]
        )
        assert {name for name, codes in results.items() if codes == {A1: abortable}} == set(ids[TWO])
        ((broker_id, request),) = peers.asked
        assert broker_id == TWO
        verified = {name for number, name in enumerate([*ids[ME], *ids[TWO]]) if number % 2}
        assert {txn.transactional_id: txn.verify_only for txn in request.transactions} == {
            name: name in verified for name in ids[TWO]
        }
        assert {(txn.producer_id, txn.producer_epoch) for txn in request.transactions} == {PRODUCER}
        assert [[(part.name, part.partitions) for part in txn.topics] for txn in request.transactions] == [
            [("a", [0, 1])]
        ] * len(ids[TWO])


async def test_transaction_missing_in_the_response_is_retriable(autojump_clock) -> None:
    def answer(broker_id, request):
        del request.transactions[0]
        return verifying()(broker_id, request)

    async with verifier_in(cluster(topic(TRANSACTIONS, TWO)), answer) as (verifier, _):
        codes = await verifier.verify("id", PRODUCER, frozenset({A0, A1}), implicit=False)
        assert codes == dict.fromkeys((A0, A1), ErrorCode.NETWORK_EXCEPTION)


async def test_request_groups_partitions_by_topic(autojump_clock) -> None:
    refused = {("b", 2): ErrorCode.TRANSACTION_ABORTABLE}
    async with verifier_in(cluster(topic(TRANSACTIONS, TWO)), verifying(refused)) as (verifier, peers):
        partitions = frozenset({A0, ("b", 2), ("b", 0)})
        assert await verifier.verify("id", PRODUCER, partitions, implicit=True) == refused
        [(_, request)] = peers.asked
        assert [(part.name, part.partitions) for part in request.transactions[0].topics] == [
            ("a", [0]), ("b", [0, 2]),
        ]  # fmt: skip


async def test_same_transaction_twice_takes_two_requests(autojump_clock) -> None:
    async with verifier_in(cluster(topic(TRANSACTIONS, TWO)), verifying()) as (verifier, peers):
        async with trio.open_nursery() as nursery:
            for partition in (A0, A1):
                nursery.start_soon(
                    lambda partition=partition: verifier.verify(
                        "id", PRODUCER, frozenset({partition}), implicit=False
                    )
                )
        assert [len(request.transactions) for _, request in peers.asked] == [1, 1]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_an_error_of_the_whole_answer_is_that_of_each_partition(error, told, autojump_clock) -> None:
    async with verifier_in(cluster(topic(TRANSACTIONS, TWO)), verifying(error=error)) as (verifier, _):
        assert await verifier.verify("id", PRODUCER, frozenset({A0}), implicit=False) == {A0: told}


@pytest.mark.parametrize(("leaders", "version", "implicit", "expected"), [
    ((-1,), 5, False, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ((9,), 5, False, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ((), 5, False, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ((TWO,), 3, True, ErrorCode.NETWORK_EXCEPTION),
    ((TWO,), 3, False, 0),
    ((TWO,), 4, True, 0),
])  # fmt: skip
async def test_a_coordinator_that_cannot_be_asked(
    leaders, version, implicit, expected, autojump_clock
) -> None:
    topics = [topic(TRANSACTIONS, *leaders)] if leaders else []
    async with verifier_in(cluster(*topics), verifying(), version) as (verifier, _):
        assert await code_of(verifier.verify, "id", PRODUCER, frozenset({A0}), implicit=implicit) == expected


# --- producer ids -------------------------------------------------------------------------------------------


@asynccontextmanager
async def ids_from(*blocks, epoch=10):
    answers = list(blocks)

    def answer(broker_id, request):
        assert (request.broker_id, request.broker_epoch) == (ME, epoch)
        block = answers.pop(0)
        if isinstance(block, Exception):
            raise block
        first, count, code = block
        return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=count, error_code=code)

    async def note_block():
        return 5_000, 10

    peers = ScriptedPeers(answer)
    async with running(ControllerProducerIds(ME, lambda: epoch, peers, note_block)) as ids:  # type: ignore[arg-type]
        yield ids, peers


async def test_the_next_block_is_asked_for_before_it_is_needed(autojump_clock) -> None:
    async with ids_from((100, 10, 0), (500, 10, 0), (900, 10, 0)) as (ids, peers):
        got = [await ids.next() for _ in range(9)]
        await trio.testing.wait_all_tasks_blocked()
        assert got == list(range(100, 109))
        assert len(peers.asked) == 1
        got.append(await ids.next())
        await trio.testing.wait_all_tasks_blocked()
        assert len(peers.asked) == 2, "asked for at nine tenths"
        peers.may_answer = trio.Event()
        got += [await ids.next() for _ in range(10)]
        assert got == [*range(100, 110), *range(500, 510)]


async def test_without_a_block_the_client_is_asked_to_come_again(autojump_clock) -> None:
    stale = (0, 0, ErrorCode.STALE_BROKER_EPOCH)
    gone = PeerUnavailableError("it is gone")
    async with ids_from(stale, gone, (100, 0, 0), (100, 10, 0), (90, 10, 0), (200, 10, 0)) as (ids, peers):
        peers.may_answer = trio.Event()
        assert await code_of(ids.next) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        peers.may_answer.set()
        got = [await ids.next() for _ in range(20)]
        assert got == [*range(100, 110), *range(200, 210)], "a block that goes back is refused"


async def test_a_controller_that_is_too_old_is_done_without(autojump_clock) -> None:
    async with ids_from(PeerUnavailableError("version", lacks_version=True)) as (ids, _):
        assert await ids.next() == 5_000
