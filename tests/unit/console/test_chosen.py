"""Records by a filter, with columns of their own, and a tombstone for one: by the routes, against a broker."""

from __future__ import annotations

from pathlib import Path

import cbor2
import msgpack

from tests.support.console import console_beside


async def test_a_filter_searches_follows_exports_and_marks(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t", 2)
        visitor = await console.visitor()
        rows = [{"value": f'{{"total": {number}}}', "key": "ann"} for number in range(200)]
        await visitor.do("POST", "/api/topics/t/records", {"records": rows})
        where = '$.total >= 197 and key = "ann"'
        totals: list[str] = []
        async with visitor.events("/api/topics/t/search", where=where) as events:
            while (event := await events.next())[0] != "done":
                if event[0] == "found":
                    totals += [row["value"]["text"] for row in event[1]["records"]]
                    assert all(row["value"]["marks"] == [[10, 13]] for row in event[1]["records"])
        assert sorted(totals) == ['{"total": 197}', '{"total": 198}', '{"total": 199}']
        exported = await visitor.ask("GET", "/api/topics/t/export", format="jsonl", where=where)
        assert exported.content.count(b"\n") == 3
        async with visitor.events("/api/topics/t/tail", where=where) as events:
            await events.next("begun")
            await visitor.do("POST", "/api/topics/t/records", {"records": rows})
            tailed: list[str] = []
            while len(tailed) < 3:
                tailed += [row["value"]["text"] for row in (await events.next("records"))["records"]]
        assert sorted(tailed) == sorted(totals)
        for query, reason in (
            ({"where": "$.total >> 1"}, "where: character 10: a value is expected, not '>'"),
            ({"where": "", "text": "x"}, "text and where: one of them expected"),
            ({"where": ""}, "where: 1 to 1000 characters expected"),
            ({}, "text or where: what to look for is expected"),
        ):
            refused = await visitor.ask("GET", "/api/topics/t/search", **query)
            assert (refused.status, refused.json["error"]) == (400, reason)


async def test_columns_are_paths_into_records_also_of_files(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t")
        await console.produce("t", b'{"total": 63.33, "name": "=cmd"}', b"plain", key=b"ann")
        visitor = await console.visitor()
        query = {"columns": "$.total, $.name"}
        rows = (await visitor.get("/api/topics/t/records", **query))["records"]
        assert [row["columns"] for row in rows] == [
            {"$.total": None, "$.name": None}, {"$.total": "63.33", "$.name": "=cmd"},
        ]  # fmt: skip
        exported = await visitor.ask(
            "GET", "/api/topics/t/export", format="csv", **{"from": "oldest", **query}
        )
        heading, first, second = exported.content.decode().splitlines()
        assert heading.endswith('"headers","$.total","$.name"')
        assert first.endswith('"","63.33","\'=cmd"')
        assert second.endswith('"","",""')
        refused = await visitor.ask("GET", "/api/topics/t/records", columns="$.a $.b")
        assert (refused.status, refused.json["error"]) == (
            400, "columns: character 5: ',' or the end is expected, not '$'",
        )  # fmt: skip


async def test_a_tombstone_has_the_bytes_and_partition_of_its_key(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t", 3)
        await console.produce("t", b"v", key=b"\xff" + b"k" * 3_000, partition=1)
        await console.produce("t", b"v", partition=1)
        visitor = await console.visitor()
        sent = await visitor.do("POST", "/api/topics/t/records/1/0/tombstone", {})
        assert sent == {"sent": [{"partition": 1, "offset": 2}]}
        record = await visitor.get("/api/topics/t/records/1/2")
        assert record["value"]["form"] == "null"
        assert record["key"] == (await visitor.get("/api/topics/t/records/1/0"))["key"]
        refused = await visitor.ask("POST", "/api/topics/t/records/1/1/tombstone", {})
        assert (refused.status, refused.json["error"]) == (400, "the record at offset 1 has no key")


async def test_messagepack_and_cbor_are_searched_as_shown(tmp_path: Path) -> None:
    orders = [{"total": number, "customer": "ann"} for number in range(6)]
    async with console_beside(tmp_path) as console:
        await console.make_topic("t")
        for order in orders:
            key = msgpack.packb({"id": order["total"]})
            await console.produce("t", msgpack.packb(order), cbor2.dumps(order), b"\x05", key=key)
        visitor = await console.visitor()
        query = {"from": "newest", "limit": 3, "columns": "$.total, key"}
        page = (await visitor.get("/api/topics/t/records", **query))["records"][::-1]
        assert [(row["key"]["form"], row["value"]["form"]) for row in page] == [
            ("msgpack", "msgpack"), ("msgpack", "cbor"), ("msgpack", "hex"),
        ]  # fmt: skip
        assert page[0]["columns"] == {"$.total": "5", "key": '{"id": 5}'}
        page = (await visitor.get("/api/topics/t/records", **query, **{"as": "msgpack"}))["records"][::-1]
        assert [(row["value"]["text"], row["value"].get("problem", "")[:21]) for row in page[:2]] == [
            ('{"total": 5, "customer": "ann"}', ""), (cbor2.dumps(orders[5]).hex(" "), "it is not MessagePack"),
        ]  # fmt: skip
        assert (page[2]["value"]["form"], page[2]["value"]["text"]) == ("msgpack", "5")
        for sought in ({"where": "$.total = 3"}, {"text": 'total": 3'}):
            async with visitor.events("/api/topics/t/search", **sought) as events:
                records = (await events.next("found"))["records"]
                assert {row["value"]["form"] for row in records} <= {"msgpack", "cbor"}
                assert {row["value"]["text"] for row in records} == {'{"total": 3, "customer": "ann"}'}
                assert ("text" not in sought) or all(row["value"]["marks"] for row in records)
