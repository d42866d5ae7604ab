"""The metadata log of a stopped broker that is a cluster by itself."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.cluster.kraft.damage import find_damage
from barnabas.cluster.kraft.directory import DIRECTORY, MetadataLog
from barnabas.cluster.kraft.formatting import begun_image
from barnabas.cluster.kraft.image import EMPTY, QuorumImage
from barnabas.cluster.kraft.own_log_place import LogPlace, LostMetadataError, Node, has_log, metadata_dir
from barnabas.cluster.kraft.own_metadata import OwnMetadata, image_alone
from barnabas.cluster.kraft.state import MetadataLogError
from barnabas.cluster.metadata.changes import EpochBegun
from barnabas.cluster.metadata.image import BrokerInfo
from barnabas.config.metadata_log import LogSettings
from barnabas.environment.clocks import wall_clock_ms
from barnabas.errors import StorageError
from barnabas.log.disk import Disk, file_names
from barnabas.log.logdir import read_meta


def image_of(disk: Disk, dirs: Sequence[str], metadata_log_dir: str | None = None) -> QuorumImage:
    """Return the image of the metadata log in these log dirs; of a new log, after its first records.

    Raises StorageError.
    """
    path = metadata_dir(disk, dirs, metadata_log_dir)
    image = EMPTY
    try:
        if has_log(disk, path) and file_names(disk, f"{path}/{DIRECTORY}"):
            damage = find_damage(disk, f"{path}/{DIRECTORY}")
            if damage:
                raise LostMetadataError(path, damage)
            reader = MetadataLog(disk, path)
            reader.begin()
            for _ in reader.steps():
                pass
            image = reader.state.image
        return begun_image(disk, path, image)[0]
    except (OSError, MetadataLogError) as error:
        raise StorageError(path, OSError(str(error))) from error


def latest_epoch(dirs: Sequence[str], disk: Disk) -> int:
    """Return the latest leader epoch in the metadata log of these log dirs. Raises StorageError."""
    return image_alone(image_of(disk, dirs)).latest_epoch


def keep_epoch(dirs: Sequence[str], disk: Disk, epoch: int) -> None:
    """Make the next start of a stopped broker begin a leader epoch later than this one. Raises StorageError."""
    image = image_alone(image_of(disk, dirs))
    if epoch <= image.latest_epoch or not image.topics:
        return
    path = metadata_dir(disk, dirs, None)
    try:
        meta = read_meta(disk, path)
    except OSError as error:
        raise StorageError(path, error) from error
    node_id = meta.node_id if meta is not None and meta.node_id is not None else -1
    directory_id = meta.directory_id if meta is not None else None
    metadata = OwnMetadata(LogPlace(disk, path, LogSettings(), wall_clock_ms))
    metadata.open(may_lose=False)
    metadata.lead(Node(node_id, directory_id or bytes(16)), BrokerInfo(node_id, None, {}))
    metadata.keep(image, [[EpochBegun(epoch)]])
    metadata.close()
