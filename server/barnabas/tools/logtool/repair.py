"""`repair`: bring the directory of a partition into the state that a broker's recovery would bring it into.

The rule: first a complete plan, made by the broker's own recovery over a disk that only records changes. Sound records
are never given up unless requested: a torn end may be cut, a hole in the middle may not. Damage in the middle can be cut
out (`salvage`), so that the sound records around it stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.log.config import UNBOUNDED, LogConfig
from barnabas.log.damage import put_back, undecided
from barnabas.log.disk import Disk
from barnabas.log.format import names
from barnabas.log.openfiles import OpenFiles
from barnabas.log.recovery.loading import LoadedLog, Loader
from barnabas.tools.logtool.overlay import Change, OverlayDisk
from barnabas.tools.logtool.places import PartitionPlace
from barnabas.tools.logtool.verify import Finding, Severity, Verifier


@dataclass(slots=True)
class RepairPlan:
    """Changes to a partition that a repair would make, and what would be lost.

    `lost_bytes` are cut or removed with whole segments. `survivor` is the first sound batch after the first damage as
    (path, position, offset): with it the damage is a hole, without it a torn end. `kept_files` are the files of damage with
    records that cannot be restored, since their offsets have been used again.
    """

    place: PartitionPlace
    changes: list[Change]
    log_start_offset: int
    log_end_offset: int
    findings: list[Finding]
    lost_bytes: int = 0
    survivor: tuple[str, int, int] | None = None
    kept_files: list[str] = field(default_factory=list)


def plan_repair(
    disk: Disk,
    place: PartitionPlace,
    *,
    log_start_offset: int = 0,
    salvage: bool = False,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> RepairPlan:
    """Plan the recovery from the first byte on; sound indexes and snapshots stay as they are.

    With `salvage`, sound batches after damage stay in the log, and bytes that an earlier recovery has cut off are restored
    unless their offsets have been used again; that is the decision for which a coordinator waits. Raises OSError.
    """
    findings: list[Finding] = []
    Verifier(disk, findings.append, on_bytes=on_bytes).partition(place)
    overlay = OverlayDisk(disk)
    # gaps between segments are accepted: a directory does not show whether a cleaner has made them
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    loader = Loader(
        overlay, OpenFiles(), place.path, config, now_ms=0, producer_expiration_ms=UNBOUNDED,
        log_start_offset=log_start_offset, is_cache_intact=salvage,
    )  # fmt: skip
    loaded = _load(loader)
    kept_files = []
    if salvage and any(names.DAMAGED in name for name in place.file_names):
        kept_files = put_back(overlay, place.path, loaded.log_end_offset)
        loaded = _load(loader)
    if salvage:
        for note in undecided(overlay, place.path):
            overlay.remove(note)
    damaged = {finding.path for finding in findings if finding.severity is Severity.ERROR}
    changes = _needed(overlay.changes(), place, damaged, loaded.log_end_offset)
    plan = RepairPlan(place, changes, loaded.log_start_offset, loaded.log_end_offset, findings)
    plan.lost_bytes, plan.kept_files = loader.recovery.lost_bytes, kept_files
    if loader.recovery.damages:
        first = loader.recovery.damages[0]
        plan.survivor = (first.path, first.end, first.next_offset)
    return plan


def _load(loader: Loader) -> LoadedLog:
    loaded = loader.load()
    for segment in loaded.segments:
        segment.close()
    return loaded


def _needed(
    changes: list[Change], place: PartitionPlace, damaged: set[str], log_end_offset: int
) -> list[Change]:
    """Omit changes of derived files that are sound: theirs may be denser."""
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
