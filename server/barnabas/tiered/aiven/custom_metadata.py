"""Custom metadata of the plug-in: a section of tagged fields in the record of a segment. Pure.

If it has the prefix or the key of the objects, these take precedence over the present `key.prefix`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.wire.errors import DecodeError
from barnabas.wire.primitives import encode_uvarint, read_uvarint

REMOTE_SIZE, OBJECT_PREFIX, OBJECT_KEY = "REMOTE_SIZE", "OBJECT_PREFIX", "OBJECT_KEY"
FIELDS: Final = (REMOTE_SIZE, OBJECT_PREFIX, OBJECT_KEY)
"""Names in `custom.metadata.fields.include`; the tag of each is its place."""
_NAME: Final = "custom metadata"


class CustomMetadataError(Exception):
    """Bytes that are no custom metadata of the plug-in."""


@dataclass(frozen=True)
class CustomMetadata:
    """Fields of custom metadata, None for each missing one.

    Attributes:
        remote_size: bytes of all objects of the segment.
        prefix: replaces `key.prefix`.
        key: name of the segment's objects, without prefix and suffix.
    """

    remote_size: int | None = None
    prefix: str | None = None
    key: str | None = None

    def to_bytes(self) -> bytes:
        """Return the encoded fields, for a record."""
        fields: list[tuple[int, bytes]] = []
        if self.remote_size is not None:
            fields.append((0, encode_uvarint(self.remote_size << 1)))  # zigzag; a size is not negative
        fields += [
            (tag, encode_uvarint(len(text.encode()) + 1) + text.encode())
            for tag, text in ((1, self.prefix), (2, self.key))
            if text is not None
        ]
        parts = [encode_uvarint(tag) + encode_uvarint(len(value)) + value for tag, value in fields]
        return encode_uvarint(len(parts)) + b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> CustomMetadata:
        """Read the fields; those with other tags are skipped. Raises CustomMetadataError."""
        if not data:
            return cls()
        fields: dict[int, bytes] = {}
        try:
            count, position = read_uvarint(data, 0, len(data), _NAME)
            for _ in range(count):
                tag, position = read_uvarint(data, position, len(data), _NAME)
                size, position = read_uvarint(data, position, len(data), _NAME)
                fields[tag] = data[position : position + size]
                position += size
            if position != len(data):
                raise CustomMetadataError(f"{_NAME} of {position} bytes, in {len(data)}")
            remote_size = _size(fields[0]) if 0 in fields else None
            return cls(remote_size, _text(fields.get(1)), _text(fields.get(2)))
        except (DecodeError, UnicodeDecodeError) as error:
            raise CustomMetadataError(f"damaged {_NAME}: {error}") from error


def _size(data: bytes) -> int:
    number = 0
    for place, byte in enumerate(data):
        number |= (byte & 0x7F) << 7 * place
    return number >> 1 ^ -(number & 1)


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    size, position = read_uvarint(data, 0, len(data), _NAME)
    if size != len(data) - position + 1:
        raise CustomMetadataError(f"a text of {size - 1} bytes, in {len(data) - position}")
    return data[position:].decode()
