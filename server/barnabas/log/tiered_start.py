"""Start of a follower's log after the records in tiered storage: its former records are dropped (KIP-405).

The rule: the file `tiered-start` decides. Without the file the old log is valid; once it exists the new log is valid, and
a start after a crash completes the remaining steps.
"""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from typing import NamedTuple
from zlib import crc32

from barnabas.log.disk import Disk, file_names
from barnabas.log.epoch_file import save_epochs
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.format import CorruptFileError, names

log = logging.getLogger(__name__)


class TieredStart(NamedTuple):
    """Content of a log that has no local records yet.

    Attributes:
        offset: its end, which is where its local records will begin.
        log_start_offset: where it begins, in tiered storage.
        epochs: its leader epochs up to the offset, as (epoch, first offset).
        producers: bytes of a snapshot of its producers at the offset.

    """

    offset: int
    log_start_offset: int
    epochs: tuple[tuple[int, int], ...]
    producers: bytes


def encode(start: TieredStart) -> bytes:
    """Return the content of the file: a checksum, and JSON."""
    fields = {
        "offset": start.offset,
        "logStartOffset": start.log_start_offset,
        "epochs": start.epochs,
        "producers": b64encode(start.producers).decode(),
    }
    text = json.dumps(fields).encode()
    return b"%d\n" % crc32(text) + text


def decode(data: bytes) -> TieredStart:
    """Read the content of the file. Raises CorruptFileError."""
    checksum, _, text = data.partition(b"\n")
    if checksum != b"%d" % crc32(text):
        raise CorruptFileError(f"the checksum of {names.TIERED_START} is wrong")
    fields = json.loads(text)
    epochs = tuple((epoch, offset) for epoch, offset in fields["epochs"])
    return TieredStart(fields["offset"], fields["logStartOffset"], epochs, b64decode(fields["producers"]))


def save_start(disk: Disk, directory: str, start: TieredStart) -> None:
    """Write the file that makes the new log valid. Raises OSError: then the old log stays valid."""
    disk.replace(_path(directory), encode(start), sync=True)


def finish_start(disk: Disk, directory: str, start: TieredStart) -> LeaderEpochs:
    """Write the log's files beside its empty segment, which must exist; returns its leader epochs. Raises OSError."""
    epochs = LeaderEpochs(start.epochs)
    epochs.truncate_from_start(start.log_start_offset)
    snapshot = f"{directory}/{names.file_name(start.offset, names.SNAPSHOT)}"
    disk.replace(snapshot, start.producers, sync=True)
    save_epochs(disk, directory, epochs, sync=True)
    disk.sync_dir(directory)
    disk.remove(_path(directory))
    disk.sync_dir(directory)  # otherwise a power cut might restore the file, and with it undo later appends
    return epochs


def resume_start(disk: Disk, directory: str) -> TieredStart | None:
    """Complete, when a log is opened, steps that a crash interrupted; None if the file is damaged. Raises OSError."""
    path = _path(directory)
    try:
        start = decode(disk.read(path))
    except CorruptFileError as error:
        log.error("%s is damaged, and removed: %s", path, error)
        disk.remove(path)
        return None
    for name in file_names(disk, directory):
        file = names.parse_file_name(name)
        if file is not None:
            disk.remove(f"{directory}/{name}")
    disk.open(f"{directory}/{names.file_name(start.offset, names.LOG)}", create=True)
    finish_start(disk, directory, start)
    log.warning("%s begins at offset %d, after what is in tiered storage", directory, start.offset)
    return start


def _path(directory: str) -> str:
    return f"{directory}/{names.TIERED_START}"
