"""Files that were removed under a running broker: found by checks, and after errors.

The rule: a file that this broker itself has removed or renamed meanwhile takes no log offline, so the caller checks
again before it acts.
"""

from __future__ import annotations

from collections.abc import Iterable
from errno import ENOENT
from typing import TYPE_CHECKING

from barnabas.errors import StorageError
from barnabas.log.format import names
from barnabas.log.ownership import Ownership
from barnabas.log.registry import LogRegistry

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog


def find_missing(
    registry: LogRegistry, ownership: Ownership, dirs: Iterable[str], *, also_logs: bool
) -> list[StorageError]:
    """Return an error for each log dir that is not in place, and with `also_logs` for each such active segment.

    May run in any thread.
    """
    errors: list[StorageError] = []
    for path in dirs:
        try:
            ownership.check_in_place(path)
            if not also_logs and not ownership.is_emptied(path):
                continue
        except StorageError as error:
            errors.append(error)
            continue
        for partition_log in registry.in_dir(path):
            if not partition_log.is_closed:
                missing = partition_log.missing_file()
                if missing is not None:
                    errors.append(StorageError(path, FileNotFoundError(ENOENT, "no such file", missing)))
    return errors


def missing_file_of(
    registry: LogRegistry, ownership: Ownership, error: StorageError
) -> tuple[PartitionLog, str] | None:
    """Return the log with a missing file, and the file, after an error about one; None if all are in place.

    Raises StorageError if the whole log dir is gone, or was emptied.
    """
    path = error.log_dir
    ownership.check_in_place(path)
    partition_log = _log_of(registry, error)
    missing = partition_log.missing_file(all_segments=True) if partition_log is not None else None
    if partition_log is None or missing is None:
        return None
    if ownership.is_emptied(path):
        cause = "what was in it was removed while the broker had it open"
        raise StorageError(path, FileNotFoundError(ENOENT, cause, missing))
    return partition_log, missing


def _log_of(registry: LogRegistry, error: StorageError) -> PartitionLog | None:
    """Return the log with a missing file in its directory."""
    cause = error.cause
    filename = str(cause.filename) if isinstance(cause, OSError) else ""
    name = filename.removeprefix(f"{error.log_dir}/").partition("/")[0]
    parsed_name = names.parse_dir_name(name)
    if parsed_name is None:
        return None
    partition_log = registry.get((parsed_name.topic, parsed_name.partition))
    is_there = partition_log is not None and partition_log.dir == f"{error.log_dir}/{name}"
    return partition_log if is_there else None
