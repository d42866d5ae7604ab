"""A heartbeat that says the same as the one before it is not read again, and is handled and answered as any other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.serving import apis
from barnabas.serving.last_request import BYTES_MAX
from barnabas.serving.request import Request
from barnabas.serving.request_parts import RequestParts
from barnabas.serving.stages import STAGES
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.heartbeat import HeartbeatRequest
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest as Alter
from barnabas.wire.generated.leave_group import LeaveGroupRequest
from barnabas.wire.generated.sync_group import SyncGroupRequest
from barnabas.wire.headers import decode_response, encode_request
from tests.support.broker import ask_for_topic, broker_to_ask
from tests.support.request_parts import Transport, answered, frame_of, new_connection
from tests.unit.broker.test_requests_that_wait import beat as first_beat
from tests.unit.broker.test_requests_that_wait import joining, request_parts_of

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, CONSUMER_GROUP_HEARTBEAT = 11, 12, 13, 14, 68
INCREMENTAL_ALTER_CONFIGS = 44
GROUP = 32
"""The type of resource."""


class Client:
    """Sends requests on one connection, with a correlation id of its own each."""

    def __init__(self, request_parts: RequestParts) -> None:
        self.request_parts = request_parts
        self.connection = new_connection()
        self.correlation_id = -3
        self.sent = b""

    async def ask(self, key: int, request: Any, version: int = -1, client_id: str = "client") -> Any:
        version = apis.BY_KEY[key].max_version if version < 0 else version
        self.correlation_id += 1
        data = b"".join(map(bytes, encode_request(key, version, self.correlation_id, client_id, request)))
        transport = Transport()
        assert await answered(self.request_parts, self.connection, transport, memoryview(bytearray(data[4:])))
        self.sent = transport.now + transport.later
        correlation_id, response = decode_response(self.sent[4:], key, version)
        assert correlation_id == self.correlation_id
        assert int.from_bytes(self.sent[:4], "big") == len(self.sent) - 4
        return response

    @property
    def last(self) -> Any:
        return self.connection.last_request


@pytest.fixture
async def client(tmp_path: Any) -> AsyncIterator[Client]:
    settings = {"group.initial.rebalance.delay.ms": "0", "group.consumer.assignment.interval.ms": "0"}
    async with broker_to_ask(tmp_path, settings) as asked:
        await ask_for_topic(asked, "t", partitions=2)
        client = Client(request_parts_of(asked))
        # The first request of an API binds its handler, which is waited for.
        await client.ask(HEARTBEAT, HeartbeatRequest())
        await client.ask(CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest())
        yield client


async def joined_classic(client: Client) -> HeartbeatRequest:
    """Have a member join and sync; return its heartbeat."""
    answer = await client.ask(JOIN_GROUP, joining(), 3)
    sync = SyncGroupRequest(
        group_id="g", member_id=answer.member_id, generation_id=answer.generation_id, assignments=[]
    )
    assert (await client.ask(SYNC_GROUP, sync, 3)).error_code == ErrorCode.NONE
    return HeartbeatRequest(group_id="g", member_id=answer.member_id, generation_id=answer.generation_id)


async def joined_consumer(client: Client, member_id: str = "m") -> ConsumerGroupHeartbeatRequest:
    """Have a member join; return the heartbeat of one that has nothing to say."""
    answer = await client.ask(CONSUMER_GROUP_HEARTBEAT, first_beat(member_id=member_id))
    assert answer.error_code == ErrorCode.NONE
    return ConsumerGroupHeartbeatRequest(group_id="c", member_id=member_id, member_epoch=answer.member_epoch)


async def test_repeated_consumer_heartbeat_is_answered_from_the_last(client: Client) -> None:
    beat = await joined_consumer(client)
    first = await client.ask(CONSUMER_GROUP_HEARTBEAT, beat)
    kept, request, response = client.last, client.last.message, client.last.response
    as_read = deepcopy(request)
    for _ in range(3):
        assert await client.ask(CONSUMER_GROUP_HEARTBEAT, beat) == first
        assert client.last is kept
        assert client.last.message is request
        assert client.last.response is response, "an equal response is not encoded again"
    assert request == as_read == beat
    assert first.error_code == ErrorCode.NONE


async def test_repeated_classic_heartbeat_learns_of_a_rebalance(client: Client) -> None:
    beat = await joined_classic(client)
    assert [(await client.ask(HEARTBEAT, beat)).error_code for _ in range(3)] == [ErrorCode.NONE] * 3
    kept = client.last
    other = Client(client.request_parts)
    joins = Request(
        STAGES, client.request_parts, other.connection, Transport(), frame_of(JOIN_GROUP, 3, joining())
    )  # type: ignore[arg-type]
    joins.advance()
    answers = [await client.ask(HEARTBEAT, beat) for _ in range(2)]
    assert [answer.error_code for answer in answers] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    assert client.last is kept
    joins.cancel()


async def test_throttle_time_is_told_to_the_throttled_heartbeat_alone(client: Client) -> None:
    beat = await joined_consumer(client)
    told = [await client.ask(CONSUMER_GROUP_HEARTBEAT, beat) for _ in range(2)]
    assert [answer.throttle_time_ms for answer in told] == [0, 0]
    charged: Any = SimpleNamespace(throttle_ms=lambda _request, _size: 700, end=lambda: None)
    shared: Any = client.request_parts.shared
    shared.quotas = SimpleNamespace(is_set=True, begin=lambda *_: charged)
    assert (await client.ask(CONSUMER_GROUP_HEARTBEAT, beat)).throttle_time_ms == 700
    shared.quotas = None
    assert (await client.ask(CONSUMER_GROUP_HEARTBEAT, beat)).throttle_time_ms == 0


async def test_new_answer_to_a_member_replaces_the_previous_one(client: Client) -> None:
    beat = await joined_consumer(client)
    told = [(await client.ask(CONSUMER_GROUP_HEARTBEAT, beat)) for _ in range(2)]
    kept, response = client.last, client.last.response
    assert told[0].heartbeat_interval_ms == 5_000
    other = Client(client.request_parts)
    setting = Alter.AlterableConfig(name="consumer.heartbeat.interval.ms", value="7000")
    configured = Alter.AlterConfigsResource(resource_type=GROUP, resource_name="c", configs=[setting])
    altered = await other.ask(INCREMENTAL_ALTER_CONFIGS, Alter(resources=[configured]))
    assert altered.responses[0].error_code == ErrorCode.NONE
    assert (await client.ask(CONSUMER_GROUP_HEARTBEAT, beat)).heartbeat_interval_ms == 7_000
    assert client.last is kept
    assert client.last.response is not response
    leave = ConsumerGroupHeartbeatRequest(group_id="c", member_id="m", member_epoch=-1)
    assert (await other.ask(CONSUMER_GROUP_HEARTBEAT, leave)).error_code == ErrorCode.NONE
    for _ in range(3):
        gone = await client.ask(CONSUMER_GROUP_HEARTBEAT, beat)
        assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.last is kept


async def test_repeated_heartbeat_of_a_removed_member_learns_of_it(client: Client) -> None:
    beat = await joined_classic(client)
    assert [(await client.ask(HEARTBEAT, beat)).error_code for _ in range(3)] == [ErrorCode.NONE] * 3
    leave = LeaveGroupRequest(group_id="g", member_id=beat.member_id)
    assert (await Client(client.request_parts).ask(LEAVE_GROUP, leave, 0)).error_code == ErrorCode.NONE
    answers = [await client.ask(HEARTBEAT, beat) for _ in range(3)]
    assert [answer.error_code for answer in answers] == [ErrorCode.UNKNOWN_MEMBER_ID] * 3


async def test_repeated_consumer_heartbeat_learns_its_new_assignment(client: Client) -> None:
    beat = await joined_consumer(client)
    assert (await client.ask(CONSUMER_GROUP_HEARTBEAT, beat)).assignment is None
    await joined_consumer(Client(client.request_parts), "another")
    assignment = (await client.ask(CONSUMER_GROUP_HEARTBEAT, beat)).assignment
    assert [len(topic.partitions) for topic in assignment.topic_partitions] == [1], "one is for the other"
    assert (await client.ask(CONSUMER_GROUP_HEARTBEAT, beat)).assignment is None


async def test_what_differs_in_anything_is_read(client: Client) -> None:
    beat = await joined_consumer(client)
    await client.ask(CONSUMER_GROUP_HEARTBEAT, beat)
    stranger = ConsumerGroupHeartbeatRequest(group_id="c", member_id="n", member_epoch=beat.member_epoch)
    unknown = await client.ask(CONSUMER_GROUP_HEARTBEAT, stranger)
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await client.ask(CONSUMER_GROUP_HEARTBEAT, beat)).error_code == ErrorCode.NONE
    kept = client.last
    await client.ask(CONSUMER_GROUP_HEARTBEAT, beat, client_id="tneilc")
    assert client.last is not kept
    kept = client.last
    await client.ask(CONSUMER_GROUP_HEARTBEAT, beat, version=0, client_id="tneilc")
    assert client.last is not kept


async def test_long_heartbeats_and_other_requests_are_not_kept(client: Client) -> None:
    client.connection.last_request = None
    await joined_classic(client)
    assert client.last is None, "nobody repeats these"
    await client.ask(HEARTBEAT, HeartbeatRequest(group_id="g" * BYTES_MAX, member_id="m"))
    assert client.last is None
