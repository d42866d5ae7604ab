"""Takeover of an older version's journal: its content becomes the metadata log of a broker that is alone.

The rule: at each moment either the journal or the log counts. The log is written completely in a staging directory, and
counts once that is synced and renamed. Then the files of the journal are renamed and kept, and the log moves to its
place. A start after a crash continues from there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cluster.kraft.directory import DIRECTORY
from barnabas.cluster.kraft.own_log_place import LogPlace, Node, has_log
from barnabas.cluster.kraft.own_metadata import OwnMetadata
from barnabas.cluster.metadata.access_changes import (
    AclAdded,
    ClientQuotaChanged,
    DelegationTokenChanged,
    ScramCredentialChanged,
)
from barnabas.cluster.metadata.changes import (
    ConfigChanged,
    LogDirsRegistered,
    ProducerIdsAllocated,
    TopicCreated,
)
from barnabas.cluster.metadata.image import BROKER, BrokerInfo, Change, ClusterImage
from barnabas.cluster.metadata.journal import read_journal
from barnabas.cluster.metadata.journal_names import READY, TAKEN_OVER, journal_files
from barnabas.cluster.metadata.replay import replay
from barnabas.config.metadata_log import LogSettings
from barnabas.errors import StorageError
from barnabas.log.disk import file_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.log.disk import Disk

log = logging.getLogger(__name__)

STAGING: Final = "barnabas-metadata.taking-over"
"""Staging directory of the log."""
OUTCOME: Final = "takeover.json"
"""File in the finished log: unreadable places of the journal, and ids of deleted topics."""


class TakenOver(NamedTuple):
    """Outcome of a takeover: unreadable places of the journal, and ids of deleted topics."""

    lost: tuple[str, ...]
    deleted: frozenset[bytes]


def has_journal(disk: Disk, dirs: Sequence[str]) -> bool:
    """Return whether there is a journal that no log has replaced. Raises StorageError if there is a journal and a log."""
    if any(has_log(disk, path, READY) for path in dirs):
        return True
    journal = journal_files(disk, dirs)
    with_log = next((path for path in dirs if has_log(disk, path)), None)
    if journal and with_log is not None:
        raise StorageError(
            with_log,
            OSError(
                f"an older version of Barnabas has run here after this one: {journal[0]} and {with_log}/{DIRECTORY} both "
                "say what topics there are. Move aside the one that is not to count"
            ),
        )
    return bool(journal)


def take_over(
    disk: Disk,
    dirs: Sequence[str],
    log_dir: str,
    node: tuple[int, bytes],
    wall_clock_ms: Callable[[], int],
    *,
    for_all: Mapping[str, str] = MappingProxyType({}),
    release: str = "",
    may_lose: bool = True,
) -> TakenOver:
    """Replace the journal in these log dirs, which are locked, by a metadata log.

    `node` is the id of the broker, and the id of the dir of the log; `for_all` are defaults of cluster-wide settings, as
    for `OwnStore.open`, and `release` is that of `LogPlace`. A damaged journal is an error unless `may_lose`. Raises
    StorageError; a later call then continues.
    """
    path = f"{log_dir}/{DIRECTORY}"
    try:
        if not has_log(disk, log_dir, READY):
            _make(disk, dirs, log_dir, node, wall_clock_ms, for_all, release, may_lose=may_lose)
        outcome = json.loads(disk.read(f"{log_dir}/{READY}/{OUTCOME}"))
        _rename_journal(disk, dirs)
        disk.rename(f"{log_dir}/{READY}", path)
        disk.sync_dir(log_dir)
        disk.remove(f"{path}/{OUTCOME}")
    except (OSError, ValueError) as error:
        raise StorageError(log_dir, error) from error
    log.warning(
        "%s has taken the place of the metadata journal, whose files are named *%s now", path, TAKEN_OVER,
    )  # fmt: skip
    return TakenOver(tuple(outcome["lost"]), frozenset(map(bytes.fromhex, outcome["deleted"])))


def _make(
    disk: Disk,
    dirs: Sequence[str],
    log_dir: str,
    node: tuple[int, bytes],
    wall_clock_ms: Callable[[], int],
    for_all: Mapping[str, str],
    release: str,
    *,
    may_lose: bool,
) -> None:
    """Write the log with the journal's content, ready to be moved to its place. Raises OSError, StorageError."""
    content = read_journal(disk, dirs)
    replayed = replay(content.changes)
    lost = [*content.lost, *replayed.left_out]
    if lost and not may_lose:
        raise StorageError(log_dir, OSError(f"the metadata journal is damaged: {'; '.join(lost)}"))
    staging = f"{log_dir}/{STAGING}"
    disk.remove_tree(staging)
    image = ClusterImage("").apply(replayed.changes)
    if for_all:
        settings = {**for_all, **image.settings_of(BROKER, "")}
        image = image.apply([ConfigChanged(BROKER, "", tuple(settings.items()))])
    metadata = OwnMetadata(LogPlace(disk, staging, LogSettings(), wall_clock_ms, release))
    metadata.open()
    metadata.lead(Node(*node), BrokerInfo(node[0], None, {}))
    metadata.keep(ClusterImage(""), [[change] for change in changes_of(image)])
    metadata.close()
    outcome = {"lost": lost, "deleted": sorted(topic_id.hex() for topic_id in replayed.deleted)}
    disk.replace(f"{staging}/{DIRECTORY}/{OUTCOME}", json.dumps(outcome).encode(), sync=True)
    disk.rename(f"{staging}/{DIRECTORY}", f"{log_dir}/{READY}")
    disk.sync_dir(log_dir)
    disk.remove_tree(staging)


def _rename_journal(disk: Disk, dirs: Sequence[str]) -> None:
    """Rename the files of the journal; files from an earlier takeover are not overwritten. Raises OSError."""
    for path in journal_files(disk, dirs):
        present = file_names(disk, path.rpartition("/")[0])
        target = path + TAKEN_OVER
        while target.rpartition("/")[2] in present:
            target += TAKEN_OVER
        disk.rename(path, target)
    for directory in {path.rpartition("/")[0] for path in journal_files(disk, dirs, TAKEN_OVER)}:
        disk.sync_dir(directory)  # also if a process was killed after the rename


def changes_of(image: ClusterImage) -> Iterator[Change]:
    """Yield the changes from an empty image to an image, without its brokers."""
    yield from map(TopicCreated, image.topics.values())
    for (kind, name), settings in image.configs.items():
        yield ConfigChanged(kind, name, tuple(settings.items()))
    if image.next_producer_id:
        yield ProducerIdsAllocated(image.next_producer_id)
    for broker_id, directory_ids in image.log_dirs.items():
        yield LogDirsRegistered(broker_id, directory_ids)
    for user, credentials in image.scram.items():
        for mechanism, credential in credentials.items():
            yield ScramCredentialChanged(user, mechanism, credential)
    yield from map(DelegationTokenChanged, image.tokens.values())
    for entity, quotas in image.quotas.items():
        yield ClientQuotaChanged(entity, tuple(quotas.items()))
    yield from map(AclAdded, image.acls)
