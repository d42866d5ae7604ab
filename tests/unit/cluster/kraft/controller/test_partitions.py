"""AlterPartition at the active controller, eligible leader replicas, and log dirs of replicas."""

import pytest

from barnabas.cluster.kraft.values import UNASSIGNED
from barnabas.wire.generated.alter_partition import AlterPartitionRequest
from barnabas.wire.generated.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata_records.partition_change import PartitionChangeRecord
from barnabas.wire.generated.unregister_broker import UnregisterBrokerRequest
from tests.support.active_image import ActiveImage, log_dir

Assign = AssignReplicasToDirsRequest


@pytest.fixture
def active():
    active = ActiveImage().start(1, 2, 3, 4)
    active.create("t", (1, 2, 3))
    return active


# --- proposals of the leader ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_proposed_isr_is_taken(active, version):
    result = active.propose("t", (1, 3), version=version)
    assert (result.error_code, result.leader_id, result.isr) == (0, 1, [1, 3])
    assert (result.leader_epoch, result.partition_epoch, result.leader_recovery_state) == (0, 1, 0)
    partition = active.partition("t")
    assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ((1, 3), 0, 1)
    assert active.propose("t", (1, 2, 3), version=version).isr == [1, 2, 3]


def test_proposed_isr_that_is_the_isr_changes_nothing(active):
    result = active.propose("t", (1, 2, 3))
    assert (result.error_code, result.partition_epoch) == (0, 0)
    assert active.records == ()


@pytest.mark.parametrize(("level", "epoch"), [(11, 1), (12, 0)])
def test_shrunk_isr_begins_a_leader_epoch_before_its_level(level, epoch):
    active = ActiveImage(level=level).start(1, 2)
    active.create("t", (1, 2))
    assert active.propose("t", (1,)).leader_epoch == epoch
    assert active.propose("t", (1, 2)).leader_epoch == epoch, "it has grown"


@pytest.mark.parametrize(
    ("isr", "fields", "expected"),
    [
        ((1,), {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ((1,), {"partition_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ((1,), {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ((1,), {"leader": 2}, ErrorCode.INVALID_REQUEST),
        ((1, 4), {}, ErrorCode.INVALID_REQUEST),
        ((1, 2, 2), {}, ErrorCode.INVALID_REQUEST),
        ((2, 3), {}, ErrorCode.INVALID_REQUEST),
        ((), {}, ErrorCode.INVALID_REQUEST),
        ((1,), {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ((1,), {"leader_recovery_state": 2}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {}, ErrorCode.NONE),
    ],
)
def test_proposal_that_does_not_fit_is_refused(active, isr, fields, expected):
    active.propose("t", (1, 2))
    assert active.propose("t", isr, **fields).error_code == expected
    assert active.records == ()


def test_proposal_of_an_earlier_leader_epoch_is_refused(active):
    active.stop_hearing(1)
    assert active.propose("t", (2,), leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_proposals_for_unknown_partitions_are_refused(active):
    topic_id, _ = active.key("t")
    topics = [
        AlterPartitionRequest.TopicData(unknown, partitions=[AlterPartitionRequest.PartitionData(index)])
        for unknown, index in ((topic_id, 1), (b"x" * 16, 0), (bytes(16), 0))
    ]
    request = AlterPartitionRequest(1, active.image.brokers[1].epoch, topics)
    codes = [topic.partitions[0].error_code for topic in active.ask(56, request).topics]
    unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID]
    assert codes == unknown


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, 0), (9, 0)])
def test_proposals_of_an_unknown_broker_are_refused(active, broker_id, epoch):
    topics = [AlterPartitionRequest.TopicData(active.key("t")[0])]
    assert active.code(56, AlterPartitionRequest(broker_id, epoch, topics)) == ErrorCode.STALE_BROKER_EPOCH
    assert active.code(56, AlterPartitionRequest(broker_id, epoch)) == 0, "there is nothing to refuse"


def test_proposal_with_a_broker_that_is_gone_is_refused(active):
    active.stop_hearing(2)
    assert active.propose("t", (1, 2)).error_code == ErrorCode.INELIGIBLE_REPLICA
    active.ask(64, UnregisterBrokerRequest(2))
    assert active.propose("t", (1, 2)).error_code == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize(
    ("version", "epoch", "expected"),
    [(3, 0, ErrorCode.INELIGIBLE_REPLICA), (3, -1, ErrorCode.NONE), (2, 0, ErrorCode.NONE)],
)
def test_proposal_with_an_earlier_broker_epoch_is_refused(active, version, epoch, expected):
    states = [AlterPartitionRequest.BrokerState(1, -1), AlterPartitionRequest.BrokerState(2, epoch)]
    result = active.propose("t", (1, 2), version=version, new_isr_with_epochs=states)
    assert result.error_code == expected


def test_partition_proposed_twice_changes_once(active):
    partition = AlterPartitionRequest.PartitionData(
        partition_index=0, new_isr_with_epochs=[AlterPartitionRequest.BrokerState(1, -1)]
    )
    topic = AlterPartitionRequest.TopicData(active.key("t")[0], partitions=[partition, partition])
    request = AlterPartitionRequest(1, active.image.brokers[1].epoch, [topic])
    first, second = active.ask(56, request, version=3).topics[0].partitions
    assert (first.error_code, second.error_code) == (0, ErrorCode.INVALID_UPDATE_VERSION)


def test_leader_recovers_after_an_unclean_election(active):
    active.set("unclean.leader.election.enable", "true", (2, "t"))
    active.propose("t", (1,))
    active.stop_hearing(1)
    partition = active.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), 1)
    two = active.propose("t", (2, 3), leader_recovery_state=1)
    assert two.error_code == ErrorCode.INVALID_REQUEST, "not before it has recovered"
    assert active.propose("t", (2,), leader_recovery_state=0).leader_recovery_state == 0
    assert active.propose("t", (2, 3)).isr == [2, 3]


# --- brokers that go and come ---------------------------------------------------------------------------------------


def test_last_replica_in_sync_stays_in_the_isr_without_elr(active):
    active.propose("t", (1,))
    active.stop_hearing(1)
    partition = active.partition("t")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (-1, (1,), (), ())


def test_unclean_election_is_forbidden_by_default(active):
    active.propose("t", (1,))
    active.stop_hearing(1)
    active.set("unclean.leader.election.enable", "TRUE")
    active.set("unclean.leader.election.enable", "false", (4, "9"))
    assert active.tick(300_000) > 0
    assert active.partition("t").leader == -1
    active.set("unclean.leader.election.enable", "true", (2, "t"))
    active.beat(3)
    assert active.partition("t").leader == 3, "of those that come back"


def test_unclean_election_follows_the_file_of_the_node():
    active = ActiveImage(unclean_leader_election_enable="true").start(1, 2)
    active.create("t", (1, 2))
    active.propose("t", (1,))
    active.stop_hearing(1)
    assert active.partition("t")[1:3] == ((2,), 2)


def test_eligible_replicas_are_kept_while_the_isr_is_too_small():
    active = ActiveImage(elr=1, min_insync_replicas=2).start(1, 2, 3)
    active.create("t", (1, 2, 3))
    active.stop_hearing(3)
    assert active.partition("t").elr == (), "two are enough"
    active.stop_hearing(2)
    assert active.partition("t")[1:3] == ((1,), 1)
    assert active.partition("t").elr == (2,)
    active.stop_hearing(1)
    partition = active.partition("t")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (
        -1,
        (),
        (1, 2),
        (1,),
    )
    active.beat(3)
    assert active.partition("t").leader == -1, "it may lack records"
    active.beat(2)
    partition = active.partition("t")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (2, (2,), (1,), ())
    assert partition.leader_recovery_state == 0
    active.propose("t", (2, 3))
    assert active.partition("t").elr == ()


def test_eligible_replicas_are_those_of_the_topics_own_minimum():
    active = ActiveImage(elr=1).start(1, 2)
    active.create("t", (1, 2), configs={"min.insync.replicas": "9"})
    active.create("u", (1, 2))
    for name in "tu":
        active.propose(name, (1,))
    assert (active.partition("t").elr, active.partition("u").elr) == ((2,), ()), "at most all replicas"


def test_eligible_replicas_go_with_an_unclean_election():
    active = ActiveImage(elr=1, min_insync_replicas=2, unclean_leader_election_enable="true").start(1, 2, 3)
    active.create("t", (1, 2, 3))
    active.propose("t", (1, 2))
    active.apply([PartitionChangeRecord(0, active.key("t")[0], isr=[1], eligible_leader_replicas=[2])])
    active.stop_hearing(2)
    active.stop_hearing(1)
    partition = active.partition("t")
    assert (partition.leader, partition.isr, partition.elr, partition.leader_recovery_state) == (
        3,
        (3,),
        (),
        1,
    )


def test_unregistered_broker_stays_eligible_until_it_starts_anew():
    active = ActiveImage(elr=1).start(1)
    active.create("t", (1,))
    active.ask(64, UnregisterBrokerRequest(1))
    assert active.partition("t").elr == (1,)
    active.register(1, incarnation=2)
    assert active.partition("t").elr == ()


# --- log dirs of replicas -------------------------------------------------------------------------------------------


def assign(active, broker_id, directory, *partitions, epoch=None):
    """Return the code of the answer, or those of the partitions."""
    topics = [Assign.TopicData(topic_id, [Assign.PartitionData(index)]) for topic_id, index in partitions]
    epoch = active.image.brokers[broker_id].epoch if epoch is None else epoch
    request = Assign(broker_id, epoch, [Assign.DirectoryData(directory, topics)])
    return [topic.partitions[0].error_code for topic in active.ask(73, request).directories[0].topics]


def test_replica_is_assigned_to_a_log_dir():
    active = ActiveImage().start(1, 2, dirs=2)
    active.create("t", (1, 2))
    assert assign(active, 2, log_dir(2, 1), active.key("t")) == [0]
    partition = active.partition("t")
    assert partition.directories == (UNASSIGNED, log_dir(2, 1))
    assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ((1, 2), 0, 1)
    assert assign(active, 2, log_dir(2, 1), active.key("t")) == [0]
    assert active.records == ()


def test_replica_in_a_dir_that_is_offline_is_lost():
    active = ActiveImage().start(1, 2, dirs=2)
    active.create("t", (1, 2))
    active.beat(1, offline=[log_dir(1, 1)])
    assert active.partition("t").leader == 1, "it is not known to be there"
    assert assign(active, 1, log_dir(1, 1), active.key("t")) == [0]
    partition = active.partition("t")
    assert (partition.leader, partition.isr) == (2, (2,))
    assert partition.directories[0] == log_dir(1, 1)


def test_replica_that_is_none_is_not_assigned(active):
    topic_id, _ = active.key("t")
    codes = assign(active, 4, log_dir(4), (topic_id, 0), (topic_id, 7), (b"x" * 16, 0))
    assert codes == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    assert active.code(73, Assign(4, 0)) == ErrorCode.STALE_BROKER_EPOCH


def test_replicas_before_log_dirs_have_ids_are_not_assigned():
    active = ActiveImage(level=16).start(1)
    assert active.code(73, Assign(1, active.image.brokers[1].epoch)) == ErrorCode.UNSUPPORTED_VERSION


def test_replicas_have_log_dirs_from_their_level_on():
    active = ActiveImage(level=17).start(1)
    active.create("t", (1,))
    assert active.partition("t").directories == (log_dir(1),)
