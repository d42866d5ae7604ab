"""Dead letter queues of share groups (KIP-1191): what a broker of Kafka 4.4 writes of records that a group gives up."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

from barnabas.broker.assembly import assembled
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import real_environment
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import iter_batches
from barnabas.records.record import Record
from barnabas.serving.release import KAFKA_4
from tests.support.broker import Asked, Clock, ask_for_topic, broker_to_ask
from tests.support.plain_requests import ask

from .test_share_fetch import ACCEPT, REJECT, RELEASE, SETTINGS, Group, acquired

QUEUE = "errors.deadletterqueue."
AUTO = {f"{QUEUE}auto.create.topics.enable": "true"}
REJECTED, EXCEEDED = "Offset rejected by client.", "Offset delivery count exceeded the threshold."


async def group_of(asked: Asked, **own: str) -> Group:
    await ask_for_topic(asked)
    group = Group(asked)
    await group.set_up(**{f"{QUEUE}topic.name": "dlq.s", **own})
    await group.produce(b"a", b"b", b"c")
    return group


@pytest.fixture
async def group(tmp_path):
    async with broker_to_ask(tmp_path, {**SETTINGS, "kafka.version": "4.4", **AUTO}) as asked:
        yield await group_of(asked)


async def letters(asked: Asked, count: int, partition: int = 0, topic: str = "dlq.s") -> list[Record]:
    """The records of a partition of the queue, once there are so many."""
    with trio.fail_after(5):
        while topic not in asked.services.metadata.image.topics:
            await trio.sleep(0.01)
        log = asked.services.replicas.leader(topic, partition).log
        while log.high_watermark < count:
            await trio.sleep(0.01)
    data = log.read(0, max_bytes=1 << 20, upper_offset=log.high_watermark).to_bytes() if count else b""
    return [record for position, _ in iter_batches(data) for record in iter_any_records(data, position)]


def headers_of(record: Record) -> dict[str, str]:
    return {name.removeprefix("__dlq.errors."): (value or b"").decode() for name, value in record.headers}


async def remaining(group: Group) -> int:
    """Records of the first partition that are not accepted or archived yet."""
    topics = [{"TopicName": "t", "Partitions": [0]}]
    asked = {"Groups": [{"GroupId": "s", "Topics": topics}]}
    answer = await ask(group.asked, "DescribeShareGroupOffsets", 1, asked)
    return int(answer.groups[0].topics[0].partitions[0].lag)


async def all_settled(group: Group) -> None:
    """Wait until all records are accepted or archived."""
    with trio.fail_after(5):
        while await remaining(group):
            await trio.sleep(0.01)


async def test_rejected_record_is_written_with_its_headers(group):
    await group.fetch(0, 0)
    await group.say(1, 0, acks=[(0, 0, ACCEPT), (1, 1, REJECT), (2, 2, ACCEPT)])
    (letter,) = await letters(group.asked, 1)
    assert (letter.key, letter.value) == (None, None)
    names = ("topic", "partition", "offset", "group", "delivery.count", "message")
    assert list(headers_of(letter)) == list(names)
    assert headers_of(letter) == dict(zip(names, ("t", "0", "1", "s", "1", REJECTED), strict=True))
    await all_settled(group)
    own = group.asked.services.metadata.image.settings_of(2, "dlq.s")
    assert own == {f"{QUEUE}group.enable": "true", "message.timestamp.type": "CreateTime"}


async def test_letters_go_to_the_partition_of_the_same_number(group):
    await group.produce(b"x", partition=1)
    await group.fetch(0, 1)
    await group.say(1, 1, acks=[(0, 0, REJECT)])
    count = len(group.asked.services.metadata.image.topics["t"].partitions)
    assert count == 2
    (letter,) = await letters(group.asked, 1)  # of one partition: 1 modulo 1
    assert headers_of(letter)["partition"] == "1"


async def test_record_delivered_too_often_is_written(tmp_path):
    async with broker_to_ask(tmp_path, {**SETTINGS, "kafka.version": "4.4", **AUTO}) as asked:
        group = await group_of(asked, **{"share.delivery.count.limit": "2"})
        await group.fetch(0, 0)
        await group.say(1, 0, acks=[(0, 2, RELEASE)])
        assert acquired(await group.fetch(2, 0)) == {0: [(0, 2, 2)]}
        await group.say(3, 0, acks=[(0, 0, REJECT), (1, 2, RELEASE)])
        contents = [headers_of(letter) for letter in await letters(asked, 3)]
        assert [(each["offset"], each["delivery.count"], each["message"]) for each in contents] == [
            ("0", "2", REJECTED), ("1", "2", EXCEEDED), ("2", "2", EXCEEDED),
        ]  # fmt: skip
        await all_settled(group)


async def test_lost_lock_of_the_last_delivery_is_written(tmp_path):
    settings = {**SETTINGS, **AUTO, "kafka.version": "4.4", "group.share.min.record.lock.duration.ms": "1000"}
    async with broker_to_ask(tmp_path, settings) as asked:
        group = await group_of(
            asked, **{"share.delivery.count.limit": "2", "share.record.lock.duration.ms": "1000"}
        )
        await group.fetch(0, 0)
        await group.say(1, 0, acks=[(0, 2, RELEASE)])
        await group.fetch(2, 0)
        contents = [headers_of(letter) for letter in await letters(asked, 3)]
        assert {each["message"] for each in contents} == {EXCEEDED}
        await all_settled(group)


async def test_original_is_copied_if_the_group_asks_for_it(tmp_path):
    async with broker_to_ask(tmp_path, {**SETTINGS, "kafka.version": "4.4", **AUTO}) as asked:
        group = await group_of(asked, **{f"{QUEUE}copy.record.enable": "true"})
        await group.produce(b"d")  # a batch of its own
        await group.fetch(0, 0)
        await group.say(1, 0, acks=[(0, 3, REJECT)])
        contents = [(letter.key, letter.value) for letter in await letters(asked, 4)]
        assert contents == [(b"k", value) for value in (b"a", b"b", b"c", b"d")]


async def test_large_originals_go_in_batches_or_as_headers_alone(tmp_path):
    settings = {**SETTINGS, "kafka.version": "4.4", f"{QUEUE}topic.name.prefix": ""}
    async with broker_to_ask(tmp_path, settings) as asked:
        group = await group_of(asked, **{f"{QUEUE}copy.record.enable": "true", f"{QUEUE}topic.name": "mail"})
        configs = [
            {"Name": f"{QUEUE}group.enable", "Value": "true"}, {"Name": "max.message.bytes", "Value": "2000"},
        ]  # fmt: skip
        topic = {"Name": "mail", "NumPartitions": 1, "ReplicationFactor": 1, "Configs": configs}
        await ask(asked, "CreateTopics", 7, {"Topics": [topic]})
        await group.produce(b"x" * 1_500, b"y" * 1_500, b"z" * 3_000, partition=1)
        await group.fetch(0, 1)
        await group.say(1, 1, acks=[(0, 2, REJECT)])
        contents = await letters(asked, 3, topic="mail")
        assert [len(letter.value or b"") for letter in contents] == [1_500, 1_500, 0]


@pytest.mark.parametrize(
    ("settings", "own", "topic", "words"),
    [
        ({}, {}, None, "there is no topic dlq.s"),
        ({}, {}, {}, "topic dlq.s does not allow it"),
        (AUTO, {f"{QUEUE}topic.name": "mail"}, None, "topic mail does not begin with dlq."),
        ({}, {}, {f"{QUEUE}group.enable": "true", "cleanup.policy": "compact"}, "must have a key"),
    ],
)
async def test_what_cannot_be_written_is_logged_and_archived(tmp_path, caplog, settings, own, topic, words):
    async with broker_to_ask(tmp_path, {**SETTINGS, "kafka.version": "4.4", **settings}) as asked:
        group = await group_of(asked, **own)
        if topic is not None:
            configs = [{"Name": name, "Value": value} for name, value in topic.items()]
            new = {"Name": "dlq.s", "NumPartitions": 1, "ReplicationFactor": 1, "Configs": configs}
            answer = await ask(asked, "CreateTopics", 7, {"Topics": [new]})
            assert answer.topics[0].error_code == 0
        await group.fetch(0, 0)
        with caplog.at_level(logging.WARNING):
            await group.say(1, 0, acks=[(0, 2, REJECT)])
            await all_settled(group)
        assert words in caplog.text
        assert await letters(asked, 0) == [] if topic is not None else "dlq.s" not in image_topics(asked)


def image_topics(asked: Asked) -> Any:
    return asked.services.metadata.image.topics


async def test_share_version_1_has_no_dead_letter_queue(tmp_path):
    levels = (level._replace(finalized_level=1) for level in KAFKA_4.features)
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0", **SETTINGS, **AUTO}
    environment, release = real_environment(None, Clock()), KAFKA_4._replace(features=tuple(levels))
    async with assembled(BrokerConfig(settings), environment, release=release) as broker:
        asked = Asked(broker, Clock())
        group = await group_of(asked)
        await group.fetch(0, 0)
        await group.say(1, 0, acks=[(0, 2, REJECT)])
        assert await remaining(group) == 0
        assert "dlq.s" not in image_topics(asked)
