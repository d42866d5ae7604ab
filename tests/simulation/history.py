"""Events that clients saw of one broker in one simulated run, as the checker judges them.

The rule: clients only add what they have seen themselves: a request before it is sent, an answer once it is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

Partition = tuple[str, int]


@dataclass(slots=True)
class Write:
    """One value that a producer has sent, as often as it took; `offset` is None where no answer named one."""

    partition: Partition
    value: bytes
    producer: str
    is_idempotent: bool
    key: bytes | None = None
    is_acknowledged: bool = False
    offset: int | None = None
    transaction: Transaction | None = None
    acknowledged_by: int = -1
    """The broker that said so."""


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction; `outcome` is "committed" or "aborted" once the coordinator has said so."""

    name: str
    outcome: str = "unknown"
    wants_commit: bool = False
    """True if a commit has been asked for."""
    writes: list[Write] = field(default_factory=list)


@dataclass(slots=True)
class Read:
    """A record that a consumer was given; `value` is what it held."""

    reader: str
    partition: Partition
    offset: int
    value: bytes
    committed_only: bool


@dataclass(slots=True)
class Joined:
    """A member's answer to JoinGroup."""

    group: str
    generation: int
    member: str
    leader: str


@dataclass(slots=True)
class Owned:
    """A member's answer to SyncGroup: what it owns in a generation; members and leaders by the clients' names."""

    group: str
    generation: int
    member: str
    leader: str
    partitions: frozenset[int]


@dataclass(slots=True)
class Commit:
    """An offset that was sent to a group's coordinator; times are trio's, `ended_s` that of an answer without error."""

    group: str
    partition: int
    offset: int
    began_s: float
    ended_s: float | None = None
    member: str = ""
    epoch: int = 0
    """The member epoch; 0 for members of classic groups."""


@dataclass(slots=True)
class Gained:
    """A partition that a member with an epoch was given at `at_s`; `member` is the client's name, not the member id."""

    group: str
    member: str
    partition: int
    epoch: int
    at_s: float


@dataclass(slots=True)
class Delivered:
    """A record that a member of a share group has acquired, by a request that it sent at `began_s`."""

    member: str
    partition: int
    offset: int
    value: bytes
    began_s: float


@dataclass(slots=True)
class Settled:
    """A record that was accepted or rejected by a member of a share group: `at_s` is when it knew."""

    member: str
    partition: int
    offset: int
    at_s: float


@dataclass(slots=True)
class Committed:
    """An offset that the coordinator has given, -1 for none."""

    group: str
    partition: int
    offset: int
    began_s: float


@dataclass(slots=True)
class Batch:
    """A batch as it is in the log at the end; `values` by offset."""

    base_offset: int
    last_offset: int
    is_control: bool
    values: dict[int, bytes]
    leader_epoch: int = -1


@dataclass(slots=True)
class Final:
    """The content of a partition at the end: all batches, and the records that a read-committed reader gets."""

    batches: list[Batch] = field(default_factory=list)
    committed: dict[int, bytes] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    """The first offset and the next one, as ListOffsets has them."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of a partition in ZooKeeper since one of its writes; the leader is -1 for none."""

    partition: Partition
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Described:
    """A broker's description of a partition to clients; `broker` names one run of a broker."""

    broker: str
    partition: Partition
    leader: int
    leader_epoch: int


@dataclass(slots=True)
class History:
    """Everything of one run; `events` is a line for each thing that happened, in order, and repeats with the seed."""

    writes: list[Write] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    joined: list[Joined] = field(default_factory=list)
    owned: list[Owned] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    fetched_commits: list[Committed] = field(default_factory=list)
    gained: list[Gained] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    processed: dict[int, int] | None = None
    """Up to which offset the processors have committed each partition, if there are any."""
    finals: dict[Partition, Final] = field(default_factory=dict)
    states: list[State] = field(default_factory=list)
    """The states of all partitions of a cluster in the order in which they were written."""
    described: list[Described] = field(default_factory=list)
    """Descriptions of partitions by the brokers of a cluster, in the order of the answers."""
    replicas: dict[Partition, dict[int, bytes]] = field(default_factory=dict)
    """The bytes of all replicas at the end, by broker."""
    out_of_sync: list[str] = field(default_factory=list)
    """Partitions of which replicas were not in sync at the end, long after the last fault."""
    lost_topic_ids: list[str] = field(default_factory=list)
    """Topics of a cluster that have another id at the end than they had, or none, though a broker knew it."""
    surprises: list[str] = field(default_factory=list)
    """Answers that no client may ever get here, such as a gap in the sequence of a producer that left none."""
    events: list[str] = field(default_factory=list)
    awaited: int = 0
    """After which number of events `reached` is to be set."""
    reached: trio.Event = field(default_factory=trio.Event)

    def note(self, who: str, text: str) -> None:
        """Add a line to the events."""
        self.events.append(f"{trio.current_time():.6f} {who} {text}")
        if len(self.events) == self.awaited:
            self.reached.set()

    async def wait_events(self, count: int) -> None:
        """Wait until so many more events have happened."""
        self.awaited, self.reached = len(self.events) + count, trio.Event()
        await self.reached.wait()
