"""Places in stores, and an S3 that fails on purpose: moto's server with faults in front of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from pyarrow.fs import AwsStandardS3RetryStrategy
from werkzeug.serving import WSGIRequestHandler, make_server

from barnabas_pipeline.lake import store
from barnabas_pipeline.lake.store import StoreIO

BUCKET = "lake"
KEYS = {"access": "test", "secret": "test"}


@dataclass
class Where:
    """A location in some store, and the way to it."""

    location: str
    io: StoreIO

    def __truediv__(self, name: str) -> Where:
        return Where(f"{self.location}/{name}", self.io)

    def read(self, name: str = "") -> bytes:
        """The bytes of an object below it."""
        return store.read(self.io, f"{self.location}/{name}" if name else self.location)

    def write(self, name: str, data: bytes) -> None:
        """Put an object below it, however others see that."""
        store.write(self.io, f"{self.location}/{name}", data)

    def names(self) -> list[str]:
        """All objects below it."""
        listed = store.listing(self.io, self.location)
        return sorted(entry.location.removeprefix(f"{self.location}/") for entry in listed)

    def all(self) -> dict[str, bytes]:
        """All of them with their bytes."""
        return {name: self.read(name) for name in self.names()}


class Quiet(WSGIRequestHandler):
    """Logs nothing."""

    def log(self, type: str, message: str, *args: Any) -> None:
        """Say nothing."""


class Twice(AwsStandardS3RetryStrategy):
    """Tries again once: more would take long, and show nothing else."""

    def __init__(self) -> None:
        super().__init__(max_attempts=2)


class FailingS3:
    """A store at `endpoint`. `rule` says of each request what happens to it."""

    def __init__(self) -> None:
        self.rule: Callable[[str, str], str] = lambda method, path: ""
        self.requests: list[tuple[str, str, str]] = []
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=Quiet)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.client().create_bucket(Bucket=BUCKET)

    def client(self) -> Any:
        """A client of another library."""
        return boto3.client(
            "s3", endpoint_url=self.endpoint, region_name="us-east-1",
            aws_access_key_id=KEYS["access"], aws_secret_access_key=KEYS["secret"],
        )  # fmt: skip

    @property
    def properties(self) -> dict[str, str]:
        """The properties that pyiceberg's FileIO needs."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": KEYS["access"],
            "s3.secret-access-key": KEYS["secret"],
            "s3.region": "us-east-1",
            "s3.connect-timeout": "5",
            "s3.request-timeout": "2",
            "s3.retry-strategy-impl": f"{Twice.__module__}.{Twice.__name__}",
        }

    def objects(self) -> list[str]:
        """All objects."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return [object_["Key"] for page in pages for object_ in page.get("Contents", [])]

    def stop(self) -> None:
        """Stop it."""
        self._server.shutdown()

    @contextmanager
    def failing(self, rule: Callable[[str, str], str]) -> Iterator[list[tuple[str, str, str]]]:
        """Have requests fail by a rule for a while: `error` (nothing happens), `lost` (it happens, and the connection
        ends), `error after` (it happens, and an error is answered), `slow`; yields the requests that it was done to."""
        self.rule, self.requests = rule, []
        try:
            yield self.requests
        finally:
            self.rule = lambda method, path: ""

    def _serve(self, environ: dict[str, Any], start_response: Any) -> Any:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        what = self.rule(method, path)
        if what:
            self.requests.append((what, method, path))
        if what == "slow":
            time.sleep(0.3)
        if what == "error":
            start_response("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        answer = self._app(environ, start_response if what in ("", "slow") else lambda *_: lambda _: None)
        if what == "lost":
            b"".join(answer)
            environ["werkzeug.socket"].close()
            raise ConnectionError("lost on purpose")
        if what == "error after":
            b"".join(answer)
            start_response("500 Internal Server Error", [("Content-Length", "0")])
            return [b""]
        return answer
