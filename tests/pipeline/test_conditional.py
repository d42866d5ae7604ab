"""Puts on condition: what is asked of S3, GCS and Azure, as which user, and what their answers mean."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest

from barnabas_pipeline.lake import conditional
from barnabas_pipeline.lake.conditional import create

from .stores import FailingS3


class Recorder(ThreadingHTTPServer):
    """A store that has each object once, and keeps the headers of what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.objects: dict[str, bytes] = {}
        self.asked: list[dict[str, str]] = []
        self.seconds = 0.0
        """Time that an answer takes."""


class Handler(BaseHTTPRequestHandler):
    """Puts if absent, whatever the condition is called."""

    server: Recorder

    def do_PUT(self) -> None:
        """Put."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        data = self.rfile.read(int(headers["content-length"]))
        self.server.asked.append(headers)
        path = unquote(self.path)
        time.sleep(self.server.seconds)
        is_there = path in self.server.objects
        self.server.objects.setdefault(path, data)
        self.send_response(412 if is_there else 200)
        self.send_header("ETag", '"x"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    server = Recorder()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


GCS = {"gcs.oauth2.token": "t", "gcs.service.host": "URL"}
AZURE = {
    "adls.account-name": "acc",
    "adls.account-key": "a2V5",
    "adls.blob-storage-authority": "HOST",
    "adls.blob-storage-scheme": "http",
}
S3 = {"s3.endpoint": "URL", "s3.access-key-id": "k", "s3.secret-access-key": "s"}


@pytest.mark.parametrize(
    ("location", "properties", "path", "condition", "who"),
    [
        ("s3://b/a/b.json", S3, "/b/a/b.json", ("if-none-match", "*"), "Credential=k/"),
        ("s3a://b/a/b.json", S3, "/b/a/b.json", ("if-none-match", "*"), "Credential=k/"),
        ("s3://b/a/b.json", {"s3.endpoint": "URL", "client.access-key-id": "c", "client.secret-access-key": "s"},
         "/b/a/b.json", ("if-none-match", "*"), "Credential=c/"),
        ("s3://b/a/b.json", {"s3.endpoint": "URL", "s3.anonymous": "true"},
         "/b/a/b.json", ("if-none-match", "*"), ""),
        ("gs://b/a/b.json", GCS, "/b/a/b.json", ("x-goog-if-generation-match", "0"), "Bearer t"),
        ("abfss://b/a/b.json", AZURE, "/acc/b/a/b.json", ("if-none-match", "*"), "SharedKey acc:"),
        ("wasbs://b/a/b.json", AZURE, "/acc/b/a/b.json", ("if-none-match", "*"), "SharedKey acc:"),
    ],
)  # fmt: skip
def test_put_is_conditional_in_each_store(
    recorder: Recorder,
    set_environment: Callable[..., None],
    location: str,
    properties: dict[str, str],
    path: str,
    condition: tuple[str, str],
    who: str,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        set_environment(**{name: "other"})
    places = {"URL": recorder.url, "HOST": recorder.url.removeprefix("http://")}
    options = {name: places.get(value, value) for name, value in properties.items()}
    assert create(location, b"1", options, "r")
    assert not create(location, b"2", options, "r")
    assert recorder.objects == {path: b"1"}
    for headers in recorder.asked:
        assert headers[condition[0]] == condition[1]
        assert who in headers["authorization"] if who else "authorization" not in headers
        assert "Credential" not in who or "/r/s3/" in headers["authorization"], "the region"
        assert "x-amz-security-token" not in headers


def test_s3_keys_are_found_by_boto3_or_the_environment(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, set_environment: Callable[..., None], tmp_path: Any
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        set_environment(**{name: None})
    (tmp_path / "credentials").write_text("[mine]\naws_access_key_id = p\naws_secret_access_key = s\n")
    set_environment(AWS_SHARED_CREDENTIALS_FILE=str(tmp_path / "credentials"))
    set_environment(AWS_PROFILE="mine")
    assert create("s3://b/1", b"", {"s3.endpoint": recorder.url}, "r")
    monkeypatch.setattr(conditional, "find_spec", lambda _: None)
    set_environment(AWS_ACCESS_KEY_ID="e")
    set_environment(AWS_SECRET_ACCESS_KEY="s")
    assert create("s3://b/2", b"", {"s3.endpoint": recorder.url}, "r")
    asked = [request["authorization"].partition("Credential=")[2][:2] for request in recorder.asked]
    assert asked == ["p/", "e/"]


def test_a_bucket_that_is_not_there_is_no_conflict(s3: FailingS3) -> None:
    with pytest.raises(OSError, match="404"):
        create("s3://none/a/b", b"", s3.properties, "us-east-1")
