"""Every metadata store keeps these promises, whichever it is; a second one is added to STORES."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import trio
import trio.testing

from barnabas.cluster.metadata.access_changes import ClientQuotaChanged
from barnabas.cluster.metadata.changes import ProducerIdsAllocated, TopicCreated, TopicDeleted
from barnabas.cluster.metadata.image import Delta, PartitionInfo, TopicInfo
from barnabas.cluster.metadata.store import MetadataStore
from barnabas.cluster.zookeeper.store import ZooKeeperStore
from barnabas.cluster.zookeeper.znodes import BrokerRegistration, Endpoint
from barnabas.environment.real import OsThreads
from barnabas.errors import RequestError, StorageError
from barnabas.serving.quotas.entities import QuotaEntity
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper
from barnabas.wire.generated.errors import ErrorCode
from tests.support.own_stores import SEGMENT, new_disk, opened
from tests.support.standin_controller import StandInController


@dataclass
class Place:
    """A place where a kind of store keeps its state, with a way to open a store of that kind there."""

    open: Callable
    fail: Callable[[bool], None]
    syncs: Callable[[], int]


def alone() -> Place:
    disk = new_disk()
    syncs = 0
    is_failing = False

    def fault(operation, path):
        nonlocal syncs
        syncs += operation == "sync" and path == SEGMENT
        return OSError(5, "broken") if is_failing and operation == "write" else None

    disk.fault = fault

    def fail(value):
        nonlocal is_failing
        is_failing = value

    return Place(lambda: opened(disk, threads=OsThreads()), fail, lambda: syncs)


def on_zookeeper() -> Place:
    server = SimulatedZooKeeper()
    sessions = []

    def fail(value):
        server.refuses_writes = value

    async def open_store():
        session = server.session()
        sessions.append(session)
        store = ZooKeeperStore(session, 1, lambda: 0)
        await store.open("c")
        trio.lowlevel.spawn_system_task(store.run)
        controller = StandInController(server.session(), store)
        trio.lowlevel.spawn_system_task(controller.run)
        await store.register(BrokerRegistration((Endpoint("PLAINTEXT", "h", 9092),)))
        await controller.has_sent_all()
        return store

    return Place(open_store, fail, lambda: sum(session.writes for session in sessions))


STORES = {"alone": alone, "zookeeper": on_zookeeper}


@pytest.fixture(params=STORES.values(), ids=STORES)
async def place(request) -> Place:
    return request.param()


@dataclass
class Follower:
    """Writes down what it is told of, and with which image the others are served by then."""

    store: MetadataStore
    seen: list[tuple[str, bool, tuple[str, ...]]] = field(default_factory=list)
    gate: trio.Event | None = None
    entered: trio.Event = field(default_factory=trio.Event)

    async def prepare(self, delta: Delta) -> None:
        self.entered.set()
        if self.gate is not None:
            await self.gate.wait()
        self.seen.append(("prepare", self.store.image is delta.old, delta.topics))

    def publish(self, delta: Delta) -> None:
        self.seen.append(("publish", self.store.image is delta.new, delta.topics))

    async def clean_up(self, delta: Delta) -> None:
        self.seen.append(("clean_up", self.store.image is delta.new, delta.topics))


def topic(name: str) -> TopicCreated:
    return TopicCreated(TopicInfo(name, name.encode().ljust(16), (PartitionInfo(1, (1,), (1,)),)))


async def test_a_change_lasts(place):
    store = await place.open()
    image = await store.change(lambda _: [topic("t")])
    assert image is store.image
    assert list(image.topics) == ["t"]
    await store.change(lambda _: [topic("u"), TopicDeleted("t")])
    await store.close()
    again = await place.open()
    assert list(again.image.topics) == ["u"]
    assert again.image.cluster_id == "c"
    assert list(again.image.brokers) == [1]
    assert again.image.version >= image.version


async def test_client_quotas_last(place):
    store = await place.open()
    alice, app, addresses = QuotaEntity("alice", ""), QuotaEntity(client_id="a/b <c>"), QuotaEntity(ip="")
    await store.change(
        lambda _: [
            ClientQuotaChanged(alice, (("producer_byte_rate", 1000.0), ("request_percentage", 12.5))),
            ClientQuotaChanged(app, (("consumer_byte_rate", float(2**62)),)),
            ClientQuotaChanged(addresses, (("connection_creation_rate", 7.0),)),
            ClientQuotaChanged(QuotaEntity("bob"), (("request_percentage", 5.0),)),
        ]
    )
    image = await store.change(lambda _: [ClientQuotaChanged(QuotaEntity("bob"), ())])
    expected = {
        alice: {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        app: {"consumer_byte_rate": float(2**62)},
        addresses: {"connection_creation_rate": 7.0},
    }
    assert image.quotas == expected
    await store.close()
    again = await place.open()
    assert again.image.quotas == expected


async def test_no_change_needs_no_sync(place):
    store = await place.open()
    before = place.syncs()
    assert await store.change(lambda _: []) is store.image
    assert place.syncs() == before


async def test_subscribers_are_ready_before_the_image_is_seen(place):
    store = await place.open()
    follower = Follower(store)
    store.subscribe(follower)
    await store.change(lambda _: [topic("t")])
    assert follower.seen == [
        ("prepare", True, ("t",)), ("publish", True, ("t",)), ("clean_up", True, ("t",)),
    ]  # fmt: skip


async def test_what_decide_raises_is_raised_and_changes_nothing(place):
    store = await place.open()
    before = store.image

    def decide(_):
        yield topic("t")
        raise RequestError(ErrorCode.POLICY_VIOLATION)

    with pytest.raises(RequestError):
        await store.change(decide)
    assert store.image is before
    await store.close()
    assert not (await place.open()).image.topics


async def test_unwritable_change_is_refused_and_the_next_accepted(place):
    store = await place.open()
    await store.change(lambda _: [topic("first")])
    before = store.image
    place.fail(True)
    with pytest.raises(StorageError):
        await store.change(lambda _: [topic("a-long-name-that-leaves-something-behind")])
    assert store.image is before
    place.fail(False)
    await store.change(lambda _: [topic("t")])
    await store.close()
    assert list((await place.open()).image.topics) == ["first", "t"]


async def test_waiting_changes_are_one_write_with_own_answers(place):
    store = await place.open()
    follower = Follower(store, gate=trio.Event())
    store.subscribe(follower)
    answers = {}

    async def allocate(number):
        image = await store.change(lambda image: [ProducerIdsAllocated(image.next_producer_id + 10)])
        answers[number] = image.next_producer_id

    async def refuse():
        with pytest.raises(RequestError):
            await store.change(_refuse)
        answers["refused"] = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.change, lambda _: [topic("t")])
        await follower.entered.wait()
        before = place.syncs()
        for number in range(50):
            nursery.start_soon(allocate, number)
        nursery.start_soon(refuse)
        await trio.testing.wait_all_tasks_blocked()
        follower.gate.set()
    assert place.syncs() == before + 1
    assert sorted(value for key, value in answers.items() if key != "refused") == list(range(10, 510, 10))
    assert answers["refused"]


def _refuse(_):
    raise RequestError(ErrorCode.POLICY_VIOLATION)


async def test_who_goes_away_does_not_undo_what_is_decided(place):
    store = await place.open()
    follower = Follower(store, gate=trio.Event())
    store.subscribe(follower)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.change, lambda _: [topic("t")])
        await follower.entered.wait()
        nursery.cancel_scope.cancel()
        follower.gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert list(store.image.topics) == ["t"]
    await store.change(lambda _: [topic("u")])
    assert list(store.image.topics) == ["t", "u"]


async def test_who_goes_away_while_waiting_has_asked_for_nothing(place):
    store = await place.open()
    follower = Follower(store, gate=trio.Event())
    store.subscribe(follower)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.change, lambda _: [topic("t")])
        await follower.entered.wait()
        with trio.move_on_after(0):
            await store.change(lambda _: [topic("u")])
        follower.gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert list(store.image.topics) == ["t"]


async def test_after_close_a_change_fails(place):
    store = await place.open()
    await store.close()
    with pytest.raises(StorageError, match="closed"):
        await store.change(lambda _: [topic("t")])
