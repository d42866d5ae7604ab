"""Applying seeds to a broker.

The rule: everything is written by the handlers that clients use, ACLs by the metadata store behind them. The first refusal
of the broker ends it, with the broker's reason; earlier changes stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.startup import StartupError
from barnabas.records.building import encode_batch
from barnabas.records.partitioner import partition_of_key
from barnabas.records.record import Record
from barnabas.security.scram import MECHANISMS, salted_password
from barnabas.tools.seeding.local_requests import LocalRequests
from barnabas.tools.seeding.seeds import EARLIEST, LATEST, SeedError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.tools.seeding.seeds import SeedOffset, SeedRecord, Seeds, SeedTopic, SeedUser

TIMEOUT_MS = 30_000
BATCH_BYTES_MAX = 256 * 1024
"""Bytes of keys and values in one batch; a larger record gets a separate batch."""
SALT_BYTES = 18
_ERROR_NAMES = {int(code): code.name for code in ErrorCode}


async def plant(broker: Broker, seeds: Seeds, *, only_new: bool = False) -> None:
    """Apply seeds to a broker. Raises SeedError with the broker's reason.

    With `only_new`, existing objects are left unchanged: the records of a topic that exists, and the offsets of
    a group that has committed for the partition. Otherwise records are appended and offsets are set.
    """
    await Planting(LocalRequests(broker), only_new=only_new).plant(seeds)


def preparing(seeds: Seeds) -> Callable[[Broker], Awaitable[None]]:
    """Return a function that applies seeds to a broker before it serves, if they are new to it; raises StartupError."""

    async def prepare(broker: Broker) -> None:
        try:
            await plant(broker, seeds, only_new=True)
        except SeedError as error:
            raise StartupError(str(error)) from error

    return prepare


class Planting:
    """Puts seeds into one broker."""

    def __init__(self, local: LocalRequests, *, only_new: bool = False) -> None:
        self._local = local
        self._only_new = only_new

    async def plant(self, seeds: Seeds) -> None:
        """Apply all seeds. Raises SeedError."""
        created = await self.create_topics(seeds.topics)
        for topic in seeds.topics:
            if topic.records and (topic.name in created or not self._only_new):
                await self.append(topic.name, topic.records)
        await self._commit(seeds.offsets)
        await self._add_acls(seeds)
        for user in seeds.users:
            await self._add_user(user)
        await self._set_quotas(seeds)

    # --- topics and records ---------------------------------------------------------------------------------

    async def create_topics(self, topics: Sequence[SeedTopic]) -> set[str]:
        """Make the topics that are not there, and return their names. Raises SeedError."""
        from barnabas.wire.generated.create_topics import CreateTopicsRequest

        if not topics:
            return set()
        asked = [
            CreateTopicsRequest.CreatableTopic(
                name=topic.name,
                num_partitions=-1 if topic.partitions is None else topic.partitions,
                replication_factor=-1,
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
                    for name, value in topic.settings.items()
                ],
            )
            for topic in topics
        ]
        response = await self._local.ask(CreateTopicsRequest(topics=asked, timeout_ms=TIMEOUT_MS), 5)
        created = set()
        for answer in response.topics:
            if answer.error_code == ErrorCode.NONE:
                created.add(answer.name)
            elif answer.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                where = next(topic.where for topic in topics if topic.name == answer.name)
                raise _refused(f"topic {answer.name}", answer.error_code, answer.error_message, where)
        return created

    async def append(self, topic: str, records: Iterable[SeedRecord]) -> list[tuple[int, int]]:
        """Append records and return (partition, offset) of each. Raises SeedError.

        A key determines the partition as in the Java client; records without a key are distributed in turn.
        """
        from barnabas.wire.generated.produce import ProduceRequest

        info = self._local.services.metadata.image.topics.get(topic)
        if info is None:
            raise _refused(f"records of topic {topic}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        now_ms = self._local.services.clock_ms()
        by_partition: dict[int, list[tuple[int, Record]]] = defaultdict(list)
        wheres: list[str] = []
        turn = count = 0
        for record in records:
            wheres.append(record.where)
            partition = record.partition
            if partition is None and record.key is not None:
                partition = partition_of_key(record.key, len(info.partitions))
            elif partition is None:
                partition, turn = turn % len(info.partitions), turn + 1
            timestamp = now_ms if record.timestamp_ms is None else record.timestamp_ms
            encodable = Record(0, timestamp, record.key, record.value, list(record.headers))
            by_partition[partition].append((count, encodable))
            count += 1
        places: list[tuple[int, int]] = [(-1, -1)] * count
        for partition, numbered in by_partition.items():
            for batch in _batches(numbered):
                data = ProduceRequest.PartitionProduceData(
                    index=partition,
                    records=memoryview(bytearray(encode_batch([record for _, record in batch]))),
                )
                request = ProduceRequest(
                    acks=-1,
                    timeout_ms=TIMEOUT_MS,
                    topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
                )
                response = await self._local.ask_until_known(
                    request, 8, lambda response: int(response.responses[0].partition_responses[0].error_code)
                )
                answer = response.responses[0].partition_responses[0]
                if answer.error_code:
                    first = answer.record_errors[0].batch_index if answer.record_errors else 0
                    what, where = f"records of {topic}-{partition}", wheres[batch[first][0]]
                    raise _refused(what, answer.error_code, answer.error_message, where)
                for delta, (number, _) in enumerate(batch):
                    places[number] = (partition, answer.base_offset + delta)
        return places

    # --- groups ---------------------------------------------------------------------------------------------

    async def _commit(self, offsets: Sequence[SeedOffset]) -> None:
        by_group: dict[str, list[SeedOffset]] = defaultdict(list)
        for offset in offsets:
            by_group[offset.group].append(offset)
        for group, seeds in by_group.items():
            where = seeds[0].where
            await self.coordinate(group, where)
            if self._only_new:
                present = await self.committed(group, where)
                seeds = [seed for seed in seeds if (seed.topic, seed.partition) not in present]
            if seeds:
                await self._commit_of(group, seeds)

    async def _commit_of(self, group: str, seeds: Sequence[SeedOffset]) -> None:
        from barnabas.wire.generated.offset_commit import OffsetCommitRequest

        topics: dict[str, OffsetCommitRequest.OffsetCommitRequestTopic] = {}
        for seed in seeds:
            topic = topics.setdefault(
                seed.topic, OffsetCommitRequest.OffsetCommitRequestTopic(name=seed.topic)
            )
            topic.partitions.append(
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=seed.partition,
                    committed_offset=await self._offset_of(seed),
                    committed_metadata=seed.metadata,
                )
            )
        response = await self._local.ask(OffsetCommitRequest(group_id=group, topics=list(topics.values())), 8)
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    what = f"the offset of group {group} for {topic.name}-{partition.partition_index}"
                    place = topic.name, partition.partition_index
                    where = next(seed.where for seed in seeds if (seed.topic, seed.partition) == place)
                    raise _refused(what, partition.error_code, "", where)

    async def _offset_of(self, seed: SeedOffset) -> int:
        if seed.offset not in (EARLIEST, LATEST):
            return seed.offset
        log = self._local.services.logs.get(seed.topic, seed.partition)
        if log is None:
            what = f"the offset of group {seed.group} for {seed.topic}-{seed.partition}"
            raise _refused(what, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "", seed.where)
        return log.log_start_offset if seed.offset == EARLIEST else log.high_watermark

    async def coordinate(self, group: str, where: str = "") -> None:
        """Return when the coordinator of a group answers; its topic is created if necessary. Raises SeedError."""
        from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest

        coordinator = await self._local.ask_until_known(
            FindCoordinatorRequest(key=group), 2, lambda response: int(response.error_code)
        )
        if coordinator.error_code:
            raise _refused(f"group {group}", coordinator.error_code, coordinator.error_message, where)
        await self.committed(group, where)  # which waits until the coordinator has read its partition

    async def committed(self, group: str, where: str = "") -> dict[tuple[str, int], int]:
        """Return a group's committed offsets, by topic and partition. Raises SeedError."""
        from barnabas.wire.generated.offset_fetch import OffsetFetchRequest

        response = await self._local.ask_until_known(
            OffsetFetchRequest(group_id=group, topics=None), 7, lambda response: int(response.error_code)
        )
        if response.error_code:
            raise _refused(f"offsets of group {group}", response.error_code, "", where)
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in response.topics
            for partition in topic.partitions
            if partition.committed_offset >= 0
        }

    # --- security and quotas --------------------------------------------------------------------------------

    async def _add_acls(self, seeds: Seeds) -> None:
        from barnabas.cluster.metadata.access_changes import AclAdded
        from barnabas.config import broker as settings
        from barnabas.config import releases
        from barnabas.config.authorizer import has_authorizer
        from barnabas.security.networks import check_host

        if not seeds.acls:
            return
        services = self._local.services
        if not has_authorizer(services.config):
            raise SeedError(
                f"{seeds.acls_where or 'acls'}: this broker has no authorizer; set authorizer.class.name="
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            )
        if releases.knows_networks(services.config.get(settings.KAFKA_VERSION)):
            for acl in seeds.acls:
                try:
                    check_host(acl.entry.host)
                except ValueError as error:
                    raise SeedError(f"acls: {error}") from None
        await services.metadata.change(
            lambda image: [AclAdded(acl) for acl in seeds.acls if acl not in image.acls]
        )

    async def _add_user(self, user: SeedUser) -> None:
        from barnabas.wire.generated.alter_user_scram_credentials import AlterUserScramCredentialsRequest

        services = self._local.services
        for name in user.mechanisms:
            mechanism = MECHANISMS[name]
            salt = services.entropy.token_bytes(SALT_BYTES)
            salted = salted_password(mechanism, user.password, salt, user.iterations)
            upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                name=user.name,
                mechanism=mechanism.type,
                iterations=user.iterations,
                salt=salt,
                salted_password=salted,
            )
            response = await self._local.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
            (answer,) = response.results
            if answer.error_code:
                raise _refused(f"user {user.name}", answer.error_code, answer.error_message, user.where)

    async def _set_quotas(self, seeds: Seeds) -> None:
        from barnabas.wire.generated.alter_client_quotas import AlterClientQuotasRequest as Request

        for seed in seeds.quotas:
            entry = Request.EntryData(
                entity=[
                    Request.EntityData(entity_type=kind, entity_name=name) for kind, name in seed.entity.parts
                ],
                ops=[Request.OpData(key=key, value=value) for key, value in seed.quotas.items()],
            )
            response = await self._local.ask(Request(entries=[entry]), 1)
            (answer,) = response.entries
            if answer.error_code:
                raise _refused(
                    f"quotas of {seed.entity}", answer.error_code, answer.error_message, seed.where
                )


def _batches(numbered: Sequence[tuple[int, Record]]) -> Iterator[list[tuple[int, Record]]]:
    """Cut records into batches."""
    batch: list[tuple[int, Record]] = []
    size = 0
    for number, record in numbered:
        record_size = len(record.key or b"") + len(record.value or b"")
        if batch and size + record_size > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append((number, Record(len(batch), record.timestamp, record.key, record.value, record.headers)))
        size += record_size
    if batch:
        yield batch


def error_name(code: int) -> str:
    """Return Kafka's name of an error code."""
    return _ERROR_NAMES.get(code, str(code))


def _refused(what: str, code: int, message: str | None, where: str = "") -> SeedError:
    reason = f"{what}: {error_name(code)}{f' ({message})' if message else ''}"
    return SeedError(f"{where}: {reason}" if where else reason)
