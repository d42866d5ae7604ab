"""The cases with the REST client of kafka-mcp, as it is published: v3 for the cluster and for records, v2 for consumers."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from harness import Cases, SkipCaseError
from kafka_mcp.api.api_client_kafka import KafkaApi

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from names import CASES, COUNT, SECONDS_MAX

cases = Cases(names=CASES)


def client() -> KafkaApi:
    return KafkaApi(cases.bootstrap)


def made(name: str, partitions: int = 1) -> tuple[KafkaApi, str]:
    """Return a client, and a topic that it has created."""
    api, topic = client(), cases.topic(name)
    created = api.create_topic(topic, partitions_count=partitions, configs={"retention.ms": "600000"})
    assert (created["topic_name"], created["partitions_count"]) == (topic, partitions), created
    return api, topic


def refusal(call: Any, *arguments: Any) -> str:
    """Return the text of an error."""
    try:
        answer = call(*arguments)
    except Exception as error:
        return str(error)
    raise AssertionError(answer)


@cases.case("cluster")
def _() -> None:
    api = client()
    (cluster,) = api.list_clusters()["data"]
    assert api.get_cluster() == cluster
    brokers = api.list_brokers()["data"]
    assert api.get_broker(brokers[0]["broker_id"]) == brokers[0]
    names = [row["name"] for row in api.list_broker_configs(brokers[0]["broker_id"])["data"]]
    assert "log.retention.hours" in names


@cases.case("topics")
def _() -> None:
    api, topic = made("topics", 2)
    assert topic in [row["topic_name"] for row in api.list_topics()["data"]]
    assert api.get_topic(topic)["partitions_count"] == 2
    assert [row["partition_id"] for row in api.list_partitions(topic)["data"]] == [0, 1]
    assert api.get_partition(topic, 1)["partition_id"] == 1
    assert "40002" in refusal(api.create_topic, topic)
    api.update_topic_config(topic, "retention.ms", "700000")
    api.update_topic_configs(topic, {"max.message.bytes": "100000"})
    values = {row["name"]: row["value"] for row in api.list_topic_configs(topic)["data"]}
    assert (values["retention.ms"], values["max.message.bytes"]) == ("700000", "100000")
    api.delete_topic(topic)
    assert "40403" in refusal(api.get_topic, topic)


@cases.case("produce")
def _() -> None:
    api, topic = made("produce")
    for number in range(COUNT):
        answer = api.produce_record(topic, {"number": number}, key=f"key {number}", key_format="STRING")
        assert (answer["error_code"], answer["offset"], answer["topic_name"]) == (200, number, topic), answer
    answer = api.produce_record(topic, "not base64!", value_format="BINARY")
    assert answer["error_code"] == 400, answer


@cases.case("consume")
def _() -> None:
    api, topic = made("consume")
    for number in range(COUNT):
        api.produce_record(topic, {"number": number})
    group = cases.topic("group")
    instance = api.create_consumer(group, "mine")["instance_id"]
    assert "40902" in refusal(api.create_consumer, group, "mine")
    api.subscribe_consumer(group, instance, [topic])
    records: list[Any] = []
    ends_at = time.monotonic() + SECONDS_MAX
    while len(records) < COUNT and time.monotonic() < ends_at:
        records += api.consume_records(group, instance)
    assert [record["value"] for record in records] == [{"number": number} for number in range(COUNT)]
    assert [record["offset"] for record in records] == [*range(COUNT)]
    api.commit_offsets(group, instance)
    assert group in [row["consumer_group_id"] for row in api.list_consumer_groups()["data"]]
    assert api.get_consumer_group(group)["state"] == "STABLE"
    assert len(api.list_consumers(group)["data"]) == 1
    assert (api.get_group_lag_summary(group)["total_lag"], len(api.get_group_lags(group)["data"])) == (0, 1)
    api.delete_consumer(group, instance)
    assert "40403" in refusal(api.consume_records, group, instance)


@cases.case("acls")
def _() -> None:
    api = client()
    fields = ("TOPIC", cases.topic("acls"), "LITERAL", "User:ann", "*", "READ", "ALLOW")
    try:
        api.create_acl(*fields)
    except Exception as error:
        if "SECURITY_DISABLED" in str(error):
            raise SkipCaseError("the cluster has no authorizer") from None
        raise
    (row,) = api.list_acls(resource_type="TOPIC", resource_name=fields[1])["data"]
    assert (row["principal"], row["operation"]) == ("User:ann", "READ")
    assert len(api.delete_acls(*fields)["data"]) == 1


cases.main()
