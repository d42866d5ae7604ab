"""The `barnabas snapshot` command: snapshots of a broker in a bucket or a directory.

The rule: exit code 0 means success, 1 a failure, or a damaged snapshot, 2 an invalid option. Rows are written to
standard output, all else to standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from barnabas.config.setting import SettingError
from barnabas.ending import DONE, FAILED, FOUND, USAGE_ERROR
from barnabas.errors import StorageError
from barnabas.tiered.settings import StoreSettingsError
from barnabas.tiered.storage import RemoteStorageError
from barnabas.tools.logtool.progress import Progress
from barnabas.tools.logtool.rows import to_json, to_text
from barnabas.tools.snapshots.layout import SnapshotRecord, SnapshotStoreError
from barnabas.tools.snapshots.store import SnapshotStore
from barnabas.tools.snapshots.urls import open_place, parse_options

if TYPE_CHECKING:
    from barnabas.tools.snapshots.sources import Source

CONTROL_TOKEN = "BARNABAS_CONTROL_TOKEN"
THREADS_MAX = 64
_EPILOG = """URL is s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIR. Settings of a store
are those of tiered storage, as --store s3.endpoint.url=http://localhost:9000 or BARNABAS_STORE_S3_ENDPOINT_URL."""


def main(arguments: Sequence[str]) -> int:
    """Run `barnabas snapshot`; returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except (SettingError, StoreSettingsError) as error:
        print(f"barnabas snapshot: {error}", file=sys.stderr)
        return USAGE_ERROR
    except (SnapshotStoreError, RemoteStorageError, StorageError) as error:
        print(f"barnabas snapshot: {error}", file=sys.stderr)
        return FAILED
    return code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    root = argparse.ArgumentParser(
        prog="barnabas snapshot",
        description="Keep snapshots of a broker that is alone in a bucket or a directory.",
        epilog=_EPILOG,
    )
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("url", metavar="URL", help="the store of the snapshots")
    add_store_options(common)
    common.add_argument("--json", action="store_true", help="print one JSON object a line")
    push = commands.add_parser("push", parents=[common], help="store a snapshot", epilog=_EPILOG)
    push.add_argument("name", metavar="NAME", nargs="?", help="the snapshot's name (default: the time)")
    source = push.add_mutually_exclusive_group()
    source.add_argument(
        "--control", metavar="URL", help="of a running broker: its control API, on this machine"
    )
    source.add_argument(
        "--data", metavar="DIR", help="of a stopped one: its data (default: ~/.local/state/barnabas)"
    )
    source.add_argument(
        "--config", metavar="FILE", help="of a stopped one: its server.properties, for log.dirs"
    )
    push.add_argument(
        "--control-token", metavar="TOKEN", help=f"what the control API wants (default: {CONTROL_TOKEN})"
    )
    push.add_argument(
        "--tag", metavar="TAG", action="append", default=[],
        help="another name for it, taken from the snapshot that has it; may be repeated",
    )  # fmt: skip
    push.add_argument("--replace", action="store_true", help="replace a snapshot of this name")
    push.set_defaults(run=_push)
    pull = commands.add_parser(
        "pull", parents=[common], help="make a data directory of a snapshot", epilog=_EPILOG
    )
    pull.add_argument("name", metavar="NAME", nargs="?", help="a snapshot or a tag (default: the newest)")
    pull.add_argument(
        "--data", metavar="DIR", required=True, help="the directory, which is not there or empty"
    )
    pull.set_defaults(run=_pull)
    list_ = commands.add_parser("list", parents=[common], help="show the snapshots")
    list_.set_defaults(run=_list)
    verify = commands.add_parser("verify", parents=[common], help="read snapshots, and check every byte")
    verify.add_argument("name", metavar="NAME", nargs="?", help="a snapshot or a tag (default: all)")
    verify.set_defaults(run=_verify)
    tag = commands.add_parser("tag", parents=[common], help="give a snapshot another name")
    tag.add_argument("name", metavar="NAME", help="a snapshot or a tag")
    tag.add_argument("tag", metavar="TAG", help="the other name, taken from the snapshot that has it")
    tag.set_defaults(run=_tag)
    delete = commands.add_parser(
        "delete", parents=[common], help="remove snapshots or tags, and objects that no snapshot names"
    )
    delete.add_argument("names", metavar="NAME", nargs="+", help="a snapshot, or a tag alone")
    prune = commands.add_parser(
        "prune",
        parents=[common],
        help="remove objects that no snapshot names, as interrupted pushes leave them",
    )
    prune.set_defaults(names=[])
    for command in (delete, prune):
        command.add_argument("--dry-run", action="store_true", help="only say what would be removed")
        command.set_defaults(run=_delete)
    return root


def add_store_options(options: argparse.ArgumentParser) -> None:
    """Add the options for access to a store."""
    options.add_argument(
        "--store", metavar="NAME=VALUE", action="append", default=[],
        help="a setting of the store, as s3.region=eu-west-1; may be repeated",
    )  # fmt: skip
    options.add_argument(
        "--threads", type=_threads, default=8, metavar="N",
        help="requests at the same time, each with 8 MiB in memory at most (default: 8)",
    )  # fmt: skip


def open_store(url: str, pairs: Sequence[str]) -> SnapshotStore:
    """Open the store of a URL. Raises SnapshotStoreError, StoreSettingsError, ModuleNotFoundError."""
    return SnapshotStore(open_place(url, parse_options(pairs), os.environ))


class Shown:
    """A bar of progress that begins when the number of bytes is known."""

    def __init__(self) -> None:
        self._progress: Progress | None = None

    def note(self, done: int, total: int) -> None:
        """Show the progress in bytes."""
        if self._progress is None:
            self._progress = Progress(total, sys.stderr)
        self._progress.add(done - self._progress.done)

    def clear(self) -> None:
        """Wipe the bar away."""
        if self._progress is not None:
            self._progress.clear()


def _threads(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= THREADS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: a number from 1 to {THREADS_MAX} expected")
    return int(text)


def _printer(options: argparse.Namespace) -> Callable[[dict[str, Any]], None]:
    to_line = to_json if options.json else to_text
    return lambda row: print(to_line(row))


def _row(kind: str, record: SnapshotRecord) -> dict[str, Any]:
    created = datetime.fromtimestamp(record.created_ms / 1000, UTC)
    return {
        "kind": kind, "name": record.name, "tags": list(record.tags),
        "created": created.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "bytes": record.size, "files": record.files, "topics": record.topics, "log_dirs": record.log_dirs,
        "clean": record.is_clean, "cluster_id": record.cluster_id, "version": record.version,
    }  # fmt: skip


def _push(options: argparse.Namespace) -> int:
    from barnabas.tools.snapshots.pushing import push

    store = open_store(options.url, options.store)
    name = options.name or datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    shown = Shown()
    try:
        with _source(options) as source:
            result = push(
                store, source, name, tags=options.tag, is_replaced=options.replace, threads=options.threads,
                note_bytes=shown.note,
            )  # fmt: skip
    finally:
        shown.clear()
    sent = {"objects": result.blobs, "sent_objects": result.sent_blobs, "sent_bytes": result.sent_bytes}
    _printer(options)({**_row("pushed", result.record), **sent})
    for work in result.interrupted:
        print(
            f"barnabas snapshot: {work.text} was interrupted; `barnabas snapshot prune {options.url}` removes what it left",
            file=sys.stderr,
        )
    return DONE


def _source(options: argparse.Namespace) -> AbstractContextManager[Source]:
    """Return the source that options name. Raises SettingError."""
    from barnabas.tools.snapshots import sources

    if options.control is not None:
        return sources.running(options.control, options.control_token or os.environ.get(CONTROL_TOKEN, ""))
    from barnabas.broker.serve_options import collect_stored
    from barnabas.config.loading import BrokerConfig

    collected = collect_stored(options.config, options.data, ())
    return sources.stopped([path.rstrip("/") for path in BrokerConfig(collected.settings).log_dirs])


def pull_shown(options: argparse.Namespace, data: str) -> tuple[SnapshotRecord, list[str]]:
    """Pull the snapshot that options name, with a bar of progress; return it and its log dirs.

    Raises SnapshotStoreError, RemoteStorageError, OSError.
    """
    from barnabas.tools.snapshots.pulling import pull

    store = open_store(options.url, options.store)
    record = store.resolve(options.name)
    shown = Shown()
    try:
        log_dirs = pull(
            store, store.manifest(record.manifest), data, threads=options.threads, note_bytes=shown.note
        )
    finally:
        shown.clear()
    return record, log_dirs


def _pull(options: argparse.Namespace) -> int:
    record, log_dirs = pull_shown(options, options.data)
    _printer(options)({**_row("pulled", record), "directories": log_dirs})
    return DONE


def _list(options: argparse.Namespace) -> int:
    emit = _printer(options)
    for record in open_store(options.url, options.store).records():
        emit(_row("snapshot", record))
    return DONE


def _verify(options: argparse.Namespace) -> int:
    from barnabas.tools.snapshots.pulling import verify

    store, emit = open_store(options.url, options.store), _printer(options)
    records = store.records() if options.name is None else [store.resolve(options.name)]
    has_problem = False
    for record in records:
        shown = Shown()
        try:
            problems = verify(
                store, store.manifest(record.manifest), threads=options.threads, note_bytes=shown.note
            )
        except SnapshotStoreError as error:
            problems = [str(error)]
        shown.clear()
        for problem in problems:
            emit({"kind": "problem", "name": record.name, "text": problem})
        has_problem = has_problem or bool(problems)
        emit({"kind": "verified", "name": record.name, "problems": len(problems)})
    return FOUND if has_problem else DONE


def _tag(options: argparse.Namespace) -> int:
    store = open_store(options.url, options.store)
    record = store.resolve(options.name)
    store.tag(options.tag, record.name)
    _printer(options)({"kind": "tagged", "name": record.name, "tag": options.tag})
    return DONE


def _delete(options: argparse.Namespace) -> int:
    from barnabas.tools.snapshots.pruning import delete

    store = open_store(options.url, options.store)
    pruned = delete(store, options.names, is_dry=options.dry_run, threads=options.threads)
    _printer(options)(
        {
            "kind": "to_delete" if options.dry_run else "deleted",
            "snapshots": pruned.snapshots, "tags": pruned.tags, "objects": pruned.objects, "bytes": pruned.size,
        }
    )  # fmt: skip
    return DONE
