"""Records of a KRaft quorum's metadata log: the frame around a message, and the messages by key.

The rule: a record that this code cannot read whole is an error, never a guess: an unknown frame, key or version, or bytes
after the message. The metadata.version of a cluster decides which records its controllers write.

    value = frame version uvarint (1), key uvarint, version uvarint, message
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from barnabas.wire.codec import MessageCodec
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.index import METADATA_RECORDS
from barnabas.wire.primitives import Buffer, encode_uvarint, read_uvarint

FRAME_VERSION: Final = 1
_FIELD: Final = "metadata record"

_codecs: dict[int, MessageCodec[Any]] = {}
_KEYS: Final = {f"{name}Record": key for key, (name, _) in METADATA_RECORDS.items()}


def record_keys() -> tuple[int, ...]:
    """Return the keys of all metadata records, ascending."""
    return tuple(METADATA_RECORDS)


def record_name(key: int) -> str:
    """Return a record's name without `Record`, as in `PartitionChange`. Raises KeyError for an unknown key."""
    return METADATA_RECORDS[key][0]


def record_codec(key: int) -> MessageCodec[Any]:
    """Return the codec of one kind of record, imported on first use. Raises KeyError for an unknown key."""
    codec = _codecs.get(key)
    if codec is None:
        module = import_module(f"barnabas.wire.generated.metadata_records.{METADATA_RECORDS[key][1]}")
        codec = _codecs[key] = module.CODEC
    return codec


def record_key(message: Any) -> int:
    """Return the key of a record's class. Raises KeyError if it is no metadata record."""
    return _KEYS[type(message).__name__]


def read_frame(value: Buffer) -> tuple[int, int, int]:
    """Read the frame of a record's value: (key, version, position of the message). Raises DecodeError."""
    end = len(value)
    if end > 2 and value[0] == FRAME_VERSION and value[1] < 128 and value[2] < 128:  # as all that there are
        return value[1], value[2], 3
    frame, pos = read_uvarint(value, 0, end, f"{_FIELD}.frame version")
    if frame != FRAME_VERSION:
        raise DecodeError(f"there is no frame version {frame}", _FIELD, 0)
    key, pos = read_uvarint(value, pos, end, f"{_FIELD}.key")
    version, pos = read_uvarint(value, pos, end, f"{_FIELD}.version")
    return key, version, pos


def decode_record(value: Buffer) -> tuple[Any, int]:
    """Decode a record's value: (message, its version). Raises DecodeError, also for keys and versions not known here."""
    key, version, pos = read_frame(value)
    if key not in METADATA_RECORDS:
        raise DecodeError(f"there is no metadata record with key {key}", _FIELD, 1)
    return record_codec(key).decode_whole(value, version, pos), version


def encode_record(message: Any, version: int) -> bytes:
    """Encode a record's value with its frame. Raises EncodeError; KeyError if `message` is no metadata record."""
    key = record_key(message)
    head = bytes((FRAME_VERSION,)) + encode_uvarint(key) + encode_uvarint(version)
    return head + record_codec(key).encode_bytes(message, version)
