"""Traps of a broker in a quorum, a test for each, with whole brokers where a part alone does not show it.

Log dirs, stops and stray logs have tests of their own (test_in_a_quorum, cluster/replicas/test_logs_in_a_quorum).
"""

from __future__ import annotations

import logging

import pytest
import trio

from barnabas.broker.startup import StartupError
from barnabas.cluster.kraft.image import EMPTY, Draft, Position, diff
from barnabas.cluster.kraft.loader import Loader
from barnabas.cluster.kraft.observer import Append, Observer
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.snapshots import snapshot_batches
from barnabas.cluster.kraft.state import snapshot_steps
from barnabas.cluster.kraft.store import QuorumStore
from barnabas.cluster.kraft.transitions import apply_record
from barnabas.cluster.metadata.image import ClusterImage
from barnabas.errors import RequestError, leaves
from barnabas.records.batch import iter_batches
from barnabas.records.building import encode_batch
from barnabas.records.control import ControlType, encode_key
from barnabas.records.record import Record
from barnabas.serving.loop_budget import LoopBudget
from barnabas.testing.simulation.world import World, run_world
from barnabas.wire.generated.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.generated.broker_registration import BrokerRegistrationRequest
from barnabas.wire.generated.data import voters_record
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.metadata_records.begin_transaction import BeginTransactionRecord
from barnabas.wire.generated.metadata_records.clear_elr import ClearElrRecord
from barnabas.wire.generated.metadata_records.config import ConfigRecord
from barnabas.wire.generated.metadata_records.end_transaction import EndTransactionRecord
from barnabas.wire.generated.metadata_records.no_op import NoOpRecord
from barnabas.wire.generated.metadata_records.partition import PartitionRecord
from barnabas.wire.generated.metadata_records.partition_change import PartitionChangeRecord
from barnabas.wire.generated.metadata_records.remove_topic import RemoveTopicRecord
from barnabas.wire.generated.metadata_records.topic import TopicRecord
from tests.support.certificates import authority, signed
from tests.support.metadata_leader import SimulatedLeader
from tests.support.programs import run_with
from tests.support.replicating import consume, produce
from tests.support.simulated_controller import CONTROLLER_ID, TOPIC_ID, QuorumMember, member

BROKER = 4
OTHER_ID = bytes(range(16))


def run(program, *, starts=True, **settings):
    async def main(world: World):
        async with member(world, starts=starts, **settings) as machine:
            return await program(machine)

    return run_world(2, main, seconds_max=900)


def topics(machine: QuorumMember) -> set[str]:
    """The topics that the broker shows."""
    return set(machine.broker.services.metadata.image.topics)


def heartbeats(machine: QuorumMember) -> list[BrokerHeartbeatRequest]:
    return machine.controller.all_of(BrokerHeartbeatRequest)


def directories(machine: QuorumMember) -> list[str]:
    """The names of the directories of logs of t."""
    disk = machine.machine.disk
    return sorted(
        entry.name for path in ("/a", "/b") for entry in disk.list(path) if entry.name.startswith("t")
    )


def image_of(*messages):
    """The image after records."""
    draft = Draft(EMPTY)
    for message in messages:
        apply_record(draft, message)
    return draft.image(Position(len(messages) - 1, 1, 1000))


# --- the log ------------------------------------------------------------------------------------------------------------


@run_with(run)
async def test_records_above_the_high_watermark_do_not_count(machine):
    controller = machine.controller
    controller.commit(controller.end_offset)
    controller.create()
    await trio.sleep(5)
    assert topics(machine) == set()
    controller.commit(None)
    await machine.until(machine.is_led)


@run_with(run)
async def test_records_of_an_open_transaction_do_not_count(machine):
    controller = machine.controller
    controller.write(BeginTransactionRecord("several"))
    controller.create()
    await trio.sleep(5)
    assert topics(machine) == set()
    controller.write(EndTransactionRecord())
    await machine.until(machine.is_led)


@run_with(run)
async def test_topic_that_a_snapshot_lacks_is_gone(machine):
    controller = machine.controller
    controller.create()
    controller.create("u", OTHER_ID)
    await machine.until(lambda: topics(machine) == {"t", "u"} and machine.is_led())
    machine.world.network.cut("broker-1", "controller")
    await trio.sleep(1)
    controller.write(RemoveTopicRecord(TOPIC_ID))
    controller.take_snapshot()
    machine.world.network.heal()
    await machine.until(lambda: topics(machine) == {"u"}, 60)
    await trio.sleep(1)
    assert [name.rpartition("-")[2] for name in directories(machine)] == ["delete"]


@run_with(run, starts=False)
async def test_records_of_a_snapshot_have_no_offsets_of_the_log(machine):
    controller = machine.controller
    for number in range(5):
        controller.create(f"t{number}", bytes([number + 1]) * 16)
        controller.write(PartitionChangeRecord(0, bytes([number + 1]) * 16, isr=[1]))
    controller.take_snapshot()
    end_offset = controller.end_offset
    await machine.machine.start()
    await machine.until(lambda: len(topics(machine)) == 5)
    assert heartbeats(machine)[0].current_metadata_offset >= end_offset - 1
    assert controller.image.brokers[1].epoch == end_offset
    controller.create()
    await machine.until(machine.is_led)


def test_snapshot_is_at_its_id_whatever_its_records_count():
    image = image_of(TopicRecord("t", TOPIC_ID))
    data = b"".join(snapshot_batches(image, Leadership(), now_ms=5))
    batches = [(header, data[at : at + header.size]) for at, header in iter_batches(data)]
    (snapshot,) = (step for step in snapshot_steps((700, 3), "snapshot", batches) if step is not None)
    assert (snapshot.image.position.offset, snapshot.image.position.epoch) == (699, 3)
    loader = Loader()
    loader.load(snapshot)
    assert loader.next_offset == 700


def test_first_answer_with_a_fenced_epoch_is_no_error(caplog):
    codes = []

    async def program(machine):
        fetch = machine.controller.fetch

        def noting(request):
            answer = fetch(request)
            if answer is not None:
                codes.append(answer.responses[0].partitions[0].error_code)
            return answer

        machine.controller.answers[FetchRequest] = noting
        await machine.machine.start()

    run(program, starts=False)
    assert codes[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_voters_count_as_soon_as_they_are_appended():
    leader, observer = SimulatedLeader(1), Observer()
    for _ in range(3):
        observer.take(leader.answer(observer.request(max_wait_ms=0)))
    end_offset, epoch = observer.end_offset, observer.last_epoch
    endpoint = voters_record.VotersRecord.Endpoint("CONTROLLER", "new", 9)
    voters = voters_record.VotersRecord(voters=[voters_record.VotersRecord.Voter(7, bytes(16), [endpoint])])
    value = voters_record.CODEC.encode_bytes(voters, 0)
    record = Record(end_offset, 1, encode_key(ControlType.KRAFT_VOTERS), value)
    batch = bytes(encode_batch([record], leader_epoch=epoch, control=True))
    taken = observer.take(leader.response(leader.partition(records=batch)))
    assert any(isinstance(decision, Append) for decision in taken.decisions)
    assert [voter.id for voter in observer.leadership.voters] == [7]


def test_unreadable_record_at_a_start_stops_it():
    async def program(machine):
        machine.controller.write(NoOpRecord(), value=b"\1\x7f\0")
        await machine.machine.start()

    with pytest.RaisesGroup(
        pytest.RaisesExc(StartupError), flatten_subgroups=True, allow_unwrapped=True
    ) as raised:
        run(program, starts=False)
    assert "there is no metadata record with key 127" in " ".join(
        str(error) for error in leaves(raised.value)
    )


def test_unreadable_record_leaves_a_running_broker_its_image(caplog):
    async def program(machine):
        machine.controller.create()
        await machine.until(machine.is_led)
        async with machine.client() as client:
            await produce(client, b"1")
            machine.controller.write(NoOpRecord(), value=b"\1\x7f\0")
            machine.controller.create("u", OTHER_ID)
            await trio.sleep(5)
            await produce(client, b"2")
            assert await consume(client) == [b"1", b"2"]
        assert topics(machine) == {"t"}

    run(program)
    assert "the metadata is not followed any more" in caplog.text


# --- the image ------------------------------------------------------------------------------------------------------------


def partition_after(*changes, **fields):
    values = {
        "replicas": [1, 2],
        "isr": [1, 2],
        "leader": 1,
        "leader_epoch": 5,
        "partition_epoch": 9,
    } | fields
    image = image_of(TopicRecord("t", TOPIC_ID), PartitionRecord(0, TOPIC_ID, **values), *changes)
    partition = image.partitions[TOPIC_ID, 0]
    return partition.leader, partition.leader_epoch, partition.partition_epoch


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"isr": [1]}, (1, 5, 10)),
        ({"leader": 2}, (2, 6, 10)),
        ({"leader": 1}, (1, 6, 10)),
        ({"leader": -1}, (-1, 6, 10)),
        ({"leader": -2, "isr": [2, 1]}, (1, 5, 10)),
        ({}, (1, 5, 10)),
    ],
    ids=["isr", "leader", "the same leader", "no leader", "unchanged leader", "nothing"],
)
def test_epochs_rise_as_the_controller_counts_them(change, expected):
    assert partition_after(PartitionChangeRecord(0, TOPIC_ID, **change)) == expected


def test_cleared_eligible_replicas_raise_the_partition_epoch():
    change = PartitionChangeRecord(0, TOPIC_ID, eligible_leader_replicas=[2])
    assert partition_after(change, ClearElrRecord("t")) == (1, 5, 11)
    assert partition_after(ClearElrRecord("t")) == (1, 5, 9)


@run_with(run)
async def test_topic_made_again_in_one_batch_begins_empty(machine):
    controller = machine.controller
    controller.create()
    await machine.until(machine.is_led)
    async with machine.client() as client:
        await produce(client, b"old")
    fields = {"replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 0, "partition_epoch": 0}
    partition = PartitionRecord(0, OTHER_ID, directories=[bytes(15) + b"\1"], **fields)
    controller.write(RemoveTopicRecord(TOPIC_ID), TopicRecord("t", OTHER_ID), partition)
    await machine.until(lambda: machine.broker.services.metadata.image.topic_id("t") == OTHER_ID)
    async with machine.client() as client:
        await produce(client, b"new")
        assert await consume(client) == [b"new"]


@run_with(run, starts=False)
async def test_image_does_not_depend_on_the_clock(machine):
    machine.machine.clock.step(-20 * 365 * 86_400_000)
    machine.controller.create()
    await machine.machine.start()
    await machine.until(machine.is_led)
    machine.machine.clock.step(40 * 365 * 86_400_000)
    machine.controller.create("u", OTHER_ID)
    await machine.until(lambda: machine.is_led("u"))


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_passwords_of_settings_are_in_no_line(level, caplog):
    caplog.set_level(level)

    async def program(machine):
        for name in ("ssl.keystore.password", "listener.name.plaintext.ssl.key.password"):
            machine.controller.write(ConfigRecord(BROKER, "1", name, "hunter2"))
        await machine.machine.start()
        machine.controller.write(ConfigRecord(BROKER, "1", "ssl.keystore.password", "hunter2-again"))
        await trio.sleep(2)

    run(program, starts=False)
    assert "hunter2" not in caplog.text


# --- the life of the broker ----------------------------------------------------------------------------------------------


def test_offset_is_told_once_its_image_is_published():
    store = QuorumStore("c", 1, LoopBudget())
    seen = []

    class Subscriber:
        async def prepare(self, delta):
            seen.append(store.offset)

        def publish(self, delta):
            seen.append(store.offset)

        async def clean_up(self, delta):
            seen.append(store.offset)

    store.subscribe(Subscriber())
    image = image_of(TopicRecord("t", TOPIC_ID))
    trio.run(store.follow, diff(EMPTY, image), image)
    assert seen == [-1] * 3
    assert store.offset == image.position.offset


@run_with(run)
async def test_heartbeats_tell_no_offset_that_is_not_published(machine):
    controller = machine.controller
    controller.commit(controller.end_offset)
    for _ in range(5):
        controller.write(NoOpRecord())
    await trio.sleep(5)
    assert heartbeats(machine)[-1].current_metadata_offset < controller.committed


@run_with(run)
async def test_no_heartbeat_follows_a_granted_shutdown(machine):
    await machine.machine.stop()
    asked = heartbeats(machine)
    assert [request.want_shut_down for request in asked][-1]
    assert sum(request.want_shut_down for request in asked) == 1
    assert machine.controller.image.brokers[1].fenced is False  # no other heartbeat has changed anything


def test_broker_registers_with_open_logs():
    async def program(machine):
        machine.controller.create()
        states = []
        register = machine.controller.register

        def noting(request: BrokerRegistrationRequest):
            states.append(directories(machine))
            return register(request)

        machine.controller.answers[BrokerRegistrationRequest] = noting
        await machine.machine.start()
        return states

    assert run(program, starts=False) == [["t-0"]]


# --- logs, leaders and clients --------------------------------------------------------------------------------------------


@run_with(run)
async def test_image_that_is_not_complete_removes_no_log(machine):
    controller = machine.controller
    controller.create()
    await machine.until(machine.is_led)
    async with machine.client() as client:
        await produce(client, b"kept")
    await machine.machine.stop()
    controller.commit(-1)
    with trio.move_on_after(10):
        await machine.machine.start()
    assert directories(machine) == ["t-0"]
    controller.commit(None)
    await machine.machine.start()
    await machine.until(machine.is_led)
    async with machine.client() as client:
        assert await consume(client) == [b"kept"]


@run_with(run)
async def test_quorum_of_another_cluster_removes_no_log(machine):
    controller = machine.controller
    controller.create()
    await machine.until(machine.is_led)
    await machine.machine.stop()
    controller.answers[FetchRequest] = lambda _: FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    with pytest.RaisesGroup(pytest.RaisesExc(StartupError), flatten_subgroups=True, allow_unwrapped=True):
        await machine.machine.start()
    assert directories(machine) == ["t-0"]


@run_with(run)
async def test_metadata_names_a_live_broker_as_the_controller(machine):
    async with machine.client() as client:
        response = await client.ask_broker(1, MetadataRequest(topics=[]))
    assert response.controller_id != CONTROLLER_ID
    assert response.controller_id in {broker.node_id for broker in response.brokers}


def test_certificate_of_the_image_counts_before_clients_come():
    key = signed({"CN": "broker-1"})

    async def program(machine):
        chain = {
            "keystore.type": "PEM",
            "keystore.key": key.key_pem,
            "keystore.certificate.chain": key.pem + authority().pem,
        }
        machine.controller.write(
            *(
                ConfigRecord(BROKER, "1", f"listener.name.outside.ssl.{name}", value)
                for name, value in chain.items()
            )
        )
        broker = await machine.machine.start()
        (listener,) = broker.listeners
        assert listener.channel.tls is not None

    run(
        program,
        starts=False,
        **{
            "listeners": "OUTSIDE://broker-1:9092",
            "listener.security.protocol.map": "OUTSIDE:SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "OUTSIDE",
        },
    )


@run_with(run, **{"broker.id.generation.enable": "true", "inter.broker.protocol.version": "3.9"})
async def test_settings_without_a_meaning_in_a_quorum_change_nothing(machine):
    machine.controller.create()
    await machine.until(machine.is_led)
    assert machine.broker.services.broker_id == 1


def test_store_of_a_quorum_changes_nothing_itself():
    store = QuorumStore("c", 1, LoopBudget())
    with pytest.raises(RequestError) as raised:
        trio.run(store.change, lambda _: [])
    assert raised.value.code == ErrorCode.NOT_CONTROLLER
    assert store.image == ClusterImage("c", controller_id=1, version=store.image.version)
