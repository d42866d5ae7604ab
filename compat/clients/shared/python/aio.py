"""aiokafka: producer, consumer and admin client as its documentation shows them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from harness import COUNT, PARTITIONS, TIME_ZERO_MS, Cases, Check, interop_topics, records, restart_broker
from secured import aiokafka as security

cases = Cases(lacks={"consume-group-848": "aiokafka knows the classic group protocol only"})


class GivenToken(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def connection() -> dict[str, object]:
    """Settings with which each client connects."""
    return {"bootstrap_servers": cases.bootstrap, **security(GivenToken)}


def case(name: str) -> Callable[[Callable[[], Coroutine[object, object, str]]], object]:
    """Register a coroutine function as a case."""
    return lambda function: cases.case(name)(lambda: asyncio.run(function()))


async def until(
    condition: Callable[[], bool], step: Callable[[], Awaitable[object]], what: str, seconds: float = 40
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in {seconds:.0f} s: {what}"
        await step()


async def becomes(read: Callable[[], Awaitable[object]], expected: object, what: str) -> None:
    """Wait until `read` returns `expected`: a Kafka broker follows its controller a moment late."""
    seen: list[object] = []

    async def look() -> None:
        seen[:] = [await read()]

    await until(lambda: seen == [expected], look, what, 10)


@asynccontextmanager
async def admin_client() -> AIOKafkaAdminClient:
    admin = AIOKafkaAdminClient(**connection())
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


@asynccontextmanager
async def consumer_of(*topics: str, **options: object) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(*topics, **connection(), auto_offset_reset="earliest", **options)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def create(topic: str) -> str:
    async with admin_client() as admin:
        response = await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        assert [entry[1] for entry in response.topic_errors] == [0], response
    # Kafka answers NOT_LEADER for a moment after the creation; a retry then may reorder records.
    async with consumer_of() as consumer:
        await consumer.end_offsets([TopicPartition(topic, number) for number in range(PARTITIONS)])
    return topic


async def send(
    producer: AIOKafkaProducer, topic: str, first: int, last: int, *, timestamps: bool = False
) -> None:
    sent = []
    for record in records(first, last):
        when = {"timestamp_ms": TIME_ZERO_MS + record.number * 1000} if timestamps else {}
        sent.append(
            await producer.send(topic, key=record.key, value=record.value, headers=record.headers, **when)
        )
    await asyncio.gather(*sent)


async def produce(topic: str, first: int, last: int, *, timestamps: bool = False, **options: object) -> None:
    async with AIOKafkaProducer(**connection(), **options) as producer:
        await send(producer, topic, first, last, timestamps=timestamps)


async def poll(consumer: AIOKafkaConsumer, check: Check, **options: object) -> None:
    for batch in (await consumer.getmany(timeout_ms=300, **options)).values():
        for m in batch:
            check.add(m.partition, m.offset, m.key, m.value, m.headers)


async def read(topic: str, count: int, *, headers: bool = True, **options: object) -> Check:
    """Read a whole topic without a group."""
    check = Check(headers)
    async with consumer_of(topic, **options) as consumer:
        await until(
            lambda: len(check.placed) >= count, lambda: poll(consumer, check), f"{count} records of {topic}"
        )
    return check


@case("create-topic")
async def create_topic() -> str:
    topic = await create(cases.topic("create-topic"))
    async with admin_client() as admin:

        async def partitions() -> tuple[int, list[int]]:
            described = (await admin.describe_topics([topic]))[0]
            return described["error_code"], sorted(p["partition"] for p in described["partitions"])

        await becomes(partitions, (0, [0, 1, 2]), "the new topic")
        again = await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        assert [entry[1] for entry in again.topic_errors] == [36], again  # TOPIC_ALREADY_EXISTS
    return f"{PARTITIONS} partitions"


def produce_case(codec: str) -> Callable[[], Coroutine[object, object, str]]:
    async def run() -> str:
        topic = await create(cases.topic(f"produce-{codec}"))
        await produce(topic, 0, COUNT, compression_type=None if codec == "none" else codec)
        (await read(topic, COUNT)).finish(range(COUNT))
        return f"{COUNT} records"

    return run


for _codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    case(f"produce-{_codec}")(produce_case(_codec))


class Member:
    """A consumer of a group that reads in a separate task."""

    def __init__(self, topic: str, group: str, check: Check) -> None:
        self.partitions: set[int] = set()
        self.read = 0
        self._leave = False
        self._check = check
        self.task = asyncio.create_task(self._run(topic, group))

    async def _run(self, topic: str, group: str) -> None:
        async with consumer_of(topic, group_id=group, heartbeat_interval_ms=300) as consumer:
            while not self._leave:
                before = len(self._check.placed)
                await poll(consumer, self._check)
                self.read += len(self._check.placed) - before
                self.partitions = {partition.partition for partition in consumer.assignment()}

    async def leave(self) -> None:
        self._leave = True
        await self.task


@case("consume-group")
async def consume_group() -> str:
    topic, group, check = await create(cases.topic("consume-group")), cases.topic("group"), Check()
    everything = set(range(PARTITIONS))
    await produce(topic, 0, 1000)
    first = Member(topic, group, check)
    members = [first]

    async def step() -> None:
        for member in members:
            if member.task.done():
                member.task.result()
        await asyncio.sleep(0.02)

    def shared() -> bool:
        mine, other = first.partitions, second.partitions
        return bool(mine and other) and not mine & other and mine | other == everything

    await until(
        lambda: check.has(range(1000)) and first.partitions == everything, step, "one member reads all"
    )
    second = Member(topic, group, check)
    members.append(second)
    await until(shared, step, "two members share the partitions")
    await produce(topic, 1000, 2000)
    await until(lambda: check.has(range(2000)), step, "two members read all")
    assert second.read, "the second member has read nothing"
    members.remove(second)
    await second.leave()
    await until(lambda: first.partitions == everything, step, "the first member has all partitions again")
    await produce(topic, 2000, 3000)
    await until(lambda: check.has(range(3000)), step, "the remaining member reads all")
    await first.leave()
    check.finish(range(3000), repeats=True)
    return f"3000 records, {second.read} by the second member, {check.repeated} again after a rebalance"


async def read_and_commit(topic: str, group: str, check: Check, goal: int) -> None:
    async with consumer_of(topic, group_id=group, enable_auto_commit=False) as consumer:
        await until(
            lambda: len(check.placed) >= goal,
            lambda: poll(consumer, check, max_records=500),
            f"{goal} records",
        )
        await consumer.commit()
        for partition in consumer.assignment():
            assert await consumer.committed(partition) == await consumer.position(partition), partition


@case("commit-resume")
async def commit_resume() -> str:
    topic, group = await create(cases.topic("commit-resume")), cases.topic("resume")
    await produce(topic, 0, COUNT)
    check = Check()
    await read_and_commit(topic, group, check, COUNT // 3)
    before = len(check.placed)
    await read_and_commit(topic, group, check, COUNT)
    check.finish(range(COUNT))
    return f"{before} records, commit, restart, {COUNT - before} more"


def broker_case(how: str) -> Callable[[], Coroutine[object, object, str]]:
    """As harness.outlive_broker, with tasks in the place of threads."""

    async def run() -> str:
        topic, group = await create(cases.topic(f"broker-{how}")), cases.topic(f"broker-{how}-group")
        half, check, followed = COUNT // 2, Check(), Check()
        # One batch at a time under way is all that aiokafka does per partition.
        async with AIOKafkaProducer(**connection(), acks="all") as producer:
            await send(producer, topic, 0, half)
            member = Member(topic, f"{group}-stays", followed)

            async def step() -> None:
                if member.task.done():
                    member.task.result()
                await asyncio.sleep(0.02)

            await until(lambda: followed.has(range(half)), step, "the member reads what is there")
            await read_and_commit(topic, group, check, COUNT // 3)
            before = len(check.placed)
            await asyncio.to_thread(restart_broker, how)
            await send(producer, topic, half, COUNT)
        await read_and_commit(topic, group, check, COUNT)
        check.finish(range(COUNT))
        await until(lambda: followed.has(range(COUNT)), step, "the member that stays reads on")
        await member.leave()
        followed.finish(range(COUNT), repeats=True)
        return f"{before} records, commit, broker's restart, {COUNT - before} more by a new member"

    return run


case("broker-restart")(broker_case("term"))
case("broker-kill")(broker_case("kill"))


@case("read-by-timestamp")
async def read_by_timestamp() -> str:
    topic = await create(cases.topic("read-by-timestamp"))
    await produce(topic, 0, 1000, timestamps=True)
    check = Check()
    async with consumer_of() as consumer:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        late = dict.fromkeys(partitions, TIME_ZERO_MS + 1000 * 1000)
        assert await consumer.offsets_for_times(late) == dict.fromkeys(partitions)
        offsets = await consumer.offsets_for_times(dict.fromkeys(partitions, TIME_ZERO_MS + 500 * 1000 - 1))
        for partition, place in offsets.items():
            assert place.timestamp >= TIME_ZERO_MS + 500 * 1000, place
            consumer.seek(partition, place.offset)
        await until(lambda: len(check.placed) >= 500, lambda: poll(consumer, check), "the younger half")
    check.finish(range(500, 1000))
    return "offsets of the 501st record on, read from there"


@case("acks")
async def acks() -> str:
    for level in (0, 1, "all"):
        topic = await create(cases.topic(f"acks-{level}"))
        await produce(topic, 0, 500, acks=level)
        (await read(topic, 500)).finish(range(500))
    return "500 records with each of 0, 1, all"


@case("idempotent-produce")
async def idempotent_produce() -> str:
    topic = await create(cases.topic("idempotent"))
    await produce(topic, 0, COUNT, enable_idempotence=True)
    (await read(topic, COUNT)).finish(range(COUNT))
    return f"{COUNT} records"


@case("transactions")
async def transactions() -> str:
    topic = await create(cases.topic("transactions"))
    producer = AIOKafkaProducer(**connection(), transactional_id=cases.topic("txn"))
    async with producer:
        for first, last, commit in ((0, 500, True), (500, 1000, False), (1000, 1500, True)):
            await producer.begin_transaction()
            await send(producer, topic, first, last)
            await (producer.commit_transaction() if commit else producer.abort_transaction())
    committed = await read(topic, 1000, isolation_level="read_committed")
    committed.finish([*range(500), *range(1000, 1500)])
    (await read(topic, 1500)).finish(range(1500))
    return "two committed, one aborted, of 500 records each"


@case("admin")
async def administer() -> str:
    topic, group = await create(cases.topic("admin")), cases.topic("admin-group")
    await produce(topic, 0, 300)
    check = Check()
    async with consumer_of(topic, group_id=group) as consumer, admin_client() as admin:
        await until(lambda: bool(check.placed), lambda: poll(consumer, check), "something read")
        await _change_configs(admin, topic)
        await admin.create_partitions({topic: NewPartitions(5)})

        async def partitions() -> int:
            return len((await admin.describe_topics([topic]))[0]["partitions"])

        await becomes(partitions, 5, "new partitions")
        partition = TopicPartition(topic, 1)
        end = (await consumer.end_offsets([partition]))[partition]
        done = await admin.delete_records({partition: RecordsToDelete(end - 2)})
        assert done == {partition: end - 2}, done
        assert await consumer.beginning_offsets([partition]) == {partition: end - 2}
        assert group in {entry[0] for entry in await admin.list_consumer_groups()}
        groups = (await admin.describe_consumer_groups([group]))[0].groups
        assert [(entry[0], entry[1], entry[2]) for entry in groups] == [(0, group, "Stable")], groups
    async with admin_client() as admin:
        offsets = await admin.list_consumer_group_offsets(group)
        assert sum(place.offset for place in offsets.values()) > 0, offsets
    return "configs, partitions, records, groups"


async def _change_configs(admin: AIOKafkaAdminClient, topic: str) -> None:
    async def configs() -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        error, message, _, name, entries = (await admin.describe_configs([resource]))[0].resources[0]
        assert (error, name) == (0, topic), (error, message)
        return {entry[0]: entry[1] for entry in entries}

    before = await configs()
    assert (before["cleanup.policy"], before["retention.ms"]) == ("delete", "604800000"), before
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "12345678"})])
    await becomes(configs, {**before, "retention.ms": "12345678"}, "a changed topic config")


@case("interop")
async def interop() -> str:
    topics = interop_topics()
    for topic, count, headers in topics:
        try:
            (await read(topic, count, headers=headers)).finish(range(count))
        except AssertionError as error:
            raise AssertionError(f"{topic}: {error}") from error
    return f"{len(topics)} topics of other clients"


@case("delete-topic")
async def delete_topic() -> str:
    topic = await create(cases.topic("delete-topic"))
    await produce(topic, 0, 100)
    async with admin_client() as admin:
        response = await admin.delete_topics([topic])
        assert [entry[1] for entry in response.topic_error_codes] == [0], response
        topics = [topic]

        async def look() -> None:
            topics[:] = await admin.list_topics()

        await until(lambda: topic not in topics, look, "the topic is gone", 20)
    return "gone"


if __name__ == "__main__":
    cases.main()
