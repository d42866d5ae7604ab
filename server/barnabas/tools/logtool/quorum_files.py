"""Initial files of a controller of a KRaft quorum, by the options of `barnabas storage format`.

The rule: options have the meaning of those of Kafka's `kafka-storage.sh format`; incompatible levels are refused.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

from barnabas.cluster.kraft.controller.versions import SCRAM_LEVEL
from barnabas.cluster.kraft.feature_levels import SUPPORTED, formatting_records
from barnabas.cluster.kraft.formatting import (
    bootstrap_file,
    first_level,
    first_voters_file,
    level_of,
    parse_voters,
)
from barnabas.cluster.kraft.image import METADATA_VERSION
from barnabas.cluster.kraft.own_log import ENDPOINT
from barnabas.cluster.kraft.own_log_place import metadata_dir
from barnabas.cluster.kraft.raft.values import KRAFT_VERSIONS
from barnabas.cluster.kraft.transitions import KRAFT_VERSION
from barnabas.cluster.kraft.values import Voter
from barnabas.config import broker as settings
from barnabas.config.controller import ControllerSettings, advertised_controllers, controller_settings
from barnabas.config.keeper import Keeper, keeper_of
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError
from barnabas.environment.clocks import wall_clock_ms
from barnabas.environment.real import OsEntropy
from barnabas.log.disk import OsDisk
from barnabas.security.scram import MECHANISMS
from barnabas.security.scram_options import NamedCredential
from barnabas.tools.logtool.errors import RefusedError
from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord
from barnabas.wire.generated.metadata_records.user_scram_credential import UserScramCredentialRecord
from barnabas.wire.ids import new_uuid


class QuorumFiles(NamedTuple):
    """Content of the files of a controller."""

    metadata_dir: str
    bootstrap: bytes
    first_voters: bytes | None = None
    """None where the voters are static, or the controller joins a quorum that exists."""
    directory_id: bytes | None = None
    """The id that the voters have for this controller's dir; None for any."""


def quorum_files(
    config: BrokerConfig, options: argparse.Namespace, credentials: Sequence[NamedCredential]
) -> QuorumFiles:
    """Return the first files of a controller. Raises SettingError, RefusedError."""
    if keeper_of(config) is Keeper.ITSELF:
        voter = Voter(config.get(settings.NODE_ID), new_uuid(OsEntropy()), (ENDPOINT,), KRAFT_VERSIONS)
        voters: tuple[Voter, ...] = (voter,)
        log_dir = metadata_dir(OsDisk(), config.log_dirs, config.get(settings.METADATA_LOG_DIR))
    else:
        controller = controller_settings(config)
        voters, log_dir = _voters(config, controller, options), controller.quorum.log_dir
    now_ms = wall_clock_ms()
    files = QuorumFiles(
        log_dir, bootstrap_file(_records(config, options, credentials, is_dynamic=bool(voters)), now_ms)
    )
    if not voters:
        return files
    directory_id = {voter.id: voter.directory_id for voter in voters}.get(config.get(settings.NODE_ID))
    return files._replace(first_voters=first_voters_file(voters, now_ms), directory_id=directory_id)


def _voters(
    config: BrokerConfig, controller: ControllerSettings, options: argparse.Namespace
) -> tuple[Voter, ...]:
    """Return the first voters of the log, none where they are static or exist."""
    quorum = controller.quorum
    if options.initial_controllers is not None:
        try:
            return parse_voters(options.initial_controllers, quorum.listener)
        except ValueError as error:
            raise SettingError(f"--initial-controllers: {error}") from None
    if options.standalone:
        host, port = advertised_controllers(config)[quorum.listener]
        endpoint = (quorum.listener, host or "localhost", port)
        return (Voter(quorum.node_id, new_uuid(OsEntropy()), (endpoint,), KRAFT_VERSIONS),)
    if not quorum.static_voters and not options.no_initial_controllers:
        raise RefusedError(
            f"{settings.CONTROLLER_QUORUM_VOTERS.name} is not set on this controller: say how its quorum begins, with "
            "--standalone, --initial-controllers or --no-initial-controllers"
        )
    return ()


def _records(
    config: BrokerConfig,
    options: argparse.Namespace,
    credentials: Sequence[NamedCredential],
    *,
    is_dynamic: bool,
) -> list[Any]:
    """Return the records of a new cluster: levels of features, and users."""
    asked = dict(_level(text) for text in options.feature)
    default = first_level(config.release)
    level = asked.pop(METADATA_VERSION, default)
    if options.release_version is not None:
        if level != default:
            raise RefusedError(
                f"--release-version and --feature {METADATA_VERSION}={level}: give one of them"
            )
        try:
            level = level_of(options.release_version)
        except ValueError as error:
            raise SettingError(f"--release-version: {error}") from None
    if bool(asked.pop(KRAFT_VERSION, is_dynamic)) is not is_dynamic:
        raise RefusedError(
            f"--feature {KRAFT_VERSION}: it is 1 with --standalone or --initial-controllers, and 0 without"
        )
    try:
        features = {record.name: record.feature_level for record in formatting_records(level)} | asked
    except ValueError as error:
        raise RefusedError(f"metadata.version {level}: {error}") from None
    if features.get("eligible.leader.replicas.version") and level < 23:
        raise RefusedError(f"eligible.leader.replicas.version=1 needs metadata.version 23, and it is {level}")
    if credentials and level < SCRAM_LEVEL:
        raise RefusedError(f"--add-scram needs metadata.version {SCRAM_LEVEL}, and it is {level}")
    return [
        *(FeatureLevelRecord(name, number) for name, number in features.items() if number),
        *(
            UserScramCredentialRecord(
                user, MECHANISMS[mechanism].type, kept.salt, kept.stored_key, kept.server_key, kept.iterations
            )
            for user, mechanism, kept in credentials
        ),
    ]


def _level(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    supported = SUPPORTED.get(name)
    if supported is None:
        raise SettingError(
            f"--feature {text}: there is no feature {name!r}; there are {', '.join(SUPPORTED)}"
        )
    if not number.isdecimal() or not supported.lowest <= int(number) <= supported.highest:
        raise SettingError(
            f"--feature {text}: levels of {name} are {supported.lowest} to {supported.highest}"
        )
    return name, int(number)
