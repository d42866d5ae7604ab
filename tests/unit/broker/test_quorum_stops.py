"""Stops and starts of brokers in a quorum, and controllers that are away: simulated brokers and a simulated controller."""

from __future__ import annotations

import logging

import pytest
import trio

from barnabas.broker.assembly import assembled
from barnabas.client import ClientError
from barnabas.cluster.kraft.values import RECOVERED
from barnabas.cluster.replication.leader import LeaderState
from barnabas.config.loading import BrokerConfig
from barnabas.testing.simulation.world import World, run_world
from barnabas.wire.generated.alter_partition import AlterPartitionRequest
from barnabas.wire.generated.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.wire.generated.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.envelope import EnvelopeRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata_records.config import ConfigRecord
from barnabas.wire.generated.metadata_records.unregister_broker import UnregisterBrokerRecord
from tests.support.programs import run_with
from tests.support.replicating import consume, produce
from tests.support.scripted_broker import SILENCE
from tests.support.simulated_controller import TOPIC_ID, QuorumMember, member
from tests.unit.broker.test_in_a_quorum import BROKER, heartbeats, led, mark, registrations, run

# --- stops ----------------------------------------------------------------------------------------------------------------


async def stop(machine: QuorumMember) -> float:
    """Stop the broker; the seconds that it took."""
    begun = trio.current_time()
    await machine.machine.stop()
    return trio.current_time() - begun


async def stop_during_start(machine: QuorumMember, seconds: float) -> float:
    """Start a broker and stop it after a while, as a signal does; the seconds that the stop took."""
    environment = machine.world.environment("broker-1", machine.machine.disk)
    async with (
        assembled(BrokerConfig(machine.settings), environment) as broker,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(broker.serve)
        await trio.sleep(seconds)
        broker.stop()
        begun = trio.current_time()
    return trio.current_time() - begun


def silent(_):
    return SILENCE


def fenced(request):
    return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True, should_shut_down=request.want_shut_down)


def in_last_session(_):
    return BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)


@pytest.mark.parametrize(
    ("kind", "answer", "limit_s", "epoch"),
    [
        (BrokerRegistrationRequest, silent, 1, 1),
        (BrokerRegistrationRequest, in_last_session, 1, 1),
        (BrokerHeartbeatRequest, fenced, 3, None),
        (BrokerHeartbeatRequest, silent, 7, None),
    ],
    ids=["no answer", "within the last session", "fenced", "no heartbeat is answered"],
)
@run_with(run)
async def test_stop_during_a_start_takes_seconds_and_is_clean(machine, kind, answer, limit_s, epoch):
    await machine.machine.stop()
    machine.controller.answers[kind] = answer
    took_s = await stop_during_start(machine, 5.0)
    assert took_s < limit_s
    assert mark(machine) == (epoch or machine.controller.image.brokers[1].epoch)


@run_with(run)
async def test_start_without_controllers_that_ends_leaves_the_marks(machine):
    await led(machine)
    await machine.machine.stop()
    machine.controller.go()
    with trio.move_on_after(5):
        await machine.machine.start()
    assert mark(machine) == mark(machine, "/b") == 1


QUICK_ELECTIONS = {
    "controller.quorum.fetch.timeout.ms": "500",
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "100",
}


@pytest.mark.parametrize(("settings", "silence_s"), [({}, 6), (QUICK_ELECTIONS, 2)])
def test_stop_without_controllers_takes_seconds_and_is_clean(caplog, settings, silence_s):
    async def program(machine):
        await led(machine)
        async with machine.client() as client:
            await produce(client, b"kept")
        machine.controller.go()
        took_s = await stop(machine)
        assert mark(machine) == mark(machine, "/b") == 1
        machine.controller.come()
        await machine.machine.start()
        await machine.until(machine.is_led)
        async with machine.client() as client:
            assert await consume(client) == [b"kept"]
        assert registrations(machine.controller)[-1].previous_broker_epoch == 1
        return took_s

    assert silence_s - 2 < run(program, **settings) < silence_s + 2
    assert "not everything that this broker leads could be handed over" in caplog.text


def test_stop_of_a_broker_that_was_unregistered_takes_no_time():
    async def program(machine):
        broker = machine.controller.image.brokers[1]
        machine.controller.write(UnregisterBrokerRecord(1, broker.epoch))
        await trio.sleep(5)
        return await stop(machine)

    assert run(program) < 3


# --- an unregistered broker -----------------------------------------------------------------------------------------------


def test_unregistered_broker_says_so_once_and_keeps_asking(caplog):
    async def program(machine):
        machine.controller.write(UnregisterBrokerRecord(1, machine.controller.image.brokers[1].epoch))
        before = len(heartbeats(machine.controller))
        await trio.sleep(20)
        return len(heartbeats(machine.controller)) - before, len(registrations(machine.controller))

    asked, registered = run(program)
    assert (9 <= asked <= 12, registered) == (True, 1)
    assert caplog.text.count("this broker was unregistered") == 1


# --- controllers that are away --------------------------------------------------------------------------------------------


def test_without_controllers_records_flow_and_requests_time_out():
    async def program(machine):
        await led(machine)
        async with machine.client(request_timeout_ms=90_000) as client:
            await produce(client, b"1")
            machine.controller.go()
            await trio.sleep(120)
            await produce(client, b"2")
            assert await consume(client) == [b"1", b"2"]
            begun = trio.current_time()
            codes = []
            tasks = len(trio.lowlevel.current_root_task().child_nurseries)

            async def create(name):
                topic = CreateTopicsRequest.CreatableTopic(name, 1, 1)
                response = await client.ask_broker(1, CreateTopicsRequest([topic]), timeout_ms=90_000)
                codes.extend(topic.error_code for topic in response.topics)

            for number in range(3):
                await create(f"u{number}")
            took_s = trio.current_time() - begun
            assert tasks == len(trio.lowlevel.current_root_task().child_nurseries)
            machine.controller.come()
            await machine.until(lambda: heartbeats(machine.controller)[-1].want_fence is False)
            await produce(client, b"3")
        return codes, took_s

    codes, took_s = run(program)
    assert codes == [ErrorCode.REQUEST_TIMED_OUT] * 3
    assert 180 <= took_s < 185


def test_envelopes_that_no_controller_answers_are_not_kept():
    async def program(machine):
        machine.controller.answers[EnvelopeRequest] = lambda _: SILENCE
        async with machine.client() as client:
            with pytest.raises(ClientError):
                await client.ask_broker(
                    1, CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("u", 1, 1)]), timeout_ms=500
                )
        await trio.sleep(70)
        assert machine.broker.services.metadata.image.topics == {}
        return machine.broker.memory.held

    assert run(program) == 0


# --- unclean elections --------------------------------------------------------------------------------------------------


@run_with(run)
async def test_leader_of_an_unclean_election_reports_recovery(machine):
    machine.controller.create(leader_recovery_state=1)
    partitions = machine.controller.image.partitions
    assert partitions[TOPIC_ID, 0].leader_recovery_state != RECOVERED
    await machine.until(
        lambda: machine.controller.image.partitions[TOPIC_ID, 0].leader_recovery_state == RECOVERED
    )
    asked = len(machine.controller.all_of(AlterPartitionRequest))
    await trio.sleep(10)
    assert len(machine.controller.all_of(AlterPartitionRequest)) == asked


# --- clients before the broker is unfenced ---------------------------------------------------------------------------


def test_no_connection_is_accepted_before_the_broker_is_unfenced():
    async def main(world: World):
        async with member(world, starts=False) as machine:
            controller = machine.controller
            controller.answers[BrokerHeartbeatRequest] = lambda _: BrokerHeartbeatResponse(is_caught_up=True)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(machine.machine.start)
                await machine.until(lambda: len(heartbeats(controller)) > 3)
                with pytest.raises(ConnectionRefusedError):
                    await machine.dial()
                del controller.answers[BrokerHeartbeatRequest]
            await (await machine.dial()).aclose()

    run_world(1, main, seconds_max=900)


def test_settings_of_the_image_are_in_force_before_clients_come():
    async def main(world: World):
        async with member(world, starts=False) as machine:
            machine.controller.write(
                ConfigRecord(BROKER, "1", "log.retention.ms", "12345"),
                ConfigRecord(BROKER, "", "max.connections.per.ip", "7"),
            )
            broker = await machine.machine.start()
            values = broker.services.config
            return values.value_of("log.retention.ms"), values.value_of("max.connections.per.ip")

    assert run_world(1, main, seconds_max=900) == (12345, 7)


# --- restarts within the last session --------------------------------------------------------------------------------


def test_quick_restart_waits_for_the_end_of_the_last_session(caplog):
    caplog.set_level(logging.INFO)

    async def program(machine):
        controller = machine.controller
        machine.machine.kill()
        over_at = trio.current_time() + 9

        def register(request):
            if trio.current_time() < over_at:
                return BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
            del controller.answers[BrokerRegistrationRequest]
            return controller.register(request)

        controller.answers[BrokerRegistrationRequest] = register
        await machine.machine.start()
        assert trio.current_time() < over_at + 2

    run(program)
    assert caplog.text.count("DUPLICATE_BROKER_REGISTRATION") == 1


def test_isr_is_the_larger_one_while_no_controller_answers():
    state = LeaderState(
        1, leader_epoch=5, partition_epoch=7, replicas=(1, 2), isr=(1,), epoch_start_offset=0, high_watermark=0, now_ms=0
    )  # fmt: skip
    state.follower_fetched(2, 10, log_start_offset=0, leader_end_offset=10, now_ms=0)
    change = state.propose_expansion(2)
    assert change is not None
    assert state.maximal_isr == {1, 2}
    assert state.propose_shrink(20, 10**6, 10) is None, "one proposal is under way, however long"
    assert not state.advance_high_watermark(20) or state.high_watermark == 10
    assert state.maximal_isr == {1, 2}
