"""`barnabas log tier`: list, check and clean the store of tiered storage, without a broker.

The rule: only orphans are removed from a store, and only by `repair`. The settings are those of the broker.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from barnabas.config.properties import parse_lines
from barnabas.config.setting import SettingError
from barnabas.ending import DONE, FOUND, failed
from barnabas.environment.extras import explain
from barnabas.tiered.segment import SegmentState
from barnabas.tiered.settings import StoreSettingsError
from barnabas.tiered.storage import RemoteObjectNotFoundError, RemoteStorageError
from barnabas.tiered.stores import ListedStorage, open_store
from barnabas.tools.logtool.places import PlaceError
from barnabas.tools.logtool.rows import Row
from barnabas.tools.logtool.tier import (
    TierMetadata,
    copied,
    described,
    objects_by_segment,
    orphans,
    verify,
)

CLASS_NAME = "remote.log.storage.manager.class.name"
PREFIX = "remote.log.storage.manager.impl.prefix"
METADATA_PREFIX = "remote.log.metadata.manager.impl.prefix"
COUNT = "remote.log.metadata.topic.num.partitions"
_METADATA_PARTITIONS = 50

Emit = Callable[[Row], None]


def add_tier(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    printer: Callable[[argparse.Namespace], Emit],
) -> None:
    """Add `tier` to the commands of `barnabas log`."""
    tier = commands.add_parser("tier", help="list, check and clean a store of tiered storage")
    tasks = tier.add_subparsers(required=True, metavar="TASK")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "path", metavar="LOGDIR", nargs="*", help="log dirs with __remote_log_metadata; default: log.dirs"
    )
    common.add_argument(
        "--config", metavar="FILE", type=Path, help="settings of the broker, as a properties file"
    )
    common.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="a setting of the broker"
    )
    common.add_argument("--json", action="store_true", help="print one JSON object a line")
    common.add_argument(
        "--only", metavar="NAME", default="", help="only this topic, or this partition (orders-0)"
    )
    for name, run, text in (
        ("list", _list, "show the segments by the records of __remote_log_metadata"),
        ("verify", _verify, "check every batch and index of the segments that consumers may read"),
        ("orphans", _orphans, "show objects that belong to no segment"),
        ("repair", _repair, "remove objects that belong to no segment"),
    ):
        task = tasks.add_parser(name, parents=[common], help=text)
        if name == "verify":
            task.add_argument("--deep", action="store_true", help="decode each record too")
        if name == "repair":
            task.add_argument("--dry-run", action="store_true", help="only say what would be removed")
        task.set_defaults(run=_guarded(run, printer))


def _guarded(
    run: Callable[[argparse.Namespace, Emit], int], printer: Callable[[argparse.Namespace], Emit]
) -> Callable[[argparse.Namespace], int]:
    def guarded(options: argparse.Namespace) -> int:
        try:
            return run(options, printer(options))
        except (RemoteStorageError, SettingError, StoreSettingsError) as error:
            print(f"barnabas log tier: {error}", file=sys.stderr)
        except ModuleNotFoundError as error:
            if explain(error) is None:
                raise
            print(f"barnabas log tier: {explain(error)}", file=sys.stderr)
        return failed("log")

    return guarded


def _settings(options: argparse.Namespace) -> dict[str, str]:
    """Read the broker's settings. Raises SettingError, PlaceError."""
    settings: dict[str, str] = {}
    if options.config is not None:
        try:
            settings = {
                name: value for _, name, value in parse_lines(options.config.read_text(encoding="utf-8"))
            }
        except (OSError, UnicodeDecodeError) as error:
            raise PlaceError(f"{options.config}: {error}") from error
    for pair in options.set:
        name, equals, value = pair.partition("=")
        if not equals:
            raise SettingError(f"--set {pair}: NAME=VALUE is expected")
        settings[name.strip()] = value
    return settings


def _store(settings: dict[str, str]) -> ListedStorage:
    if CLASS_NAME not in settings:
        raise SettingError(f"{CLASS_NAME} is missing: name the broker's settings by --config or --set")
    prefix = settings.get(PREFIX, "rsm.config.")
    own = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
    return open_store(settings[CLASS_NAME], own)


def _metadata(options: argparse.Namespace, settings: dict[str, str], emit: Emit) -> TierMetadata:
    text = settings.get("log.dirs") or settings.get("log.dir") or ""
    log_dirs = options.path or [part.strip() for part in text.split(",") if part.strip()]
    if not log_dirs:
        raise PlaceError("name the log dirs with __remote_log_metadata, or log.dirs in the settings")
    metadata = TierMetadata()
    metadata.read_log_dirs([str(Path(log_dir).absolute()) for log_dir in log_dirs])
    for place, problem in metadata.problems:
        emit({"kind": "problem", "path": place, "text": problem})
    if not metadata.read:
        raise PlaceError(f"there is no __remote_log_metadata in {', '.join(log_dirs)}")
    return metadata


def _list(options: argparse.Namespace, emit: Emit) -> int:
    metadata = _metadata(options, _settings(options), emit)
    for partition, lineage in sorted(
        metadata.segments.items(), key=lambda item: (item[0].topic, item[0].partition)
    ):
        if options.only not in ("", partition.topic, f"{partition.topic}-{partition.partition}"):
            continue
        unreferenced = set(lineage.unreferenced())
        for segment in lineage.segments():
            emit(
                {
                    "kind": "segment",
                    **described(segment),
                    "end": segment.end_offset,
                    "size": segment.size,
                    "state": segment.state,
                    "max_timestamp": segment.max_timestamp,
                    "leader_epochs": [list(entry) for entry in segment.leader_epochs],
                    "is_read": segment.state is SegmentState.COPY_FINISHED and segment not in unreferenced,
                }
            )
    return FOUND if metadata.problems else DONE


def _verify(options: argparse.Namespace, emit: Emit) -> int:
    settings = _settings(options)
    store = _store(settings)
    metadata = _metadata(options, settings, emit)
    checked = damaged = 0
    for segment in copied(metadata, options.only):
        checked += 1
        try:
            problems = verify(store, segment, deep=options.deep, on_bytes=lambda _: None)
        except RemoteObjectNotFoundError as error:
            problems = [str(error)]
        except RemoteStorageError as error:
            problems = [f"cannot be read: {error}"]
        damaged += bool(problems)
        for text in problems:
            emit({"kind": "damaged", **described(segment), "text": text})
    emit({"kind": "verified", "segments": checked, "damaged": damaged})
    return FOUND if damaged or metadata.problems else DONE


def _orphans(options: argparse.Namespace, emit: Emit) -> int:
    return _clean(options, emit, is_removed=False)


def _repair(options: argparse.Namespace, emit: Emit) -> int:
    return _clean(options, emit, is_removed=not options.dry_run)


def _clean(options: argparse.Namespace, emit: Emit, *, is_removed: bool) -> int:
    """Show the orphans, and remove those that are certain; 1 if any remain in the store."""
    settings = _settings(options)
    store = _store(settings)
    count = int(settings.get(settings.get(METADATA_PREFIX, "rlmm.config.") + COUNT, _METADATA_PARTITIONS))
    listed = objects_by_segment(store)
    metadata = _metadata(options, settings, emit)
    rest = 0
    for orphan in orphans(listed, metadata, count):
        partition = orphan.segment.partition
        if options.only not in ("", partition.topic, f"{partition.topic}-{partition.partition}"):
            continue
        row = {**described(orphan.segment), "objects": len(orphan.names), "size": orphan.size}
        if not orphan.is_decided:
            emit(
                {
                    "kind": "undecided",
                    **row,
                    "text": "the records of this partition are not in these log dirs",
                }
            )
        elif is_removed:
            store.delete(orphan.segment)
            emit({"kind": "removed", **row})
            continue
        else:
            emit({"kind": "orphan", **row})
        rest += 1
    return FOUND if rest else DONE
