"""Members of a share group (KIP-932): they fetch records that no other member has, and accept, release or reject them.

The rule: an answer that was lost leaves open what it decided; only an answer without error settles a record.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import trio

from barnabas.client.base_client import GROUP
from barnabas.records.batch import iter_batches, read_records
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.generated.share_acknowledge import ShareAcknowledgeRequest
from barnabas.wire.generated.share_fetch import ShareFetchRequest
from barnabas.wire.generated.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.simulation.clients import PARTITIONS, TOPIC, Asker
from tests.simulation.history import Delivered, Settled

SHARERS = "sharers"
ACCEPT, RELEASE, REJECT = 1, 2, 3
DRAIN_S = 60.0
GROUP_RESOURCE = 32
SETTINGS = {"group.share.record.lock.duration.ms": "15000"}
_SESSION_OVER = {
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
}


async def read_from_the_beginning(asker: Asker) -> None:
    """Have the share group begin at the first record; called before it has members."""
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="share.auto.offset.reset", value="earliest")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=SHARERS, configs=[config]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])

    async def ask() -> Any:
        return await (await asker.client.any_connection()).ask(request, version=1)

    response = await asker.until_answered(ask, lambda answer: int(answer.responses[0].error_code))
    assert not response.responses[0].error_code, response


class ShareMember:
    """One member, with one share session after the other."""

    def __init__(self, asker: Asker) -> None:
        self.asker = asker
        self.id = urlsafe_b64encode(asker.random.randbytes(16)).decode().rstrip("=")
        self.epoch = 0
        self.partitions: list[int] = []
        self._session_epoch = 0
        self._acquired: dict[tuple[int, int], bytes] = {}

    async def take_part(self, rounds: int) -> None:
        """Fetch and acknowledge for so many rounds."""
        random = self.asker.random
        for _ in range(rounds):
            await self.beat()
            await self.fetch()
            if random.random() < 0.8:
                await self.acknowledge(
                    {at: random.choices((ACCEPT, RELEASE, REJECT), (8, 2, 1))[0] for at in self._acquired}
                )
            await self.asker.pause(0.7)
        if random.random() < 0.5:
            await self._ask_group(-1)

    async def drain(self, expected: set[tuple[int, int]]) -> None:
        """Accept what comes until each of these records (partition, offset) was given to a member, or time is up."""
        until = trio.current_time() + DRAIN_S
        history = self.asker.history
        while trio.current_time() < until:
            if not expected - {(record.partition, record.offset) for record in history.delivered}:
                return
            await self.beat()
            await self.fetch()
            await self.acknowledge(dict.fromkeys(self._acquired, ACCEPT))
            await self.asker.pause(1.0)

    async def _ask_group(self, epoch: int) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=SHARERS, member_id=self.id, member_epoch=epoch, subscribed_topic_names=[TOPIC]
        )
        return await self.asker.ask_coordinator(SHARERS, GROUP, request, 1)

    async def beat(self) -> None:
        """Heartbeat, and take what the answer gives."""
        response = await self._ask_group(self.epoch)
        code = int(response.error_code)
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self.asker.note(f"is told {ErrorCode(code).name} by the group")
            self.epoch, self.partitions = 0, []
            return
        if code:
            self.asker.history.surprises.append(
                f"{self.asker.name}: heartbeat failed with {ErrorCode(code).name}"
            )
            return
        self.epoch = response.member_epoch
        if response.assignment is not None:
            assigned = {p for topic in response.assignment.topic_partitions for p in topic.partitions}
            self.partitions = sorted(assigned & set(range(PARTITIONS)))

    def _end_session(self, code: int) -> None:
        """The session is over: what was acquired in it is the group's again."""
        self.asker.note(f"has no session any more: {ErrorCode(code).name}")
        self._session_epoch = 0
        self._acquired.clear()

    async def fetch(self) -> None:
        """Fetch once, and note what was acquired."""
        if not self.partitions:
            return
        partitions = [
            ShareFetchRequest.FetchPartition(partition_index=partition) for partition in self.partitions
        ]
        topic = ShareFetchRequest.FetchTopic(topic_id=self.asker.topic_ids[TOPIC], partitions=partitions)
        request = ShareFetchRequest(
            group_id=SHARERS,
            member_id=self.id,
            share_session_epoch=self._session_epoch,
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=self.asker.random.randint(1, 8),
            batch_size=100,
            topics=[topic],
        )
        began_s = trio.current_time()
        response = await self.asker.ask_leader((TOPIC, 0), request, 1, lambda answer: int(answer.error_code))
        if response.error_code:
            self._refused(int(response.error_code), "ShareFetch")
            return
        self._session_epoch += 1
        for topic_answer in response.responses:
            for answer in topic_answer.partitions:
                if answer.error_code:
                    self._refused_partition(int(answer.error_code), "ShareFetch")
                elif answer.acquired_records:
                    self._take(answer, began_s)

    def _refused(self, code: int, what: str) -> None:
        if code not in _SESSION_OVER:
            self.asker.history.surprises.append(
                f"{self.asker.name}: {what} failed with {ErrorCode(code).name}"
            )
        self._end_session(code)

    def _refused_partition(self, code: int, what: str) -> None:
        self.asker.note(f"{what}: {ErrorCode(code).name}")

    def _take(self, answer: Any, began_s: float) -> None:
        data = bytes(answer.records or b"")
        values = {
            record.offset: record.value or b""
            for at, header in iter_batches(data)
            if not header.is_control
            for record in read_records(data, at)
        }
        for acquired in answer.acquired_records:
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                if offset not in values:
                    continue  # a marker
                self.asker.note(f"acquires {values[offset]!r} at {answer.partition_index}/{offset}")
                self._acquired[answer.partition_index, offset] = values[offset]
                self.asker.history.delivered.append(
                    Delivered(self.asker.name, answer.partition_index, offset, values[offset], began_s)
                )

    async def acknowledge(self, verdicts: dict[tuple[int, int], int]) -> None:
        """Say what has become of records; what was released may be acquired again."""
        if not verdicts or not self._session_epoch:
            return
        by_partition: dict[int, list[Any]] = {}
        for (partition, offset), verdict in sorted(verdicts.items()):
            batch = ShareAcknowledgeRequest.AcknowledgementBatch(
                first_offset=offset, last_offset=offset, acknowledge_types=[verdict]
            )
            by_partition.setdefault(partition, []).append(batch)
        topic = ShareAcknowledgeRequest.AcknowledgeTopic(
            topic_id=self.asker.topic_ids[TOPIC],
            partitions=[
                ShareAcknowledgeRequest.AcknowledgePartition(
                    partition_index=partition, acknowledgement_batches=batches
                )
                for partition, batches in by_partition.items()
            ],
        )
        request = ShareAcknowledgeRequest(
            group_id=SHARERS, member_id=self.id, share_session_epoch=self._session_epoch, topics=[topic]
        )
        response = await self.asker.ask_leader((TOPIC, 0), request, 1, lambda answer: int(answer.error_code))
        if response.error_code:
            self._refused(int(response.error_code), "ShareAcknowledge")
            return
        self._session_epoch += 1
        for at in verdicts:
            self._acquired.pop(at, None)
        for topic_answer in response.responses:
            for answer in topic_answer.partitions:
                if answer.error_code:
                    self._refused_partition(int(answer.error_code), "ShareAcknowledge")
                    continue
                self._settle(answer.partition_index, verdicts)

    def _settle(self, partition: int, verdicts: dict[tuple[int, int], int]) -> None:
        for (of, offset), verdict in verdicts.items():
            if of == partition and verdict != RELEASE:
                self.asker.note(f"has settled {partition}/{offset}: {verdict}")
                self.asker.history.settled.append(
                    Settled(self.asker.name, partition, offset, trio.current_time())
                )
