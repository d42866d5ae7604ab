"""A schema registry that a broker keeps: Confluent's REST API, several registries at a time, and what is left of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.client import ConsumerSettings, open_client, open_consumer, open_producer
from barnabas.client.admin import Admin
from barnabas.client.administration.topics import NewTopic
from barnabas.registry.client import RegistryClient
from barnabas.registry.errors import RegistryError
from barnabas.registry.schemas import Reference, Schema
from barnabas.registry.state import State
from barnabas.testing import RunningBroker
from tests.support.brokers import Client as Raw
from tests.support.brokers import running
from tests.support.registries import refused, registry

pytestmark = pytest.mark.e2e

ONE = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
TWO = (
    '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
)
BROKEN = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'


def address_of(broker: Raw) -> str:
    host, port = broker.broker.listeners[0].addresses[0]
    return f"{host}:{port}"


def avro(text: str, *references: Reference) -> Schema:
    return Schema("AVRO", text, references)


async def test_subjects_versions_and_ids(tmp_path: Path) -> None:
    async with running([tmp_path]) as broker, registry(address_of(broker)) as client:
        assert await client.ask("GET", "/") == {}
        assert await client.ask("GET", "/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
        assert await client.register("s-value", avro(ONE)) == 1
        assert await client.register("s-value", avro(ONE.replace(",", ", "))) == 1
        assert await client.register("s-value", avro(TWO)) == 2
        assert await client.register("other", avro(ONE)) == 1
        assert await client.subjects() == ["other", "s-value"]
        assert await client.ask("GET", "/subjects?subjectPrefix=s-") == ["s-value"]
        assert await client.ask("GET", "/subjects?offset=1&limit=1") == ["s-value"]
        assert await client.ask("GET", "/subjects/s-value/versions") == [1, 2]
        for name in ("latest", "-1", "2"):
            result = await client.ask("GET", f"/subjects/s-value/versions/{name}")
            assert result == {
                "subject": "s-value",
                "version": 2,
                "id": 2,
                "schemaType": "AVRO",
                "schema": TWO,
            }
        assert await client.ask("GET", "/schemas/ids/1") == {"schemaType": "AVRO", "schema": ONE}
        assert await client.ask("GET", "/schemas/ids/1?fetchMaxId=true") == {
            "schemaType": "AVRO", "schema": ONE, "maxId": 2,
        }  # fmt: skip
        assert await client.ask("GET", "/schemas/ids/1/subjects") == ["other", "s-value"]
        assert await client.ask("GET", "/schemas/ids/1/versions") == [
            {"subject": "other", "version": 1},
            {"subject": "s-value", "version": 1},
        ]
        assert [row["version"] for row in await client.ask("GET", "/schemas?subjectPrefix=s-")] == [1, 2]
        assert [row["version"] for row in await client.ask("GET", "/schemas?latestOnly=true")] == [1, 2]
        assert await client.ask("GET", "/schemas/ids/2/schema") == json.loads(TWO)
        assert await client.ask("GET", "/subjects/s-value/versions/1/schema") == json.loads(ONE)
        result = await client.ask("POST", "/subjects/s-value", {"schema": TWO})
        assert (result["version"], result["id"]) == (2, 2)


async def test_refusals_have_confluents_codes_and_texts(tmp_path: Path) -> None:
    async with running([tmp_path]) as broker, registry(address_of(broker)) as client:
        await client.register("s", avro(ONE))
        told = {
            ("GET", "/subjects/no/versions"): (404, 40401, "Subject 'no' not found."),
            ("GET", "/subjects/s/versions/9"): (404, 40402, "Version 9 not found."),
            ("GET", "/schemas/ids/9"): (404, 40403, "Schema 9 not found"),
            ("GET", "/subjects/s/versions/0"): (
                422, 42202,
                "The specified version '0' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
                'string "latest"',
            ),
            ("GET", "/config/s"): (404, 40408, "Subject 's' does not have subject-level compatibility configured"),
            ("GET", "/mode/s"): (404, 40409, "Subject 's' does not have subject-level mode configured"),
            ("DELETE", "/subjects/no"): (404, 40401, "Subject 'no' not found."),
            ("DELETE", "/subjects/s?permanent=true"): (
                404, 40405, "Subject 's' was not deleted first before being permanently deleted",
            ),
            ("DELETE", "/subjects/s/versions/1?permanent=true"): (
                404, 40407, "Subject 's' Version 1 was not deleted first before being permanently deleted",
            ),
            ("GET", "/nowhere"): (404, 404, "HTTP 404 Not Found"),
            ("DELETE", "/schemas/types"): (405, 405, "HTTP 405 Method Not Allowed"),
        }  # fmt: skip
        for (method, path), expected in told.items():
            assert await refused(client, method, path) == expected
        post = "/subjects/s/versions"
        assert (await refused(client, "POST", post, {"schema": "nothing"}))[:2] == (422, 42201)
        assert (await refused(client, "POST", post, {"schema": "{}", "schemaType": "XML"}))[:2] == (
            422,
            42201,
        )
        assert (await refused(client, "POST", post, {"schema": 5}))[:2] == (400, 400)
        status, code, text = await refused(client, "POST", post, {"schema": BROKEN})
        assert (status, code) == (409, 40901)
        assert text.startswith(
            'Schema being registered is incompatible with an earlier schema for subject "s", details: '
            "[{errorType:'TYPE_MISMATCH'"
        )
        assert (await refused(client, "POST", "/subjects/s", {"schema": '"int"'})) == (
            404,
            40403,
            "Schema not found",
        )
        assert (await refused(client, "PUT", "/config", {"compatibility": "SOME"}))[:2] == (422, 42203)
        assert (await refused(client, "PUT", "/config", {"alias": "t"}))[:2] == (422, 422)
        assert (await refused(client, "PUT", "/mode", {"mode": "SOME"}))[:2] == (422, 42204)
        assert (await refused(client, "POST", post, {"schema": TWO, "id": 7}))[:2] == (422, 42205)
        assert (await refused(client, "POST", "/subjects/__GLOBAL/versions", {"schema": TWO}))[:2] == (
            422,
            42208,
        )
        body = {"schema": TWO, "references": [{"name": "x", "subject": "no", "version": 1}]}
        status, code, text = await refused(client, "POST", post, body)
        assert (status, code) == (422, 42201)
        assert 'No schema reference found for subject "no" and version 1' in text


@pytest.mark.parametrize(
    ("level", "takes_more"),
    [
        ("NONE", True), ("BACKWARD", True), ("BACKWARD_TRANSITIVE", False), ("FORWARD", True),
        ("FORWARD_TRANSITIVE", True), ("FULL", True), ("FULL_TRANSITIVE", False),
    ],
)  # fmt: skip
async def test_levels_of_compatibility(tmp_path: Path, level: str, takes_more: bool) -> None:
    """The default of `b` goes in the third version: to readers of the second nothing changes, to those of the first all."""
    third = TWO.replace(',"default":0', "")
    async with running([tmp_path]) as broker, registry(address_of(broker)) as client:
        assert await client.ask("PUT", "/config/s", {"compatibility": level}) == {"compatibility": level}
        await client.register("s", avro(ONE))
        checks = "/compatibility/subjects/s/versions"
        assert await client.ask("POST", checks, {"schema": TWO}) == {"is_compatible": True}
        await client.register("s", avro(TWO))
        assert await client.ask("POST", f"{checks}/latest", {"schema": ONE}) == {"is_compatible": True}
        assert await client.ask("POST", checks, {"schema": third}) == {"is_compatible": takes_more}
        result = await client.ask("POST", f"{checks}?verbose=true", {"schema": BROKEN})
        assert result["is_compatible"] is (level == "NONE")
        assert bool(result["messages"]) is (level != "NONE")
        if level != "NONE":
            with pytest.raises(RegistryError):
                await client.register("s", avro(BROKEN))
        await client.ask("POST", "/subjects/s/versions?force=true", {"schema": BROKEN})
        assert await client.ask("GET", "/subjects/s/versions") == [1, 2, 3]


async def test_what_is_deleted_can_be_read_until_it_is_gone(tmp_path: Path) -> None:
    async with running([tmp_path]) as broker, registry(address_of(broker)) as client:
        await client.register("s", avro(ONE))
        await client.register("s", avro(TWO))
        assert await client.ask("DELETE", "/subjects/s/versions/1") == 1
        assert (await refused(client, "DELETE", "/subjects/s/versions/1"))[1] == 40406
        assert await client.ask("GET", "/subjects/s/versions") == [2]
        assert await client.ask("GET", "/subjects/s/versions?deleted=true") == [1, 2]
        assert await client.ask("GET", "/subjects/s/versions?deletedOnly=true") == [1]
        assert (await client.ask("GET", "/subjects/s/versions/1?deleted=true"))["id"] == 1
        assert await client.ask("GET", "/schemas/ids/1") == {"schemaType": "AVRO", "schema": ONE}
        assert await client.ask("GET", "/schemas/ids/1/versions") == []
        await client.ask("PUT", "/config/s", {"compatibility": "NONE"})
        assert await client.register("s", avro(ONE)) == 1  # the same id, as a new version
        assert await client.ask("GET", "/subjects/s/versions?deleted=true") == [2, 3]
        assert await client.ask("DELETE", "/subjects/s") == [2, 3]
        assert (await refused(client, "DELETE", "/subjects/s"))[1] == 40404
        assert await client.subjects() == []
        assert await client.ask("GET", "/subjects?deleted=true") == ["s"]
        assert await client.ask("DELETE", "/subjects/s/versions/2?permanent=true") == 2
        assert await client.ask("DELETE", "/subjects/s?permanent=true") == [3]
        assert (await refused(client, "GET", "/schemas/ids/1"))[1] == 40403
        assert (await refused(client, "GET", "/config/s"))[1] == 40408  # went with the subject
        assert await client.register("t", avro('"int"')) == 3  # an id is given once


async def test_references_are_held_and_counted(tmp_path: Path) -> None:
    city = '{"type":"record","name":"City","namespace":"geo","fields":[]}'
    person = '{"type":"record","name":"P","fields":[{"name":"c","type":"geo.City"}]}'
    async with running([tmp_path]) as broker, registry(address_of(broker)) as client:
        await client.register("city", avro(city))
        await client.register("person", avro(person, Reference("geo.City", "city", -1)))
        result = await client.version("person", 1)
        assert result.schema.references == (Reference("geo.City", "city", 1),)
        assert await client.ask("GET", "/subjects/city/versions/1/referencedby") == [2]
        assert "geo" in (await client.ask("GET", "/schemas/ids/2?format=resolved"))["schema"]
        for path in ("/subjects/city", "/subjects/city/versions/1"):
            assert await refused(client, "DELETE", path) == (
                422, 42206,
                "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=city,version=1}.",
            )  # fmt: skip
        await client.ask("DELETE", "/subjects/person")
        await client.ask("DELETE", "/subjects/city")
        assert (await refused(client, "DELETE", "/subjects/city?permanent=true"))[1] == 42206


async def test_modes(tmp_path: Path) -> None:
    async with running([tmp_path]) as broker, registry(address_of(broker)) as client:
        await client.register("s", avro(ONE))
        assert await client.ask("GET", "/mode") == {"mode": "READWRITE"}
        await client.ask("PUT", "/mode/s", {"mode": "READONLY"})
        assert await client.ask("GET", "/mode/s") == {"mode": "READONLY"}
        read_only = (422, 42205, "Subject s in context  is in read-only mode")
        assert await refused(client, "POST", "/subjects/s/versions", {"schema": TWO}) == read_only
        assert await refused(client, "DELETE", "/subjects/s") == read_only
        assert await client.register("s", avro(ONE)) == 1  # it is there
        assert await client.register("t", avro(ONE)) == 1
        await client.ask("PUT", "/mode", {"mode": "READONLY_OVERRIDE"})
        assert await client.ask("GET", "/mode/t?defaultToGlobal=true") == {"mode": "READONLY_OVERRIDE"}
        assert (await refused(client, "POST", "/subjects/t/versions", {"schema": TWO}))[1] == 42205
        await client.ask("PUT", "/mode", {"mode": "READWRITE"})
        assert await client.ask("DELETE", "/mode/s") == {"mode": "READONLY"}
        assert (await refused(client, "PUT", "/mode", {"mode": "IMPORT"}))[1] == 42205  # schemas are there
        await client.ask("PUT", "/mode/:.copy:", {"mode": "IMPORT"})
        body = {"schema": BROKEN, "id": 77, "version": 5}
        result = await client.ask("POST", "/subjects/:.copy:s/versions", body)
        assert (result["id"], result["version"]) == (77, 5)
        assert (await refused(client, "POST", "/subjects/:.copy:u/versions", {**body, "schema": ONE}))[
            1
        ] == 42207
        await client.ask("PUT", "/mode?force=true", {"mode": "IMPORT"})
        assert await client.ask("GET", "/mode") == {"mode": "IMPORT"}


async def test_contexts_have_ids_and_settings_of_their_own(tmp_path: Path) -> None:
    async with running([tmp_path]) as broker, registry(address_of(broker)) as client:
        await client.register("s", avro(ONE))
        assert await client.register(":.b:s", avro(TWO)) == 1
        assert await client.ask("GET", "/contexts") == [".", ".b"]
        assert await client.subjects() == [":.b:s", "s"]
        assert await client.ask("GET", "/subjects?subjectPrefix=:.b:") == [":.b:s"]
        assert await client.ask("GET", "/subjects?subjectPrefix=") == ["s"]
        assert await client.ask("GET", "/schemas/ids/1") == {"schemaType": "AVRO", "schema": ONE}
        assert await client.schema(1, ":.b:") == Schema("AVRO", TWO)
        await client.ask("PUT", "/config", {"compatibility": "NONE"})
        await client.ask("PUT", "/config/:.b:", {"compatibility": "FULL"})
        for subject, level in (("s", "NONE"), (":.b:s", "FULL"), (":.c:s", "BACKWARD")):
            result = await client.ask("GET", f"/config/{subject}?defaultToGlobal=true")
            assert result == {"compatibilityLevel": level}
        await client.ask("PUT", "/config/:.__GLOBAL:", {"compatibility": "FORWARD"})
        assert await client.ask("GET", "/config/:.c:s?defaultToGlobal=true") == {
            "compatibilityLevel": "FORWARD"
        }
        assert await client.ask("DELETE", "/config") == {"compatibilityLevel": "NONE"}
        assert (await client.ask("GET", "/subjects/:.:s/versions/1"))["subject"] == "s"


async def test_metadata_and_rules_are_kept_and_inherited(tmp_path: Path) -> None:
    metadata = {"properties": {"owner": "ann"}}
    rules = {
        "domainRules": [{"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}]
    }
    async with running([tmp_path]) as broker, registry(address_of(broker)) as client:
        schema = Schema("AVRO", ONE, (), metadata, rules)
        assert await client.register("s", schema) == 1
        assert (await client.latest("s")).schema == schema
        assert await client.register("s", avro(ONE)) == 1
        assert await client.register("s", Schema("AVRO", ONE, (), {"properties": {"owner": "bob"}})) == 2
        await client.register("s", avro(TWO))
        assert (await client.latest("s")).schema.rule_set == rules
        result = await client.ask("GET", "/subjects/s/metadata?key=owner&value=ann")
        assert result["version"] == 1
        assert (await refused(client, "GET", "/subjects/s/metadata?key=owner&value=eve"))[1] == 40403


async def test_order_and_spelling_mean_nothing_where_that_is_asked_for(tmp_path: Path) -> None:
    entry, other = '{"type":"object","title":"a"}', '{"title":"a","type":"object"}'
    async with running([tmp_path]) as broker, registry(address_of(broker)) as client:
        assert await client.register("s", Schema("JSON", entry)) == 1
        assert await client.register("s", Schema("JSON", other)) == 2
        assert await client.register("n", Schema("JSON", entry), normalize=True) == 2
        assert await client.register("n", Schema("JSON", other), normalize=True) == 2
        assert (await client.lookup("n", Schema("JSON", entry), normalize=True)).version == 1
        await client.ask("PUT", "/config/m", {"compatibility": "FULL", "normalize": True})
        assert await client.register("m", Schema("JSON", entry)) == 2
        text = 'syntax = "proto3";\n// with a comment\nmessage M { int32 a = 1; }\n'
        assert await client.register("p", Schema("PROTOBUF", text)) == 3
        assert await client.register("p", Schema("PROTOBUF", text.replace("// with a comment\n", ""))) == 3
        assert (await client.latest("p")).schema.text == text


async def test_two_registries_never_give_an_id_twice(tmp_path: Path) -> None:
    ids: list[int] = []

    async def add(client: RegistryClient, part: int) -> None:
        for number in range(8):
            schema = Schema("JSON", json.dumps({"title": f"{part} {number}"}))
            ids.append(await client.register(f"s{part}-{number}", schema))

    async with (
        running([tmp_path]) as broker,
        registry(address_of(broker)) as first,
        registry(address_of(broker)) as two,
    ):
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for part in range(4):
                    nursery.start_soon(add, (first, two)[part % 2], part)
        assert sorted(ids) == list(range(1, 33))
        await first.ask("PUT", "/config", {"compatibility": "NONE"})
        with trio.fail_after(10):
            while await two.ask("GET", "/config") != {"compatibilityLevel": "NONE"}:
                await trio.sleep(0.01)
        assert await first.subjects() == await two.subjects()


async def test_another_registry_finds_all_that_was_written(tmp_path: Path) -> None:
    async with running([tmp_path]) as broker:
        async with registry(address_of(broker)) as client:
            await client.register("s", avro(ONE))
            await client.register("s", avro(TWO))
            await client.ask("PUT", "/config/s", {"compatibility": "NONE"})
            await client.ask("PUT", "/mode/t", {"mode": "READONLY"})
            await client.ask("DELETE", "/subjects/s/versions/1")
        async with registry(address_of(broker)) as client:
            assert await client.ask("GET", "/subjects/s/versions?deleted=true") == [1, 2]
            assert await client.ask("GET", "/subjects/s/versions") == [2]
            assert await client.ask("GET", "/config/s") == {"compatibilityLevel": "NONE"}
            assert await client.ask("GET", "/mode/t") == {"mode": "READONLY"}
            assert await client.register("u", avro('"int"')) == 3
        records = await _records(address_of(broker))
        state = State()
        for key, value in records:
            state.apply(key, value)
        assert [json.loads(key)["keytype"] for key, _ in records if b"NOOP" not in key] == [
            "SCHEMA", "SCHEMA", "CONFIG", "MODE", "SCHEMA", "SCHEMA",
        ]  # fmt: skip
        key, value = next(record for record in records if b"SCHEMA" in record[0])
        assert key == b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
        assert value is not None
        assert json.loads(value) == {"subject": "s", "version": 1, "id": 1, "schema": ONE, "deleted": False}


async def _records(bootstrap: str) -> list[tuple[bytes, bytes | None]]:
    settings = ConsumerSettings(offset_reset="earliest", isolation="read_committed")
    async with open_consumer(bootstrap, settings=settings) as consumer:
        place = ("_schemas", 0)
        consumer.assign([place])
        ends = await consumer.end_offsets([place])
        result: list[tuple[bytes, bytes | None]] = []
        while records := await consumer.receive_until(ends):
            result += [(record.key or b"", record.value) for record in records]
        return result


async def test_it_takes_over_what_confluents_registry_has_written(tmp_path: Path) -> None:
    records: list[tuple[Any, Any]] = [
        ({"keytype": "NOOP", "magic": 0}, None),
        ({"keytype": "CONFIG", "subject": None, "magic": 0}, {"compatibilityLevel": "FORWARD"}),
        (
            {"keytype": "CONFIG", "subject": "old", "magic": 0},
            {"subject": "old", "compatibilityLevel": "NONE", "alias": "a"},
        ),
        ({"keytype": "MODE", "subject": "old", "magic": 0}, {"subject": "old", "mode": "READONLY"}),
        (
            {"keytype": "SCHEMA", "subject": "old", "version": 1, "magic": 0},
            {"subject": "old", "version": 1, "id": 21, "schema": ONE},
        ),
        (
            {"keytype": "SCHEMA", "subject": "new", "version": 3, "magic": 1},
            {
                "subject": "new", "version": 3, "id": 22, "md5": "x", "schemaType": "JSON", "references": [],
                "schema": "{}", "deleted": False, "offset": 5, "ts": 123,
            },
        ),
        ({"keytype": "DELETE_SUBJECT", "subject": "old", "magic": 0}, {"subject": "old", "version": 1}),
        ({"keytype": "CONTEXT", "tenant": "default", "context": ".b"}, {"tenant": "default", "context": ".b"}),
        ({"keytype": "SCHEMA", "subject": "far", "version": 1, "magic": 9}, {"nobody": "knows"}),
    ]  # fmt: skip
    async with running([tmp_path]) as broker:
        async with open_client(address_of(broker)) as client:
            created = await Admin(client).create_topics(
                [NewTopic("_schemas", 1, 1, {"cleanup.policy": "compact"})]
            )
            assert created == {"_schemas": None}
        async with open_producer(address_of(broker)) as producer:
            for key, value in records:
                content = None if value is None else json.dumps(value).encode()
                await producer.send("_schemas", content, key=json.dumps(key).encode())
            await producer.send("_schemas", b"nothing", key=b"nothing")
        async with registry(address_of(broker)) as result:
            assert await result.subjects() == ["new"]
            assert await result.ask("GET", "/subjects?deleted=true") == ["new", "old"]
            assert await result.ask("GET", "/schemas/ids/21") == {"schemaType": "AVRO", "schema": ONE}
            assert await result.ask("GET", "/config") == {"compatibilityLevel": "FORWARD"}
            assert await result.ask("GET", "/config/old") == {"compatibilityLevel": "NONE", "alias": "a"}
            assert await result.ask("GET", "/mode/old") == {"mode": "READONLY"}
            assert await result.register("more", avro(TWO)) == 23


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        (NewTopic("_schemas", 2, 1, {"cleanup.policy": "compact"}), "2 partitions"),
        (NewTopic("_schemas", 1, 1, {"cleanup.policy": "delete"}), "cleanup.policy=delete"),
    ],
)
async def test_a_topic_that_would_lose_schemas_is_refused(
    tmp_path: Path, topic: NewTopic, message: str
) -> None:
    async with running([tmp_path]) as broker:
        async with open_client(address_of(broker)) as client:
            await Admin(client).create_topics([topic])
        with pytest.RaisesGroup(pytest.RaisesExc(RegistryError, match=message), flatten_subgroups=True):
            async with registry(address_of(broker)):
                pass


async def test_a_topic_that_begins_anew_is_read_anew(tmp_path: Path) -> None:
    async with running([tmp_path]) as broker, registry(address_of(broker)) as client:
        await client.register("s", avro(ONE))
        async with open_client(address_of(broker)) as other:
            admin = Admin(other)
            assert await admin.delete_topics(["_schemas"]) == {"_schemas": None}
            requested = NewTopic("_schemas", 1, 1, {"cleanup.policy": "compact"})
            with trio.fail_after(30):
                while (await admin.create_topics([requested]))["_schemas"] is not None:
                    await trio.sleep(0.05)
                while await client.subjects():
                    await trio.sleep(0.05)
        assert await client.register("t", avro(TWO)) == 1
        assert await client.subjects() == ["t"]


async def test_pages_in_a_browser_and_malformed_requests_are_refused(tmp_path: Path) -> None:
    async with running([tmp_path]) as broker, registry(address_of(broker)) as client:
        port = int(client.url.rpartition(":")[2])
        for head, status in (
            ("GET /subjects HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
            ("GET /subjects HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n", 403),
            ("POST /subjects/s/versions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n{", 400),
            ("POST /config HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n", 413),
            ("nonsense\r\n\r\n", 400),
            (
                "PUT /mode HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
                415,
            ),
        ):
            assert await _status(port, head.encode()) == status
        assert await client.subjects() == []


async def _status(port: int, data: bytes) -> int:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(data)
        if b"999999999" in data:
            for _ in range(200):
                with trio.move_on_after(5):
                    try:
                        await stream.send_all(bytes(65536))
                    except trio.BrokenResourceError:
                        break
        received = b""
        with trio.move_on_after(5):
            while b"\r\n" not in received and (part := await stream.receive_some(65536)):
                received += part
    return int(received.split()[1])


async def test_a_broker_that_comes_back_finds_its_registry_waiting(tmp_path: Path) -> None:
    with RunningBroker(data=tmp_path / "data") as process:
        listen = process.bootstrap
        async with registry(listen) as client, trio.open_nursery() as nursery:
            assert await client.register("s", avro(ONE)) == 1
            await trio.to_thread.run_sync(process.kill)
            assert await client.subjects() == ["s"]  # from memory
            patient = RegistryClient(client.url, timeout_s=60)
            done = trio.Event()

            async def add() -> None:
                assert await patient.register("s", avro(TWO)) == 2
                done.set()

            nursery.start_soon(add)
            with RunningBroker(data=tmp_path / "data", listen=listen):
                await done.wait()
                assert await client.ask("GET", "/subjects/s/versions") == [1, 2]
