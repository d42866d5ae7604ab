"""The files of a log dir itself: its owner, and the checkpoints of the logs in it.

The rule: a missing or damaged checkpoint costs a check of the logs, never a log; a damaged `meta.properties` is an
error, since the owner of the dir is then unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from errno import ENOENT
from typing import NamedTuple

from barnabas.errors import StorageError
from barnabas.log.disk import Disk, Lock, file_names
from barnabas.log.format import CorruptFileError, checkpoints, names, properties
from barnabas.log.format.names import DirKind
from barnabas.log.format.properties import MetaProperties
from barnabas.wire.topic_partitions import TopicPartition

log = logging.getLogger(__name__)


class LogGoneError(FileNotFoundError):
    """All segments of a log are gone; other files in its directory show that segments existed."""


class Checkpoints(NamedTuple):
    """Checkpoints of the logs in a log dir, and whether it was closed cleanly."""

    recovery_points: Mapping[TopicPartition, int] = {}
    log_starts: Mapping[TopicPartition, int] = {}
    high_watermarks: Mapping[TopicPartition, int] = {}
    clean_offsets: Mapping[TopicPartition, int] = {}
    is_clean: bool = False
    # the machine has not restarted since: unsynced writes are in the page cache or on disk
    is_cache_intact: bool = False


def read_meta(disk: Disk, path: str) -> MetaProperties | None:
    """Read the owner of a log dir, None if it is new. Raises CorruptFileError, OSError."""
    try:
        return MetaProperties.decode(disk.read(f"{path}/{names.META_PROPERTIES}"))
    except FileNotFoundError:
        return None
    except CorruptFileError as error:
        raise CorruptFileError(
            f"{names.META_PROPERTIES} is damaged: {error}. Restore it from a copy, or remove it (rm "
            f"{path}/{names.META_PROPERTIES}): then the broker writes a new one, and no record is lost"
        ) from error


def make_dir(disk: Disk, path: str) -> None:
    """Create a log dir unless it exists; it survives a power cut once a file in it is synced. Raises OSError."""
    new = []
    place = path.rstrip("/")
    while place and not exists(disk, place):
        new.append(place)
        place = place.rpartition("/")[0]
    disk.make_dirs(path)
    if not new and not exists(disk, f"{path}/{names.META_PROPERTIES}"):
        new = [path.rstrip("/")]  # its creator may not have synced it
    for place in reversed(new):
        with suppress(PermissionError):  # a directory may be writable and not readable
            disk.sync_dir(place.rpartition("/")[0] or ("/" if place.startswith("/") else "."))


def exists(disk: Disk, path: str) -> bool:
    """Return whether a file or directory exists. Raises OSError if that cannot be determined."""
    try:
        disk.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def check_node_id(path: str, meta: MetaProperties, expected: int | None) -> None:
    """Check that a dir is new or belongs to the broker with this id; None accepts any. Raises StorageError."""
    if expected is None or meta.node_id is None or meta.node_id == expected:
        return
    key = "node.id" if meta.version else "broker.id"
    cause = OSError(
        f"it belongs to the broker with {key}={meta.node_id} ({names.META_PROPERTIES}), and node.id={expected} is "
        f"set: start with node.id={meta.node_id} or without node.id, or give this broker log dirs of its own. To hand "
        f"the dir over to broker {expected}, change {key} in {names.META_PROPERTIES} of each of its log dirs"
    )
    raise StorageError(path, cause)


def check_meta(metas: Mapping[str, MetaProperties]) -> None:
    """Check that all dirs belong to one broker of one cluster. Raises StorageError."""
    first: tuple[str, MetaProperties] | None = None
    for path, meta in metas.items():
        if first is None:
            first = path, meta
        for what in ("cluster_id", "node_id"):
            mine, other = getattr(meta, what), getattr(first[1], what)
            if None not in (mine, other) and mine != other:
                raise StorageError(path, OSError(f"its {what} is {mine}, but that of {first[0]} is {other}"))


def read_topic_id(disk: Disk, directory: str) -> bytes | None:
    """Return the topic id in a log's directory, None if it has none. Raises OSError."""
    try:
        return properties.decode_partition_metadata(disk.read(f"{directory}/{names.PARTITION_METADATA}"))
    except FileNotFoundError:
        return None
    except CorruptFileError as error:
        log.warning("%s/%s is damaged and was not used: %s", directory, names.PARTITION_METADATA, error)
        return None


def other_name(disk: Disk, key: TopicPartition, path: str, kind: DirKind) -> str:
    """Return an unused path for a log's directory."""
    return f"{path}/{names.marked_dir_name(*key, kind, disk.unique_id().hex())}"


def rename_away(disk: Disk, key: TopicPartition, path: str, directory: str, kind: DirKind) -> str:
    """Rename a log's directory to an unused name; returns its new path. Raises StorageError."""
    renamed = other_name(disk, key, path, kind)
    try:
        disk.rename(directory, renamed)
    except FileNotFoundError:
        log.warning("%s is gone already: it was removed by another program", directory)
    except OSError as error:
        raise StorageError(path, error) from error
    return renamed


def ends_after(disk: Disk, directory: str, offset: int) -> bool:
    """Return whether a log's directory has a segment with records that begins at or after this offset. Raises OSError."""
    for name in file_names(disk, directory):
        file = names.parse_file_name(name)
        is_later = file is not None and file[1:] == (names.LOG, "") and file.base_offset >= offset
        if is_later and disk.stat(f"{directory}/{name}").size:
            return True
    return False


def read_checkpoints(disk: Disk, path: str, *, is_clean: bool) -> Checkpoints:
    """Read the checkpoints of a log dir. Raises OSError."""
    return Checkpoints(
        _read_checkpoint(disk, path, names.RECOVERY_POINT_CHECKPOINT),
        _read_checkpoint(disk, path, names.LOG_START_CHECKPOINT),
        _read_checkpoint(disk, path, names.HIGH_WATERMARK_CHECKPOINT),
        _read_checkpoint(disk, path, names.CLEANER_CHECKPOINT),
        is_clean,
        _was_opened_since_boot(disk, path),
    )


def _was_opened_since_boot(disk: Disk, path: str) -> bool:
    boot_id = disk.boot_id()
    try:
        return bool(boot_id) and disk.read(f"{path}/{names.BOOT_ID}") == boot_id
    except FileNotFoundError:
        return False


def write_boot_id(disk: Disk, path: str) -> None:
    """Write the boot id to a log dir, after all its logs have been checked. Raises OSError.

    Not synced: after a power cut the file may have an older boot id or none, neither of which equals the next one.
    """
    try:
        disk.replace(f"{path}/{names.BOOT_ID}", disk.boot_id(), sync=False)
    except OSError as error:
        if not StorageError(path, error).is_full:
            raise  # without it, the next start takes a crash for a power cut


def _read_checkpoint(disk: Disk, path: str, name: str) -> dict[TopicPartition, int]:
    try:
        return checkpoints.decode_offsets(disk.read(f"{path}/{name}"))
    except FileNotFoundError:
        return {}
    except CorruptFileError as error:
        log.warning("%s/%s is damaged and was not used: %s", path, name, error)
        return {}


def write_checkpoints(disk: Disk, path: str, offsets: Checkpoints) -> None:
    """Write the checkpoints of the logs in a log dir, each file synced. Raises OSError."""
    for name, values in (
        (names.RECOVERY_POINT_CHECKPOINT, offsets.recovery_points),
        (names.LOG_START_CHECKPOINT, offsets.log_starts),
        (names.CLEANER_CHECKPOINT, offsets.clean_offsets),
        (names.HIGH_WATERMARK_CHECKPOINT, offsets.high_watermarks),
    ):
        disk.replace(f"{path}/{name}", checkpoints.encode_offsets(values), sync=True)


def check_in_place(path: str, lock: Lock) -> None:
    """Check that a log dir is still the directory that was locked. Raises StorageError."""
    try:
        is_in_place = lock.is_in_place()
    except OSError as error:
        raise StorageError(path, error) from error
    if not is_in_place:
        cause = (
            "it was removed or replaced while the broker had it open: this file is gone, or is another one"
        )
        raise StorageError(path, FileNotFoundError(ENOENT, cause, f"{path}/{names.LOCK}"))


def is_emptied(disk: Disk, path: str) -> bool:
    """Return whether `meta.properties` is gone, as after `rm -r` of the dir's content. Raises StorageError."""
    try:
        disk.stat(f"{path}/{names.META_PROPERTIES}")
    except FileNotFoundError:
        return True
    except OSError as error:
        raise StorageError(path, error) from error
    return False
