"""Frames out of what was received, cut anywhere; buffers follow the bytes that came, not the size that was claimed."""

from __future__ import annotations

import struct

import pytest

from barnabas.serving.framing import (
    GROWTH_BYTES_MAX,
    MIB,
    POOL_BYTES_MAX,
    SCRATCH_BYTES,
    BufferPool,
    Frames,
    PartialFrame,
)
from barnabas.wire.errors import DecodeError

BYTES_MAX = 100 * MIB
CONTENTS = (b"\0\3first", b"", b"\0\0" + bytes(range(256)) * 2, b"\0\1" + b"x" * 700)
STREAM = b"".join(struct.pack(">i", len(content)) + content for content in CONTENTS)


def received(pieces: list[bytes]) -> list[bytes]:
    """Return the frames in a stream that comes in these pieces, the last of which ends with a frame."""
    frames, pool, completed = Frames(), BufferPool(), []
    pending = list(pieces)

    def take(partial: PartialFrame) -> bytes:
        while partial.missing:
            needed, target = partial.needed, partial.target()
            piece = pending.pop(0)
            count = min(len(piece), len(target))
            target[:count] = piece[:count]
            if piece[count:]:
                pending.insert(0, piece[count:])
            unused = partial.received(count)
            assert unused <= max(needed, 0)
        return bytes(partial.frame())

    while pending or not frames.is_empty:
        while not frames.has_size:
            frames.feed(pending.pop(0))
        frame = frames.next(BYTES_MAX)
        completed.append(bytes(frame) if frame is not None else take(frames.partial(pool, BYTES_MAX)))
    return completed


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 100, 513, 514, 515, 10_000])
def test_frames_are_the_same_however_the_stream_is_cut(size: int) -> None:
    pieces = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert received(pieces) == list(CONTENTS)


def test_a_stream_may_be_cut_at_any_byte() -> None:
    for cut in range(1, len(STREAM)):
        assert received([STREAM[:cut], STREAM[cut:]]) == list(CONTENTS), cut


def test_a_frame_may_be_written_to() -> None:
    frames = Frames()
    frames.feed(STREAM)
    frame = frames.next(BYTES_MAX)
    assert frame is not None
    frame[0] = 9
    assert received([STREAM])[0] == CONTENTS[0]


@pytest.mark.parametrize("size", [-1, 11, 1 << 30])
@pytest.mark.parametrize("rest", [b"", b"12345678"])
def test_a_wrong_size_is_an_error_as_soon_as_it_is_there(size: int, rest: bytes) -> None:
    frames = Frames()
    frames.feed(struct.pack(">i", size)[:3])
    assert frames.next(10) is None
    assert not frames.has_size
    frames.feed(struct.pack(">i", size)[3:] + rest)
    assert frames.only(10) is None
    with pytest.raises(DecodeError, match="frame size"):
        frames.next(10)
    with pytest.raises(DecodeError, match="frame size"):
        frames.partial(BufferPool(), 10)


def test_one_whole_frame_is_the_only_one() -> None:
    frames = Frames()
    for data, is_only in ((STREAM, False), (struct.pack(">i", 3) + b"abc", True), (b"\0\0\0", False)):
        frames = Frames()
        frames.feed(data)
        assert (frames.only(BYTES_MAX) is not None) is is_only
        assert frames.is_empty is is_only


def test_only_produce_may_be_very_large_by_its_api_key() -> None:
    pool = BufferPool()
    assert PartialFrame(memoryview(b"\0\0"), 9 * MIB, pool).missing == 9 * MIB - 2
    with pytest.raises(DecodeError, match="API key 3"):
        PartialFrame(memoryview(b"\0\3"), 9 * MIB, pool)
    late = PartialFrame(memoryview(b"\0"), 9 * MIB, pool)
    late.target()[:1] = b"\3"
    with pytest.raises(DecodeError, match="API key 3"):
        late.received(1)


def filled(partial: PartialFrame, used: int) -> PartialFrame:
    while partial.used < used:
        with partial.target() as target:
            count = min(len(target), used - partial.used)
        partial.received(count)
    return partial


@pytest.mark.parametrize(
    ("used", "size", "needed"),
    [
        (10, 100 * MIB, SCRATCH_BYTES),
        (10, 110, 100),
        (SCRATCH_BYTES // 2 - 1, 100 * MIB, SCRATCH_BYTES),
        (SCRATCH_BYTES, SCRATCH_BYTES + 1, 1),
        (SCRATCH_BYTES, 100 * MIB, SCRATCH_BYTES),
        (MIB, 100 * MIB, MIB),
        (3 * MIB, 100 * MIB, GROWTH_BYTES_MAX),
    ],
)
def test_a_buffer_at_most_doubles_and_ends_with_its_frame(used: int, size: int, needed: int) -> None:
    partial = PartialFrame(memoryview(bytes(used)), size, BufferPool())
    assert partial.needed == needed
    assert len(partial.target()) == needed


def test_what_a_read_leaves_is_told() -> None:
    partial = PartialFrame(memoryview(bytes(10)), 1_000, BufferPool())
    assert partial.needed == 990
    partial.target()
    assert partial.received(90) == 900
    assert (partial.used, partial.missing) == (100, 900)


def test_a_buffer_that_was_given_back_is_used_again() -> None:
    pool = BufferPool()
    size = 3 * MIB
    first = filled(PartialFrame(memoryview(b"\0\0"), size, pool), size)
    first.give_back(is_answered=True)
    second = PartialFrame(memoryview(bytes(SCRATCH_BYTES)), size, pool)
    assert second.needed == size - SCRATCH_BYTES, "all of it"
    second.give_back(is_answered=False)
    assert pool.take(size) is not None, "what was taken and not used is back"
    assert pool.take(size) is None


@pytest.mark.parametrize(
    ("size", "fits"), [(2 * MIB, True), (MIB, True), (MIB - 1, False), (2 * MIB + 1, False)]
)
def test_a_buffer_is_taken_for_frames_of_about_its_size(size: int, fits: bool) -> None:
    pool = BufferPool()
    buffer = bytearray(2 * MIB)
    pool.give(buffer)
    assert (pool.take(size) is buffer) is fits


def test_the_pool_is_bounded() -> None:
    pool = BufferPool()
    for _ in range(100):
        pool.give(bytearray(8 * MIB))
    kept = 0
    while pool.take(8 * MIB) is not None:
        kept += 1
    assert kept == POOL_BYTES_MAX // (8 * MIB)
