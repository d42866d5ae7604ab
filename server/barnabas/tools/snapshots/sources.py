"""Sources of a push: the log dirs of a stopped broker, or a snapshot that a running broker takes beside its log dirs.

The rule: log dirs of a source do not change while it is open.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from barnabas.errors import StorageError
from barnabas.log.disk import OsDisk
from barnabas.log.format import names
from barnabas.log.logdir import read_meta
from barnabas.system.processes import is_running
from barnabas.tools.snapshots.layout import SnapshotStoreError

REMOTE_LOG_METADATA: Final = "__remote_log_metadata"
_TIMEOUT_S: Final = 60.0
_OWN: Final = re.compile(r"push-(\d+)\Z")
"""Names of snapshots that a running broker takes for a push, with the id of the pushing process."""


class Source(NamedTuple):
    """Log dirs to store, and the cluster that they are of."""

    log_dirs: tuple[str, ...]
    cluster_id: str


@contextmanager
def stopped(log_dirs: Sequence[str]) -> Iterator[Source]:
    """Hold the locks of the log dirs of a broker that does not run. Raises SnapshotStoreError, StorageError, OSError."""
    disk = OsDisk()
    with ExitStack() as locks:
        for path in log_dirs:
            if not os.path.isdir(path):
                raise SnapshotStoreError(f"there is no log dir {path}: --data or --config names it")
            try:
                lock = disk.lock(f"{path}/{names.LOCK}")
            except BlockingIOError:
                raise SnapshotStoreError(
                    f"a broker uses {path}: stop it, or start it with --control HOST:PORT and name that here with --control"
                ) from None
            locks.callback(lock.release)
        _require_alone(disk, log_dirs)
        yield _source(disk, log_dirs)


@contextmanager
def running(url: str, token: str) -> Iterator[Source]:
    """Let a running broker take a snapshot by its control API, for the duration of a push. Raises SnapshotStoreError."""
    api = _ControlApi(url, token)
    for name in api.ask("GET", "/v1/snapshots")["snapshots"]:
        own = _OWN.match(name)
        if own is not None and not is_running(int(own[1])):
            api.ask("DELETE", f"/v1/snapshots/{quote(name)}")  # of a push that was killed
    name = f"push-{os.getpid()}"
    answer = api.ask("POST", "/v1/snapshots", {"name": name})
    try:
        log_dirs = answer["directories"]
        if not all(os.path.isdir(path) for path in log_dirs):
            raise SnapshotStoreError(
                f"the broker at {url} took its snapshot in {', '.join(log_dirs)}, which is not on this machine"
            )
        yield _source(OsDisk(), log_dirs)
    finally:
        api.ask("DELETE", f"/v1/snapshots/{name}")


def _source(disk: OsDisk, log_dirs: Sequence[str]) -> Source:
    if not any(os.path.isdir(f"{path}/{names.CLUSTER_METADATA_DIR}") for path in log_dirs):
        raise SnapshotStoreError(
            f"{', '.join(log_dirs)}: there is no metadata log, so these are not all log dirs of a broker that is alone "
            "(of several, --config names the file with log.dirs; one of its own, metadata.log.dir, is in no snapshot)"
        )
    meta = read_meta(disk, log_dirs[0])
    return Source(tuple(log_dirs), meta.cluster_id or "" if meta is not None else "")


def _require_alone(disk: OsDisk, log_dirs: Sequence[str]) -> None:
    """Raise SnapshotStoreError if a part of the broker's data is elsewhere."""
    from barnabas.cluster.kraft.offline import image_of

    for path in log_dirs:
        for folder in os.listdir(path):
            parsed = names.parse_dir_name(folder)
            if parsed is None or parsed.topic != REMOTE_LOG_METADATA:
                continue
            logs = [
                f"{path}/{folder}/{name}"
                for name in os.listdir(f"{path}/{folder}")
                if name.endswith(names.LOG)
            ]
            if any(os.path.getsize(file) for file in logs):
                raise SnapshotStoreError(
                    f"{path} is of a broker with tiered storage: segments there are in no snapshot, and a fork would "
                    "delete them"
                )
    if any(os.path.isdir(f"{path}/{names.CLUSTER_METADATA_DIR}") for path in log_dirs):
        try:
            image = image_of(disk, log_dirs)
        except StorageError as error:
            raise SnapshotStoreError(str(error)) from error
        replicas = {replica for partition in image.partitions.values() for replica in partition.replicas}
        if max(len(image.brokers), len(image.controllers), len(replicas)) > 1:
            raise SnapshotStoreError(
                f"{', '.join(log_dirs)} is of a broker of a cluster: its state is spread over others, and is in no snapshot"
            )


class _ControlApi:
    """A client of a broker's control API over HTTP; it ignores proxy variables."""

    def __init__(self, url: str, token: str) -> None:
        self._url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._token = token
        self._opener = build_opener(ProxyHandler({}))

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return the value of an answer. Raises SnapshotStoreError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            request = Request(self._url + path, data, headers, method=method)
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                text = answer.read()
                return json.loads(text) if text else None
        except HTTPError as error:
            raise SnapshotStoreError(f"the broker at {self._url} refuses: {_reason(error)}") from error
        except (OSError, HTTPException, ValueError) as error:
            raise SnapshotStoreError(f"no control API answers at {self._url}: {error}") from error


def _reason(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"])
    except (KeyError, OSError, TypeError, ValueError):
        return f"HTTP status {error.code}"
