"""Acts of a console, and what is asked before one destroys something."""

from pathlib import Path

from barnabas.client import ConsumerSettings, ProducerSettings, open_consumer, open_producer
from tests.support.console import Visitor, console_beside


async def refused(visitor: Visitor, method: str, path: str, body: object, status: int) -> str:
    answer = await visitor.ask(method, path, body)
    assert answer.status == status, answer
    error: str = answer.json["error"]
    return error


async def test_topics_are_made_enlarged_configured_trimmed_and_deleted(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        visitor = await console.visitor()
        await visitor.do("POST", "/api/topics", {"name": "t", "partitions": 2, "check": True})
        assert (await visitor.get("/api/topics"))["total"] == 0
        await visitor.do(
            "POST", "/api/topics", {"name": "t", "partitions": 2, "settings": {"retention.ms": "1000000"}}
        )
        reason = await refused(visitor, "POST", "/api/topics", {"name": "t"}, 409)
        assert reason == "There is a topic 't' already"
        assert "lacks name" in await refused(visitor, "POST", "/api/topics", {}, 400)
        assert "a text" in await refused(visitor, "POST", "/api/topics", {"name": 7}, 400)
        await visitor.do("POST", "/api/topics/t/partitions", {"count": 3})
        await refused(visitor, "POST", "/api/topics/t/partitions", {"count": 2}, 409)
        assert (await visitor.get("/api/topics"))["rows"][0]["partitions"] == 3

        await visitor.do("PATCH", "/api/topics/t/settings", {"set": {"retention.ms": "7000"}})
        await visitor.do("PATCH", "/api/topics/t/settings", {"set": {"retention.ms": "9000"}, "check": True})
        settings = {row["name"]: row for row in (await visitor.get("/api/topics/t/settings"))["settings"]}
        assert settings["retention.ms"]["value"] == "7000"
        await visitor.do("PATCH", "/api/topics/t/settings", {"remove": ["retention.ms"]})
        await refused(visitor, "PATCH", "/api/topics/t/settings", {"set": {"retention.ms": "x"}}, 409)
        await refused(visitor, "PATCH", "/api/topics/t/settings", {}, 400)

        await console.produce("t", *[b"x"] * 10, partition=1)
        plan = await visitor.do("POST", "/api/topics/t/trim", {"before": {"1": 4}, "check": True})
        assert (plan["records"], plan["done"]) == (4, False)
        assert "cannot be undone" in await refused(
            visitor, "POST", "/api/topics/t/trim", {"before": {"1": 4}}, 409
        )
        await refused(visitor, "POST", "/api/topics/t/trim", {"before": {"1": 11}, "confirm": "t"}, 400)
        assert (await visitor.get("/api/topics/t"))["partitions"]["rows"][1]["first"] == 0
        done = await visitor.do("POST", "/api/topics/t/trim", {"before": {"1": 4}, "confirm": "t"})
        assert (done["records"], done["done"]) == (4, True)
        assert (await visitor.get("/api/topics/t"))["partitions"]["rows"][1]["first"] == 4
        assert (await visitor.do("POST", "/api/topics/t/trim", {"confirm": "t"}))["records"] == 6

        assert "cannot be undone" in await refused(visitor, "DELETE", "/api/topics/t", {"confirm": "T"}, 409)
        await visitor.do("DELETE", "/api/topics/t", {"confirm": "t"})
        assert (await visitor.get("/api/topics"))["total"] == 0


async def test_records_are_sent_with_all_that_they_have(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t", 2)
        visitor = await console.visitor()
        record = {
            "key": "k", "value": {"base64": "AP8="}, "partition": 1, "timestamp": 1234,
            "headers": [{"name": "h", "value": "v"}, {"name": "n", "value": None}],
        }  # fmt: skip
        answer = await visitor.do(
            "POST", "/api/topics/t/records", {"records": [record], "compression": "zstd"}
        )
        assert answer == {"sent": [{"partition": 1, "offset": 0}]}
        (shown,) = (await visitor.get("/api/topics/t/records"))["records"]
        assert (shown["value"]["text"], shown["timestamp"], shown["partition"]) == ("00 ff", 1234, 1)
        assert [(header["name"], header["value"]["form"]) for header in shown["headers"]] == [
            ("h", "text"),
            ("n", "null"),
        ]
        for records in (
            [],
            [7],
            [{"value": 7}],
            [{"value": {"base64": "?"}}],
            [{"partition": -1}],
            [{"headers": [1]}],
        ):
            await refused(visitor, "POST", "/api/topics/t/records", {"records": records}, 400)
        await refused(visitor, "POST", "/api/topics/t/records", {"records": [{}], "compression": "rar"}, 400)


async def test_offsets_are_reset_after_a_dry_run(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t")
        await console.produce("t", *[b"x"] * 10)
        visitor = await console.visitor()
        settings = ConsumerSettings(group_id="g", offset_reset="earliest")
        async with open_consumer(console.bootstrap, "t", settings=settings) as consumer:
            for _ in range(6):
                await consumer.receive()
            await consumer.commit()
            plan = await visitor.do("POST", "/api/groups/g/offsets", {"to": "earliest"})
            assert plan["active"] == "Stable"
            body = {"to": "earliest", "execute": True, "confirm": "g"}
            assert "stop its members" in await refused(visitor, "POST", "/api/groups/g/offsets", body, 409)
        plan = await visitor.do("POST", "/api/groups/g/offsets", {"to": "shift", "value": -2})
        (row,) = plan["rows"]
        assert (row["committed"], row["new"], row["is_done"], plan["executed"]) == (6, 4, False, False)
        await refused(
            visitor, "POST", "/api/groups/g/offsets", {"to": "offset", "value": 3, "execute": True}, 409
        )
        await refused(visitor, "POST", "/api/groups/g/offsets", {"to": "nowhere"}, 400)
        done = await visitor.do(
            "POST", "/api/groups/g/offsets", {"to": "offset", "value": 3, "execute": True, "confirm": "g"}
        )
        assert done["rows"][0]["is_done"]
        assert (await visitor.get("/api/groups/g"))["partitions"]["rows"][0]["committed"] == 3
        await refused(visitor, "DELETE", "/api/groups/g", {}, 409)
        await visitor.do("DELETE", "/api/groups/g", {"confirm": "g"})
        assert (await visitor.get("/api/groups"))["total"] == 0


async def test_a_transaction_that_hangs_is_shown_and_aborted(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("t")
        visitor = await console.visitor()
        async with open_producer(console.bootstrap, ProducerSettings(transactional_id="tx")) as producer:
            producer.begin_transaction()
            await (await producer.send("t", b"open")).wait()
            (row,) = (await visitor.get("/api/transactions", open="true"))["rows"]
            assert (row["id"], row["state"], row["partitions"]) == ("tx", "Ongoing", ["t-0"])
            assert row["age_ms"] >= 0
            (state,) = (await visitor.get("/api/topics/t/producers"))["producers"]
            assert state["transaction_offset"] == 0
            records = await visitor.get("/api/topics/t/records", committed="true")
            assert records["records"] == []
            body = {"topic": "t", "partition": 0, "producer_id": state["producer_id"]}
            assert "cannot be undone" in await refused(visitor, "POST", "/api/transactions/abort", body, 409)
            await visitor.do("POST", "/api/transactions/abort", {**body, "confirm": "t-0"})
            (state,) = (await visitor.get("/api/topics/t/producers"))["producers"]
            assert state["transaction_offset"] is None
            await refused(visitor, "POST", "/api/transactions/abort", {**body, "confirm": "t-0"}, 409)
            await producer.abort_transaction()


async def test_users_and_quotas_are_edited(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        visitor = await console.visitor()
        await visitor.do("PUT", "/api/users/ann", {"password": "secret", "mechanism": "SCRAM-SHA-256"})
        assert (await visitor.get("/api/users"))["users"][0]["mechanisms"] == {"SCRAM-SHA-256": 8192}
        await refused(visitor, "PUT", "/api/users/ann", {"password": ""}, 400)
        await refused(visitor, "PUT", "/api/users/ann", {"password": "x", "mechanism": "MD5"}, 400)
        await refused(visitor, "DELETE", "/api/users/ann", {"mechanism": "SCRAM-SHA-256"}, 409)
        await visitor.do("DELETE", "/api/users/ann", {"mechanism": "SCRAM-SHA-256", "confirm": "ann"})
        assert (await visitor.get("/api/users"))["users"] == []
        quota = {"entity": {"user": "ann", "client-id": None}, "values": {"producer_byte_rate": 1000}}
        await visitor.do("POST", "/api/quotas", quota)
        (shown,) = (await visitor.get("/api/quotas"))["quotas"]
        assert shown == {
            "entity": {"client-id": None, "user": "ann"},
            "values": {"producer_byte_rate": 1000.0},
        }
        await visitor.do("POST", "/api/quotas", {**quota, "values": {"producer_byte_rate": None}})
        assert (await visitor.get("/api/quotas"))["quotas"] == []
        await refused(visitor, "POST", "/api/quotas", {"entity": {}, "values": {}}, 400)


async def test_a_broker_is_configured(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        visitor = await console.visitor()
        (broker,) = (await visitor.get("/api/brokers"))["brokers"]
        path = f"/api/brokers/{broker['id']}/settings"
        await visitor.do("PATCH", path, {"set": {"log.cleaner.threads": "2"}})
        settings = {setting["name"]: setting for setting in (await visitor.get(path))["settings"]}
        assert (settings["log.cleaner.threads"]["value"], settings["log.cleaner.threads"]["source"]) == (
            "2",
            "broker",
        )
        await refused(visitor, "PATCH", path, {"set": {"log.dirs": "/"}}, 409)
