"""Routes of the control API over topics, groups, the broker and its connections: effects, answers, limits, errors."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas import __version__
from barnabas.tools.control.host import NotRunningError
from barnabas.tools.control.openapi import document
from barnabas.tools.control.routes import router
from tests.support.control_api import Api, connected, host_in

# --- topics, records, groups ----------------------------------------------------------------------------------------


async def test_topics_are_made_shown_and_deleted(api: Api) -> None:
    created = await api.do(
        "POST", "topics/t", {"partitions": 2, "settings": {"retention.ms": "5"}, "records": ["a"]}
    )
    assert (created["name"], len(created["partitions"]), created["settings"]) == (
        "t",
        2,
        {"retention.ms": "5"},
    )
    assert await api.do("POST", "topics/plain")
    assert await api.get("topics/t") == created
    assert [entry["name"] for entry in (await api.get("topics"))["topics"]] == ["plain", "t"]
    await api.do("PUT", "groups/g/offsets", {"t": {"0": 1}})
    names = [entry["name"] for entry in (await api.get("topics", internal="true"))["topics"]]
    assert names == ["__consumer_offsets", "plain", "t"]
    assert await api.refused("POST", "topics/t") == (409, "topic t exists")
    assert await api.refused("GET", "topics/none") == (404, "there is no topic none")
    assert (await api("DELETE", "topics/plain")) == (204, None)
    assert await api.refused("DELETE", "topics/plain") == (404, "there is no topic plain")
    status, text = await api.refused("POST", "topics/a%2Fb")
    assert (status, text.startswith("topic a/b: INVALID_TOPIC_EXCEPTION")) == (400, True)
    assert (await api.refused("GET", "topics", internal="yes")) == (
        400, "internal: true or false expected, and there is 'yes'",
    )  # fmt: skip
    assert [entry["name"] for entry in (await api.get("topics", internal="false"))["topics"]] == ["t"]


async def test_records_are_appended_and_shown_from_any_place_on(api: Api) -> None:
    await api.do("POST", "topics/t", {"partitions": 2})
    requested = [
        {"value": "a", "partition": 1},
        {"value": "b", "partition": 0},
        {"value": "c", "partition": 1},
    ]
    assert await api.do("POST", "topics/t/records", {"records": requested}) == {
        "records": [
            {"partition": 1, "offset": 0},
            {"partition": 0, "offset": 0},
            {"partition": 1, "offset": 1},
        ]
    }

    async def values(**query: Any) -> list[Any]:
        return [record["value"] for record in (await api.get("topics/t/records", **query))["records"]]

    assert await values() == ["b", "a", "c"]
    assert await values(partition=1) == ["a", "c"]
    assert await values(partition=1, offset=1) == ["c"]
    assert await values(offset=1) == ["c"]
    assert await values(limit=2) == ["b", "a"]
    assert await values(limit=0) == []
    assert await values(committed="false") == ["b", "a", "c"]
    assert await api.refused("GET", "topics/none/records") == (404, "there is no topic none")
    assert await api.refused("GET", "topics/t/records", partition=2) == (404, "topic t has no partition 2")
    for name, text in (
        ("limit", "100001"),
        ("limit", "-1"),
        ("offset", "-1"),
        ("offset", "x"),
        ("partition", "-1"),
    ):
        status, words = await api.refused("GET", "topics/t/records", **{name: text})
        high = 100_000 if name == "limit" else 1 << 62
        assert (status, words) == (
            400,
            f"{name}: a whole number from 0 to {high} expected, and there is {text!r}",
        )
    assert await values(limit=100_000, offset=0) == ["b", "a", "c"]
    assert await api.refused("POST", "topics/none/records", {"records": ["a"]}) == (
        404,
        "there is no topic none",
    )
    assert (await api.refused("POST", "topics/t/records", {"records": "a"}))[0] == 400
    assert (await api.refused("POST", "topics/t/records"))[1] == "a JSON object is expected as the body"
    assert (await api.refused("GET", "topics/t/records", nonsense=1))[1].startswith(
        "there is no parameter nonsense; there are: partition, offset, limit, committed"
    )


async def test_groups_have_offsets_and_are_deleted(api: Api) -> None:
    assert await api.get("groups") == {"groups": []}
    await api.do("POST", "seeds", {"topics": {"t": {"partitions": 1, "records": ["a", "b", "c"]}}})
    result = await api.do("PUT", "groups/g/offsets", {"t": {"0": 1}})
    assert result["offsets"] == [{"topic": "t", "partition": 0, "offset": 1, "lag": 2}]
    assert await api.get("groups/g") == result
    assert [group["group"] for group in (await api.get("groups"))["groups"]] == ["g"]
    assert await api.refused("GET", "groups/h") == (404, "there is no group h")
    assert (await api.refused("PUT", "groups/g/offsets", {"none": {"0": "latest"}}))[0] == 400
    assert await api("DELETE", "groups/g") == (204, None)
    assert await api.refused("DELETE", "groups/g") == (404, "there is no group g")


async def test_wait_route_ends_with_state_or_current_state(api: Api) -> None:
    await api.do("POST", "topics/t", {"partitions": 2, "records": [{"value": "a", "partition": 0}] * 3})
    assert await api.get("wait/records", topic="t", count=3) == {"topic": "t", "records": 3}
    assert (await api.get("wait/records", topic="t", count=3, timeout_ms=600_000))["records"] == 3
    soon = {"timeout_ms": 0}
    assert await api.refused("GET", "wait/records", topic="t", count=4, **soon) == (
        408,
        "t holds 3 of 4 records after 0 ms",
    )
    assert (await api.refused("GET", "wait/records", topic="t", count=1, partition=1, **soon))[1].startswith(
        "t-1 holds 0 of 1"
    )
    assert await api.refused("GET", "wait/records", topic="none", count=1, **soon) == (
        408,
        "there is no topic none after 0 ms",
    )
    assert await api.get("wait/records", topic="none", count=0) == {"topic": "none", "records": 0}
    assert await api.refused("GET", "wait/records", topic="t") == (400, "count is missing")
    assert await api.refused("GET", "wait/records", count=1) == (400, "topic is missing")
    assert await api.refused("GET", "wait/records", count=1, topic="") == (400, "topic is missing")
    assert (await api.refused("GET", "wait/records", topic="t", count=4, timeout_ms=600_001))[0] == 400
    await api.do("PUT", "groups/g/offsets", {"t": {"0": 1}})
    assert (await api.get("wait/group", group="g", state="Empty", **soon))["group"] == "g"
    assert (await api.get("wait/group", group="g", state="empty", members=0, **soon))["group"] == "g"
    assert await api.refused("GET", "wait/group", group="g", **soon) == (
        408,
        "group g is Empty with 0 members after 0 ms",
    )
    assert (await api.refused("GET", "wait/group", group="g", state="Empty", members=1, **soon))[0] == 408
    assert await api.refused("GET", "wait/group", group="h", **soon) == (
        408,
        "there is no group h after 0 ms",
    )
    assert (await api.get("wait/group", group="h", state="Dead", **soon))["members"] == []
    assert await api.refused("GET", "wait/group") == (400, "group is missing")
    assert (await api.refused("GET", "wait/lag", group="g", **soon))[1].startswith(
        "group g is behind by {'t-0': 2}"
    )
    assert (await api.get("wait/lag", group="g", lag=2, topic="t", **soon))["group"] == "g"
    assert (await api.refused("GET", "wait/lag", group="g", lag=1, **soon))[0] == 408
    assert (await api.refused("GET", "wait/lag", group="h", lag=1, **soon))[
        1
    ] == "there is no group h after 0 ms"


# --- the broker and its connections ---------------------------------------------------------------------------------


async def test_the_broker_is_shown_and_restarted_on_its_ports(api: Api, tmp_path: Path) -> None:
    await api.do("POST", "topics/t", {"records": ["a"]})
    before = await api.get("broker")
    name, port = api.host.bootstrap.rsplit(":", 1)
    assert before == {
        "ready": True, "bootstrap": api.host.bootstrap, "version": __version__, "starts": 1,
        "data": [str(tmp_path / "data")], "broker_id": 1, "cluster_id": before["cluster_id"],
        "listeners": {"PLAINTEXT": [f"{name}:{port}"]},
    }  # fmt: skip
    assert len(before["cluster_id"]) == 22
    for number, body in enumerate((None, {}, {"crash": True}, {"down_ms": 1, "crash": False}), 2):
        assert await api.do("POST", "broker/restart", body) == {**before, "starts": number}
        assert [record["value"] for record in (await api.get("topics/t/records"))["records"]] == ["a"]
    for down_ms in (-1, 3_600_001, True, "1", 1.5):
        assert await api.refused("POST", "broker/restart", {"down_ms": down_ms}) == (
            400, "down_ms: a whole number from 0 to 3600000 expected",
        )  # fmt: skip
    assert await api.refused("POST", "broker/restart", {"crash": 1}) == (400, "crash: true or false expected")
    assert api.host.starts == 5


async def test_a_broker_that_is_down_says_so(api: Api) -> None:
    assert await api("POST", "broker/stop") == (204, None)
    while api.host.broker is not None:
        await trio.sleep(0.001)
    shown = await api.get("broker")
    assert (shown["ready"], "broker_id" in shown, shown["bootstrap"]) == (False, False, api.host.bootstrap)
    for path in ("topics", "connections", "groups"):
        assert await api.refused("GET", path) == (503, "the broker is down")
    assert await api.refused("POST", "broker/restart") == (503, "the broker was stopped")
    with pytest.raises(NotRunningError):
        await api.host.running()


async def test_connections_are_shown_and_closed(api: Api) -> None:
    assert await api.get("connections") == {"connections": []}
    async with await connected(api, "one") as peer, await connected(api, "two") as two:
        first, second = (await api.get("connections"))["connections"]
        assert (first["client_id"], second["client_id"]) == ("one", "two")
        here = peer.socket.getsockname()
        assert first == {
            "id": first["id"], "listener": "PLAINTEXT", "peer": f"{here[0]}:{here[1]}", "principal": "User:ANONYMOUS",
            "client_id": "one", "software": "", "answering": False,
        }  # fmt: skip
        assert await api("DELETE", f"connections/{second['id']}") == (204, None)
        assert await two.receive_some() == b""
        assert [each["id"] for each in (await api.get("connections"))["connections"]] == [first["id"]]
        await api.do("DELETE", f"connections/{first['id']}", reset="true")
        with pytest.raises(trio.BrokenResourceError):
            await peer.receive_some()
        assert await api.refused("DELETE", "connections/99") == (404, "there is no connection 99")


# --- all of them ----------------------------------------------------------------------------------------------------


async def test_what_is_not_there_is_said(api: Api) -> None:
    assert await api.refused("GET", "nowhere") == (404, "there is nothing at /v1/nowhere")
    assert await api.refused("GET", "topics/a/b") == (404, "there is nothing at /v1/topics/a/b")
    assert await api.refused("PUT", "topics/t") == (405, "/v1/topics/t takes GET, POST, DELETE")
    assert await api.refused("GET", "broker", x=1) == (400, "there is no parameter x; there are: none")
    assert await api.refused("POST", "seeds", [1]) == (400, "a JSON object is expected as the body")
    assert await api.refused("POST", "seeds", {"topics": {"\ud800": {}}}) == (
        400,
        "half a character (\\ud800) is no text",
    )
    assert await api.refused("GET", "topics/%ED%A0%80") == (404, "there is no topic \ufffd\ufffd\ufffd")


async def test_broker_is_prepared_once_and_announced(tmp_path: Path) -> None:
    told: list[str] = []

    async def prepare(broker: Any) -> None:
        told.append("prepared")

    host = host_in(tmp_path, prepare=prepare)
    host.attached = lambda _: told.append("attached")
    async with trio.open_nursery() as nursery:
        await nursery.start(host.run)
        port = int(host.bootstrap.rpartition(":")[2])
        between: list[bool] = []

        def look() -> None:
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind(("127.0.0.1", port))  # nobody listens meanwhile
                between.append(host.broker is None)

        first = host.broker
        assert await host.restart(look) is not first
        host.restart_soon()
        host.restart_soon(look)  # one is under way already
        assert host.starts == 2
        while host.starts == 2:
            await trio.sleep(0.001)
        host.stop()
    assert told == ["attached", "prepared", "attached", "attached"]
    assert (between, host.has_failed, host.broker) == ([True], False, None)
    host.restart_soon(look)  # it was stopped: nothing is done


def test_document_has_every_route_with_parameters_and_body() -> None:
    described = document()
    assert {(method, path) for path, of in described["paths"].items() for method in of} == {
        (route.method.lower(), route.path) for route in router().routes
    }
    for route in router().routes:
        operation = described["paths"][route.path][route.method.lower()]
        assert (operation["operationId"], operation["summary"]) == (route.handler.__name__, route.summary)
        parameters = [(parameter["name"], parameter["in"]) for parameter in operation.get("parameters", ())]
        in_path = [(part[1:-1], "path") for part in route.path.split("/") if part.startswith("{")]
        assert parameters == [*in_path, *((field.name, "query") for field in route.query)]
        assert ("parameters" in operation) is bool(parameters)
        assert all(row["required"] for row in operation.get("parameters", ()) if row["in"] == "path")
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        assert body == (None if route.body is None else dict(route.body))
        assert operation["responses"]["200"]["content"]["application/json"]["schema"] == dict(
            route.answer or {}
        )
        assert {*operation["responses"]} == {"200", "204", "default"}
