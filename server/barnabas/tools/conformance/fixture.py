"""State that all cases of a run share: the broker, its advertised APIs, the prefix of all names, a topic with records.

The rule: every name begins with the prefix, and `clean_up` removes all created objects or reports the rest. In a cluster
one broker is tested: it leads the topics and coordinates the groups of a run, and requests that only
the controller answers are sent to the controller.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from barnabas.client.errors import ClientError
from barnabas.client.settings import Endpoint
from barnabas.tools.inspection.errors import code_name, error_codes
from barnabas.tools.probing.exchanges import (
    COORDINATOR_COMES,
    ClosedByBrokerError,
    ExchangeError,
    Target,
    Wire,
)
from barnabas.tools.probing.harmless import BY_KEY, Names, records_of
from barnabas.tools.probing.honoured import Versions, ask_for_cluster, learn_versions
from barnabas.tools.probing.messages import make
from barnabas.tools.probing.release import Guess, guess
from barnabas.wire import registry

PREFIX = "conform-"
RECORDS, PARTITIONS = 10, 3
FIRST_TIMESTAMP_MS = 1_700_000_000_000
READY_S, PAUSE_S = 30.0, 0.05
OF_CONTROLLER = frozenset(
    ("CreateTopics", "DeleteTopics", "CreatePartitions", "ElectLeaders", "AlterPartitionReassignments",
     "ListPartitionReassignments", "UpdateFeatures", "AlterUserScramCredentials")
)  # fmt: skip
"""APIs that a broker on ZooKeeper answers with NOT_CONTROLLER unless it is the controller; clients ask the controller."""
FIRST_PRODUCE_4, LAST_PRODUCE_4 = 3, 12
"""Kafka 4 advertises Produce from 0 on, serves it from the first of these on, and has at least the second."""
METADATA, PRODUCE, CREATE_TOPICS, DELETE_TOPICS, LIST_OFFSETS, DELETE_GROUPS, LIST_GROUPS = (
    3,
    0,
    19,
    20,
    2,
    42,
    16,
)


@dataclass(slots=True)
class Fixture:
    """One run against one broker; created by `open_fixture`."""

    target: Target
    versions: Versions
    features: Mapping[str, int]
    release: Guess
    prefix: str
    seed: int
    node_id: int = 0
    controller_id: int = -1
    cluster_id: str | None = None
    brokers: int = 1
    controller: Target | None = None
    """The controller, where Metadata names another broker."""
    metadata_version: int = -1
    """The newest version of Metadata with an answer that can be decoded."""
    topic: str = ""
    topic_id: bytes = bytes(16)
    topic_problem: str = "not made yet"
    unknown: str = ""
    """A name of no existing topic or group; this broker coordinates the group."""
    unknown_transaction: str = ""
    """A transactional id that no producer has, which this broker coordinates."""
    groups: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    leftovers: list[str] = field(default_factory=list)
    """Lines about objects that could not be removed."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def fresh(self, what: str) -> str:
        """Return a name that is not in use."""
        return f"{self.prefix}-{what}-{next(self._numbers)}"

    def newest(self, api: str) -> int:
        """Return the newest version of an API that broker and codecs support. Raises KeyError if it is not served."""
        key = registry.key_of(api)
        if key == METADATA and self.metadata_version >= 0:
            return self.metadata_version
        return min(self.versions[key][1], registry.info(key).max_stable_version)

    def serves(self, api: str, version: int = -1) -> bool:
        """Return whether an API is advertised, in this version."""
        low, high = self.versions.get(registry.key_of(api), (0, -1))
        return low <= version <= high if version >= 0 else low <= high

    @property
    def is_kafka_4(self) -> bool:
        """True if the broker advertises the APIs of releases from 4.0 on."""
        from barnabas.config.releases import is_at_least

        return is_at_least(self.release.names[-1], "4.0")

    def target_of(self, api: str) -> Target:
        """Return the broker that answers requests of an API."""
        return self.controller if self.controller is not None and api in OF_CONTROLLER else self.target

    def names(self) -> Names:
        """Return the names in harmless requests of this run."""
        return Names(
            self.unknown,
            self.unknown,
            self.unknown_transaction,
            topic_id=UNKNOWN_ID,
            node_id=self.node_id,
            has_offsets_topic=True,
        )


UNKNOWN_ID = bytes(range(1, 17))


async def open_fixture(target: Target, seed: int) -> Fixture:
    """Determine the broker's properties. Raises ClientError, ExchangeError."""
    versions, answer = await learn_versions(target)
    fixture = Fixture(
        target,
        versions,
        {
            finalized_feature.name: finalized_feature.max_version_level
            for finalized_feature in answer.finalized_features
        },
        guess(versions),
        PREFIX + secrets.token_hex(3),
        seed,
    )
    fixture.unknown = fixture.unknown_transaction = f"{fixture.prefix}-unknown"
    await _drop_versions_for_show(fixture)
    fixture.metadata_version, metadata = await ask_for_cluster(target, versions, with_topics=False)
    fixture.cluster_id, fixture.controller_id, fixture.brokers = (
        metadata.cluster_id,
        metadata.controller_id,
        len(metadata.brokers),
    )
    fixture.node_id = _node_at(target.endpoint, metadata.brokers)
    for node in metadata.brokers:
        if node.node_id == fixture.controller_id != fixture.node_id:
            fixture.controller = replace(target, endpoint=Endpoint(node.host, node.port))
    return fixture


def _node_at(endpoint: Endpoint, brokers: Sequence[Any]) -> int:
    """Return the id of the broker with this address, or else with this port: its host may have another name."""
    exactly = [node.node_id for node in brokers if (node.host, node.port) == (endpoint.host, endpoint.port)]
    by_port = [node.node_id for node in brokers if node.port == endpoint.port]
    return int((exactly or by_port or [brokers[0].node_id])[0])


async def _drop_versions_for_show(fixture: Fixture) -> None:
    """Remove versions of Produce that are only advertised for old clients, and not served (KIP-896)."""
    low, high = fixture.versions.get(PRODUCE, (0, -1))
    if low >= FIRST_PRODUCE_4 or high < LAST_PRODUCE_4:
        return
    row = BY_KEY[PRODUCE]
    async with fixture.target.connect() as wire:
        try:
            await wire.ask(row.request(fixture.names(), low), low)
        except ClosedByBrokerError:
            fixture.versions[PRODUCE] = FIRST_PRODUCE_4, high


async def find_coordinators(wire: Wire, fixture: Fixture) -> None:
    """Make the broker create its coordinators' topics, and find names that it coordinates.

    Raises ExchangeError, OSError if there are none within READY_S.
    """
    if not fixture.serves("FindCoordinator"):
        return
    deadline = trio.current_time() + READY_S
    while not await _is_coordinated(wire, fixture, fixture.unknown, 0, deadline):
        fixture.unknown = fixture.fresh("unknown")
    if fixture.newest("FindCoordinator") >= 1 and fixture.serves("InitProducerId"):
        while not await _is_coordinated(wire, fixture, fixture.unknown_transaction, 1, deadline):
            fixture.unknown_transaction = fixture.fresh("unknown")
        if fixture.serves("EndTxn"):
            await _wait_for_transactions(wire, fixture, deadline)


async def _is_coordinated(wire: Wire, fixture: Fixture, name: str, key_type: int, deadline: float) -> bool:
    """Return whether this broker coordinates a name, as soon as it has a coordinator. Raises OSError after the deadline."""
    version = fixture.newest("FindCoordinator")
    asked = {"key": name, "coordinator_keys": [name], "key_type": key_type}
    while trio.current_time() < deadline:
        answer = await wire.ask(make("FindCoordinator", version, asked), version)
        coordinator = answer.coordinators[0] if answer.coordinators else answer
        if not coordinator.error_code:
            return fixture.brokers == 1 or bool(coordinator.node_id == fixture.node_id)
        await trio.sleep(PAUSE_S)
    raise OSError(f"no coordinator is found here in {READY_S:g} s")


async def _wait_for_transactions(wire: Wire, fixture: Fixture, deadline: float) -> None:
    version = fixture.newest("EndTxn")
    asked = {"transactional_id": fixture.unknown_transaction, "producer_id": 1, "producer_epoch": 0}
    while trio.current_time() < deadline:
        answer = await wire.ask(make("EndTxn", version, asked), version)
        if answer.error_code not in COORDINATOR_COMES:
            return
        await trio.sleep(PAUSE_S)


async def make_topic(
    wire: Wire,
    fixture: Fixture,
    name: str,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    *,
    controller: Wire | None = None,
) -> bytes:
    """Create a topic on this broker and wait for its leaders; returns its id. Raises ExchangeError, OSError.

    `controller` is the connection for creating it, if that is not the broker's.
    """
    fixture.topics.add(name)
    if fixture.serves("CreateTopics"):
        version = fixture.newest("CreateTopics")
        topic: dict[str, Any] = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        if fixture.brokers > 1:
            assigned = [
                {"partition_index": index, "broker_ids": [fixture.node_id]} for index in range(partitions)
            ]
            topic |= {"num_partitions": -1, "replication_factor": -1, "assignments": assigned}
        topic["configs"] = [{"name": key, "value": value} for key, value in (configs or {}).items()]
        answer = await (controller or wire).ask(
            make("CreateTopics", version, {"topics": [topic], "timeout_ms": 30_000}), version
        )
        if answer.topics[0].error_code:
            raise OSError(f"the topic cannot be made: {code_name(answer.topics[0].error_code)}")
    elif configs:
        raise OSError("the topic cannot be made: CreateTopics is not served")
    version = fixture.newest("Metadata")
    asked = make(
        "Metadata",
        version,
        {"topics": [{"name": name}], "allow_auto_topic_creation": not fixture.serves("CreateTopics")},
    )
    with trio.move_on_after(READY_S):
        while True:
            described = (await wire.ask(asked, version)).topics[0]
            is_known = not described.error_code and all(
                partition.leader_id >= 0 for partition in described.partitions
            )
            if (
                is_known
                and described.partitions
                and await _is_led(wire, fixture, name, len(described.partitions))
            ):
                return bytes(described.topic_id)
            await trio.sleep(PAUSE_S)
    raise OSError(f"the topic has no leader after {READY_S:g} s")


async def _is_led(wire: Wire, fixture: Fixture, name: str, partitions: int) -> bool:
    """Return whether the leaders serve: the metadata may name a leader shortly before it serves."""
    if not fixture.serves("ListOffsets"):
        return True
    version = fixture.newest("ListOffsets")
    asked = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
    values = {"replica_id": -1, "topics": [{"name": name, "partitions": asked}]}
    return not error_codes(await wire.ask(make("ListOffsets", version, values), version))


async def set_up(fixture: Fixture) -> None:
    """Create the topic that cases share, with records in its partition 0; an error is kept for the cases that need it."""
    fixture.topic = f"{fixture.prefix}-table"
    try:
        async with AsyncExitStack() as stack:
            wire, controller = await _connect_both(stack, fixture)
            await find_coordinators(wire, fixture)
            fixture.topic_id = await make_topic(
                wire, fixture, fixture.topic, PARTITIONS, controller=controller
            )
            version = fixture.newest("Produce")
            data = _ten_records(version)
            topic = {
                "name": fixture.topic,
                "topic_id": fixture.topic_id,
                "partition_data": [{"index": 0, "records": data}],
            }
            asked = make("Produce", version, {"acks": -1, "timeout_ms": 30_000, "topic_data": [topic]})
            answer = await wire.ask(asked, version)
            codes = error_codes(answer)
            fixture.topic_problem = f"records cannot be appended: {code_name(codes[0].code)}" if codes else ""
    except (ClientError, ExchangeError, OSError) as error:
        fixture.topic_problem = str(error)


def _ten_records(version: int) -> bytes:
    from barnabas.records.building import encode_batch
    from barnabas.records.record import Record

    if version < 3:
        return records_of(
            version, *(b"v%d" % number for number in range(RECORDS)), timestamp_ms=FIRST_TIMESTAMP_MS
        )
    records = [
        Record(number, FIRST_TIMESTAMP_MS + 1000 * number, b"k%d" % number, b"v%d" % number)
        for number in range(RECORDS)
    ]
    return encode_batch(records)


async def _connect_both(stack: AsyncExitStack, fixture: Fixture) -> tuple[Wire, Wire]:
    """Connect to the broker and to the controller, which may be the same."""
    wire = await stack.enter_async_context(fixture.target.connect())
    if fixture.controller is None:
        return wire, wire
    return wire, await stack.enter_async_context(fixture.controller.connect())


async def clean_up(fixture: Fixture) -> None:
    """Remove the run's groups and topics, and note remaining ones."""
    try:
        async with AsyncExitStack() as stack:
            wire, controller = await _connect_both(stack, fixture)
            await _remove_groups(wire, fixture)
            await _remove_topics(wire, controller, fixture)
    except (ClientError, ExchangeError, OSError) as error:
        fixture.leftovers.append(f"topics and groups {fixture.prefix}-* may be left: {error}")


async def _remove_groups(wire: Wire, fixture: Fixture) -> None:
    if not (fixture.serves("DeleteGroups") and fixture.serves("ListGroups")):
        if fixture.groups:
            fixture.leftovers.append(f"groups {fixture.prefix}-*: DeleteGroups is not served")
        return
    version = fixture.newest("ListGroups")
    listed = await wire.ask(make("ListGroups", version, {}), version)
    mine = [group.group_id for group in listed.groups if group.group_id.startswith(fixture.prefix)]
    if not mine:
        return
    version = fixture.newest("DeleteGroups")
    answer = await wire.ask(make("DeleteGroups", version, {"groups_names": mine}), version)
    for result in answer.results:
        if result.error_code and code_name(result.error_code) not in ("GROUP_ID_NOT_FOUND",):
            fixture.leftovers.append(f"group {result.group_id}: {code_name(result.error_code)}")


async def _remove_topics(wire: Wire, controller: Wire, fixture: Fixture) -> None:
    version = fixture.newest("Metadata")
    everything = await wire.ask(make("Metadata", version, {"topics": None if version else []}), version)
    mine = [topic.name for topic in everything.topics if (topic.name or "").startswith(fixture.prefix)]
    if not mine:
        return
    if not fixture.serves("DeleteTopics"):
        fixture.leftovers.append(f"{len(mine)} topics {fixture.prefix}-*: DeleteTopics is not served")
        return
    version = fixture.newest("DeleteTopics")
    named = {"topics": [{"name": name} for name in mine], "topic_names": mine, "timeout_ms": 30_000}
    answer = await controller.ask(make("DeleteTopics", version, named), version)
    for response in answer.responses:
        if response.error_code and code_name(response.error_code) != "UNKNOWN_TOPIC_OR_PARTITION":
            fixture.leftovers.append(f"topic {response.name}: {code_name(response.error_code)}")
