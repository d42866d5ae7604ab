"""Contents of a broker, as plain values that can be written as JSON: topics, records, groups.

The rule: the content is that for a consumer, from the same requests. Keys, values and headers are texts if they are
UTF-8, and `{"base64": ...}` otherwise: the form of seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from barnabas.records.batch import BatchHeader, iter_batches, read_records
from barnabas.records.committed import AbortedBatches
from barnabas.tools.inspection.plain_records import plain, plain_headers
from barnabas.tools.seeding.local_requests import LocalRequests, records_of
from barnabas.tools.seeding.planting import Planting, error_name
from barnabas.tools.seeding.seeds import SeedError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog
    from barnabas.records.record import Record

READ_BYTES = 1024 * 1024
READ_COMMITTED = 1
JsonObject = dict[str, Any]
Batch = tuple[bytes, int, BatchHeader]
"""A batch in the bytes that were read: those, its position, its header."""


class NotThereError(SeedError):
    """There is no such topic, partition or group."""


def plain_record(partition: int, record: Record) -> JsonObject:
    """Return a record as plain values."""
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": plain(record.key),
        "value": plain(record.value),
        "headers": plain_headers(record.headers),
    }


def _data_batches(records: bytes, offset: int, transactions: Iterable[Any]) -> tuple[list[Batch], int]:
    """Return the batches of records except markers and these aborted transactions, and the offset after them."""
    batches: list[Batch] = []
    aborted = AbortedBatches(transactions)
    for position, header in iter_batches(records):
        offset = header.next_offset
        if not aborted.hides(records, position, header) and not header.is_control:
            batches.append((records, position, header))
    return batches, offset


class Looking:
    """Looks at one broker."""

    def __init__(self, local: LocalRequests) -> None:
        self.local = local
        self._services = local.services

    # --- topics and records ---------------------------------------------------------------------------------

    def topics(self, *, internal: bool = False) -> list[JsonObject]:
        """Return all topics, those of the coordinators only if `internal`."""
        image = self._services.metadata.image
        return [self.topic(name) for name in sorted(image.topics) if internal or not name.startswith("__")]

    def topic(self, name: str) -> JsonObject:
        """Return a topic: its settings that were set, and where its partitions begin and end. Raises NotThereError."""
        from barnabas.cluster.metadata.image import TOPIC
        from barnabas.wire.ids import uuid_text

        image = self._services.metadata.image
        info = image.topics.get(name)
        if info is None:
            raise NotThereError(f"there is no topic {name}")
        partitions = []
        for index in range(len(info.partitions)):
            log = self._services.logs.get(name, index)
            if log is not None:
                partitions.append(
                    {"partition": index, "log_start_offset": log.log_start_offset, "high_watermark": log.high_watermark,
                     "last_stable_offset": log.last_stable_offset, "bytes": log.store.size_bytes}
                )  # fmt: skip
        settings = dict(image.settings_of(TOPIC, name))
        return {"name": name, "id": uuid_text(info.id), "settings": settings, "partitions": partitions}

    async def records(
        self,
        topic: str,
        partition: int | None = None,
        offset: int = 0,
        *,
        limit: int = 100,
        committed: bool = True,
    ) -> list[JsonObject]:
        """Return up to `limit` records from an offset on, partition by partition. Raises NotThereError."""
        plain_records: list[JsonObject] = []
        for index in self._partitions(topic, partition):
            records = await self.read(
                topic, index, offset, limit=limit - len(plain_records), committed=committed
            )
            plain_records += [plain_record(index, record) for record in records]
        return plain_records

    def _partitions(self, topic: str, partition: int | None) -> list[int]:
        info = self._services.metadata.image.topics.get(topic)
        if info is None:
            raise NotThereError(f"there is no topic {topic}")
        if partition is None:
            return list(range(len(info.partitions)))
        if not 0 <= partition < len(info.partitions):
            raise NotThereError(f"topic {topic} has no partition {partition}")
        return [partition]

    async def read(
        self, topic: str, partition: int, offset: int = 0, *, limit: int, committed: bool = True
    ) -> list[Record]:
        """Return up to `limit` records of a partition, without those of aborted transactions if `committed` is set."""
        result: list[Record] = []
        offset = max(offset, self._log(topic, partition).log_start_offset)
        while len(result) < limit:
            batches, after = await self._batches(topic, partition, offset, committed=committed)
            for records, position, _ in batches:
                result += [record for record in read_records(records, position) if record.offset >= offset]
            if after <= offset:
                break
            offset = after
        return result[:limit]

    async def count(
        self, topic: str, partition: int, offset: int = 0, *, committed: bool = True
    ) -> tuple[int, int]:
        """Return the number of records from an offset on, and the offset after the last of them."""
        count = 0
        offset = max(offset, self._log(topic, partition).log_start_offset)
        while True:
            batches, after = await self._batches(topic, partition, offset, committed=committed)
            for records, position, header in batches:
                if header.base_offset >= offset:
                    count += header.records_count
                else:
                    count += sum(record.offset >= offset for record in read_records(records, position))
            if after <= offset:
                return count, offset
            offset = after

    async def _batches(
        self, topic: str, partition: int, offset: int, *, committed: bool
    ) -> tuple[list[Batch], int]:
        """Return some batches of records, without markers and aborted ones, and the offset to resume at.

        The latter is not after `offset` at the end of the partition.
        """
        from barnabas.wire.generated.fetch import FetchRequest

        offset = max(offset, self._log(topic, partition).log_start_offset)
        partition_to_fetch = FetchRequest.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=READ_BYTES
        )
        request = FetchRequest(
            max_bytes=READ_BYTES,
            isolation_level=READ_COMMITTED if committed else 0,
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition_to_fetch])],
        )
        response = await self.local.ask(request, 11)
        (answer,) = response.responses[0].partitions
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return [], offset
        if answer.error_code:
            raise SeedError(f"{topic}-{partition}: {error_name(answer.error_code)}")
        return _data_batches(records_of(answer.records), offset, answer.aborted_transactions or ())

    def _log(self, topic: str, partition: int) -> PartitionLog:
        log = self._services.logs.get(topic, partition)
        if log is None:
            raise NotThereError(f"topic {topic} has no partition {partition}")
        return log

    # --- groups ---------------------------------------------------------------------------------------------

    async def groups(self) -> list[JsonObject]:
        """Return all groups: id, type and state."""
        from barnabas.wire.generated.list_groups import ListGroupsRequest

        if "__consumer_offsets" not in self._services.metadata.image.topics:
            return []
        response = await self.local.ask_until_known(
            ListGroupsRequest(), 5, lambda response: int(response.error_code)
        )
        if response.error_code:
            raise SeedError(f"groups: {error_name(response.error_code)}")
        return [
            {"group": listed.group_id, "type": listed.group_type, "state": listed.group_state}
            for listed in sorted(response.groups, key=lambda listed: str(listed.group_id))
        ]

    async def group(self, group_id: str) -> JsonObject:
        """Return a group: type, state, members, committed offsets and lag. Raises NotThereError."""
        groups_by_id = {group["group"]: group for group in await self.groups()}
        if group_id not in groups_by_id:
            raise NotThereError(f"there is no group {group_id}")
        info = dict(groups_by_id[group_id])
        described = await self._describe(group_id, info["type"])
        info["state"] = described.group_state
        info["members"] = [
            {"member": member.member_id, "client_id": member.client_id, "host": member.client_host}
            for member in described.members
        ]
        info["offsets"] = await self._offsets(group_id)
        return info

    async def _describe(self, group_id: str, kind: str) -> Any:
        from barnabas.wire.generated.consumer_group_describe import ConsumerGroupDescribeRequest
        from barnabas.wire.generated.describe_groups import DescribeGroupsRequest
        from barnabas.wire.generated.share_group_describe import ShareGroupDescribeRequest
        from barnabas.wire.generated.streams_group_describe import StreamsGroupDescribeRequest

        requests: dict[str, Callable[[], tuple[Any, int]]] = {
            "consumer": lambda: (ConsumerGroupDescribeRequest(group_ids=[group_id]), 1),
            "share": lambda: (ShareGroupDescribeRequest(group_ids=[group_id]), 1),
            "streams": lambda: (StreamsGroupDescribeRequest(group_ids=[group_id]), 0),
        }
        classic: Callable[[], tuple[Any, int]] = lambda: (DescribeGroupsRequest(groups=[group_id]), 5)  # noqa: E731
        request, version = requests.get(kind.lower(), classic)()
        response = await self.local.ask_until_known(
            request, version, lambda response: int(response.groups[0].error_code)
        )
        (described,) = response.groups
        if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise NotThereError(f"there is no group {group_id}")
        if described.error_code:
            raise SeedError(f"group {group_id}: {error_name(described.error_code)}")
        return described

    async def _offsets(self, group_id: str) -> list[JsonObject]:
        offsets = []
        for (topic, partition), offset in sorted((await Planting(self.local).committed(group_id)).items()):
            log = self._services.logs.get(topic, partition)
            lag = None if log is None else max(0, log.high_watermark - offset)
            offsets.append({"topic": topic, "partition": partition, "offset": offset, "lag": lag})
        return offsets
