"""An administrator asks about topics, settings and access as each version has it, and mixes no two values up."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing

from barnabas.client import ResponseError, UnsupportedVersionError
from barnabas.client.administration.access import Principal, Token
from barnabas.client.administration.configs import ConfigEntry, Resource
from barnabas.client.administration.topics import (
    EARLIEST,
    MAX_TIMESTAMP,
    NewTopic,
    OffsetAt,
    PartitionInfo,
    TopicInfo,
    partitions_of,
)
from barnabas.wire.generated.create_delegation_token import CreateDelegationTokenResponse
from barnabas.wire.generated.create_topics import CreateTopicsResponse
from barnabas.wire.generated.delete_topics import DeleteTopicsResponse
from barnabas.wire.generated.describe_configs import DescribeConfigsResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.expire_delegation_token import ExpireDelegationTokenResponse
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsResponse
from barnabas.wire.generated.list_config_resources import ListConfigResourcesResponse
from barnabas.wire.generated.list_offsets import ListOffsetsResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.generated.renew_delegation_token import RenewDelegationTokenResponse
from tests.support.scripted_admin import code_of, scripted_admin
from tests.support.scripted_broker import ScriptedCluster

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
PLACE = ("t", 0)


# --- topics -----------------------------------------------------------------------------------------------------------


class TwoTopics(ScriptedCluster):
    """Knows topics that differ in everything."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[MetadataRequest] = []

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Answer with all topics, whichever are asked for."""
        self.requests.append(request)
        response = super().metadata(request)
        created = MetadataResponse
        part = created.MetadataResponsePartition
        parts = [part(0, 1, 2, 7, [2, 1], [2], [1]), part(0, 0, 1, 8, [1], [1], [])]
        response.topics = [
            created.MetadataResponseTopic(0, "u", bytes([1] * 16), True, parts),
            created.MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t"),
        ]
        return response


@pytest.mark.parametrize("version", [0, 3, 4, 9, 12])
async def test_topics_are_told_in_the_order_of_their_names(version: int) -> None:
    cluster = TwoTopics()
    async with scripted_admin(None, {"Metadata": version}, cluster=cluster) as admin:
        result: Any = await admin.topics()
        assert list(result) == ["t", "u"]
        assert code_of(result["t"]) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        epochs = (8, 7) if version >= 7 else (-1, -1)
        assert result["u"] == TopicInfo(
            "u", "AQEBAQEBAQEBAQEBAQEBAQ" if version >= 10 else "", version >= 1,
            (
                PartitionInfo(0, 1, epochs[0], (1,), (1,), ()),
                PartitionInfo(1, 2, epochs[1], (2, 1), (2,), (1,) if version >= 5 else ()),
            ),
        )  # fmt: skip
        assert partitions_of(result) == [("u", 0), ("u", 1)]
        assert cluster.requests[-1].topics == (None if version else [])
        assert cluster.requests[-1].allow_auto_topic_creation is (version < 4), (
            "nothing is created where that can be said"
        )
        asked = len(cluster.requests)
        assert await admin.topics([]) == {}
        assert len(cluster.requests) == asked
        await admin.topics(["u", "t", "u"])
        assert [topic.name for topic in cluster.requests[-1].topics] == ["u", "t"]


async def test_topics_are_made_with_what_is_said_of_them(autojump_clock: trio.testing.MockClock) -> None:
    created = CreateTopicsResponse
    codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_PARTITIONS]

    def answer(*_: Any) -> CreateTopicsResponse:
        names = [
            created.CreatableTopicResult(name="a"),
            created.CreatableTopicResult(name="b", error_code=codes.pop(0)),
        ]
        names[1].error_message = "why"
        return created(topics=names)

    async with scripted_admin(answer, {"CreateTopics": 6}) as admin:
        outcomes: Any = await admin.create_topics(
            [NewTopic("a", 3, 2, {"x": "1"}), NewTopic("b", 9, 9, replicas={1: (2,), 0: (1, 2)})],
            only_check=True,
        )
        assert (outcomes["a"], code_of(outcomes["b"]), outcomes["b"].message) == (
            None,
            ErrorCode.INVALID_PARTITIONS,
            "why",
        )
        assert len(admin.asked) == 2, "asked again, because there was another controller"
        sent = admin.request
        assert (sent.timeout_ms, sent.validate_only) == (24_000, True)
        first, second = sent.topics
        assert (first.name, first.num_partitions, first.replication_factor, first.assignments) == (
            "a",
            3,
            2,
            [],
        )
        assert [(config.name, config.value) for config in first.configs] == [("x", "1")]
        assert (second.name, second.num_partitions, second.replication_factor, second.configs) == (
            "b",
            -1,
            -1,
            [],
        )
        assert [(assignment.partition_index, assignment.broker_ids) for assignment in second.assignments] == [
            (0, [1, 2]),
            (1, [2]),
        ]
        codes.append(0)
        await admin.create_topics([NewTopic("a"), NewTopic("b")])
        assert not admin.request.validate_only


@pytest.mark.parametrize("version", [4, 5, 6])
async def test_topics_are_deleted_by_the_names_that_the_version_takes(version: int) -> None:
    created = DeleteTopicsResponse
    results = [
        created.DeletableTopicResult("b", error_code=DENIED, error_message="why"),
        created.DeletableTopicResult("a"),
    ]
    async with scripted_admin(lambda *_: created(responses=results), {"DeleteTopics": version}) as admin:
        outcomes: Any = await admin.delete_topics(["b", "a"])
        assert (code_of(outcomes["b"]), outcomes["a"]) == (DENIED, None)
        assert outcomes["b"].message == ("why" if version >= 5 else None)
        sent = admin.request
        assert [topic.name for topic in sent.topics] == ["b", "a"] * (version >= 6)
        assert sent.topic_names == ["b", "a"] * (version < 6)
        assert (sent.timeout_ms, admin.hosts) == (24_000, ["one"])


@pytest.mark.parametrize("version", range(8))
async def test_offsets_are_looked_up_as_the_version_has_it(version: int) -> None:
    created = ListOffsetsResponse
    answers = {(1, PLACE): (9, 99, 5), (1, ("u", 0)): (8, 88, 4)}

    def answer(_: str, request: Any) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            offset, timestamp, epoch = answers[1, (topic.name, 0)]
            part = created.ListOffsetsPartitionResponse(0, timestamp=timestamp)
            if version:
                part.offset = offset
                part.leader_epoch = epoch if version >= 4 else -1
            else:
                part.timestamp, part.old_style_offsets = -1, [offset, 3]
            topics.append(created.ListOffsetsTopicResponse(topic.name, [part]))
        return created(topics=topics)

    async with scripted_admin(answer, {"ListOffsets": version}) as admin:
        result = await admin.offsets({("u", 0): EARLIEST, PLACE: 77}, is_committed=True)
        assert list(result) == [("u", 0), PLACE]
        epoch, timestamp = (5 if version >= 4 else -1), (99 if version else -1)
        assert result[PLACE] == OffsetAt(9, timestamp, epoch)
        assert result["u", 0] == OffsetAt(8, 88 if version else -1, 4 if version >= 4 else -1)
        sent = admin.request
        assert [(topic.name, topic.partitions[0].timestamp) for topic in sent.topics] == [
            ("t", 77),
            ("u", EARLIEST),
        ]
        assert (sent.replica_id, sent.isolation_level) == (-1, int(version >= 2))
        newest = (await admin.offsets({PLACE: MAX_TIMESTAMP}))[PLACE]
        assert isinstance(newest, OffsetAt if version >= 7 else UnsupportedVersionError)
        await admin.offsets({PLACE: 77})
        assert admin.request.isolation_level == 0


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
async def test_settings_are_described_as_the_version_has_it(version: int) -> None:
    created = DescribeConfigsResponse
    entry, synonym = created.DescribeConfigsResourceResult, created.DescribeConfigsSynonym
    source, docs = (lambda number: number if version else -1), ("doc" if version >= 3 else "")
    entries = [
        entry(
            "a",
            "1",
            True,
            source(1),
            False,
            False,
            [synonym("s", "v", 4), synonym("r", None, 99)] if version else [],
        ),
        entry("b", "secret", False, source(5), not version, True, []),
        entry("c", None, False, source(42), False, False, []),
        entry("d", "4", False, source(0), False, False, []),
    ]
    entries[0].documentation = docs or None
    result = created.DescribeConfigsResult(0, None, 2, "t", entries)
    async with scripted_admin(lambda *_: created(results=[result]), {"DescribeConfigs": version}) as admin:
        topic = Resource("topic", "t")
        actual: Any = await admin.describe_configs([topic], names=["a", "b"], documentation=True)
        synonyms = (("s", "v", "file"), ("r", None, "99")) if version else ()
        assert actual[topic] == [
            ConfigEntry("a", "1", "topic" if version else "unknown", False, True, docs, synonyms),
            ConfigEntry("b", None, "default", True, False, "", ()),
            ConfigEntry("c", None, "unknown", False, False, "", ()),
            ConfigEntry("d", "4", "unknown", False, False, "", ()),
        ]
        sent = admin.request
        (requested,) = sent.resources
        assert (requested.resource_type, requested.resource_name, requested.configuration_keys) == (
            2,
            "t",
            ["a", "b"],
        )
        assert (sent.include_synonyms, sent.include_documentation) == (version >= 1, version >= 3)
        await admin.describe_configs([topic])
        assert (admin.request.resources[0].configuration_keys, admin.request.include_documentation) == (
            None,
            False,
        )
        result.error_code, result.error_message = DENIED, "why"
        failed: Any = (await admin.describe_configs([topic]))[topic]
        assert (str(failed)) == "describing topic 't': CLUSTER_AUTHORIZATION_FAILED (why)"


@pytest.mark.parametrize(
    ("kind", "name", "number", "host"),
    [
        ("topic", "2", 2, "bootstrap"),
        ("broker", "2", 4, "two"),
        ("broker", "", 4, "bootstrap"),
        ("broker-logger", "2", 8, "two"),
        ("client-metrics", "2", 16, "bootstrap"),
        ("group", "2", 32, "bootstrap"),
    ],
)
async def test_a_broker_is_asked_for_its_own_settings(kind: str, name: str, number: int, host: str) -> None:
    created = IncrementalAlterConfigsResponse
    result = created.AlterConfigsResourceResponse(0, None, number, name)
    async with scripted_admin(
        lambda *_: created(responses=[result]), {"IncrementalAlterConfigs": 1}
    ) as admin:
        resource = Resource(kind, name)
        change: Any = [("n", 3, "v")]
        assert await admin.alter_configs({resource: change}, only_check=True) == {resource: None}
        (sent,) = admin.request.resources
        assert (sent.resource_type, sent.resource_name, admin.request.validate_only) == (number, name, True)
        assert [(row.name, row.config_operation, row.value) for row in sent.configs] == [("n", 3, "v")]
        assert admin.hosts == [host]
        result.error_code, result.error_message = DENIED, "why"
        outcome = (await admin.alter_configs({resource: change}))[resource]
        assert str(outcome) == f"changing {kind} '{name}': CLUSTER_AUTHORIZATION_FAILED (why)"
        assert not admin.request.validate_only


@pytest.mark.parametrize("version", [0, 1])
async def test_config_resources_are_listed_by_kind_and_version(version: int) -> None:
    entry = ListConfigResourcesResponse.ConfigResource
    answer = ListConfigResourcesResponse(
        config_resources=[entry("z", 2), entry("a", 99), entry("b", 2)] if version else [entry("m")]
    )
    async with scripted_admin(lambda *_: answer, {"ListConfigResources": version}) as admin:
        expected = [("99", "a"), ("topic", "b"), ("topic", "z")] if version else [("client-metrics", "m")]
        assert await admin.config_resources(["topic", "group"]) == expected
        assert admin.request.resource_types == [2, 32] * version
        answer.error_code = DENIED
        with pytest.raises(ResponseError, match="listing resources"):
            await admin.config_resources()


# --- access -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 4))
@pytest.mark.parametrize("owner", [None, Principal("User", "own")])
async def test_a_token_is_made_for_who_is_logged_in_or_for_another(
    version: int, owner: Principal | None
) -> None:
    requester = ("User", "adm") if version >= 3 else ("", "")
    answer = CreateDelegationTokenResponse(0, "User", "own", *requester, 1, 2, 3, "id", b"secret")
    async with scripted_admin(lambda *_: answer, {"CreateDelegationToken": version}) as admin:
        renewer = Principal("User", "ren")
        if owner is not None and version < 3:
            return  # such a request cannot be written
        created = await admin.create_token(owner=owner, renewers=[renewer], lifetime_ms=9)
        expected = Token(
            "id", Principal("User", "own"), Principal(*requester), (renewer,), 1, 2, 3, b"secret"
        )
        assert created == expected
        sent = admin.request
        nobody = (None, None) if version >= 3 else ("", "")
        assert (sent.owner_principal_type, sent.owner_principal_name) == (owner or nobody)
        assert [(renewer.principal_type, renewer.principal_name) for renewer in sent.renewers] == [renewer]
        assert (sent.max_lifetime_ms, admin.hosts) == (9, ["one"])
        answer.error_code = DENIED
        with pytest.raises(ResponseError, match="creating a delegation token"):
            await admin.create_token()
        assert admin.request.max_lifetime_ms == -1


async def test_a_token_is_renewed_and_ended_at_the_controller() -> None:
    answers = {
        "RenewDelegationTokenRequest": RenewDelegationTokenResponse(0, 11),
        "ExpireDelegationTokenRequest": ExpireDelegationTokenResponse(0, 22),
    }
    versions = {"RenewDelegationToken": 2, "ExpireDelegationToken": 2}
    async with scripted_admin(lambda _, request: answers[type(request).__name__], versions) as admin:
        assert await admin.renew_token(b"secret", 5) == 11
        assert (admin.request.hmac, admin.request.renew_period_ms) == (b"secret", 5)
        await admin.renew_token(b"secret")
        assert admin.request.renew_period_ms == -1
        assert await admin.expire_token(b"secret", 6) == 22
        assert (admin.request.hmac, admin.request.expiry_time_period_ms) == (b"secret", 6)
        await admin.expire_token(b"secret")
        assert admin.request.expiry_time_period_ms == -1
        assert admin.hosts == ["one"] * 4
        for answer in answers.values():
            answer.error_code = ErrorCode.DELEGATION_TOKEN_EXPIRED
        for call in (admin.renew_token, admin.expire_token):
            with pytest.raises(ResponseError, match="DELEGATION_TOKEN_EXPIRED"):
                await call(b"secret")
