"""Processes of brokers that end: the session ends with them if all listeners refuse, and else by time alone."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.cluster.kraft.controller.active import ActiveController
from barnabas.cluster.kraft.controller.machine import machine
from barnabas.cluster.kraft.controller.outcome import Caller
from barnabas.cluster.kraft.controller.processes import LOOK_SECONDS_MAX, BrokerProcesses
from barnabas.cluster.kraft.image import METADATA_VERSION
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import real_environment
from barnabas.errors import RequestError
from barnabas.wire.generated.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.generated.broker_registration import BrokerRegistrationRequest
from barnabas.wire.generated.controller_registration import ControllerRegistrationRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord
from tests.support.only_voter import OnlyVoter

REFUSED = ConnectionRefusedError()
CONTROLLER_ID = 3
SOON_SECONDS = LOOK_SECONDS_MAX + 0.1


class Net:
    """A network where each address accepts, fails, or is silent, for a number of attempts or for good."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[Exception | str]] = {}
        self.attempts: list[str] = []

    async def dial(self, host: str, _port: int) -> trio.abc.Stream:
        self.attempts.append(host)
        outcomes = self.outcomes.get(host, ["accepted"])
        outcome = outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        if outcome == "silent":
            await trio.sleep_forever()
        return trio.testing.memory_stream_pair()[0]


class Led:
    """An active controller with brokers 1 and 2, which send heartbeats by connections 1 and 2."""

    def __init__(self) -> None:
        self.net, self.voter = Net(), OnlyVoter(CONTROLLER_ID)
        self.active = ActiveController(
            BrokerConfig({"node.id": str(CONTROLLER_ID)}),
            real_environment(),
            machine([FeatureLevelRecord(METADATA_VERSION, 30)]),
            lambda: self.voter.image,
            lambda: False,
            cluster_id="cluster",
            batch_bytes_max=1 << 20,
        )
        self.active.attach(self.voter)  # type: ignore[arg-type]
        self.processes = BrokerProcesses(self.active, self.net)  # type: ignore[arg-type]
        self.voter.lead(self.active)

    @property
    def image(self) -> Any:
        return self.voter.image

    async def register(self, broker_id: int, incarnation: int = 1, *hosts: str) -> int:
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id="cluster",
            incarnation_id=bytes([incarnation]) * 16,
            listeners=[
                BrokerRegistrationRequest.Listener(host.upper(), host, 9092, 0)
                for host in hosts or (f"b{broker_id}",)
            ],
            features=[
                BrokerRegistrationRequest.Feature(METADATA_VERSION, 7, 30),
                BrokerRegistrationRequest.Feature("kraft.version", 0, 1),
            ],
            log_dirs=[bytes([200, broker_id]).ljust(16, b"\1")],
        )
        try:
            response = await self.active.handle(62, request, Caller(4))
        except RequestError as error:
            return error.code
        return response.error_code

    async def beat(self, broker_id: int, connection_id: int, *, stop: bool = False) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].epoch,
            current_metadata_offset=self.voter.end_offset,
            want_shut_down=stop,
        )
        self.processes.heard(connection_id, request)
        await self.active.handle(63, request, Caller(2))

    async def start(self, broker_id: int, *hosts: str) -> None:
        assert await self.register(broker_id, 1, *hosts) == 0
        await self.beat(broker_id, broker_id)
        assert not self.image.brokers[broker_id].fenced

    def is_fenced(self, broker_id: int) -> bool:
        return self.image.brokers[broker_id].fenced


@pytest.fixture
async def led(nursery: trio.Nursery) -> Led:
    led = Led()
    nursery.start_soon(led.processes.run)
    await trio.testing.wait_all_tasks_blocked()
    await led.start(1)
    await led.start(2)
    return led


async def test_ended_process_loses_leadership_at_once(autojump_clock: Any, led: Led) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        "t", assignments=[CreateTopicsRequest.CreatableReplicaAssignment(0, [1, 2])], num_partitions=-1,
        replication_factor=-1,
    )  # fmt: skip
    await led.active.handle(19, CreateTopicsRequest(topics=[topic]), Caller(7))
    led.net.outcomes["b1"] = [REFUSED]
    led.processes.closed(1)
    await trio.testing.wait_all_tasks_blocked(0.001)
    assert led.is_fenced(1)
    (partition,) = led.image.partitions.values()
    assert (partition.leader, partition.isr) == (2, (2,))


async def test_restarted_process_registers_at_once(autojump_clock: Any, led: Led) -> None:
    assert await led.register(1, 2) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    led.net.outcomes["b1"] = [REFUSED]
    led.processes.closed(1)
    await trio.sleep(SOON_SECONDS)
    assert await led.register(1, 2) == 0


async def test_process_that_shut_down_is_replaced_at_once(autojump_clock: Any, led: Led) -> None:
    await led.beat(1, 1, stop=True)
    assert await led.register(1, 2) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    led.net.outcomes["b1"] = [REFUSED]
    led.processes.closed(1)
    await trio.sleep(SOON_SECONDS)
    assert await led.register(1, 2) == 0


async def test_listener_that_closes_after_the_connection_is_refused(autojump_clock: Any, led: Led) -> None:
    led.net.outcomes["b1"] = ["accepted", "accepted", REFUSED]
    led.processes.closed(1)
    await trio.sleep(SOON_SECONDS)
    assert led.is_fenced(1)


@pytest.mark.parametrize("outcome", ["accepted", "silent", OSError("no route"), ValueError("no host name")])
async def test_any_other_outcome_leaves_the_session(
    autojump_clock: Any, led: Led, outcome: Exception | str
) -> None:
    led.net.outcomes["b1"] = [outcome]
    led.processes.closed(1)
    await trio.sleep(60)
    assert 1 <= len(led.net.attempts) <= 5
    assert not led.is_fenced(1)


async def test_one_listener_that_accepts_leaves_the_session(autojump_clock: Any, led: Led) -> None:
    await led.start(4, "a", "b")
    led.net.outcomes["a"] = [REFUSED]
    led.processes.closed(4)
    await trio.sleep(SOON_SECONDS)
    assert not led.is_fenced(4)
    await led.beat(4, 4)
    led.net.outcomes["b"] = [REFUSED]
    led.processes.closed(4)
    await trio.sleep(SOON_SECONDS)
    assert led.is_fenced(4)


async def test_heartbeat_by_another_connection_leaves_the_session(autojump_clock: Any, led: Led) -> None:
    led.net.outcomes["b1"] = [REFUSED]
    await led.beat(1, 11)
    led.processes.closed(1)
    await trio.sleep(SOON_SECONDS)
    assert led.net.attempts == []
    led.net.outcomes["b1"] = ["accepted", REFUSED]
    led.processes.closed(11)
    await trio.testing.wait_all_tasks_blocked(0.001)
    await led.beat(1, 12)
    await trio.sleep(SOON_SECONDS)
    assert not led.is_fenced(1)


async def test_heartbeat_of_an_older_epoch_is_not_that_of_the_broker(autojump_clock: Any, led: Led) -> None:
    led.processes.heard(11, BrokerHeartbeatRequest(broker_id=1, broker_epoch=0))
    led.net.outcomes["b1"] = [REFUSED]
    led.processes.closed(11)
    await trio.sleep(SOON_SECONDS)
    assert not led.is_fenced(1)
    led.processes.closed(1)
    await trio.sleep(SOON_SECONDS)
    assert led.is_fenced(1)


async def test_session_ended_by_mistake_begins_with_the_next_heartbeat(autojump_clock: Any, led: Led) -> None:
    led.net.outcomes["b1"] = [REFUSED]
    led.processes.closed(1)
    await trio.sleep(SOON_SECONDS)
    assert led.is_fenced(1)
    await led.beat(1, 11)
    assert not led.is_fenced(1)


async def test_controller_that_does_not_lead_looks_at_no_process(autojump_clock: Any, led: Led) -> None:
    led.net.outcomes["b1"] = [REFUSED]
    led.voter.lose()
    led.processes.closed(1)
    await trio.sleep(SOON_SECONDS)
    assert led.net.attempts == []


async def test_new_leader_fences_the_broker_of_the_last_leader(autojump_clock: Any, led: Led) -> None:
    listener = ControllerRegistrationRequest.Listener("CONTROLLER", "c1", 9093, 0)
    for controller_id in (1, CONTROLLER_ID):
        request = ControllerRegistrationRequest(
            controller_id=controller_id,
            incarnation_id=bytes(16),
            listeners=[listener],
            features=[ControllerRegistrationRequest.Feature(METADATA_VERSION, 7, 30)],
        )
        await led.active.handle(70, request, Caller(0))
    led.net.outcomes["b1"] = [REFUSED]
    led.processes.on_leader(2, 0)
    await trio.sleep(60)
    assert not led.is_fenced(1), "its controller accepts"
    led.net.outcomes["c1"] = [REFUSED]
    led.processes.on_leader(2, 0)
    await trio.sleep(60)
    assert not led.is_fenced(1), "heartbeats come from it"
    led.processes.closed(1)
    await trio.sleep(SOON_SECONDS)
    assert led.is_fenced(1)
    assert not led.is_fenced(2)


async def test_connections_closed_after_the_end_look_at_nothing(autojump_clock: Any) -> None:
    led = Led()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(led.processes.run)
        await trio.testing.wait_all_tasks_blocked()
        await led.start(1)
        nursery.cancel_scope.cancel()
    led.processes.closed(1)
    assert led.net.attempts == []
