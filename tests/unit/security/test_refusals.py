"""Every API and version, refused one operation at a time and all of them: the right code in the right place, no leak."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from barnabas.environment.real import real_environment
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.security.authorizer import REFUSALS, AllowEverything, Operation, Requester, ResourceType
from barnabas.serving import apis
from barnabas.serving.context import ConnectionInfo
from barnabas.serving.release import KAFKA_4
from compat.kit.wire import decode, encode, message
from compat.security.requests import REQUESTS, Names
from tests.support.broker import NOW_MS, Asked, broker_to_ask
from tests.support.request_parts import Transport, answered, request_parts_of

SECRET = b"a secret"
OPEN_TO_ALL = frozenset(
    (
        "SaslHandshake", "ApiVersions", "SaslAuthenticate", "GetTelemetrySubscriptions", "PushTelemetry",
        "RenewDelegationToken", "ExpireDelegationToken",
    )
)  # fmt: skip
Denied = tuple[Operation, ResourceType]
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
)  # fmt: skip
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
TOKEN, USER = ResourceType.DELEGATION_TOKEN, ResourceType.USER


class Deny:
    """Refuses these operations on resources of these types, and nothing else; everything if there are none."""

    def __init__(self, *denied: Denied) -> None:
        self.denied = denied

    def allows(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str, /
    ) -> bool:
        assert requester.principal == "User:ANONYMOUS"
        assert name or resource_type is not TOPIC
        return bool(self.denied) and (operation, resource_type) not in self.denied

    def allows_on_any(self, _: Requester, operation: Operation, resource_type: ResourceType, /) -> bool:
        return bool(self.denied) and (operation, resource_type) not in self.denied

    def reason(self, _: Requester, _operation: Operation, _type: ResourceType, _name: str, /) -> str:
        return "a test"


class World:
    """A broker with a topic, groups of each kind and an open transaction, and requests as bytes."""

    def __init__(self, asked: Asked) -> None:
        self.services = asked.services
        self.memory = asked.broker.memory
        self.environment = real_environment()
        self.names = Names()

    async def ask(
        self,
        api: str,
        version: int,
        authorizer: Any,
        *,
        fields: Mapping[str, Any] = MappingProxyType({}),
        **more: Any,
    ) -> dict[str, Any] | None:
        """The answer's fields; None where the connection is closed. `fields` replace some of the request's."""
        request, response = message(f"{api}Request"), message(f"{api}Response")
        names = Names(**{**vars(self.names), **more})
        body = encode(request, version, {**REQUESTS[api](names), **fields})
        frame = struct.pack(">hhih", request.api_key, version, 1, 1) + b"b"
        frame += (b"\0" if version in request.flexible else b"") + body
        request_parts = request_parts_of(self.services, self.memory, authorizer=authorizer)
        connection = ConnectionInfo(1, "SASL_PLAINTEXT", "SASL_PLAINTEXT", ("127.0.0.1", 1), ("127.0.0.1", 2))
        transport = Transport()
        await answered(request_parts, connection, transport, memoryview(frame))
        answer = transport.sent
        if not answer:
            return None
        return decode(response, version, answer, 9 if version in response.flexible else 8)

    async def allowed(self, api: str, version: int, **more: Any) -> dict[str, Any]:
        """The answer to a request that is not refused."""
        answer = await self.ask(api, version, AllowEverything(), **more)
        assert answer is not None, api
        assert not errors(answer), (api, answer)
        return answer

    async def fill(self) -> None:
        """Make what the requests are about."""
        created = await self.allowed("CreateTopics", 7, new_topic="t")
        self.names = Names(topic_id=created["Topics"][0]["TopicId"], records=batch())
        await self.allowed("Produce", 9)
        await self.allowed("OffsetCommit", 8)
        await self.allowed("ConsumerGroupHeartbeat", 1, group="c")
        await self.allowed("ShareGroupHeartbeat", 1, group="s")
        again = {
            "MemberEpoch": 2,
            "SubscribedTopicNames": None,
        }  # what the group has assigned is described from now on
        await self.allowed("ShareGroupHeartbeat", 1, group="s", fields=again)
        await self.allowed("ShareGroupHeartbeat", 1, group="left")
        leaving = {"MemberEpoch": -1, "SubscribedTopicNames": None}
        await self.allowed("ShareGroupHeartbeat", 1, group="left", fields=leaving)
        await self.allowed("StreamsGroupHeartbeat", 1, group="st", new_topic="made")
        producer = await self.allowed("InitProducerId", 4, is_transactional=True)
        ids = (producer["ProducerId"], producer["ProducerEpoch"])
        self.names = Names(**{**vars(self.names), "producer": ids})
        await self.allowed("AddPartitionsToTxn", 3)

    def state(self) -> tuple[Any, ...]:
        """A refused request leaves all of this as it is: the metadata, and the ends of all logs."""
        image = self.services.metadata.image
        ends = sorted((log.topic, log.partition, log.log_end_offset) for log in self.services.logs)
        starts = sorted((log.topic, log.partition, log.log_start_offset) for log in self.services.logs)
        return image.version, sorted(image.topics), dict(image.configs), ends, starts


def batch(**options: Any) -> bytes:
    """A batch for Produce."""
    return encode_batch([Record(0, NOW_MS, None, SECRET)], **options)


def errors(value: Any, path: str = "") -> dict[str, set[int]]:
    """The error codes in an answer, by the path of the field that has them."""
    by_path: dict[str, set[int]] = {}
    for name, item in value.items():
        for part in item if isinstance(item, list) else [item]:
            if isinstance(part, dict):
                for inner, codes in errors(part, f"{path}{name}.").items():
                    by_path.setdefault(inner, set()).update(codes)
        if name.endswith("ErrorCode") and item:
            by_path.setdefault(path + name, set()).add(item)
    return by_path


def groups_of(api: str) -> str:
    """The group that a request is about, of the kind that the API is for."""
    if api.startswith("Consumer"):
        return "c"
    if api.startswith("Streams"):
        return "st"
    return "s" if "Share" in api else "g"


Where = str | tuple[tuple[int, str], ...]
"""The path of the error code, or (first version, path); an empty path where nothing is answered but also nothing said."""
PARTITIONS = "Topics.Partitions.ErrorCode"
OFFSETS = {(READ, TOPIC): PARTITIONS}
DESCRIBED = {(DESCRIBE, GROUP): "Groups.ErrorCode", (DESCRIBE, TOPIC): "Groups.ErrorCode"}
HEARTBEAT = {(READ, GROUP): "ErrorCode", (DESCRIBE, TOPIC): "ErrorCode"}
STATES = {(Operation.CLUSTER_ACTION, CLUSTER): "Results.Partitions.ErrorCode"}
RESOURCES = "Responses.ErrorCode"
SILENT = ""
REFUSED: dict[str, dict[Denied, Where]] = {
    "Produce": {
        (WRITE, TRANSACTIONAL_ID): "Responses.PartitionResponses.ErrorCode",
        (WRITE, TOPIC): "Responses.PartitionResponses.ErrorCode",
    },
    "Fetch": {(READ, TOPIC): "Responses.Partitions.ErrorCode", (Operation.CLUSTER_ACTION, CLUSTER): SILENT},
    "ListOffsets": {(DESCRIBE, TOPIC): PARTITIONS},
    "Metadata": {(DESCRIBE, TOPIC): "Topics.ErrorCode", (CREATE, TOPIC): SILENT},
    "OffsetCommit": {(READ, GROUP): PARTITIONS, (READ, TOPIC): PARTITIONS},
    "OffsetFetch": {
        (DESCRIBE, GROUP): ((0, PARTITIONS), (2, "ErrorCode"), (8, "Groups.ErrorCode")),
        (DESCRIBE, TOPIC): ((0, PARTITIONS), (8, "Groups.Topics.Partitions.ErrorCode")),
    },
    "FindCoordinator": {
        (DESCRIBE, GROUP): ((0, "ErrorCode"), (4, "Coordinators.ErrorCode")),
        (DESCRIBE, TRANSACTIONAL_ID): SILENT,
        (Operation.CLUSTER_ACTION, CLUSTER): SILENT,
    },
    "JoinGroup": {(READ, GROUP): "ErrorCode"},
    "Heartbeat": {(READ, GROUP): "ErrorCode"},
    "LeaveGroup": {(READ, GROUP): "ErrorCode"},
    "SyncGroup": {(READ, GROUP): "ErrorCode"},
    "DescribeGroups": {(DESCRIBE, GROUP): "Groups.ErrorCode"},
    "ListGroups": {(DESCRIBE, GROUP): SILENT, (DESCRIBE, CLUSTER): SILENT},
    "CreateTopics": {
        (CREATE, TOPIC): SILENT,
        (CREATE, CLUSTER): SILENT,
        (DESCRIBE_CONFIGS, TOPIC): ((0, SILENT), (5, "Topics.TopicConfigErrorCode")),
    },
    "DeleteTopics": {(DELETE, TOPIC): SILENT, (DESCRIBE, TOPIC): SILENT},
    "DeleteRecords": {(DELETE, TOPIC): PARTITIONS},
    "InitProducerId": {
        (WRITE, TRANSACTIONAL_ID): "ErrorCode",
        (Operation.TWO_PHASE_COMMIT, TRANSACTIONAL_ID): SILENT,
        (Operation.IDEMPOTENT_WRITE, CLUSTER): SILENT,
        (WRITE, TOPIC): SILENT,
    },
    "OffsetForLeaderEpoch": {(DESCRIBE, TOPIC): SILENT, (Operation.CLUSTER_ACTION, CLUSTER): SILENT},
    "AddPartitionsToTxn": {
        (Operation.CLUSTER_ACTION, CLUSTER): ((0, SILENT), (4, "ErrorCode")),
        (WRITE, TRANSACTIONAL_ID): (
            (0, "ResultsByTopicV3AndBelow.ResultsByPartition.PartitionErrorCode"), (4, SILENT),
        ),
        (WRITE, TOPIC): ((0, "ResultsByTopicV3AndBelow.ResultsByPartition.PartitionErrorCode"), (4, SILENT)),
    },
    "AddOffsetsToTxn": {(WRITE, TRANSACTIONAL_ID): "ErrorCode", (READ, GROUP): "ErrorCode"},
    "EndTxn": {(WRITE, TRANSACTIONAL_ID): "ErrorCode"},
    "WriteTxnMarkers": {(ALTER, CLUSTER): SILENT, (Operation.CLUSTER_ACTION, CLUSTER): SILENT},
    "TxnOffsetCommit": {
        (WRITE, TRANSACTIONAL_ID): PARTITIONS, (READ, GROUP): PARTITIONS, (READ, TOPIC): PARTITIONS,
    },
    "DescribeAcls": {(DESCRIBE, CLUSTER): "ErrorCode"},
    "CreateAcls": {(ALTER, CLUSTER): "Results.ErrorCode"},
    "DeleteAcls": {(ALTER, CLUSTER): "FilterResults.ErrorCode"},
    "DescribeConfigs": {
        (DESCRIBE_CONFIGS, kind): "Results.ErrorCode" for kind in (CLUSTER, TOPIC, GROUP)
    },
    "AlterConfigs": {(ALTER_CONFIGS, kind): RESOURCES for kind in (CLUSTER, TOPIC, GROUP)},
    "AlterReplicaLogDirs": {(ALTER, CLUSTER): "Results.Partitions.ErrorCode"},
    "DescribeLogDirs": {(DESCRIBE, CLUSTER): ((0, SILENT), (3, "ErrorCode"))},
    "CreatePartitions": {(ALTER, TOPIC): "Results.ErrorCode"},
    "DeleteGroups": {(DELETE, GROUP): "Results.ErrorCode"},
    "ElectLeaders": {(ALTER, CLUSTER): "ReplicaElectionResults.PartitionResult.ErrorCode"},
    "IncrementalAlterConfigs": {(ALTER_CONFIGS, kind): RESOURCES for kind in (CLUSTER, TOPIC, GROUP)},
    "AlterPartitionReassignments": {(ALTER, CLUSTER): "Responses.Partitions.ErrorCode"},
    "ListPartitionReassignments": {(DESCRIBE, CLUSTER): "ErrorCode"},
    "CreateDelegationToken": {(Operation.CREATE_TOKENS, USER): ((0, ""), (3, "ErrorCode"))},
    "DescribeDelegationToken": {(DESCRIBE, TOKEN): SILENT, (Operation.DESCRIBE_TOKENS, USER): SILENT},
    "DescribeUserScramCredentials": {(DESCRIBE, CLUSTER): "ErrorCode"},
    "AlterUserScramCredentials": {(ALTER, CLUSTER): "Results.ErrorCode"},
    "DescribeClientQuotas": {(DESCRIBE_CONFIGS, CLUSTER): "ErrorCode"},
    "AlterClientQuotas": {(ALTER_CONFIGS, CLUSTER): "Entries.ErrorCode"},
    "OffsetDelete": {(DELETE, GROUP): "ErrorCode", (READ, TOPIC): PARTITIONS},
    "UpdateFeatures": {(ALTER, CLUSTER): "ErrorCode"},
    "DescribeCluster": {(DESCRIBE, CLUSTER): SILENT},
    "DescribeProducers": {(READ, TOPIC): PARTITIONS},
    "DescribeTransactions": {(DESCRIBE, TRANSACTIONAL_ID): "TransactionStates.ErrorCode", (DESCRIBE, TOPIC): SILENT},
    "ListTransactions": {(DESCRIBE, TRANSACTIONAL_ID): SILENT},
    "ConsumerGroupHeartbeat": HEARTBEAT,
    "ConsumerGroupDescribe": DESCRIBED,
    "ListConfigResources": {(DESCRIBE_CONFIGS, CLUSTER): "ErrorCode"},
    "DescribeTopicPartitions": {(DESCRIBE, TOPIC): "Topics.ErrorCode"},
    "ShareGroupHeartbeat": HEARTBEAT,
    "ShareGroupDescribe": DESCRIBED,
    "ShareFetch": {(READ, GROUP): "ErrorCode", (READ, TOPIC): "Responses.Partitions.ErrorCode"},
    "ShareAcknowledge": {(READ, GROUP): "ErrorCode", (READ, TOPIC): "Responses.Partitions.ErrorCode"},
    "InitializeShareGroupState": STATES,
    "ReadShareGroupState": STATES,
    "WriteShareGroupState": STATES,
    "DeleteShareGroupState": STATES,
    "ReadShareGroupStateSummary": STATES,
    "StreamsGroupHeartbeat": {**HEARTBEAT, (CREATE, TOPIC): SILENT, (CREATE, CLUSTER): SILENT},
    "StreamsGroupDescribe": DESCRIBED,
    "StreamsGroupTopologyDescriptionUpdate": {(READ, GROUP): "ErrorCode"},
    "DescribeShareGroupOffsets": {
        (DESCRIBE, GROUP): "Groups.ErrorCode", (DESCRIBE, TOPIC): "Groups.Topics.Partitions.ErrorCode",
    },
    "AlterShareGroupOffsets": {(READ, GROUP): "ErrorCode", (READ, TOPIC): "Responses.Partitions.ErrorCode"},
    "DeleteShareGroupOffsets": {(DELETE, GROUP): "ErrorCode", (READ, TOPIC): "Responses.ErrorCode"},
}  # fmt: skip
LISTS = {
    "ListGroups": "Groups", "ListTransactions": "TransactionStates", "DescribeLogDirs": "Results",
    "DescribeDelegationToken": "Tokens",
}  # fmt: skip
"""APIs that leave out what may not be seen, and say nothing; and what is empty then."""


def at(where: Where, version: int) -> str:
    """The path in this version."""
    if isinstance(where, str):
        return where
    return [path for since, path in where if since <= version][-1]


def rows(table: Mapping[int, apis.Api] = apis.BY_KEY) -> list[apis.Api]:
    return [api for api in table.values() if api.name not in OPEN_TO_ALL and not api.member_only]


def test_every_operation_of_the_table_has_a_case() -> None:
    assert {api.name for api in rows()} == REFUSED.keys() == REQUESTS.keys()
    for api in rows():
        needed = {(access.operation, access.resource_type) for access in (*api.whole, *api.each)}
        assert needed == REFUSED[api.name].keys(), api.name


async def test_who_may_nothing_learns_and_changes_nothing(tmp_path: Path) -> None:
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        world = World(asked)
        await world.fill()
        before = world.state()
        for api in rows(KAFKA_4.apis):
            first = OWNER_SINCE if api.name == "CreateDelegationToken" else api.min_version
            for version in range(first, api.max_version + 1):
                names: dict[str, Any] = {"group": groups_of(api.name)}
                answer = await world.ask(api.name, version, Deny(), **names)
                assert answer is not None, f"{api.name} v{version} closed the connection"
                codes = set().union(*errors(answer).values()) if errors(answer) else set()
                if api.name in LISTS and not codes:
                    assert not answer[LISTS[api.name]]
                elif api.name == "DescribeCluster":
                    assert answer["ClusterAuthorizedOperations"] == 0
                else:
                    assert codes
                    assert codes <= {int(code) for code in REFUSALS.values()}, (api.name, version, answer)
                if api.name == "Metadata" and 8 <= version <= 10:
                    assert answer["ClusterAuthorizedOperations"] == 0
                text = repr(answer)
                assert "secret" not in text
                if "TopicId" not in repr(REQUESTS[api.name](world.names)):
                    assert repr(world.names.topic_id) not in text, (api.name, version, answer)
                assert world.state() == before, (api.name, version)


SETTINGS = {
    "group.share.assignment.interval.ms": "0",  # the clock stands: a second one would never be old enough
    "delegation.token.secret.key": "key",
}
OWNER_SINCE = 3
"""The version of CreateDelegationToken that can name an owner; anybody may create tokens of their own."""


@pytest.mark.parametrize("api", [pytest.param(api, id=api.name) for api in rows(KAFKA_4.apis)])
async def test_one_denied_operation_is_refused_in_its_place(tmp_path: Path, api: apis.Api) -> None:
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        world = World(asked)
        await world.fill()
        for denied, where in REFUSED[api.name].items():
            for version in range(api.min_version, api.max_version + 1):
                path = at(where, version)
                if not path:
                    continue
                names: dict[str, Any] = {"group": groups_of(api.name)}
                if api.name in ("AlterShareGroupOffsets", "DeleteShareGroupOffsets"):
                    names["group"] = "left"
                if denied[1] is TRANSACTIONAL_ID and api.name in ("Produce", "InitProducerId"):
                    names["is_transactional"] = True
                if api.name == "Produce" and names.get("is_transactional"):
                    if version < 3:
                        continue
                    names["records"] = batch(
                        transactional=True, producer_id=9, producer_epoch=0, base_sequence=0
                    )
                if api.name == "CreateTopics":
                    names["new_topic"] = f"new-{version}"
                if api.name == "ShareAcknowledge" and denied[1] is TOPIC:
                    await world.allowed("ShareFetch", 1, group="s")
                before = world.state()
                answer = await world.ask(api.name, version, Deny(denied), **names)
                assert answer is not None
                assert int(REFUSALS[denied[1]]) in errors(answer).get(path, ()), (denied, version, answer)
                if api.name not in ("CreateTopics", "AlterConfigs", "IncrementalAlterConfigs", "ShareFetch"):
                    assert world.state() == before, (denied, version)
