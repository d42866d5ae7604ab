"""Servers of objects, from the registries of their languages at pinned versions, on loopback.

The rule: a server is built once into `.tools/stores`; what is missing to build it is told, never installed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

from compat.kit.ending import end_servers_at_sigterm

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".tools" / "stores"
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.0.14"
AZURITE = "azurite@3.35.0"
BUCKET = "bucket"
BUILD_TIMEOUT_S = 900
START_TIMEOUT_S = 30
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's account, which is public."""


class ServerError(Exception):
    """A server cannot be built or started; the text says why."""


class Store(NamedTuple):
    """A store with an empty bucket: the URL of snapshots in it, and its settings without the prefix `storage.`."""

    url: str
    backend: str
    settings: dict[str, str]


@contextmanager
def moto(directory: Path) -> Iterator[Store]:
    """S3 of moto, in this process."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        port = server.get_host_and_port()[1]
        urlopen(
            Request(
                f"http://127.0.0.1:{port}/{BUCKET}", method="PUT", headers={"x-amz-acl": "public-read-write"}
            )
        )
        yield _s3(port)
    finally:
        server.stop()


@contextmanager
def versitygw(directory: Path) -> Iterator[Store]:
    """S3 of versitygw (Go), over a directory of a file system with extended attributes."""
    program = PLACE / "bin" / "versitygw"
    if not program.exists():
        _build(["go", "install", VERSITYGW], GOBIN=str(PLACE / "bin"))
    (directory / BUCKET).mkdir()
    port = free_port()
    command = [str(program), "--port", f"127.0.0.1:{port}", "posix", str(directory)]
    with _running(command, port, directory, ROOT_ACCESS_KEY="key", ROOT_SECRET_KEY="secretsecret"):
        yield _s3(port)


@contextmanager
def azurite(directory: Path) -> Iterator[Store]:
    """Azure's blob storage, by Microsoft's emulator (Node.js)."""
    program = PLACE / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if not program.exists():
        (PLACE / "azurite").mkdir(parents=True, exist_ok=True)
        _build(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(PLACE / "azurite"), AZURITE])
    port = free_port()
    places = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(directory)]
    options = [*places, "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    with _running(["node", str(program), *options], port, directory):
        _make_container(port)
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        text = (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint};"
        )
        yield Store(f"az://{BUCKET}/dev", "azure", {"azure.connection.string": text})


SERVERS: dict[str, Callable[[Path], AbstractContextManager[Store]]] = {
    "moto": moto,
    "versitygw": versitygw,
    "azurite": azurite,
}


def _s3(port: int) -> Store:
    settings = {
        "s3.region": "us-east-1", "s3.endpoint.url": f"http://127.0.0.1:{port}",
        "aws.access.key.id": "key", "aws.secret.access.key": "secretsecret",
    }  # fmt: skip
    return Store(f"s3://{BUCKET}/dev", "s3", settings)


def _build(command: list[str], **environment: str) -> None:
    if not shutil.which(command[0]):
        raise ServerError(f"{command[0]} is missing, which builds {command[-1]}")
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        timeout=BUILD_TIMEOUT_S,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ServerError(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")


@contextmanager
def _running(command: list[str], port: int, directory: Path, **environment: str) -> Iterator[None]:
    """Run a program for as long as the block, from when its port answers. Raises ServerError."""
    end_servers_at_sigterm()
    log_path = directory.with_suffix(".log")
    with (
        log_path.open("wb") as log,
        subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log) as process,
    ):
        try:
            ends_at = time.monotonic() + START_TIMEOUT_S
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if process.poll() is not None or time.monotonic() > ends_at:
                        raise ServerError(
                            f"{command[0]} did not start: {log_path.read_text()[-500:]}"
                        ) from None
                    time.sleep(0.1)
            yield
        finally:
            process.terminate()


def free_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _make_container(port: int) -> None:
    """Make a container, with a request signed by the account's key."""
    date, version = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"), "2021-08-06"
    path = f"/{ACCOUNT}/{BUCKET}"
    text = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{version}\n/{ACCOUNT}{path}\nrestype:container"
    signature = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date, "x-ms-version": version,
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}",
    }  # fmt: skip
    urlopen(Request(f"http://127.0.0.1:{port}{path}?restype=container", method="PUT", headers=headers))
