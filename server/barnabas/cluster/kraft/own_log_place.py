"""Place of the metadata log of a broker that is a cluster by itself; a start without a log imports nothing more of it."""

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
    """A log dir that has a metadata log, or will have one; `wall_clock_ms` dates its records."""

    disk: Disk
    log_dir: str
    settings: LogSettings
    wall_clock_ms: Callable[[], int]


class Node(NamedTuple):
    """The broker, as the log names it: its number, the id of the dir of the log, and the security of its listeners."""

    id: int
    directory_id: bytes
    protocols: tuple[tuple[str, int], ...] = ()
    """Names of listeners with the numbers of their security protocols, PLAINTEXT if they are missing."""
    controller: Listener | None = None
    """The listener that the settings have for a controller, which a broker that is alone does not open."""


class LostMetadataError(StorageError):
    """The metadata log is damaged: records are missing from the readable part."""

    def __init__(self, log_dir: str, damage: Sequence[str]) -> None:
        super().__init__(log_dir, OSError(f"the metadata log is damaged: {'; '.join(damage)}"))


def metadata_dir(disk: Disk, dirs: Iterable[str], metadata_log_dir: str | None) -> str:
    """Return the dir of the metadata log: the one that is set, else the first log dir that has one, else the first."""
    dirs = list(dirs)
    if metadata_log_dir:
        return metadata_log_dir.rstrip("/")
    return next((path for path in dirs if has_log(disk, path) or has_log(disk, path, READY)), dirs[0])


def has_log(disk: Disk, log_dir: str, name: str = names.CLUSTER_METADATA_DIR) -> bool:
    """Say whether a log dir that can be read has a metadata log, or another directory of that name."""
    with suppress(OSError):
        return exists(disk, f"{log_dir}/{name}")
    return False
