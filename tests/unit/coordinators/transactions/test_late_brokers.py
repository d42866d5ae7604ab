"""Requests to other brokers beside something that is late there: markers, and checks of transactions."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from barnabas.cluster.metadata.changes import TopicCreated
from barnabas.cluster.metadata.image import PartitionInfo, TopicInfo
from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.coordinators.transactions.cluster_markers import ClusterMarkers
from barnabas.coordinators.transactions.cluster_verification import PATIENCE_SECONDS
from barnabas.wire.generated.errors import ErrorCode
from tests.support.peers import ME, THREE, TWO, ScriptedPeers, cluster, topic

from .test_cluster_ports import (
    A0,
    PRODUCER,
    TRANSACTIONS,
    LocalWriter,
    code_of,
    marking,
    running,
    verifier_in,
    verifying,
)

LATE, FINE = ("a", 0), ("a", 1)


class ChannelPeers(ScriptedPeers):
    """Notes the channel of each request; what goes to a held channel is not answered."""

    def __init__(self, answer) -> None:
        super().__init__(answer)
        self.channels: list[str] = []
        self.held: set[str] = set()

    async def ask(self, broker_id, request, *, channel="", **options):
        self.channels.append(channel)
        if channel in self.held:
            await trio.sleep_forever()
        return await super().ask(broker_id, request)


def times_out(broker_id, request):
    raise PeerUnavailableError("no answer in time")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (marking({LATE: ErrorCode.REQUEST_TIMED_OUT}), ErrorCode.REQUEST_TIMED_OUT),
        (times_out, ErrorCode.NETWORK_EXCEPTION),
    ],
    ids=["replicas", "leader"],
)
async def test_marker_of_a_late_partition_holds_up_no_other(autojump_clock, answer, code):
    peers = ChannelPeers(answer)
    metadata = cluster(topic("a", TWO, TWO))
    writer = ClusterMarkers(metadata, ME, local=LocalWriter(), peers=peers, timeout_ms=1000)  # type: ignore[arg-type]
    async with running(writer), trio.open_nursery() as nursery:
        assert await code_of(writer.write, LATE, PRODUCER, 5, True, 2) == code
        [first] = peers.channels
        peers.answer = marking({})
        peers.held = {channel for channel in ("late markers",) if channel != first}
        nursery.start_soon(code_of, writer.write, LATE, PRODUCER, 5, True, 2)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(1):
            await writer.write(FINE, PRODUCER, 5, True, 2)
        assert len(set(peers.channels)) == 2, "late ones have a connection of their own"
        nursery.cancel_scope.cancel()


async def test_partition_that_is_late_no_more_goes_with_the_others(autojump_clock):
    peers = ChannelPeers(marking({LATE: ErrorCode.REQUEST_TIMED_OUT}))
    metadata = cluster(topic("a", TWO, TWO))
    writer = ClusterMarkers(metadata, ME, local=LocalWriter(), peers=peers, timeout_ms=1000)  # type: ignore[arg-type]
    async with running(writer):
        await code_of(writer.write, LATE, PRODUCER, 5, True, 2)
        peers.answer = marking({})
        await writer.write(LATE, PRODUCER, 5, True, 2)
        await writer.write(LATE, PRODUCER, 5, True, 2)
        first, late, again = peers.channels
        assert first == again != late


@pytest.mark.parametrize(
    ("leader", "replicas", "is_at_hand"),
    [(ME, (ME,), True), (TWO, (TWO,), False), (ME, (ME, THREE), False), (TWO, (TWO, ME), False)],
    ids=str,
)
async def test_marker_is_at_hand_where_this_broker_has_the_one_replica(leader, replicas, is_at_hand):
    partition = PartitionInfo(leader, replicas, replicas)
    metadata = cluster(TopicCreated(TopicInfo("a", bytes(16), (partition,))))
    peers = ChannelPeers(None)
    writer = ClusterMarkers(metadata, ME, local=LocalWriter(), peers=peers, timeout_ms=1000)  # type: ignore[arg-type]
    assert writer.is_at_hand(("a", 0)) is is_at_hand
    assert not writer.is_at_hand(("nowhere", 0))


# --- checks of transactions ---------------------------------------------------------------------------------


def pending_until(seconds: float):
    """An answer of CONCURRENT_TRANSACTIONS until that time, and then of no error."""

    def answer(broker_id, request):
        pending = {A0: ErrorCode.CONCURRENT_TRANSACTIONS} if trio.current_time() < seconds else {}
        return verifying(pending)(broker_id, request)

    return answer


@pytest.mark.parametrize("implicit", [True, False])
async def test_check_beside_a_pending_end_is_asked_again(autojump_clock, implicit):
    began = trio.current_time()
    async with verifier_in(cluster(topic(TRANSACTIONS, TWO)), pending_until(began + 0.05)) as (
        verifier,
        peers,
    ):
        assert await verifier.verify("id", PRODUCER, frozenset({A0}), implicit=implicit) == {}
        assert trio.current_time() < began + 0.1, "soon after the end"
        assert 2 < len(peers.asked) < 8, "less and less often"


async def test_check_beside_a_pending_end_is_given_up(autojump_clock):
    began = trio.current_time()
    async with verifier_in(cluster(topic(TRANSACTIONS, TWO)), pending_until(began + 60)) as (verifier, _):
        codes = await verifier.verify("id", PRODUCER, frozenset({A0}), implicit=True)
        assert codes == {A0: ErrorCode.CONCURRENT_TRANSACTIONS}
        assert trio.current_time() <= began + PATIENCE_SECONDS
