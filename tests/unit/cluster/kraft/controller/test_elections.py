"""ElectLeaders, leaders that return to their first replicas, reassignments of partitions."""

import pytest

from barnabas.cluster.kraft.controller import elections
from barnabas.cluster.kraft.controller.outcome import at_once
from barnabas.wire.generated.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.wire.generated.elect_leaders import ElectLeadersRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.support.active_image import ActiveImage, log_dir

Alter = AlterPartitionReassignmentsRequest
List = ListPartitionReassignmentsRequest
PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def active():
    active = ActiveImage().start(1, 2, 3, 4, 5)
    active.create("t", (1, 2, 3))
    return active


def elect(active, election, *partitions, **options):
    """Return the codes by topic and partition; without partitions, those of an election for all."""
    asked = [ElectLeadersRequest.TopicPartitions(name, [index]) for name, index in partitions] or None
    response = active.ask(43, ElectLeadersRequest(election, asked), **options)
    return {
        (topic.topic, result.partition_id): result.error_code
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


def back_again(active, broker_id):
    """Have a broker fenced, come back and join the ISR."""
    active.stop_hearing(broker_id)
    active.beat(broker_id)
    partition = active.partition("t")
    active.propose("t", sorted({*partition.isr, broker_id}))


# --- elections that are asked for -----------------------------------------------------------------------------------


def test_preferred_election_makes_the_first_replica_lead(active):
    back_again(active, 1)
    assert active.partition("t").leader == 2
    assert elect(active, PREFERRED, ("t", 0)) == {("t", 0): 0}
    partition = active.partition("t")
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1, 2, 3), 2)
    assert elect(active, PREFERRED, ("t", 0)) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}


def test_preferred_election_of_a_replica_out_of_sync_is_refused(active):
    active.stop_hearing(1)
    assert elect(active, PREFERRED, ("t", 0)) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    active.beat(1)
    assert elect(active, PREFERRED, ("t", 0)) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_unclean_election_is_only_for_leaderless_partitions(active):
    assert elect(active, UNCLEAN, ("t", 0)) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
    active.propose("t", (1,))
    active.stop_hearing(1)
    assert elect(active, UNCLEAN, ("t", 0)) == {("t", 0): 0}
    partition = active.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), 1)


def test_unclean_election_without_any_replica_is_refused(active):
    active.tick(9_001)
    assert elect(active, UNCLEAN, ("t", 0)) == {("t", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_election_for_all_tells_only_what_was_needed(active):
    active.create("u", (2, 1))
    back_again(active, 1)
    assert elect(active, PREFERRED) == {("t", 0): 0}


def test_election_of_what_is_not_there_is_refused(active):
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(active, PREFERRED, ("t", 5), ("u", 0)) == {("t", 5): unknown, ("u", 0): unknown}
    assert active.code(43, ElectLeadersRequest(2, [])) == ErrorCode.INVALID_REQUEST
    denied = active.code(43, ElectLeadersRequest(0, []), may=lambda *_: False)
    assert denied == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# --- by time --------------------------------------------------------------------------------------------------------


def wait(active, ms):
    """Let time pass in which all brokers are heard of."""
    while ms > 0:
        for broker in active.image.brokers.values():
            active.beat(broker.id)
        active.tick(min(ms, 5_000))
        ms -= 5_000


def test_leaders_return_to_their_first_replicas():
    active = ActiveImage(leader_imbalance_check_interval_seconds=60).start(1, 2)
    active.create("t", (1, 2))
    active.tick()
    back_again(active, 1)
    wait(active, 40_000)
    assert active.partition("t").leader == 2
    wait(active, 20_000)
    assert active.partition("t")[1:3] == ((1, 2), 1)


def test_leaders_stay_where_they_are_not_balanced():
    active = ActiveImage(auto_leader_rebalance_enable="false", leader_imbalance_check_interval_seconds=1)
    active.start(1, 2).create("t", (1, 2))
    back_again(active, 1)
    wait(active, 10_000)
    assert active.partition("t").leader == 2


def test_leaders_return_so_many_at_once():
    active = ActiveImage(leader_imbalance_check_interval_seconds=20, seed=1).start(1, 2)
    active.create("t", *[(1, 2)] * 1_500)
    active.tick()
    active.stop_hearing(2)
    active.beat(2)
    keys = [(active.key("t")[0], index) for index in range(1_500)]
    from barnabas.wire.generated.metadata_records.partition_change import PartitionChangeRecord

    active.apply([PartitionChangeRecord(index, topic_id, isr=[1, 2], leader=2) for topic_id, index in keys])
    active.state.monotonic_ms += 20_000
    sizes = []
    while records := at_once(elections.balance(active.state)):
        active.apply(records)
        sizes.append(len(records))
    assert sizes == [1_000, 500]


def test_leaderless_partitions_get_any_leader_where_allowed(active):
    active.create("u", (1, 2, 3))
    active.propose("t", (1,))
    active.propose("u", (1,))
    active.stop_hearing(1)
    active.tick()
    active.set("unclean.leader.election.enable", "true", (2, "t"))
    for _ in range(70):
        for broker_id in (2, 3, 4, 5):
            active.beat(broker_id)
        active.tick(5_000)
    assert active.partition("t")[1:3] == ((2,), 2)
    assert active.partition("u")[1:3] == ((1,), -1)


# --- reassignments --------------------------------------------------------------------------------------------------


def reassign(active, replicas, *, name="t", number=0, keeps_factor=False, **options):
    """Return the code of a reassignment."""
    partition = Alter.ReassignablePartition(number, None if replicas is None else list(replicas))
    request = Alter(
        allow_replication_factor_change=not keeps_factor, topics=[Alter.ReassignableTopic(name, [partition])]
    )
    return active.ask(45, request, **options).responses[0].partitions[0].error_code


def ongoing(active, *partitions):
    """Return (topic, partition, replicas, adding, removing) of what is being reassigned."""
    topics = [List.ListPartitionReassignmentsTopics(name, [index]) for name, index in partitions] or None
    return [
        (topic.name, move.partition_index, move.replicas, move.adding_replicas, move.removing_replicas)
        for topic in active.ask(46, List(topics=topics)).topics
        for move in topic.partitions
    ]


def test_reassignment_ends_when_all_that_were_added_are_in_sync(active):
    assert reassign(active, (4, 5, 3)) == 0
    partition = active.partition("t")
    assert partition.replicas == (4, 5, 3, 1, 2)
    assert (partition.adding, partition.removing) == ((4, 5), (1, 2))
    assert (partition.isr, partition.leader, partition.leader_epoch) == ((1, 2, 3), 1, 0)
    assert partition.directories[:2] == (log_dir(4), log_dir(5))
    expected = [("t", 0, [4, 5, 3, 1, 2], [4, 5], [1, 2])]
    assert ongoing(active) == ongoing(active, ("t", 0), ("t", 1), ("u", 0)) == expected
    assert active.propose("t", (1, 2, 3, 4)).error_code == 0
    assert active.propose("t", (1, 2, 3, 4, 5)).error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = active.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((4, 5, 3), (3, 4, 5), 4)
    assert (partition.adding, partition.removing, partition.leader_epoch) == ((), (), 1)
    assert partition.directories == (log_dir(4), log_dir(5), log_dir(3))
    assert ongoing(active) == []


def test_reassignment_that_keeps_the_leader_begins_an_epoch(active):
    reassign(active, (1, 4))
    result = active.propose("t", (1, 2, 3, 4))
    assert (result.error_code, result.leader_id, result.isr, result.leader_epoch) == (0, 1, [1, 4], 1)
    assert active.partition("t").replicas == (1, 4)


def test_reassignment_that_only_reorders_ends_at_once(active):
    assert reassign(active, (3, 2, 1)) == 0
    partition = active.partition("t")
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ((3, 2, 1), 1, 0)
    assert partition.directories == (log_dir(3), log_dir(2), log_dir(1))
    assert ongoing(active) == []


def test_reassignment_to_fewer_waits_for_all_that_stay(active):
    active.propose("t", (1, 2))
    assert reassign(active, (2, 3)) == 0
    assert ongoing(active) == [("t", 0, [2, 3, 1], [], [1])]
    assert active.propose("t", (1, 2, 3)).error_code == ErrorCode.NEW_LEADER_ELECTED
    assert active.partition("t")[:3] == ((2, 3), (2, 3), 2)


def test_reassignment_can_be_asked_for_again(active):
    reassign(active, (4, 2, 3))
    assert reassign(active, (4, 2, 3)) == 0
    assert active.records == ()


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ((1, 2, 3), ((1, 2, 3), (), ())),
        ((5, 2, 3), ((5, 2, 3, 1, 4), (5,), (1, 4))),
        ((4, 1, 3), ((4, 1, 3, 2), (4,), (2,))),
        ((4, 5, 3), ((4, 5, 3, 1, 2), (4, 5), (1, 2))),
    ],
)
def test_reassignment_replaces_the_one_in_progress(active, target, expected):
    reassign(active, (4, 2, 3))
    assert reassign(active, target) == 0
    partition = active.partition("t")
    assert (partition.replicas, partition.adding, partition.removing) == expected


def test_reassignment_can_be_cancelled(active):
    assert reassign(active, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    reassign(active, (4, 5, 1))
    active.propose("t", (1, 2, 3, 4))
    assert reassign(active, None) == 0
    partition = active.partition("t")
    assert set(partition.replicas) == {1, 2, 3}
    assert (partition.isr, partition.adding, partition.removing) == ((1, 2, 3), (), ())
    assert partition.leader_epoch == 1, "a replica has gone"


@pytest.mark.parametrize(
    ("is_allowed", "expected"), [(False, ErrorCode.INVALID_REPLICA_ASSIGNMENT), (True, 0)]
)
def test_cancellation_does_not_lose_records_unless_allowed(active, is_allowed, expected):
    reassign(active, (4, 5, 1))
    active.propose("t", (1, 4))
    active.stop_hearing(1)
    assert active.partition("t")[1:3] == ((4,), 4)
    if is_allowed:
        active.set("unclean.leader.election.enable", "true")
        active.beat(1)
    assert reassign(active, None) == expected
    partition = active.partition("t")
    assert (partition.leader, partition.leader_recovery_state) == ((1, 1) if is_allowed else (4, 0))


def test_cancellation_without_a_replica_that_can_lead_is_refused(active):
    active.set("unclean.leader.election.enable", "true")
    reassign(active, (4, 5, 1))
    active.propose("t", (1, 4))
    active.stop_hearing(1, 2, 3)
    assert reassign(active, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert active.partition("t").leader == 4


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        ((1, 2, 4, 5), ErrorCode.INVALID_REPLICATION_FACTOR),
        ((1, 2, 4), ErrorCode.NONE),
    ],
)
def test_reassignment_must_be_possible(active, replicas, expected):
    assert reassign(active, replicas, keeps_factor=True) == expected


def test_reassignment_in_progress_counts_its_target_as_factor(active):
    reassign(active, (1, 4))
    assert reassign(active, (1, 5), keeps_factor=True) == 0


def test_reassignment_of_what_is_not_there_is_refused(active):
    assert reassign(active, (1,), number=4) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(active, (1,), name="u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert active.ask(45, Alter(topics=[])).error_message == ""
    denied = active.code(45, Alter(topics=[]), may=lambda *_: False)
    assert denied == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_reassignment_leaves_no_eligible_replica_that_is_none():
    active = ActiveImage(elr=1, min_insync_replicas=3).start(1, 2, 3, 4)
    active.create("t", (1, 2, 3))
    active.propose("t", (1, 3))
    assert active.partition("t").elr == (2,)
    reassign(active, (1, 4, 3))
    active.propose("t", (1, 3, 4))
    partition = active.partition("t")
    assert (partition.replicas, partition.elr) == ((1, 4, 3), ())


def test_reassignment_ends_when_the_last_that_goes_is_fenced(active):
    active.propose("t", (1, 2))
    reassign(active, (2, 3))
    active.propose("t", (1, 2))
    active.stop_hearing(1)
    partition = active.partition("t")
    assert (partition.isr, partition.leader, partition.removing) == ((2,), 2, (1,)), "3 is not in sync"
