"""`barnabas fork`: a separate broker with the contents of a stored snapshot.

The rule: it is `barnabas serve`, with its options, on data that was pulled before; without `--data` the data is removed
at the end.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from barnabas.config.setting import SettingError
from barnabas.ending import FAILED, USAGE_ERROR
from barnabas.tiered.settings import StoreSettingsError
from barnabas.tiered.storage import RemoteStorageError
from barnabas.tools.snapshots.command import add_store_options, pull_shown
from barnabas.tools.snapshots.layout import SnapshotStoreError

_ADDRESS = "localhost:0"
"""Address of a fork unless options say so: at a free port, since the original may be on the usual one."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    from barnabas.environment.ephemeral import ephemeral_directory

    options, others = parser().parse_known_args(arguments)
    for name in ("--ephemeral", "--zookeeper", "--workers", "--demo-security"):
        if any(word == name or word.startswith(f"{name}=") for word in others):
            print(f"barnabas fork: {name} does not go together with the data of a snapshot", file=sys.stderr)
            return USAGE_ERROR
    if options.data is not None:
        return _run(options, others, options.data)
    with ephemeral_directory() as directory:
        return _run(options, others, f"{directory}/data")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's own options."""
    own = argparse.ArgumentParser(
        prog="barnabas fork",
        description="Start a broker that holds what a snapshot of `barnabas snapshot push` holds.",
        epilog="All other options are those of `barnabas serve`. Without --listen it listens at a free port of localhost; "
        "the line that says that it is ready names it.",
        allow_abbrev=False,
    )
    own.add_argument("--from", dest="url", metavar="URL", required=True, help="the store of the snapshots")
    own.add_argument("--name", metavar="NAME", help="a snapshot or a tag (default: the newest)")
    own.add_argument(
        "--data", metavar="DIR",
        help="where to keep the data, a directory that is not there or empty (default: in memory, gone when the broker "
        "stops)",
    )  # fmt: skip
    add_store_options(own)
    return own


def _run(options: argparse.Namespace, others: Sequence[str], data: str) -> int:
    try:
        _, log_dirs = pull_shown(options, data)
    except (SettingError, StoreSettingsError) as error:
        print(f"barnabas fork: {error}", file=sys.stderr)
        return USAGE_ERROR
    except (SnapshotStoreError, RemoteStorageError) as error:
        print(f"barnabas fork: {error}", file=sys.stderr)
        return FAILED
    from barnabas.cli.options import whole_parser
    from barnabas.cli.serve import serve

    words = ["serve", *others]
    words += ["--data", data] if log_dirs == [data] else ["--set", f"log.dirs={','.join(log_dirs)}"]
    served = whole_parser(serve, {}).parse_args(words)
    if not served.listen and served.config is None:
        served.listen = [_ADDRESS]
    return serve(served)
