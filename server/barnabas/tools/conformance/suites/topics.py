"""Topics and settings from their making to their end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas.tools.conformance.acls import ANY, TOPIC, Acl
from barnabas.tools.conformance.batches import batch
from barnabas.tools.conformance.cases import Case, NotApplicableError
from barnabas.tools.conformance.suites.acting import appended, case
from barnabas.tools.conformance.trial import Trial
from barnabas.wire.generated.errors import ErrorCode

GROUP = 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def cases() -> Iterator[Case]:
    """Return the cases of this module."""
    yield case(
        "topics/made, grown and removed",
        "A topic is there once it is made, grows, and is gone once it is removed.",
        "KIP-4, KIP-195",
        _life,
        "CreateTopics",
        "CreatePartitions",
        "DeleteTopics",
        Metadata=4,
    )
    yield case(
        "topics/removed by id",
        "A topic is removed by its id; one that is made again has another.",
        "KIP-516",
        _by_id,
        "CreateTopics",
        DeleteTopics=6,
        Metadata=12,
    )
    yield case(
        "topics/alike",
        "Names that differ only in dots and underscores exclude each other.",
        "Apache Kafka 0.9",
        _alike,
        "CreateTopics",
    )
    yield case(
        "settings/of a topic",
        "A setting that is made with a topic, changed, and removed is described so.",
        "KIP-133, KIP-339",
        _settings,
        "CreateTopics",
        "DescribeConfigs",
        "IncrementalAlterConfigs",
    )
    yield case(
        "settings/lists",
        "A list gets values appended and subtracted.",
        "KIP-339",
        _lists,
        "CreateTopics",
        "DescribeConfigs",
        "IncrementalAlterConfigs",
    )
    yield case(
        "settings/replaced",
        "AlterConfigs replaces all settings of a topic.",
        "KIP-133",
        _replaced,
        "CreateTopics",
        "DescribeConfigs",
        "AlterConfigs",
    )
    yield case(
        "users/SCRAM",
        "A credential is made, described without its secret, and removed.",
        "KIP-554",
        _scram,
        "AlterUserScramCredentials",
        "DescribeUserScramCredentials",
    )
    yield case(
        "quotas/of a user",
        "A quota is set, described and removed.",
        "KIP-546",
        _quota,
        "AlterClientQuotas",
        "DescribeClientQuotas",
    )
    yield case(
        "acls/of a topic",
        "An ACL is made, described and removed, where the broker has an authorizer.",
        "KIP-140",
        _acl,
        CreateAcls=2,
        DescribeAcls=2,
        DeleteAcls=2,
    )


async def _described(trial: Trial, name: str) -> Any:
    asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    return (await trial.ask("Metadata", asked)).topics[0]


async def _until(trial: Trial, name: str, holds: Any, what: str) -> None:
    asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    await trial.until("Metadata", asked, lambda answer: holds(answer.topics[0]), what)


async def _life(trial: Trial) -> None:
    name, _ = await trial.new_topic(2)
    creation = {
        "topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}],
        "timeout_ms": 20_000,
    }
    await trial.expecting("CreateTopics", creation, {"topics.0.error_code": "TOPIC_ALREADY_EXISTS"})
    grown = {"topics": [{"name": name, "count": 4, "assignments": None}], "timeout_ms": 20_000}
    await trial.expecting("CreatePartitions", grown, {"results.0.error_code": 0})
    await _until(trial, name, lambda topic: len(topic.partitions) == 4, "four partitions")
    gone = {"topics": [{"name": name}], "topic_names": [name], "timeout_ms": 20_000}
    await trial.expecting("DeleteTopics", gone, {"responses.0.error_code": 0, "responses.0.name": name})
    await _until(trial, name, lambda topic: topic.error_code == UNKNOWN, "the topic is gone")
    await trial.expecting("DeleteTopics", gone, {"responses.0.error_code": "UNKNOWN_TOPIC_OR_PARTITION"})


async def _by_id(trial: Trial) -> None:
    name, topic_id = await trial.new_topic()
    trial.check(any(topic_id), "the topic has no id")
    gone = {"topics": [{"name": None, "topic_id": topic_id}], "timeout_ms": 20_000}
    await trial.expecting(
        "DeleteTopics",
        gone,
        {"responses.0.error_code": 0, "responses.0.name": name, "responses.0.topic_id": topic_id},
    )
    await _until(trial, name, lambda topic: topic.error_code == UNKNOWN, "the topic is gone")
    unknown = "UNKNOWN_TOPIC_ID" if trial.is_kafka_4 else {"UNKNOWN_TOPIC_ID", "UNKNOWN_TOPIC_OR_PARTITION"}
    await trial.expecting("DeleteTopics", gone, {"responses.0.error_code": unknown})
    creation = {
        "topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}],
        "timeout_ms": 20_000,
    }
    # A controller on ZooKeeper has the name until the last replica is gone.
    await trial.until(
        "CreateTopics", creation, lambda answer: not answer.topics[0].error_code, "the name is free"
    )
    await _until(
        trial,
        name,
        lambda topic: not topic.error_code and topic.topic_id not in (topic_id, bytes(16)),
        "a new id",
    )


async def _alike(trial: Trial) -> None:
    base = trial.fresh("alike")
    for name, expected in (
        (f"{base}.x", {"topics.0.error_code": 0}),
        (f"{base}_x", {"topics.0.error_code": "INVALID_TOPIC_EXCEPTION"}),
    ):
        creation = {
            "topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}],
            "timeout_ms": 20_000,
        }
        await trial.expecting("CreateTopics", creation, expected)


def _asked(name: str, *keys: str) -> dict[str, Any]:
    return {"resources": [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": list(keys)}]}


async def _is(trial: Trial, name: str, key: str, value: str, source: int) -> None:
    def holds(answer: Any) -> bool:
        return [(config.value, config.config_source) for config in answer.results[0].configs] == [
            (value, source)
        ]

    await trial.until("DescribeConfigs", _asked(name, key), holds, f"{key} is {value} with source {source}")


async def _alter(trial: Trial, name: str, *configs: tuple[str, str | None, int]) -> None:
    entries = [
        {"name": key, "value": value, "config_operation": operation} for key, value, operation in configs
    ]
    asked = {"resources": [{"resource_type": TOPIC, "resource_name": name, "configs": entries}]}
    await trial.expecting(
        "IncrementalAlterConfigs", asked, {"responses.0.error_code": 0, "responses.0.resource_name": name}
    )


async def _settings(trial: Trial) -> None:
    name, _ = await trial.new_topic(retention_ms="100000")
    await _is(trial, name, "retention.ms", "100000", 1)
    await _alter(trial, name, ("retention.ms", "200000", SET))
    await _is(trial, name, "retention.ms", "200000", 1)
    await _alter(trial, name, ("retention.ms", None, DELETE), ("segment.ms", "300000", SET))
    await _is(trial, name, "segment.ms", "300000", 1)

    def is_default(answer: Any) -> bool:
        return bool(answer.results[0].configs[0].config_source in (4, 5))

    await trial.until(
        "DescribeConfigs", _asked(name, "retention.ms"), is_default, "retention.ms is the default"
    )


async def _lists(trial: Trial) -> None:
    name, _ = await trial.new_topic(cleanup_policy="delete")
    await _alter(trial, name, ("cleanup.policy", "compact", APPEND))
    await _is(trial, name, "cleanup.policy", "delete,compact", 1)
    await _alter(trial, name, ("cleanup.policy", "delete", SUBTRACT))
    await _is(trial, name, "cleanup.policy", "compact", 1)


async def _replaced(trial: Trial) -> None:
    name, _ = await trial.new_topic(retention_ms="100000")
    entries = [{"name": "segment.ms", "value": "300000"}]
    asked = {"resources": [{"resource_type": TOPIC, "resource_name": name, "configs": entries}]}
    await trial.expecting("AlterConfigs", asked, {"responses.0.error_code": 0})
    await _is(trial, name, "segment.ms", "300000", 1)
    answer = await trial.ask("DescribeConfigs", _asked(name, "retention.ms"))
    trial.expect(answer, {"results.0.configs.0.config_source": {4, 5}})


async def _scram(trial: Trial) -> None:
    user = trial.fresh("user")
    credential = {
        "name": user,
        "mechanism": 2,
        "iterations": 8192,
        "salt": b"salty",
        "salted_password": b"p" * 64,
    }
    await trial.expecting(
        "AlterUserScramCredentials",
        {"upsertions": [credential]},
        {"results.0.error_code": 0, "results.0.user": user},
    )
    asked = {"users": [{"name": user}]}

    def holds(answer: Any) -> bool:
        result = answer.results[0]
        return not result.error_code and [
            (each.mechanism, each.iterations) for each in result.credential_infos
        ] == [(2, 8192)]

    await trial.until("DescribeUserScramCredentials", asked, holds, "the credential is described")
    gone = {"deletions": [{"name": user, "mechanism": 2}]}
    await trial.expecting("AlterUserScramCredentials", gone, {"results.0.error_code": 0})
    await trial.until(
        "DescribeUserScramCredentials",
        asked,
        lambda answer: answer.results[0].error_code == 91,
        "the credential is gone",
    )


async def _quota(trial: Trial) -> None:
    user = trial.fresh("user")
    entity = [{"entity_type": "user", "entity_name": user}]
    asked = {"components": [{"entity_type": "user", "match_type": 0, "match": user}], "strict": True}

    def altering(**change: Any) -> dict[str, Any]:
        return {"entries": [{"entity": entity, "ops": [{"key": "consumer_byte_rate"} | change]}]}

    await trial.expecting("AlterClientQuotas", altering(value=12345.0), {"entries.0.error_code": 0})

    def holds(answer: Any) -> bool:
        return [(each.key, each.value) for entry in answer.entries or [] for each in entry.values] == [
            ("consumer_byte_rate", 12345.0)
        ]

    await trial.until("DescribeClientQuotas", asked, holds, "the quota is described")
    await trial.expecting("AlterClientQuotas", altering(remove=True), {"entries.0.error_code": 0})
    await trial.until("DescribeClientQuotas", asked, lambda answer: not answer.entries, "the quota is gone")


async def _acl(trial: Trial) -> None:
    acl = Acl(TOPIC, trial.fresh("acl"))
    result = (await trial.ask("CreateAcls", {"creations": [acl.creation()]})).results[0]
    if result.error_code == ErrorCode.SECURITY_DISABLED:
        raise NotApplicableError("the broker has no authorizer")
    trial.expect(result, {"error_code": 0})
    filtered = acl.filter() | {
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    await trial.until(
        "DescribeAcls", filtered, lambda answer: len(answer.resources) == 1, "the ACL is described"
    )
    await trial.expecting("DeleteAcls", {"filters": [filtered]}, {"filter_results.0.matching_acls.len": 1})
    await trial.until("DescribeAcls", filtered, lambda answer: not answer.resources, "the ACL is gone")


async def fill(trial: Trial, topic: tuple[str, bytes], count: int) -> None:
    """Append this many batches of one record."""
    for number in range(count):
        await appended(trial, topic, batch(b"%d" % number))
