"""The `barnabas storage` command: prepares log dirs before the first start, as Kafka's `kafka-storage.sh` does.

The rule: a log dir that a node uses, or that is already prepared, is never changed. A broker without a cluster prepares its
log dirs by itself and does not need this command. Nodes of a KRaft quorum do.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from barnabas.broker.serve_options import collect_stored, has_metadata_log
from barnabas.broker.storage import taken_over_journal
from barnabas.cluster.kraft.directory import DIRECTORY
from barnabas.cluster.kraft.formatting import BOOTSTRAP, FIRST_VOTERS
from barnabas.cluster.kraft.offline import image_of
from barnabas.cluster.kraft.own_log_place import metadata_dir
from barnabas.cluster.metadata.journal_names import TAKEN_OVER
from barnabas.config import broker as settings
from barnabas.config.authorizer import has_authorizer
from barnabas.config.controller import controller_settings
from barnabas.config.keeper import Keeper, is_on_zookeeper, keeper_of
from barnabas.config.loading import BrokerConfig
from barnabas.config.quorum_broker import quorum_settings
from barnabas.config.setting import SettingError
from barnabas.ending import DONE, FAILED, USAGE_ERROR
from barnabas.environment.clocks import wall_clock_ms
from barnabas.environment.real import OsEntropy
from barnabas.errors import StorageError
from barnabas.log.disk import OsDisk
from barnabas.log.format.properties import MetaProperties
from barnabas.log.logdir import read_meta
from barnabas.log.ownership import Ownership
from barnabas.security.scram import MECHANISMS
from barnabas.security.scram_options import NamedCredential, parse_credential
from barnabas.serving.release import profile_of
from barnabas.tools.logtool.errors import RefusedError
from barnabas.tools.logtool.quorum_files import QuorumFiles, quorum_files
from barnabas.wire.ids import new_uuid, parse_uuid, uuid_text

SALT_BYTES = 24
_CONTROLLERS = (Keeper.CONTROLLER, Keeper.COMBINED)


def main(arguments: Sequence[str]) -> int:
    """Run `barnabas storage`; returns the exit code."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level="WARNING", format="%(levelname)s %(message)s", stream=sys.stderr)
    try:
        code: int = options.run(options)
    except SettingError as error:
        print(f"barnabas storage: {error}", file=sys.stderr)
        return USAGE_ERROR
    except (RefusedError, StorageError) as error:
        print(f"barnabas storage: {error}", file=sys.stderr)
        return FAILED
    return code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    root = argparse.ArgumentParser(
        prog="barnabas storage",
        description="Prepare log dirs before the first start of a broker or controller.",
    )
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("-c", "--config", metavar="FILE", help="a server.properties file")
    where.add_argument("--data", metavar="DIR", help="where the data is (default: ~/.local/state/barnabas)")
    where.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="set one setting")
    format_ = commands.add_parser("format", parents=[where], help="prepare the log dirs")
    format_.add_argument("-t", "--cluster-id", metavar="ID", help="the cluster's id (default: a random one)")
    format_.add_argument(
        "-S", "--add-scram", metavar="CREDENTIAL", action="append", default=[],
        help="a user who can log in at the first start: 'SCRAM-SHA-256=[name=alice,password=...]'; may be repeated",
    )  # fmt: skip
    format_.add_argument(
        "-g", "--ignore-formatted", action="store_true", help="skip log dirs that are formatted already"
    )
    voters = format_.add_mutually_exclusive_group()
    voters.add_argument(
        "-s", "--standalone", action="store_true",
        help="make a controller the only voter of its quorum",
    )  # fmt: skip
    voters.add_argument(
        "-I", "--initial-controllers", metavar="VOTERS",
        help="make a controller one of these first voters: ID@HOST:PORT:DIRECTORY,...; the same for each of them",
    )  # fmt: skip
    voters.add_argument(
        "-N",
        "--no-initial-controllers",
        action="store_true",
        help="let a controller join a quorum that exists",
    )
    format_.add_argument(
        "-r", "--release-version", metavar="RELEASE",
        help="the release whose features a new quorum begins with (default: 4.4)",
    )  # fmt: skip
    format_.add_argument(
        "-f", "--feature", metavar="NAME=LEVEL", action="append", default=[],
        help="the level of one feature of a new quorum; may be repeated",
    )  # fmt: skip
    format_.set_defaults(run=_format)
    info = commands.add_parser(
        "info", parents=[where], help="show the cluster and node of log dirs, and the users that can log in"
    )
    info.set_defaults(run=_info)
    upgrade = commands.add_parser(
        "upgrade", parents=[where],
        help="put a metadata log in the place of an older version's journal, as the next start of the broker does",
    )  # fmt: skip
    upgrade.set_defaults(run=_upgrade)
    random = commands.add_parser("random-uuid", help="print a random cluster id")
    random.set_defaults(run=_random_uuid)
    return root


def _random_uuid(_: argparse.Namespace) -> int:
    print(uuid_text(new_uuid(OsEntropy())))
    return DONE


def _config(options: argparse.Namespace) -> BrokerConfig:
    """Return the broker's settings. Raises SettingError."""
    collected = collect_stored(options.config, options.data, options.set)
    config = BrokerConfig(collected.settings, collected.origins)
    begins_quorum = any(
        getattr(options, name, None)
        for name in ("standalone", "initial_controllers", "no_initial_controllers")
    )
    config.has_metadata_log = begins_quorum or has_metadata_log(config)
    return config


# --- format -----------------------------------------------------------------------------------------------------


def _format(options: argparse.Namespace) -> int:
    config = _config(options)
    if not options.cluster_id and keeper_of(config) not in (*_CONTROLLERS, Keeper.QUORUM):
        options.cluster_id = uuid_text(new_uuid(OsEntropy()))
    credentials = [_credential(text) for text in options.add_scram]
    dirs = _format_dirs(config, options, credentials)
    if not dirs:
        print("All of the log directories are already formatted.")
        return DONE
    for path in dirs:
        print(f"Formatted {path} for node {config.get(settings.NODE_ID)} of cluster {options.cluster_id}.")
    for credential in credentials:
        print(f"Added {credential.mechanism} for user {credential.user}.")
    return DONE


def format_node(config: BrokerConfig, cluster_id: str) -> None:
    """Format the log dirs of a node of a quorum with static voters, unless they are formatted already.

    Raises SettingError, RefusedError, StorageError.
    """
    config.has_metadata_log = True  # be the node the only one or not
    _format_dirs(
        config, parser().parse_args(["format", "--ignore-formatted", "--cluster-id", cluster_id]), ()
    )


def _format_dirs(
    config: BrokerConfig, options: argparse.Namespace, credentials: Sequence[NamedCredential]
) -> list[str]:
    """Format the log dirs; returns those that were not formatted before."""
    keeper, cluster_id = keeper_of(config), options.cluster_id
    if keeper is Keeper.QUORUM and not cluster_id:
        raise RefusedError(
            "a broker joins the cluster of its controllers: name its id with --cluster-id (kafka-cluster.sh cluster-id "
            "prints it)"
        )
    if keeper in _CONTROLLERS and not cluster_id:
        raise RefusedError(
            "all nodes of a quorum have the same cluster id: name it with --cluster-id (`barnabas storage random-uuid` "
            "prints a new one)"
        )
    try:
        parse_uuid(cluster_id)
    except ValueError:
        raise SettingError(
            f"--cluster-id: {cluster_id!r} is no id; `barnabas storage random-uuid` prints one"
        ) from None
    if keeper in (Keeper.QUORUM, Keeper.ZOOKEEPER) and credentials:
        place = "ZooKeeper" if keeper is Keeper.ZOOKEEPER else "its controllers"
        raise RefusedError(
            f"the users of a cluster are kept in {place}: add them with kafka-configs.sh once a broker runs"
        )
    quorum = quorum_files(config, options, credentials) if keeper in (*_CONTROLLERS, Keeper.ITSELF) else None
    dirs = _new_dirs(config, ignore_formatted=options.ignore_formatted)
    if not dirs:
        return []
    ownership = Ownership(OsDisk(), None)
    try:
        for path in dirs:
            _take(ownership, path)
        if quorum is not None:
            _write_files(ownership, dirs, quorum)
        ownership.write(dirs, cluster_id, config.get(settings.NODE_ID), on_zookeeper=is_on_zookeeper(config))
    finally:
        ownership.release()
    return dirs


def _write_files(ownership: Ownership, dirs: Sequence[str], quorum: QuorumFiles) -> None:
    """Write the first files of a controller. Raises StorageError."""
    disk = OsDisk()
    try:
        for path in dirs:
            disk.make_private(f"{path}/{BOOTSTRAP}")  # it may have credentials
            disk.replace(f"{path}/{BOOTSTRAP}", quorum.bootstrap, sync=True)
        if quorum.first_voters is not None and quorum.metadata_dir in dirs:
            disk.make_dirs(f"{quorum.metadata_dir}/{DIRECTORY}")
            disk.replace(f"{quorum.metadata_dir}/{FIRST_VOTERS}", quorum.first_voters, sync=True)
            ownership.meta[quorum.metadata_dir] = MetaProperties(directory_id=quorum.directory_id)
    except OSError as error:
        raise StorageError(quorum.metadata_dir, error) from error


def _credential(text: str) -> NamedCredential:
    try:
        return parse_credential(text, OsEntropy().token_bytes(SALT_BYTES))
    except ValueError as error:
        raise SettingError(f"--add-scram: {error}") from None


def _dirs(config: BrokerConfig) -> list[str]:
    """Return the log dirs, that of a quorum's metadata among them. Raises SettingError."""
    dirs = list(config.log_dirs)
    keeper = keeper_of(config)
    if keeper is Keeper.QUORUM or keeper in _CONTROLLERS:
        quorum = quorum_settings(config) if keeper is Keeper.QUORUM else controller_settings(config).quorum
        if quorum.log_dir not in dirs:
            dirs.append(quorum.log_dir)
    return dirs


def _new_dirs(config: BrokerConfig, *, ignore_formatted: bool) -> list[str]:
    """Return the log dirs that are not formatted yet. Raises RefusedError for others, unless they may be skipped."""
    formatted = []
    dirs = _dirs(config)
    for path in dirs:
        try:
            if read_meta(OsDisk(), path) is not None:
                formatted.append(path)
        except OSError as error:
            raise StorageError(path, error) from error
    if formatted and not ignore_formatted:
        raise RefusedError(
            f"log directory {formatted[0]} is already formatted. "
            "Use --ignore-formatted to leave it alone and format the others"
        )
    if formatted and len(formatted) < len(dirs):
        raise RefusedError(
            f"{formatted[0]} belongs to a broker: a log dir that is added to its others is prepared when that broker starts"
        )
    return [] if formatted else dirs


def _take(ownership: Ownership, path: str) -> None:
    try:
        ownership.take(path)
    except OSError as error:
        raise StorageError(path, error) from error


# --- upgrade ----------------------------------------------------------------------------------------------------


def _upgrade(options: argparse.Namespace) -> int:
    config = _config(options)
    config.keep_for_all(profile_of(config).kept_for_all)
    disk = OsDisk()
    log_dir = metadata_dir(disk, config.log_dirs, config.get(settings.METADATA_LOG_DIR))
    ownership = Ownership(disk, None)
    try:
        for path in dict.fromkeys((*config.log_dirs, log_dir)):
            _take(ownership, path)
        taken_over = taken_over_journal(
            config, disk, log_dir, wall_clock_ms, may_lose=not has_authorizer(config)
        )
    finally:
        ownership.release()
    if taken_over is None:
        print(f"There is no journal of an older version in {', '.join(config.log_dirs)}.")
        return DONE
    for place in taken_over.lost:
        print(f"lost: {place}")
    print(
        f"{log_dir}/{DIRECTORY} has the metadata now. The files of the journal are there still, named *{TAKEN_OVER}."
    )
    return DONE


# --- info -------------------------------------------------------------------------------------------------------


def _info(options: argparse.Namespace) -> int:
    config = _config(options)
    disk = OsDisk(read_only=True)
    missing = False
    for path in _dirs(config):
        try:
            meta = read_meta(disk, path)
        except OSError as error:
            raise StorageError(path, error) from error
        if meta is None:
            missing = True
            print(f"{path}: not formatted")
        else:
            print(
                f"{path}: node {meta.node_id} of cluster {meta.cluster_id}, meta.properties version {meta.version}"
            )
    if keeper_of(config) is Keeper.ITSELF and not missing:
        _print_users(config)
    return FAILED if missing else DONE


def _print_users(config: BrokerConfig) -> None:
    """Print the users in the metadata log, or those with which it will begin."""
    disk = OsDisk(read_only=True)
    image = image_of(disk, config.log_dirs, config.get(settings.METADATA_LOG_DIR))
    names = {mechanism.type: name for name, mechanism in MECHANISMS.items()}
    users: dict[str, list[str]] = {}
    for (user, number), credential in sorted(image.users.items()):
        users.setdefault(user, []).append(f"{names[number]} ({credential.iterations} iterations)")
    for user, kinds in users.items():
        print(f"user {user}: {', '.join(kinds)}")
