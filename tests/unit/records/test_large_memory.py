"""Large memory is given back piece by piece, and never while somebody still has it."""

from __future__ import annotations

import gc
import sys
from importlib import import_module

import pytest

from barnabas.environment.real import OsThreads
from barnabas.records.building import encode_batch
from barnabas.records.codecs import pieces
from barnabas.records.codecs.pieces import LARGE_BYTES, PIECE_BYTES, TURN_BYTES, Large, Pieces
from barnabas.records.compression import (
    SMALL_BYTES,
    Codec,
    compress,
    decompress,
    decompress_steps,
)
from barnabas.records.errors import DecompressedTooLargeError
from barnabas.records.record import Record
from barnabas.records.rules import AppendRules
from barnabas.records.validate import validate_steps
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.step_runner import StepRunner
from tests.support.steps import kinds

SIZE = LARGE_BYTES + 10 * PIECE_BYTES


@pytest.fixture
def given_back(monkeypatch):
    """The sizes of what was given back piece by piece."""
    sizes = []
    give_back = pieces._give_back

    def noting(stream):
        size = stream.seek(0, 2)
        if size > LARGE_BYTES:
            sizes.append(size)
        give_back(stream)

    monkeypatch.setattr(pieces, "_give_back", noting)
    return sizes


def filled() -> Pieces:
    made = Pieces("gzip", SIZE)
    for _ in range(SIZE // PIECE_BYTES):
        made.add(bytes(PIECE_BYTES))
    return made


def test_output_that_is_too_large_is_given_back(given_back):
    made = filled()
    with pytest.raises(DecompressedTooLargeError):
        made.add(b"x")
    del made
    gc.collect()
    assert given_back == [SIZE]


def test_what_somebody_has_stays_as_it_is(given_back):
    body = filled().join()
    Large(body).give_back()
    assert given_back == []
    assert body == bytes(SIZE)


def test_what_nobody_has_is_given_back(given_back):
    large = Large(filled().join())
    large.give_back()
    assert given_back == [SIZE]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD, Codec.LZ4])
def test_a_large_body_is_decompressed_in_turns_of_a_mb(codec):
    steps = decompress_steps(codec, compress(codec, bytes(SIZE)), magic=2, bytes_max=SIZE)
    seen, body = kinds(steps)
    turns = [len(ceiling.split()) for ceiling in " ".join(seen).split("Reserve")[1:]]
    assert body == bytes(SIZE)
    assert turns[-1] in range(SIZE // TURN_BYTES - 1, SIZE // TURN_BYTES + 2)
    assert turns[0] == 1


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD, Codec.LZ4])
def test_what_is_decompressed_at_once_is_within_a_turn(codec):
    begin = import_module(f"barnabas.records.codecs.{codec.name.lower()}").decompress
    with pytest.raises(StopIteration) as end:
        next(begin(compress(codec, bytes(SMALL_BYTES)), SMALL_BYTES))
    assert end.value.value == bytes(SMALL_BYTES)
    with pytest.raises(DecompressedTooLargeError):
        next(begin(compress(codec, bytes(SMALL_BYTES + 1)), SMALL_BYTES))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])  # the others say beforehand how much it will be
def test_what_is_too_large_is_given_back_where_that_is_noticed(codec, given_back):
    data = compress(codec, bytes(SIZE + PIECE_BYTES))
    with pytest.raises(DecompressedTooLargeError) as raised:
        decompress(codec, data, magic=2, bytes_max=SIZE)
    assert given_back == [SIZE]
    del raised


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4])
async def test_the_records_of_a_request_are_given_back_when_it_is_answered(codec):
    batch = bytearray(encode_batch([Record(0, 0, None, bytes(SIZE))], codec=codec))
    steps = validate_steps(batch, api_version=9, config=AppendRules(), now_ms=0)
    sizes = []

    class Threads(OsThreads):
        async def run(self, work, *, limiter=None):
            large = getattr(work, "__self__", None)
            if isinstance(large, Large):
                sizes.append(sys.getrefcount(large._body) - 1)
            return await super().run(work, limiter=limiter)

    valid = await StepRunner(LoopBudget(), Threads()).run(steps)
    assert valid.record_count == 1
    assert sizes == [1], "somebody still has it"


class Stream:
    """A stream that notes what it is asked for."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.asked: list[int | str] = []

    def seek(self, offset: int, whence: int) -> int:
        assert (offset, whence) == (0, 2)
        return self.size

    def truncate(self, size: int) -> None:
        self.asked.append(size)

    def getvalue(self) -> None:
        self.asked.append("cut off")


@pytest.mark.parametrize("pieces_over", [0, 1, 3])
@pytest.mark.parametrize("rest", [0, 1])
def test_memory_goes_from_its_end_on_as_far_as_it_is_large(pieces_over, rest):
    stream = Stream(LARGE_BYTES + pieces_over * PIECE_BYTES + rest)
    pieces._give_back(stream)
    ends = [stream.size - n * PIECE_BYTES for n in range(1, pieces_over + bool(rest) + 1)]
    assert stream.asked == [one for end in ends for one in (end, "cut off")]


@pytest.mark.parametrize(
    "bytes_max", [0, 1, PIECE_BYTES, pieces.FIRST_PIECE_BYTES, 10 * pieces.FIRST_PIECE_BYTES]
)
def test_no_piece_is_larger_than_it_may_be_but_the_first(bytes_max):
    made = Pieces("gzip", bytes_max)
    assert made.next_size == min(bytes_max + 1, pieces.FIRST_PIECE_BYTES)
    assert made.join() == b""
    turns, left = [], bytes_max
    while left:
        size = min(made.next_size, left)
        if made.add(bytes(size)):
            turns.append(bytes_max - left + size)
        left -= size
        assert made.next_size == min(left + 1, PIECE_BYTES)
    assert turns == list(range(TURN_BYTES + PIECE_BYTES, bytes_max + 1, TURN_BYTES + PIECE_BYTES))
    assert made.join() == bytes(bytes_max)
    with pytest.raises(DecompressedTooLargeError):
        Pieces("gzip", bytes_max).add(bytes(bytes_max + 1))
