"""`python -m compat.connect`: each action of the console's Kafka Connect page, on Apache Kafka's own worker.

The rule: the state of a connector in the console is compared with the worker's REST interface, and copied records are
read from the broker.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.running import import_path
from compat.kafka import free_port, release
from compat.kafka.process import LIGHT_JVM
from compat.kafka.releases import ROOT, fetched_jars
from compat.matrix.brokers import Barnabas

HERE = Path(__file__).resolve().parent
SECONDS_MAX = 120.0
POLL_SECONDS = 0.3
LINES = [f"line {number}" for number in range(20)]
SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
MASK = "********"
JAAS, SECRET = "producer.override.sasl.jaas.config", "x password=hunter2;"


class ConnectWorker:
    """A distributed worker with Kafka's file connectors."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = directory / "connect.log"
        storage = {
            f"{name}.storage.{key}": value
            for name in ("offset", "status", "config")
            for key, value in (("topic", f"connect-{name}"), ("replication.factor", "1"), ("partitions", "1"))
        }
        properties = {
            "bootstrap.servers": bootstrap, "group.id": "connect", "listeners": self.url, "plugin.discovery": "only_scan",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter", "offset.flush.interval.ms": "1000",
            **{name: value for name, value in storage.items() if name != "config.storage.partitions"},
        }  # fmt: skip
        path = directory / "worker.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        of = release("4.x")
        place = ROOT / ".tools" / f"connect-{of.version}"
        jars = fetched_jars(HERE / "connect.xml", place, f"-Dkafka.version={of.version}")
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        command = ["java", *LIGHT_JVM, *of.logging_options(), "-cp", f"{jars}/*", main, str(path)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def stop(self) -> None:
        """End it."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Console:
    """`barnabas console` with a worker, and a visitor of it."""

    def __init__(self, bootstrap: str, worker: str) -> None:
        options = ["--listen", "127.0.0.1:0", "-b", bootstrap, "--connect", f"files={worker}"]
        environment = {**os.environ, "PYTHONPATH": import_path()}
        command = [sys.executable, "-m", "barnabas", "console", *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        words = dict(word.split("=", 1) for word in self._process.stdout.readline().split() if "=" in word)
        self._url, self._headers = words["console"], {"Content-Type": "application/json"}
        session, cookie = _request("GET", f"{self._url}/api/session", {})
        self._headers |= {"Cookie": cookie, "X-Console-CSRF": session["csrf"]}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of an answer. Raises HTTPError."""
        return _request(method, f"{self._url}/api/connect/files{path}", self._headers, body)[0]

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()


def _request(method: str, url: str, headers: dict[str, str], body: Any = None) -> tuple[Any, str]:
    data = None if body is None and method == "GET" else json.dumps(body or {}).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        content = answer.read()
        return json.loads(content) if content else None, answer.headers.get("Set-Cookie", "").partition(";")[
            0
        ]


def refusal(work: Callable[[], Any]) -> tuple[int, str]:
    """Return status and error message of a request, which must fail."""
    try:
        work()
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["error"]
    raise AssertionError("it was not refused")


def until(what: str, work: Callable[[], Any]) -> Any:
    """Repeat `work` until its result is true; returns it. Raises AssertionError with the last result after a while."""
    ends_at = time.monotonic() + SECONDS_MAX
    last: Any = None
    while time.monotonic() < ends_at:
        try:
            if last := work():
                print(f"good  {what}", flush=True)
                return last
        except urllib.error.HTTPError as error:
            last = error.read()  # a worker that rebalances refuses for a moment
        except urllib.error.URLError as error:
            last = error
        time.sleep(POLL_SECONDS)
    raise AssertionError(f"{what}: not within {SECONDS_MAX:g} s: {last}")


def check(what: str, actual: object, expected: object) -> None:
    """Compare two values, and print `what` if they are equal. Raises AssertionError."""
    assert actual == expected, f"{what}: {actual!r}, not {expected!r}"
    print(f"good  {what}", flush=True)


def acts(console: Console, worker: str, bootstrap: str, directory: Path) -> None:
    """Do each action, and check the worker and the broker. Raises AssertionError."""
    source, target = directory / "in.txt", directory / "none" / "out.txt"
    source.write_text("".join(f"{line}\n" for line in LINES))
    path = f"/connectors/{quote('in lines', safe='')}"

    def does(method: str, where: str, body: Any = None) -> Callable[[], bool]:
        return lambda: console.ask(method, where, body) is None

    def state() -> Any:
        return console.ask("GET", path)

    def is_running() -> bool:
        shown = state()
        return bool(shown["tasks"]) and {"RUNNING"} == {part["state"] for part in (shown, *shown["tasks"])}

    def failed_task() -> Any:
        tasks = console.ask("GET", "/connectors/out")["tasks"]
        return tasks and tasks[0]["state"] == "FAILED" and tasks[0]

    until("the worker is shown", lambda: _request("GET", worker, {})[0])
    plugins = until("plugins are listed", lambda: console.ask("GET", "/plugins"))
    assert {SOURCE, SINK} <= {plugin["class"] for plugin in plugins}
    config = {"connector.class": SOURCE, "tasks.max": "1", "file": str(source), "name": "in lines"}
    answer = console.ask("POST", "/validate", {"config": config})
    wrong = {row["name"]: row["errors"] for row in answer["settings"] if row["errors"]}
    check("a config without a topic is refused by its plugin", [*wrong], ["topic"])
    config |= {
        "topic": "lines",
        "errors.tolerance": "none",
        "producer.override.client.id": "copier",
        JAAS: SECRET,
    }
    until("a connector is created", does("POST", "/connectors", {"name": "in lines", "config": config}))
    until("it runs", is_running)
    shown = state()
    check("its password is masked", shown["config"][JAAS], MASK)
    check("its lines are copied", read(bootstrap, "lines", len(LINES)), LINES)
    until("its topic is shown", lambda: state()["topics"] == ["lines"])
    edited = {**shown["config"], "batch.size": "100"}
    until("its config is changed", does("PUT", f"{path}/config", {"config": edited}))
    own = _request("GET", f"{worker}{path}/config", {})[0]
    check("the masked value stays, the new one is there", (own[JAAS], own["batch.size"]), (SECRET, "100"))
    for act, result in (
        ("pause", "PAUSED"),
        ("resume", "RUNNING"),
        ("stop", "STOPPED"),
        ("resume", "RUNNING"),
    ):
        until(f"{act} is taken", does("PUT", f"{path}/state", {"state": act}))
        until(f"{act}: {result.lower()}", lambda result=result: state()["state"] == result)  # type: ignore[misc]
    failing = {"connector.class": SINK, "topics": "lines", "file": str(target), "tasks.max": "1"}
    until(
        "a connector that must fail is created",
        does("POST", "/connectors", {"name": "out", "config": failing}),
    )
    task = until("its failed task is shown with the error", failed_task)
    assert "ConnectException" in task["trace"], task
    failed = console.ask("GET", "/connectors?state=FAILED")["rows"]
    check("the list finds it by its state", [row["name"] for row in failed], ["out"])
    target.parent.mkdir()
    until("its task is restarted", does("POST", "/connectors/out/tasks/0/restart"))
    until("it copies", lambda: target.exists() and target.read_text().splitlines() == LINES)
    chosen = {"tasks": True, "failed": True}
    until("what has failed alone restarts", does("POST", "/connectors/out/restart", chosen))
    again = refusal(does("POST", "/connectors", {"name": "out", "config": failing}))
    check("one of the same name is refused", again, (409, "Kafka Connect: Connector out already exists"))
    check("without its name nothing is deleted", refusal(does("DELETE", path, {"confirm": "out"}))[0], 409)
    until("it is deleted", does("DELETE", path, {"confirm": "in lines"}))
    until("the other one too", does("DELETE", "/connectors/out", {"confirm": "out"}))
    until("none is left", lambda: console.ask("GET", "/connectors")["total"] == 0)


def read(bootstrap: str, topic: str, count: int) -> list[str]:
    """Return values of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: list[str] = []
    ends_at = time.monotonic() + SECONDS_MAX
    while len(values) < count and time.monotonic() < ends_at:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode())
    consumer.close()
    return values


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m compat.connect", description="The console and a worker of Connect."
    )
    parser.add_argument("--keep", action="store_true", help="keep the directory with all logs")
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="compat-connect-"))
    (directory / "broker").mkdir()
    broker = Barnabas(directory / "broker")
    broker.start()
    worker: ConnectWorker | None = None
    console: Console | None = None
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic("lines", 1, 1)]).values():
            future.result()
        worker = ConnectWorker(directory, broker.bootstrap)
        console = Console(broker.bootstrap, worker.url)
        acts(console, worker.url, broker.bootstrap, directory)
        assert not broker.complaints(), broker.complaints()
    except AssertionError as error:
        print(f"WRONG {error}\nlogs: {directory}", flush=True)
        return 1
    finally:
        for process in (console, worker, broker):
            if process is not None:
                process.stop()
    if not options.keep:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
