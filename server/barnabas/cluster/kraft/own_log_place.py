"""Place of the metadata log of a broker that is a cluster by itself; all that a start without a log imports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cluster.metadata.journal_names import READY
from barnabas.errors import StorageError
from barnabas.log.format import names
from barnabas.log.logdir import exists

if TYPE_CHECKING:
    from barnabas.config.metadata_log import LogSettings
    from barnabas.log.disk import Disk

Listener = tuple[str, str, int]
"""Name of a listener, its host and port."""


class LogPlace(NamedTuple):
    """A log dir for a metadata log, which may not exist yet; `wall_clock_ms` dates its records.

    `release` is the broker's release, empty for the newest: a new log begins with its levels of features.
    """

    disk: Disk
    log_dir: str
    settings: LogSettings
    wall_clock_ms: Callable[[], int]
    release: str = ""


class Node(NamedTuple):
    """The broker, as recorded in the log: its id, the id of the log's dir, and the security of its listeners."""

    id: int
    directory_id: bytes
    protocols: tuple[tuple[str, int], ...] = ()
    """Security protocols of the listeners by name, as numbers; PLAINTEXT if absent."""
    controller: Listener | None = None
    """The controller listener of the settings, which a broker that is alone does not open."""


class LostMetadataError(StorageError):
    """The metadata log is damaged: not all of its records can be read."""

    def __init__(self, log_dir: str, damage: Sequence[str]) -> None:
        super().__init__(log_dir, OSError(f"the metadata log is damaged: {'; '.join(damage)}"))


def metadata_dir(disk: Disk, dirs: Iterable[str], metadata_log_dir: str | None) -> str:
    """Return the dir of the metadata log: metadata.log.dir, else the first log dir that has a log, else the first."""
    dirs = list(dirs)
    if metadata_log_dir:
        return metadata_log_dir.rstrip("/")
    return next((path for path in dirs if has_log(disk, path) or has_log(disk, path, READY)), dirs[0])


def has_log(disk: Disk, log_dir: str, name: str = names.CLUSTER_METADATA_DIR) -> bool:
    """Return whether a readable log dir has a metadata log, or another entry of that name."""
    with suppress(OSError):
        return exists(disk, f"{log_dir}/{name}")
    return False
