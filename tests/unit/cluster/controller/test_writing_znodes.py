"""Znodes as a controller reads and writes them: what is there, what is not, what others change, and what cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.cluster.controller import znodes as written_by
from barnabas.cluster.controller.state import Assignment, PartitionState
from barnabas.cluster.controller.steps import Written
from barnabas.cluster.controller.znodes import ControllerMovedError, ControllerZnodes
from barnabas.cluster.zookeeper import resource_znodes, znodes
from barnabas.cluster.zookeeper.session import Create
from barnabas.serving.loop_budget import LoopBudget
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper

EPOCH_VERSION = 0


class Shell:
    """A ZooKeeper with the znode of the controller's epoch and the parents, and a controller of that epoch."""

    def __init__(self) -> None:
        self.zookeeper = SimulatedZooKeeper()
        self.session = self.zookeeper.session()
        self.admin = self.zookeeper.session()
        self.znodes = ControllerZnodes(self.session, LoopBudget(), EPOCH_VERSION)

    async def make(self, path: str, data: bytes = b"") -> None:
        await self.admin.create(path, data, parents=True)

    def below(self, path: str) -> set[str]:
        return {znode for znode in self.zookeeper.dump() if znode.startswith(path)}


async def shell() -> Shell:
    prepared = Shell()
    await prepared.make(znodes.CONTROLLER_EPOCH, b"1")
    for parent in (znodes.TOPICS, znodes.DELETE_TOPICS, znodes.BROKER_IDS, "/config/topics"):
        await prepared.make(parent)
    return prepared


@pytest.fixture(params=[1, 2, 100])
def per_write(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """So many states are written, and so many znodes read, by one request."""
    monkeypatch.setattr(written_by, "STATES_PER_WRITE", request.param)
    monkeypatch.setattr(written_by, "READS_PER_BATCH", request.param)
    return int(request.param)


def ignored(*_: object) -> None:
    """Hears of a change."""


# --- states -------------------------------------------------------------------------------------------------------


async def test_states_are_written_unless_changed_or_gone(per_write: int) -> None:
    it = await shell()
    partitions = [("t", index) for index in range(5)]
    old = {key: PartitionState(1, (1, 2), 3, 1) for key in partitions}
    await it.make(znodes.partitions_path("t"))
    assert await it.znodes.create_states(old) == Written(done=old)
    await it.admin.set(znodes.state_path("t", 1), await _data(it, "t", 1))
    await it.admin.set(znodes.state_path("t", 4), await _data(it, "t", 4))
    await it.admin.delete(znodes.state_path("t", 2))
    new = {key: PartitionState(2, (2,), 4, 1, version=0) for key in partitions}
    written = await it.znodes.write_states(new)
    assert sorted(written.done) == [("t", 0), ("t", 3)]
    assert sorted(written.conflicts) == [("t", 1), ("t", 4)]
    assert written.failed == {("t", 2): "the partition is gone"}
    states = await it.znodes.states([*partitions, ("u", 0)])
    assert states.keys() == {("t", 0), ("t", 1), ("t", 3), ("t", 4)}
    for key, state in written.done.items():
        assert (state.version, state.leader, state.isr) == (1, 2, (2,))
        assert states[key] == state  # with the zxid of the write
    assert {states["t", index].leader for index in (1, 4)} == {1}


async def _data(it: Shell, topic: str, index: int) -> bytes:
    return it.zookeeper.dump()[znodes.state_path(topic, index)]


async def test_states_are_created_with_parents_unless_there_or_gone(per_write: int) -> None:
    it = await shell()
    await it.make(znodes.topic_path("t"))
    await it.make(znodes.topic_path("u"))
    await it.make(znodes.partition_path("t", 1))
    there = PartitionState(3, (3,), 9, 1)
    await it.make(znodes.partition_path("t", 2))
    await it.znodes.create_states({("t", 2): there})
    asked = {
        (topic, index): PartitionState(1, (1, 2), 0, 1)
        for topic in ("gone", "t", "u")
        for index in (range(4) if topic == "t" else range(2))
    }
    written = await it.znodes.create_states(asked)
    assert sorted(written.done) == [("t", 0), ("t", 1), ("t", 3), ("u", 0), ("u", 1)]
    assert written.conflicts == [("t", 2)]
    assert written.failed == {("gone", 0): "the topic is gone", ("gone", 1): "the topic is gone"}
    states = await it.znodes.states(list(asked))
    assert {key: state.leader for key, state in states.items()} == {
        key: 3 if key == ("t", 2) else 1 for key in (*written.done, ("t", 2))
    }
    assert all(state.version == 0 for state in states.values())


async def test_a_state_that_cannot_be_read_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    it = await shell()
    await it.make(znodes.state_path("t", 0), b"{")
    await it.make(znodes.state_path("t", 1), znodes.encode_state(znodes.PartitionState(1, 2, (1,), 3)))
    states = await it.znodes.states([("t", 0), ("t", 1)])
    assert {key: (state.leader, state.leader_epoch) for key, state in states.items()} == {("t", 1): (1, 2)}
    assert "is left out" in caplog.text


# --- brokers and topics -------------------------------------------------------------------------------------------


async def test_only_brokers_that_can_be_read_are_registered() -> None:
    it = await shell()
    heard: list[object] = []
    endpoint = znodes.Endpoint("INSIDE", "h", 93, "SASL_SSL")
    data = znodes.encode_broker(znodes.BrokerRegistration((endpoint,), "r"))
    await it.make(znodes.broker_path(1), data)
    await it.make(znodes.broker_path(2), b"{")
    await it.make(f"{znodes.BROKER_IDS}/nobody", data)
    brokers = await it.znodes.brokers(lambda *args: heard.append(args))
    assert brokers.keys() == {1}
    epoch = (await it.admin.get(znodes.broker_path(1)))[1].created
    assert (brokers[1].epoch, brokers[1].rack) == (epoch, "r")
    [at] = brokers[1].endpoints
    assert (at.listener, at.host, at.port, at.security_protocol) == ("INSIDE", "h", 93, 3)


async def test_topics_are_read_with_moves_and_assigned_partitions() -> None:
    it = await shell()
    parts = {
        0: znodes.ReplicaAssignment((1, 2, 3), (3,), (1,)), 1: znodes.ReplicaAssignment(()),
        2: znodes.ReplicaAssignment((2,)),
    }  # fmt: skip
    await it.make(znodes.topic_path("t"), znodes.encode_topic(znodes.TopicAssignment(parts, b"i" * 16)))
    await it.make(znodes.topic_path("bad"), b"[]")
    await it.make(znodes.topic_path("old"), znodes.encode_topic(znodes.TopicAssignment({}, None), 1))
    watched: list[str] = []

    def watch(path: str) -> Callable[..., None]:
        watched.append(path)
        return ignored

    topics = await it.znodes.topics(["t", "bad", "gone", "old"], watch)
    assert topics == {
        "t": (b"i" * 16, {0: Assignment((1, 2, 3), (3,), (1,)), 2: Assignment((2,))}),
        "old": (None, {}),
    }
    assert sorted(watched) == [znodes.topic_path(name) for name in ("bad", "gone", "old", "t")]


async def test_a_topic_gets_an_id_once() -> None:
    it = await shell()
    await it.make(znodes.topic_path("t"), znodes.encode_topic(znodes.TopicAssignment({}, None)))
    assert await it.znodes.give_topic_id("t", b"i" * 16) == b"i" * 16
    assert await it.znodes.give_topic_id("t", b"j" * 16) == b"i" * 16
    assert await it.znodes.give_topic_id("gone", b"j" * 16) is None
    assert znodes.decode_topic("t", it.zookeeper.dump()[znodes.topic_path("t")]).topic_id == b"i" * 16


class Meddling:
    """A session beside which another one does something before its next transactions."""

    def __init__(self, session: Any, acts: list[Callable[[], Any]]) -> None:
        self._session = session
        self.acts = acts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def multi(self, operations: Any) -> Any:
        if self.acts:
            await self.acts.pop(0)()
        return await self._session.multi(operations)


async def test_concurrent_writes_to_a_topic_are_kept() -> None:
    it = await shell()
    path = znodes.topic_path("t")
    await it.make(path, znodes.encode_topic(znodes.TopicAssignment({}, None)))
    other = znodes.TopicAssignment({4: znodes.ReplicaAssignment((4,))}, None)
    meddling = Meddling(it.session, [lambda: it.admin.set(path, znodes.encode_topic(other))])
    shared = ControllerZnodes(meddling, LoopBudget(), EPOCH_VERSION)  # type: ignore[arg-type]
    assert await shared.give_topic_id("t", b"i" * 16) == b"i" * 16
    assignment = znodes.decode_topic("t", it.zookeeper.dump()[path])
    assert assignment == znodes.TopicAssignment(other.partitions, b"i" * 16)
    meddling.acts.append(lambda: it.admin.delete(path))
    assert not await shared.write_topic("t", None, {})


# --- deleting -----------------------------------------------------------------------------------------------------


async def test_a_topic_goes_with_all_that_is_its_own_and_others_stay(per_write: int) -> None:
    it = await shell()
    for topic in ("t", "t2"):
        for index in range(3):
            await it.make(znodes.state_path(topic, index), b"x")
        await it.make(resource_znodes.config_path("topics", topic))
        await it.make(znodes.delete_topic_path(topic))
    await it.make(f"{znodes.partition_path('t', 7)}/strange/below")
    kept = {znode for znode in it.zookeeper.dump() if "/t/" not in f"{znode}/"}
    await it.znodes.delete_topic("t")
    assert it.below("/") == kept
    await it.znodes.delete_topic("t")
    assert it.below("/") == kept


async def test_what_somebody_else_removes_meanwhile_is_no_failure() -> None:
    it = await shell()
    paths = [znodes.delete_topic_path(topic) for topic in ("t", "u")]
    for path in paths:
        await it.make(path)
    meddling = Meddling(it.session, [lambda: it.admin.delete(paths[0])])
    await ControllerZnodes(meddling, LoopBudget(), EPOCH_VERSION).remove(paths)  # type: ignore[arg-type]
    assert it.below(znodes.DELETE_TOPICS) == {znodes.DELETE_TOPICS}


# --- writes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how", ["a newer controller", "no epoch at all", "the session is over", "it expires"]
)
async def test_a_controller_that_is_one_no_more_writes_nothing(how: str, autojump_clock: Any) -> None:
    it = await shell()
    match how:
        case "a newer controller":
            await it.admin.set(znodes.CONTROLLER_EPOCH, b"2")
        case "no epoch at all":
            await it.admin.delete(znodes.CONTROLLER_EPOCH)
        case "the session is over":
            it.znodes = ControllerZnodes(it.session, LoopBudget(), EPOCH_VERSION)
            it.zookeeper.expire(it.session)
            await it.session.wait_connected()
        case _:
            it.zookeeper.end(it.session.session_id)
            it.session.disconnect()
            it.session.connect_soon()
    with pytest.raises(ControllerMovedError):
        await it.znodes.write([Create("/a", b"")])
    assert "/a" not in it.zookeeper.dump()


# --- orders and notifications -------------------------------------------------------------------------------------


async def _heard_of(it: Shell, path: str, heard: list[object]) -> None:
    """The watch waits for a znode that is not there, and for the next change of one that is."""
    assert not heard
    await it.make(path, b"{")
    await it.admin.exists(path)
    assert heard


async def test_orders_are_read_watched_and_removed(
    autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    it = await shell()
    for path, read, order, encoded in (
        (
            znodes.REASSIGN_PARTITIONS, it.znodes.reassignments, {("t", 1): (2, 3)},
            znodes.encode_reassignment({("t", 1): (2, 3)}),
        ),
        (
            znodes.PREFERRED_REPLICA_ELECTION, it.znodes.preferred_election, [("t", 1), ("u", 0)],
            b'{"version":1,"partitions":[{"topic":"t","partition":1},{"topic":"u","partition":0}]}',
        ),
    ):  # fmt: skip
        heard: list[object] = []
        watch = lambda *args, heard=heard: heard.append(args)  # noqa: E731
        assert await read(watch) is None
        await _heard_of(it, path, heard)
        heard.clear()
        assert await read(watch) == type(order)()
        assert "is removed, it cannot be read" in caplog.text
        caplog.clear()
        await it.admin.set(path, encoded)
        assert await read(watch) == order
        assert heard
    await it.znodes.write_reassignments({("t", 1): (3,)})
    assert await it.znodes.reassignments() == {("t", 1): (3,)}
    await it.znodes.write_reassignments({})
    assert await it.znodes.reassignments() is None
    await it.znodes.write_reassignments({("t", 1): (3,)})
    assert await it.znodes.reassignments() is None, "somebody else has removed it"


async def test_settings_of_topics_are_read_in_their_order(caplog: pytest.LogCaptureFixture) -> None:
    it = await shell()
    await it.make("/config/topics/t", resource_znodes.encode_config({"a": "1"}))
    await it.make("/config/topics/bad", b"{")
    await it.make("/config/topics/u", resource_znodes.encode_config({"b": "2"}))
    settings = await it.znodes.topic_settings(["u", "gone", "bad", "t"])
    assert settings == [{"b": "2"}, {}, {}, {"a": "1"}]
    assert "cannot be read" in caplog.text
