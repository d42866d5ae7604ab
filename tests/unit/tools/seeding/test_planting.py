"""Seeds in a broker, written and looked at by the requests that clients send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.serving.quotas.entities import QuotaEntity
from barnabas.tools.seeding.local_requests import LocalRequests
from barnabas.tools.seeding.looking import Looking, NotThereError
from barnabas.tools.seeding.planting import plant
from barnabas.tools.seeding.reading import read_seeds
from barnabas.tools.seeding.seeds import SeedError
from tests.support.broker import NOW_MS, broker_to_ask

SEEDS = {
    "topics": {
        "orders": {
            "partitions": 2,
            "settings": {"retention.ms": "-1"},
            "records": [
                {"key": "k", "value": "one", "partition": 1, "timestamp": 5, "headers": {"h": "x"}},
                {"key": "k", "value": {"base64": "/w=="}, "partition": 1},
                "zero",
                "one more",
            ],
        },
        "empty": {},
    },
    "groups": {"billing": {"orders": {"0": 1, "1": "latest"}, "empty": {"0": "earliest"}}},
    "users": {"alice": {"password": "secret", "mechanisms": ["SCRAM-SHA-256"]}},
    "quotas": [{"user": "alice", "producer_byte_rate": 1000}],
}
ONE_PARTITION = {"offsets.topic.num.partitions": "1"}


def values(records: list[dict[str, Any]]) -> list[object]:
    return [record["value"] for record in records]


async def test_a_broker_holds_what_was_described(tmp_path: Path) -> None:
    async with broker_to_ask(tmp_path, ONE_PARTITION) as asked:
        await plant(asked.broker, read_seeds(SEEDS))
        looking = Looking(LocalRequests(asked.broker))
        assert [topic["name"] for topic in looking.topics()] == ["empty", "orders"]
        assert looking.topic("orders")["settings"] == {"retention.ms": "-1"}
        assert await looking.records("orders", 1) == [
            {
                "partition": 1,
                "offset": 0,
                "timestamp": 5,
                "key": "k",
                "value": "one",
                "headers": [{"h": "x"}],
            },
            {
                "partition": 1,
                "offset": 1,
                "timestamp": NOW_MS,
                "key": "k",
                "value": {"base64": "/w=="},
                "headers": [],
            },
            {
                "partition": 1,
                "offset": 2,
                "timestamp": NOW_MS,
                "key": None,
                "value": "one more",
                "headers": [],
            },
        ]
        assert values(await looking.records("orders", 0)) == ["zero"]
        group = await looking.group("billing")
        assert group["members"] == []
        assert group["offsets"] == [
            {"topic": "empty", "partition": 0, "offset": 0, "lag": 0},
            {"topic": "orders", "partition": 0, "offset": 1, "lag": 0},
            {"topic": "orders", "partition": 1, "offset": 3, "lag": 0},
        ]
        image = asked.services.metadata.image
        assert image.quotas[QuotaEntity("alice")] == {"producer_byte_rate": 1000.0}
        assert list(image.scram["alice"]) == ["SCRAM-SHA-256"]


async def test_what_is_there_stays_when_only_new_is_asked_for(tmp_path: Path) -> None:
    async with broker_to_ask(tmp_path, ONE_PARTITION) as asked:
        await plant(asked.broker, read_seeds(SEEDS))
        looking = Looking(LocalRequests(asked.broker))
        before = await looking.records("orders")
        changed = {"topics": SEEDS["topics"], "groups": {"billing": {"orders": {"0": 0}}}}
        await plant(asked.broker, read_seeds(changed), only_new=True)
        assert await looking.records("orders") == before
        assert (await looking.group("billing"))["offsets"][1]["offset"] == 1
        await plant(asked.broker, read_seeds(changed))
        assert len(await looking.records("orders")) == 2 * len(before)
        assert (await looking.group("billing"))["offsets"][1]["offset"] == 0


async def test_the_brokers_reason_is_given(tmp_path: Path) -> None:
    async with broker_to_ask(tmp_path) as asked:
        for seeds, reason in (
            ({"topics": {"a/b": {}}}, "topic a/b: INVALID_TOPIC_EXCEPTION"),
            ({"topics": {"t": {"settings": {"cleanup.policy": "none"}}}}, "topic t: INVALID_CONFIG"),
            (
                {
                    "topics": {
                        "__consumer_offsets": {"partitions": 1, "records": [{"key": "k", "value": "v"}]}
                    }
                },
                "records of __consumer_offsets-0: INVALID_TOPIC_EXCEPTION",
            ),
            ({"groups": {"g": {"none": {"0": "latest"}}}}, "UNKNOWN_TOPIC_OR_PARTITION"),
            (
                {"acls": [{"principal": "User:a", "operation": "READ", "topic": "t"}]},
                "this broker has no authorizer",
            ),
        ):
            with pytest.raises(SeedError, match=reason):
                await plant(asked.broker, read_seeds(seeds))
        with pytest.raises(NotThereError, match="there is no topic none"):
            await Looking(LocalRequests(asked.broker)).records("none")


async def test_acls_are_planted_where_there_is_an_authorizer(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    async with broker_to_ask(tmp_path, settings) as asked:
        seeds = read_seeds(
            {"acls": [{"principal": "User:a", "operation": "READ", "topic": "t"}], "topics": {"t": 1}}
        )
        await plant(asked.broker, seeds)
        await plant(asked.broker, seeds)
        assert asked.services.metadata.image.acls.count == 1


@pytest.mark.parametrize(("release", "is_refused"), [("", True), ("4.3", False), ("4.4", True)])
async def test_a_host_of_an_acl_is_a_network_to_brokers_of_4_4(
    tmp_path: Path, release: str, is_refused: bool
) -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "kafka.version": release,
    }
    async with broker_to_ask(tmp_path, settings) as asked:

        async def planted(host: str) -> int:
            acl = {"principal": "User:a", "operation": "READ", "topic": "t", "host": host}
            await plant(asked.broker, read_seeds({"acls": [acl]}))
            return asked.services.metadata.image.acls.count

        assert await planted("10.0.0.0/8") == 1
        if is_refused:
            with pytest.raises(SeedError, match=r"acls: Invalid CIDR notation '10\.0\.0\.0/33'"):
                await planted("10.0.0.0/33")
        else:
            assert await planted("10.0.0.0/33") == 2


async def test_many_records_go_in_batches_of_bounded_size(tmp_path: Path) -> None:
    async with broker_to_ask(tmp_path) as asked:
        records = [{"value": "x" * 1000, "partition": 0} for _ in range(1000)]
        await plant(asked.broker, read_seeds({"topics": {"t": {"records": records}}}))
        looking = Looking(LocalRequests(asked.broker))
        assert await looking.count("t", 0) == (1000, 1000)
        assert await looking.count("t", 0, 990) == (10, 1000)
        assert len(await looking.records("t", limit=5)) == 5
