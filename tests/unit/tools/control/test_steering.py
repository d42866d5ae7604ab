"""Routes of the control API over requests, faults, the clock and snapshots: effects, answers, limits, errors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from barnabas.tools.control.clock import VirtualClock
from barnabas.tools.control.state import state_of
from tests.support.control_api import Api, connected

# --- requests and faults --------------------------------------------------------------------------------------------


async def test_recorded_requests_are_found_waited_for_and_forgotten(api: Api) -> None:
    for client_id in ("one", "two", "three"):
        await (await connected(api, client_id)).aclose()
    result = await api.get("requests")
    assert (result["last_id"], [each["client_id"] for each in result["requests"]]) == (
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
    assert (await api.get("wait/request", client_id="two", timeout_ms=3_600_000))["id"] == 2
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


async def test_faults_are_added_changed_counted_and_removed(api: Api) -> None:
    created = await api.do("POST", "faults", {"name": "f", "short": "Metadata -> error=INVALID_REQUEST"})
    assert (created["name"], created["on"], created["hits"], created["enabled"]) == (
        "f",
        {"api": "Metadata"},
        0,
        True,
    )
    assert await api.get("faults/f") == created
    await (await connected(api)).aclose()
    assert (await api.get("faults/f"))["hits"] == 1
    assert (await api.do("PATCH", "faults/f", {"enabled": False}))["enabled"] is False
    await (await connected(api)).aclose()
    assert (await api.get("faults/f"))["hits"] == 1
    for body in ({"enabled": 1}, {"enabled": True, "name": "g"}, {}):
        status, words = await api.refused("PATCH", "faults/f", body)
        assert (status, words.startswith("enabled expected")) == (400, True)
    result = await api.do("POST", "faults/reset", {"seed": 7})
    assert (result["seed"], result["faults"][0]["hits"]) == (7, 0)
    assert (await api.do("POST", "faults/reset"))["seed"] == 7
    for seed in ("x", True, 1.5):
        assert await api.refused("POST", "faults/reset", {"seed": seed}) == (
            400,
            "seed: a whole number expected",
        )
    assert (await api.refused("POST", "faults", {"short": "Fetch -> close=before", "do": {}}))[
        1
    ] == "do and short exclude each other"
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
    assert all(row["name"] and row["text"] and isinstance(row["parameters"], dict) for row in sets)
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


async def test_clients_outlive_clock_jumps_only_on_request(api: Api) -> None:
    api.host.clock = VirtualClock()
    async with await connected(api):
        broker = api.host.broker
        assert broker is not None
        (connection,) = broker.connections
        connection.info.login = login = SimpleNamespace(expires_ms=7000)  # type: ignore[assignment]
        postponed: list[Any] = []
        broker.services.group_coordinator.postpone = lambda kinds, ms: postponed.append((sorted(kinds), ms))  # type: ignore[method-assign]
        before = connection.last_active
        await api.do("POST", "clock/advance", {"ms": 1500})
        assert (connection.last_active, login.expires_ms, postponed) == (before, 7000, [])
        await api.do("POST", "clock/advance", {"ms": 2500, "keep_clients": True})
        assert (connection.last_active, login.expires_ms) == (before + 2.5, 9500)
        assert postponed == [(["join", "rejoin", "resync", "revocation", "session", "sync"], 2500)]
        login.expires_ms = None
        await api.do("POST", "clock/advance", {"ms": 1, "keep_clients": True})
        assert login.expires_ms is None
        connection.info.login = None


# --- snapshots ------------------------------------------------------------------------------------------------------


async def test_snapshots_are_taken_put_back_and_removed(api: Api) -> None:
    await api.do("POST", "topics/t", {"records": ["a"]})
    assert await api.get("snapshots") == {"snapshots": []}
    taken = await api.do("POST", "snapshots", {"name": "one"})
    assert (taken["name"], [Path(path).name for path in taken["directories"]]) == ("one", ["one"])
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


async def test_reset_restores_baseline_and_keeps_earlier_snapshots(api: Api) -> None:
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
