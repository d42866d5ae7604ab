"""Parts of an encoded response: bytes, and regions of files that the kernel sends.

The rule: a region is a promise of exactly `size` bytes; the file stays open as long as `owner`
lives.
"""

from __future__ import annotations

from typing import Final, TypeAlias


class FileRegion:
    """`size` bytes at `position` of the open file `fd`; `owner` is held so that the file stays open."""

    __slots__ = ("fd", "owner", "position", "size")

    def __init__(self, fd: int, position: int, size: int, owner: object) -> None:
        self.fd = fd
        self.position = position
        self.size = size
        self.owner = owner

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"FileRegion(fd={self.fd}, position={self.position}, size={self.size})"


Chunk: TypeAlias = bytes | bytearray | memoryview | FileRegion

JOINED_BYTES_MAX: Final = 16 * 1024
"""Largest chunk that is copied together with its neighbours; a larger one is sent from where it lies."""


def joined(chunks: list[Chunk]) -> list[Chunk]:
    """Join small adjacent chunks of an encoded message; large chunks and file regions stay separate."""
    out: list[Chunk] = []
    small: list[bytes | bytearray | memoryview] = []
    for chunk in chunks:
        if isinstance(chunk, FileRegion) or len(chunk) > JOINED_BYTES_MAX:
            if small:
                out.append(b"".join(small))
                small = []
            out.append(chunk)
        else:
            small.append(chunk)
    if small:
        out.append(b"".join(small))
    return out
