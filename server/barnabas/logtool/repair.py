"""`repair`: bring the directory of a partition into the state that a broker's recovery would bring it into.

The rule: a whole plan first, made by the broker's own recovery over a disk that only pretends. Sound records are
never given up unless that was asked for: a torn end may be cut, a hole in the middle may not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.log.config import UNBOUNDED, LogConfig
from barnabas.log.disk import Disk, File
from barnabas.log.format import names
from barnabas.log.loading import Loader
from barnabas.log.openfiles import OpenFiles
from barnabas.logtool.overlay import Change, OverlayDisk
from barnabas.logtool.places import PartitionPlace
from barnabas.logtool.verify import Finding, Severity, Verifier
from barnabas.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC_OFFSET, check_crc, read_header
from barnabas.records.errors import RecordsError

CHUNK_BYTES = 1 << 20


@dataclass(slots=True)
class RepairPlan:
    """What would be done to a partition, and what would be lost.

    `lost_bytes` are cut or removed with whole segments. `survivor` is the first sound batch behind the damage as
    (path, position, offset): what makes the difference between a torn end and a hole.
    """

    place: PartitionPlace
    changes: list[Change]
    log_start_offset: int
    log_end_offset: int
    findings: list[Finding]
    lost_bytes: int = 0
    survivor: tuple[str, int, int] | None = None


def plan_repair(
    disk: Disk,
    place: PartitionPlace,
    *,
    log_start_offset: int = 0,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> RepairPlan:
    """Find out what recovery from the first byte on would do; sound indexes and snapshots stay as they are.

    Raises OSError.
    """
    findings: list[Finding] = []
    Verifier(disk, findings.append, on_bytes=on_bytes).partition(place)
    overlay = OverlayDisk(disk)
    # Gaps between segments are let be: whether a cleaner has made them is nothing that a directory tells.
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    loader = Loader(
        overlay, OpenFiles(), place.path, config, now_ms=0, producer_expiration_ms=UNBOUNDED,
        log_start_offset=log_start_offset,
    )  # fmt: skip
    loaded = loader.load()
    for segment in loaded.segments:
        segment.close()
    damaged = {finding.path for finding in findings if finding.severity is Severity.ERROR}
    changes = _needed(overlay.changes(), place, damaged, loaded.log_end_offset)
    plan = RepairPlan(place, changes, loaded.log_start_offset, loaded.log_end_offset, findings)
    _measure_loss(disk, plan)
    return plan


def _needed(
    changes: list[Change], place: PartitionPlace, damaged: set[str], log_end_offset: int
) -> list[Change]:
    """Leave out what recovery does to derived files that are sound as they are: theirs may be denser."""
    written = {change.path for change in changes if change.what == "write"}
    moved = {change.path for change in changes if change.path.endswith(names.LOG)}
    moved |= {change.target for change in changes if change.what == "rename"}

    def is_needed(change: Change) -> bool:
        name = change.path.rpartition("/")[2]
        parsed = names.parse_file_name(name)
        if parsed is None or parsed.mark or parsed.suffix == names.LOG or change.path in damaged:
            return change.what != "remove" or change.path not in written
        if parsed.suffix == names.SNAPSHOT:
            return change.what == "remove" and parsed.base_offset > log_end_offset
        log_path = place.file(parsed.base_offset, names.LOG)
        has_sound_log = log_path.rpartition("/")[2] in place.file_names and log_path not in moved
        return not has_sound_log or name not in place.file_names

    return [change for change in changes if is_needed(change)]


def _measure_loss(disk: Disk, plan: RepairPlan) -> None:
    sources = {change.target: change.path for change in plan.changes if change.what == "rename"}
    last_rename = max((n for n, change in enumerate(plan.changes) if change.what == "rename"), default=-1)
    cut: list[tuple[str, int]] = []
    for n, change in enumerate(plan.changes):
        # What goes before the renames has been compacted into a segment that takes its name: it is not lost.
        if change.path.endswith(names.LOG) and change.what in ("cut", "remove") and n > last_rename:
            cut.append((change.path, change.size if change.what == "cut" else 0))
    for path, position in sorted(cut):
        file = disk.open(sources.get(path, path))
        size = file.size()
        plan.lost_bytes += size - position
        if plan.survivor is None:
            found = find_sound_batch(file, position, size)
            if found is not None:
                plan.survivor = (path, *found)


def find_sound_batch(file: File, position: int, end: int) -> tuple[int, int] | None:
    """Find a batch (magic 2) with a good checksum at or behind `position`: its (position, base offset)."""
    while end - position >= HEADER_SIZE:
        data = file.read(min(CHUNK_BYTES, end - position), position)
        at = data.find(2, MAGIC_OFFSET)
        while at >= 0:
            start = position + at - MAGIC_OFFSET
            found = _sound_batch_at(file, data, at - MAGIC_OFFSET, start, end)
            if found is not None:
                return start, found
            at = data.find(2, at + 1)
        position += max(1, len(data) - MAGIC_OFFSET)
    return None


def _sound_batch_at(file: File, data: bytes, at: int, start: int, end: int) -> int | None:
    """The base offset of the batch there, if it is one."""
    length = int.from_bytes(data[at + 8 : at + LOG_OVERHEAD], "big")
    if not HEADER_SIZE - LOG_OVERHEAD <= length <= end - start - LOG_OVERHEAD:
        return None
    whole = file.read(LOG_OVERHEAD + length, start)
    try:
        header = read_header(whole)
    except RecordsError:
        return None
    is_sound = check_crc(whole, 0, header) and header.base_offset >= 0 and header.last_offset_delta >= 0
    return header.base_offset if is_sound else None
