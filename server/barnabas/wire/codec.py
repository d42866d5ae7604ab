"""The codec of one message in all its versions; the tables at the end of each generated module consist of such codecs.

The rule: a codec is a table of functions by version; it holds no state and knows no header.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import Generic, Protocol, TypeVar

from barnabas.wire.errors import DecodeError, EncodeError, UnknownVersionError
from barnabas.wire.primitives import NO_LIMIT, Buffer, Chunk
from barnabas.wire.regions import joined

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)
K = TypeVar("K")
V = TypeVar("V")

_NUMBER = Struct(">h")
KEY_TYPE_SIZE = _NUMBER.size
"""Bytes of a record's key that have its type."""


class Decoder(Protocol[M_co]):
    """Reads a message at `pos`, with at most `left` entries of arrays and tagged fields: (message, next position)."""

    def __call__(self, buf: Buffer, pos: int, entries_max: int = NO_LIMIT, /) -> tuple[M_co, int]:
        """Raises DecodeError."""


class MessageCodec(Generic[M]):
    """Decodes and encodes one message class.

    `decoders[version](buf, pos, entries_max) -> (message, next position)` and `encoders[version](message, out)` are None
    below `min_version`. `flexible_from` is the first version with compact lengths and tags (KIP-482).
    """

    __slots__ = (
        "carries_records",
        "decoders",
        "encoders",
        "flexible_from",
        "max_version",
        "message",
        "min_version",
        "name",
    )

    def __init__(
        self,
        message: type[M],
        decoders: tuple[Decoder[M] | None, ...],
        encoders: tuple[Callable[[M, list[Chunk]], None] | None, ...],
        *,
        flexible_from: int | None,
        carries_records: bool = False,
    ) -> None:
        self.name = message.__name__
        self.message = message
        self.decoders = decoders
        self.encoders = encoders
        self.min_version = next(version for version, decoder in enumerate(decoders) if decoder is not None)
        self.max_version = len(decoders) - 1
        self.flexible_from = flexible_from
        self.carries_records = carries_records

    def __repr__(self) -> str:
        return f"<codec of {self.name} v{self.min_version}-{self.max_version}>"

    def is_flexible(self, version: int) -> bool:
        """Return whether `version` has compact lengths and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from

    def decode(self, buf: Buffer, pos: int, version: int, entries_max: int = NO_LIMIT) -> tuple[M, int]:
        """Decode at `pos`: (message, next position). Raises DecodeError, also for an unknown version."""
        decoder = self.decoders[version] if 0 <= version <= self.max_version else None
        if decoder is None:
            raise DecodeError(f"there is no version {version}", self.name, pos)
        return decoder(buf, pos, entries_max)

    def decode_whole(self, buf: Buffer, version: int, pos: int = 0, entries_max: int = NO_LIMIT) -> M:
        """Decode from `pos` to the end. Raises DecodeError, also if bytes are left over."""
        message, after = self.decode(buf, pos, version, entries_max)
        if after != len(buf):
            raise DecodeError(f"{len(buf) - after} bytes are left over", self.name, after)
        return message

    def encode_into(self, message: M, version: int, out: list[Chunk]) -> None:
        """Append the encoding in `version` to `out`. Raises EncodeError; the content of `out` is then undefined."""
        encoder = self.encoders[version] if 0 <= version <= self.max_version else None
        if encoder is None:
            raise UnknownVersionError(f"{self.name} has no version {version}")
        try:
            encoder(message, out)
        except (struct_error, TypeError, AttributeError, UnicodeEncodeError) as error:
            raise EncodeError(f"{self.name} v{version}: {error}") from error

    def encode(self, message: M, version: int) -> list[Chunk]:
        """Encode in `version`: as few chunks as file regions and large records allow. Raises EncodeError."""
        out: list[Chunk] = []
        self.encode_into(message, version, out)
        return self.joined(out)

    def encode_bytes(self, message: M, version: int) -> bytes:
        """Encode in `version` to one piece. Raises EncodeError, also if there are file regions in it."""
        out: list[Chunk] = []
        self.encode_into(message, version, out)
        try:
            return b"".join(out)  # type: ignore[arg-type]
        except TypeError as error:
            raise EncodeError(f"{self.name} v{version} holds a file region") from error

    def joined(self, chunks: list[Chunk]) -> list[Chunk]:
        """Join small adjacent chunks of an encoded message; large chunks and file regions stay separate."""
        if not self.carries_records:
            return [b"".join(chunks)]  # type: ignore[arg-type]
        return joined(chunks)


class RecordType(Generic[K, V]):
    """One type of record of an internal topic: the key starts with its number, the value with a version.

    A replay of a topic reads `record_type_id` of the key first, then asks `wire.registry.record_type`.
    """

    __slots__ = ("key", "topic", "type_id", "value")

    def __init__(self, topic: str, type_id: int, key: MessageCodec[K], value: MessageCodec[V]) -> None:
        self.topic = topic
        self.type_id = type_id
        self.key = key
        self.value = value

    def __repr__(self) -> str:
        return f"<record type {self.type_id} of {self.topic}: {self.key.name}, {self.value.name}>"

    def encode_key(self, key: K) -> bytes:
        """Return the key with its type before it. Raises EncodeError."""
        return _NUMBER.pack(self.type_id) + self.key.encode_bytes(key, 0)

    def decode_key(self, data: Buffer) -> K:
        """Decode a key with its type before it. Raises DecodeError, also if it is of another type."""
        type_id = record_type_id(data)
        if type_id != self.type_id:
            raise DecodeError(f"is of type {type_id}, not {self.type_id}", self.key.name, 0)
        return self.key.decode_whole(data, 0, _NUMBER.size)

    def encode_value(self, value: V, version: int | None = None) -> bytes:
        """Return the value with its version before it; the latest if none is named. Raises EncodeError."""
        return encode_versioned(self.value, value, self.value.max_version if version is None else version)

    def decode_value(self, data: Buffer) -> V:
        """Decode a value with its version before it. Raises DecodeError."""
        return decode_versioned(self.value, data)


def record_type_id(key: Buffer) -> int:
    """Return the type of record that a key of an internal topic belongs to. Raises DecodeError."""
    if len(key) < KEY_TYPE_SIZE:
        raise DecodeError("is too short for a type", "record key", 0)
    type_id: int = _NUMBER.unpack_from(key)[0]
    return type_id


def encode_versioned(codec: MessageCodec[M], message: M, version: int) -> bytes:
    """Return the int16 `version` and the message in it. Raises EncodeError."""
    return _NUMBER.pack(version) + codec.encode_bytes(message, version)


def decode_versioned(codec: MessageCodec[M], data: Buffer) -> M:
    """Decode an int16 version and the message in it, to the end of `data`. Raises DecodeError."""
    return codec.decode_whole(data, _version_of(codec, data), _NUMBER.size)


def decode_prefix(
    codec: MessageCodec[M], data: Buffer, *, version: int | None = None, entries_max: int = NO_LIMIT
) -> M:
    """Decode an int16 version and the message after it; bytes after the message are ignored. Raises DecodeError.

    A version newer than the codec's latest is read as the latest: so consumers read each other's subscriptions (KIP-429).
    With `version`, the message is read in that version, whichever the data states: all versions begin with the fields of
    version 0.
    """
    stated = _version_of(codec, data)
    read = min(stated, codec.max_version) if version is None else version
    return codec.decode(data, _NUMBER.size, read, entries_max)[0]


def _version_of(codec: MessageCodec[M], data: Buffer) -> int:
    if len(data) < _NUMBER.size:
        raise DecodeError("is too short for a version", codec.name, 0)
    version: int = _NUMBER.unpack_from(data)[0]
    return version
