"""Files of a log dir beside its partitions: the identity of its broker, and the checkpoints.

The rule: a checkpoint is compared with its logs; a damaged one is no loss, as a broker continues without it.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.log.disk import Disk
from barnabas.log.format import CorruptFileError, checkpoints, names, properties
from barnabas.tools.logtool.overlay import Change
from barnabas.tools.logtool.places import CHECKPOINTS
from barnabas.tools.logtool.verify import Finding, Report, Severity
from barnabas.wire.topic_partitions import TopicPartition


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Read a checkpoint; empty if it is missing or damaged. Raises OSError."""
    try:
        return checkpoints.decode_offsets(disk.read(path))
    except (FileNotFoundError, CorruptFileError):
        return {}


def verify_log_dir(disk: Disk, path: str, ends: Mapping[TopicPartition, int], report: Report) -> None:
    """Check a log dir's own files; `ends` are the log end offsets of the partitions in it. Raises OSError."""
    present = {entry.name for entry in disk.list(path)}
    meta_path = f"{path}/{names.META_PROPERTIES}"
    if names.META_PROPERTIES in present:
        try:
            properties.MetaProperties.decode(disk.read(meta_path))
        except CorruptFileError as error:
            report(Finding(Severity.ERROR, meta_path, str(error)))
    else:
        report(
            Finding(Severity.NOTE, meta_path, "is missing: no broker has used the dir yet, or it is a copy")
        )
    for name in CHECKPOINTS:
        if name not in present:
            continue
        checkpoint_path = f"{path}/{name}"
        try:
            offsets = checkpoints.decode_offsets(disk.read(checkpoint_path))
        except CorruptFileError as error:
            report(Finding(Severity.ERROR, checkpoint_path, str(error)))
            continue
        for (topic, partition), offset in offsets.items():
            end = ends.get((topic, partition))
            if end is None:
                text = f"speaks of {topic}-{partition}, which is not here"
                report(Finding(Severity.NOTE, checkpoint_path, text))
            elif offset > end:
                severity = Severity.ERROR if name == names.LOG_START_CHECKPOINT else Severity.WARNING
                text = f"says {offset} for {topic}-{partition}, which ends at {end}"
                report(Finding(severity, checkpoint_path, text))


def plan_log_dir_repair(disk: Disk, path: str) -> list[Change]:
    """Return the damaged checkpoints: without them a broker checks more and writes new ones."""
    changes = []
    for name in CHECKPOINTS:
        checkpoint_path = f"{path}/{name}"
        try:
            checkpoints.decode_offsets(disk.read(checkpoint_path))
        except FileNotFoundError:
            continue
        except CorruptFileError:
            changes.append(Change("remove", checkpoint_path))
    return changes
