"""Answers of the console, field by field, beside what the cluster says itself; and the edges of what it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from barnabas.client import ClientSettings, ConsumerSettings, ProducerSettings, open_consumer, open_producer
from barnabas.client.admin import Admin
from barnabas.client.administration.access import Acl
from barnabas.client.client import open_client
from barnabas.console.log_lines import Lines
from barnabas.console.own_broker import OwnBroker
from tests.support.console import console_beside


async def test_group_members_are_shown_as_the_coordinator_says(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t", 2)
        for produced, name, more in (
            (1, "c", {"group_protocol": "consumer"}),
            (2, "s", {"instance_id": "static"}),
        ):
            settings = ConsumerSettings(group_id=name, offset_reset="earliest", **more)  # type: ignore[arg-type]
            client = ClientSettings(client_id=f"reader-{name}")
            async with (
                open_consumer(console.bootstrap, "t", settings=settings, client_settings=client) as consumer,
                open_client(console.bootstrap) as other,
            ):
                await console.produce("t", b"x", partition=1)
                await consumer.receive()
                await consumer.commit()
                admin = Admin(other)
                info: Any = (await admin.describe_groups({name: (await admin.list_groups())[0][name].kind}))[
                    name
                ]
                group = await (await console.visitor()).get(f"/api/groups/{name}")
                (member,) = info.members
                assert group["members"] == [
                    {
                        "id": member.member_id, "instance_id": member.instance_id, "client_id": f"reader-{name}",
                        "host": member.host, "epoch": member.epoch, "subscription": ["t"], "assignment": {"t": [0, 1]},
                        "cut": False,
                    }
                ]  # fmt: skip
                assert (group["state"], group["kind"], group["epoch"]) == (info.state, info.kind, info.epoch)
                assert (group["assignor"], group["coordinator"]) == (info.assignor, info.coordinator)
                assert group["members_total"] == 1
                (row,) = [row for row in group["partitions"]["rows"] if row["partition"] == 1]
                assert row == {
                    "topic": "t", "partition": 1, "committed": 1, "next": produced, "lag": produced - 1,
                    "member": member.member_id, "client_id": member.client_id, "host": member.host, "error": None,
                }  # fmt: skip


async def test_newest_records_are_found_behind_empty_offsets(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t")
        async with open_producer(console.bootstrap, ProducerSettings(transactional_id="tx")) as producer:
            async with producer.transaction():
                for number in range(5):
                    await producer.send("t", b"%d" % number)
            for _ in range(30):
                producer.begin_transaction()
                await (await producer.send("t", b"taken back")).wait()
                await producer.abort_transaction()
        visitor = await console.visitor()
        page = await visitor.get("/api/topics/t/records", committed="true", limit=10)
        assert [record["value"]["text"] for record in page["records"]] == ["4", "3", "2", "1", "0"]
        assert (page["older"], page["newer"], page["late"]) == (None, None, False)


async def test_requests_are_watched_by_each_filter(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t")
        own = OwnBroker(Lines(), console.host)
        assert console.host.broker is not None
        own.attach(console.host.broker)
        async with own.watching() as watch:
            await console.produce("t", b"x")
            settings = ConsumerSettings(group_id="readers", offset_reset="earliest", is_auto_committing=False)
            client = ClientSettings(client_id="reader")
            async with open_consumer(
                console.bootstrap, "t", settings=settings, client_settings=client
            ) as consumer:
                await consumer.receive()
                await consumer.commit()
            async with open_client(console.bootstrap, ClientSettings(client_id="lost", retries=0)) as other:
                await Admin(other).topics(["nowhere"])

            def found(**query: str) -> set[tuple[str, str]]:
                return {(row.api, str(row.client_id)) for row in watch.find(query, set(), 1_000)}

            everything = found()
            assert found(api="OffsetCommit") == {("OffsetCommit", "reader")}
            assert found(client_id="read*") == {pair for pair in everything if pair[1] == "reader"}
            of_group = {api for api, _ in found(group="readers")}
            assert {"JoinGroup", "OffsetCommit"} <= of_group
            assert not of_group & {"Produce", "Fetch", "ApiVersions"}
            of_topic = {api for api, _ in found(topic="t")}
            assert {"Produce", "Fetch"} <= of_topic
            assert "JoinGroup" not in of_topic
            for flag in ("true", "1"):
                assert found(errors=flag, client_id="lost") == {("Metadata", "lost")}
            assert found(errors="false") == everything
            seen: set[int] = set()
            (newest,) = watch.find({}, seen, 1)
            assert newest.client_id == "lost"
            assert newest.id not in {exchange.id for exchange in watch.find({}, seen, 1_000)}
            assert watch.find({}, seen, 1_000) == [], "each is told once"


async def test_lists_are_sorted_by_each_of_their_columns(tmp_path: Path) -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    async with console_beside(tmp_path, settings) as console, open_client(console.bootstrap) as other:
        admin, visitor = Admin(other), await console.visitor()
        acls = [
            Acl("topic", name, "literal", f"User:{user}", "*", "read", "allow")
            for name, user in (("b", "x"), ("a", "y"), ("c", "w"))
        ]
        await admin.create_acls(acls)
        for name, count in (("b", 3), ("a", 1), ("c", 2)):
            await console.make_topic(name, count)
            await admin.commit_offsets(f"group-{name}", {(name, 0): 0})

        groups = (await visitor.get("/api/overview"))["groups"]
        assert groups == {"count": 3, "states": {"Empty": 3}, "failures": 0}

        async def order(path: str, column: str, **query: str) -> list[Any]:
            return [row[column] for row in (await visitor.get(path, **query))["rows"]]

        for path, column, sort, rows in (
            ("/api/acls", "resource_name", "resource", ["a", "b", "c"]),
            ("/api/acls", "resource_name", "principal", ["c", "b", "a"]),
            ("/api/topics", "name", "name", ["a", "b", "c"]),
            ("/api/topics", "name", "partitions", ["a", "c", "b"]),
            ("/api/topics", "name", "replication", ["a", "b", "c"]),
            ("/api/topics", "name", "under_replicated", ["a", "b", "c"]),
            ("/api/groups", "name", "name", ["group-a", "group-b", "group-c"]),
            ("/api/groups", "name", "kind", ["group-a", "group-b", "group-c"]),
            ("/api/groups", "name", "state", ["group-a", "group-b", "group-c"]),
        ):
            assert await order(path, column, sort=sort) == rows, (path, sort)
            assert await order(path, column, sort=sort, order="desc") == rows[::-1], (path, sort)
            assert await order(path, column, sort=sort, size="1", page="2") == [rows[1]], (path, sort)
        assert await order("/api/acls", "principal", filter="USER:W") == ["User:w"]
        await admin.create_acls(
            [
                Acl("topic", "a", "prefixed", "User:all-a", "*", "write", "deny"),
                Acl("topic", "*", "literal", "User:everything", "*", "read", "allow"),
                Acl("group", "a", "literal", "User:of-a-group", "*", "read", "allow"),
            ]
        )
        assert await order("/api/topics/a/acls", "principal") == ["User:all-a", "User:everything", "User:y"]
        assert await order("/api/topics/ab/acls", "principal") == ["User:all-a", "User:everything"]
        assert await order("/api/topics/a/acls", "principal", filter="deny") == ["User:all-a"]
        assert (await visitor.get("/api/topics/b/acls", size="1"))["total"] == 2
        clients = (await visitor.get("/api/connections", sort="client_id"))["rows"]
        assert [row["client_id"] for row in clients] == sorted(row["client_id"] for row in clients)
