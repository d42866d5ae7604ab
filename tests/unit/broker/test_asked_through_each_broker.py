"""Every API is asked through each broker of a cluster: it answers, or sends its client where Kafka would.

The rule: requests come from the table of the probe, for all versions, with names that are there: partitions, groups and
transactional ids, one of each for each broker, with replicas that no other broker has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import trio

from barnabas.client import Client
from barnabas.cluster.metadata.partitioning import partition_for
from barnabas.serving import apis
from barnabas.testing.simulation.world import World
from barnabas.tools.inspection.errors import error_codes
from barnabas.tools.probing.harmless import BETWEEN_BROKERS, BY_KEY, Effect, Names
from barnabas.tools.probing.honoured import OF_GROUPS, OF_SHARES, OF_TRANSACTIONS
from barnabas.tools.probing.messages import make
from barnabas.wire.generated.errors import ErrorCode
from tests.support.replicating import in_world, produce
from tests.support.zookeeper_cluster import ZooKeeperCluster, clustered

BROKERS = (1, 2, 3)
SETTINGS = {
    "offsets_topic_num_partitions": "3", "transaction_state_log_num_partitions": "3",
    "share_coordinator_state_topic_num_partitions": "3", "offsets_topic_replication_factor": "1",
    "transaction_state_log_replication_factor": "1", "share_coordinator_state_topic_replication_factor": "1",
    "transaction_state_log_min_isr": "1", "share_coordinator_state_topic_min_isr": "1",
    "min_insync_replicas": "1",
}  # fmt: skip
FEATURES = {"group.version": 1, "transaction.version": 2, "share.version": 1, "streams.version": 1}
RECORDS, START = 5, 2
INDEXES = ("index", "partition", "partition_index")
INDEX_LISTS = ("partitions", "partition_indexes")
NOT_ASKED = BETWEEN_BROKERS | {17, 36}
"""APIs between brokers, and logins, of which a listener without them knows nothing."""


class Place(NamedTuple):
    """A partition that one broker leads, and the groups and transactional id that it coordinates."""

    broker_id: int
    partition: int
    group: str
    share_group: str
    transactional_id: str


def values_for(key: int, names: Names, version: int, place: Place) -> dict[str, Any]:
    """Return the table's request, with the place's names where it has its own for no client."""
    match apis.BY_KEY[key].name:
        case "DescribeShareGroupOffsets":
            # The partitions of all brokers: the coordinator of a group does not lead most of them.
            of_all = {"topic_name": "t", "partitions": [0, 1, 2]}
            return {"groups": [{"group_id": place.share_group, "topics": [of_all]}]}
        case "ShareGroupDescribe":
            return {"group_ids": [place.share_group]}
        case "DeleteTopics":
            return {**BY_KEY[key].values(replace(names, topic="none"), version)}
        case "ListTransactions" | "ListGroups":
            return {}
        case "DescribeConfigs":
            return {"resources": [{"resource_type": 2, "resource_name": "t", "configuration_keys": None}]}
        case "InitProducerId":
            return {"transactional_id": place.transactional_id, "transaction_timeout_ms": 60_000}
        case "FindCoordinator":
            key_name = "coordinator_keys" if version >= 4 else "key"
            return {key_name: [place.group] if version >= 4 else place.group}
        case "ShareFetch":
            topic = {"topic_id": names.topic_id, "partitions": [{"partition_index": place.partition}]}
            return {
                "group_id": place.share_group, "member_id": "AAAAAAAAAAAAAAAAAAAAAA", "share_session_epoch": 0,
                "max_wait_ms": 0, "max_bytes": 1000, "max_records": 1, "batch_size": 1, "topics": [topic],
            }  # fmt: skip
        case _:
            values = BY_KEY[key].values(names, version)
            return at_partition(values, place.partition)


def at_partition(values: Any, partition: int) -> Any:
    """Return the same about another partition than 0."""
    if isinstance(values, list):
        return [at_partition(value, partition) for value in values]
    if not isinstance(values, dict):
        return values
    changed = {name: at_partition(value, partition) for name, value in values.items()}
    for name in INDEXES:
        if name in changed:
            changed[name] = partition
    for name in INDEX_LISTS:
        if changed.get(name) == [0]:
            changed[name] = [partition]
    return changed


BY_LEADER = {
    "Produce", "Fetch", "ListOffsets", "DeleteRecords", "OffsetForLeaderEpoch", "DescribeProducers",
    "ShareFetch",
}  # fmt: skip
REDIRECTS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: lambda api: api.name in BY_LEADER,
    ErrorCode.NOT_COORDINATOR: lambda api: api.key in OF_GROUPS | OF_TRANSACTIONS | OF_SHARES,
    ErrorCode.NOT_CONTROLLER: lambda api: api.controller,
}
NEVER = {-1, 5, 8, 9, 13, 14, 15, 56, 72}
"""Codes that nothing in a cluster at rest gives a reason for."""


async def ready(cluster: ZooKeeperCluster, client: Client) -> list[Place]:
    """Make what is asked about; returns what each broker leads and coordinates."""
    await client.ask_controller(
        make("UpdateFeatures", 1, {"timeout_ms": 10_000, "feature_updates": [
            {"feature": name, "max_version_level": level, "upgrade_type": 1} for name, level in FEATURES.items()
        ]}),
    )  # fmt: skip
    await cluster.create(client, "t", partitions=3, factor=1)
    for index in range(3):
        await produce(client, *[b"v"] * RECORDS, index=index)
    places = []
    for partition in range(3):
        broker_id = cluster.leader("t", partition)
        place = Place(
            broker_id, partition, await name_at(cluster, client, "group", 0, broker_id),
            await name_at(cluster, client, "share", 0, broker_id),
            await name_at(cluster, client, "id", 1, broker_id),
        )  # fmt: skip
        await begin(client, place)
        places.append(place)
    return places


async def name_at(cluster: ZooKeeperCluster, client: Client, stem: str, key_type: int, broker_id: int) -> str:
    """Return a name that a broker coordinates."""
    topic = ("__consumer_offsets", "__transaction_state")[key_type]
    await client.retrying(lambda: client.coordinator(stem, key_type))
    await cluster.until(lambda: {cluster.leader(topic, index) for index in range(3)} == set(BROKERS))
    return next(
        name
        for name in (f"{stem}-{number}" for number in range(1000))
        if cluster.leader(topic, partition_for(name, 3)) == broker_id
    )


async def begin(client: Client, place: Place) -> None:
    """Have a group with offsets, a share group without members that knows where it is, and a transactional id."""
    partitions = [{"partition_index": index, "committed_offset": 1} for index in range(3)]
    await settled(client, place.broker_id, "OffsetCommit", 7, {
        "group_id": place.group, "topics": [{"name": "t", "partitions": partitions}],
    })  # fmt: skip
    beat = {"group_id": place.share_group, "member_id": "AAAAAAAAAAAAAAAAAAAAAA", "rack_id": None}
    for epoch, topics in ((0, ["t"]), (-1, None)):
        await settled(client, place.broker_id, "ShareGroupHeartbeat", 1, {
            **beat, "member_epoch": epoch, "subscribed_topic_names": topics,
        })  # fmt: skip
    await settled(client, place.broker_id, "AlterShareGroupOffsets", 0, {
        "group_id": place.share_group, "topics": [{"topic_name": "t", "partitions": [
            {"partition_index": index, "start_offset": START} for index in range(3)
        ]}],
    })  # fmt: skip
    await settled(client, place.broker_id, "InitProducerId", 4, {
        "transactional_id": place.transactional_id, "transaction_timeout_ms": 60_000,
    })  # fmt: skip


async def settled(client: Client, broker_id: int, name: str, version: int, values: dict[str, Any]) -> Any:
    """Ask until what is loading is loaded; the response, which has no errors."""
    for _ in range(100):
        response = await client.ask_broker(broker_id, make(name, version, values), version=version)
        codes = {code.code for code in error_codes(response)}
        if not codes:
            return response
        assert codes <= {14, 15, 16, 51}, (name, response)
        await trio.sleep(0.1)
    raise AssertionError((name, response))


def asked_apis(cluster: ZooKeeperCluster) -> list[apis.Api]:
    """The APIs that clients may ask for; those that delete what is asked about are the last ones."""
    broker = cluster.machines[BROKERS[0]].broker
    assert broker is not None
    asked = [api for api in broker.services.served.values() if api.key not in NOT_ASKED]
    return sorted(asked, key=lambda api: "Delete" in api.name)


OF_ONE_BROKER = {
    "ApiVersions", "DescribeLogDirs", "ListGroups", "ListTransactions", "GetTelemetrySubscriptions",
}  # fmt: skip
"""APIs with answers about the broker that is asked, or made for the client."""


def is_same_everywhere(api: apis.Api) -> bool:
    """Say whether an API that reads gives the same through each broker."""
    is_sent_away = any(may(api) for may in REDIRECTS.values())
    return BY_KEY[api.key].effect is Effect.READS and not is_sent_away and api.name not in OF_ONE_BROKER


def judge(answers: dict[tuple[str, int, int, Place], Counter[int]], controller_id: int) -> list[str]:
    """Return what is wrong about the codes of answers, by API, version, asked broker and place."""
    wrong = []
    right: defaultdict[tuple[str, int], set[tuple[int, ...]]] = defaultdict(set)
    by_name = {api.name: api for api in apis.BY_KEY.values()}
    for (name, version, broker_id, place), codes in answers.items():
        api = by_name[name]
        what = f"{name} v{version} about broker {place.broker_id}'s, through {broker_id}: {dict(codes)}"
        if codes.keys() & NEVER:
            wrong.append(what)
        is_sent_away = False
        for code, may in REDIRECTS.items():
            if code in codes:
                is_sent_away = True
                there = controller_id if code == ErrorCode.NOT_CONTROLLER else place.broker_id
                if not may(api) or broker_id == there:
                    wrong.append(what)
        if not is_sent_away:
            right[name, version].add(tuple(sorted(codes.elements())))
    wrong += [
        f"{name} v{version} is answered differently by brokers: {codes}"
        for (name, version), codes in right.items()
        if len(codes) > 1
    ]
    return wrong


def through_each(program: Callable[[ZooKeeperCluster, Client, list[Place]], Any]) -> None:
    async def run(world: World) -> None:
        async with clustered(world, *BROKERS, **SETTINGS) as cluster, cluster.client() as client:
            await program(cluster, client, await ready(cluster, client))

    in_world(run)


def test_each_api_is_answered_or_redirected_by_each_broker() -> None:
    async def program(cluster: ZooKeeperCluster, client: Client, places: list[Place]) -> None:
        topic = await client.topic("t")
        answers: dict[tuple[str, int, int, Place], Counter[int]] = {}
        whole: defaultdict[tuple[str, int, Place], set[str]] = defaultdict(set)
        for api in asked_apis(cluster):
            for version in range(api.min_version, api.max_version + 1):
                for place in places:
                    names = Names("t", place.group, place.transactional_id, topic.topic_id)
                    for broker_id in BROKERS:
                        values = values_for(api.key, replace(names, node_id=broker_id), version, place)
                        request = make(api.name, version, values)
                        response = await client.ask_broker(broker_id, request, version=version)
                        answers[api.name, version, broker_id, place] = Counter(
                            code.code for code in error_codes(response)
                        )
                        if is_same_everywhere(api):
                            whole[api.name, version, place].add(repr(response))
        assert len(answers) > 1000
        assert {name for name, _, _ in whole} >= {"Metadata", "DescribeTopicPartitions", "DescribeConfigs"}
        assert [key for key, codes in whole.items() if len(codes) > 1] == []
        wrong = judge(answers, cluster.controller_id)
        assert not wrong, "\n".join(wrong)

    through_each(program)


def test_lags_of_share_groups_count_what_other_brokers_lead() -> None:
    async def program(_: ZooKeeperCluster, client: Client, places: list[Place]) -> None:
        for place in places:
            for topics in (None, [{"topic_name": "t", "partitions": [0, 1, 2]}]):
                response = await settled(client, place.broker_id, "DescribeShareGroupOffsets", 1, {
                    "groups": [{"group_id": place.share_group, "topics": topics}],
                })  # fmt: skip
                (row,) = response.groups[0].topics
                told = sorted((part.partition_index, part.start_offset, part.lag) for part in row.partitions)
                assert told == [(index, START, RECORDS - START) for index in range(3)]

    through_each(program)
