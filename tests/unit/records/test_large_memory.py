"""Large memory is given back piece by piece, and never while it is still referenced."""

from __future__ import annotations

import gc
import sys
from importlib import import_module

import pytest

from barnabas.environment.real import OsThreads
from barnabas.records.building import encode_batch
from barnabas.records.codecs import pieces
from barnabas.records.codecs.pieces import LARGE_BYTES, PIECE_BYTES, TURN_BYTES, Large, Pieces
from barnabas.records.compression import SMALL_BYTES, Codec, compress, decompress, decompress_steps
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
    pieces = Pieces("gzip", SIZE)
    for _ in range(SIZE // PIECE_BYTES):
        pieces.add(bytes(PIECE_BYTES))
    return pieces


def test_output_that_is_too_large_is_given_back(given_back):
    pieces = filled()
    with pytest.raises(DecompressedTooLargeError):
        pieces.add(b"x")
    del pieces
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
async def test_memory_of_records_is_released_with_the_answer(codec):
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
