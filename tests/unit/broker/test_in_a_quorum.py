"""A whole broker of a quorum at its edges: log dirs that fail, controllers that are away, stops at any moment of a start.

The quorum is one simulated controller, which answers as Kafka's does.
"""

from __future__ import annotations

import json

import pytest
import trio

from barnabas.broker.startup import StartupError
from barnabas.config.setting import SettingError
from barnabas.errors import StorageError, leaves
from barnabas.testing.simulation.world import World, run_world
from barnabas.wire.generated.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from barnabas.wire.generated.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from barnabas.wire.generated.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.generated.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.wire.generated.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.wire.generated.metadata_records.config import ConfigRecord
from barnabas.wire.headers import encode_response
from tests.support.programs import run_with
from tests.support.scripted_broker import SILENCE
from tests.support.simulated_controller import (
    TOPIC_ID,
    QuorumMember,
    SimulatedController,
    directory_id,
    formatted,
    member,
)

BROKER = 4
A, B = directory_id("/a"), directory_id("/b")


def run(program, *arguments, **settings):
    async def main(world: World):
        async with member(world, **settings) as machine:
            return await program(machine, *arguments)

    return run_world(1, main, seconds_max=900)


def mark(machine: QuorumMember, path: str = "/a") -> int | None:
    """The broker epoch in the mark of a clean shutdown; None without the mark."""
    names = {entry.name for entry in machine.machine.disk.list(path)}
    if ".kafka_cleanshutdown" not in names:
        return None
    return json.loads(machine.machine.disk.read(f"{path}/.kafka_cleanshutdown"))["brokerEpoch"]


def heartbeats(controller: SimulatedController) -> list[BrokerHeartbeatRequest]:
    return controller.all_of(BrokerHeartbeatRequest)


def registrations(controller: SimulatedController) -> list[BrokerRegistrationRequest]:
    return controller.all_of(BrokerRegistrationRequest)


def home(machine: QuorumMember) -> bytes:
    """The log dir of t-0, as the controller knows it."""
    return machine.controller.image.partitions[TOPIC_ID, 0].directories[0]


async def led(machine: QuorumMember) -> str:
    """Create t, and return the log dir of its partition once the controller knows it."""
    machine.controller.create()
    await machine.until(machine.is_led)
    await machine.until(lambda: home(machine) in (A, B))
    return "/a" if home(machine) == A else "/b"


def fail_disk(machine: QuorumMember, path: str) -> None:
    machine.broker.requests.failures.failed(StorageError(path, OSError(5, "Input/output error")))


# --- log dirs ----------------------------------------------------------------------------------------------------------


@run_with(run)
async def test_new_replica_is_assigned_to_the_dir_of_its_log(machine):
    path = await led(machine)
    assert machine.broker.services.replicas.find("t", 0).log.log_dir == path
    [request] = machine.controller.all_of(AssignReplicasToDirsRequest)
    assert request.broker_epoch == machine.controller.image.brokers[1].epoch


@run_with(run)
async def test_assignment_follows_a_move_to_another_dir(machine):
    target = "/b" if await led(machine) == "/a" else "/a"
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic("t", [0])
    async with machine.client() as client:
        response = await client.ask_broker(
            1, AlterReplicaLogDirsRequest([AlterReplicaLogDirsRequest.AlterReplicaLogDir(target, [topic])])
        )
    assert response.results[0].partitions[0].error_code == 0
    await machine.until(lambda: home(machine) == directory_id(target))


@run_with(run)
async def test_offline_dir_is_told_and_another_broker_may_lead(machine):
    path = await led(machine)
    fail_disk(machine, path)
    await machine.until(lambda: machine.controller.image.partitions[TOPIC_ID, 0].leader == -1)
    await trio.sleep(5)
    last = heartbeats(machine.controller)[-2:]
    assert [request.offline_log_dirs for request in last] == [[directory_id(path)]] * 2
    assert machine.broker.services.replicas.find("t", 0) is None


@run_with(run)
async def test_dir_that_fails_before_its_assignment_is_assigned(machine):
    machine.controller.answers[AssignReplicasToDirsRequest] = lambda _: SILENCE
    machine.controller.create()
    await machine.until(machine.is_led)
    fail_disk(machine, machine.broker.services.replicas.find("t", 0).log.log_dir)
    del machine.controller.answers[AssignReplicasToDirsRequest]
    await machine.until(lambda: machine.controller.image.partitions[TOPIC_ID, 0].leader == -1, 60)
    assert machine.broker.services.replicas.find("t", 0) is None


@run_with(run, **{"cordoned.log.dirs": "/a"})
async def test_dir_offline_at_a_start_is_not_registered_nor_replaced(machine):
    assert await led(machine) == "/b"  # the dir of the metadata has to work
    await machine.machine.stop()
    with machine.machine.disk.failing("list", "/b"):
        await machine.machine.start()
        assert registrations(machine.controller)[-1].log_dirs == [A]
        await trio.sleep(5)
    assert machine.broker.services.replicas.find("t", 0) is None
    assert "t-0" not in {entry.name for entry in machine.machine.disk.list("/a")}


def test_broker_stops_when_a_lost_dir_cannot_be_told(caplog):
    async def program(machine):
        path = await led(machine)
        broker = machine.broker
        machine.controller.answers[BrokerHeartbeatRequest] = lambda _: SILENCE
        fail_disk(machine, path if path != "/a" else "/b")
        begun = trio.current_time()
        await broker.stopping.wait()
        return trio.current_time() - begun, broker.stopping.has_failed

    took_s, has_failed = run(program, **{"log.dir.failure.timeout.ms": "10000", "metadata.log.dir": "/a"})
    assert 10 <= took_s < 15
    assert has_failed
    assert "no controller could be told of the log dirs that are offline" in caplog.text


def test_broker_stops_when_the_dir_of_its_metadata_fails():
    async def program(machine):
        broker = machine.broker
        fail_disk(machine, "/a")
        with trio.fail_after(10):
            await broker.stopping.wait()
        return broker.stopping.has_failed

    assert run(program)


@run_with(run, **{"cordoned.log.dirs": "/a"})
async def test_cordoned_dirs_are_told_and_get_no_logs(machine):
    controller = machine.controller
    await machine.until(lambda: heartbeats(controller)[-1].cordoned_log_dirs == [A])
    for number in range(4):
        controller.create(f"t{number}", bytes([number + 1]) * 16)
    await machine.until(lambda: machine.is_led("t3"))
    services = machine.broker.services
    assert {partition_log.log_dir for partition_log in services.logs} == {"/b"}
    async with machine.client() as client:
        topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic("t0", [0])
        move = AlterReplicaLogDirsRequest.AlterReplicaLogDir("/a", [topic])
        response = await client.ask_broker(1, AlterReplicaLogDirsRequest([move]))
    assert response.results[0].partitions[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    controller.write(ConfigRecord(BROKER, "1", "cordoned.log.dirs", ""))
    await machine.until(lambda: heartbeats(controller)[-1].cordoned_log_dirs == [])
    assert services.logs.cordoned == frozenset()


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("cordoned.log.dirs", "/a", 0),
        ("cordoned.log.dirs", "*", 0),
        ("cordoned.log.dirs", "/c", ErrorCode.INVALID_REQUEST),
        ("log.retention.ms", "never", ErrorCode.INVALID_REQUEST),
        ("log.dirs", "/c", ErrorCode.INVALID_REQUEST),
    ],
)
def test_broker_settings_are_checked_before_the_controller(name, value, code):
    def answer(_):
        answers = [IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(0, None, BROKER, "1")]
        frame = encode_response(44, 1, 1, IncrementalAlterConfigsResponse(responses=answers))
        return EnvelopeResponse(b"".join(map(bytes, frame))[4:])

    async def program(machine):
        machine.controller.answers[EnvelopeRequest] = answer
        alteration = IncrementalAlterConfigsRequest.AlterableConfig(name, 0, value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(BROKER, "1", [alteration])
        async with machine.client() as client:
            response = await client.ask_broker(1, IncrementalAlterConfigsRequest([resource]))
        return response.responses[0].error_code, len(machine.controller.all_of(EnvelopeRequest))

    assert run(program) == (code, 0 if code else 1)


def test_cordoned_dir_that_is_no_log_dir_is_refused():
    text = refused(lambda _: None, SettingError, **{"cordoned.log.dirs": "/c"})
    assert "cordoned.log.dirs: /c is not among log.dirs" in text


# --- the dir of the metadata ---------------------------------------------------------------------------------------------


def refused(prepare, kind=StorageError, **settings):
    """The sentence with which a start is refused, after something was done to the disk."""

    async def main(world: World):
        async with member(world, starts=False, **settings) as machine:
            prepare(machine.machine.disk)
            await machine.machine.start()

    with pytest.RaisesGroup(pytest.RaisesExc(kind), flatten_subgroups=True, allow_unwrapped=True) as raised:
        run_world(1, main, seconds_max=900)
    return " ".join(str(error) for error in leaves(raised.value))


def test_metadata_dir_of_its_own_is_locked():
    locks = []

    def lock(disk):
        formatted(disk, "/m")
        locks.append(disk.lock("/m/.lock"))

    assert "another broker is using it" in refused(lock, **{"metadata.log.dir": "/m"})


def test_metadata_dir_of_its_own_must_be_formatted():
    text = refused(lambda disk: disk.make_dirs("/m"), StartupError, **{"metadata.log.dir": "/m/"})
    assert "/m/meta.properties is missing: format the directory first" in text


def test_log_dirs_of_another_cluster_are_refused_unchanged():
    disks = []

    def prepare(disk):
        formatted(disk, "/m")
        formatted(disk, "/a", "/b", cluster_id="another")
        disks.append(disk)

    text = refused(prepare, **{"metadata.log.dir": "/m"})
    assert "log dir /a: it belongs to cluster another" in text
    assert b"another" in disks[0].read("/a/meta.properties")


def test_broker_ends_when_its_metadata_dir_fails_to_write(caplog):
    async def main(world: World):
        async with member(world, starts=False, **{"metadata.log.dir": "/m"}) as machine:
            formatted(machine.machine.disk, "/m")
            await machine.machine.start()
            await led(machine)
            assert directory_id("/m") not in registrations(machine.controller)[0].log_dirs
            disk = machine.machine.disk
            with disk.failing("write", "/00000000000000000000.log"):
                machine.controller.create("u", bytes(range(16)))
                with trio.fail_after(30):
                    await trio.sleep_forever()

    with pytest.RaisesGroup(
        pytest.RaisesExc(StorageError), flatten_subgroups=True, allow_unwrapped=True
    ) as raised:
        run_world(1, main, seconds_max=900)
    assert "/m" in " ".join(str(error) for error in leaves(raised.value))


# --- broker epochs over a stop -------------------------------------------------------------------------------------------


@run_with(run)
async def test_epoch_is_handed_on_by_a_clean_stop_and_not_by_a_crash(machine):
    controller = machine.controller
    await machine.machine.stop()
    assert mark(machine) == mark(machine, "/b") == 1
    await machine.machine.start()
    second = controller.image.brokers[1].epoch
    machine.machine.kill()
    await machine.machine.start()
    await machine.machine.stop()
    await machine.machine.start()
    epochs = [request.previous_broker_epoch for request in registrations(controller)]
    assert epochs[:3] == [-1, 1, -1]
    assert epochs[3] > second


def test_epoch_is_handed_on_without_a_controlled_shutdown():
    async def program(machine):
        await machine.machine.stop()
        return mark(machine)

    assert run(program, **{"controlled.shutdown.enable": "false"}) == 1


@run_with(run)
async def test_start_without_registration_keeps_the_last_epoch(machine):
    await machine.machine.stop()
    for answer in (lambda _: SILENCE, lambda _: BrokerRegistrationResponse(error_code=101)):
        machine.controller.answers[BrokerRegistrationRequest] = answer
        await machine.machine.start_and_stop(3.0)
        assert mark(machine) == 1
