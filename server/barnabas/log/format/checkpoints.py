"""Checkpoint files: small text files that are always replaced as a whole.

The rule: a damaged checkpoint raises CorruptFileError and yields nothing; the reader knows the safe
fallback.

    version
    number of entries
    one entry a line: "topic partition offset", or "epoch start-offset" in leader-epoch-checkpoint
"""

from collections.abc import Iterable, Mapping

from barnabas.log.format import CorruptFileError
from barnabas.wire.topic_partitions import TopicPartition

VERSION = 0

EpochEntry = tuple[int, int]


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Encode an offset checkpoint of a log dir."""
    return _encode([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Decode an offset checkpoint; an empty file has no entries. Raises CorruptFileError."""
    offsets: dict[TopicPartition, int] = {}
    for line in _decode(data):
        fields = line.split()
        if len(fields) != 3:
            raise CorruptFileError(f"malformed line {line!r}")
        offsets[fields[0], _number(fields[1], line)] = _number(fields[2], line)
    return offsets


def encode_epochs(epochs: Iterable[EpochEntry]) -> bytes:
    """Encode a leader epoch checkpoint from (epoch, start offset) pairs."""
    return _encode([f"{epoch} {start_offset}" for epoch, start_offset in epochs])


def decode_epochs(data: bytes) -> list[EpochEntry]:
    """Decode a leader epoch checkpoint; epochs and offsets must rise. Raises CorruptFileError."""
    epochs: list[EpochEntry] = []
    for line in _decode(data):
        fields = line.split()
        if len(fields) != 2:
            raise CorruptFileError(f"malformed line {line!r}")
        entry = _number(fields[0], line), _number(fields[1], line)
        if epochs and not (entry[0] > epochs[-1][0] and entry[1] >= epochs[-1][1]):
            raise CorruptFileError(f"epoch entry {line!r} does not follow {epochs[-1]}")
        epochs.append(entry)
    return epochs


def _encode(lines: list[str]) -> bytes:
    return "\n".join([str(VERSION), str(len(lines)), *lines, ""]).encode()


def _decode(data: bytes) -> list[str]:
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        raise CorruptFileError("the checkpoint is no text") from None
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 2:
        if not lines:
            return []
        raise CorruptFileError("the checkpoint is cut short")
    if lines[0] != str(VERSION):
        raise CorruptFileError(f"checkpoint version {lines[0]!r} is unknown")
    if lines[1] != str(len(lines) - 2):
        raise CorruptFileError(f"{len(lines) - 2} entries are there where {lines[1]!r} must be")
    return lines[2:]


def _number(text: str, line: str) -> int:
    if not text.isdecimal() or not text.isascii():
        raise CorruptFileError(f"malformed line {line!r}")
    return int(text)
