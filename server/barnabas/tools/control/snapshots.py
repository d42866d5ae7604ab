"""Snapshots of a broker's data: taken while it runs, restored while it does not.

The rule: a snapshot is taken in one turn of the event loop, between two changes of the metadata, and equals the data after
a clean shutdown at that moment: logs, producers, open transactions, groups, offsets, topics, ACLs, users, quotas. A broker
that is restored from it needs no recovery. State in a broker's memory only is not in it: connections, fetch sessions,
members of classic groups between two generations, locks of share groups.

The snapshots of log dir D are in the directory `D.snapshots` beside it, on the same file system.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from barnabas.log import logdir
from barnabas.log.disk import OsDisk
from barnabas.log.format import names, properties
from barnabas.tools.control import copying

if TYPE_CHECKING:
    from barnabas.broker.services import Services
    from barnabas.cluster.metadata.image import Change, ClusterImage
    from barnabas.log.partition_log import PartitionLog

COPIED_BYTES_MAX = 1024 * 1024
"""An active segment that is larger, and cannot share its blocks with a copy, is rolled, so that it need not be copied."""
DIRECTORY = ".snapshots"
"""Suffix of a log dir's own path that gives the directory of its snapshots."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_OF_LOG_DIR = (names.META_PROPERTIES, names.BOOT_ID, names.BOOTSTRAP_CHECKPOINT)


class SnapshotError(Exception):
    """A snapshot does not exist, exists already, or its name is invalid."""


class Snapshots:
    """The snapshots of one broker, by name. Lifecycle: for as long as its log dirs are there.

    `take` is called in the event loop of the broker that runs; `put_back` while no broker has the log dirs open.
    """

    def __init__(self, log_dirs: Sequence[str]) -> None:
        self._dirs = [path.rstrip("/") for path in log_dirs]
        self._aside = 0

    def _path(self, log_dir: str, name: str) -> str:
        return f"{log_dir}{DIRECTORY}/{name}"

    def names(self) -> list[str]:
        """Return which there are."""
        try:
            entries = os.listdir(self._dirs[0] + DIRECTORY)
        except FileNotFoundError:
            return []
        return sorted(name for name in entries if _NAME.match(name))

    def directories(self, name: str) -> list[str]:
        """Return where a snapshot is, for each log dir. Raises SnapshotError."""
        self._require(name)
        return [os.path.abspath(self._path(log_dir, name)) for log_dir in self._dirs]

    def __contains__(self, name: str) -> bool:
        return bool(_NAME.match(name)) and os.path.isdir(self._path(self._dirs[0], name))

    async def take(self, name: str, services: Services, *, replace: bool = False) -> None:
        """Take a snapshot of a broker that is alone and runs. Raises SnapshotError, StorageError, OSError."""
        if not _NAME.match(name):
            raise SnapshotError(f"{name!r} is no name for a snapshot: letters, digits, '.', '_' and '-'")
        if services.tiered is not None:
            raise SnapshotError("segments in tiered storage are in no snapshot, and a fork would delete them")
        if name in self:
            if not replace:
                raise SnapshotError(f"there is a snapshot {name} already")
            self.remove(name)

        def decide(_: ClusterImage) -> Iterable[Change]:
            """Change nothing: the metadata log is not written to while a change is decided on."""
            self._take(name, services)
            return ()

        await services.metadata.change(decide)

    def _take(self, name: str, services: Services) -> None:
        by_dir: dict[str, list[PartitionLog]] = defaultdict(list)
        for log in services.logs:
            if not log.is_closed:
                by_dir[log.log_dir].append(log)
        plan = services.logs.checkpoints.begin(self._dirs)
        targets = []
        try:
            for log_dir in self._dirs:
                target = f"{log_dir}{DIRECTORY}/.taking-{name}"
                copying.remove([target])
                os.makedirs(target)
                targets.append(target)
                for log in by_dir[log_dir]:
                    _copy_log(log, f"{target}/{names.dir_name(log.topic, log.partition)}")
                    plan.add(log)
                for file in _OF_LOG_DIR:
                    if os.path.exists(f"{log_dir}/{file}"):
                        copying.copy(f"{log_dir}/{file}", f"{target}/{file}")
                _copy_metadata(
                    f"{log_dir}/{names.CLUSTER_METADATA_DIR}", f"{target}/{names.CLUSTER_METADATA_DIR}"
                )
                offsets = plan.dirs[log_dir]
                for log in by_dir[log_dir]:  # where it was closed, whatever is on the medium
                    offsets.recovery_points[log.topic, log.partition] = log.log_end_offset
                checkpoints = logdir.Checkpoints(
                    offsets.recovery_points,
                    offsets.log_starts,
                    offsets.high_watermarks,
                    offsets.clean_offsets,
                )
                logdir.write_checkpoints(services.logs.disk, target, checkpoints)
                with open(f"{target}/{names.CLEAN_SHUTDOWN}", "wb") as mark:
                    mark.write(properties.encode_clean_shutdown())
            for log_dir, target in zip(self._dirs, targets, strict=True):
                os.rename(target, self._path(log_dir, name))
        except BaseException:
            copying.remove(targets)
            raise

    def put_back(self, name: str) -> None:
        """Replace the content of the log dirs by a snapshot, which stays. Raises SnapshotError, StorageError, OSError.

        Consumers may have read later records: no leader epoch that existed is used again.
        """
        from barnabas.cluster.kraft.offline import keep_epoch, latest_epoch  # not on the way of a start

        self._require(name)
        epoch = latest_epoch(self._dirs, OsDisk())
        for log_dir in self._dirs:
            copying.empty(log_dir, self._new_aside(log_dir))
            copying.copy_log_dir(self._path(log_dir, name), log_dir)
        keep_epoch(self._dirs, OsDisk(), epoch)

    def fork(self, name: str, log_dirs: Sequence[str]) -> None:
        """Make new log dirs of a snapshot, on the same file system. Raises SnapshotError, OSError."""
        self._require(name)
        for log_dir, target in zip(self._dirs, log_dirs, strict=True):
            copying.copy_log_dir(self._path(log_dir, name), target)

    def remove(self, name: str) -> None:
        """Remove a snapshot. Raises SnapshotError."""
        self._require(name)
        for log_dir in self._dirs:
            aside = self._new_aside(log_dir)
            os.rename(self._path(log_dir, name), aside)

    def tidy_up(self) -> None:
        """Remove directories that were set aside; may take long, and may be called in a thread."""
        for log_dir in self._dirs:
            directory = log_dir + DIRECTORY
            if os.path.isdir(directory):
                copying.remove(
                    f"{directory}/{name}" for name in os.listdir(directory) if name.startswith(".old-")
                )

    def _new_aside(self, log_dir: str) -> str:
        """Return a name for a directory that will be removed."""
        os.makedirs(log_dir + DIRECTORY, exist_ok=True)
        while True:
            self._aside += 1
            path = f"{log_dir}{DIRECTORY}/.old-{self._aside}"
            if not os.path.exists(path):
                return path

    def _require(self, name: str) -> None:
        if name not in self:
            existing = ", ".join(self.names()) or "none"
            raise SnapshotError(f"there is no snapshot {name}; there are: {existing}")


def _copy_metadata(path: str, target: str) -> None:
    """Copy the metadata log, if it is in this log dir, while it is not written to. Raises OSError."""
    if not os.path.isdir(path):
        return
    os.mkdir(target, 0o700)
    for file in os.listdir(path):
        copying.copy(f"{path}/{file}", f"{target}/{file}")


def _copy_log(log: PartitionLog, target: str) -> None:
    """Copy a partition that may be written again once this has returned. Raises StorageError, OSError."""
    os.mkdir(target)
    path, size = log.active.path(names.LOG), log.active.size
    is_copied = size > COPIED_BYTES_MAX and copying.clone(path, f"{target}/{os.path.basename(path)}", size)
    if size > COPIED_BYTES_MAX and not is_copied:
        log.roll()
    log.settle()
    for segment in log.segments:
        is_active = segment is log.active
        path = segment.path(names.LOG)
        if not is_active:
            copying.share(path, f"{target}/{os.path.basename(path)}")
        elif not is_copied:
            copying.copy(path, f"{target}/{os.path.basename(path)}", segment.size)
        for index in segment.index_paths():
            if os.path.exists(index):
                put = copying.copy if is_active else copying.share
                put(index, f"{target}/{os.path.basename(index)}")
    snapshots = log.store.snapshots
    others = [snapshots.path(offset) for offset in snapshots.offsets]
    others += [f"{log.dir}/{name}" for name in (names.LEADER_EPOCH_CHECKPOINT, names.PARTITION_METADATA)]
    for other in others:
        if os.path.exists(other):
            copying.copy(other, f"{target}/{os.path.basename(other)}")
