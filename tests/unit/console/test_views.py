"""Views of a cluster by their routes."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.client import ConsumerSettings, open_consumer
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.client import open_client
from barnabas.console.base import Route
from barnabas.console.server import CALL_SECONDS_MAX
from barnabas.network.routes import Router
from barnabas.registry.client_settings import RegistryAt
from barnabas.registry.schemas import Schema
from tests.support.console import console_beside, console_of, part
from tests.support.registries import registry

RULE = "Produce topic=t nth=99 -> error=NOT_LEADER_OR_FOLLOWER"
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
HOSTILE = b'<img src=x onerror="alert(1)">\x00\xff'


async def test_the_cluster_at_a_glance(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("orders", 3)
        visitor = await console.visitor()
        shown = await visitor.get("/api/overview")
        assert shown["topics"] | {"internal": 0} == {
            "count": 1, "internal": 0, "partitions": 3, "under_replicated": 0, "offline": 0,
        }  # fmt: skip
        async with open_client(console.bootstrap) as client:
            about = await Admin(client).describe_cluster()
        assert shown["cluster"].pop("release")
        assert shown["cluster"] == {"id": about.cluster_id, "controller": about.controller_id, "brokers": 1}
        assert shown["note"] is None
        (broker,) = (await visitor.get("/api/brokers"))["brokers"]
        assert broker["controller"]
        assert broker["log_dirs"][0]["path"] == str(tmp_path)
        assert broker["log_dirs"][0]["total_bytes"] > 0
        settings = (await visitor.get(f"/api/brokers/{broker['id']}/settings"))["settings"]
        assert {"file", "default"} >= {setting["source"] for setting in settings} - {"broker", "all brokers"}


async def test_topics_in_pages_filtered_and_sorted(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        async with open_client(console.bootstrap) as client:
            names = [f"topic-{number:03}" for number in range(120)]
            await Admin(client).create_topics([NewTopic(name, 1 + int(name[-1]), 1) for name in names])
        visitor = await console.visitor()
        page = await visitor.get("/api/topics", size=50, page=2)
        assert [row["name"] for row in page["rows"]] == names[50:100]
        assert (page["total"], page["page"], page["size"]) == (120, 2, 50)
        assert (await visitor.get("/api/topics", page=99))["page"] == 5
        page = await visitor.get("/api/topics", filter="IC-01", sort="partitions", order="desc")
        assert [row["name"] for row in page["rows"]] == [f"topic-01{number}" for number in range(9, -1, -1)]
        assert (await visitor.get("/api/topics", unhealthy="true"))["total"] == 0
        for query in ({"size": 10_000}, {"page": 0}, {"sort": "colour"}, {"order": "up"}, {"size": "x"}):
            assert (await visitor.ask("GET", "/api/topics", **query)).status == 400, query


async def test_a_topic_in_detail(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("orders", 2, **{"retention.ms": "60000"})
        await console.produce("orders", b"1", b"2", partition=1)
        visitor = await console.visitor()
        topic = await visitor.get("/api/topics/orders")
        rows = topic["partitions"]["rows"]
        assert [(row["first"], row["next"], row["records"]) for row in rows] == [(0, 0, 0), (0, 2, 2)]
        assert rows[1]["bytes"] > 0
        (second,) = (await visitor.get("/api/topics/orders", size="1", page="2"))["partitions"]["rows"]
        assert second["partition"] == 1
        of_all = await visitor.get("/api/topics/orders", size="1")
        assert (of_all["records"], of_all["bytes"]) == (2, rows[1]["bytes"]), "not of the page alone"
        assert rows[0]["in_sync"] == rows[0]["replicas"] == [rows[0]["leader"]]
        row = (await visitor.get("/api/topics"))["rows"][0]
        assert (row["records"], row["bytes"]) == (2, rows[1]["bytes"])
        settings = {
            row["name"]: row for row in (await visitor.get("/api/topics/orders/settings"))["settings"]
        }
        assert (settings["retention.ms"]["value"], settings["retention.ms"]["source"]) == ("60000", "topic")
        assert settings["cleanup.policy"]["source"] == "default"
        missing = await visitor.ask("GET", "/api/topics/none")
        assert (missing.status, missing.json["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


async def test_records_in_pages_from_any_point(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t", 2)
        visitor = await console.visitor()
        rows = [
            {"value": str(number), "partition": number // 30, "timestamp": 1_000 + number}
            for number in range(40)
        ]
        await visitor.do("POST", "/api/topics/t/records", {"records": rows})

        async def page(**query: object) -> tuple[list[int], dict[str, object]]:
            response = await visitor.get("/api/topics/t/records", **query)
            return [int(record["value"]["text"]) for record in response["records"]], response

        newest, body = await page(limit=10)
        assert newest == list(range(39, 29, -1)), "the newest of all partitions"
        assert body["newer"] is None
        seen = list(newest)
        while body["older"]:
            older, body = await page(limit=10, before=body["older"])
            assert older
            seen += older
        assert seen == list(range(39, -1, -1))
        oldest, body = await page(**{"from": "oldest"}, partition=0, limit=20)
        assert oldest == list(range(20))
        following, body = await page(after=body["newer"], partition=0, limit=20)
        assert (following, body["newer"]) == (list(range(20, 30)), None)
        assert (await page(**{"from": "offset"}, offset=28, partition=0))[0] == [28, 29]
        assert (await page(**{"from": "offset"}, offset=99, partition=0))[0] == []
        assert (await page(**{"from": "time"}, time=0, partition=1))[0] == list(range(30, 40))
        for query in (
            {"partition": "7"},
            {"partition": "x"},
            {"limit": 501},
            {"before": "zero"},
            {"as": "html"},
        ):
            assert (await visitor.ask("GET", "/api/topics/t/records", **query)).status in (400, 404), query


async def test_a_record_in_full_and_as_a_file(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t")
        await console.produce("t", b"x" * 5000, b"=1+1", None, key=b"k", headers={"h": HOSTILE})
        visitor = await console.visitor()
        listed = (await visitor.get("/api/topics/t/records", **{"from": "oldest"}))["records"]
        assert (len(listed[0]["value"]["text"]), listed[0]["value"]["cut"]) == (2000, True)
        assert listed[2]["value"]["form"] == "null"
        assert listed[0]["headers"][0]["value"]["text"] == HOSTILE.hex(" ")
        record = await visitor.get("/api/topics/t/records/0/0")
        assert record["value"]["text"] == "x" * 5000
        assert (await visitor.ask("GET", "/api/topics/t/records/0/9")).status == 404
        answer = await visitor.ask("GET", "/api/topics/t/export", **{"from": "oldest"})
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["content-type"].startswith("text/csv")
        assert b'"\'=1+1"' in answer.content
        answer = await visitor.ask("GET", "/api/topics/t/export", format="jsonl", **{"from": "oldest"})
        assert [json.loads(line)["offset"] for line in answer.content.splitlines()] == [0, 1, 2]


async def test_live_tail_shows_new_records_and_skips_when_behind(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t")
        await console.produce("t", b"before")
        visitor = await console.visitor()
        async with visitor.events("/api/topics/t/tail") as events:
            await events.next("begun")
            await console.produce("t", b"one", b"two")
            texts: list[str] = []
            while len(texts) < 2:
                texts += [record["value"]["text"] for record in (await events.next("records"))["records"]]
            assert texts == ["one", "two"]
            await visitor.do(
                "POST",
                "/api/topics/t/records",
                {"records": [{"value": "x" * 300}] * 1000, "compression": "none"},
            )
            await console.produce("t", b"last")
            shown = skipped = 0
            while shown + skipped < 1001:
                event = await events.next("records")
                shown, skipped = shown + len(event["records"]), skipped + event["skipped"]
            assert skipped > 0


async def test_a_search_finds_tells_its_progress_and_ends(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t", 2)
        visitor = await console.visitor()
        rows = [{"value": f"value {number}", "key": f"key-{number % 7}"} for number in range(900)]
        await visitor.do("POST", "/api/topics/t/records", {"records": rows})
        await console.produce("t", b"needle \xff", headers={"where": b"Haystack"})

        async def found(**query: object) -> tuple[int, dict[str, object]]:
            count = 0
            async with visitor.events("/api/topics/t/search", **{"from": "oldest", **query}) as events:
                while True:
                    name, value = await events.next()
                    assert name != "failed", value
                    if name == "found":
                        count += len(value["records"])
                    if name == "done":
                        assert value["found"] == count
                        return count, value

        assert await found(text="NEEDLE") == (
            1,
            {
                "scanned": 901,
                "found": 1,
                "covered": 901,
                "total": 901,
                "cut": False,
                "unread": 0,
                "order": "oldest",
            },
        )
        assert (await found(text="needle", case="true"))[0] == 1
        assert (await found(text="NEEDLE", case="true"))[0] == 0
        assert (await found(text="haystack", **{"in": "headers"}))[0] == 1
        assert (await found(text="haystack", **{"in": "value"}))[0] == 0
        assert (await found(text=r"^value 1\d$", regex="true"))[0] == 10
        assert (await found(text="value.1"))[0] == 0
        count, end = await found(text="key-3", **{"in": "key"}, limit=5)
        assert (count, end["cut"]) == (5, True)
        assert (await visitor.ask("GET", "/api/topics/t/search", text="(", regex="true")).status == 400
        assert (await visitor.ask("GET", "/api/topics/t/search", text="")).status == 400


async def test_a_search_ends_when_its_connection_closes(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t")
        for _ in range(20):
            await console.produce("t", b"a" * 900_000)
        visitor = await console.visitor()
        slow = {"text": "(x?){500}(x?){500}z|(.{0,900}y){1}", "regex": "true"}
        async with visitor.events("/api/topics/t/search", **slow) as events:
            assert (await events.next("progress"))["found"] == 0
            await trio.sleep(1)
        with trio.fail_after(CALL_SECONDS_MAX + 5):  # the search has the visitor's turn, one call at most
            assert (await visitor.get("/api/topics/t/records", limit=1))["records"]


async def test_a_page_ends_when_its_connection_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = trio.Event()

    async def answer(_: Any) -> object:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    slow = Route("GET", "/api/slow", answer, "slow")
    monkeypatch.setattr("barnabas.console.routes.router", lambda: Router([slow]))
    async with console_beside(tmp_path) as console:
        host, _, port = console.server.url.removeprefix("http://").rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(f"GET /api/slow HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            await trio.sleep(0.5)
            assert not ended.is_set()
        with trio.fail_after(5):
            await ended.wait()


async def test_groups_with_members_and_lag(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t", 2)
        await console.produce("t", *(b"%d" % number for number in range(10)), partition=0)
        visitor = await console.visitor()
        settings = ConsumerSettings(group_id="g/1 <b>", offset_reset="earliest")
        async with open_consumer(console.bootstrap, "t", settings=settings) as consumer:
            for _ in range(4):
                await consumer.receive()
            await consumer.commit()
            (row,) = (await visitor.get("/api/groups"))["rows"]
            assert (row["name"], row["state"], row["members"], row["lag"]) == ("g/1 <b>", "Stable", 1, 6)
            group = await visitor.get(f"/api/groups/{part('g/1 <b>')}")
            assert group["members"][0]["assignment"] == {"t": [0, 1]}
            lags = {
                row["partition"]: (row["committed"], row["next"], row["lag"])
                for row in group["partitions"]["rows"]
            }
            assert lags[0] == (4, 10, 6)
            assert group["history"][-1]["lag"] == 6
            await console.make_topic("other")
            async with open_client(console.bootstrap) as client:
                admin = Admin(client)
                await admin.commit_offsets("behind", {("t", 0): 1, ("other", 0): 0})
                await admin.commit_offsets("elsewhere", {("other", 0): 0})
            reading = await visitor.get("/api/topics/t/groups")
            assert [(group["group"], group["lag"], group["members"]) for group in reading["groups"]] == [
                ("behind", 9, 0), ("g/1 <b>", 6, 1),
            ]  # fmt: skip
            assert [(group["state"], group["partitions"]) for group in reading["groups"]] == [
                ("Empty", 1), ("Stable", 2),
            ]  # fmt: skip
            assert (reading["looked_at"], reading["total"]) == (3, 3)
            alone = await visitor.get("/api/topics/other/groups")
            assert [group["group"] for group in alone["groups"]] == ["behind", "elsewhere"]
        assert (await visitor.ask("GET", "/api/groups/none")).status == 404
        assert (await visitor.get("/api/groups", kind="share"))["rows"] == []
        assert (await visitor.ask("GET", "/api/groups", kind="odd")).status == 400


async def test_the_inside_of_the_broker(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t")
        visitor = await console.visitor()
        rows = (await visitor.get("/api/connections"))["rows"]
        assert {row["client_id"] for row in rows} >= {"barnabas-console"}
        names = {metric["name"] for metric in (await visitor.get("/api/metrics"))["families"]}
        name = sorted(names)[0]
        (family,) = (await visitor.get("/api/metrics", names=name))["families"]
        assert family["name"] == name
        assert family["samples"]
        assert family["sum"] == sum(sample["value"] for sample in family["samples"])
        await console.make_topic("u")
        await console.produce("t", b"x", b"y")
        await console.produce("u", b"z")
        records = "kafka_server_brokertopicmetrics_messagesin_total"
        (family,) = (await visitor.get("/api/metrics", names=records))["families"]
        assert (family["kind"], family["count"], family["sum"]) == ("counter", 1, 3), "of all topics together"
        assert family["samples"] == [{"name": records, "labels": {}, "value": 3}]
        assert isinstance((await visitor.get("/api/log"))["lines"], list)
        assert (await visitor.do("POST", "/api/control/faults", {}))["faults"] == []
        await visitor.do("POST", "/api/control/faults", {"method": "POST", "short": RULE})
        assert len((await visitor.do("POST", "/api/control/faults", {}))["faults"]) == 1
        assert (await visitor.ask("POST", "/api/control/broker%2Fstop", {"method": "POST"})).status == 404
        assert (await visitor.ask("POST", "/api/control/reset", {"method": "POST"})).status == 409


async def test_the_tap_watches_only_while_somebody_looks(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t")
        visitor = await console.visitor()
        requests = console.host.broker.requests if console.host.broker is not None else None
        assert requests is not None
        before = requests.interceptor
        async with visitor.events("/api/requests", api="Produce") as events:
            await events.next("begun")
            assert requests.interceptor is not before
            await console.produce("t", b"secret record")
            (row,) = (await events.next("requests"))["requests"]
            assert (row["api"], row["client_id"], row["error_codes"]) == ("Produce", "barnabas", [])
            assert (row["topics"], row["topics_total"], row["records"]) == (["t"], 1, 1)
            assert row["bytes"] > len(b"secret record")
            assert 0 < row["ms"] < 60_000
            assert "secret record" not in json.dumps(row)
        with trio.fail_after(10):
            while requests.interceptor is not before:
                await trio.sleep(0.05)


async def test_a_broker_that_restarts_is_found_again(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t")
        visitor = await console.visitor()
        await visitor.get("/api/topics")
        await console.host.restart()
        with trio.fail_after(20):
            while (await visitor.ask("GET", "/api/topics")).status != 200:
                await trio.sleep(0.1)
        await visitor.do("POST", "/api/topics", {"name": "after"})
        assert (await visitor.get("/api/topics"))["total"] == 2


async def test_subjects_of_a_registry(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console, registry(console.bootstrap) as client:
        for text in ('"int"', '"long"'):
            await client.register("orders-value", Schema("AVRO", text))
        await client.register("payments-value", Schema("AVRO", '"int"'))
        path = "/api/subjects/orders-value"
        async with console_of(console, registry=RegistryAt(client.url)) as visitor:
            page = await visitor.get("/api/subjects", filter="pay")
            assert page["rows"] == [
                {
                    "name": "payments-value",
                    "type": "AVRO",
                    "version": 1,
                    "id": 1,
                    "level": "BACKWARD",
                    "error": None,
                }
            ]
            subject = await visitor.get(path)
            assert (subject["versions"], subject["schema"]["id"], subject["compatibility"]) == (
                [1, 2],
                2,
                "BACKWARD",
            )
            missing = await visitor.ask("GET", "/api/subjects/none")
            assert (missing.status, missing.json["error"]) == (404, "Subject 'none' not found.")
            check = await visitor.do("POST", path, {"schema": '"string"', "check": True})
            assert check["is_compatible"] is False
            assert (await visitor.do("POST", path, {"schema": '"double"'}))["id"] == 3
            orders, _ = (await visitor.get("/api/subjects"))["rows"]
            assert (orders["version"], orders["id"]) == (3, 3), "what was remembered of it is of before"
            assert (await visitor.ask("DELETE", path, {})).status == 409
            await visitor.do("DELETE", path, {"confirm": "orders-value"})
            assert await client.subjects() == ["payments-value"]
        async with console_of(console, registry=RegistryAt("http://127.0.0.1:1")) as visitor:
            assert (await visitor.ask("GET", "/api/subjects")).status == 502


async def test_topics_are_sorted_by_size_and_growth(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        for name in ("small", "large", "empty"):
            await console.make_topic(name, 2)
        await console.produce("small", b"x", partition=0)
        await console.produce("large", *[b"x" * 1000] * 5, partition=1)
        visitor = await console.visitor()

        async def order(**query: str) -> list[str]:
            return [row["name"] for row in (await visitor.get("/api/topics", **query))["rows"]]

        assert await order(sort="bytes", order="desc") == ["large", "small", "empty"]
        assert await order(sort="records") == ["empty", "small", "large"]
        first = (await visitor.get("/api/topics", sort="records", order="desc"))["rows"][0]
        assert (first["records"], first["bytes"] > 5000) == (5, True)
        rated = await visitor.get("/api/topics", sort="rate", order="desc")
        assert [row["rate"] for row in rated["rows"]] == [0.0] * 3
        wrong = await visitor.ask("GET", "/api/topics", sort="colour")
        assert wrong.status == 400


async def test_records_are_written_by_a_schema_and_read_by_it(tmp_path: Path) -> None:
    async with console_beside(tmp_path / "data") as console, registry(console.bootstrap) as client:
        await console.make_topic("orders")
        avro = await client.register("orders-value", Schema("AVRO", json.dumps(ORDER)))
        closed = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
        as_json = await client.register("other", Schema("JSON", json.dumps(closed)))
        proto = await client.register(
            "third", Schema("PROTOBUF", 'syntax = "proto3"; message M { int32 n = 1; }')
        )
        key = await client.register("orders-key", Schema("AVRO", '"string"'))
        async with console_of(console, registry=RegistryAt(client.url)) as visitor:
            path = "/api/topics/orders/records"
            by_latest = {"records": [{"key": '"k"', "value": '{"id": "a"}'}], "value_schema": "latest"}
            await visitor.do("POST", path, {**by_latest, "key_schema": "latest"})
            for schema_id in (as_json, proto):
                await visitor.do(
                    "POST", path, {"records": [{"value": '{"n": 7}'}], "value_schema": schema_id}
                )
            shown = (await visitor.get(path, **{"from": "oldest"}))["records"]
            values = [
                (row["value"]["form"], row["value"]["schema_id"], json.loads(row["value"]["text"]))
                for row in shown
            ]
            assert values == [
                ("AVRO", avro, {"id": "a"}),
                ("JSON", as_json, {"n": 7}),
                ("PROTOBUF", proto, {"n": 7}),
            ]
            assert (shown[0]["key"]["schema_id"], shown[0]["key"]["text"]) == (key, '"k"')
            for text, count in (('"id": "a"', 1), ('"n": 7', 2), ("\0\0\0", 0)):
                async with visitor.events("/api/topics/orders/search", text=text) as events:
                    assert (await events.next("done"))["found"] == count, "what is shown is searched"
            for body, text in (
                ({"records": [{"value": '{"id": 3}'}], "value_schema": "latest"}, "does not fit the schema"),
                ({"records": [{"value": "nonsense"}], "value_schema": "latest"}, "the value is not JSON"),
                ({"records": [{"value": "{}"}], "value_schema": "newest"}, "the id of a schema expected"),
            ):
                refused = await visitor.ask("POST", path, body)
                assert (refused.status, text in refused.json["error"]) == (400, True), refused
            missing = await visitor.ask("POST", path, {"records": [{"value": "{}"}], "value_schema": 99})
            assert missing.status == 404
        without = await (await console.visitor()).ask("POST", path, by_latest)
        assert without.status == 404
