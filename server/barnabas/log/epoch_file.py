"""The file in which a log keeps its leader epochs (`leader-epoch-checkpoint`).

The rule: the batches have the same epochs, so damage to the file loses nothing.
"""

from __future__ import annotations

import logging

from barnabas.log.disk import Disk
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.format import CorruptFileError, checkpoints, names

log = logging.getLogger(__name__)


def load_epochs(disk: Disk, directory: str) -> LeaderEpochs | None:
    """Read the leader epochs; None if the file is missing, empty or damaged: the log itself has them. Raises OSError."""
    path = f"{directory}/{names.LEADER_EPOCH_CHECKPOINT}"
    try:
        data = disk.read(path)
        if not data:  # Apache Kafka leaves an empty file until it writes; so does a power cut
            return None
        return LeaderEpochs(checkpoints.decode_epochs(data))
    except FileNotFoundError:
        return None
    except CorruptFileError as error:
        log.warning("%s is damaged, the leader epochs are read from the log: %s", path, error)
        return None


def save_epochs(disk: Disk, directory: str, epochs: LeaderEpochs, *, sync: bool) -> None:
    """Write the leader epochs. Raises OSError."""
    path = f"{directory}/{names.LEADER_EPOCH_CHECKPOINT}"
    disk.replace(path, checkpoints.encode_epochs(epochs.entries), sync=sync)
