"""The whole controller on a simulated ZooKeeper: its election, what brokers are sent, and what is left in the znodes."""

from __future__ import annotations

import json

import pytest
import trio

from barnabas.cluster.controller.state import PartitionState
from barnabas.cluster.controller.znodes import ControllerMovedError, ControllerZnodes
from barnabas.cluster.metadata.ports import AcceptedState, ElectionType, ProposedState
from barnabas.cluster.metadata.protocol_version import ProtocolVersion
from barnabas.cluster.zookeeper import znodes
from barnabas.errors import RequestError
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.update_metadata import UpdateMetadataRequest
from tests.support.controller_cluster import running


def led(cluster, topic, index=0):
    state = cluster.state(topic, index)
    return None if state is None else state.leader


async def test_first_broker_is_elected_with_kafkas_znodes(autojump_clock):
    async with running(1, 2) as cluster:
        nodes = cluster.zookeeper.dump()
        assert json.loads(nodes["/controller"])["brokerid"] == 1
        assert nodes["/controller_epoch"] == b"1"
        assert json.loads(nodes["/feature"]) == {"version": 2, "status": 1, "features": {}}
        assert cluster.brokers[1].runtime.is_active
        assert not cluster.brokers[2].runtime.is_active
        assert cluster.brokers[2].runtime.controller_id == 1
        assert [broker.controller for broker in cluster.brokers.values()] == [1, 1]


async def test_a_new_topic_gets_leaders_and_all_brokers_know_them(autojump_clock):
    async with running(1, 2, 3) as cluster:
        await cluster.create_topic("t", (2, 3), (3, 1))
        await cluster.until(lambda: all(len(broker.metadata) == 2 for broker in cluster.brokers.values()))
        state = cluster.state("t", 0)
        assert (state.leader, state.isr, state.leader_epoch, state.controller_epoch) == (2, (2, 3), 0, 1)
        assert cluster.brokers[2].believes == {("t", 0): (2, 0, 0)}
        assert cluster.brokers[1].believes == {("t", 1): (3, 0, 0)}
        assert cluster.brokers[1].metadata == {("t", 0): 2, ("t", 1): 3}


async def test_a_topic_without_an_id_gets_one(autojump_clock):
    async with running(1) as cluster:
        topic = znodes.TopicAssignment({0: znodes.ReplicaAssignment((1,))})
        await cluster.admin.create("/brokers/topics/old", znodes.encode_topic(topic, 1))
        await cluster.until(lambda: led(cluster, "old") == 1)
        stored = znodes.decode_topic("old", cluster.zookeeper.dump()["/brokers/topics/old"])
        assert stored.topic_id is not None
        (sent,) = [out.request for out in cluster.sent if isinstance(out.request, LeaderAndIsrRequest)]
        assert sent.topic_states[0].topic_id == stored.topic_id


async def test_lost_leader_is_replaced_and_returns_as_follower(autojump_clock):
    async with running(1, 2, 3) as cluster:
        await cluster.create_topic("t", (2, 3), (3, 2))
        await cluster.until(lambda: led(cluster, "t", 1) == 3)
        cluster.brokers[2].stop(kill=True)
        await cluster.until(lambda: led(cluster, "t", 0) == 3)
        assert [cluster.state("t", index).isr for index in (0, 1)] == [(3,), (3,)]
        await cluster.until(lambda: cluster.brokers[1].brokers == {1, 3})
        back = cluster.start(2)
        await cluster.until(lambda: back.believes.get(("t", 1), (0,))[0] == 3)
        await cluster.until(lambda: all(broker.brokers == {1, 2, 3} for broker in cluster.brokers.values()))
        assert back.metadata == {("t", 0): 3, ("t", 1): 3}
        state = cluster.state("t", 0)
        version = cluster.brokers[3].believes["t", 0][2]
        proposal = ProposedState("t", None, 0, state.leader_epoch, version, ((3, -1), (2, back.epoch)))
        (answer,) = await cluster.ask(
            lambda controller: controller.alter_partitions(3, cluster.brokers[3].epoch, [proposal])
        )
        assert isinstance(answer, AcceptedState)
        assert set(cluster.state("t", 0).isr) == {2, 3}
        results = await cluster.ask(lambda ctl: ctl.elect_leaders(ElectionType.PREFERRED, None, 1000))
        assert {place: error and error.code for place, error in results.items()} == {
            ("t", 0): None,
            ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        }
        assert led(cluster, "t", 0) == 2


async def test_returning_broker_learns_live_brokers_before_leaders(autojump_clock):
    async with running(1, 2, 3) as cluster:
        await cluster.create_topic("t", (2, 3), (3, 2))
        await cluster.until(lambda: led(cluster, "t", 1) == 3)
        cluster.brokers[2].stop(kill=True)
        await cluster.until(lambda: led(cluster, "t", 0) == 3)
        cluster.sent.clear()
        back = cluster.start(2)
        await cluster.until(lambda: back.believes.get(("t", 1), (0,))[0] == 3)
        first = next(out.request for out in cluster.sent if out.broker_id == 2)
        assert isinstance(first, UpdateMetadataRequest)
        assert {broker.id for broker in first.live_brokers} == {1, 2, 3}


async def test_another_broker_is_elected_when_the_controller_is_lost(autojump_clock):
    async with running(1, 2, 3) as cluster:
        await cluster.create_topic("t", (1, 2, 3))
        await cluster.until(lambda: led(cluster, "t") == 1)
        cluster.brokers[1].stop(kill=True)
        await cluster.until(lambda: led(cluster, "t") in (2, 3))
        assert cluster.zookeeper.dump()["/controller_epoch"] == b"2"
        assert cluster.state("t").controller_epoch == 2
        assert cluster.controller.epoch == 2
        await cluster.until(lambda: all(broker.controller_epoch == 2 for broker in cluster.brokers.values()))


async def test_expired_controller_resigns_and_refuses_requests(autojump_clock):
    async with running(1, 2) as cluster:
        first = cluster.brokers[1]
        refused = []

        async def ask():
            with pytest.raises(RequestError) as caught:
                await first.runtime.allocate_producer_ids(1, first.epoch)
            refused.append(caught.value.code)

        cluster.zookeeper.end(first.session.session_id)
        first.session.disconnect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            assert not refused, "the connection may come back"
            first.session.connect_soon()
        assert refused == [ErrorCode.NOT_CONTROLLER]
        assert not first.runtime.is_active or first.runtime.epoch > 1
        await cluster.until(lambda: cluster.controller is not None and cluster.controller.epoch == 2)


async def test_a_zombie_changes_nothing(autojump_clock):
    async with running(1, 2) as cluster:
        await cluster.create_topic("t", (1, 2))
        await cluster.until(lambda: led(cluster, "t") == 1)
        zombie = ControllerZnodes(cluster.admin, LoopBudget(), epoch_version=1)
        await zombie.write_states({})
        cluster.brokers[1].stop()
        await cluster.until(lambda: cluster.controller is not None and led(cluster, "t") == 2)
        before = cluster.zookeeper.dump()
        version = (await cluster.admin.get("/brokers/topics/t/partitions/0/state"))[1].version
        for write in (
            zombie.write_states({("t", 0): PartitionState(1, (1,), 9, 1, version)}),
            zombie.create_states({("t", 1): PartitionState(1, (1,), 0, 1)}),
            zombie.write_topic("t", None, {}),
            zombie.delete_topic("t"),
            zombie.allocate_producer_ids(1, 1000),
        ):
            with pytest.raises(ControllerMovedError):
                await write
        assert cluster.zookeeper.dump() == before


async def test_what_an_old_controller_sends_is_refused(autojump_clock):
    async with running(1, 2) as cluster:
        await cluster.create_topic("t", (1, 2))
        await cluster.until(lambda: led(cluster, "t") == 1)
        old = [out for out in cluster.sent if out.broker_id == 2][-1]
        cluster.brokers[1].stop()
        await cluster.until(lambda: cluster.brokers[2].controller_epoch == 2)
        assert cluster.brokers[2].obey(old).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


async def test_a_topic_is_deleted_when_the_last_replica_is_back(autojump_clock):
    async with running(1, 2, 3) as cluster:
        await cluster.create_topic("t", (2, 3), settings={"retention.ms": "1"})
        await cluster.until(lambda: cluster.brokers[2].disk == cluster.brokers[3].disk == {("t", 0)})
        cluster.brokers[2].stop()
        await cluster.until(lambda: led(cluster, "t") == 3)
        await cluster.delete_topic("t")
        await cluster.until(lambda: not cluster.brokers[3].disk)
        await cluster.until(lambda: not cluster.brokers[1].metadata)
        assert "/brokers/topics/t" in cluster.zookeeper.dump(), "broker 2 has a replica"
        back = cluster.start(2)
        assert back.disk
        await cluster.until(lambda: "/brokers/topics/t" not in cluster.zookeeper.dump())
        assert not back.disk
        assert not [path for path in cluster.zookeeper.dump() if path.endswith("/t")]
        await cluster.create_topic("t", (1, 3))
        await cluster.until(lambda: led(cluster, "t") == 1)


async def test_topics_are_kept_where_deletion_is_off(autojump_clock):
    async with running(1, delete_topic_enable=False) as cluster:
        await cluster.create_topic("t", (1,))
        await cluster.until(lambda: led(cluster, "t") == 1)
        await cluster.delete_topic("t")
        await cluster.until(lambda: "/admin/delete_topics/t" not in cluster.zookeeper.dump())
        assert led(cluster, "t") == 1


async def test_leader_learns_of_an_isr_change_with_a_lost_answer(autojump_clock):
    """Otherwise it would propose to the version before it for ever."""
    async with running(1, 2, 3) as cluster:
        await cluster.create_topic("t", (2, 3))
        leader = cluster.brokers[2]
        await cluster.until(lambda: leader.believes.get(("t", 0), (0,))[0] == 2)
        epoch, version = leader.believes["t", 0][1:]
        next(
            broker for broker in cluster.brokers.values() if broker.runtime is cluster.controller
        ).session.lose_next_answer()
        proposal = ProposedState("t", None, 0, epoch, version, ((2, -1),))
        (answer,) = await cluster.ask(lambda ctl: ctl.alter_partitions(2, leader.epoch, [proposal]))
        assert answer.code == ErrorCode.INVALID_UPDATE_VERSION
        assert cluster.state("t").isr == (2,)
        await cluster.until(lambda: leader.believes["t", 0] == (2, epoch, version + 1))


async def test_a_leader_is_elected_of_who_is_in_sync_by_now(autojump_clock):
    """Before 2.7 leaders write the ISR themselves, and tell the controller of it seconds later."""
    async with running(1, 2, 3) as cluster:
        await cluster.create_topic("t", (2, 3))
        await cluster.until(lambda: led(cluster, "t") == 2)
        cluster.brokers[2].stop(kill=True)
        await cluster.until(lambda: led(cluster, "t") == 3)
        cluster.start(2)
        await cluster.until(lambda: all(broker.brokers == {1, 2, 3} for broker in cluster.brokers.values()))
        state = cluster.state("t")
        assert state.isr == (3,)
        in_sync = znodes.PartitionState(3, state.leader_epoch, (3, 2), state.controller_epoch)
        await cluster.admin.set(znodes.state_path("t", 0), znodes.encode_state(in_sync))
        results = await cluster.ask(lambda ctl: ctl.elect_leaders(ElectionType.PREFERRED, None, 1000))
        assert results == {("t", 0): None}
        assert led(cluster, "t") == 2


async def test_an_unclean_election_is_held_where_the_topic_allows_it(autojump_clock):
    async with running(1, 2, 3) as cluster:
        await cluster.create_topic("careful", (2, 3))
        await cluster.create_topic("careless", (2, 3), settings={"unclean.leader.election.enable": "true"})
        await cluster.until(lambda: led(cluster, "careful") == led(cluster, "careless") == 2)
        cluster.brokers[3].stop()
        await cluster.until(lambda: cluster.state("careful").isr == cluster.state("careless").isr == (2,))
        cluster.start(3)
        await cluster.until(lambda: ("careless", 0) in cluster.brokers[3].believes)
        cluster.brokers[2].stop()
        await cluster.until(lambda: led(cluster, "careless") == 3)
        assert cluster.state("careless").is_recovering
        await cluster.until(lambda: led(cluster, "careful") == -1)
        assert cluster.state("careful").isr == (2,)
        asked = [("careful", 0), ("careful", 7)]
        results = await cluster.ask(lambda ctl: ctl.elect_leaders(ElectionType.PREFERRED, asked, 1000))
        assert [error.code for error in results.values()] == [
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        results = await cluster.ask(lambda ctl: ctl.elect_leaders(ElectionType.UNCLEAN, asked[:1], 1000))
        assert results == {("careful", 0): None}
        assert led(cluster, "careful") == 3


async def test_a_controlled_shutdown_moves_leaders_first(autojump_clock):
    async with running(1, 2, 3) as cluster:
        await cluster.create_topic("t", (2, 3), (3, 2), (2,))
        await cluster.until(lambda: led(cluster, "t", 2) == 2)
        epoch = cluster.brokers[2].epoch
        with pytest.raises(RequestError) as caught:
            await cluster.ask(lambda controller: controller.controlled_shutdown(2, epoch - 1))
        assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
        assert await cluster.ask(lambda controller: controller.controlled_shutdown(2, epoch)) == []
        assert [led(cluster, "t", index) for index in range(3)] == [3, 3, 2]
        assert cluster.state("t", 1).isr == (3,)
        await cluster.until(lambda: ("t", 1) not in cluster.brokers[2].believes)
        assert cluster.brokers[2].disk == {("t", 0), ("t", 1), ("t", 2)}, "stopped, not deleted"


async def test_partitions_are_reassigned_listed_and_cancelled(autojump_clock):
    async with running(1, 2, 3) as cluster:
        await cluster.create_topic("t", (1,), (1,))
        await cluster.until(lambda: led(cluster, "t", 1) == 1)
        results = await cluster.ask(
            lambda controller: controller.alter_reassignments(
                {("t", 0): [2], ("t", 1): [3], ("t", 2): [1], ("u", 0): None}, keeps_factor=False
            )
        )
        assert [error and error.code for error in results.values()] == [None, None, 3, 3]
        moving = await cluster.ask(lambda controller: controller.reassignments(None))
        assert {place: (move.replicas, move.adding, move.removing) for place, move in moving.items()} == {
            ("t", 0): ((2, 1), (2,), (1,)),
            ("t", 1): ((3, 1), (3,), (1,)),
        }
        await cluster.until(
            lambda: ("t", 0) in cluster.brokers[2].disk and ("t", 1) in cluster.brokers[3].disk
        )
        cancelled = await cluster.ask(
            lambda controller: controller.alter_reassignments({("t", 1): None}, keeps_factor=True)
        )
        assert cancelled == {("t", 1): None}
        await cluster.until(lambda: not cluster.brokers[3].disk)
        assert cluster.assignment("t", 1).replicas == (1,)
        leader, epoch, version = cluster.brokers[1].believes["t", 0]
        assert leader == 1
        proposal = ProposedState("t", None, 0, epoch, version, ((1, -1), (2, cluster.brokers[2].epoch)))
        await cluster.ask(lambda ctl: ctl.alter_partitions(1, cluster.brokers[1].epoch, [proposal]))
        await cluster.until(lambda: cluster.assignment("t", 0) == znodes.ReplicaAssignment((2,)))
        await cluster.until(lambda: cluster.brokers[1].disk == {("t", 1)})
        assert led(cluster, "t", 0) == 2
        assert await cluster.ask(lambda controller: controller.reassignments(None)) == {}


async def test_orders_in_znodes_are_obeyed_and_removed(autojump_clock):
    async with running(1, 2) as cluster:
        await cluster.create_topic("t", (1, 2))
        await cluster.until(lambda: led(cluster, "t") == 1)
        cluster.brokers[2].stop()
        await cluster.until(lambda: cluster.state("t").isr == (1,))
        order = znodes.encode_reassignment({("t", 0): (1,), ("gone", 0): (1,)})
        await cluster.admin.create(znodes.REASSIGN_PARTITIONS, order)
        await cluster.until(lambda: znodes.REASSIGN_PARTITIONS not in cluster.zookeeper.dump())
        assert cluster.assignment("t").replicas == (1,)
        election = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
        await cluster.admin.create(znodes.PREFERRED_REPLICA_ELECTION, election)
        await cluster.until(lambda: znodes.PREFERRED_REPLICA_ELECTION not in cluster.zookeeper.dump())
        await cluster.admin.create(znodes.REASSIGN_PARTITIONS, b"{")
        await cluster.until(lambda: znodes.REASSIGN_PARTITIONS not in cluster.zookeeper.dump())


async def test_a_log_dir_that_fails_loses_its_leaders(autojump_clock):
    async with running(1, 2) as cluster:
        await cluster.create_topic("t", (2, 1), (2, 1))
        await cluster.until(lambda: len(cluster.brokers[1].believes) == len(cluster.brokers[2].believes) == 2)
        cluster.brokers[2].broken = {("t", 0)}
        await cluster.admin.create(
            f"{znodes.LOG_DIR_EVENTS}/{znodes.LOG_DIR_EVENT_PREFIX}",
            znodes.encode_log_dir_event(2),
            sequence=True,
        )
        await cluster.until(lambda: led(cluster, "t", 0) == 1)
        assert cluster.state("t", 0).isr == (1,)
        assert led(cluster, "t", 1) == 2
        assert not await cluster.admin.children(znodes.LOG_DIR_EVENTS)


async def test_isr_changes_written_by_old_leaders_are_taken_over(autojump_clock):
    async with running(1, 2) as cluster:
        await cluster.create_topic("t", (1, 2))
        await cluster.until(lambda: led(cluster, "t") == 1)
        path = znodes.state_path("t", 0)
        await cluster.admin.set(path, znodes.encode_state(znodes.PartitionState(1, 0, (1,), 1)))
        await cluster.admin.create(
            f"{znodes.ISR_CHANGES}/{znodes.ISR_CHANGE_PREFIX}",
            znodes.encode_isr_change([("t", 0)]),
            sequence=True,
        )
        await cluster.until(lambda: not cluster.zookeeper.tree.nodes[znodes.ISR_CHANGES].children)
        refused = ProposedState("t", None, 0, 0, 0, ((1, -1), (2, -1)))
        (answer,) = await cluster.ask(
            lambda controller: controller.alter_partitions(1, cluster.brokers[1].epoch, [refused])
        )
        assert answer.code == ErrorCode.INVALID_UPDATE_VERSION


async def test_reassignment_ends_once_its_leader_wrote_the_isr(autojump_clock):
    async with running(1, 2, protocol=ProtocolVersion.parse("2.7-IV1")) as cluster:
        await cluster.create_topic("t", (1,))
        await cluster.until(lambda: led(cluster, "t") == 1)
        await cluster.ask(lambda ctl: ctl.alter_reassignments({("t", 0): [2]}, keeps_factor=False))
        await cluster.until(lambda: ("t", 0) in cluster.brokers[2].disk)
        state = cluster.state("t")
        await cluster.admin.set(
            znodes.state_path("t", 0),
            znodes.encode_state(znodes.PartitionState(1, state.leader_epoch, (1, 2), state.controller_epoch)),
        )
        await cluster.until(lambda: cluster.assignment("t") == znodes.ReplicaAssignment((2,)))
        assert led(cluster, "t") == 2
        assert not await cluster.admin.children(znodes.ISR_CHANGES)


async def test_producer_ids_come_in_blocks_that_nobody_else_gets(autojump_clock):
    async with running(1, 2) as cluster:
        epochs = {id_: broker.epoch for id_, broker in cluster.brokers.items()}
        assert await cluster.ask(lambda ctl: ctl.allocate_producer_ids(1, epochs[1])) == (0, 1000)
        assert await cluster.ask(lambda ctl: ctl.allocate_producer_ids(2, epochs[2])) == (1000, 1000)
        cluster.brokers[1].session.lose_next_answer()
        assert await cluster.ask(lambda ctl: ctl.allocate_producer_ids(2, epochs[2])) == (3000, 1000)
        assert json.loads(cluster.zookeeper.dump()["/latest_producer_id_block"]) == {
            "version": 1, "broker": 2, "block_start": "3000", "block_end": "3999",
        }  # fmt: skip
        for broker_id, epoch, code in (
            (9, 1, ErrorCode.BROKER_ID_NOT_REGISTERED),
            (2, epochs[2] - 1, ErrorCode.STALE_BROKER_EPOCH),
        ):
            with pytest.raises(RequestError) as caught:
                await cluster.ask(lambda ctl, b=broker_id, e=epoch: ctl.allocate_producer_ids(b, e))
            assert caught.value.code == code


async def test_leaders_go_back_to_preferred_replicas_by_themselves(autojump_clock):
    async with running(1, 2, leader_imbalance_check_interval_s=60) as cluster:
        await cluster.create_topic("t", (2, 1))
        await cluster.until(lambda: led(cluster, "t") == 2)
        await cluster.ask(lambda controller: controller.controlled_shutdown(2, cluster.brokers[2].epoch))
        cluster.brokers[2].stop()
        back = cluster.start(2)
        await cluster.until(lambda: ("t", 0) in back.believes)
        _, epoch, version = cluster.brokers[1].believes["t", 0]
        proposal = ProposedState("t", None, 0, epoch, version, ((1, -1), (2, -1)))
        await cluster.ask(lambda ctl: ctl.alter_partitions(1, cluster.brokers[1].epoch, [proposal]))
        assert led(cluster, "t") == 1
        await cluster.until(lambda: led(cluster, "t") == 2)


@pytest.mark.parametrize("lost", ["answer", "request"])
async def test_election_with_a_lost_message_has_one_winner(lost, autojump_clock):
    async with running() as cluster:
        broker = cluster.start(1)
        await cluster.until(lambda: "/brokers/ids/1" in cluster.zookeeper.dump())
        await cluster.until(lambda: cluster.controller is not None)
        broker.stop()
        again = cluster.start(1)
        getattr(again.session, f"lose_next_{lost}")()
        await cluster.until(lambda: cluster.controller is not None)
        assert cluster.zookeeper.dump()["/controller_epoch"] == b"%d" % again.runtime.epoch
        await cluster.create_topic("t", (1,))
        getattr(again.session, f"lose_next_{lost}")()
        await cluster.until(lambda: led(cluster, "t") == 1)
        await cluster.until(lambda: ("t", 0) in again.believes)
