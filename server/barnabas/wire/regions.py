"""What an encoded response is made of: bytes, and regions of files that the kernel sends.

The rule: a region is a promise of exactly `size` bytes; whoever owns the file keeps it open as long as
`owner` lives.
"""

from __future__ import annotations

from typing import TypeAlias


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
