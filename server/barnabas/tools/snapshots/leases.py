"""Leases of work on a store: pushes, which may run concurrently, and deletions, which run alone.

The rule: a lease is an object that its process rewrites every 20 s. A lease that was not written for ten minutes, by the
store's clock, belongs to interrupted work; the machines' clocks do not matter. A deletion that could not renew its lease
for five minutes stops, before a push regards it as interrupted.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from contextlib import suppress
from enum import Enum
from threading import Event, Thread
from time import monotonic, time
from types import TracebackType
from typing import Final, NamedTuple, Self

from barnabas.system.processes import is_running
from barnabas.tiered.storage import RemoteObjectNotFoundError, RemoteStorageError
from barnabas.tools.snapshots.layout import FORMAT, WORK, SnapshotStoreError, name_in
from barnabas.tools.snapshots.store import SnapshotStore

RENEWAL_S: Final = 20.0
HELD_S: Final = 300.0
INTERRUPTED_MS: Final = 600_000


class WorkKind(Enum):
    """Kind of a work."""

    PUSH = "push"
    DELETION = "deletion"


class Work(NamedTuple):
    """A work in the store, of this process or of another."""

    id: str
    kind: WorkKind
    text: str
    """Snapshot and process, for messages."""
    is_interrupted: bool


class Lease:
    """The work of this process, as a context. Other works that were interrupted are in `interrupted`."""

    def __init__(self, store: SnapshotStore, kind: WorkKind, snapshot: str) -> None:
        self.interrupted: list[Work] = []
        self._store = store
        self._kind = kind
        self._id = f"{kind.value}-{secrets.token_hex(8)}"
        host = socket.gethostname()
        self._data = json.dumps({
            "format": FORMAT, "kind": kind.value, "snapshot": snapshot, "host": host, "pid": os.getpid(),
            "begun_ms": int(time() * 1000),
        }).encode()  # fmt: skip
        self._ended = Event()
        self._written = monotonic()
        self._thread = Thread(target=self._renew, daemon=True)

    @property
    def key(self) -> str:
        """Key of the object."""
        return f"{WORK}/{self._id}.json"

    def __enter__(self) -> Self:
        """Begin, unless another work excludes it. Raises SnapshotStoreError, RemoteStorageError."""
        self._store.put(self.key, self._data)
        self._written = monotonic()
        try:
            for work in self._others():
                if work.is_interrupted:
                    self.interrupted.append(work)
                elif WorkKind.DELETION in (work.kind, self._kind):
                    raise SnapshotStoreError(
                        f"{work.text} uses {self._store.url}: try again when it has ended (if it was interrupted, "
                        f"{INTERRUPTED_MS // 60_000} minutes after that)"
                    )
        except BaseException:
            self._remove()
            raise
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the lease, and remove its object."""
        self._ended.set()
        self._thread.join()
        self._remove()

    def check(self) -> None:
        """Raise SnapshotStoreError if the store has not been written to for so long that others may not expect it."""
        if monotonic() - self._written > HELD_S:
            raise SnapshotStoreError(
                f"{self._store.url} could not be written to for {HELD_S:.0f} s: nothing more is changed in it"
            )

    def _renew(self) -> None:
        while not self._ended.wait(RENEWAL_S):
            with suppress(RemoteStorageError):
                begun = monotonic()
                self._store.put(self.key, self._data)
                self._written = begun

    def _remove(self) -> None:
        with suppress(RemoteStorageError):  # it counts as interrupted later
            self._store.delete([self.key])

    def _others(self) -> list[Work]:
        now_ms = self._store.modified_ms(self.key)
        works = []
        for key, _ in self._store.keys(WORK):
            work_id = name_in(key, WORK)
            if work_id is None or work_id == self._id:
                continue
            with suppress(RemoteObjectNotFoundError):  # it has ended meanwhile
                age_ms = now_ms - self._store.modified_ms(key)
                works.append(_work(work_id, self._store.get(key), age_ms))
        return works


def forget(store: SnapshotStore, works: list[Work]) -> None:
    """Remove the objects of works that were interrupted. Raises RemoteStorageError."""
    store.delete([f"{WORK}/{work.id}.json" for work in works])


def _work(work_id: str, data: bytes, age_ms: int) -> Work:
    kind = WorkKind.DELETION if work_id.startswith(WorkKind.DELETION.value) else WorkKind.PUSH
    try:
        value = json.loads(data)
        text = f"the {kind.value} of {value['snapshot']} by process {value['pid']} on {value['host']}"
        is_dead = value["host"] == socket.gethostname() and not is_running(int(value["pid"]))
    except (KeyError, TypeError, ValueError):
        text, is_dead = f"a {kind.value} ({work_id})", False
    return Work(work_id, kind, text, is_dead or age_ms > INTERRUPTED_MS)
