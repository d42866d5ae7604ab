"""One controller on its znodes: what it reads again, brokers connected, and which answers of brokers are dealt with."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from barnabas.cluster.controller.active_controller import ActiveController
from barnabas.cluster.controller.core import ControllerSettings
from barnabas.cluster.controller.election import Elected
from barnabas.cluster.controller.state import Broker
from barnabas.cluster.controller.steps import Outgoing
from barnabas.cluster.zookeeper import znodes
from barnabas.serving.loop_budget import LoopBudget
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.wire.generated.stop_replica import StopReplicaRequest
from barnabas.wire.generated.update_metadata import UpdateMetadataRequest
from tests.support.controller_cluster import PARENTS, Entropy

ID, OTHER = b"i" * 16, b"o" * 16


class Channels:
    """Notes what is opened, closed and sent."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.sent: list[Outgoing] = []

    def open(self, broker: Broker) -> None:
        self.calls.append(("open", broker.id))

    def close(self, broker_id: int) -> None:
        self.calls.append(("close", broker_id))

    def send(self, request: Outgoing, answered: Callable[[Outgoing, object], None]) -> None:
        self.sent.append(request)
        self.answered = answered


class Shell:
    """A ZooKeeper with two brokers, and a controller that was elected there and is told of events by hand."""

    def __init__(self, **settings: Any) -> None:
        self.zookeeper = SimulatedZooKeeper()
        self.session = self.zookeeper.session()
        self.admin = self.zookeeper.session()
        self.channels = Channels()
        self.events: list[str] = []
        self.acts: list[Callable[[], Awaitable[None]]] = []
        self.told_ids: dict[str, bytes] = {}
        self.active = ActiveController(
            ControllerSettings(broker_id=1, **settings), Elected(1, 4, 0, is_here=True), self.session, self.channels,
            budget=LoopBudget(), entropy=Entropy(Random(0)), allows_unclean=lambda own: own.get("u") == "yes",
            known_topic_id=self.told_ids.get, put=self.put,
        )  # type: ignore[arg-type] # fmt: skip

    def put(self, name: str, act: Callable[[], Awaitable[None]], key: str = "") -> None:
        assert key in ("", name), "what is about the same thing waits once"
        self.events.append(name)
        self.acts.append(act)

    @property
    def state(self) -> Any:
        return self.active.core.state

    async def topic(self, name: str, topic_id: bytes | None, *replicas: tuple[int, ...]) -> None:
        """Write a topic's znode, whatever is there."""
        parts = {index: znodes.ReplicaAssignment(ids) for index, ids in enumerate(replicas)}
        data = znodes.encode_topic(znodes.TopicAssignment(parts, topic_id))
        path = znodes.topic_path(name)
        if path in self.zookeeper.dump():
            await self.admin.set(path, data)
        else:
            await self.admin.create(path, data)

    async def register(self, broker: int, port: int = 9) -> None:
        """Register a broker, once more if it is."""
        path = znodes.broker_path(broker)
        if path in self.zookeeper.dump():
            await self.admin.delete(path)
        endpoint = znodes.Endpoint("PLAINTEXT", f"h{broker}", port)
        await self.admin.create(path, znodes.encode_broker(znodes.BrokerRegistration((endpoint,))))

    def stored_id(self, topic: str) -> bytes | None:
        return znodes.decode_topic(topic, self.zookeeper.dump()[znodes.topic_path(topic)]).topic_id

    def told(self, kind: type) -> list[int]:
        return [out.broker_id for out in self.channels.sent if isinstance(out.request, kind)]

    async def dealt_with(self) -> None:
        """Deal with events until there are none."""
        await self.admin.exists(znodes.TOPICS)
        while self.acts:
            await self.acts.pop(0)()
            await self.admin.exists(znodes.TOPICS)
        self.clear()

    def clear(self) -> None:
        self.channels.calls.clear()
        self.channels.sent.clear()
        self.events.clear()
        self.acts.clear()


async def started(*, topics: bool = True, **settings: Any) -> Shell:
    """A controller that has read a topic of two partitions, both led by broker 1."""
    it = Shell(**settings)
    for parent in PARENTS:
        await it.admin.create(parent, parents=True)
    await it.admin.create(znodes.CONTROLLER_EPOCH, b"4")
    for broker in (1, 2):
        await it.register(broker)
    if topics:
        await it.topic("t", ID, (1, 2), (1, 2))
    await it.active.start()
    return it


async def heard(it: Shell) -> list[str]:
    """The events that watches have added."""
    await it.admin.exists(znodes.TOPICS)
    events, it.events[:] = list(it.events), []
    it.acts.clear()
    return events


# --- the beginning ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "event"),
    [
        (lambda it: it.register(3), "brokers"),
        (lambda it: it.topic("u", ID, (1,)), "topics"),
        (lambda it: it.topic("t", ID, (1, 2), (1, 2), (1,)), "topic t"),
        (lambda it: it.admin.create(znodes.delete_topic_path("t")), "deletions"),
        (lambda it: it.admin.create(znodes.REASSIGN_PARTITIONS, b"{}"), "reassignments"),
        (lambda it: it.admin.create(znodes.PREFERRED_REPLICA_ELECTION, b"{}"), "elections"),
        (lambda it: it.admin.create(f"{znodes.ISR_CHANGES}/isr_change_1"), "ISR notifications"),
        (lambda it: it.admin.create(f"{znodes.LOG_DIR_EVENTS}/log_dir_event_1"), "log dir notifications"),
    ],
)
async def test_each_znode_change_is_one_event_every_time(
    change: Callable[[Shell], Awaitable[object]], event: str, autojump_clock: Any
) -> None:
    it = await started()
    it.clear()
    await change(it)
    await it.admin.exists(znodes.TOPICS)
    assert it.events == [event]
    await it.dealt_with()
    for path in (znodes.REASSIGN_PARTITIONS, znodes.PREFERRED_REPLICA_ELECTION):
        if path in it.zookeeper.dump():
            await it.admin.delete(path)
    await it.dealt_with()
    if event == "topics":
        await it.topic("v", OTHER, (1,))
    elif event == "deletions":
        await it.admin.create(znodes.delete_topic_path("later"))
    elif event == "brokers":
        await it.register(4)
    elif event == "topic t":
        await it.topic("t", ID, (1, 2), (1, 2), (1,), (2,))
    elif "notifications" in event:
        parent = znodes.ISR_CHANGES if "ISR" in event else znodes.LOG_DIR_EVENTS
        assert not await it.admin.children(parent), "what was read is removed"
        await it.admin.create(f"{parent}/isr_change_2")
    else:
        await change(it)
    assert event in await heard(it)


# --- brokers ------------------------------------------------------------------------------------------------------


async def test_everybody_hears_that_a_broker_listens_elsewhere(autojump_clock: Any) -> None:
    it = await started()
    it.clear()
    path = znodes.broker_path(2)
    data = it.zookeeper.dump()[path]
    await it.admin.set(path, data.replace(b"h2:9", b"h2:10"))
    await it.active.brokers_changed()
    assert it.channels.calls == []
    assert it.state.brokers[2].endpoints[0].port == 10
    assert it.told(UpdateMetadataRequest) == [1, 2]


# --- topics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "has_states", "level", "kept"),
    [
        (ID, True, None, ID),
        (ID, False, None, ID),
        (OTHER, True, logging.ERROR, ID),
        (OTHER, False, logging.WARNING, OTHER),
        (None, True, logging.WARNING, ID),
        (None, False, None, None),
    ],
)
async def test_a_topic_keeps_its_id_while_its_partitions_are_there(
    stored: bytes | None, has_states: bool, level: int | None, kept: bytes | None,
    autojump_clock: Any, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    it = await started()
    await it.topic("t", stored, (1, 2), (1, 2), (2, 1))
    if not has_states:
        for index in range(2):
            await it.admin.delete(znodes.state_path("t", index))
    caplog.clear()
    caplog.set_level(logging.WARNING)
    await it.active.partitions_changed("t")
    assert [record.levelno for record in caplog.records] == ([level] if level else [])
    assert it.stored_id("t") == kept
    assert it.state.topic_ids == {"t": OTHER if kept == OTHER else ID}
    assert it.state.states["t", 2].leader == 2


async def test_an_unknown_topic_or_one_that_has_just_gone_is_not_read(autojump_clock: Any) -> None:
    it = await started()
    it.clear()
    await it.active.partitions_changed("u")
    await it.admin.delete(znodes.state_path("t", 0))
    for path in ("0", "1"):
        for state in (znodes.state_path("t", int(path)), znodes.partition_path("t", int(path))):
            if state in it.zookeeper.dump():
                await it.admin.delete(state)
    await it.admin.delete(znodes.partitions_path("t"))
    await it.admin.delete(znodes.topic_path("t"))
    await it.active.partitions_changed("t")
    assert "t" in it.state.assignments
    await it.active.topics_changed()
    assert "t" not in it.state.assignments
    assert it.channels.sent == []


async def test_a_topic_made_just_before_it_is_to_be_deleted_is_deleted(autojump_clock: Any) -> None:
    it = await started()
    await it.topic("new", OTHER, (1,))
    for topic in ("new", "unknown"):
        await it.admin.create(znodes.delete_topic_path(topic))
    it.clear()
    await it.active.deletions_wanted()
    assert it.state.deletions.keys() == {"new"}
    assert await it.admin.children(znodes.DELETE_TOPICS) == ["new"]
    assert it.told(StopReplicaRequest) == [1]
    it.clear()
    await it.active.deletions_wanted()
    assert it.channels.sent == []


# --- answers of brokers -------------------------------------------------------------------------------------------


def leads(epoch: int, topic_id: bytes = ID) -> Outgoing:
    topic = LeaderAndIsrRequest.LeaderAndIsrTopicState("t", topic_id, [])
    return Outgoing(2, epoch, 7, LeaderAndIsrRequest(topic_states=[topic]))


def led(code: int, *, by_id: bool, whole: int = 0) -> LeaderAndIsrResponse:
    error = LeaderAndIsrResponse.LeaderAndIsrPartitionError(
        topic_name="" if by_id else "t", partition_index=1, error_code=code
    )
    topics = [LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=ID, partition_errors=[error])]
    if by_id:
        return LeaderAndIsrResponse(error_code=whole, topics=topics)
    return LeaderAndIsrResponse(error_code=whole, partition_errors=[error])


@pytest.mark.parametrize(
    ("told", "epoch_off", "is_named"), [(bytes(16), 0, True), (ID, 0, False), (bytes(16), -1, False)]
)
async def test_a_topic_that_no_broker_knows_an_id_of_gets_one(
    told: bytes, epoch_off: int, is_named: bool, autojump_clock: Any
) -> None:
    it = await started(topics=False)
    await it.topic("t", None, (2,))
    data = znodes.encode_state(znodes.PartitionState(2, 3, (2,), 2))
    await it.admin.create(znodes.state_path("t", 0), data, parents=True)
    await it.active.topics_changed()
    it.clear()
    it.channels.answered(leads(it.state.brokers[2].epoch + epoch_off, told), led(0, by_id=False))
    assert it.events == ["topics without an id"]
    await it.acts[0]()
    assert (it.stored_id("t") is not None) is is_named
    assert it.state.topic_ids == ({"t": it.stored_id("t")} if is_named else {})
    assert set(it.told(LeaderAndIsrRequest)) == ({2} if is_named else set())
