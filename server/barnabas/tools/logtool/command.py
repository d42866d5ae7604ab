"""The `barnabas log` command: options in, rows and an exit code out.

The rule: exit code 0 means no damage, 1 damage (or a refused repair), 2 that the command failed. Rows are written to
standard output, all else to standard error.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.ending import DONE, FOUND, failed
from barnabas.log.disk import OsDisk, file_names
from barnabas.log.format import names
from barnabas.log.format.names import DirKind
from barnabas.tools.logtool.places import (
    PartitionPlace,
    Place,
    PlaceError,
    PlaceKind,
    find_place,
    lock_path_for,
    open_partition,
    partitions_of,
)
from barnabas.tools.logtool.progress import Progress
from barnabas.tools.logtool.rows import Row, to_json, to_text

if TYPE_CHECKING:
    from barnabas.tools.logtool.dump import Dumper

FAILED = failed("log")


def main(arguments: Sequence[str]) -> int:
    """Run `barnabas log`; returns the exit code."""
    options = parser().parse_args(arguments)
    logging.getLogger("barnabas.log").addHandler(
        logging.NullHandler()
    )  # recovery's own messages: rows say it all
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except PlaceError as error:
        print(f"barnabas log: {error}", file=sys.stderr)
    except OSError as error:
        if error.filename is None:  # of standard output
            raise
        print(f"barnabas log: {error}", file=sys.stderr)
    return FAILED


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    root = argparse.ArgumentParser(
        prog="barnabas log", description="Show, check and repair log dirs, without a broker."
    )
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    common = _common_options()
    for add in (_add_dump, _add_verify, _add_repair, _add_stats):
        add(commands, common)
    from barnabas.tools.logtool.tier_command import add_tier

    add_tier(commands, _printer)
    return root


def _common_options() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "path", metavar="PATH", nargs="+", help="a log dir, a partition's directory, or a file of one"
    )
    common.add_argument("--json", action="store_true", help="print one JSON object a line")
    common.add_argument(
        "--only",
        metavar="NAME",
        default="",
        help="of a log dir, only this topic, or this partition (orders-0)",
    )
    return common


def _add_dump(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser
) -> None:
    dump = commands.add_parser(
        "dump", parents=[common], help="show what is in segments, indexes, checkpoints, ..."
    )
    dump.add_argument("--deep", action="store_true", help="show each record, not the batches alone")
    dump.add_argument(
        "--from", dest="first", type=int, default=0, metavar="OFFSET", help="begin at this offset"
    )
    dump.add_argument(
        "--to", dest="last", type=int, default=(1 << 63) - 1, metavar="OFFSET", help="end with this offset"
    )
    dump.set_defaults(run=_dump)


def _add_verify(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser
) -> None:
    verify = commands.add_parser(
        "verify", parents=[common], help="check checksums, offsets, indexes, snapshots and checkpoints"
    )
    verify.add_argument("--deep", action="store_true", help="decode each record too")
    verify.add_argument("--quiet", action="store_true", help="leave out what is no error")
    verify.add_argument(
        "--all", action="store_true", help="one line for each finding, not for each file with its first ones"
    )
    verify.set_defaults(run=_verify)


def _add_repair(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser
) -> None:
    repair = commands.add_parser(
        "repair", parents=[common], help="rebuild indexes, cut off an incomplete last batch"
    )
    repair.add_argument("--dry-run", action="store_true", help="only say what would be done")
    choice = repair.add_mutually_exclusive_group()
    choice.add_argument(
        "--salvage", action="store_true",
        help="cut out what is damaged and keep the sound records behind it; put back what a recovery has cut off",
    )  # fmt: skip
    choice.add_argument(
        "--give-up-sound-records", action="store_true",
        help="cut at the first damage even if sound records come after it",
    )  # fmt: skip
    repair.set_defaults(run=_repair)


def _add_stats(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser
) -> None:
    stats = commands.add_parser("stats", parents=[common], help="count and measure what is in logs")
    stats.add_argument(
        "--deep", action="store_true", help="look into each record too: keys, tombstones, sizes"
    )
    stats.set_defaults(run=_stats)


# --- what the sub-commands share ------------------------------------------------------------------------------------


def _printer(options: argparse.Namespace) -> Callable[[Row], None]:
    to_line = to_json if options.json else to_text

    def emit(row: Row) -> None:
        print(to_line(row))

    return emit


def _places(disk: OsDisk, options: argparse.Namespace) -> list[Place]:
    return [find_place(disk, os.path.abspath(path)) for path in options.path]


def _partitions(disk: OsDisk, place: Place, only: str) -> list[PartitionPlace]:
    if place.kind is PlaceKind.PARTITION:
        return [open_partition(disk, place.path)]
    if place.kind is PlaceKind.FILE:
        raise PlaceError(f"{place.path} is a file; name the directory of its partition")
    return partitions_of(disk, place.path, only)


@contextmanager
def _progress(disk: OsDisk, partitions: Sequence[PartitionPlace]) -> Iterator[Progress]:
    total = sum(
        disk.stat(partition.file(files.base_offset, names.LOG)).size
        for partition in partitions
        for files in partition.inventory.segments
    )
    progress = Progress(total, sys.stderr)
    try:
        yield progress
    finally:
        progress.clear()


# --- dump -----------------------------------------------------------------------------------------------------------


def _dump(options: argparse.Namespace) -> int:
    from barnabas.tools.logtool.dump import Dumper

    disk = OsDisk(read_only=True)
    dumper = Dumper(disk, options.deep, options.first, options.last)
    emit = _printer(options)
    has_problem = False
    for place in _places(disk, options):
        for row in _dump_rows(disk, dumper, place, options.only):
            has_problem = has_problem or row["kind"] == "problem"
            emit(row)
    return FOUND if has_problem else DONE


def _dump_rows(disk: OsDisk, dumper: Dumper, place: Place, only: str) -> Iterator[Row]:
    if place.kind is PlaceKind.FILE:
        parsed = names.parse_dir_name(place.path.split("/")[-2])
        yield from dumper.file(place.path, parsed.topic if parsed else "")
        return
    if place.kind is PlaceKind.LOG_DIR and not only:
        yield from dumper.log_dir(place.path, file_names(disk, place.path))
    for partition in _partitions(disk, place, only):
        yield from dumper.partition(partition)


# --- verify ---------------------------------------------------------------------------------------------------------


def _verify(options: argparse.Namespace) -> int:
    from barnabas.tools.logtool.grouping import FindingRows
    from barnabas.tools.logtool.logdirs import verify_log_dir
    from barnabas.tools.logtool.verify import Finding, Severity, Verifier

    disk = OsDisk(read_only=True)
    emit = _printer(options)
    findings = FindingRows(emit, each=options.all, quiet=options.quiet)
    checked = 0
    for place in _places(disk, options):
        partitions = _partitions(disk, place, options.only)
        lock_path = lock_path_for(disk, place)
        is_live = lock_path is not None and disk.is_locked(lock_path)
        with _progress(disk, partitions) as progress:
            findings.before_row = progress.clear
            if is_live:
                text = "is in use by a broker: it may be written meanwhile"
                findings.add(Finding(Severity.NOTE, place.path, text))
            verifier = Verifier(disk, findings.add, deep=options.deep, is_live=is_live, on_bytes=progress.add)
            ends = {}
            for partition in partitions:
                end_offset = verifier.partition(partition)
                findings.flush()
                if partition.kind is DirKind.CURRENT:
                    ends[partition.topic, partition.partition] = end_offset
            if place.kind is PlaceKind.LOG_DIR and not options.only:
                verify_log_dir(disk, place.path, ends, findings.add)
            findings.flush()
        checked += len(partitions)
    counts = findings.counts
    emit(
        {
            "kind": "verified",
            "partitions": checked,
            "errors": counts[Severity.ERROR],
            "warnings": counts[Severity.WARNING],
            "notes": counts[Severity.NOTE],
        }
    )
    return FOUND if counts[Severity.ERROR] else DONE


# --- repair ---------------------------------------------------------------------------------------------------------


def _repair(options: argparse.Namespace) -> int:
    from barnabas.tools.logtool.logdirs import plan_log_dir_repair
    from barnabas.tools.logtool.overlay import apply_changes

    disk = OsDisk(read_only=options.dry_run)
    emit = _printer(options)
    code = DONE
    for place in _places(disk, options):
        with _locked(disk, place, dry_run=options.dry_run):
            if place.kind is PlaceKind.LOG_DIR and not options.only:
                changes = plan_log_dir_repair(disk, place.path)
                for change in changes:
                    emit(
                        {
                            "kind": change.what,
                            "path": change.path,
                            "text": "it is damaged; a broker builds it again",
                        }
                    )
                if not options.dry_run:
                    apply_changes(disk, changes)
            if _repair_partitions(disk, place, options, emit):
                code = FOUND
    return code


@contextmanager
def _locked(disk: OsDisk, place: Place, *, dry_run: bool) -> Iterator[None]:
    """Hold the lock of the log dir, so that no broker opens it meanwhile. Raises PlaceError."""
    path = lock_path_for(disk, place)
    in_use = f"{place.path} is in use by a broker (its .lock file is held); stop the broker first"
    if path is None:
        yield
    elif dry_run:
        if disk.is_locked(path):
            raise PlaceError(in_use)
        yield
    else:
        try:
            lock = disk.lock(path)
        except BlockingIOError:
            raise PlaceError(in_use) from None
        try:
            yield
        finally:
            lock.release()


def _repair_partitions(
    disk: OsDisk, place: Place, options: argparse.Namespace, emit: Callable[[Row], None]
) -> bool:
    """Repair each partition; returns whether any was left damaged."""
    from barnabas.tools.logtool.logdirs import read_offsets
    from barnabas.tools.logtool.overlay import apply_changes
    from barnabas.tools.logtool.repair import plan_repair

    log_dir = place.path if place.kind is PlaceKind.LOG_DIR else place.path.rpartition("/")[0]
    starts = read_offsets(disk, f"{log_dir}/{names.LOG_START_CHECKPOINT}")
    partitions = _partitions(disk, place, options.only)
    is_left = False
    with _progress(disk, partitions) as progress:
        for partition in partitions:
            start = starts.get((partition.topic, partition.partition), 0)
            plan = plan_repair(
                disk, partition, log_start_offset=start, salvage=options.salvage, on_bytes=progress.add
            )
            progress.clear()
            for damage_file in plan.kept_files:
                emit(
                    {
                        "kind": "left",
                        "path": damage_file,
                        "text": "sound records stay in it: others have their offsets by now",
                    }
                )
            if plan.survivor is not None and not options.give_up_sound_records and not options.salvage:
                path, position, offset = plan.survivor
                emit(
                    {
                        "kind": "refused",
                        "path": partition.path,
                        "text": f"the log would end at {plan.log_end_offset} and lose {plan.lost_bytes} bytes, but a "
                        f"sound batch with offset {offset} follows (damage up to byte {position} of "
                        f"{path.rpartition('/')[2]}); use --salvage to cut out the damage alone, or "
                        "--give-up-sound-records",
                    }
                )
                is_left = True
                continue
            for change in plan.changes:
                emit({"kind": change.what, "path": change.path, "text": change.describe()})
            if not options.dry_run:
                apply_changes(disk, plan.changes)
            emit(
                {
                    "kind": "sound" if not plan.changes else "to_repair" if options.dry_run else "repaired",
                    "path": partition.path,
                    "log_start_offset": plan.log_start_offset,
                    "log_end_offset": plan.log_end_offset,
                    "lost_bytes": plan.lost_bytes,
                }
            )
    return is_left


# --- stats ----------------------------------------------------------------------------------------------------------


def _stats(options: argparse.Namespace) -> int:
    from barnabas.tools.logtool.stats import collect

    disk = OsDisk(read_only=True)
    emit = _printer(options)
    has_problem = False
    for place in _places(disk, options):
        partitions = _partitions(disk, place, options.only)
        with _progress(disk, partitions) as progress:
            for partition in partitions:
                stats = collect(disk, partition, deep=options.deep, on_bytes=progress.add)
                progress.clear()
                has_problem = has_problem or bool(stats.problems)
                emit(stats.row(partition.name))
    return FOUND if has_problem else DONE
