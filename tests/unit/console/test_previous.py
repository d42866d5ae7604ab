"""The record before one that has the same key: found in its partition, beside the one, or said not to be there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from barnabas.client import ProducerSettings, open_producer
from barnabas.console.searching import OFFSETS_MIN
from tests.support.console import Console, Visitor, console_beside

PATH = "/api/topics/t/records"


async def found(visitor: Visitor, offset: int, partition: int = 0, **query: Any) -> tuple[Any, Any]:
    """Return what was found, None without, and the end."""
    record = None
    async with visitor.events(f"{PATH}/{partition}/{offset}/previous", **query) as events:
        while True:
            name, value = await events.next()
            assert name in ("progress", "found", "done"), value
            if name == "found":
                record = value
            if name == "done":
                return record, value


async def send(visitor: Visitor, *records: tuple[str | None, str | None], partition: int = 0) -> None:
    rows = [{"key": key, "value": value, "partition": partition} for key, value in records]
    await visitor.do("POST", PATH, {"records": rows})


async def test_previous_record_of_a_key_is_shown_with_differences(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t", 2)
        visitor = await console.visitor()
        await send(
            visitor, ("a", '{"n": 1}'), ("a", '{"n": 2, "x": 5}'), ("b", '{"n": 3}'), ("a", '{"n": 4}')
        )
        await send(visitor, ("a", '{"n": 9}'), partition=1)
        record, end = await found(visitor, 3)
        assert (record["record"]["offset"], record["previous"]["offset"]) == (3, 1)
        assert record["record"]["value"]["text"] == '{"n": 4}'
        assert record["difference"] == {
            "by": "path",
            "rows": [
                {"path": "$.n", "change": "changed", "before": "2", "after": "4"},
                {"path": "$.x", "change": "removed", "before": "5", "after": None},
            ],
            "cut": False,
        }
        assert end == {
            "scanned": 3,
            "found": 1,
            "covered": 2,
            "total": 3,
            "cut": False,
            "unread": 0,
            "back_to": 1,
        }
        record, _ = await found(visitor, 3, before=1)
        assert record["previous"]["offset"] == 0
        for offset, partition, scanned in ((2, 0, 2), (0, 1, 0), (0, 0, 0)):
            record, end = await found(visitor, offset, partition)
            assert (record, end["scanned"], end["cut"], end["back_to"]) == (None, scanned, False, 0)


async def test_it_stops_after_so_many_records_and_can_look_further(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t")
        visitor = await console.visitor()
        await send(visitor, ("a", "1"))
        for _ in range(2):
            await send(visitor, *((f"{number}", "") for number in range(600)))
        await send(visitor, ("a", "2"))
        record, end = await found(visitor, 1201, limit=500)
        assert (record, end["scanned"], end["cut"], end["back_to"]) == (
            None,
            OFFSETS_MIN,
            True,
            1201 - OFFSETS_MIN,
        )
        record, end = await found(visitor, 1201, before=end["back_to"])
        assert (record["previous"]["offset"], end["cut"]) == (0, False)
        record, end = await found(visitor, 1201)
        assert (record["previous"]["offset"], end["scanned"]) == (0, 1201)


async def test_what_transactions_took_back_is_left_out_on_demand(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t")
        async with open_producer(console.bootstrap, ProducerSettings(transactional_id="x")) as producer:
            async with producer.transaction():
                await producer.send("t", b"1", key=b"a")
            producer.begin_transaction()
            await (await producer.send("t", b"2", key=b"a")).wait()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("t", b"3", key=b"a")
        visitor = await console.visitor()
        record, _ = await found(visitor, 4)
        assert record["previous"]["value"]["text"] == "2"
        record, end = await found(visitor, 4, committed="true")
        assert record["previous"]["value"]["text"] == "1"
        assert end["scanned"] == 1


async def refusals(console: Console) -> list[tuple[int, str]]:
    visitor = await console.visitor()
    asked = (
        ("0/0", {}), ("0/9", {}), ("7/0", {}), ("x/0", {}), ("0/1", {"before": 2}), ("0/1", {"limit": 0}),
        ("0/1", {"as": "html"}), ("0/1", {"before": -1}),
    )  # fmt: skip
    answers = [await visitor.ask("GET", f"{PATH}/{place}/previous", **query) for place, query in asked]
    return [(answer.status, answer.json["error"].partition(" ")[0]) for answer in answers]


async def test_what_cannot_be_looked_for_is_refused(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t")
        await console.produce("t", b"x")
        await console.produce("t", b"x", key=b"k")
        assert await refusals(console) == [
            (400, "the"), (404, "partition"), (404, "t"), (400, "partition"), (400, "before:"), (400, "limit:"),
            (400, "as:"), (400, "before:"),
        ]  # fmt: skip
