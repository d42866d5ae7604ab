"""What each route of the control API does and answers, limits of its parameters, and the errors with their status."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from barnabas import __version__
from barnabas.config.loading import BrokerConfig
from barnabas.tools.control.clock import VirtualClock
from barnabas.tools.control.host import Host, KeptPorts, NotRunningError
from barnabas.tools.control.openapi import document
from barnabas.tools.control.recorder import Filter, Recorder
from barnabas.tools.control.routes import dispatch, routes
from barnabas.tools.control.routes.state import _check_deleted
from barnabas.tools.control.state import state_of
from barnabas.tools.seeding.looking import NotThereError
from barnabas.tools.seeding.seeds import SeedError
from barnabas.wire.generated.metadata import MetadataRequest
from tests.unit.tools.tap.test_session import request

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class Api:
    """The control API of a broker in this process."""

    def __init__(self, host: Host) -> None:
        self.host = host

    async def __call__(self, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
        return await dispatch(
            self.host, method, f"/v1/{path}", {name: str(one) for name, one in query.items()}, body
        )

    async def get(self, path: str, **query: Any) -> Any:
        status, value = await self("GET", path, **query)
        assert status == 200, value
        return value

    async def do(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        status, value = await self(method, path, body, **query)
        assert status in (200, 204), value
        return value

    async def refused(self, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, str]:
        status, value = await self(method, path, body, **query)
        assert status >= 400
        return status, value["error"]


def host_in(directory: Path, **more: Any) -> Host:
    return Host(BrokerConfig({"log.dirs": str(directory / "data"), **SETTINGS}), recorder=Recorder(), **more)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    host = host_in(tmp_path)
    async with trio.open_nursery() as nursery:
        await nursery.start(host.run)
        yield Api(host)
        host.stop()


async def connected(api: Api, client_id: str = "app") -> trio.SocketStream:
    """A connection on which one request was answered."""
    name, _, port = api.host.bootstrap.rpartition(":")
    stream = await trio.open_tcp_stream(name, int(port))
    await stream.send_all(request(3, 12, 1, MetadataRequest(topics=[]), client_id))
    assert len(await stream.receive_some()) > 8
    return stream


# --- topics, records, groups ----------------------------------------------------------------------------------------


async def test_topics_are_made_shown_and_deleted(api: Api) -> None:
    made = await api.do(
        "POST", "topics/t", {"partitions": 2, "settings": {"retention.ms": "5"}, "records": ["a"]}
    )
    assert (made["name"], len(made["partitions"]), made["settings"]) == ("t", 2, {"retention.ms": "5"})
    assert await api.do("POST", "topics/plain")
    assert await api.get("topics/t") == made
    assert [one["name"] for one in (await api.get("topics"))["topics"]] == ["plain", "t"]
    await api.do("PUT", "groups/g/offsets", {"t": {"0": 1}})
    names = [one["name"] for one in (await api.get("topics", internal="true"))["topics"]]
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
    assert [one["name"] for one in (await api.get("topics", internal="false"))["topics"]] == ["t"]


async def test_records_are_appended_and_shown_from_any_place_on(api: Api) -> None:
    await api.do("POST", "topics/t", {"partitions": 2})
    wanted = [{"value": "a", "partition": 1}, {"value": "b", "partition": 0}, {"value": "c", "partition": 1}]
    assert await api.do("POST", "topics/t/records", {"records": wanted}) == {
        "records": [
            {"partition": 1, "offset": 0},
            {"partition": 0, "offset": 0},
            {"partition": 1, "offset": 1},
        ]
    }

    async def values(**query: Any) -> list[Any]:
        return [one["value"] for one in (await api.get("topics/t/records", **query))["records"]]

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
    found = await api.do("PUT", "groups/g/offsets", {"t": {"0": 1}})
    assert found["offsets"] == [{"topic": "t", "partition": 0, "offset": 1, "lag": 2}]
    assert await api.get("groups/g") == found
    assert [one["group"] for one in (await api.get("groups"))["groups"]] == ["g"]
    assert await api.refused("GET", "groups/h") == (404, "there is no group h")
    assert (await api.refused("PUT", "groups/g/offsets", {"none": {"0": "latest"}}))[0] == 400
    assert await api("DELETE", "groups/g") == (204, None)
    assert await api.refused("DELETE", "groups/g") == (404, "there is no group g")


def test_what_could_not_be_deleted_is_not_there_or_refused() -> None:
    _check_deleted("topic t", 0, 3)
    with pytest.raises(NotThereError, match="there is no topic t"):
        _check_deleted("topic t", 3, 3)
    with pytest.raises(SeedError, match=r"^group g: NON_EMPTY_GROUP$") as caught:
        _check_deleted("group g", 68, 69)
    assert not isinstance(caught.value, NotThereError)


async def test_waiting_ends_with_what_there_is_or_with_what_there_is_instead(api: Api) -> None:
    await api.do("POST", "topics/t", {"partitions": 2, "records": [{"value": "a", "partition": 0}] * 3})
    assert await api.get("wait/records", topic="t", count=3) == {"topic": "t", "records": 3}
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
        assert [one["value"] for one in (await api.get("topics/t/records"))["records"]] == ["a"]
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
    async with await connected(api, "one") as one, await connected(api, "two") as two:
        first, second = (await api.get("connections"))["connections"]
        assert (first["client_id"], second["client_id"]) == ("one", "two")
        here = one.socket.getsockname()
        assert first == {
            "id": first["id"], "listener": "PLAINTEXT", "peer": f"{here[0]}:{here[1]}", "principal": "User:ANONYMOUS",
            "client_id": "one", "software": "", "answering": False,
        }  # fmt: skip
        assert await api("DELETE", f"connections/{second['id']}") == (204, None)
        assert await two.receive_some() == b""
        assert [each["id"] for each in (await api.get("connections"))["connections"]] == [first["id"]]
        await api.do("DELETE", f"connections/{first['id']}", reset="true")
        with pytest.raises(trio.BrokenResourceError):
            await one.receive_some()
        assert await api.refused("DELETE", "connections/99") == (404, "there is no connection 99")


# --- requests and faults --------------------------------------------------------------------------------------------


async def test_recorded_requests_are_found_waited_for_and_forgotten(api: Api) -> None:
    for client_id in ("one", "two", "three"):
        await (await connected(api, client_id)).aclose()
    found = await api.get("requests")
    assert (found["last_id"], [each["client_id"] for each in found["requests"]]) == (
        3,
        ["one", "two", "three"],
    )
    for query, clients in (
        ({"limit": 2}, ["two", "three"]),
        ({"limit": 10_000}, ["one", "two", "three"]),
        ({"api": "METADATA", "since": 1}, ["two", "three"]),
        ({"client_id": "t*", "since": 2}, ["three"]),
        ({"version": 12}, ["one", "two", "three"]),
        ({"version": 11}, []),
        ({"topic": "t"}, []),
        ({"group": "g"}, []),
        ({"error_code": 3}, []),
        ({"api": "Fetch"}, []),
    ):
        assert [each["client_id"] for each in (await api.get("requests", **query))["requests"]] == clients
    for name, text, words in (
        ("limit", "0", "limit: a number from 1 to 10000 expected"),
        ("limit", "10001", "limit: a number from 1 to 10000 expected"),
        ("version", "x", "version: 'x' is not a whole number"),
        ("api", "Fetchh", "api: Fetchh is not the name of an API of Kafka"),
    ):
        assert await api.refused("GET", "requests", **{name: text}) == (400, words)
    assert (await api.get("wait/request", client_id="two", timeout_ms=0))["id"] == 2
    assert await api.refused("GET", "wait/request", client_id="x", timeout_ms=0) == (
        408,
        "no such request in 0 ms",
    )
    for text in ("-1", "3600001"):
        assert (await api.refused("GET", "wait/request", timeout_ms=text))[0] == 400
    assert await api("DELETE", "requests") == (204, None)
    assert await api.get("requests") == {"last_id": 3, "requests": []}
    api.host.recorder = None
    assert await api.refused("GET", "requests") == (409, "requests are not recorded here")


def test_a_filter_looks_at_each_of_its_fields_alone() -> None:
    one = SimpleNamespace(
        id=5,
        api="Fetch",
        version=4,
        client_id="app",
        connection_id="other",
        topics={"t"},
        groups={"g"},
        error_codes=(3,),
    )
    for name, right, wrong in (
        ("api", "fetch", "Fet"), ("version", 4, 5), ("client_id", "a?p", "other"), ("topic", "t*", "g"),
        ("group", "g", "t"), ("error_code", 3, 4), ("since", 4, 5),
    ):  # fmt: skip
        assert Filter(**{name: right}).takes(one)  # type: ignore[arg-type]
        assert not Filter(**{name: wrong}).takes(one)  # type: ignore[arg-type]
    one.client_id = None
    assert Filter(client_id="").takes(one)  # type: ignore[arg-type]
    assert not Filter(client_id="None").takes(one)  # type: ignore[arg-type]


async def test_faults_are_added_changed_counted_and_removed(api: Api) -> None:
    made = await api.do("POST", "faults", {"name": "f", "short": "Metadata -> error=INVALID_REQUEST"})
    assert (made["name"], made["on"], made["hits"], made["enabled"]) == ("f", {"api": "Metadata"}, 0, True)
    assert await api.get("faults/f") == made
    await (await connected(api)).aclose()
    assert (await api.get("faults/f"))["hits"] == 1
    assert (await api.do("PATCH", "faults/f", {"enabled": False}))["enabled"] is False
    await (await connected(api)).aclose()
    assert (await api.get("faults/f"))["hits"] == 1
    for body in ({"enabled": 1}, {"enabled": True, "name": "g"}, {}):
        status, words = await api.refused("PATCH", "faults/f", body)
        assert (status, words.startswith("enabled expected")) == (400, True)
    found = await api.do("POST", "faults/reset", {"seed": 7})
    assert (found["seed"], found["faults"][0]["hits"]) == (7, 0)
    assert (await api.do("POST", "faults/reset"))["seed"] == 7
    for seed in ("x", True, 1.5):
        assert await api.refused("POST", "faults/reset", {"seed": seed}) == (
            400,
            "seed: a whole number expected",
        )
    assert (await api.refused("POST", "faults", {"short": "Fetch -> close=before", "do": {}}))[
        1
    ] == "do stands beside short, which says it"
    assert await api.refused("POST", "faults", {"short": 5}) == (400, "short: text expected")
    assert (await api.refused("POST", "faults", {"short": "Fetchh -> close=before"}))[0] == 400
    other = await api.do("POST", "faults", {"do": {"close": "before"}, "enabled": False})
    assert (other["name"], other["enabled"]) != ("f", True)
    assert await api("DELETE", "faults/f") == (204, None)
    assert await api.refused("GET", "faults/f") == (404, "there is no fault f")
    assert [each["name"] for each in (await api.get("faults"))["faults"]] == [other["name"]]
    assert await api("DELETE", "faults") == (204, None)
    assert (await api.get("faults"))["faults"] == []


async def test_named_sets_of_faults_are_told_and_used(api: Api) -> None:
    sets = (await api.get("faults/sets"))["sets"]
    assert all(one["name"] and one["text"] and isinstance(one["parameters"], dict) for one in sets)
    name = sets[0]["name"]
    used = (await api.do("POST", f"faults/sets/{name}"))["faults"]
    assert used == (await api.get("faults"))["faults"]
    status, words = await api.refused("POST", "faults/sets/none")
    assert (status, words.startswith("there is no set none; there are ")) == (404, True)


# --- the clock ------------------------------------------------------------------------------------------------------


async def test_a_clock_is_moved_stopped_and_driven(api: Api) -> None:
    assert await api.refused("GET", "clock") == (
        409, "this broker has the system's clock; start it with --virtual-clock (clock.virtual=true)",
    )  # fmt: skip
    real_s = 1000.0
    api.host.clock = VirtualClock(monotonic=lambda: real_s, wall_ns=lambda: 5_000_000_000_000)
    usual = {"now_ms": 5_000_000, "ahead_ms": 0, "frozen": False, "factor": 1.0}
    assert await api.get("clock") == usual
    assert await api.do("POST", "clock/advance", {"ms": 1500.4}) == {
        **usual,
        "now_ms": 5_001_500,
        "ahead_ms": 1500,
    }
    assert (await api.do("POST", "clock/freeze"))["frozen"] is True
    real_s += 1
    assert await api.do("POST", "clock/advance", {"ms": 0}) == {
        **usual,
        "now_ms": 5_001_500,
        "ahead_ms": 500,
        "frozen": True,
    }
    assert (await api.do("POST", "clock/resume"))["frozen"] is False
    assert (await api.do("POST", "clock/speed", {"factor": 2}))["factor"] == 2.0
    real_s += 1
    assert (await api.get("clock"))["now_ms"] == 5_003_500
    for ms in (None, -1, True, "1", 100 * 365 * 86_400_000 + 1):
        assert await api.refused("POST", "clock/advance", {"ms": ms}) == (
            400,
            "ms: a number from 0 to 3153600000000 expected",
        )
    assert (await api.refused("POST", "clock/advance", {"ms": 1, "keep_clients": 1}))[
        1
    ] == "keep_clients: true or false expected"
    for factor in (None, 0, -1, True, "1", 100_001):
        assert await api.refused("POST", "clock/speed", {"factor": factor}) == (
            400, "factor: a number above 0, at most 100000, expected",
        )  # fmt: skip
    assert (await api.do("POST", "clock/speed", {"factor": 100_000}))["factor"] == 100_000.0


async def test_clients_are_kept_while_time_passes_only_where_that_is_asked_for(api: Api) -> None:
    api.host.clock = VirtualClock()
    async with await connected(api):
        broker = api.host.broker
        assert broker is not None
        (connection,) = broker.connections
        connection.info.login = login = SimpleNamespace(expires_ms=7000)  # type: ignore[assignment]
        put_off: list[Any] = []
        broker.services.group_coordinator.put_off = lambda kinds, ms: put_off.append((sorted(kinds), ms))  # type: ignore[method-assign]
        before = connection.last_active
        await api.do("POST", "clock/advance", {"ms": 1500})
        assert (connection.last_active, login.expires_ms, put_off) == (before, 7000, [])
        await api.do("POST", "clock/advance", {"ms": 2500, "keep_clients": True})
        assert (connection.last_active, login.expires_ms) == (before + 2.5, 9500)
        assert put_off == [(["join", "rejoin", "resync", "revocation", "session", "sync"], 2500)]
        login.expires_ms = None
        await api.do("POST", "clock/advance", {"ms": 1, "keep_clients": True})
        assert login.expires_ms is None
        connection.info.login = None


# --- snapshots ------------------------------------------------------------------------------------------------------


async def test_snapshots_are_taken_put_back_and_removed(api: Api) -> None:
    await api.do("POST", "topics/t", {"records": ["a"]})
    assert await api.get("snapshots") == {"snapshots": []}
    assert await api.do("POST", "snapshots", {"name": "one"}) == {"name": "one"}
    assert await api.refused("POST", "snapshots", {"name": "one"}) == (409, "there is a snapshot one already")
    await api.do("POST", "topics/t/records", {"records": ["b"]})
    assert await api.do("POST", "snapshots", {"name": "two"})
    assert await api.do("POST", "snapshots/one/restore") == {"bootstrap": api.host.bootstrap}
    assert await api.get("wait/records", topic="t", count=1) == {"topic": "t", "records": 1}
    assert await api.do("POST", "snapshots", {"name": "two", "replace": True})
    assert await api.get("snapshots") == {"snapshots": ["one", "two"]}
    assert await api.refused("POST", "snapshots/none/restore") == (
        409,
        "there is no snapshot none; there are: one, two",
    )
    assert (await api.refused("POST", "reset"))[1].startswith("there is nothing to go back to")
    assert await api("DELETE", "snapshots/one") == (204, None)
    assert await api.refused("DELETE", "snapshots/one") == (409, "there is no snapshot one; there are: two")
    for body in ({"name": 5}, {}, {"name": "x", "replace": 1}):
        assert await api.refused("POST", "snapshots", body) == (
            400,
            "a name expected, and replace as true or false",
        )
    assert (await api.refused("POST", "snapshots", {"name": ".x"}))[0] == 409
    assert await api.refused("POST", "fork", {"snapshot": 5}) == (400, "snapshot: a name expected")
    assert (await api.refused("POST", "fork"))[0] == 409


async def test_a_reset_goes_back_to_the_beginning_and_keeps_what_was_there_before(api: Api) -> None:
    clock = api.host.clock = VirtualClock()
    await api.do("POST", "snapshots", {"name": "older"})
    await api.do("POST", "snapshots", {"name": "initial"})
    await api.do("POST", "topics/t")
    await api.do("POST", "snapshots", {"name": "later"})
    await api.do("POST", "faults", {"short": "Fetch -> close=before"})
    await (await connected(api)).aclose()
    clock.freeze()
    clock.run_at(5.0)
    assert await api.do("POST", "reset") == {"bootstrap": api.host.bootstrap}
    assert (await api.get("snapshots"))["snapshots"] == ["initial", "older"]
    assert ((await api.get("topics"))["topics"], (await api.get("faults"))["faults"]) == ([], [])
    assert ((await api.get("requests"))["requests"], clock.is_frozen, clock.factor) == ([], False, 1.0)


async def test_a_fork_gets_copies_and_settings_of_its_own(api: Api, tmp_path: Path) -> None:
    started: list[Any] = []

    async def start(config: Any, on_end: Any) -> Any:
        started.append((config, on_end))
        return {"bootstrap": "b"}

    state_of(api.host).start_fork = start
    await api.do("POST", "topics/t", {"records": ["a"]})
    assert await api.do("POST", "fork") == {"bootstrap": "b"}
    await api.do("POST", "snapshots", {"name": "one"})
    assert await api.do("POST", "fork", {"snapshot": "one"}) == {"bootstrap": "b"}
    assert (await api.get("snapshots"))["snapshots"] == ["one"]
    for number, (config, on_end) in enumerate(started, 1):
        directory = tmp_path / "data.forks" / str(number)
        assert config.log_dirs == (str(directory),) or list(config.log_dirs) == [str(directory)]
        assert list(config.listeners()) == ["PLAINTEXT://127.0.0.1:0"]
        assert config.texts_of("offsets.topic.num.partitions")[-1][0] == "1"
        assert (directory / "t-0").is_dir()
        on_end()
        assert not directory.exists()
    assert (await api.refused("POST", "fork", {"snapshot": "none"}))[0] == 409
    assert state_of(api.host) is state_of(api.host)


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


async def test_a_defect_is_logged_and_answered(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise KeyError

    api.host.faulting.faults.clear = fail  # type: ignore[method-assign]
    assert await api.refused("DELETE", "faults") == (500, "KeyError")
    assert "DELETE /v1/faults failed" in caplog.text


def test_the_document_has_every_route_with_its_parameters_and_its_body() -> None:
    found = document()
    assert {(method, path) for path, of in found["paths"].items() for method in of} == {
        (one.method.lower(), one.path) for one in routes()
    }
    for route in routes():
        operation = found["paths"][route.path][route.method.lower()]
        assert (operation["operationId"], operation["summary"]) == (route.handler.__name__, route.summary)
        parameters = [(one["name"], one["in"]) for one in operation.get("parameters", ())]
        in_path = [(part[1:-1], "path") for part in route.path.split("/") if part.startswith("{")]
        assert parameters == [*in_path, *((one.name, "query") for one in route.query)]
        assert ("parameters" in operation) is bool(parameters)
        assert all(one["required"] for one in operation.get("parameters", ()) if one["in"] == "path")
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        assert body == (None if route.body is None else dict(route.body))
        assert operation["responses"]["200"]["content"]["application/json"]["schema"] == dict(
            route.answer or {}
        )
        assert {*operation["responses"]} == {"200", "204", "default"}


def test_ports_that_were_chosen_are_chosen_again_in_their_order() -> None:
    class Network:
        def __init__(self) -> None:
            self.bound: list[tuple[str, int]] = []

        def bind(self, host: str, port: int) -> Any:
            self.bound.append((host, port))
            return [SimpleNamespace(address=(host, port or 5000 + len(self.bound)))]

    network = Network()
    ports = KeptPorts(network)  # type: ignore[arg-type]
    for _ in range(3):
        ports.begin()
        for host in ("a", "b", "c"):
            ports.bind(host, 0)
    assert network.bound == [("a", 0), ("b", 0), ("c", 0), *[("a", 5001), ("b", 5002), ("c", 5003)] * 2]


async def test_a_broker_is_prepared_once_and_told_to_whoever_wants_to_know(tmp_path: Path) -> None:
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
            with socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind(("127.0.0.1", port))  # nobody listens meanwhile
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
