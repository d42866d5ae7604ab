"""The store of a broker that is a cluster by itself: a journal of changes in its first log dir.

The rule: a change is true once its line is on disk, forced. A torn last line was never acknowledged and is cut off;
anything else that cannot be read stops the start, since guessing would lose topics.
"""

from __future__ import annotations

import logging
from errno import EIO

from barnabas.cluster import encoding
from barnabas.cluster.image import BrokerInfo, BrokerRegistered, Change, ClusterImage
from barnabas.cluster.store import Decide, Subscriber
from barnabas.errors import StorageError
from barnabas.log.disk import Disk, File

log = logging.getLogger(__name__)

JOURNAL = "barnabas-metadata.jsonl"
REWRITE_LINES_MIN = 1000
"""A journal is rewritten at start when it has at least so many lines, and most of them are superseded."""


class EmbeddedStore:
    """A MetadataStore for one broker. Lifecycle: `open`, changes, `close`; only one broker may have it open."""

    def __init__(self, directory: str, disk: Disk) -> None:
        self._directory = directory
        self._path = f"{directory}/{JOURNAL}"
        self._disk = disk
        self._file: File | None = None
        self._size = 0
        self._image = ClusterImage("")
        self._subscribers: list[Subscriber] = []

    @property
    def image(self) -> ClusterImage:
        """The newest image."""
        return self._image

    def open(self, cluster_id: str, broker: BrokerInfo) -> None:
        """Read the journal; nothing is written yet. Raises StorageError."""
        try:
            data = self._disk.read(self._path)
        except FileNotFoundError:
            data = b""
        except OSError as error:
            raise StorageError(self._directory, error) from error
        whole, _, torn = data.rpartition(b"\n")
        if torn:
            log.warning("%s ends in a line that was not written whole: cut off", self._path)
        self._size = len(data) - len(torn)
        changes = self._read(whole)
        self._image = ClusterImage(cluster_id).apply([*changes, BrokerRegistered(broker)])
        if len(changes) >= REWRITE_LINES_MIN:
            self._rewrite_if_long(len(changes))

    def _read(self, whole: bytes) -> list[Change]:
        changes = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                changes.append(encoding.decode(line.decode()))
            except (ValueError, KeyError, TypeError) as error:
                cause = ValueError(f"line {number} of {JOURNAL} cannot be read: {error}")
                raise StorageError(self._directory, cause) from error
        return changes

    def _rewrite_if_long(self, count: int) -> None:
        needed = encoding.changes_of(self._image)
        if count < 2 * len(needed):
            return
        data = "".join(encoding.encode(change) + "\n" for change in needed).encode()
        try:
            self._disk.replace(self._path, data, sync=True)
        except OSError as error:
            raise StorageError(self._directory, error) from error
        self._size = len(data)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(old, new)` after each change."""
        self._subscribers.append(subscriber)

    async def change(self, decide: Decide) -> ClusterImage:
        """See MetadataStore.change; there is nobody else here who could be quicker."""
        return self.change_nowait(decide)

    def change_nowait(self, decide: Decide) -> ClusterImage:
        """The same without waiting."""
        changes = list(decide(self._image))
        if not changes:
            return self._image
        self._append("".join(encoding.encode(change) + "\n" for change in changes).encode())
        old, self._image = self._image, self._image.apply(changes)
        for subscriber in self._subscribers:
            subscriber(old, self._image)
        return self._image

    def _append(self, data: bytes) -> None:
        try:
            if self._file is None:
                self._file = self._disk.open(self._path, create=True)
                self._file.truncate(self._size)
                self._disk.sync_dir(self._directory)
            elif not self._file.is_at(self._path):
                raise OSError(EIO, "it was removed or replaced while the broker had it open", self._path)
            self._file.write(data, self._size)
            self._file.sync()
        except OSError as error:
            raise StorageError(self._directory, error) from error
        self._size += len(data)

    def close(self) -> None:
        """Let go of the journal."""
        self._file = None
