"""Answers of the REST API: statuses, codes, fields and defaults of Confluent's REST proxy, v2 and v3.

Fields and codes are from https://github.com/confluentinc/kafka-rest (api/v3/openapi.yaml, Errors, exception mappers) and
https://docs.confluent.io/platform/current/kafka-rest/api.html.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any
from urllib.parse import urlsplit

from barnabas.client.settings import ClientSettings
from barnabas.testing import start_thread
from tests.support.hosted import QUICK_GROUPS
from tests.support.rest import AVRO_V2, BINARY_V2, JSON_V2, V2, records_of, rest, world

PRODUCE, KEYS = {"records": [{"value": 1}]}, {"records": [{"key": 1, "value": 1}]}
ERRORS: tuple[tuple[str, str, Any, dict[str, str], int, int], ...] = (
    # method, path ($ is the cluster's), body, headers, status, error_code
    ("GET", "/nothing", None, {}, 404, 404),
    ("DELETE", "/topics", None, {}, 405, 405),
    ("GET", "/topics", None, {"Accept": "text/html"}, 406, 406),
    ("GET", "/topics/none", None, {}, 404, 40401),
    ("GET", "/topics/none/partitions", None, {}, 404, 40401),
    ("GET", "/topics/t/partitions/9", None, {}, 404, 40402),
    ("GET", "/topics/t/partitions/9/offsets", None, {}, 404, 40402),
    ("GET", "/topics/t/partitions/x", None, {}, 404, 404),
    ("POST", "/topics/t", PRODUCE, {"Content-Type": "text/plain"}, 415, 415),
    ("POST", "/topics/t", PRODUCE, {"Content-Type": V2}, 415, 415),
    ("POST", "/topics/t", b"", {"Content-Type": JSON_V2}, 422, 422),
    ("POST", "/topics/t", {"records": []}, {"Content-Type": JSON_V2}, 422, 422),
    ("POST", "/topics/t", b"{", {"Content-Type": JSON_V2}, 400, 400),
    ("POST", "/topics/t", {"records": [{"value": 1, "more": 2}]}, {"Content-Type": JSON_V2}, 400, 400),
    ("POST", "/topics/t", {"records": [{"value": "!"}]}, {"Content-Type": BINARY_V2}, 400, 400),
    ("POST", "/topics/t/partitions/9", PRODUCE, {"Content-Type": JSON_V2}, 404, 40402),
    ("POST", "/topics/t", {**KEYS, "value_schema": '"int"'}, {"Content-Type": AVRO_V2}, 422, 42201),
    ("POST", "/topics/t", PRODUCE, {"Content-Type": AVRO_V2}, 422, 42202),
    ("POST", "/topics/t", {**PRODUCE, "value_schema": '"what"'}, {"Content-Type": AVRO_V2}, 422, 42205),
    ("POST", "/topics/t", {**PRODUCE, "value_schema_id": 99}, {"Content-Type": AVRO_V2}, 422, 42207),
    ("POST", "/consumers/g", {"format": "xml"}, {}, 422, 422),
    ("POST", "/consumers/g", {"auto.offset.reset": "first"}, {}, 422, 42204),
    ("POST", "/consumers/g", {"fetch.min.bytes": 10**9}, {}, 422, 40001),
    ("GET", "/consumers/g/instances/none/records", None, {}, 404, 40403),
    ("DELETE", "/consumers/g/instances/none", None, {}, 404, 40403),
    ("GET", "/v3/clusters/other", None, {}, 404, 404),
    ("GET", "$/brokers/9", None, {}, 404, 404),
    ("GET", "$/topics/none", None, {}, 404, 40403),
    ("DELETE", "$/topics/none", None, {}, 404, 40403),
    ("POST", "$/topics", {"topic_name": "t"}, {}, 400, 40002),
    ("POST", "$/topics", {"topic_name": "u", "replication_factor": 9}, {}, 400, 40002),
    ("POST", "$/topics", b"", {}, 422, 42206),
    ("POST", "$/topics", {"topic_name": " "}, {}, 422, 42206),
    ("POST", "$/topics", {"topic_name": "u"}, {"Content-Type": "text/plain"}, 415, 415),
    ("PATCH", "$/topics/t", {"partitions_count": 1}, {}, 400, 40002),
    ("GET", "$/topics/t/partitions/9", None, {}, 404, 404),
    ("GET", "$/topics/t/partitions/0/reassignment", None, {}, 404, 404),
    ("GET", "$/topics/t/partitions/0/replicas/9", None, {}, 404, 404),
    ("GET", "$/topics/t/configs/none", None, {}, 404, 404),
    ("PUT", "$/topics/t/configs/retention.ms", {"value": "x"}, {}, 400, 40002),
    ("POST", "$/topics/t/configs:alter", {"data": [{"name": "retention.ms", "operation": "ADD"}]}, {}, 400, 400),
    ("GET", "$/consumer-groups/none", None, {}, 404, 404),
    ("GET", "$/consumer-groups/none/lags", None, {}, 404, 404),
    ("GET", "$/acls", None, {}, 400, 40002),
    ("DELETE", "$/acls", None, {}, 400, 400),
    ("POST", "$/acls", {"resource_type": "TOPIC"}, {}, 422, 422),
    ("POST", "$/topics/t/records", b"", {}, 422, 42206),
    ("POST", "$/topics/t/records:batch", b"", {}, 422, 42208),
    ("POST", "$/topics/t/records:batch", {"entries": []}, {}, 422, 42208),
    ("POST", "$/topics/t/records:batch", {"entries": [{"id": "1"}, {"id": "1"}]}, {}, 422, 42208),
    ("POST", "$/topics/t/records:batch", {"entries": [{"id": "1"}] * 101}, {}, 422, 42208),
)  # fmt: skip


async def test_errors_have_the_statuses_and_codes_of_the_original() -> None:
    wrong = []
    async with world() as (server, cluster, _):
        for method, path, body, headers, status, code in ERRORS:
            answer = await server.ask(method, path.replace("$", cluster), body, **headers)
            if answer.code != (status, code) or set(answer.json) != {"error_code", "message"}:
                wrong.append((method, path, body, answer.content))
            expected = "application/json" if path.startswith(("$", "/v3")) else V2
            assert answer.headers["content-type"] == expected
    assert not wrong


SHAPES: tuple[tuple[str, str, set[str]], ...] = (
    # path, kind, fields beside kind and metadata
    ("$", "KafkaCluster", {
        "cluster_id", "controller", "acls", "brokers", "broker_configs", "consumer_groups", "topics",
        "partition_reassignments"}),
    ("$/brokers", "KafkaBroker", {"cluster_id", "broker_id", "host", "port", "rack", "configs", "partition_replicas"}),
    ("$/brokers/1/configs", "KafkaBrokerConfig", {
        "cluster_id", "broker_id", "name", "value", "is_default", "is_read_only", "is_sensitive", "source", "synonyms"}),
    ("$/topics/t/configs", "KafkaTopicConfig", {
        "cluster_id", "topic_name", "name", "value", "is_default", "is_read_only", "is_sensitive", "source", "synonyms"}),
    ("$/topics/t", "KafkaTopic", {
        "cluster_id", "topic_name", "is_internal", "replication_factor", "partitions_count", "partitions", "configs",
        "partition_reassignments", "authorized_operations"}),
    ("$/topics/t/partitions", "KafkaPartition", {
        "cluster_id", "topic_name", "partition_id", "leader", "replicas", "reassignment"}),
    ("$/topics/t/partitions/0/offset", "KafkaPartitionWithOffsets", {
        "cluster_id", "topic_name", "partition_id", "earliest_offset", "latest_offset"}),
    ("$/topics/t/partitions/0/replicas", "KafkaReplica", {
        "cluster_id", "topic_name", "partition_id", "broker_id", "is_leader", "is_in_sync", "broker"}),
    ("$/brokers/1/partition-replicas", "KafkaReplica", {
        "cluster_id", "topic_name", "partition_id", "broker_id", "is_leader", "is_in_sync", "broker"}),
    ("$/consumer-groups", "KafkaConsumerGroup", {
        "cluster_id", "consumer_group_id", "is_simple", "partition_assignor", "state", "type", "is_mixed_consumer_group",
        "coordinator", "consumers", "lag_summary"}),
    ("$/consumer-groups/g/consumers", "KafkaConsumer", {
        "cluster_id", "consumer_group_id", "consumer_id", "instance_id", "client_id", "assignments"}),
    ("$/consumer-groups/g/lags", "KafkaConsumerLag", {
        "cluster_id", "consumer_group_id", "topic_name", "partition_id", "consumer_id", "instance_id", "client_id",
        "current_offset", "log_end_offset", "lag"}),
    ("$/consumer-groups/g/lag-summary", "KafkaConsumerGroupLagSummary", {
        "cluster_id", "consumer_group_id", "max_lag_consumer_id", "max_lag_instance_id", "max_lag_client_id",
        "max_lag_topic_name", "max_lag_partition_id", "max_lag", "total_lag", "max_lag_consumer", "max_lag_partition"}),
)  # fmt: skip


async def test_v3_resources_have_the_fields_of_the_original() -> None:
    async with world() as (server, cluster, _):
        await server.ask(
            "POST", "/topics/t", {"records": [{"value": 1, "partition": 0}]}, content_type=JSON_V2
        )
        await server.ask(
            "POST", "/consumers/g", {"name": "i", "format": "json", "auto.offset.reset": "earliest"}
        )
        await server.ask("POST", "/consumers/g/instances/i/subscription", {"topics": ["t"]})
        await records_of(server, "/consumers/g/instances/i", 1)
        assert (await server.ask("POST", "/consumers/g/instances/i/offsets")).json == []
        for path, kind, fields in SHAPES:
            value = (await server.ask("GET", path.replace("$", cluster))).json
            if "data" in value:
                assert value["kind"] == f"{kind}List"
                assert value["metadata"] == {"self": server.url + path.replace("$", cluster), "next": None}
                assert value["data"], path
                value = value["data"][0]
            assert value["kind"] == kind
            assert value.keys() == {"kind", "metadata", *fields}, path
            own = urlsplit(value["metadata"]["self"]).path
            assert (await server.ask("GET", own)).json["metadata"] == value["metadata"], own
            assert value["metadata"]["resource_name"].startswith(f"crn:///kafka={cluster.rpartition('/')[2]}")
        group = (await server.ask("GET", f"{cluster}/consumer-groups/g")).json
        assert (group["state"], group["type"], group["is_simple"]) == ("STABLE", "CLASSIC", False)
        summary = (await server.ask("GET", f"{cluster}/consumer-groups/g/lag-summary")).json
        assert (summary["max_lag"], summary["total_lag"]) == (0, 0)
        (member,) = (await server.ask("GET", f"{cluster}/consumer-groups/g/consumers")).json["data"]
        assigned = (await server.ask("GET", urlsplit(member["assignments"]["related"]).path)).json["data"]
        assert [row["partition_id"] for row in assigned] == [0, 1]


async def test_topics_are_created_changed_and_deleted_by_v3() -> None:
    async with world() as (server, cluster, _):
        topics = f"{cluster}/topics"
        body = {
            "topic_name": "n",
            "partitions_count": 2,
            "configs": [{"name": "retention.ms", "value": "5000"}],
        }
        checked = await server.ask("POST", topics, {**body, "validate_only": True})
        assert (checked.status, checked.json["partitions_count"]) == (200, 2)
        created = await server.ask("POST", topics, body)
        assert (created.status, created.headers["location"]) == (201, f"{server.url}{topics}/n")
        assert (created.json["replication_factor"], created.json["partitions_count"]) == (1, 2)
        assert (await server.ask("PATCH", f"{topics}/n", {"partitions_count": 3})).json[
            "partitions_count"
        ] == 3
        setting = f"{topics}/n/configs/retention.ms"
        for act, expected in (
            (None, ("5000", False, "DYNAMIC_TOPIC_CONFIG")),
            (("PUT", setting, {"value": "6000"}), ("6000", False, "DYNAMIC_TOPIC_CONFIG")),
            (("POST", f"{topics}/n/configs:alter", {"data": [{"name": "retention.ms", "value": "7000"}]}),
             ("7000", False, "DYNAMIC_TOPIC_CONFIG")),
            (("POST", f"{topics}/-/configs:alter",
              {"data": [{"topic_name": "n", "configs": [{"name": "retention.ms", "value": "8000"}]}]}),
             ("8000", False, "DYNAMIC_TOPIC_CONFIG")),
            (("DELETE", setting, None), ("604800000", True, "DEFAULT_CONFIG")),
        ):  # fmt: skip
            if act is not None:
                assert (await server.ask(*act)).status == 204
            value = (await server.ask("GET", setting)).json
            assert (value["value"], value["is_default"], value["source"]) == expected
        failed = await server.ask(
            "POST",
            f"{topics}/-/configs:alter",
            {"data": [{"topic_name": "none", "configs": [{"name": "x", "value": "y"}]}]},
        )
        assert (failed.status, failed.json["failures"][0]["topic_name"]) == (207, "none")
        assert (
            await server.ask("PUT", f"{cluster}/broker-configs/log.cleaner.threads", {"value": "2"})
        ).status == 204
        described = (await server.ask("GET", f"{cluster}/broker-configs")).json["data"]
        assert ("BROKER", "log.cleaner.threads", "2") in {
            (row["config_type"], row["name"], row["value"]) for row in described
        }
        assert (await server.ask("DELETE", f"{topics}/n")).status == 204
        assert "n" not in (await server.ask("GET", "/topics")).json


async def test_without_a_registry_schemas_are_refused() -> None:
    async with world(has_registry=False) as (server, cluster, _):
        answers = [
            await server.ask("POST", "/topics/t", {**PRODUCE, "value_schema_id": 1}, content_type=AVRO_V2),
            await server.ask("POST", "/consumers/g", {"format": "avro"}),
        ]
        assert [answer.code for answer in answers] == [(422, 42207)] * 2
        streamed = await server.ask("POST", f"{cluster}/topics/t/records", {"value": {"data": 1}})
        assert streamed.json["error_code"] == 42207


async def test_requests_of_foreign_pages_are_refused() -> None:
    async with world(has_registry=False) as (server, _, _):
        for headers in (
            {"Origin": "http://evil.example"},
            {"Host": "evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            assert (await server.ask("GET", "/topics", **headers)).code == (403, 403)


async def test_openapi_document_lists_every_route() -> None:
    async with world(has_registry=False) as (server, _, _):
        document = (await server.ask("GET", "/openapi.json")).json
        operations = [operation for path in document["paths"].values() for operation in path.values()]
        assert len({operation["operationId"] for operation in operations}) == len(operations) > 60
        assert document["servers"] == [{"url": server.url}]
        page = await server.ask("GET", "/openapi")
        assert all(path.encode() in page.content for path in document["paths"])


async def test_settings_of_a_user_are_made_of_the_login() -> None:
    asked: list[tuple[str, str]] = []

    def settings_of(user: str, password: str) -> ClientSettings:
        asked.append((user, password))
        return ClientSettings()

    broker = start_thread(settings=QUICK_GROUPS)
    try:
        async with rest(broker.bootstrap, settings_of=settings_of) as server:
            assert (await server.ask("GET", "/topics")).code == (401, 40101)
            login = {"Authorization": f"Basic {b64encode(b'ann:secret').decode()}"}
            other = {"Authorization": f"Basic {b64encode(b'bob:x').decode()}"}
            assert [(await server.ask("GET", "/topics", **login)).status for _ in range(2)] == [200, 200]
            assert asked == [("ann", "secret")], "one client serves both requests"
            assert (await server.ask("POST", "/consumers/g", {"name": "i"}, **login)).status == 200
            assert (await server.ask("GET", "/consumers/g/instances/i/records", **other)).code == (404, 40403)
    finally:
        broker.close()
