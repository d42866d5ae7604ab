"""An object store of this machine, for a demo: moto's server, which keeps everything in memory.

The rule: a lake in another store needs a catalog; here that is SQLite in a directory.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from barnabas_pipeline.errors import IncompleteError, UsageError

BUCKET = "pipeline"
START_SECONDS_MAX = 60.0
KEYS = {"s3.access-key-id": "demo", "s3.secret-access-key": "demo", "s3.region": "us-east-1"}


@contextmanager
def open_s3(work: Path) -> Iterator[list[str]]:
    """Run an S3 server; yields the options that name a lake in it. Raises UsageError without moto, IncompleteError."""
    if find_spec("moto") is None:
        raise UsageError("--store s3 needs moto: pip install 'moto[server]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (work / "s3.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_for(process, port)
        _make_bucket(port)
        properties = {
            "uri": f"sqlite:///{work}/catalog.db",
            "s3.endpoint": f"http://127.0.0.1:{port}",
            **KEYS,
        }
        words = [
            word for name, value in properties.items() for word in ("--catalog-property", f"{name}={value}")
        ]
        yield ["--lake", f"s3://{BUCKET}/lake", *words, "--catalog-property", "type=sql"]
    finally:
        process.terminate()
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    ends = time.monotonic() + START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < ends:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise IncompleteError("moto's server did not start")


def _make_bucket(port: int) -> None:
    from pyarrow.fs import S3FileSystem

    store = S3FileSystem(
        endpoint_override=f"http://127.0.0.1:{port}", access_key="demo", secret_key="demo", region="us-east-1",
        allow_bucket_creation=True,
    )  # fmt: skip
    store.create_dir(BUCKET)
