"""Calls of an administrator to a broker in the same process: each thing comes back as it was given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.client import ConsumerSettings, ResponseError, open_client, open_consumer
from barnabas.client.admin import EARLIEST, LATEST, Admin, NewTopic, Resource
from barnabas.client.administration.access import Acl, Principal, Quota
from barnabas.client.administration.cluster import Feature
from barnabas.client.administration.configs import ConfigChange
from barnabas.client.administration.offsets import CommittedOffset
from barnabas.client.administration.topics import MAX_TIMESTAMP, OffsetAt
from barnabas.client.administration.words import APPEND, DELETE, SET, SUBTRACT, UNCLEAN
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.errors import ErrorCode
from tests.support.brokers import NOW_MS, Client, running


@asynccontextmanager
async def administered(directory: Path, **settings: str) -> AsyncIterator[tuple[Admin, Client, str]]:
    """Run a broker; yields an administrator, a client of bare requests, and the address."""
    async with running(
        [directory], **{"broker_id": "0", "group_initial_rebalance_delay_ms": "0", **settings}
    ) as broker:
        host, port = broker.broker.listeners[0].addresses[0]
        async with open_client(f"{host}:{port}") as client:
            yield Admin(client), broker, f"{host}:{port}"


def code_of(outcome: Any) -> int:
    assert isinstance(outcome, ResponseError), outcome
    return outcome.code


async def test_topics_are_made_as_they_are_described(tmp_path: Path) -> None:
    async with administered(tmp_path, num_partitions="3") as (admin, _, _address):
        requested = [
            NewTopic("few", 2, 1, {"retention.ms": "5000"}),
            NewTopic("usual"),
            NewTopic("by-hand", replicas={0: (0,), 1: (0,)}),
        ]
        assert await admin.create_topics(requested, only_check=True) == {
            "few": None,
            "usual": None,
            "by-hand": None,
        }
        assert await admin.topics() == {}
        await admin.create_topics(requested)
        again = await admin.create_topics([NewTopic("few", 2), NewTopic("a b", 1)])
        assert {name: code_of(outcome) for name, outcome in again.items()} == {
            "few": ErrorCode.TOPIC_ALREADY_EXISTS, "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }  # fmt: skip
        result: Any = await admin.topics()
        assert {name: len(description.partitions) for name, description in result.items()} == {
            "by-hand": 2,
            "few": 2,
            "usual": 3,
        }
        (first, second) = result["few"].partitions
        assert (first.number, first.leader, first.replicas, first.in_sync, first.offline) == (
            0,
            0,
            (0,),
            (0,),
            (),
        )
        assert second.number == 1
        assert len({topic.id for topic in result.values()}) == 3
        assert await admin.create_partitions({"few": 4}, only_check=True) == {"few": None}
        assert await admin.create_partitions({"few": 3}) == {"few": None}
        assert code_of((await admin.create_partitions({"few": 3}))["few"]) == ErrorCode.INVALID_PARTITIONS
        result = await admin.topics(["few", "nothing"])
        assert len(result["few"].partitions) == 3
        assert code_of(result["nothing"]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        deleted = await admin.delete_topics(["few", "nothing"])
        assert deleted["few"] is None
        assert code_of(deleted["nothing"]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert sorted(await admin.topics()) == ["by-hand", "usual"]
        assert await admin.topics([]) == {}


async def test_offsets_are_looked_up_and_records_cut_off(tmp_path: Path) -> None:
    async with administered(tmp_path) as (admin, broker, _):
        await broker.create("t", 2)
        await broker.produce("t", 0, b"a", b"b", b"c")
        place, other, nowhere = ("t", 0), ("t", 1), ("t", 9)

        async def look(time_ms: int) -> Any:
            return (await admin.offsets({place: time_ms}))[place]

        assert await look(EARLIEST) == OffsetAt(0, -1, 0)
        assert await look(LATEST) == OffsetAt(3, -1, 0)
        assert await look(MAX_TIMESTAMP) == OffsetAt(0, NOW_MS, 0)
        assert await look(NOW_MS) == OffsetAt(0, NOW_MS, 0)
        assert (await look(NOW_MS + 1)).offset == -1
        result: Any = await admin.offsets({place: LATEST, other: LATEST})
        assert [result[part].offset for part in (place, other)] == [3, 0]
        assert await admin.delete_records({place: 2, other: -1}) == {place: 2, other: 0}
        assert (await look(EARLIEST)).offset == 2
        refused: Any = await admin.delete_records({place: 9})
        assert code_of(refused[place]) == ErrorCode.OFFSET_OUT_OF_RANGE
        client = admin.client
        object.__setattr__(client.settings, "retries", 0)
        assert (
            code_of((await admin.offsets({nowhere: LATEST}))[nowhere]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )


async def test_offsets_are_committed_with_all_that_they_have(tmp_path: Path) -> None:
    async with administered(tmp_path) as (admin, broker, _):
        await broker.create("t", 3)
        arguments = {("t", 0): 5, ("t", 1): CommittedOffset(7, 0, "note"), ("t", 2): CommittedOffset(0)}
        assert await admin.commit_offsets("g", arguments) == dict.fromkeys(arguments)
        assert await admin.committed(["g", "none"]) == {
            "g": {
                ("t", 0): CommittedOffset(5),
                ("t", 1): CommittedOffset(7, 0, "note"),
                ("t", 2): CommittedOffset(0),
            },
            "none": {},
        }
        missing = (await admin.commit_offsets("g", {("nowhere", 0): 1}))["nowhere", 0]
        assert code_of(missing) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await admin.delete_offsets("g", [("t", 0), ("t", 2)]) == {("t", 0): None, ("t", 2): None}
        assert list((await admin.committed(["g"]))["g"]) == [("t", 1)]  # type: ignore[arg-type]
        assert await admin.delete_groups(["g"]) == {"g": None}
        gone = (await admin.delete_groups(["g"]))["g"]
        assert code_of(gone) == ErrorCode.GROUP_ID_NOT_FOUND


async def test_share_groups_begin_where_they_are_told_to(tmp_path: Path) -> None:
    async with administered(tmp_path, share_coordinator_state_topic_replication_factor="1") as (
        admin,
        broker,
        _,
    ):
        await broker.create("t", 2)
        await broker.produce("t", 1, b"a", b"b", b"c")
        assert await admin.set_share_offsets("s", {("t", 1): 2}) == {("t", 1): None}
        result: Any = (await admin.share_offsets(["s"]))["s"]
        assert (result["t", 1].offset, result["t", 1].lag) == (2, 1)
        refused = (await admin.set_share_offsets("s", {("nowhere", 0): 1}))["nowhere", 0]
        assert code_of(refused) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await admin.delete_share_offsets("s", ["t"]) == {"t": None}
        assert (await admin.share_offsets(["s"]))["s"] == {}


async def test_groups_are_listed_by_kind_and_state_and_emptied(tmp_path: Path) -> None:
    async with administered(tmp_path) as (admin, broker, address):
        await broker.create("t")
        await admin.commit_offsets("empty", {("t", 0): 0})
        settings = ConsumerSettings(group_id="classic", instance_id="i", offset_reset="earliest")
        modern = ConsumerSettings(group_id="modern", group_protocol="consumer", offset_reset="earliest")
        async with (
            open_consumer(address, "t", settings=settings) as first,
            open_consumer(address, "t", settings=modern) as two,
        ):
            await broker.produce("t", 0, b"x")
            await first.receive()
            await two.receive()
            listed, failures = await admin.list_groups()
            assert failures == {}
            assert {name: (result.kind, result.state) for name, result in listed.items()} == {
                "classic": ("classic", "Stable"), "empty": ("classic", "Empty"), "modern": ("consumer", "Stable"),
            }  # fmt: skip
            assert [*(await admin.list_groups(kinds=["consumer"]))[0]] == ["modern"]
            assert [*(await admin.list_groups(states=["empty"]))[0]] == ["empty"]
            assert [*(await admin.list_groups(states=["stable"], kinds=["classic"]))[0]] == ["classic"]
            described: Any = await admin.describe_groups(
                {"classic": "classic", "modern": "consumer", "nobody": "classic"}
            )
            (static,) = described["classic"].members
            assert (static.instance_id, static.epoch, static.subscription, static.assignment) == (
                "i",
                None,
                ("t",),
                (("t", 0),),
            )
            (member,) = described["modern"].members
            assert (member.instance_id, member.subscription, member.assignment) == (None, ("t",), (("t", 0),))
            assert member.epoch == described["modern"].epoch
            assert code_of(described["nobody"]) == ErrorCode.GROUP_ID_NOT_FOUND
            assert await admin.remove_members("classic", [static]) == {static.member_id: None}
            described = await admin.describe_groups({"classic": "classic"})
            assert described["classic"].members == ()


async def test_settings_are_changed_one_by_one(tmp_path: Path) -> None:
    async with administered(tmp_path) as (admin, broker, _):
        await broker.create("t", 1, cleanup_policy="delete")
        topic, node, everybody, logger = (
            Resource(*entry)
            for entry in (("topic", "t"), ("broker", "0"), ("broker", ""), ("broker-logger", "0"))
        )

        async def change(resource: Resource, *changes: ConfigChange, check: bool = False) -> Any:
            return (await admin.alter_configs({resource: changes}, only_check=check))[resource]

        async def value(resource: Resource, name: str) -> tuple[str | None, str]:
            result: Any = (await admin.describe_configs([resource], names=[name]))[resource]
            return next(((entry.value, entry.source) for entry in result), (None, ""))

        assert await change(topic, ConfigChange("retention.ms", SET, "1000"), check=True) is None
        assert (await value(topic, "retention.ms"))[1] == "default"
        assert await change(topic, ConfigChange("retention.ms", SET, "1000")) is None
        assert await value(topic, "retention.ms") == ("1000", "topic")
        await change(topic, ConfigChange("cleanup.policy", APPEND, "compact"))
        assert await value(topic, "cleanup.policy") == ("delete,compact", "topic")
        await change(
            topic,
            ConfigChange("cleanup.policy", SUBTRACT, "delete"),
            ConfigChange("retention.ms", DELETE, None),
        )
        assert await value(topic, "cleanup.policy") == ("compact", "topic")
        assert (await value(topic, "retention.ms"))[1] == "default"
        assert (
            code_of(await change(topic, ConfigChange("retention.ms", SET, "soon")))
            == ErrorCode.INVALID_CONFIG
        )
        for resource, source in ((node, "broker"), (everybody, "all brokers")):
            assert await change(resource, ConfigChange("log.cleaner.threads", SET, "2")) is None
            assert await value(resource, "log.cleaner.threads") == ("2", source)
        assert await change(logger, ConfigChange("barnabas.log", SET, "ERROR")) is None
        assert await value(logger, "barnabas.log") == ("ERROR", "broker-logger")
        assert await change(logger, ConfigChange("barnabas.log", DELETE, None)) is None
        assert (await value(logger, "barnabas.log"))[0] != "ERROR"
        result: Any = (await admin.describe_configs([topic], documentation=True))[topic]
        policy = next(entry for entry in result if entry.name == "cleanup.policy")
        assert policy.documentation
        assert policy.synonyms[0] == ("cleanup.policy", "compact", "topic")
        assert await admin.config_resources(["topic", "broker"]) == [node, topic]
        assert {entry.kind for entry in await admin.config_resources(["topic"])} == {"topic"}


async def test_the_cluster_tells_brokers_log_dirs_features_and_moves(tmp_path: Path) -> None:
    async with administered(tmp_path, broker_rack="r") as (admin, broker, address):
        await broker.create("t", 2)
        await broker.produce("t", 0, b"x")
        result = await admin.describe_cluster()
        await admin.client.refresh()
        assert result.cluster_id == admin.client.cluster_id != ""
        assert result.controller_id == 0
        (node,) = result.brokers
        assert (node.broker_id, f"{node.host}:{node.port}", node.rack, node.is_fenced) == (
            0,
            address,
            "r",
            False,
        )
        ((number, dirs),) = (await admin.log_dirs()).items()
        assert number == 0
        assert isinstance(dirs, list)
        (log_dir,) = dirs
        assert (log_dir.broker_id, log_dir.path, log_dir.error) == (0, str(tmp_path), None)
        assert log_dir.total_bytes >= log_dir.usable_bytes > 0
        sizes = [
            (entry.topic, entry.partition, entry.size_bytes > 0, entry.offset_lag, entry.is_future)
            for entry in log_dir.replicas
        ]
        assert sizes == [("t", 0, True, 0, False), ("t", 1, False, 0, False)]
        features = await admin.features()
        raw = await broker.ask(ApiVersionsRequest("test", "1"), 4)
        levels = {entry.name: (entry.min_version, entry.max_version) for entry in raw.supported_features}
        assert {entry.name: (entry.min_level, entry.max_level) for entry in features} == levels
        assert any(least < most for least, most in levels.values())
        assert features == await admin.features(0)
        assert all(
            entry.min_level <= (entry.finalized_level or entry.min_level) <= entry.max_level
            for entry in features
        )
        expected = {entry.name: entry for entry in features}
        name, feature = next(
            (name, entry) for name, entry in expected.items() if entry.name == "group.version"
        )
        assert await admin.update_features({name: feature.max_level}, only_check=True) == {name: None}
        assert isinstance(feature, Feature)
        assert await admin.reassignments() == {}
        assert await admin.reassign({("t", 0): [0]}) == {("t", 0): None}
        refused: Any = await admin.reassign({("t", 0): [7], ("t", 1): None})
        assert code_of(refused["t", 0]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert code_of(refused["t", 1]) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert await admin.elect_leaders([("t", 0)]) == {("t", 0): None}
        assert await admin.elect_leaders([("t", 1)], kind=UNCLEAN) == {("t", 1): None}
        moved: Any = await admin.move_replicas(
            0, {("t", 0): str(tmp_path), ("nowhere", 0): str(tmp_path), ("t", 1): "/nowhere"}
        )
        assert moved["t", 0] is None
        assert code_of(moved["nowhere", 0]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert code_of(moved["t", 1]) == ErrorCode.LOG_DIR_NOT_FOUND


async def test_users_and_quotas_come_back_as_they_were_given(tmp_path: Path) -> None:
    async with administered(tmp_path) as (admin, _, _address):
        await admin.set_password("ann", "secret", iterations=5000)
        await admin.set_password("ann", "secret", mechanism="SCRAM-SHA-256")
        await admin.set_password("bob", "secret")
        assert await admin.users() == {
            "ann": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 5000},
            "bob": {"SCRAM-SHA-512": 8192},
        }
        await admin.delete_password("ann", "SCRAM-SHA-512")
        result = await admin.users(["ann", "eve"])
        assert result["ann"] == {"SCRAM-SHA-256": 8192}
        assert code_of(result["eve"]) == ErrorCode.RESOURCE_NOT_FOUND
        with pytest.raises(ResponseError, match="UNACCEPTABLE_CREDENTIAL"):
            await admin.set_password("ann", "secret", iterations=1)
        both: Any = {"user": "ann", "client-id": None}
        await admin.alter_quotas({"user": "ann"}, {"producer_byte_rate": 10.0, "request_percentage": 50.5})
        await admin.alter_quotas(both, {"consumer_byte_rate": 7.0})
        await admin.alter_quotas(
            {"user": "ann"}, {"request_percentage": None, "producer_byte_rate": 9.0}, only_check=True
        )
        of_ann = Quota((("user", "ann"),), {"producer_byte_rate": 10.0, "request_percentage": 50.5})
        of_both = Quota((("client-id", None), ("user", "ann")), {"consumer_byte_rate": 7.0})
        assert await admin.quotas() == [of_both, of_ann]
        assert await admin.quotas(exact={"user": "ann"}) == [of_both, of_ann]
        assert await admin.quotas(exact={"user": "ann"}, strict=True) == [of_ann]
        assert await admin.quotas(exact={"client-id": None}) == [of_both]
        assert await admin.quotas(kinds=["client-id"]) == [of_both]
        assert await admin.quotas(exact={"user": "bob"}) == []
        await admin.alter_quotas({"user": "ann"}, {"request_percentage": None})
        assert (await admin.quotas(exact={"user": "ann"}, strict=True))[0].values == {
            "producer_byte_rate": 10.0
        }


async def test_acls_and_tokens_come_back_as_they_were_given(tmp_path: Path) -> None:
    settings = {
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow_everyone_if_no_acl_found": "true", "super_users": "User:ANONYMOUS",
    }  # fmt: skip
    async with administered(tmp_path, **settings) as (admin, _, _address):
        entry = Acl("topic", "t", "literal", "User:ann", "*", "read", "allow")
        other = Acl("group", "g", "prefixed", "User:bob", "127.0.0.1", "describe", "deny")
        assert await admin.create_acls([entry, other]) == {entry: None, other: None}
        wrong = entry._replace(resource_name="")
        assert code_of((await admin.create_acls([wrong]))[wrong]) == ErrorCode.INVALID_REQUEST
        assert await admin.acls() == sorted([entry, other])
        assert await admin.acls(Acl(principal="User:bob")) == [other]
        assert await admin.acls(Acl(operation="read")) == [entry]
        assert await admin.delete_acls(Acl("topic")) == {entry: None}
        assert await admin.acls() == [other]
        with pytest.raises(ResponseError, match="DELEGATION_TOKEN"):
            await admin.create_token(renewers=[Principal("User", "ann")])
