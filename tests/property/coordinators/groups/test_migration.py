"""Groups of members of both protocols, moving from one protocol to the other and back while members come and go.

Whatever happens, no slot has two owners among the members that the group knows, and all of them come to agree.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.settings import GroupSettings, MigrationPolicy
from tests.support.classic_consumers import ClassicClient
from tests.support.consumers import Client, Coordinator

SESSION_MS, REBALANCE_MS = 6_000, 4_000
ROUNDS = 120


class MigrationMachine(RuleBasedStateMachine):
    """`clients` are alive; those of the classic protocol take one step at a time."""

    @initialize(partitions=st.integers(1, 6), cooperative=st.booleans())
    def begin(self, partitions: int, cooperative: bool) -> None:
        self.coordinator = Coordinator(
            GroupSettings(
                initial_rebalance_delay_ms=0,
                consumer_assignment_interval_ms=0,
                consumer_session_timeout_ms=SESSION_MS,
                migration_policy=MigrationPolicy.BIDIRECTIONAL,
            )
        )
        self.coordinator.create("t", partitions)
        self.cooperative = cooperative
        self.clients: list[Client | ClassicClient] = []
        self.count = 0

    def step(self, client: Client | ClassicClient) -> None:
        if isinstance(client, ClassicClient):
            # In a group of the classic protocol the assignor here is none that cooperates.
            client.cooperative = self.cooperative and not self.is_classic()
            client.step()
        elif client.beat() == 0:
            client.settle()
        else:
            self.join(client)

    def join(self, client: Client) -> None:
        client.join()
        client.settle()

    def is_classic(self) -> bool:
        return isinstance(self.coordinator.shard.groups.get("g"), ClassicGroup)

    @precondition(lambda self: len(self.clients) < 5)
    @rule(is_classic=st.booleans())
    def arrive(self, is_classic: bool) -> None:
        self.count += 1
        if is_classic:
            self.clients.append(
                ClassicClient(
                    self.coordinator, f"c{self.count}",
                    session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS,
                )
            )  # fmt: skip
            return
        client = Client(self.coordinator, f"m{self.count}", rebalance_timeout_ms=REBALANCE_MS)
        self.clients.append(client)
        self.join(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), steps=st.integers(1, 4))
    def go_on(self, data: st.DataObject, steps: int) -> None:
        client = data.draw(st.sampled_from(self.clients))
        for _ in range(steps):
            self.step(client)

    @precondition(lambda self: self.clients)
    @rule(rounds=st.integers(1, 4))
    def all_go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in self.clients:
                self.step(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), crashes=st.booleans())
    def go(self, data: st.DataObject, crashes: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        if not crashes and self.member_id(client) in self.known():
            client.leave()

    @rule(ms=st.sampled_from([10, 1_500, 4_500, 7_000]))
    def wait(self, ms: int) -> None:
        self.coordinator.advance(ms)

    @precondition(lambda self: self.clients)
    @rule()
    def agree(self) -> None:
        """All members have time: gone ones are found out, and the others share all there is."""
        for _ in range(ROUNDS):
            self.coordinator.advance(500)
            for client in self.clients:
                self.step(client)
        held = sorted(topic_partition for client in self.clients for topic_partition in client.owned)
        topic = self.coordinator.image.topics["t"]
        assert held == [(topic.id, partition) for partition in range(len(topic.partitions))]
        assert self.known() == {self.member_id(client) for client in self.clients}
        assert self.coordinator.shard.groups["g"].state_name == "Stable"
        assert self.is_classic() == all(isinstance(client, ClassicClient) for client in self.clients)

    def member_id(self, client: Client | ClassicClient) -> str:
        return client.member_id if isinstance(client, ClassicClient) else client.id

    def known(self) -> set[str]:
        group = self.coordinator.shard.groups.get("g")
        return set(group.members) if group is not None else set()

    @invariant()
    def no_slot_has_two_owners(self) -> None:
        member_ids = self.known()
        held = [
            topic_partition
            for c in self.clients
            if self.member_id(c) in member_ids
            for topic_partition in c.owned
        ]
        assert len(held) == len(set(held))


TestMigration = MigrationMachine.TestCase
TestMigration.settings = settings(max_examples=60, stateful_step_count=30)
