"""Random histories of a share group, on Apache Kafka and on Barnabas: python -m compat.share.histories.

Two members fetch in both acquire modes, and accept, release, reject and renew their own records, those of the other member,
and records that do not exist, in and out of order; sessions are closed, connections lost, session epochs wrong, records
written and deleted. In the end the offsets with their lag are described, before and after both sessions are closed, and the
remaining records are fetched. The kinds are the isolation levels. The seeds are those of the day, or `--seed N`. The exit
code is 1 if a response has an unknown difference.

Two cases are omitted since Kafka's result depends on timing. A release within a fetch request is concurrent to the fetch,
which may or may not return these records. Kafka returns all records of a partly deleted batch if other records of it are in
flight, so batches are deleted as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from compat.kit.histories import HistoryRun, await_coordinator, create_topic, described_topic, main, settled
from compat.kit.known import Difference, KnownDifference
from compat.kit.records import record_batch
from compat.kit.wire import Connection, Values

SETTINGS = {"group.share.assignment.interval.ms": "0", "group.share.max.share.sessions": "2000"}
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
CLOSES = -1
"""The session epoch that closes a session."""
EPOCH_MAX = 2**31 - 1
GROUP = 32
"""The type of a group as a resource with settings."""
FETCHES = 4
"""Number of times that is fetched until something comes: Kafka frees records beside the answer."""
WAIT_MS = 150
WRITTEN_S = 0.4
"""Time in which the state of a share partition is written."""
INVALID_REQUEST, INVALID_RECORD_STATE = 42, 121

Batch = dict[str, Any]


def _wrong_either_way(difference: Difference) -> bool:
    return {difference.theirs, difference.ours} == {INVALID_REQUEST, INVALID_RECORD_STATE}


KNOWN = (
    KnownDifference(
        ".*, seed .*: (acknowledge|fetch|close)",
        ("/1/2", "/1/3"),
        "of acknowledgements that are wrong in two ways Kafka tells the one that it finds first, record by record",
        accepts=_wrong_either_way,
    ),
)


@dataclass
class Sharing:
    """A member of the group: its session, and the offsets that it may have."""

    id: str
    connection: Connection
    epoch: int = 0
    session_epoch: int = 0
    held: set[int] = field(default_factory=set)

    def go_on(self) -> None:
        """Take the next session epoch."""
        self.session_epoch = 1 if self.session_epoch == EPOCH_MAX else self.session_epoch + 1

    def begin_anew(self) -> None:
        """Reset the session after its end."""
        self.session_epoch = 0
        self.held.clear()


class ShareHistory:
    """One history on one broker: a topic of one partition, a share group with two members."""

    def __init__(self, kind: str, run: HistoryRun) -> None:
        self.kind = kind
        self.run = run
        self.topic, self.group = run.name, f"{run.name}-group"
        self.connection = run.connect()
        random = run.random("members")
        ids = [str(UUID(int=random.getrandbits(128))) for _ in range(2)]
        self.members = [Sharing(member_id, run.connect()) for member_id in ids]
        self.topic_id = b""
        self.ends: list[int] = []
        """The offset of each batch, where the one before it ends."""

    def act(self) -> None:
        """Set the group up, go through all steps, and see what is left."""
        random = self.run.random("set-up")
        self.run.note("create", create_topic(self.connection, self.topic, {"retention.ms": "-1"}))
        self.topic_id = described_topic(self.connection, self.topic)["TopicId"]
        self.run.note("settings", *self._set_group(random))
        await_coordinator(self.connection, self.group, 0)
        self.produce(random, 30)
        for member in self.members:
            self._join(member)
        self.run.note("first", self._fetched(self.members[0], [], 1, 1, 1)[3:])
        self._fetched(self.members[1], [], 1, 1, 1)
        for number, random in self.run.steps(10, 30):
            if number % 8 == 0:
                for member in self.members:
                    self._beat(member)
            self.step(random)
        self._end()

    def step(self, random: Random) -> None:
        """Do one random action."""
        drawn, number = random.random(), random.randrange(2)
        member = self.members[number]
        if drawn < 0.12:
            self.produce(random, 12)
        elif drawn < 0.45:
            self.fetch(random, number, member)
        elif drawn < 0.83:
            self.acknowledge(random, number, member)
        elif drawn < 0.88:
            self.use_another_epoch(random, number, member)
        elif drawn < 0.92:
            self.close(random, number, member)
        elif drawn < 0.95:
            self.lose_connection(number, member)
        else:
            self.delete_records(random)

    # --- set-up ---------------------------------------------------------------------------------------------

    def _set_group(self, random: Random) -> list[Any]:
        settings = {"share.auto.offset.reset": "earliest", "share.isolation.level": self.kind}
        locks, limit, drawn = random.random() < 0.3, random.random() < 0.5, random.choice(["2", "3"])
        settings |= {"share.partition.max.record.locks": "100"} if locks else {}
        settings |= {"share.delivery.count.limit": drawn} if limit else {}
        configs = [{"Name": name, "ConfigOperation": 0, "Value": value} for name, value in settings.items()]
        resource = {"ResourceType": GROUP, "ResourceName": self.group, "Configs": configs}
        answer = self.connection.ask("IncrementalAlterConfigs", 1, {"Resources": [resource]})
        return [answer["Responses"][0]["ErrorCode"], settings]

    def _join(self, member: Sharing) -> None:
        give_up = time.monotonic() + 10
        while not self._beat(member) and time.monotonic() < give_up:
            time.sleep(0.05)

    def _beat(self, member: Sharing) -> bool:
        """Send a heartbeat; say whether the answer has an assignment."""
        asked = {
            "GroupId": self.group, "MemberId": member.id, "MemberEpoch": member.epoch,
            "SubscribedTopicNames": None if member.epoch else [self.topic],
        }  # fmt: skip
        answer = settled(
            lambda: self.connection.ask("ShareGroupHeartbeat", 1, asked),
            lambda values: int(values["ErrorCode"]),
        )
        if not answer["ErrorCode"]:
            member.epoch = answer["MemberEpoch"]
        return bool(answer["Assignment"] and answer["Assignment"]["TopicPartitions"])

    # --- actions --------------------------------------------------------------------------------------------

    def produce(self, random: Random, most: int) -> None:
        """Write a batch."""
        values = [b"v" * random.choice([1, 1, 100]) for _ in range(random.randint(1, most))]
        data = [{"Name": self.topic, "PartitionData": [{"Index": 0, "Records": record_batch(values)}]}]
        asked = {"Acks": -1, "TimeoutMs": 9_000, "TopicData": data}

        def ask() -> Values:
            answer: Values = self.connection.ask("Produce", 9, asked)["Responses"][0]["PartitionResponses"][0]
            return answer

        answer = settled(ask, lambda described: int(described["ErrorCode"]))
        self.run.note("produce", len(values), answer["ErrorCode"], answer["BaseOffset"])
        self.ends.append(answer["BaseOffset"])

    def fetch(self, random: Random, number: int, member: Sharing) -> None:
        """Fetch as a member, with random acknowledgements in the same request."""
        with_acks, batches = random.random() < 0.4, self._batches(random, member)
        mode, records_max = random.choice([0, 1]), random.choice([1, 3, 5, 500])
        batch_size = random.choice([1, 2, 5, 500])
        batches = batches if with_acks and member.session_epoch else []
        for batch in batches:
            batch["AcknowledgeTypes"] = [
                ACCEPT if ack_type == RELEASE else ack_type for ack_type in batch["AcknowledgeTypes"]
            ]
        records_max = records_max if mode else 500
        answer = self._fetched(member, batches, records_max, batch_size, mode)
        self.run.note("fetch", [number, _short(batches), records_max, batch_size, mode], *answer)

    def acknowledge(self, random: Random, number: int, member: Sharing) -> None:
        """Acknowledge random records as a member."""
        renews, batches = random.random() < 0.1, self._batches(random, member)
        if renews:
            for batch in batches:
                batch["AcknowledgeTypes"] = [RENEW]
        answer = self._acknowledged(member, batches, renews=renews)
        self.run.note("acknowledge", [number, _short(batches), renews], *answer)

    def use_another_epoch(self, random: Random, number: int, member: Sharing) -> None:
        """A member uses a session epoch that is not the next one."""
        epoch = member.session_epoch + random.choice([1, 2, 5])
        answer = self._acknowledged(member, [], epoch=epoch)
        self.run.note("another epoch", number, *answer)

    def close(self, random: Random, number: int, member: Sharing) -> None:
        """Close a member's session, with random acknowledgements in the same request."""
        with_acks, by_fetch, batches = (
            random.random() < 0.5,
            random.random() < 0.5,
            self._batches(random, member),
        )
        if not member.session_epoch:
            return
        batches = batches if with_acks else []
        if by_fetch:
            answer = self._fetched(member, batches, 500, 500, 0, epoch=CLOSES)
        else:
            answer = self._acknowledged(member, batches, epoch=CLOSES)
        self.run.note("close", [number, _short(batches), by_fetch], *answer)
        member.begin_anew()
        time.sleep(WRITTEN_S)

    def lose_connection(self, number: int, member: Sharing) -> None:
        """A member's connection is closed, and with it the session."""
        member.connection.close()
        member.connection = self.run.connect()
        member.begin_anew()
        time.sleep(WRITTEN_S)
        self.run.note("lost connection", number)

    def delete_records(self, random: Random) -> None:
        """Delete the batches before one of them, or all."""
        offset = random.choice([*self.ends, self._end_offset()])
        topics = [{"Name": self.topic, "Partitions": [{"PartitionIndex": 0, "Offset": offset}]}]
        answer = self.connection.ask("DeleteRecords", 2, {"Topics": topics, "TimeoutMs": 9_000})
        deleted = answer["Topics"][0]["Partitions"][0]
        self.run.note("delete records", offset, deleted["ErrorCode"], deleted["LowWatermark"])
        time.sleep(0.2)

    def _end(self) -> None:
        time.sleep(WRITTEN_S)
        self.run.note("offsets", *self._offsets())
        for number, member in enumerate(self.members):
            if member.session_epoch:
                self.run.note("close", number, *self._fetched(member, [], 500, 500, 0, epoch=CLOSES))
                member.begin_anew()
        time.sleep(WRITTEN_S)
        self.run.note("offsets with sessions closed", *self._offsets())
        unread: list[str] = []
        while records := self._fetched(self.members[0], [], 500, 500, 0)[3:]:
            unread += records
        self.run.note("what is left", *unread)
        self.run.note("offsets at last", *self._offsets())

    # --- requests -------------------------------------------------------------------------------------------

    def _end_offset(self) -> int:
        partitions = [{"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": -1}]
        topics = [{"Name": self.topic, "Partitions": partitions}]
        answer = self.connection.ask(
            "ListOffsets", 7, {"ReplicaId": -1, "IsolationLevel": 0, "Topics": topics}
        )
        offset: int = answer["Topics"][0]["Partitions"][0]["Offset"]
        return offset

    def _offsets(self) -> list[Any]:
        topics = [{"TopicName": self.topic, "Partitions": [0]}]
        asked = {"Groups": [{"GroupId": self.group, "Topics": topics}]}
        offsets = self.connection.ask("DescribeShareGroupOffsets", 1, asked)["Groups"][0]["Topics"][0][
            "Partitions"
        ][0]
        return [offsets["ErrorCode"], offsets["StartOffset"], offsets["Lag"]]

    def _batches(self, random: Random, member: Sharing) -> list[Batch]:
        """Draw acknowledgements, most for records of the member; the number of draws does not depend on the records."""
        held, end = sorted(member.held), self._end_offset()
        batches: list[dict[str, Any]] = []
        for _ in range(random.choice([1, 1, 2, 3])):
            is_held, place, size = random.random() < 0.8, random.random(), random.randint(0, 4)
            first = held[int(place * len(held))] if held and is_held else int(place * (end + 3))
            last = first + size
            while held and is_held and last > first and last not in member.held:
                last -= 1
            if random.random() < 0.05:
                first, last = last + 1, first
            way, count = random.random(), max(last - first + 1, 0)
            for_all = random.choice([ACCEPT, ACCEPT, RELEASE, REJECT])
            each = [random.choice([ACCEPT, RELEASE, REJECT, GAP, ACCEPT]) for _ in range(5)]
            odd = random.choice([[], [5], [RENEW], [GAP], [ACCEPT, RELEASE], [-1]])
            types = [for_all] if way < 0.5 else each[:count] if way < 0.9 else odd
            batches.append({"FirstOffset": first, "LastOffset": last, "AcknowledgeTypes": types})
        if random.random() < 0.85:
            batches.sort(key=lambda batch: batch["FirstOffset"])
        return batches

    def _place(self, batches: list[Batch]) -> list[Values]:
        partition = {"PartitionIndex": 0, "AcknowledgementBatches": batches}
        return [{"TopicId": self.topic_id, "Partitions": [partition]}]

    def _fetched(
        self,
        member: Sharing,
        batches: list[Batch],
        records_max: int,
        batch_size: int,
        mode: int,
        *,
        epoch: int | None = None,
    ) -> list[Any]:
        """Fetch until something comes; codes of the request, the partition, acknowledgements, then deliveries by offset."""
        codes: list[int] = []
        for _ in range(FETCHES):
            asked = {
                "GroupId": self.group, "MemberId": member.id, "MaxWaitMs": WAIT_MS, "MinBytes": 1, "MaxBytes": 1 << 20,
                "ShareSessionEpoch": member.session_epoch if epoch is None else epoch, "MaxRecords": records_max,
                "BatchSize": batch_size, "ShareAcquireMode": mode, "Topics": self._place([] if codes else batches),
            }  # fmt: skip
            answer = member.connection.ask("ShareFetch", 2, asked)
            partitions = [partition for topic in answer["Responses"] for partition in topic["Partitions"]]
            if not codes:
                codes = [answer["ErrorCode"], 0, 0]
                for partition in partitions:
                    codes[1:] = [partition["ErrorCode"], partition["AcknowledgeErrorCode"]]
            if epoch is not None or answer["ErrorCode"]:
                break
            member.go_on()
            records = [
                (offset, run["DeliveryCount"])
                for partition in partitions
                for run in partition["AcquiredRecords"]
                for offset in range(run["FirstOffset"], run["LastOffset"] + 1)
            ]
            if records:
                member.held |= {offset for offset, _ in records}
                return [*codes, *(f"{offset}:{times}" for offset, times in records)]
        return list(codes)

    def _acknowledged(
        self, member: Sharing, batches: list[Batch], *, renews: bool = False, epoch: int | None = None
    ) -> list[int]:
        """Acknowledge; codes of the request and of the partition."""
        asked = {
            "GroupId": self.group, "MemberId": member.id, "IsRenewAck": renews, "Topics": self._place(batches),
            "ShareSessionEpoch": member.session_epoch if epoch is None else epoch,
        }  # fmt: skip
        answer = member.connection.ask("ShareAcknowledge", 2, asked)
        if not answer["ErrorCode"] and epoch is None:
            member.go_on()
        codes = [partition["ErrorCode"] for topic in answer["Responses"] for partition in topic["Partitions"]]
        return [answer["ErrorCode"], *(codes if batches else [])]


def _short(batches: list[Batch]) -> list[str]:
    return [f"{batch['FirstOffset']}-{batch['LastOffset']} {batch['AcknowledgeTypes']}" for batch in batches]


def history_of(kind: str) -> Callable[[HistoryRun], None]:
    """Return the function that runs a history of a kind."""
    return lambda run: ShareHistory(kind, run).act()


if __name__ == "__main__":
    main(
        "compat.share.histories",
        __doc__,
        SETTINGS,
        {kind: history_of(kind) for kind in ("read_uncommitted", "read_committed")},
        KNOWN,
        count=6,
    )
