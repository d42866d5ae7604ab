"""Records through the REST API: produced, streamed, read by instances and as events."""

from __future__ import annotations

import json
from base64 import b64encode
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import trio

from tests.support.rest import AVRO_V2, BINARY_V2, JSON_V2, JSONSCHEMA_V2, PROTOBUF_V2, records_of, world

USER = '{"type":"record","name":"User","fields":[{"name":"name","type":"string"}]}'
SCHEMAS = {
    AVRO_V2: (USER, {"name": "ann"}),
    PROTOBUF_V2: ('syntax = "proto3"; message M { string name = 1; }', {"name": "ann"}),
    JSONSCHEMA_V2: ('{"type":"object","properties":{"name":{"type":"string"}}}', {"name": "ann", "x": 1.5}),
}
HI = b64encode(b"hi").decode()


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
