"""The least and the largest number in each field of each request: the answer is about it, and never a failure of ours.

Requests name what there is (a topic, a group, a producer), so that their numbers get as far as they can.
"""

from __future__ import annotations

import logging
from dataclasses import fields, is_dataclass

import pytest
import trio
import trio.testing

from barnabas.serving.release import KAFKA_4
from barnabas.testing.simulation.world import SimulatedThreads
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from barnabas.wire.generated.initialize_share_group_state import InitializeShareGroupStateRequest
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.headers import decode_response, encode_request
from tests.support.broker import broker_to_ask
from tests.support.effort import drawing, examples
from tests.support.logs import batch
from tests.support.messages import EDGES, Builder, all_messages, codec_of
from tests.support.request_parts import answered, new_connection, request_parts_of

SETTINGS = {
    "telemetry.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
FETCH, LIST_OFFSETS, WRITE_TXN_MARKERS = 1, 2, 27
MAX_BYTES_SINCE = 3
"""The version of Fetch from which on the whole answer has a size."""
EXTREMES = {name: (edges[0], edges[-1]) for name, edges in EDGES.items()}
HARMLESS = (0, 1, -1)
TEXTS = ("t", "g", "consumer", "range", "m", "1", "")
NAMES = {"group": "g", "name": "t", "topic": "t", "transactional": "t"}
"""Likely texts of a field, by a part of its name."""
PATIENCE_SECONDS = 5
"""Virtual ones: some requests wait for what does not come, as they should."""


class ExtremeBuilder(Builder):
    """Messages with small numbers, except for some that are as large or as small as they can be."""

    def __init__(self, message, version, random, topic_id):
        super().__init__(message, version, random, unknown_tags=False)
        self.topic_id = topic_id
        self.share_of_extremes = random.choice((0.05, 0.2, 0.6))

    def struct(self, cls, fields):
        filled = super().struct(cls, fields)
        for field in fields:
            likely = next((text for part, text in NAMES.items() if part in field.attribute), None)
            is_text = field.type.name == "string" and not field.type.array and self.version in field.versions
            if is_text and self.random.random() < 0.8:
                setattr(filled, field.attribute, likely or "")
        return filled

    def one(self, kind):
        random, name = self.random, kind.name
        if name in EXTREMES:
            if random.random() < self.share_of_extremes:
                return random.choice(EXTREMES[name])
            return random.choice([number for number in HARMLESS if number >= EDGES[name][0]])
        if name == "uuid":
            return random.choice((self.topic_id, bytes(16)))
        if name == "string":
            return random.choice(TEXTS)
        if name == "records":
            return bytes(batch())
        return super().one(kind)


class Received:
    """The other end of a connection."""

    def __init__(self):
        self.frames = []

    def send_now(self, data):
        self.frames.append(bytes(data))
        return len(data)

    async def send(self, chunks):
        self.frames.append(b"".join(bytes(chunk) for chunk in chunks))


def error_codes(message):
    """All error codes in a message."""
    for field in fields(message):
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield value
        for item in value if isinstance(value, list) else [value]:
            if is_dataclass(item):
                yield from error_codes(item)


def is_no_request_of_kafkas(key, version, request):
    """Say whether Kafka answers UNKNOWN_SERVER_ERROR too: to an isolation level or a size that there is not."""
    isolation_since = {FETCH: 4, LIST_OFFSETS: 2}.get(key)
    if isolation_since is not None and version >= isolation_since and request.isolation_level not in (0, 1):
        return True
    if key != FETCH:
        return False
    sizes = [part.partition_max_bytes for topic in request.topics for part in topic.partitions]
    return min([*sizes, request.max_bytes if version >= MAX_BYTES_SINCE else 0], default=0) < 0


async def populate(ask):
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    await ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    while (
        "t" not in ask.services.metadata.image.topics
    ):  # its logs are made in a thread, for which no clock waits
        await trio.sleep(0.01)
    await ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000), 4)
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    committed = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    await ask(OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[committed]), 8)
    # Without a state, a share partition answers UNKNOWN_SERVER_ERROR, as in Apache Kafka.
    share = InitializeShareGroupStateRequest
    states = share.InitializeStateData(
        topic_id=ask.services.metadata.image.topics["t"].id,
        partitions=[share.PartitionData(partition=index) for index in (0, 1)],
    )
    await ask(share(group_id="g", topics=[states]), 0)


async def check_numbers(api, settings, tmp_path, caplog):
    key = api.key
    message = all_messages()[f"{api.name}Request"]
    random = drawing()
    async with broker_to_ask(tmp_path, settings, threads=SimulatedThreads(random)) as ask:
        services, pipeline = ask.services, request_parts_of(ask.services, ask.broker.memory)
        await trio.testing.wait_all_tasks_blocked()
        await populate(ask)
        for version in range(api.min_version, api.max_version + 1):
            for _ in range(examples(40)):
                topic = services.metadata.image.topics.get("t")
                builder = ExtremeBuilder(message, version, random, topic.id if topic else bytes(16))
                request = builder.struct(codec_of(message).message, message.fields)
                sent = b"".join(bytes(chunk) for chunk in encode_request(key, version, 1, "c", request))[4:]
                peer = Received()
                with trio.move_on_after(PATIENCE_SECONDS):
                    await answered(pipeline, new_connection(), peer, memoryview(bytearray(sent)))
                what = f"{api.name} v{version}: {request}"
                assert not [r for r in caplog.records if r.exc_info or r.levelno >= logging.ERROR], what
                for frame in peer.frames:
                    answer = decode_response(frame[4:], key, version)[1]
                    # Kafka answers so where it can make no such marker.
                    if key == WRITE_TXN_MARKERS or is_no_request_of_kafkas(key, version, request):
                        continue
                    assert ErrorCode.UNKNOWN_SERVER_ERROR not in error_codes(answer), f"{what}: {answer}"
        await services.group_coordinator.expire_offsets()
    # What was written can be read again.
    async with broker_to_ask(tmp_path, settings, threads=SimulatedThreads(random)) as ask:
        await ask.services.group_coordinator.machines()
        await ask.services.transaction_coordinator.machines()
    assert not [record for record in caplog.records if record.exc_info], f"{api.name}: after the requests"


@pytest.mark.parametrize("key", [key for key, api in KAFKA_4.apis.items() if not api.member_only])
async def test_no_number_makes_a_request_fail_here(key, tmp_path, caplog, autojump_clock):
    await check_numbers(KAFKA_4.apis[key], SETTINGS, tmp_path, caplog)
