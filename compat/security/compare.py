"""Refused requests, on Apache Kafka with its StandardAuthorizer and on Barnabas: python -m compat.security.compare.

The exit code is 1 when an answer differs in a way that is not known.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial

from barnabas.security.authorizer import Operation, ResourceType
from barnabas.serving import apis
from barnabas.wire import registry
from compat.kafka import KafkaError
from compat.kit import examples
from compat.kit.compare import Seen, Step, run
from compat.kit.known import judge
from compat.kit.records import record_batch
from compat.kit.sides import Side, StartError
from compat.kit.wire import ZERO_UUID, Values, WireError
from compat.security import known_differences
from compat.security.requests import GROUP_TYPE, REQUESTS, Names
from compat.security.rules import OPERATIONS, name_without, set_acls
from compat.security.scenarios import scenarios
from compat.security.sides import both

DESTRUCTIVE = ("DeleteTopics", "DeleteGroups", "DeleteRecords")
FREE = "free"
OF_KAFKA_4 = ("hidden",)
"""Scenarios with requests that Kafka 3.9 does not serve."""
BEFORE_EXTRA = "StreamsGroupDescribe"
DESCRIBES_SETTINGS = "DescribeConfigs"
SERVED_SINCE = {"Produce": 3}
"""Kafka says that it serves v0 of it, so that librdkafka knows what it can do, and does not."""


def made(topic: str) -> Step:
    """A topic that is created, where that is allowed."""
    values = REQUESTS["CreateTopics"](Names(new_topic=topic))
    return Step(f"create {topic}", "CreateTopics", 7, values)


def topic_id(seen: Seen, topic: str) -> bytes:
    """Return the id of a topic on a side; zeros if it was not created."""
    answer = seen.get(f"create {topic}", {}).get("Topics")
    return answer[0]["TopicId"] if answer else ZERO_UUID


def step(label: str, api: str, version: int, names: Names) -> Step:
    """One request about these names, with the topic's id as its side has it."""

    def values(seen: Seen) -> Values:
        return REQUESTS[api](replace(names, topic_id=topic_id(seen, names.topic)))

    return Step(f"{api} v{version}: {label}", api, version, values)


def cases(api: apis.Api, *, of_kafka_3: bool = False) -> Iterator[tuple[str, Names]]:
    """Cases that are refused: each operation of the table on resources of its type, and everything on them."""
    names = Names(topic=FREE, group="g", transactional_id="x", new_topic=FREE, records=record_batch([b"v"]))
    if of_kafka_3 and api.name == DESCRIBES_SETTINGS:
        names = replace(names, group="")  # one resource of an unknown type has Kafka refuse them all
    for access in dict.fromkeys((check.operation, check.resource_type) for check in (*api.whole, *api.each)):
        operation, kind = access
        label = f"no {operation.name} on {kind.name}"
        if kind is ResourceType.CLUSTER:
            yield label, names
            continue
        if kind is ResourceType.GROUP and of_kafka_3 and api.name == DESCRIBES_SETTINGS:
            continue
        for refused in (name_without(operation.name), name_without("ALL")):
            yield f"{label} {refused}", about(names, api.name, kind, refused, operation)


def about(names: Names, api: str, kind: ResourceType, name: str, operation: Operation) -> Names:
    """Return the names of a request with this resource."""
    if kind is ResourceType.TOPIC:
        return replace(names, topic=name, new_topic=name)
    if kind is ResourceType.GROUP:
        return replace(names, group=name)
    transactional = record_batch([b"v"], transactional=True, producer=(1, 0, 0))
    return replace(names, transactional_id=name, is_transactional=True, records=transactional)


def extra() -> Iterator[Step]:
    """Requests in other forms: by topic id, of everything, of other coordinators, as a replica."""

    def by_id(topic: str, **more: object) -> Callable[[Seen], Values]:
        return lambda seen: {"Topics": [{"Name": None, "TopicId": topic_id(seen, topic)}], **more}

    for topic in ("no-describe", "no-delete", "free"):
        yield Step(f"Metadata v13: by id {topic}", "Metadata", 13, by_id(topic))
    everything = {"Topics": None, "IncludeTopicAuthorizedOperations": True}
    for version in (4, 10, 13):
        yield Step(f"Metadata v{version}: everything", "Metadata", version, everything)
    yield Step("DescribeTopicPartitions v0: everything", "DescribeTopicPartitions", 0,
               {"Topics": [], "ResponsePartitionLimit": 100})  # fmt: skip
    for version, kind, key in (
        (4, 1, "no-describe"),
        (6, 1, "nothing"),
        (6, 2, "g:AAAAAAAAAAAAAAAAAAAAAQ:0"),
    ):
        values: Values = {"KeyType": kind, "CoordinatorKeys": [key]}
        yield Step(f"FindCoordinator v{version}: type {kind} {key}", "FindCoordinator", version, values)
    fetch = {**REQUESTS["Fetch"](Names(topic=FREE)), "ReplicaId": 1}
    yield Step("Fetch v12: as a replica", "Fetch", 12, fetch)
    for topic in ("no-create", "nothing", "may-be-made"):
        yield Step(
            f"StreamsGroupHeartbeat v0: makes {topic}", "StreamsGroupHeartbeat", 0, with_changelog(topic)
        )
    member = {"GroupId": "altered", "MemberId": "A" * 22, "SubscribedTopicNames": [FREE]}
    yield Step("AlterShareGroupOffsets v0: join", "ShareGroupHeartbeat", 1, {**member, "MemberEpoch": 0})
    for topic in (name_without("READ"), "nothing", FREE):
        values = REQUESTS["AlterShareGroupOffsets"](Names(topic=topic, group="altered"))
        yield Step(f"AlterShareGroupOffsets v0: with members {topic}", "AlterShareGroupOffsets", 0, values)
    for topic in ("no-describe", "no-delete", "nothing"):
        yield Step(f"DeleteTopics v6: by id {topic}", "DeleteTopics", 6, by_id(topic, TimeoutMs=5000))


def with_changelog(topic: str) -> Values:
    """A member of a streams group with an application that needs this internal topic, which is not there."""
    values = REQUESTS["StreamsGroupHeartbeat"](Names(topic=FREE, group=f"streams-{topic}"))
    changelog = {"Name": topic, "Partitions": 0, "ReplicationFactor": 1, "TopicConfigs": []}
    parts = [{**part, "StateChangelogTopics": [changelog]} for part in values["Topology"]["Subtopologies"]]
    return {**values, "Topology": {**values["Topology"], "Subtopologies": parts}}


def settle(side: Side) -> None:
    """Wait until the coordinators and producer ids are available. Raises WireError after a timeout."""
    give_up = time.monotonic() + 30
    for api, version, values in (
        ("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": ["g"]}),
        ("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": ["x"]}),
        ("OffsetFetch", 8, {"Groups": [{"GroupId": "g", "Topics": None}]}),
        ("InitProducerId", 4, {"TransactionalId": "x", "TransactionTimeoutMs": 60_000}),
        ("InitProducerId", 4, {"TransactionalId": None}),
    ):
        while True:
            with side.connect() as connection:
                answer = connection.ask(api, version, values)
            codes = [row["ErrorCode"] for row in (*answer.get("Groups", ()), *answer.get("Coordinators", ()))]
            if not any((*codes, answer.get("ErrorCode"))):
                break
            if time.monotonic() > give_up:
                raise WireError(f"{side.name} is not ready: {answer}")
            time.sleep(0.1)


def of_a_group() -> Iterator[Step]:
    """Settings of a group, which a Kafka before 4 has not: it answers as for any type that it does not know."""
    for label, group in (("a group", "g"), ("a group that is not allowed", "nothing")):
        resource = {"ResourceType": GROUP_TYPE, "ResourceName": group}
        values: Values = {"Resources": [{**resource, "ConfigurationKeys": None}]}
        yield Step(f"{DESCRIBES_SETTINGS} v4: of {label}", DESCRIBES_SETTINGS, 4, values)


def steps(
    version_of: Callable[[apis.Api], list[int]], is_served: Callable[[str, int], bool], *, of_kafka_3: bool
) -> Iterator[Step]:
    """Yield all served requests: reads before destructive ones."""
    for topic in (FREE, *map(name_without, OPERATIONS)):
        yield made(topic)
    served = [api for api in apis.BY_KEY.values() if api.name in REQUESTS]
    served.sort(key=lambda api: api.name in DESTRUCTIVE)
    for api in served:
        for version in version_of(api):
            for label, names in cases(api, of_kafka_3=of_kafka_3):
                yield step(label, api.name, version, names)
        if api.name == DESCRIBES_SETTINGS and of_kafka_3:
            yield from of_a_group()
        if api.name == BEFORE_EXTRA:
            yield from (added for added in extra() if is_served(added.api, added.version))


@cache
def _served(side: Side) -> dict[int, Values]:
    """Return what a broker advertises, by API key."""
    with side.connect() as connection:
        answer = connection.ask("ApiVersions", 3, {"ClientSoftwareName": "kit", "ClientSoftwareVersion": "1"})
    return {versions["ApiKey"]: versions for versions in answer["ApiKeys"]}


def serve(sides: Sequence[Side], api: str, version: int) -> bool:
    """Return whether brokers serve a version of an API."""
    for side in sides:
        served = _served(side).get(registry.key_of(api))
        if served is None or version < SERVED_SINCE.get(api, 0):
            return False
        if not served["MinVersion"] <= version <= served["MaxVersion"]:
            return False
    return True


def versions(sides: Sequence[Side], every: bool, api: apis.Api) -> list[int]:
    """The versions of an API that brokers serve: the oldest and the newest, or all."""
    common = [
        number for number in range(api.min_version, api.max_version + 1) if serve(sides, api.name, number)
    ]
    return list(common) if every else sorted({common[0], common[-1]}) if common else []


def main() -> int:
    """Compare; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.security.compare", description=__doc__)
    parser.add_argument("--version", default="4.x", help="which Kafka (default: the newest here)")
    parser.add_argument("--all-versions", action="store_true", help="not the oldest and the newest alone")
    parser.add_argument("--only", default="", metavar="API", help="ask this API alone")
    parser.add_argument(
        "--mode",
        choices=("kraft", "zookeeper"),
        help="of Kafka (default: zookeeper before Kafka 4, as Barnabas is then)",
    )
    parser.add_argument(
        "--scenario", action="append", help="refusals, or one of compat.security.scenarios; all"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the scenario `decisions`")
    examples.add_option(parser)
    options = parser.parse_args()
    by_name = scenarios(options.seed)
    of_kafka_3 = options.version.startswith("3")
    mode = options.mode or ("zookeeper" if of_kafka_3 else "kraft")
    known_rows = known_differences.of(of_kafka_3=of_kafka_3, mode=mode)
    if of_kafka_3:
        by_name = {name: steps_of for name, steps_of in by_name.items() if name not in OF_KAFKA_4}
    chosen = options.scenario or (["refusals"] if options.only else ["refusals", *by_name])
    try:
        with both(options.version, mode) as (kafka, ours):
            set_acls(kafka)
            set_acls(ours)
            settle(kafka)
            settle(ours)
            asked: list[Step] = []
            # What Kafka 4 serves is served here; what 3.9 serves only with KRaft is not.
            sides = (kafka, ours) if of_kafka_3 else (kafka,)
            if "refusals" in chosen:
                every = steps(
                    partial(versions, sides, options.all_versions),
                    partial(serve, sides),
                    of_kafka_3=of_kafka_3,
                )
                asked += (step for step in every if step.label.startswith(("create ", options.only)))
            for name in chosen:
                asked += by_name[name]() if name in by_name else ()
            differences = run(asked, kafka, ours, known_rows)
    except (KafkaError, StartError, WireError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.keep_examples:
        examples.keep(f"security-3-{mode}" if of_kafka_3 else "security", differences, known_rows)
    bad = judge(differences, known_rows, complete=not options.only and not options.scenario, together=True)
    print(f"{len(asked)} requests, {len(differences)} differences, {bad} of them not as known")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
