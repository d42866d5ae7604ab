"""A partition on three brokers and its controller, with messages late, lost or repeated: the model says each answer.

Logs are real, on disks in memory; fetches go through the handler, proposals of in-sync replicas as requests to the rules of
the controller. What a broker knows is compared after every step. `replica_slips` are slips that the comparison must notice.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from barnabas.cluster.controller import in_sync
from barnabas.cluster.controller.state import PartitionState
from barnabas.cluster.metadata.changes import BrokerRegistered, TopicCreated
from barnabas.cluster.metadata.image import BrokerInfo, ClusterImage, PartitionInfo, TopicInfo
from barnabas.cluster.metadata.ports import AcceptedState
from barnabas.cluster.replicas.alter_partition import RemoteAlterPartition
from barnabas.cluster.replicas.following import Fetched, FollowerLog
from barnabas.cluster.replicas.in_sync import LocalAlterPartition
from barnabas.cluster.replication.follower import EpochEnd
from barnabas.cluster.replication.leader import IsrChange
from barnabas.errors import RequestError
from barnabas.handlers import alter_partition
from barnabas.wire.generated.alter_partition import AlterPartitionResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from tests.models import replication as model
from tests.models.replication import BROKERS, LAG_MAX_MS, Controller, Proposal, State
from tests.support.at_once import LocalMetadata, NoThreads, at_once, no_turns
from tests.support.controller_world import world_with_one_partition
from tests.support.effort import examples
from tests.support.fetch_at_once import batches_in, fetch_at_once
from tests.support.logs import NOW_MS, TOPIC_ID, content_of
from tests.support.outcomes import are_answers, outcome
from tests.support.replicas import TOPIC, Node
from tests.support.slips import unnoticed

from .replica_slips import SLIPS

KEY = (TOPIC, 0)
BROKER = st.sampled_from(BROKERS)
LEADER = 0
"""The leader by the controller's state."""
MOSTLY_LEADER = st.sampled_from([*BROKERS, *[LEADER] * 6])
LATER_MS = st.sampled_from([0, 1, 60, LAG_MAX_MS, LAG_MAX_MS + 1])
RATHER, RARELY = st.sampled_from([True, True, True, False]), st.sampled_from([False, False, True])
ANY_ISR = st.frozensets(st.sampled_from([*BROKERS * 3, 4]), min_size=2, max_size=3)
OFF_BY = st.sampled_from([0] * 8 + [-1, 1])


class Sent:
    """A proposal on its way: as the code has made it, and as the model has."""

    def __init__(self, broker: int, replica, change: IsrChange, proposal: Proposal) -> None:
        self.broker, self.replica, self.change, self.proposal = broker, replica, change, proposal
        self.answer: tuple[AlterPartitionResponse.PartitionData | None, State | str] | None = None


class Histories(RuleBasedStateMachine):
    """Each broker hears of the controller's decisions when the rule `learn` says so."""

    @initialize(
        min_isr=st.sampled_from([1, 1, 2, 2, 3, 4]), is_fair=st.booleans(),
        segment_bytes=st.sampled_from([200, 1 << 20, 1 << 20]), is_local=RARELY,
    )  # fmt: skip
    def begin(self, min_isr: int, is_fair: bool, segment_bytes: int, is_local: bool) -> None:
        """`is_fair`: no request lies, only replicas in sync are elected; `is_local`: decided as a single broker does."""
        self.is_local, self.is_fair = is_local, is_fair
        self.has_small_segments = segment_bytes < 1 << 20
        self.committed: list[model.Batch] = []
        self.now, self.number, self.history = 1_000, 0, [State()]
        self.budget = no_turns()
        self.controller = Controller()
        self.world = world_with_one_partition(TOPIC, TOPIC_ID, BROKERS)
        self.world.joins, self.world.is_clean = True, False
        self.controller.epochs = {id_: it.info.epoch for id_, it in self.world.brokers.items()}
        self.replicas = {id_: model.Replica(id_, min_isr) for id_ in BROKERS}
        options = {"min_insync_replicas": min_isr, "segment_bytes": segment_bytes}
        self.nodes = {id_: Node(id_, threads=NoThreads(), budget=self.budget, **options) for id_ in BROKERS}
        self.wait(0)
        self.followers: dict[int, FollowerLog] = {}
        self.sent: list[Sent] = []
        self.waiting: list[tuple[int, int]] = []  # brokers, and ends of what was appended with acks=all
        self.broker_epochs = dict(self.controller.epochs)
        self.state_of_world()
        for broker in BROKERS:
            self.hear_of_topic(broker)

    def state_of_world(self) -> None:
        """Compare the controller's state with the model's."""
        state = self.world.core.state.states[KEY]
        assert state == self.world.states[KEY]
        isr = frozenset(state.isr)
        assert self.controller.state == State(state.leader, isr, state.leader_epoch, state.version)
        if self.history[-1] != self.controller.state:
            self.history.append(self.controller.state)

    def info(self, now: State | None = None) -> PartitionInfo:
        now = now or self.controller.state
        return PartitionInfo(
            now.leader, BROKERS, tuple(sorted(now.isr)),
            leader_epoch=now.leader_epoch, partition_epoch=now.partition_epoch,
        )  # fmt: skip

    def same(self, broker: int) -> None:
        """Compare what a broker knows, and take what it proposes."""
        own, node = self.replicas[broker], self.nodes[broker]
        log, replica = node.replica.log, node.replica
        assert (log.log_end_offset, log.high_watermark) == (own.end, own.high_watermark)
        assert [epoch for epoch, _ in log.epochs.entries] == sorted({batch.epoch for batch in own.log})
        assert (replica.is_leader, replica.leader_epoch) == (own.leads, own.leader_epoch)
        if own.leads:
            now = replica._state
            assert now is not None
            assert (now.isr, now._pending, now.partition_epoch) == (
                own.isr, own.pending and IsrChange(*own.pending), own.partition_epoch,
            )  # fmt: skip
            if self.is_fair and own.leader_epoch == self.controller.state.leader_epoch:
                seen = own.committed
                assert seen[: len(self.committed)] == self.committed[: len(seen)]
                assert own.log[: len(self.committed)] == self.committed
                self.committed = max(seen, self.committed, key=len)
        for proposed, change in node.proposals:
            assert own.pending == Proposal(*change)
            assert own.pending is not None
            self.sent.append(Sent(broker, proposed, change, own.pending))
        node.proposals.clear()

    # --- metadata -------------------------------------------------------------------------------------------

    def hear_of_topic(self, broker: int) -> None:
        self.set_live(broker)
        at_once(self.nodes[broker].create(self.info()))
        self.replicas[broker].learn(self.controller.state, self.now)
        self.same(broker)

    def set_live(self, broker: int) -> None:
        self.nodes[broker].live = self.replicas[broker].live = self.controller.live

    @rule(broker=BROKER, skips=RATHER)
    def learn(self, broker: int, skips: bool) -> None:
        """Hear of the newest state, or of the one after that which was heard of last."""
        self.set_live(broker)
        own = self.replicas[broker].state
        later = self.history[self.history.index(own) + 1 :]
        if later:
            state = later[-1] if skips else later[0]
            at_once(self.nodes[broker].change(self.info(state)))
            self.replicas[broker].learn(state, self.now)
        self.same(broker)

    @rule(broker=BROKER, is_clean=RATHER, is_alone=RARELY)
    def elect(self, broker: int, is_clean: bool, is_alone: bool) -> None:
        """Another leader, perhaps one that lacks what is committed; or the same in a new epoch."""
        now = self.controller.state
        if broker not in now.isr and (is_clean or self.is_fair):
            return
        isr = now.isr if broker in now.isr and not is_alone else frozenset({broker})
        self.decide(State(broker, isr, now.leader_epoch + 1, now.partition_epoch + 1))
        self.learn(broker, skips=True)

    def decide(self, new: State) -> None:
        """Let the controller change the partition by itself."""
        self.controller.state = new
        isr = tuple(sorted(new.isr))
        written = PartitionState(new.leader, isr, new.leader_epoch, self.world.epoch, new.partition_epoch)
        self.world.states[KEY] = self.world.core.state.states[KEY] = written
        self.state_of_world()

    @rule(broker=BROKER)
    def begin_shutdown(self, broker: int) -> None:
        """It shuts down, or it was about to and goes on."""
        self.controller.shutting_down ^= {broker}
        self.world.core.state.shutting_down ^= {broker}

    @rule(broker=BROKER)
    def fence(self, broker: int) -> None:
        """A broker's registration ends, or it registers again."""
        if self.controller.epochs.pop(broker, None) is None:
            self.register(broker)
        else:
            del self.world.brokers[broker], self.world.core.state.brokers[broker]

    def register(self, broker: int) -> None:
        self.world.register(broker)
        info = self.world.brokers[broker].info
        self.world.core.state.brokers[broker] = info
        self.controller.epochs[broker] = self.broker_epochs[broker] = info.epoch

    @rule(broker=BROKER, clean=st.booleans(), tells=st.booleans())
    def restart(self, broker: int, clean: bool, tells: bool) -> None:
        """A broker is started again, and registers anew."""
        node, own = self.nodes[broker], self.replicas[broker]
        if clean:
            node.logs.close()
        else:
            node.replica.log.abandon()
            node.logs.ownership.release()
        own.restart(clean=clean)
        self.sent = [sent for sent in self.sent if sent.broker != broker]
        self.waiting = [wait for wait in self.waiting if wait[0] != broker]
        self.followers.pop(broker, None)
        self.register(broker)
        node.image = ClusterImage("c")
        node.start()
        now = self.controller.state
        if now.leader == broker and tells:
            self.decide(State(broker, now.isr, now.leader_epoch + 1, now.partition_epoch + 1))
        self.hear_of_topic(broker)

    @rule(broker=BROKER)
    def checkpoint(self, broker: int) -> None:
        self.nodes[broker].logs.write_checkpoints()
        self.replicas[broker].checkpointed = self.replicas[broker].high_watermark

    @rule(ms=LATER_MS)
    def wait(self, ms: int) -> None:
        self.now += ms
        for node in self.nodes.values():
            node.now_ms = self.now

    # --- clients --------------------------------------------------------------------------------------------

    @rule(broker=MOSTLY_LEADER, count=st.integers(1, 3), acks_all=st.booleans())
    def produce(self, broker: int, count: int, acks_all: bool) -> None:
        broker = broker or self.controller.state.leader
        self.number += 1
        values = [b"%d" % self.number] * count
        end = outcome(lambda: self.nodes[broker].produce(*values, acks=-1 if acks_all else 1))
        own = self.replicas[broker]
        expected = outcome(lambda: own.produce(self.number, count, self.now, acks_all=acks_all))
        assert end == (expected + count if isinstance(expected, int) else expected)
        if acks_all and isinstance(end, int):
            self.waiting.append((broker, end))
        self.same(broker)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def acknowledge(self, data) -> None:
        self.look(*data.draw(st.sampled_from(self.waiting[-4:])))

    def look(self, broker: int, end: int) -> None:
        """Look whether a request with acks=all is answered by now."""
        replica = self.nodes[broker].replica
        expected = outcome(lambda: self.replicas[broker].acknowledged(end))
        is_over = replica.log.high_watermark >= end or not replica.is_leader
        got = outcome(lambda: at_once(replica.wait_committed(end)) is None) if is_over else False
        assert got == expected
        if expected is not False:
            self.waiting.remove((broker, end))

    def matched(self, data, expected: list[model.Batch]) -> list[model.Batch]:
        """Compare batches; where a segment ends, so does what is read at once."""
        batches = [model.Batch(*values) for values in batches_in(data)]
        assert batches == (expected[: max(len(batches), 1)] if self.has_small_segments else expected)
        return batches

    @rule(broker=BROKER, offset=st.integers(-1, 1), share=st.sampled_from([0.0, 0.5, 1.0]), off_by=OFF_BY)
    def consume(self, broker: int, offset: int, share: float, off_by: int) -> None:
        own = self.replicas[broker]
        at = max(round(own.end * share) + offset, 0)
        epoch = own.leader_epoch + off_by if off_by else -1
        part = FetchRequest.FetchPartition(
            partition=0, current_leader_epoch=epoch, fetch_offset=at, partition_max_bytes=1 << 20
        )
        got = outcome(lambda: fetch_at_once(self.nodes[broker], part))
        expected = outcome(lambda: own.read(at, epoch))
        if are_answers(got, expected):
            self.matched(got.records, expected)
            assert got.high_watermark == own.high_watermark

    # --- followers ------------------------------------------------------------------------------------------

    @rule(
        broker=BROKER,
        one_batch=st.sampled_from([False, False, True]),
        is_lost=st.sampled_from([False] * 5 + [True]),
    )
    def fetch(self, broker: int, one_batch: bool, is_lost: bool) -> None:
        """A follower fetches from what it takes for the leader, which may be another one by now, or know less."""
        own, replica = self.replicas[broker], self.nodes[broker].replica
        if own.leads:
            return
        leader = own.state.leader
        follower = self.followers.get(broker)
        if follower is None or not follower.is_current or follower.replica is not replica:
            follower = self.followers[broker] = FollowerLog(replica, lambda: NOW_MS)
        asked = follower.position
        assert asked[:3] == (own.end, own.last_epoch, own.leader_epoch)
        got, expected = self.fetched(
            leader,
            broker,
            asked.fetch_offset,
            asked.last_fetched_epoch,
            asked.current_leader_epoch,
            one_batch=one_batch,
        )
        if isinstance(expected, str) or is_lost:
            return
        parting = got.diverging_epoch
        diverging = None if parting.epoch < 0 else EpochEnd(parting.epoch, parting.end_offset)
        assert follower.fetched(asked, Fetched(got.records, got.high_watermark, 0, diverging))
        own.take(expected, got.high_watermark)
        self.same(broker)

    def teardown(self) -> None:
        """Let all hear of everything: then the three logs are the same."""
        if not hasattr(self, "waiting"):
            return
        for _ in range(8 if not self.has_small_segments else 30):
            self.catch_up(LEADER, 1, 0, leader_hears=True)
        assert len({tuple(replica.log) for replica in self.replicas.values()}) == 1
        assert len({content_of(node.replica.log) for node in self.nodes.values()}) == 1

    @rule(
        slow=st.sampled_from([*BROKERS, LEADER]), later_ms=LATER_MS, count=st.sampled_from([0, 0, 1]), leader_hears=RATHER,
    )  # fmt: skip
    def catch_up(self, slow: int, later_ms: int, count: int, leader_hears: bool) -> None:
        """All hear what the controller has decided, and all but one have fetched everything, with what is new."""
        self.wait(later_ms)
        for broker in BROKERS:
            if leader_hears or broker != self.controller.state.leader:
                self.learn(broker, skips=True)
        if count:
            self.produce(LEADER, count, acks_all=True)
        for _ in range(3):
            for broker in BROKERS:
                if broker != slow:
                    self.fetch(broker, one_batch=False, is_lost=False)
                    if later_ms and self.sent:
                        self.carry(self.sent[-1], 3, is_answered=True)

    @precondition(lambda self: not self.is_fair)
    @rule(
        leader=MOSTLY_LEADER, broker=BROKER, off_by=OFF_BY, more=st.integers(-2, 2), last=st.integers(-1, 1)
    )
    def fetch_anything(self, leader: int, broker: int, off_by: int, more: int, last: int) -> None:
        """A fetch from a broker that believes something else, and does nothing with the answer."""
        leader = leader or self.controller.state.leader
        leading = self.replicas[leader]
        if broker == leader or (leading.leads and more == off_by == 0):
            return
        last_epoch = max(leading.last_epoch + last, -1)
        self.fetched(leader, broker, max(leading.end + more, 0), last_epoch, leading.leader_epoch + off_by)

    def fetched(
        self, leader: int, broker: int, offset: int, last_epoch: int, current: int, *, one_batch: bool = False
    ):
        """Compare the leader's answer; return it, and the model's."""
        part = FetchRequest.FetchPartition(
            partition=0, current_leader_epoch=current, fetch_offset=offset, last_fetched_epoch=last_epoch,
            log_start_offset=0, partition_max_bytes=1 if one_batch else 1 << 20,
        )  # fmt: skip
        epoch = self.broker_epochs[broker]
        got = outcome(lambda: fetch_at_once(self.nodes[leader], part, replica_id=broker, broker_epoch=epoch))
        expected = outcome(
            lambda: self.replicas[leader].fetch(
                broker, offset, last_epoch, current, epoch, self.now, one_batch=one_batch
            )
        )
        if are_answers(got, expected):
            assert got.high_watermark in expected.high_watermarks
            expected.batches = self.matched(got.records, expected.batches)
            parting = expected.diverging or model.EpochEnd(-1, -1)
            assert (got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == parting
        self.same(leader)
        return got, expected

    # --- in-sync replicas -----------------------------------------------------------------------------------

    @rule(broker=MOSTLY_LEADER, later_ms=LATER_MS)
    def shrink(self, broker: int, later_ms: int) -> None:
        self.wait(later_ms)
        broker = broker or self.controller.state.leader
        self.nodes[broker].replica.shrink_isr()
        self.replicas[broker].shrink(self.now)
        self.same(broker)
        if later_ms and self.sent:
            self.carry(self.sent[-1], 3, is_answered=True)
        for end in [end for id_, end in self.waiting if id_ == broker]:
            self.look(broker, end)

    @precondition(lambda self: self.sent)
    @rule(
        data=st.data(), version=st.sampled_from([2, 3, 3]), is_answered=st.sampled_from([True, True, False]),
        stops=st.sampled_from([None, None, *BROKERS]),
    )  # fmt: skip
    def send(self, data, version: int, is_answered: bool, stops: int | None) -> None:
        """A proposal comes to the controller, when a broker may just stop; the answer may be late, and it be sent again."""
        if stops is not None:
            self.begin_shutdown(stops)
        self.carry(data.draw(st.sampled_from(self.sent)), version, is_answered=is_answered)

    def carry(self, sent: Sent, version: int, *, is_answered: bool) -> None:
        if self.is_local:
            self.decide_locally(sent)
            return
        remote = RemoteAlterPartition(sent.broker, None, lambda: self.broker_epochs[sent.broker])  # type: ignore[arg-type]
        own = self.replicas[sent.broker]
        if not own.leads or own.leader_epoch != sent.proposal.leader_epoch:
            self.sent.remove(sent)
            return
        request = remote._request([(sent.replica, sent.change)], version)
        epochs = {
            id_: -1
            if version < 3
            else request.broker_epoch
            if id_ == sent.broker
            else own.followers[id_].broker_epoch
            for id_ in sent.proposal.isr
        }
        (topic,) = request.topics
        proposed = alter_partition._proposal(topic, topic.partitions[0], version)
        assert dict(proposed.isr) == epochs
        sent.answer = self.altered(sent.broker, request.broker_epoch, proposed, sent.proposal, epochs)
        if is_answered:
            self.hear(sent)

    def decide_locally(self, sent: Sent) -> None:
        """Have a proposal decided on and answered, as a broker does that is its own controller."""
        registered = [BrokerRegistered(BrokerInfo(id_, None, {})) for id_ in sorted(self.controller.live)]
        created = TopicCreated(TopicInfo(TOPIC, TOPIC_ID, (self.info(),)))
        store = LocalMetadata(ClusterImage("c").apply([*registered, created]))
        local = LocalAlterPartition(sent.broker, store)  # type: ignore[arg-type]
        at_once(local._carry_out([(sent.replica, sent.change)]))
        answer = outcome(lambda: self.controller.alter_locally(sent.broker, sent.proposal))
        assert store.image.topics[TOPIC].partitions[0] == self.info()
        self.decide(self.controller.state)
        accepted = answer if isinstance(answer, State) else None
        self.replicas[sent.broker].settle(sent.proposal, accepted, self.now)
        self.sent.remove(sent)
        self.same(sent.broker)

    def altered(self, broker, broker_epoch, proposed, proposal: Proposal, epochs: dict[int, int]):
        """Compare the controller's answer; return it as it is sent, and as the model says it."""

        def decided():
            (result,) = self.world.run(in_sync.alter(self.world.core, broker, broker_epoch, [proposed]))
            answer = alter_partition._answer(0, result, 3)
            if answer.error_code:
                raise RequestError(ErrorCode(answer.error_code))
            assert isinstance(result, AcceptedState)
            return answer

        got = outcome(decided)
        expected = outcome(lambda: self.controller.alter(broker, broker_epoch, proposal, epochs))
        if not are_answers(got, expected):
            return AlterPartitionResponse.PartitionData(error_code=ErrorCode[expected]), expected
        assert (got.leader_id, frozenset(got.isr), got.leader_epoch, got.partition_epoch) == (
            expected.leader, expected.isr, expected.leader_epoch, expected.partition_epoch,
        )  # fmt: skip
        self.state_of_world()
        return got, expected

    @precondition(lambda self: any(sent.answer for sent in self.sent))
    @rule(data=st.data())
    def answer(self, data) -> None:
        self.hear(data.draw(st.sampled_from([sent for sent in self.sent if sent.answer is not None])))

    def hear(self, sent: Sent) -> None:
        remote = RemoteAlterPartition(sent.broker, None, lambda: self.broker_epochs[sent.broker])  # type: ignore[arg-type]
        got, expected = sent.answer
        # What is wrong with the request as a whole says nothing of its partitions.
        answers = {} if expected == "STALE_BROKER_EPOCH" else {KEY: got}
        is_done = remote._settle((sent.replica, sent.change), answers)
        assert is_done is self.replicas[sent.broker].hear(sent.proposal, expected, self.now)
        if is_done:
            self.sent.remove(sent)
        self.same(sent.broker)

    @precondition(lambda self: not self.is_fair)
    @rule(
        broker=MOSTLY_LEADER, isr=ANY_ISR,
        leader_epoch=OFF_BY, partition_epoch=OFF_BY, broker_epoch=OFF_BY, seen=st.sampled_from([None, 0, 0, -1]),
    )  # fmt: skip
    def propose_anything(
        self, broker: int, isr: frozenset[int], leader_epoch: int, partition_epoch: int, broker_epoch: int, seen,
    ) -> None:  # fmt: skip
        now = self.controller.state
        broker = broker or now.leader
        proposal = Proposal(isr, now.leader_epoch + leader_epoch, now.partition_epoch + partition_epoch)
        epochs = {id_: -1 if seen is None else self.controller.epochs.get(id_, 0) + seen for id_ in isr}
        proposed = in_sync.ProposedState(
            TOPIC, None, 0, proposal.leader_epoch, proposal.partition_epoch, tuple(epochs.items())
        )
        self.altered(broker, self.broker_epochs[broker] + broker_epoch, proposed, proposal, epochs)


Histories.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
TestHistories = Histories.TestCase


def test_slips_are_noticed() -> None:
    assert unnoticed(Histories, SLIPS, f"{__file__}::test_slips_are_noticed") == []
