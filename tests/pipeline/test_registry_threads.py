"""A registry that several threads of a task ask at the same time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from barnabas_pipeline.formats.registry import Registry

SCHEMA = json.dumps({"schema": '"long"'}).encode()


class Slow(BaseHTTPRequestHandler):
    """Answers with a schema, after a while."""

    asked: list[str]

    def do_GET(self) -> None:
        """Answer."""
        self.asked.append(self.path)
        time.sleep(0.3)
        self.send_response(200)
        self.send_header("Content-Length", str(len(SCHEMA)))
        self.end_headers()
        self.wfile.write(SCHEMA)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def slow() -> Iterator[tuple[str, list[str]]]:
    Slow.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", Slow.asked
        server.shutdown()


def test_threads_share_one_request_for_a_schema(slow: tuple[str, list[str]]) -> None:
    url, asked = slow
    pool = ThreadPoolExecutor(4)
    answers = [pool.submit(Registry(url).schema, number) for number in (7, 7, 7, 8)]
    assert [future.result(timeout=20).text for future in answers] == ['"long"'] * 4  # type: ignore[union-attr]
    pool.shutdown()
    assert sorted(asked) == ["/schemas/ids/7", "/schemas/ids/8"]
