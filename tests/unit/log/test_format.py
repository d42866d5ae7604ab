"""The files of a log directory as values."""

import pytest

from barnabas.log.format import CorruptFileError, checkpoints, names, properties, snapshot, txn_index
from barnabas.log.format.names import DirKind, PartitionDir, SegmentFile
from barnabas.log.format.offset_index import OffsetIndex
from barnabas.log.format.properties import MetaProperties
from barnabas.log.format.snapshot import SnapshotEntry
from barnabas.log.format.time_index import TimeIndex
from barnabas.log.format.txn_index import AbortedTransaction

UUID = bytes.fromhex("31f15db93e4fe253c7984bdb6c6710b0")


# --- names ---


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000000.log", SegmentFile(0, ".log", "")),
        ("00000000000000000042.timeindex.swap", SegmentFile(42, ".timeindex", ".swap")),
        ("09223372036854775807.snapshot.deleted", SegmentFile((1 << 63) - 1, ".snapshot", ".deleted")),
        ("0000000000000000000.log", None),
        ("00000000000000000000.log.tmp", None),
        ("00000000000000000000.logs", None),
        ("00000000000000000000.log\n", None),
        ("leader-epoch-checkpoint", None),
    ],
)
def test_segment_files_are_recognised_by_name(name, expected):
    parsed = names.parse_file_name(name)
    assert parsed == expected
    if parsed:
        assert names.file_name(*parsed) == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a-0", PartitionDir("a", 0, DirKind.CURRENT)),
        ("my-topic.x_1-12", PartitionDir("my-topic.x_1", 12, DirKind.CURRENT)),
        ("t-1-3", PartitionDir("t-1", 3, DirKind.CURRENT)),
        ("t-1.0af3-delete", PartitionDir("t", 1, DirKind.DELETE)),
        ("a.b-1-2.0af3-future", PartitionDir("a.b-1", 2, DirKind.FUTURE)),
        ("t-1.0af3-stray", PartitionDir("t", 1, DirKind.STRAY)),
        ("lost+found", None),
        ("-0", None),
        ("t-", None),
        ("t-x", None),
    ],
)
def test_partition_directories_are_recognised_by_name(name, expected):
    assert names.parse_dir_name(name) == expected


def test_the_name_of_a_deleted_directory_fits_a_file_system():
    name = names.marked_dir_name("x" * 249, 12, DirKind.DELETE, "0" * 32)
    assert len(name) == 255
    assert names.parse_dir_name(name).partition == 12
    assert names.marked_dir_name("t", 0, DirKind.DELETE, "ab") == "t-0.ab-delete"


# --- offset index ---


def make_offset_index(*entries: tuple[int, int], base_offset: int = 100) -> OffsetIndex:
    index = OffsetIndex(base_offset)
    for offset, position in entries:
        index.append(offset, position)
    return index


def test_an_offset_index_finds_the_nearest_position_before():
    index = make_offset_index((110, 4_000), (120, 9_000), (130, 15_000))
    assert index.entries == bytes.fromhex("0000000a00000fa0 0000001400002328 0000001e00003a98")
    assert [index.lookup(offset) for offset in (0, 109, 110, 111, 129, 130, 999)] == [
        0, 0, 4_000, 4_000, 9_000, 15_000, 15_000,
    ]  # fmt: skip
    assert [index.slots_before(position) for position in (0, 4_000, 4_001, 15_000, 15_001)] == [0, 0, 1, 2, 3]


@pytest.mark.parametrize(("offset", "count"), [(100, 0), (110, 0), (111, 1), (121, 2), (130, 2), (131, 3)])
def test_an_offset_index_is_truncated(offset, count):
    index = make_offset_index((110, 4_000), (120, 9_000), (130, 15_000))
    index.truncate(offset)
    assert len(index) == count
    assert index.last_offset == (99, 110, 120, 130)[count]


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 7,
        b"\0" * 16,  # two entries alike: what a crash leaves of a file made in advance
        bytes.fromhex("0000000a00000fa0 0000000000000000"),
        bytes.fromhex("0000000a00000fa0 0000001400ffffff"),
        bytes.fromhex("ffffffff00000000"),
    ],
)
def test_a_damaged_offset_index_is_refused(data):
    with pytest.raises(CorruptFileError):
        OffsetIndex.decode(0, data, 10_000)


# --- time index ---


def make_time_index(*entries: tuple[int, int], base_offset: int = 100) -> TimeIndex:
    index = TimeIndex(base_offset)
    for timestamp, offset in entries:
        index.append(timestamp, offset)
    return index


def test_a_time_index_keeps_rising_timestamps_only():
    index = make_time_index((1_000, 110), (900, 120), (1_000, 125), (2_000, 130))
    assert index.entries == bytes.fromhex("00000000000003e80000000a 00000000000007d00000001e")
    assert index.last() == (2_000, 130)
    assert [index.lookup(timestamp) for timestamp in (0, 999, 1_000, 1_999, 2_000, 9_999)] == [
        100, 100, 110, 110, 130, 130,
    ]  # fmt: skip
    assert TimeIndex(7).last() == (-1, 7)


@pytest.mark.parametrize(("offset", "count"), [(100, 0), (110, 0), (111, 1), (130, 1), (131, 2)])
def test_a_time_index_is_truncated(offset, count):
    index = make_time_index((1_000, 110), (2_000, 130))
    index.truncate(offset)
    assert len(index) == count
    assert index.last_timestamp == (-1, 1_000, 2_000)[count]


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 11,
        b"\0" * 24,
        bytes.fromhex("00000000000007d00000001e 00000000000003e80000000a"),
        bytes.fromhex("00000000000003e80000000a 00000000000007d000000001"),
    ],
)
def test_a_damaged_time_index_is_refused(data):
    with pytest.raises(CorruptFileError):
        TimeIndex.decode(0, data)


# --- transaction index ---

ABORTED = [AbortedTransaction(7, 100, 120, 121), AbortedTransaction(8, 90, 130, 131)]


def test_a_transaction_index_survives_a_round_trip():
    data = txn_index.encode(ABORTED)
    assert len(data) == 2 * 34
    assert data[:2] == b"\0\0"
    assert txn_index.decode(data, 110) == ABORTED


@pytest.mark.parametrize(
    "data",
    [
        txn_index.encode(ABORTED)[:-1],
        b"\0\1" + txn_index.encode(ABORTED)[2:],
        txn_index.encode(ABORTED[::-1]),
        txn_index.encode([AbortedTransaction(1, 5, 90, 91)]),
        b"\0" * 34,
    ],
)
def test_a_damaged_transaction_index_is_refused(data):
    with pytest.raises(CorruptFileError):
        txn_index.decode(data, 110)


# --- checkpoints ---


def test_offset_checkpoints_are_as_kafka_writes_them():
    offsets = {("a-b", 0): 17, ("t", 12): 1 << 40}
    data = b"0\n2\na-b 0 17\nt 12 1099511627776\n"
    assert checkpoints.encode_offsets(offsets) == data
    assert checkpoints.decode_offsets(data) == offsets
    assert checkpoints.decode_offsets(b"0\n0\n") == {}
    assert checkpoints.decode_offsets(b"") == {}


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"0\n",
        b"0\n1\n",
        b"0\n2\nt 0 1\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt 0 -1\n",
        b"0\nx\n",
        b"\xff\n",
        b"\0" * 9,
    ],
)
def test_damaged_checkpoints_are_refused(data):
    with pytest.raises(CorruptFileError):
        checkpoints.decode_offsets(data)


def test_epoch_checkpoints_are_as_kafka_writes_them():
    epochs = [(0, 0), (3, 17)]
    assert checkpoints.encode_epochs(epochs) == b"0\n2\n0 0\n3 17\n"
    assert checkpoints.decode_epochs(b"0\n2\n0 0\n3 17\n") == epochs


@pytest.mark.parametrize(
    "data", [b"0\n2\n3 0\n0 17\n", b"0\n2\n0 17\n3 0\n", b"0\n1\n0 0 0\n", b"0\n1\nx 0\n"]
)
def test_damaged_epoch_checkpoints_are_refused(data):
    with pytest.raises(CorruptFileError):
        checkpoints.decode_epochs(data)


# --- property files ---


def test_meta_properties_of_both_versions_are_understood():
    theirs = b"#\n#Sat Nov 21\nnode.id=1\nversion=1\ncluster.id=abc\ndirectory.id=MfFduT5P4lPHmEvbbGcQsA\n"
    assert MetaProperties.decode(theirs) == MetaProperties(1, "abc", 1, UUID)
    assert MetaProperties.decode(b"version=0\nbroker.id=5\ncluster.id=abc\n") == MetaProperties(0, "abc", 5)
    assert MetaProperties.decode(b"") == MetaProperties(0)


@pytest.mark.parametrize(
    "meta",
    [
        MetaProperties(1, "abc", 1, UUID),
        MetaProperties(0, "abc", 5, None, {"other": "kept"}),
        MetaProperties(1, None, None, None, {"a b:c": " =ö\\\n\t!"}),
    ],
)
def test_meta_properties_survive_a_round_trip(meta):
    assert MetaProperties.decode(meta.encode()) == meta


@pytest.mark.parametrize(
    "data",
    [b"version=2\n", b"version=x\n", b"node.id=y\nversion=1\n", b"directory.id=??\n", b"\xff", b"a=\\uzzzz"],
)
def test_damaged_meta_properties_are_refused(data):
    with pytest.raises(CorruptFileError):
        MetaProperties.decode(data)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=b", {"a": "b"}),
        (" a : b \r\n! c\n#d\n\ne f", {"a": "b ", "e": "f"}),
        ("a\\=b=c\\\n   d", {"a=b": "cd"}),
        ("a\\\\=b\\u0041", {"a\\": "bA"}),
        ("alone", {"alone": ""}),
        ("x=1\nx=2", {"x": "2"}),
    ],
)
def test_java_properties_are_understood(text, pairs):
    assert properties.decode_properties(text.encode()) == pairs


def test_partition_metadata_is_as_kafka_writes_it():
    data = b"version: 0\ntopic_id: MfFduT5P4lPHmEvbbGcQsA"
    assert properties.encode_partition_metadata(UUID) == data
    assert properties.decode_partition_metadata(data) == UUID
    assert properties.decode_partition_metadata(data + b"\n") == UUID


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 1\ntopic_id: MfFduT5P4lPHmEvbbGcQsA",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0",
    ],
)
def test_damaged_partition_metadata_is_refused(data):
    with pytest.raises(CorruptFileError):
        properties.decode_partition_metadata(data)


# --- producer snapshots ---

SNAPSHOT = [
    SnapshotEntry(1, 0, 299, 647, 1, 1_700_000_000_000, 3, -1),
    SnapshotEntry(1 << 40, 32_767, -1, -1, 0, -1, -1, 640),
]


def test_a_snapshot_survives_a_round_trip():
    data = snapshot.encode(SNAPSHOT)
    assert len(data) == 10 + 2 * 46
    assert snapshot.decode(data) == SNAPSHOT


def test_an_empty_snapshot_is_as_kafka_writes_it():
    assert snapshot.encode([]) == bytes.fromhex("0001 48674bc7 00000000")
    assert snapshot.decode(snapshot.encode([])) == []


@pytest.mark.parametrize("at", [0, 1, 2, 6, 9, 10, 50, 101])
def test_a_damaged_snapshot_is_refused(at):
    data = bytearray(snapshot.encode(SNAPSHOT))
    data[at] ^= 1
    with pytest.raises(CorruptFileError):
        snapshot.decode(bytes(data))
    with pytest.raises(CorruptFileError):
        snapshot.decode(snapshot.encode(SNAPSHOT)[:at])
