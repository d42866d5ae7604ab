"""`serve --fault`, `--control` and `--virtual-clock` at nodes that are controllers, or brokers and controllers."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.running import import_path
from barnabas.tools.localcluster.ports import free_port
from tests.e2e.conftest import PROGRAM, ROOT, STOP_SECONDS_MAX
from tests.support.pages import blocks, typed

pytestmark = pytest.mark.e2e

WAIT_S = 60
ENVIRONMENT = {**os.environ, "PYTHONPATH": import_path(ROOT)}


class Served:
    """A node that runs: what it said, and its control API."""

    def __init__(self, line: str) -> None:
        self.line = line
        match = re.search(r" control=(\S+)", line)
        assert match is not None, line
        self._url = match[1]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        with urlopen(Request(f"{self._url}{path}", content, method=method), timeout=WAIT_S) as response:
            text = response.read()
        return json.loads(text) if text else None

    def hits(self) -> list[int]:
        return [rule["hits"] for rule in self.ask("GET", "/v1/faults")["faults"]]


@contextmanager
def served(directory: Path, roles: str, *options: str) -> Iterator[Served]:
    port = free_port()
    listeners = [f"PLAINTEXT://127.0.0.1:{free_port(but=[port])}"] if "broker" in roles else []
    lines = {
        "process.roles": roles,
        "node.id": "1",
        "listeners": ",".join([*listeners, f"CONTROLLER://127.0.0.1:{port}"]),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{port}",
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
    }
    (directory / "node.properties").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    where = ["--config", "node.properties"]
    formatting = ["storage", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "--standalone", *where]
    subprocess.run([*PROGRAM, *formatting], cwd=directory, env=ENVIRONMENT, check=True, capture_output=True)
    with subprocess.Popen(
        [*PROGRAM, "serve", *where, *options, "--control", "127.0.0.1:0"],
        cwd=directory, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            line = process.stdout.readline()
            assert "barnabas is ready" in line, process.stderr.read()
            yield Served(line)
            process.terminate()
            assert process.wait(STOP_SECONDS_MAX) == 0, process.stderr.read()
        finally:
            process.kill()


def test_rules_of_the_page_reach_a_combined_nodes_controller(tmp_path: Path) -> None:
    (command,) = (
        typed(line)
        for block in blocks("docs/how-to/faults.md")
        for line in block.lines
        if "listener=CONTROLLER" in line
    )
    options = shlex.split(command)[4:]
    with served(tmp_path, "broker,controller", *options) as node:
        heartbeats, fetches = node.hits()
        assert heartbeats > 0
        assert fetches == 0, "no other node fetches"
        bootstrap = node.ask("GET", "/v1/broker")["bootstrap"]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        node.ask("POST", "/v1/faults", {"short": "CreateTopics times=1 -> error=POLICY_VIOLATION"})
        (refused,) = admin.create_topics([NewTopic("t", 1, 1)]).values()
        assert "POLICY_VIOLATION" in str(refused.exception(WAIT_S))
        (created,) = admin.create_topics([NewTopic("t", 1, 1)]).values()
        created.result(WAIT_S)


def test_controller_alone_has_faults_a_clock_and_control(tmp_path: Path) -> None:
    options = ["--virtual-clock", "--fault", "DescribeQuorum -> error=UNKNOWN_SERVER_ERROR"]
    with served(tmp_path, "controller", *options) as node:
        assert "bootstrap.controllers=" in node.line
        shown = node.ask("GET", "/v1/broker")
        assert shown["ready"]
        assert list(shown["listeners"]) == ["CONTROLLER"]
        before_ms = node.ask("GET", "/v1/clock")["now_ms"]
        assert node.ask("POST", "/v1/clock/advance", {"ms": 3_600_000})["now_ms"] >= before_ms + 3_600_000
        asked = subprocess.run(
            [*PROGRAM, "metadata", "show", "quorum", "--bootstrap-controller", shown["bootstrap"]],
            env=ENVIRONMENT, check=False, capture_output=True, text=True, timeout=WAIT_S,
        )  # fmt: skip
        assert asked.returncode == 0, asked.stderr
        node.ask("POST", "/v1/broker/restart", {"crash": True})
        assert node.ask("GET", "/v1/broker")["starts"] == 2
