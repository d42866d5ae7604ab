"""Kafka Connect by the routes of the console: what is shown and done, what is masked, and what needs which right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.console.connect_client import (
    MASK,
    ConnectClient,
    connects_of,
    masked,
    unmasked,
    without_secrets,
)
from tests.support.connect_workers import PLUGIN, TRACE, worker
from tests.support.console import Visitor, console_beside, console_of
from tests.support.secured import SECURED

BASE = "/api/connect/files/connectors"


async def test_connectors_are_shown_and_steered(tmp_path: Path) -> None:
    with worker() as workers:
        workers.add("good")
        workers.add(
            "bad one", trace=f"{TRACE} password hunter2", file="/x", db_password="hunter2", pin="4711"
        )
        connects = {"files": ConnectClient(workers.url), "gone": ConnectClient("http://127.0.0.1:1")}
        async with console_beside(tmp_path, connects=connects) as console:
            visitor = await console.visitor()
            clusters = (await visitor.get("/api/connect"))["clusters"]
            assert [(row["name"], row["version"]) for row in clusters] == [("files", "4.3.1"), ("gone", None)]
            assert (
                clusters[1]["error"]
                == "http://127.0.0.1:1 cannot be reached: nothing listens there (connection refused)"
            )
            page = await visitor.get(BASE, sort="failed", order="desc")
            assert [(row["name"], row["state"], row["tasks"]) for row in page["rows"]] == [
                ("bad one", "RUNNING", {"FAILED": 1}), ("good", "RUNNING", {"RUNNING": 1}),
            ]  # fmt: skip
            assert (await visitor.get(BASE, state="FAILED"))["total"] == page["failed"] == 1
            path = f"{BASE}/bad%20one"
            shown = await visitor.get(path)
            assert shown["tasks"][0]["trace"] == f"{TRACE} password {MASK}"
            config = shown["config"]
            assert (config["db.password"], config["pin"], config["file"]) == (MASK, MASK, "/x")
            assert shown["topics"] == ["lines"]
            changed = {**config, "topic": "", "batch.size": "x"}
            body = {"config": changed, "connector": "bad one"}
            wrong = await visitor.do("POST", "/api/connect/files/validate", body)
            errors = {row["name"]: row["errors"] for row in wrong["settings"] if row["errors"]}
            assert (wrong["error_count"], [*errors]) == (2, ["topic", "batch.size"])
            assert errors["batch.size"] == [f"Invalid value x for configuration batch.size, pin {MASK}"]
            await visitor.do("PUT", f"{path}/config", {"config": {**config, "file": "/y"}})
            assert workers.configs["bad one"] == {
                "name": "bad one", "connector.class": PLUGIN, "tasks.max": "1", "topic": "lines", "file": "/y",
                "db.password": "hunter2", "pin": "4711",
            }  # fmt: skip
            for state, result in (("pause", "PAUSED"), ("stop", "STOPPED"), ("resume", "RUNNING")):
                await visitor.do("PUT", f"{path}/state", {"state": state})
                assert (await visitor.get(path))["state"] == result
            await visitor.do("POST", f"{path}/tasks/0/restart")
            await visitor.do("POST", f"{path}/restart", {"tasks": True, "failed": True})
            assert workers.asked[-1] == "POST /connectors/bad%20one/restart?includeTasks=true&onlyFailed=true"
            await visitor.do(
                "POST", BASE, {"name": "new", "config": {"connector.class": PLUGIN, "topic": "t"}}
            )
            for method, where, body, status, text in (
                ("POST", BASE, {"name": "new", "config": {}}, 409, "Connector new already exists"),
                ("POST", BASE, {"name": "a/b", "config": {}}, 400, "name: a text without a slash expected"),
                ("POST", BASE, {"name": "x", "config": {"password": MASK}}, 400, "password: the value is masked"),
                ("POST", BASE, {"name": "x", "config": {"connector.class": PLUGIN, "pin": "0000"}}, 400,
                 f"Invalid value {MASK} for configuration pin"),
                ("PUT", f"{path}/state", {"state": "delete"}, 400, "state: one of pause, resume, stop expected"),
                ("DELETE", path, {"confirm": "good"}, 409, "this cannot be undone"),
                ("GET", f"{BASE}/none", None, 404, "Connector none not found"),
                ("GET", "/api/connect/gone/connectors", None, 502, "http://127.0.0.1:1 cannot be reached"),
                ("GET", "/api/connect/other/connectors", None, 404, "there is no Kafka Connect cluster 'other'"),
            ):  # fmt: skip
                answer = await visitor.ask(method, where, body)
                assert (answer.status, text in answer.json["error"]) == (status, True), answer
            await visitor.do("DELETE", path, {"confirm": "bad one"})
            assert [*workers.configs] == ["good", "new"]
            async with console_of(console, connects=connects, is_read_only=True) as reader:
                assert (await reader.get(BASE))["total"] == 2
                await _is_refused(reader, "POST", f"{BASE}/good/restart", "it was started with --read-only")
                await _is_refused(reader, "POST", "/api/topics", "it was started with --read-only")


async def test_connectors_need_rights_of_the_cluster(tmp_path: Path) -> None:
    with worker() as workers:
        workers.add("c")
        async with console_beside(
            tmp_path, SECURED, connects={"files": ConnectClient(workers.url)}
        ) as console:
            admin = await console.visitor(user="admin", password="admin-secret")
            ann = await console.visitor(user="ann", password="ann-secret")
            acl = {
                "resource_type": "cluster", "resource_name": "kafka-cluster", "pattern_type": "literal",
                "principal": "User:ann", "host": "*", "operation": "describe", "permission": "allow",
            }  # fmt: skip
            await _is_refused(ann, "GET", BASE, "this needs the right to describe the cluster")
            assert workers.asked == []
            await admin.do("POST", "/api/acls", acl)
            other = await console.visitor(user="ann", password="ann-secret")
            assert (await other.get(BASE))["total"] == 1
            await _is_refused(other, "POST", f"{BASE}/c/restart", "this needs the right to alter the cluster")
            await admin.do("POST", f"{BASE}/c/restart", {})


async def _is_refused(visitor: Visitor, method: str, path: str, reason: str) -> None:
    answer = await visitor.ask(method, path, None if method == "GET" else {})
    assert answer.status == 403
    assert reason in answer.json["error"]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["http://a:1", "b=https://u:p@c:2/x"], {"connect": "http://a:1", "b": "https://c:2/x"}),
        (["a:1"], "'a:1' is not the address of a Kafka Connect worker: http://HOST:PORT is expected"),
        (["a=http://x", "a=http://y"], "two clusters of Kafka Connect are called 'a': give NAME=URL"),
        (["a b=http://x"], "'a b' is not a name: up to 60 letters, digits, dots, dashes and underscores"),
        ([f"a{number}=http://x" for number in range(17)], "more than 16 clusters of Kafka Connect"),
    ],
)
def test_workers_are_named_by_the_options(texts: list[str], expected: Any) -> None:
    try:
        result: Any = {name: client.url for name, client in connects_of(texts).items()}
    except ValueError as error:
        result = str(error)
    assert result == expected


def test_masks_hide_passwords_and_keep_their_values() -> None:
    config = {
        "a.password": "pw", "sasl.jaas.config": "x", "pin": "4711", "url": "jdbc:x://ann:pw@host/db", "token": "",
        "secret": "${file:/run/secrets:pw}", "topic": "t", "none": None,
    }  # fmt: skip
    shown = masked(config, frozenset(("pin",)))
    assert shown == {
        "a.password": MASK, "sasl.jaas.config": MASK, "pin": MASK, "url": f"jdbc:x://{MASK}@host/db", "token": "",
        "secret": "${file:/run/secrets:pw}", "topic": "t", "none": None,
    }  # fmt: skip
    texts = {name: value for name, value in shown.items() if value is not None}
    assert unmasked({**texts, "topic": "u"}, config, frozenset(("pin",)))["url"] == config["url"]
    with pytest.raises(ValueError, match=r"url: the value is masked"):
        unmasked({"url": f"jdbc:x://{MASK}@evil/db"}, config)
    assert without_secrets("it is pw of http://a:b@c", config) == f"it is {MASK} of http://{MASK}@c"
