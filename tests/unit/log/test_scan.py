"""Walks over the batches of a file, whatever ends where a read does: against a list of the batches, with small reads."""

from __future__ import annotations

import struct
from random import Random

import pytest

from barnabas.log.damage import SoundBatch, find_sound_batch, true_base_offset
from barnabas.log.scan import iter_checked, iter_headers, iter_whole, sound_header_at
from barnabas.records import legacy
from barnabas.records.batch import HEADER_SIZE, check_crc, read_any_header
from barnabas.records.crc import crc32c
from barnabas.records.errors import CorruptRecordsError, RecordsError
from barnabas.records.record import Record
from tests.support.logs import NOW_MS, batch, rebase


class Memory:
    """A file of bytes that knows what was read of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[tuple[int, int]] = []

    def read(self, size: int, position: int) -> bytes:
        assert size > 0
        assert position >= 0
        self.reads.append((position, size))
        return self.data[position : position + size]


def placed(offset: int, count: int, size: int, magic: int = 2) -> bytes:
    """A batch of so many records at an offset."""
    if magic < 2:
        return legacy.encode_message(Record(offset, NOW_MS, None, b"v" * size), magic=magic)
    raw = batch(*[b"v" * size] * count, timestamp=NOW_MS)
    rebase(raw, 0, offset, 0)
    return bytes(raw)


def chain(random: Random, count: int, *, old: bool = False) -> list[bytes]:
    """Batches that follow each other, with gaps at times."""
    parts, offset = [], 100
    for _ in range(count):
        magic = random.choice((0, 1, 2)) if old else 2
        records = random.randint(1, 3) if magic == 2 else 1
        parts.append(placed(offset, records, random.choice((0, 1, 30, 60, 61, 200, 500)), magic))
        offset += records + random.choice((0, 0, 0, 5))
    return parts


def positions(parts: list[bytes]) -> list[int]:
    return [sum(map(len, parts[:n])) for n in range(len(parts))]


@pytest.mark.parametrize("chunk_bytes", [61, 62, 100, 122, 300, 1_000, 1 << 20])
def test_headers_are_read_with_few_bytes(chunk_bytes: int) -> None:
    random = Random(chunk_bytes)
    for count in (0, 1, 2, 7):
        parts = chain(random, count, old=chunk_bytes > 100)
        data = b"".join(parts)
        expected = list(zip(positions(parts), map(len, parts), strict=True))
        for behind in (b"", b"\xff" * 100):
            file = Memory(data + behind)
            headers = [
                (at, header.size) for at, header in iter_headers(file, 0, len(data), chunk_bytes=chunk_bytes)
            ]
            assert headers == expected
            assert all(size <= chunk_bytes and at + size <= len(data) for at, size in file.reads)
            assert len({at for at, _ in file.reads}) == len(file.reads) <= count
        for n, start in enumerate(positions(parts)):
            headers = [(at, header.size) for at, header in iter_headers(Memory(data), start, len(data))]
            assert headers == expected[n:]
        for cut in range(1, len(parts[-1]) if parts else 1):
            walk = iter_headers(Memory(data), 0, len(data) - cut, chunk_bytes=chunk_bytes)
            assert len([next(walk) for _ in parts[:-1]]) == count - 1
            with pytest.raises(CorruptRecordsError):
                next(walk)


@pytest.mark.parametrize("sweep_bytes", [61, 100, 150, 400, 1 << 20])
def test_whole_batches_are_read_in_one_piece_each(sweep_bytes: int) -> None:
    random = Random(sweep_bytes)
    for count in (0, 1, 2, 9):
        parts = chain(random, count)
        data = b"".join(parts)
        for behind in (b"", b"\xff" * 100):
            file = Memory(data + behind)
            whole = [
                (at, header.size, bytes(view))
                for at, header, view in iter_whole(file, len(data), chunk_bytes=sweep_bytes)
            ]
            assert whole == [(at, len(part), part) for at, part in zip(positions(parts), parts, strict=True)]
            longest = max(map(len, parts), default=0)
            assert all(
                size <= max(sweep_bytes, longest) and at + size <= len(data) for at, size in file.reads
            )
            assert len(file.reads) <= 2 * count
        for cut in (1, 30, len(parts[-1]) - 1) if parts else ():
            walk = iter_whole(Memory(data), len(data) - cut, chunk_bytes=sweep_bytes)
            assert [len(next(walk)[2]) for _ in parts[:-1]] == [len(part) for part in parts[:-1]]
            with pytest.raises(CorruptRecordsError):
                next(walk)


BASE = 90


def spoiled(part: bytes, how: str) -> bytes:
    """A batch with one thing wrong."""
    raw = bytearray(part)
    if how == "checksum":
        raw[-1] ^= 1
    elif how == "magic":
        raw[16] = 3
    elif how == "length":
        raw[8:12] = struct.pack(">i", 5)
    elif how == "too long":
        raw[8:12] = struct.pack(">i", 1 << 20)
    elif how == "goes back":
        raw[:8] = struct.pack(">q", BASE - 1)
    elif how == "out of reach":
        raw[:8] = struct.pack(">q", BASE + (1 << 31))
    elif how == "ends before it begins":
        raw[23:27] = struct.pack(">i", -1)
        struct.pack_into(">I", raw, 17, crc32c(raw[21:]))
    return bytes(raw)


TOLD = {
    "checksum": "the checksum is wrong",
    "magic": "magic 3 is unknown",
    "length": "length 5 is less",
    "too long": "the batch is cut short: ",
    "goes back": "follow ",
    "out of reach": f"is out of reach: it must be below {BASE + (1 << 31)}",
    "ends before it begins": "follow ",
}


@pytest.mark.parametrize("check_bytes", [61, 100, 250, 1 << 18])
@pytest.mark.parametrize("how", [None, *TOLD])
def test_checks_stop_at_the_first_batch_that_is_not_sound(check_bytes: int, how: str | None) -> None:
    random = Random(check_bytes)
    for count in (1, 2, 6):
        parts = chain(random, count)
        for bad in range(count):
            spoilt = [spoiled(part, how) if how and n == bad else part for n, part in enumerate(parts)]
            data = b"".join(spoilt)
            problems: list[tuple[int, str]] = []
            file = Memory(data)
            headers = [
                (at, header.size)
                for at, header in iter_checked(
                    file,
                    len(data),
                    base_offset=BASE,
                    on_problem=lambda *problem, told=problems: told.append(problem),
                    chunk_bytes=check_bytes,
                )
            ]
            sound = list(zip(positions(parts), map(len, parts), strict=True))
            assert all(size <= check_bytes for _, size in file.reads)
            if how is None:
                assert (headers, problems) == (sound, [])
            else:
                assert headers == sound[:bad]
                [(at, text)] = problems
                assert at == positions(spoilt)[bad]
                assert TOLD[how] in text


@pytest.mark.parametrize(
    ("base_offset", "offset", "is_sound"),
    [(100, 100, True), (101, 100, False), (101 - (1 << 31), 100, True), (100 - (1 << 31), 100, False)],
)
def test_offsets_are_in_reach_of_the_segments_base(base_offset: int, offset: int, is_sound: bool) -> None:
    data = placed(offset, 1, 5)
    problems: list[tuple[int, str]] = []
    walk = iter_checked(
        Memory(data), len(data), base_offset=base_offset, on_problem=lambda *problem: problems.append(problem)
    )
    assert len(list(walk)) == is_sound
    assert bool(problems) is not is_sound


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("check_bytes", [34, 61, 80, 200, 1 << 18])
def test_a_batch_alone_is_sound_or_not(check_bytes: int, magic: int) -> None:
    for size in (0, 1, 50, 300):
        part = placed(100, 1, size, magic)
        data = b"before" + part + b"behind"
        header = sound_header_at(Memory(data), 6, len(data), chunk_bytes=check_bytes)
        assert header == read_any_header(part)
        assert sound_header_at(Memory(data), 6, 6 + len(part), chunk_bytes=check_bytes) == header
        for end in (0, 5, 6, 7, 6 + len(part) - 1):
            assert sound_header_at(Memory(data), 6, end, chunk_bytes=check_bytes) is None
        for at in (len(part) - 1, 16, 17, 21) if magic == 2 else (len(part) - 1, 16, 12):
            raw = bytearray(data)
            raw[6 + at] ^= 0x10
            assert sound_header_at(Memory(bytes(raw)), 6, len(data), chunk_bytes=check_bytes) is None


# --- behind damage ------------------------------------------------------------------------------------------------


def is_sound(data: bytes, at: int, end: int) -> bool:
    try:
        header = read_any_header(data[at:end])
    except RecordsError:
        return False
    return at < end and check_crc(data[at:end], 0, header)


def expected_sound(data: bytes, position: int, end: int, first: int, limit: int) -> SoundBatch | None:
    """The rule of `find_sound_batch`, at every byte."""

    def belongs(header) -> bool:
        return first <= header.base_offset <= header.last_offset < limit

    try:
        header = read_any_header(data[position : position + HEADER_SIZE])
        at = position + header.size
        if is_sound(data, at, end):
            following = read_any_header(data[at:end])
            if following.base_offset == header.next_offset and belongs(following):
                return SoundBatch(at, following.base_offset)
    except RecordsError:
        pass
    for at in range(position + 1, end - HEADER_SIZE + 1):
        if data[at + 16] != 2 or not is_sound(data, at, end):
            continue
        header = read_any_header(data[at:end])
        at_next = at + header.size
        if not belongs(header):
            continue
        if at_next == end:
            return SoundBatch(at, header.base_offset)
        if (
            is_sound(data, at_next, end)
            and read_any_header(data[at_next:end]).base_offset >= header.next_offset
        ):
            return SoundBatch(at, header.base_offset)
    return None


@pytest.mark.parametrize("copy_bytes", [62, 77, 100, 333, 1 << 20])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_sound_behind_damage_is_found(copy_bytes: int, seed: int) -> None:
    random = Random(seed)
    for _ in range(12):
        parts = chain(random, random.randint(1, 5))
        inner = placed(200, 1, 3)
        if random.random() < 0.4:  # a batch in the value of a record is none of the log's
            raw = batch(b"x" * random.randint(0, 40) + inner, timestamp=NOW_MS)
            rebase(raw, 0, 150, 0)
            parts.insert(random.randint(0, len(parts)), bytes(raw))
        bad = random.randrange(len(parts))
        how = random.choice((*TOLD, "bytes", "gone"))
        if how == "bytes":
            parts[bad] = random.randbytes(random.randint(1, 200))
        elif how == "gone":
            parts[bad] = parts[bad][: random.randrange(len(parts[bad]))]
        else:
            parts[bad] = spoiled(parts[bad], how)
        data = b"".join(parts) + b"\xff" * random.choice((0, 7))
        end = len(b"".join(parts)) - random.choice((0, 0, 3))
        position = positions(parts)[bad]
        first, limit = random.choice((0, 100, 103)), random.choice((1 << 63, 107))
        sound = find_sound_batch(
            Memory(data), position, end, first_offset=first, offset_limit=limit, chunk_bytes=copy_bytes
        )
        assert sound == expected_sound(data, position, end, first, limit), (seed, how)


@pytest.mark.parametrize(
    ("how", "following", "is_found"),
    [
        ("checksum", 101, True),
        ("checksum", 102, False),
        ("checksum", 100, False),
        ("length", 101, False),
        ("too long", 101, False),
    ],
)
@pytest.mark.parametrize("magic", [1, 2])
def test_batch_at_a_damaged_ones_declared_end_needs_no_chain(
    how: str, following: int, is_found: bool, magic: int
) -> None:
    """Its place is told twice: by the length and by the offsets of the damaged one. Any other must be in a chain."""
    damaged = spoiled(placed(100, 1, 5, magic), how)
    data = damaged + placed(following, 1, 5) + b"\xff" * 100
    sound = find_sound_batch(Memory(data), 0, len(data))
    assert sound == (SoundBatch(len(damaged), following) if is_found else None)
    in_chain = damaged + placed(following, 1, 5)
    assert find_sound_batch(Memory(in_chain), 0, len(in_chain)) == SoundBatch(len(damaged), following)
    for first, limit in ((following + 1, 1 << 63), (0, following)):
        assert find_sound_batch(Memory(data), 0, len(data), first_offset=first, offset_limit=limit) is None


@pytest.mark.parametrize(
    ("next_offset", "following", "next_base", "expected"),
    [
        (100, 103, None, 100),  # three records fill what is between
        (100, 104, None, None),
        (101, 103, None, None),
        (100, None, 103, 100),
        (100, None, 104, None),
        (100, None, None, None),
        (100, 103, 999, 100),  # the batch that follows knows better than the next segment
        (100, 104, 103, None),
    ],
)
def test_a_damaged_base_offset_is_known_from_what_is_around_it(
    next_offset: int, following: int | None, next_base: int | None, expected: int | None
) -> None:
    damaged = placed(77, 3, 5)
    data = damaged + (placed(following, 1, 5) if following is not None else b"")
    assert true_base_offset(Memory(b"!" + data), 1, len(data) + 1, next_offset, next_base) == expected
    assert true_base_offset(Memory(b"!" + data + b"xx"), 1, len(data) + 3, next_offset, next_base) == (
        expected if following is not None else None
    )
    for how in ("checksum", "magic", "ends before it begins"):
        raw = spoiled(damaged, how) + data[len(damaged) :]
        assert true_base_offset(Memory(raw), 0, len(raw), next_offset, next_base) is None
    old = placed(77, 1, 5, 1) + placed(101, 1, 5)
    assert true_base_offset(Memory(old), 0, len(old), 100) is None
