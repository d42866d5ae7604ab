"""Kinds of paths: a log dir, the directory of a partition, or one file of it.

The rule: they are determined by names and contents alone; nothing is opened for writing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from barnabas.log.disk import Disk, file_names
from barnabas.log.format import names
from barnabas.log.format.names import DirKind
from barnabas.log.recovery.plan import Inventory, take_inventory

CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
    names.CLEANER_CHECKPOINT,
)


class PlaceError(Exception):
    """A path does not exist, or is of no kind that this tool supports."""


class PlaceKind(Enum):
    """Kind of a path."""

    LOG_DIR = "log dir"
    PARTITION = "partition"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Place:
    """A path, and the kind of its content."""

    kind: PlaceKind
    path: str


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    """The directory of a partition; `topic` is "" if its name does not show it."""

    path: str
    topic: str
    partition: int
    kind: DirKind
    file_names: list[str]
    inventory: Inventory
    leftovers: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the directory."""
        return self.path.rpartition("/")[2]

    def file(self, base_offset: int, suffix: str) -> str:
        """The path of a segment's file."""
        return f"{self.path}/{names.file_name(base_offset, suffix)}"


def find_place(disk: Disk, path: str) -> Place:
    """Classify an absolute path. Raises PlaceError."""
    path = path.rstrip("/") or "/"
    try:
        entries = disk.list(path)
    except NotADirectoryError:
        return Place(PlaceKind.FILE, path)
    except OSError as error:
        raise PlaceError(f"{path}: {error.strerror}") from error
    if any(not entry.is_dir and names.parse_file_name(entry.name) for entry in entries):
        return Place(PlaceKind.PARTITION, path)
    file_names = {entry.name for entry in entries}
    has_partitions = any(entry.is_dir and names.parse_dir_name(entry.name) for entry in entries)
    if has_partitions or file_names & {names.META_PROPERTIES, names.LOCK, *CHECKPOINTS}:
        return Place(PlaceKind.LOG_DIR, path)
    if names.parse_dir_name(path.rpartition("/")[2]):
        return Place(PlaceKind.PARTITION, path)
    raise PlaceError(f"{path} is neither a log dir nor the directory of a partition")


def open_partition(disk: Disk, path: str) -> PartitionPlace:
    """List the directory of a partition. Raises OSError."""
    found_names = sorted(file_names(disk, path))
    parsed = names.parse_dir_name(path.rpartition("/")[2])
    topic, partition, kind = parsed or ("", -1, DirKind.CURRENT)
    leftovers = [
        name for name in found_names if name.endswith((names.DELETED, names.CLEANED, names.SWAP, ".tmp"))
    ]
    return PartitionPlace(path, topic, partition, kind, found_names, take_inventory(found_names), leftovers)


def partitions_of(disk: Disk, log_dir: str, name: str = "") -> list[PartitionPlace]:
    """List the partitions in a log dir, or only those of a topic or of one directory name.

    Deleted ones that wait for removal are listed only by name. Raises OSError.
    """
    partitions = []
    for entry in disk.list(log_dir):
        parsed = names.parse_dir_name(entry.name) if entry.is_dir else None
        if parsed is None or (parsed.kind is DirKind.DELETE and name != entry.name):
            continue
        if name in ("", entry.name, parsed.topic):
            partitions.append(open_partition(disk, f"{log_dir}/{entry.name}"))
    return sorted(partitions, key=lambda place: (place.topic, place.partition, place.name))


def lock_path_for(disk: Disk, place: Place) -> str | None:
    """The lock file of the log dir that a place is in; None if it is in none (a copy somewhere)."""
    path = place.path
    if place.kind is PlaceKind.FILE:
        path = path.rpartition("/")[0].rpartition("/")[0]
    elif place.kind is PlaceKind.PARTITION:
        path = path.rpartition("/")[0]
    try:
        file_names = {entry.name for entry in disk.list(path)}
    except OSError:
        return None
    is_log_dir = (
        place.kind is PlaceKind.LOG_DIR or names.LOCK in file_names or names.META_PROPERTIES in file_names
    )
    return f"{path}/{names.LOCK}" if is_log_dir else None
