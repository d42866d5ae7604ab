"""Consumer groups under members that come, go, dawdle, crash and lose answers, while topics and brokers change.

Whatever happens, no slot has two owners among the members that the group knows, the journal tells the whole state, and
once all members have time the group comes to agree.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.epoch_member import MemberState
from barnabas.coordinators.groups.settings import GroupSettings
from tests.support.consumers import Client, Coordinator, converge

TOPICS = ("t0", "t1", "u0")
SUBSCRIPTIONS = st.one_of(
    st.sets(st.sampled_from(TOPICS), min_size=1).map(lambda names: (tuple(sorted(names)), None)),
    st.sampled_from(["t.*", "u.", ".*"]).map(lambda regex: ((), regex)),
)
SESSION_MS, REBALANCE_MS = 6_000, 4_000


class ConsumerGroupMachine(RuleBasedStateMachine):
    """`clients` are alive and, as far as they know, in the group; `away` are static ones that have said so."""

    @initialize(
        assignor=st.sampled_from(["uniform", "range"]),
        partitions=st.integers(1, 6),
        members=st.lists(SUBSCRIPTIONS, max_size=3),
    )
    def begin(
        self, assignor: str, partitions: int, members: list[tuple[tuple[str, ...], str | None]]
    ) -> None:
        order = (assignor, "range" if assignor == "uniform" else "uniform")
        self.coordinator = Coordinator(
            GroupSettings(
                consumer_session_timeout_ms=SESSION_MS,
                consumer_assignors=order,
                consumer_assignment_interval_ms=0,
            )
        )
        self.coordinator.create("t0", partitions)
        self.clients: dict[str, Client] = {}
        self.away: list[Client] = []
        self.count = 0
        for subscription in members:
            self.join(subscription, is_static=True)

    # --- members --------------------------------------------------------------------------------------------

    def any_client(self, data: st.DataObject) -> Client:
        return self.clients[data.draw(st.sampled_from(sorted(self.clients)))]

    def joined(self, client: Client) -> None:
        client.join()
        client.settle()
        self.clients[client.id] = client

    @precondition(lambda self: len(self.clients) < 5)
    @rule(subscription=SUBSCRIPTIONS, is_static=st.booleans())
    def join(self, subscription: tuple[tuple[str, ...], str | None], is_static: bool) -> None:
        self.count += 1
        topics, regex = subscription
        self.joined(Client(
            self.coordinator, f"m{self.count}", topics, regex,
            instance_id=f"i{self.count}" if is_static else None, rebalance_timeout_ms=REBALANCE_MS,
        ))  # fmt: skip

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), repeated=st.integers(1, 3), settles=st.booleans())
    def beat(self, data: st.DataObject, repeated: int, settles: bool) -> None:
        client = self.any_client(data)
        for _ in range(repeated):
            if client.beat():
                client.join()
        if settles:
            client.settle()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def lose_an_answer(self, data: st.DataObject) -> None:
        self.any_client(data).beat(lost=True)

    @precondition(lambda self: self.clients)
    @rule()
    def all_beat(self) -> None:
        for client in self.clients.values():
            if client.beat():
                client.join()
            client.settle()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), subscription=SUBSCRIPTIONS)
    def subscribe_anew(self, data: st.DataObject, subscription: tuple[tuple[str, ...], str | None]) -> None:
        client = self.any_client(data)
        client.topics, client.regex = subscription[0], subscription[1] or ""
        if client.beat(full=True):
            client.join()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), how=st.sampled_from(["leaves", "crashes", "leaves for a while"]))
    def go(self, data: st.DataObject, how: str) -> None:
        client = self.any_client(data)
        del self.clients[client.id]
        if how == "crashes" or client.id not in self.group_members():
            return
        client.leave(for_a_while=how == "leaves for a while" and client.instance_id is not None)
        if client.instance_id is not None:
            self.away.append(client)

    @precondition(lambda self: self.away)
    @rule()
    def come_back(self) -> None:
        self.count += 1
        self.joined(replace(self.away.pop(), id=f"m{self.count}"))

    # --- surroundings ---------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 5))
    def change_topic(self, name: str, partitions: int) -> None:
        if name not in self.coordinator.image.topics:
            self.coordinator.create(name, partitions)
        else:
            self.coordinator.grow(name, partitions)

    @rule(name=st.sampled_from(TOPICS))
    def delete_topic(self, name: str) -> None:
        if name in self.coordinator.image.topics:
            self.coordinator.delete(name)

    @rule(ms=st.sampled_from([10, 500, 3_000, 7_000]))
    def wait(self, ms: int) -> None:
        self.coordinator.advance(ms)

    @rule()
    def restart(self) -> None:
        self.coordinator.restart()

    @precondition(lambda self: self.clients)
    @rule()
    def agree(self) -> None:
        """Clients that are gone are found out; the others come to agree, on everything there is."""
        for _ in range(4):  # longer than a session timeout, in steps that those alive live through
            self.coordinator.advance(SESSION_MS // 3)
            for client in self.clients.values():
                if client.beat():
                    client.join()
                client.settle()
        converge(*self.clients.values())
        group, image = self.coordinator.group(), self.coordinator.image
        assert group.state_name == "Stable"
        assert group.members.keys() == self.clients.keys()
        subscribed = {
            (image.topics[name].id, partition)
            for name in group.subscribed_topics() & image.topics.keys()
            for partition in range(len(image.topics[name].partitions))
        }
        held = [topic_partition for client in self.clients.values() for topic_partition in client.owned]
        assert sorted(held) == sorted(subscribed)
        for client in self.clients.values():
            names = group.topics_of(group.members[client.id])
            assert {image.names_by_id[topic_id] for topic_id, _ in client.owned} <= names

    # --- what always holds ----------------------------------------------------------------------------------

    def group_members(self) -> set[str]:
        group = self.coordinator.shard.groups.get("g")
        return set(group.members) if group is not None else set()

    @invariant()
    def what_members_want_is_counted(self) -> None:
        group = self.coordinator.shard.groups.get("g")
        if isinstance(group, ConsumerGroup):
            assert group.subscriptions == Counter(member.subscription for member in group.members.values())

    @invariant()
    def no_slot_has_two_owners(self) -> None:
        members = self.group_members()
        held = [
            topic_partition
            for client in self.clients.values()
            if client.id in members
            for topic_partition in client.owned
        ]
        assert len(held) == len(set(held))

    @invariant()
    def what_members_have_is_what_the_group_counts(self) -> None:
        if not self.group_members():
            return
        group = self.coordinator.group()
        counted = {}
        for member in group.members.values():
            for topic_partition in (*member.assigned, *member.revoking):
                assert topic_partition not in counted
                counted[topic_partition] = member.id
            assert member.epoch <= group.epoch
            assert all(0 <= since <= group.epoch for since in member.assigned.values())
            assert not member.revoking or member.state is MemberState.UNREVOKED
        assert counted == group.owners
        assert group.assignment_epoch <= group.epoch

    @invariant()
    def the_journal_tells_everything(self) -> None:
        read = self.coordinator.reloaded().groups
        groups = self.coordinator.shard.groups
        assert read.keys() == groups.keys()
        for group_id in groups:
            assert replace(read[group_id], topics_seen=None) == replace(groups[group_id], topics_seen=None)


TestConsumerGroups = ConsumerGroupMachine.TestCase
TestConsumerGroups.settings = settings(max_examples=80, stateful_step_count=40)
