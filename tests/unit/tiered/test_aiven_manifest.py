"""Manifests and custom metadata of the plug-in, byte by byte."""

from random import Random

import pytest

from barnabas.tiered.aiven.custom_metadata import CustomMetadata, CustomMetadataError
from barnabas.tiered.aiven.manifest import ChunkIndex, ManifestError, pack_sizes, unpack_sizes
from tests.support.effort import drawing, examples


@pytest.mark.parametrize(
    ("sizes", "packed"),
    [
        ((), "00000000"),
        ((5,), "0000000100000005"),
        ((10, 10), "000000020000000a01000000000a"),
        ((10, 265, 11, 3), "000000040000000a0100ff0100000003"),
        ((10, 266, 7), "000000030000000a020000010000000007"),
        ((1, 65_537, 0), "0000000300000001030000000100000000 0000".replace(" ", "")),
        ((0, 1 << 30, 1), "0000000300000000040000000040000000 00000001".replace(" ", "")),
    ],
)
def test_sizes_are_packed_as_the_plug_in_packs_them(sizes, packed) -> None:
    assert pack_sizes(sizes).hex() == packed
    assert unpack_sizes(bytes.fromhex(packed)) == sizes


@pytest.mark.parametrize("run", range(examples(50)))
def test_random_sizes_are_unpacked(run) -> None:
    random: Random = drawing(run)
    bits = random.randint(0, 30)
    sizes = tuple(random.getrandbits(bits) for _ in range(random.randint(0, 40)))
    assert unpack_sizes(pack_sizes(sizes)) == sizes


@pytest.mark.parametrize(
    "packed", ["", "0000", "00000001", "0000000100000005ff", "000000020000000a05", "ffffffff0000000a01"]
)
def test_damaged_sizes_are_refused(packed) -> None:
    with pytest.raises(ManifestError):
        unpack_sizes(bytes.fromhex(packed))


@pytest.mark.parametrize(
    "index",
    [
        ChunkIndex(100, 250, (128, 128, 78), fixed_size=128),
        ChunkIndex(100, 100, (100,), fixed_size=100),
        ChunkIndex(100, 30, (30,), fixed_size=100),
        ChunkIndex(100, 250, (60, 70, 10)),
        ChunkIndex(100, 100, (33,)),
    ],
)
def test_chunk_index_is_read_as_it_was_written(index) -> None:
    assert ChunkIndex.from_json(index.to_json()) == index
    assert sum(map(index.original_size, range(len(index.sizes)))) == index.file_size
    assert index.starts[-1] == sum(index.sizes)


@pytest.mark.parametrize(
    "fields",
    [
        {"originalChunkSize": 0}, {"originalFileSize": -1}, {"type": "other"}, {"transformedChunks": "%"},
        {"transformedChunks": "AAAA"}, {"originalFileSize": 1000},
    ],
)  # fmt: skip
def test_chunk_index_that_cannot_be_is_refused(fields) -> None:
    index = ChunkIndex(100, 250, (60, 70, 10)).to_json()
    with pytest.raises((ManifestError, ValueError)):
        ChunkIndex.from_json({**index, **fields})


def test_chunks_of_a_range() -> None:
    index = ChunkIndex(100, 250, (100, 100, 50), fixed_size=100)
    ranges = {
        (0, 1): [0],
        (99, 2): [0, 1],
        (100, 100): [1],
        (199, 500): [1, 2],
        (250, 1): [],
        (0, 0): [],
        (10, 900): [0, 1, 2],
    }
    assert {key: list(index.chunks(*key)) for key in ranges} == ranges


@pytest.mark.parametrize(
    ("custom", "data"),
    [
        (CustomMetadata(), "00"),
        (CustomMetadata(remote_size=300), "010002d804"),
        (CustomMetadata(prefix=""), "0101 01 01".replace(" ", "")),
        (CustomMetadata(1, "p/", "k"), "03 0001 02 0103 03702f 0202 026b".replace(" ", "")),
    ],
)
def test_custom_metadata_are_tagged_fields(custom, data) -> None:
    assert custom.to_bytes().hex() == data
    assert CustomMetadata.from_bytes(bytes.fromhex(data)) == custom


def test_custom_metadata_of_later_fields_are_read() -> None:
    assert CustomMetadata.from_bytes(bytes.fromhex("02000102090141")) == CustomMetadata(1)
    assert CustomMetadata.from_bytes(b"") == CustomMetadata()


@pytest.mark.parametrize("data", ["01", "0100", "010005d804", "010103ff", "01010205ff", "0101020301", "00ff"])
def test_damaged_custom_metadata_are_refused(data) -> None:
    with pytest.raises(CustomMetadataError):
        CustomMetadata.from_bytes(bytes.fromhex(data))
