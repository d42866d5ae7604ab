"""A broker in a separate process, controlled over its control API."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection
from typing import IO, Any
from urllib.parse import urlencode, urlsplit

from barnabas.testing.broker import Control, KafkaBroker
from barnabas.testing.cluster import KafkaCluster
from barnabas.testing.running import START_SECONDS_MAX, STOP_SECONDS_MAX, BrokerFailedError, import_path

ANSWER_SECONDS_MAX = 630.0
"""Timeout of a response: longer than the longest wait that a request may specify."""


class HttpControl:
    """The way to a broker's control API over HTTP. One connection a request: any thread may ask."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._address = parts.hostname, parts.port or 80

    def ask(self, method: str, path: str, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        """Return status and JSON value of a response. Raises OSError if the broker's process has ended."""
        connection = HTTPConnection(*self._address, timeout=ANSWER_SECONDS_MAX)
        try:
            content = None if body is None else json.dumps(body).encode()
            target = f"{path}?{urlencode(query)}" if query else path
            connection.request(
                method, target, content, {"Content-Type": "application/json"} if content else {}
            )
            response = connection.getresponse()
            answer = response.read()
            return response.status, json.loads(answer) if answer else None
        finally:
            connection.close()

    def reach(self, answer: Mapping[str, Any]) -> Control:
        """Return the way to another broker."""
        return HttpControl(answer["control_url"])

    def close(self) -> None:
        """Stop the broker behind this API."""
        with suppress(OSError):  # it may have ended before its response
            self.ask("POST", "/v1/broker/stop", {}, None)


class _ProcessControl(HttpControl):
    """Control of a broker in a process that `close` ends."""

    def __init__(self, url: str, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        super().__init__(url)
        self._process = process
        self._log = log

    def close(self) -> None:
        """Close the standard input of the process, upon which it ends; kill it if that takes too long."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def start_process(
    settings: Mapping[str, str] | None = None,
    *,
    seeds: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
) -> KafkaBroker:
    """Start `barnabas test-server` and return its broker when it answers. Raises BrokerFailedError, ControlFailedError."""
    broker = KafkaBroker(*_started(settings, options))
    if seeds:
        try:
            broker.seed(seeds)
            broker.set_baseline()
        except BaseException:
            broker.close()
            raise
    return broker


def start_cluster_process(
    brokers: int = 3, *, controllers: int | None = None, settings: Mapping[str, str] | None = None
) -> KafkaCluster:
    """Start a cluster as `start_cluster` does, in a separate process. Raises BrokerFailedError."""
    options = ["--brokers", str(brokers)]
    if controllers is not None:
        options += ["--controllers", str(controllers)]
    return KafkaCluster(_started(settings, options)[1])


def _started(settings: Mapping[str, str] | None, options: Sequence[str]) -> tuple[str, _ProcessControl]:
    """Start `barnabas test-server`; return its bootstrap servers and the way to its API. Raises BrokerFailedError."""
    arguments = [sys.executable, "-m", "barnabas", "test-server", *options]
    for name, value in (settings or {}).items():
        arguments += ["--set", f"{name}={value}"]
    log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env={**os.environ, "PYTHONPATH": import_path()},
    )
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:  # select() itself takes no descriptor above 1023
        selector.register(process.stdout, selectors.EVENT_READ)
        line = process.stdout.readline() if selector.select(START_SECONDS_MAX) else b""
    if not line:
        process.kill()
        process.communicate()
        with log:
            text = os.pread(log.fileno(), os.fstat(log.fileno()).st_size, 0).decode(errors="replace")
        raise BrokerFailedError(f"the broker did not start: {text.strip()}")
    addresses = json.loads(line)
    return addresses["bootstrap_servers"], _ProcessControl(addresses["control_url"], process, log)
