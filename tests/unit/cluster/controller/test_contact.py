"""Control requests over connections that break, and processes that end: what is sent again, and what counts as gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import ClientSettings, Endpoint
from barnabas.cluster.controller.channels import ConnectedChannels
from barnabas.cluster.controller.contact import ControllerContact
from barnabas.cluster.controller.state import Broker
from barnabas.cluster.controller.state import Endpoint as Listening
from barnabas.cluster.controller.steps import Outgoing
from barnabas.cluster.metadata.image import BrokerInfo, ClusterImage, Delta
from barnabas.wire.generated.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.support.scripted_broker import SILENCE, ScriptedCluster

ONE = (Listening("OTHER", "nowhere", 9), Listening("PLAINTEXT", "one", 1))


class Net:
    """A network of scripted brokers, where ports may refuse, fail, or be silent for a while."""

    def __init__(self) -> None:
        self.scripted = ScriptedCluster()
        self.script: list[str] = []
        """Outcomes of the next attempts; then brokers answer."""
        self.is_refused = False
        self.attempts: list[tuple[float, str]] = []

    async def dial(self, host: str, port: int) -> trio.abc.Stream:
        self.attempts.append((trio.current_time(), host))
        what = self.script.pop(0) if self.script else "refused" if self.is_refused else ""
        match what:
            case "refused":
                raise ConnectionRefusedError
            case "fails":
                raise OSError("no route")
            case "silent":
                await trio.sleep_forever()
        return await self.scripted.dial(Endpoint(host, port))


# --- channels -----------------------------------------------------------------------------------------------------


class Sending:
    """Channels that run, with what came back and what was said of brokers."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.channels = ConnectedChannels("PLAINTEXT", net, ClientSettings(), timeout_ms=5_000)  # type: ignore[arg-type]
        self.channels.on_contact(lambda broker, is_there: self.contacts.append((broker.id, is_there)))
        self.contacts: list[tuple[int, bool]] = []
        self.answered: list[int] = []
        self.heard: list[int] = []
        self.codes: dict[int, int] = {}
        net.scripted.answer = self.answer

    def answer(self, _host: str, request: Any) -> Any:
        number = request.endpoint_type
        self.heard.append(number)
        return DescribeClusterResponse(error_code=self.codes.get(number, 0))

    def send(self, number: int, epoch: int = 7, broker: int = 1) -> None:
        """Send a request that is told from others by a number."""
        request = DescribeClusterRequest(endpoint_type=number)
        self.channels.send(Outgoing(broker, epoch, 1, request), lambda *_: self.answered.append(number))


async def with_channels(net: Net, act: Callable[[Sending], Any]) -> Sending:
    it = Sending(net)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(it.channels.run)
        await trio.testing.wait_all_tasks_blocked()
        await act(it)
        nursery.cancel_scope.cancel()
    return it


async def test_a_connection_that_breaks_is_looked_after_and_made_again(autojump_clock: Any) -> None:
    async def act(it: Sending) -> None:
        it.channels.open(Broker(1, 7, ONE))
        it.send(1)
        await trio.sleep(1)
        it.net.is_refused = True
        it.net.scripted.answer = lambda *_: None  # the connection is closed
        it.send(2)
        await trio.sleep(5)
        assert it.contacts == [(1, False)], "said once"
        it.net.scripted.answer = it.answer
        it.net.is_refused = False
        await trio.sleep(5)

    it = await with_channels(Net(), act)
    assert it.answered == [1, 2]
    assert it.contacts == [(1, False), (1, True)]


async def test_silent_broker_is_asked_again_and_not_fenced(autojump_clock: Any) -> None:
    async def act(it: Sending) -> None:
        it.channels.open(Broker(1, 7, ONE))
        it.net.scripted.answer = lambda *_: SILENCE
        it.send(1)
        await trio.sleep(4.9)
        assert it.net.scripted.dialled == ["one"]
        await trio.sleep(0.5)
        it.net.scripted.answer = it.answer
        await trio.sleep(6)

    it = await with_channels(Net(), act)
    assert it.answered == [1]
    assert it.contacts == []


async def test_broker_without_the_inter_broker_listener_is_not_fenced(autojump_clock: Any) -> None:
    async def act(it: Sending) -> None:
        it.channels.open(Broker(1, 7, ONE[:1]))
        it.send(1)
        await trio.sleep(5)

    it = await with_channels(Net(), act)
    assert (it.answered, it.contacts, it.net.attempts) == ([], [], [])


async def test_a_request_that_cannot_be_written_holds_up_no_other(autojump_clock: Any) -> None:
    async def act(it: Sending) -> None:
        it.channels.open(Broker(1, 7, ONE))
        it.send(10**6)  # no number of 8 bits
        it.send(2)
        await trio.sleep(5)

    it = await with_channels(Net(), act)
    assert it.answered == [2]


# --- the controller on another broker -----------------------------------------------------------------------------


def image(controller: int = 1, *brokers: int, listener: str = "PLAINTEXT") -> ClusterImage:
    hosts = {1: ("one", 1), 2: ("two", 2), 3: ("three", 3)}
    infos = {broker: BrokerInfo(broker, None, {listener: hosts[broker]}) for broker in brokers}
    return ClusterImage("c", controller_id=controller, brokers=infos)


class Watching:
    """A broker 3 that keeps contact with the controller, and what it has said."""

    def __init__(self, net: Net, first: ClusterImage) -> None:
        self.image = first
        self.gone: list[int] = []
        self.contact = ControllerContact(
            3, lambda: self.image, "PLAINTEXT", net, ClientSettings(), gone=self.gone.append  # type: ignore[arg-type]
        )  # fmt: skip

    def publish(self, new: ClusterImage) -> None:
        delta = Delta(self.image, new, (), ())
        self.image = new
        self.contact.publish(delta)


async def watched(net: Net, first: ClusterImage, act: Callable[[Watching], Any]) -> Watching:
    it = Watching(net, first)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(it.contact.run)
        await trio.sleep(0.5)
        await act(it)
        nursery.cancel_scope.cancel()
    return it


async def test_controller_with_a_refusing_port_is_reported_gone(autojump_clock: Any) -> None:
    net = Net()

    async def act(it: Watching) -> None:
        assert it.gone == []
        net.is_refused = True
        assert [host for _, host in net.attempts] == ["one"]
        it.publish(image(1, 1, 2, 3))  # another image: the connection is made anew
        await trio.sleep(3)

    it = await watched(net, image(1, 1, 3), act)
    assert len(it.gone) == 3
    assert set(it.gone) == {1}


@pytest.mark.parametrize(
    "other", [image(3, 1, 3), image(-1, 1, 3), image(2, 1, 3), image(1, 1, 3, listener="OTHER")]
)
async def test_no_connection_is_made_without_another_controller(
    other: ClusterImage, autojump_clock: Any
) -> None:
    net = Net()

    async def act(it: Watching) -> None:
        assert net.attempts == []
        it.publish(image(2, 1, 2, 3))
        await trio.sleep(0.5)
        assert [host for _, host in net.attempts] == ["two"]
        it.publish(image(1, 1, 2, 3))
        await trio.sleep(0.5)
        assert [host for _, host in net.attempts] == ["two", "one"]

    assert (await watched(net, other, act)).gone == []


async def test_a_controller_that_is_only_silent_is_not_gone(autojump_clock: Any) -> None:
    net = Net()
    net.script = ["fails", "fails", "refused", "silent"]

    async def act(_it: Watching) -> None:
        await trio.sleep(10)

    assert (await watched(net, image(1, 1, 3), act)).gone == []
    assert len(net.attempts) > 3
