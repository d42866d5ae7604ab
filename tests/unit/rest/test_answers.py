"""Answers of the REST API: statuses, codes, fields and defaults of Confluent's REST proxy, v2 and v3.

Fields and codes are from https://github.com/confluentinc/kafka-rest (api/v3/openapi.yaml, Errors, exception mappers) and
https://docs.confluent.io/platform/current/kafka-rest/api.html.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import trio

from barnabas.client.settings import ClientSettings
from barnabas.registry.client_settings import RegistryAt
from barnabas.testing import KafkaBroker, start_thread
from tests.support.hosted import QUICK_GROUPS
from tests.support.registries import registry
from tests.support.rest import Rest, rest

JSON_V2, BINARY_V2 = "application/vnd.kafka.json.v2+json", "application/vnd.kafka.binary.v2+json"
AVRO_V2, PROTOBUF_V2 = "application/vnd.kafka.avro.v2+json", "application/vnd.kafka.protobuf.v2+json"
JSONSCHEMA_V2, V2 = "application/vnd.kafka.jsonschema.v2+json", "application/vnd.kafka.v2+json"
USER = '{"type":"record","name":"User","fields":[{"name":"name","type":"string"}]}'
SCHEMAS = {
    AVRO_V2: (USER, {"name": "ann"}),
    PROTOBUF_V2: ('syntax = "proto3"; message M { string name = 1; }', {"name": "ann"}),
    JSONSCHEMA_V2: ('{"type":"object","properties":{"name":{"type":"string"}}}', {"name": "ann", "x": 1.5}),
}
HI = b64encode(b"hi").decode()


@asynccontextmanager
async def world(*, has_registry: bool = True) -> AsyncIterator[tuple[Rest, str, KafkaBroker]]:
    """A broker with topic `t` of two partitions, its registry and its REST API, whose cluster's path is second."""
    broker = start_thread(settings=QUICK_GROUPS, seeds={"topics": {"t": {"partitions": 2}}})
    try:
        async with AsyncExitStack() as stack:
            at = None
            if has_registry:
                at = RegistryAt((await stack.enter_async_context(registry(broker.bootstrap))).url)
            server = await stack.enter_async_context(rest(broker.bootstrap, at))
            yield server, await server.cluster(), broker
    finally:
        broker.close()


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


SELF = {"self": str, "resource_name": str}
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


async def records_of(server: Rest, instance: str, count: int, accept: str = "*/*") -> list[Any]:
    """Read until there are so many records."""
    records: list[Any] = []
    with trio.fail_after(60):
        while len(records) < count:
            answer = await server.ask("GET", f"{instance}/records?timeout=500", Accept=accept)
            assert answer.status == 200, answer
            records += answer.json
    return records


async def test_records_of_each_format_are_read_as_they_were_produced() -> None:
    rows: dict[str, list[dict[str, Any]]] = {
        JSON_V2: [
            {"key": "k", "value": {"a": [1, 2.5, None]}}, {"key": None, "value": "é😀"}, {"key": 1, "value": None},
        ],
        BINARY_V2: [{"key": HI, "value": HI}, {"key": None, "value": ""}, {"key": HI, "value": None}],
        **{name: [{"key": None, "value": value}] * 2 for name, (_, value) in SCHEMAS.items()},
    }  # fmt: skip
    async with world() as (server, cluster, _):
        for content_type, records in rows.items():
            name = content_type.partition("kafka.")[2].partition(".")[0]
            body: dict[str, Any] = {"records": records}
            if content_type in SCHEMAS:
                body["value_schema"] = SCHEMAS[content_type][0]
            answer = await server.ask("POST", f"/topics/{name}", body, content_type=content_type)
            assert answer.status == 200, answer
            assert [offset["offset"] for offset in answer.json["offsets"]] == [*range(len(records))]
            assert {(offset["error_code"], offset["error"]) for offset in answer.json["offsets"]} == {
                (None, None)
            }
            if content_type in SCHEMAS:
                again = {"records": records, "value_schema_id": answer.json["value_schema_id"]}
                second = await server.ask(
                    "POST", f"/topics/{name}/partitions/0", again, content_type=content_type
                )
                assert second.json["value_schema_id"] == answer.json["value_schema_id"]
                wrong = {**again, "records": [{"value": 5}]}
                assert (
                    await server.ask("POST", f"/topics/{name}", wrong, content_type=content_type)
                ).code == (400, 400)
                by_v3 = {"value": {"data": records[0]["value"]}}
                result = (await server.ask("POST", f"{cluster}/topics/{name}/records", by_v3)).json
                assert (result["value"]["type"], result["value"]["subject"]) == (
                    name.upper(),
                    f"{name}-value",
                )
                records = records * 2 + records[:1]
            created = await server.ask(
                "POST", "/consumers/f", {"name": name, "format": name, "auto.offset.reset": "earliest"}
            )
            instance = urlsplit(created.json["base_uri"]).path
            await server.ask("POST", f"{instance}/subscription", {"topics": [name]})
            read = await records_of(server, instance, len(records), content_type)
            assert read == [
                {"topic": name, "partition": 0, "offset": offset, **record}
                for offset, record in enumerate(records)
            ]
            assert (await server.ask("GET", f"{instance}/records", Accept=BINARY_V2)).status == (
                200 if name == "binary" else 406
            )
            assert (await server.ask("DELETE", instance)).status == 204
        stateless = await server.ask(
            "GET", "/topics/json/partitions/0/messages?offset=1&count=5", Accept=JSON_V2
        )
        assert [row["offset"] for row in stateless.json] == [1, 2]


async def test_consumers_seek_commit_and_share_as_in_v2() -> None:
    async with world() as (server, _, _):
        records = {"records": [{"value": number, "partition": 0} for number in range(5)]}
        await server.ask("POST", "/topics/t", records, content_type=JSON_V2)
        settings = {"format": "json", "auto.offset.reset": "earliest", "auto.commit.enable": "false"}
        base = urlsplit(
            (await server.ask("POST", "/consumers/g", {**settings, "name": "i"})).json["base_uri"]
        ).path
        assert (await server.ask("POST", "/consumers/g", {**settings, "name": "i"})).code == (409, 40902)
        zero = {"topic": "t", "partition": 0}
        assert (await server.ask("POST", f"{base}/positions/end", {"partitions": [zero]})).code == (
            409,
            40903,
        )
        assert (await server.ask("POST", f"{base}/subscription", {"topic_pattern": "t|none"})).status == 204
        assert (await server.ask("POST", f"{base}/assignments", {"partitions": [zero]})).code == (409, 40903)
        assert [row["value"] for row in await records_of(server, base, 5)] == [0, 1, 2, 3, 4]
        assert (await server.ask("GET", f"{base}/subscription")).json == {"topics": ["t"]}
        assert (await server.ask("GET", f"{base}/offsets", {"partitions": [zero]})).json == {"offsets": []}
        for body, committed in (
            ({"offsets": [{**zero, "offset": 2, "metadata": "m"}]}, {"offset": 3, "metadata": "m"}),
            (None, {"offset": 5, "metadata": ""}),
        ):
            assert (await server.ask("POST", f"{base}/offsets", body)).json == []
            assert (await server.ask("GET", f"{base}/offsets", {"partitions": [zero]})).json == {
                "offsets": [{**zero, **committed}]
            }
        for path, body, expected in (
            ("positions", {"offsets": [{**zero, "offset": 3}]}, [3, 4]),
            ("positions/beginning", {"partitions": [zero]}, [0, 1, 2, 3, 4]),
            ("positions", {"timestamps": [{**zero, "timestamp": "2001-01-01T00:00:00Z"}]}, [0, 1, 2, 3, 4]),
        ):
            assert (await server.ask("POST", f"{base}/{path}", body)).status == 204
            assert [row["value"] for row in await records_of(server, base, len(expected))] == expected
        assert (await server.ask("POST", f"{base}/positions/end", {"partitions": [zero]})).status == 204
        assert (await server.ask("GET", f"{base}/records?timeout=50")).json == []
        assert (await server.ask("POST", f"{base}/positions/beginning", {"partitions": [zero]})).status == 204
        few = await server.ask("GET", f"{base}/records?max_bytes=3")
        assert [row["value"] for row in few.json] == [0, 1], "one byte each, and less than three"
        assert (await server.ask("DELETE", f"{base}/subscription")).status == 204
        assert (await server.ask("GET", f"{base}/assignments")).json == {"partitions": []}
        assert (await server.ask("POST", f"{base}/assignments", {"partitions": [zero]})).status == 204
        assert (await server.ask("GET", f"{base}/assignments")).json == {"partitions": [zero]}
        await server.ask(
            "POST", "/topics/t/partitions/1", {"records": [{"value": HI}]}, content_type=BINARY_V2
        )
        await server.ask("POST", f"{base}/assignments", {"partitions": [{"topic": "t", "partition": 1}]})
        assert (await server.ask("GET", f"{base}/records")).code == (408, 40801), "no JSON"
        assert (await server.ask("DELETE", base)).status == 204
        assert (await server.ask("GET", f"{base}/records")).code == (404, 40403)


async def test_two_instances_of_a_group_share_its_partitions() -> None:
    async with world() as (server, _, _):
        bases = []
        for name in ("a", "b"):
            body = {"name": name, "format": "json", "auto.offset.reset": "earliest"}
            bases.append(urlsplit((await server.ask("POST", "/consumers/g", body)).json["base_uri"]).path)
            await server.ask("POST", f"{bases[-1]}/subscription", {"topics": ["t"]})
        with trio.fail_after(60):
            while True:
                assigned = [
                    (await server.ask("GET", f"{base}/assignments")).json["partitions"] for base in bases
                ]
                if [len(places) for places in assigned] == [1, 1]:
                    break
                await server.ask("GET", f"{bases[0]}/records?timeout=100")
        values = {"records": [{"value": number, "partition": number % 2} for number in range(10)]}
        await server.ask("POST", "/topics/t", values, content_type=JSON_V2)
        read = [[row["value"] for row in await records_of(server, base, 5)] for base in bases]
        assert sorted([*read[0], *read[1]]) == [*range(10)]


async def test_a_stream_answers_each_record_before_the_next_is_sent() -> None:
    async with world() as (server, cluster, _):

        def talk() -> list[Any]:
            connection = HTTPConnection(urlsplit(server.url).netloc, timeout=60)
            connection.putrequest("POST", f"{cluster}/topics/t/records")
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Transfer-Encoding", "chunked")
            connection.endheaders()
            answer: Any = None
            results = []
            for part in (
                b'{"partition_id":0,"key":{"type":"BINARY","data":"aGk="},"value":{"type":"JSON","data":"}{"}}',
                b'{"partition_id":0,"headers":[{"name":"h","value":"aGk="}],"timestamp":"2026-01-31T12:00:00Z"}',
                b'{"value":{"type":"BINARY","data":"!"}}',
                b'{"partition_id":9}',
                b'{"value":{"type":"XML","data":1}}',
            ):
                connection.send(b"%x\r\n%s\r\n" % (len(part), part))
                answer = answer or connection.getresponse()
                results.append(json.loads(answer.readline()))
            connection.send(b"0\r\n\r\n")
            assert answer.read() == b""
            connection.request("GET", "/topics")  # the connection stays
            assert connection.getresponse().status == 200
            connection.close()
            return results

        first, second, *wrong = await trio.to_thread.run_sync(talk)
        assert first.pop("timestamp")
        assert first == {
            "error_code": 200, "cluster_id": cluster.rpartition("/")[2], "topic_name": "t", "partition_id": 0, "offset": 0,
            "key": {"type": "BINARY", "size": 2}, "value": {"type": "JSON", "size": 4},
        }  # fmt: skip
        assert (second["offset"], second["timestamp"]) == (1, "2026-01-31T12:00:00.000Z")
        assert [result["error_code"] for result in wrong] == [400, 40402, 400]
        many = b'[{"value":{"type":"STRING","data":"x"}},\n{"value":{"type":"STRING","data":"y"}}] {'
        answer = await server.ask("POST", f"{cluster}/topics/t/records", many)
        assert [json.loads(line)["error_code"] for line in answer.content.splitlines()] == [200, 200, 400]
        entries = [
            {"id": "a", "value": {"type": "STRING", "data": "x"}},
            {"id": "b", "value": {"type": "STRING", "data": 1}},
        ]
        batch = await server.ask("POST", f"{cluster}/topics/t/records:batch", {"entries": entries})
        assert batch.status == 207
        assert [entry["id"] for entry in batch.json["successes"]] == ["a"]
        assert [(entry["id"], entry["error_code"]) for entry in batch.json["failures"]] == [("b", 400)]


async def test_events_go_on_where_the_client_was() -> None:
    async with world() as (server, _, _):
        values = {"records": [{"value": number, "partition": 0} for number in range(3)]}
        await server.ask("POST", "/topics/t", values, content_type=JSON_V2)

        def events(target: str, count: int, **headers: str) -> tuple[list[Any], str]:
            connection = HTTPConnection(urlsplit(server.url).netloc, timeout=60)
            connection.request(
                "GET", target, headers={name.replace("_", "-"): value for name, value in headers.items()}
            )
            answer = connection.getresponse()
            assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            seen: list[Any] = []
            identity = ""
            while len(seen) < count or not identity:
                name, _, value = answer.readline().decode().rstrip("\n").partition(": ")
                if name == "data":
                    seen.append(json.loads(value))
                elif name == "id":
                    identity = value
            connection.close()
            return seen, identity

        seen, identity = await trio.to_thread.run_sync(
            events, "/topics/t/events?from=earliest&format=json", 3
        )
        assert [(row["value"], row["offset"], row["headers"]) for row in seen] == [
            (0, 0, []),
            (1, 1, []),
            (2, 2, []),
        ]
        assert identity == "0:3"
        await server.ask(
            "POST", "/topics/t", {"records": [{"value": 3, "partition": 0}]}, content_type=JSON_V2
        )
        seen, _ = await trio.to_thread.run_sync(
            lambda: events(
                "/topics/t/events?from=earliest&format=json&partition=0", 1, Last_Event_ID=identity
            )
        )
        assert [row["value"] for row in seen] == [3]
        assert (await server.ask("GET", "/topics/none/events")).code == (404, 40401)


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
