"""Random walks of an active controller: brokers come and go, topics and partitions change; the rules hold at each step.

The model knows sessions, and how far each broker has followed; it predicts registrations, heartbeats and proposals.
"""

from random import Random

from barnabas.errors import RequestError
from barnabas.wire.generated.alter_partition_reassignments import AlterPartitionReassignmentsRequest as Alter
from barnabas.wire.generated.assign_replicas_to_dirs import AssignReplicasToDirsRequest as Assign
from barnabas.wire.generated.create_partitions import CreatePartitionsRequest as Grow
from barnabas.wire.generated.create_topics import CreateTopicsRequest as Create
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest as Delete
from barnabas.wire.generated.elect_leaders import ElectLeadersRequest as Elect
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.unregister_broker import UnregisterBrokerRequest
from tests.support.active_image import ActiveImage, log_dir
from tests.support.controller_rules import Cause, Cluster, check_change, check_image

STEPS = 40
SESSION_MS = 9_000


class Heard:
    """The model's view of a broker's registration."""

    def __init__(self, incarnation, dirs, epoch, offset):
        self.incarnation, self.dirs, self.epoch, self.registered_at = incarnation, dirs, epoch, offset
        self.heard_ms = None
        self.read = self.shutdown_at = -1
        self.lost = set()


class Walk:
    """A walk that its seed decides; see the head of the module."""

    def __init__(self, seed):
        self.random = random = Random(seed)
        level = random.choice([11, 16, 17, 30, 30, 30])
        self.is_unclean, self.min_isr = random.random() < 0.3, random.randint(1, 3)
        self.active = ActiveImage(
            level=level,
            elr=int(level >= 23 and random.random() < 0.6),
            seed=seed,
            min_insync_replicas=self.min_isr,
            unclean_leader_election_enable=str(self.is_unclean).lower(),
            leader_imbalance_check_interval_seconds=10**6,
            unclean_leader_election_interval_ms=10**9,
        )
        self.active.tick()
        self.brokers = {}
        for broker_id in (1, 2, 3):
            self.register(broker_id, 1, 1 + broker_id % 2, False)
            self.beat(broker_id, 0, "", [], False)
        self.create("a", [[1, 2, 3], [2, 1, 3]])

    def run(self):
        """Take all steps. Raises AssertionError where a rule is broken."""
        for _ in range(STEPS):
            self.step()

    def step(self):
        """Do a random action; frequent actions are listed several times."""
        draw = self.random.choice
        broker_id, name, number = draw((1, 2, 3, 4)), draw("ab"), draw((0, 1))
        silent = set(self.random.sample((1, 2, 3, 4), draw((0, 0, 1, 2))))
        target = self._target()
        match self.random.randrange(24):
            case 0 | 1:
                self.register(broker_id, draw((1, 2, 3)), draw((1, 2)), draw((True, False)))
            case 2 | 3 | 4 | 5:
                lost = draw(([], [], [0], [1]))
                asked = draw(("", "", "", "fence", "stop", "stop"))
                self.beat(broker_id, draw((0, 0, 0, 2, 30)), asked, lost, draw((False,) * 9 + (True,)))
            case 6 | 7:
                self.wait(draw((1, 4_500, 9_000, 9_001)), silent)
            case 8 | 9:
                self.hear(silent)
            case 10:
                self.unregister(broker_id, draw((False, True)))
            case 11:
                self.create(name, [target, *([self._target(len(target))] if number else [])])
            case 12:
                self.create_anywhere(name, draw((1, 2, 3)))
            case 13:
                self.delete(name, draw((False, True)))
                self.grow(draw("ab"))
            case 14 | 15 | 16:
                epochs = draw([(0, 0)] * 5 + [(1, 0), (-1, 0), (0, 1), (0, -1)])
                is_current, by_leader = draw((True, True, False)), draw((True,) * 6 + (False,))
                taken, recovery = draw(("all", "some", "some", "any")), draw((0, 0, 0, 1))
                mask = self.random.randrange(16)
                self.propose(name, number, taken, mask, recovery, epochs, is_current, by_leader)
            case 17 | 18:
                self.catch_up(name, number)
            case 19 | 20:
                self.move(name, number, target, silent, draw((False, False, True)))
            case 21:
                self.reassign(name, number, draw((target, None)), draw((True, False)))
                self.shorten(draw("ab"), draw((0, 1)))
            case 22:
                self.elect(name, number, draw((True, False)))
            case 23:
                self.assign(name, number, broker_id, draw((0, 1)))

    def _target(self, count=None):
        return self.random.sample((1, 2, 3, 4), count or self.random.choice((1, 2, 2, 3, 3)))

    # --- asking --------------------------------------------------------------------------------------------------------

    @property
    def cluster(self):
        return Cluster(self.active.image, self.is_unclean, self.min_isr)

    def ask(self, key, request, cause=None, **options):
        """Send a request, and check all changes; returns the response, or the code of a RequestError."""
        count = len(self.active.changes)
        try:
            answer = self.active.ask(key, request, **options)
        except RequestError as error:
            answer = error.code
        self.check(count, cause or Cause())
        return answer

    def check(self, count, cause):
        for change in self.active.changes[count:]:
            if change.kind == "partition" and change.after is not None:
                check_change(change.key, change.before, change.after, self.cluster, cause)
        check_image(self.cluster)

    # --- brokers ------------------------------------------------------------------------------------------------------

    def register(self, broker_id, incarnation, dirs, is_clean):
        before = self.brokers.get(broker_id)
        is_same = before is not None and before.incarnation == incarnation
        if is_same:
            dirs = before.dirs
        count = len(self.active.changes)
        was_fenced = broker_id not in self.active.image.brokers or self.active.image.brokers[broker_id].fenced
        first = self.active.state.next_offset
        lost = before.lost if is_same else ()
        code = self.active.register(
            broker_id,
            incarnation=incarnation,
            log_dirs=[log_dir(broker_id, number) for number in range(dirs) if number not in lost],
            previous=before.epoch if is_clean and before is not None else -1,
        )
        is_unclean = before is None or not is_clean
        self.check(count, Cause(unclean_broker=broker_id if is_unclean and not is_same else None))
        if not is_same and before is not None and self._has_session(before):
            assert code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
            return
        assert code == 0
        broker = self.active.image.brokers[broker_id]
        assert broker.fenced is (was_fenced if is_same else True)
        assert broker.epoch == (before.epoch if is_same else first)
        heard = Heard(incarnation, dirs, broker.epoch, self.active.state.next_offset - 1)
        if is_same:
            heard.heard_ms, heard.lost = before.heard_ms, before.lost
        else:
            for partition in self.active.image.partitions.values():
                assert partition.leader != broker_id
                if is_unclean and self.cluster.has_elr:
                    assert broker_id not in partition.elr
        self.brokers[broker_id] = heard

    def _has_session(self, heard):
        return heard.heard_ms is not None and self.active.state.monotonic_ms - heard.heard_ms <= SESSION_MS

    def beat(self, broker_id, behind, asked, offline, is_late):
        heard = self.brokers.get(broker_id)
        if heard is None or is_late:
            assert (
                self.active.beat(broker_id, epoch=(heard.epoch if heard else 9) - 1)
                == ErrorCode.STALE_BROKER_EPOCH
            )
            return
        if self.cluster.level < 17 or len(heard.lost) + 1 >= heard.dirs:
            offline = []
        heard.lost |= set(offline)
        read = self.active.state.next_offset - 1 - behind
        before = self.active.image.brokers[broker_id]
        leads = any(partition.leader == broker_id for partition in self.active.image.partitions.values())
        count = len(self.active.changes)
        answer = self.active.beat(
            broker_id,
            offset=read,
            fence=asked == "fence",
            stop=asked == "stop",
            offline=[log_dir(broker_id, number) for number in sorted(heard.lost)],
        )
        self.check(count, Cause())
        heard.heard_ms = self.active.state.monotonic_ms
        expected = self._expected(heard, before, asked, read, leads=leads)
        after = self.active.image.brokers[broker_id]
        assert answer.is_caught_up is (read >= heard.registered_at)
        assert answer.should_shut_down is (expected == "shut down")
        assert answer.is_fenced is after.fenced is (expected in ("shut down", "fenced"))
        heard.read = read
        if expected != "shutting down":
            heard.shutdown_at = -1
        elif heard.shutdown_at < 0:
            heard.shutdown_at = self.active.state.next_offset - 1
            assert after.in_controlled_shutdown
        if offline:
            assert log_dir(broker_id, offline[0]) not in after.log_dirs
        if expected == "unfenced" and before.fenced and self.is_unclean:
            leaderless = [
                partition for partition in self.active.image.partitions.values() if partition.leader == -1
            ]
            assert not [partition for partition in leaderless if self.cluster.can_lead(partition, broker_id)]
        if expected in ("shutting down", "shut down") and asked == "stop":
            assert all(partition.leader != broker_id for partition in self.active.image.partitions.values())

    def _expected(self, heard, before, asked, read, *, leads):
        """Return the expected state of a broker after a heartbeat: "fenced", "unfenced", "shutting down" or "shut down"."""
        if before.fenced:
            if asked == "stop":
                return "shut down"
            return "fenced" if asked == "fence" or read < heard.registered_at else "unfenced"
        if heard.shutdown_at >= 0:
            others = [
                self.brokers[broker.id].read
                for broker in self.active.image.brokers.values()
                if not broker.fenced and self.brokers[broker.id].shutdown_at < 0
            ]
            is_read = all(heard.shutdown_at <= offset for offset in others)
            return "shutting down" if leads or not is_read else "shut down"
        if asked == "stop":
            return "shutting down" if leads else "shut down"
        return "fenced" if asked == "fence" else "unfenced"

    def wait(self, ms, silent):
        self.hear(silent)
        self.active.state.monotonic_ms += ms
        count = len(self.active.changes)
        was_fenced = {broker.id: broker.fenced for broker in self.active.image.brokers.values()}
        self.active.tick()
        self.check(count, Cause())
        for broker in self.active.image.brokers.values():
            heard = self.brokers[broker.id]
            ends = heard.heard_ms is not None and not self._has_session(heard)
            assert broker.fenced is (was_fenced[broker.id] or ends)
            if ends:
                heard.heard_ms, heard.shutdown_at = None, -1

    def hear(self, silent):
        """Send a heartbeat of all brokers except `silent` and those in a controlled shutdown."""
        for broker_id, heard in list(self.brokers.items()):
            broker = self.active.image.brokers[broker_id]
            if broker_id not in silent and heard.shutdown_at < 0 and not broker.in_controlled_shutdown:
                self.beat(broker_id, 0, "", [], False)

    def unregister(self, broker_id, is_sure):
        if is_sure:
            answer = self.ask(64, UnregisterBrokerRequest(broker_id))
            assert (answer == ErrorCode.BROKER_ID_NOT_REGISTERED) is (broker_id not in self.brokers)
            self.brokers.pop(broker_id, None)
            assert broker_id not in self.active.image.brokers

    # --- topics -------------------------------------------------------------------------------------------------------

    def create(self, name, assignments):
        width = len(assignments[0])
        entries = [
            Create.CreatableReplicaAssignment(index, replicas) for index, replicas in enumerate(assignments)
        ]
        answer = self.ask(19, Create([Create.CreatableTopic(name, -1, -1, entries)]), version=4)
        code = answer.topics[0].error_code
        if code:
            brokers = set(self.active.image.brokers)
            is_bad = any(len(replicas) != width or not set(replicas) <= brokers for replicas in assignments)
            is_dead = any(not any(map(self.cluster.is_active, replicas)) for replicas in assignments)
            assert is_bad or is_dead or name in self.active.image.topic_ids
        else:
            for index, replicas in enumerate(assignments):
                assert self.active.partition(name, index).replicas == tuple(replicas)
                for broker_id in replicas:
                    self.assign(name, index, broker_id, index % 2)

    def create_anywhere(self, name, factor):
        self.ask(19, Create([Create.CreatableTopic(name, 2, factor)]), version=4)

    def grow(self, name):
        self.ask(37, Grow([Grow.CreatePartitionsTopic(name, 2, None)]))

    def delete(self, name, is_sure):
        if is_sure:
            self.ask(20, Delete(topic_names=[name]), version=5)
            assert name not in self.active.image.topic_ids

    # --- partitions ---------------------------------------------------------------------------------------------------

    def _partition(self, name, number):
        topic_id = self.active.image.topic_ids.get(name)
        return self.active.image.partitions.get((topic_id, number))

    def propose(self, name, number, taken, mask, recovery, epochs, is_current, by_leader):
        before = self._partition(name, number)
        if before is None or before.leader == -1:
            return
        leader = before.leader if by_leader else min(self.brokers, default=0)
        if leader not in self.brokers:
            return
        others = (1, 2, 3, 4) if taken == "any" else before.replicas
        if taken == "all":
            others = [replica for replica in others if self.cluster.is_active(replica)]
        else:
            others = [replica for place, replica in enumerate(others) if mask >> place & 1]
        isr = [leader, *(replica for replica in others if replica != leader)]
        if before.leader_recovery_state and recovery:
            isr = isr[: 1 + mask % 2]
        count = len(self.active.changes)
        states = [(replica, self.brokers[replica].epoch if replica in self.brokers else 0) for replica in isr]
        if not is_current:
            states[-1] = (states[-1][0], states[-1][1] - 1)
        result = self.active.propose(
            name,
            isr,
            number,
            leader=leader,
            leader_epoch=before.leader_epoch + epochs[0],
            partition_epoch=before.partition_epoch + epochs[1],
            leader_recovery_state=recovery,
            broker_epochs=states,
        )
        self.check(count, Cause(proposed=tuple(isr)))
        after = self._partition(name, number)
        expected = self._refusal(before, leader, states, epochs, recovery)
        if expected:
            assert result.error_code == expected
            assert after == before
        elif after.leader != leader:
            assert result.error_code == ErrorCode.NEW_LEADER_ELECTED
        else:
            assert result.error_code == 0
            told = (result.isr, result.leader_epoch, result.partition_epoch, result.leader_recovery_state)
            assert told == (
                list(after.isr),
                after.leader_epoch,
                after.partition_epoch,
                after.leader_recovery_state,
            )
            assert set(after.isr) == set(isr) & set(after.replicas)
            assert after.leader_recovery_state == recovery

    def _refusal(self, before, leader, states, epochs, recovery):
        if 1 in epochs:
            return ErrorCode.NOT_CONTROLLER
        if epochs[0] < 0:
            return ErrorCode.FENCED_LEADER_EPOCH
        if leader != before.leader:
            return ErrorCode.INVALID_REQUEST
        if epochs[1] < 0:
            return ErrorCode.INVALID_UPDATE_VERSION
        if not {replica for replica, _ in states} <= set(before.replicas):
            return ErrorCode.INVALID_REQUEST
        if recovery and (len(states) > 1 or not before.leader_recovery_state):
            return ErrorCode.INVALID_REQUEST
        epochs_now = {
            replica: heard.epoch for replica, heard in self.brokers.items() if self.cluster.is_active(replica)
        }
        return (
            0
            if all(epochs_now.get(replica) == epoch for replica, epoch in states)
            else ErrorCode.INELIGIBLE_REPLICA
        )

    def catch_up(self, name, number):
        """Have the leader add all live replicas to the ISR."""
        self.propose(name, number, "all", 0, 0, (0, 0), True, True)

    def move(self, name, number, replicas, silent, is_cancelled):
        """Reassign a partition, and let its replicas catch up, or cancel the reassignment."""
        self.reassign(name, number, replicas, False)
        if is_cancelled:
            self.reassign(name, number, None, False)
        self.hear(silent)
        self.catch_up(name, number)

    def shorten(self, name, number):
        """Remove replicas of a partition while some of the others are out of sync."""
        partition = self._partition(name, number)
        if partition is not None and len(partition.replicas) > 1:
            self.propose(name, number, "some", self.random.randrange(16), 0, (0, 0), True, True)
            stays = self.random.sample(partition.replicas, len(partition.replicas) - 1)
            self.reassign(name, number, stays, False)

    def reassign(self, name, number, replicas, keeps_factor):
        before = self._partition(name, number)
        target = replicas
        entry = Alter.ReassignablePartition(number, target)
        topics = [Alter.ReassignableTopic(name, [entry])]
        answer = self.ask(45, Alter(allow_replication_factor_change=not keeps_factor, topics=topics))
        code = answer.responses[0].partitions[0].error_code
        after = self._partition(name, number)
        if before is None:
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif target is None:
            assert (code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS) is not (before.adding or before.removing)
            if not code:
                assert set(after.replicas) == set(before.replicas) - set(before.adding)
                assert (after.adding, after.removing) == ((), ())
                in_sync = tuple(replica for replica in before.isr if replica not in before.adding)
                assert after.isr == in_sync or (not in_sync and self.is_unclean and len(after.isr) == 1)
        elif code:
            is_factor = keeps_factor and len(target) != len(set(before.replicas) - set(before.removing))
            assert is_factor or not set(target) <= set(self.brokers)
            assert after == before
        else:
            assert [replica for replica in after.replicas if replica not in after.removing] == target
            assert set(after.removing) in (set(), set(before.replicas) - set(target))
            adding = (set(target) - set(before.replicas)) | (set(before.adding) & set(target))
            assert set(after.adding) == adding or (not after.adding and adding <= set(after.isr))

    def elect(self, name, number, is_unclean):
        before = self._partition(name, number)
        request = Elect(int(is_unclean), [Elect.TopicPartitions(name, [number])])
        cause = Cause(is_preferred=not is_unclean, is_unclean_election=is_unclean)
        answer = self.ask(43, request, cause)
        code = answer.replica_election_results[0].partition_result[0].error_code
        after = self._partition(name, number)
        if before is None:
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif code:
            assert after == before
            is_needless = before.leader != -1 if is_unclean else before.leader == before.replicas[0]
            assert (code == ErrorCode.ELECTION_NOT_NEEDED) is is_needless
            first = before.replicas[0]
            if is_unclean and not is_needless:
                assert not any(self.cluster.can_lead(before, replica) for replica in before.replicas)
            elif not is_needless:
                assert first not in before.isr or not self.cluster.can_lead(before, first)
        else:
            assert before.leader == -1 if is_unclean else before.leader != before.replicas[0]
            assert after != before

    def assign(self, name, number, broker_id, directory):
        before = self._partition(name, number)
        if before is None or broker_id not in self.brokers or self.cluster.level < 17:
            return
        held = dict(zip(before.replicas, before.directories, strict=True)).get(broker_id)
        if held is not None and held[:15] != bytes(15):
            return
        topic = Assign.TopicData(self.active.image.topic_ids[name], [Assign.PartitionData(number)])
        directory_id = log_dir(broker_id, directory)
        request = Assign(
            broker_id, self.brokers[broker_id].epoch, [Assign.DirectoryData(directory_id, [topic])]
        )
        answer = self.ask(73, request, Cause(assigned={broker_id: directory_id}))
        code = answer.directories[0].topics[0].partitions[0].error_code
        assert (code == 0) is (held is not None)
        if not code:
            after = self._partition(name, number)
            assert after.directories[after.replicas.index(broker_id)] == directory_id
            if directory_id not in self.active.image.brokers[broker_id].log_dirs:
                assert broker_id != after.leader


def broken(seeds):
    """Return the first seed with a walk that breaks a rule, None if there is none."""
    for seed in seeds:
        try:
            Walk(seed).run()
        except AssertionError:
            return seed
    return None
