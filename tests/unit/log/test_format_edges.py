"""Files of a log directory at the edges of what they may say: each field alone, the last value taken, the first refused."""

import struct

import pytest

from barnabas.log.format import CorruptFileError, checkpoints, properties, snapshot, txn_index
from barnabas.log.format.offset_index import OffsetIndex
from barnabas.log.format.properties import MetaProperties
from barnabas.log.format.time_index import TimeIndex
from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.records.crc import crc32c

BASE = 100


def is_taken(decode):
    try:
        decode()
    except CorruptFileError:
        return False
    return True


# --- indexes ------------------------------------------------------------------------------------------------------


def offset_entries(*entries):
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


@pytest.mark.parametrize(
    ("entries", "taken"),
    [
        ([], True),
        ([(0, 0)], True),
        ([(0, 999)], True),
        ([(0, 1_000)], False),
        ([(0, 1_001)], False),
        ([(-1, 0)], False),
        ([(0, -1)], False),
        ([(5, 10), (6, 11)], True),
        ([(5, 10), (5, 11)], False),
        ([(5, 10), (4, 11)], False),
        ([(5, 10), (6, 10)], True),
        ([(5, 10), (6, 9)], False),
        ([(5, 10), (6, 999)], True),
        ([(5, 10), (6, 1_000)], False),
        ([(-1, 10), (6, 11)], False),
        ([(5, 10), (4, 5), (6, 11)], True),  # those in between are looked at when they are used
    ],
)
def test_an_offset_index_is_held_against_its_log(entries, taken):
    data = offset_entries(*entries)
    assert is_taken(lambda: OffsetIndex.decode(BASE, data, 1_000)) is taken
    for more in range(1, 8):
        assert not is_taken(lambda more=more: OffsetIndex.decode(BASE, data + bytes(more), 1_000))
    if taken:
        index = OffsetIndex.decode(BASE, data, 1_000)
        assert index.entries == data
        assert len(index) == len(entries)
        assert [index.entry(n) for n in range(len(index))] == [(BASE + own, at) for own, at in entries]
        assert index.last_offset == BASE + (entries[-1][0] if entries else -1)


@pytest.mark.parametrize("count", range(5))
def test_an_offset_index_at_every_offset_and_position(count):
    entries = [(BASE + 3 * n * n, 50 + 20 * n) for n in range(count)]
    index = OffsetIndex(BASE)
    for entry in entries:
        index.append(*entry)
    for offset in range(BASE - 2, BASE + 60):
        upto = [entry for entry in entries if entry[0] <= offset]
        assert index.slots_up_to(offset) == len(upto)
        assert index.floor(offset) == (upto[-1] if upto else (-1, 0))
        assert index.lookup(offset) == (upto[-1][1] if upto else 0)
        shorter = OffsetIndex(BASE, index.entries)
        shorter.truncate(offset)
        kept = [entry for entry in entries if entry[0] < offset]
        assert [shorter.entry(n) for n in range(len(shorter))] == kept
        assert shorter.last_offset == (kept[-1][0] if kept else BASE - 1)
        if offset >= BASE:
            shorter.append(offset, 1 << 30)
            assert shorter.entry(len(kept)) == (offset, 1 << 30)
    for position in range(45, 140):
        assert index.slots_before(position) == len([entry for entry in entries if entry[1] < position])


def time_entries(*entries):
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


@pytest.mark.parametrize(
    ("entries", "taken"),
    [
        ([], True),
        ([(0, 0)], True),
        ([(-1, 0)], False),
        ([(0, -1)], False),
        ([(7, 5), (8, 6)], True),
        ([(7, 5), (8, 5)], True),
        ([(7, 5), (8, 4)], False),
        ([(7, 5), (7, 6)], False),
        ([(7, 5), (6, 6)], False),
        ([(-1, 5), (6, 6)], False),
        ([(7, -1), (8, 6)], False),
    ],
)
def test_a_time_index_rises_from_its_first_entry_to_its_last(entries, taken):
    data = time_entries(*entries)
    assert is_taken(lambda: TimeIndex.decode(BASE, data)) is taken
    for more in range(1, 12):
        assert not is_taken(lambda more=more: TimeIndex.decode(BASE, data + bytes(more)))
    if taken:
        index = TimeIndex.decode(BASE, data)
        expected = [(time, BASE + offset) for time, offset in entries]
        assert [index.entry(n) for n in range(len(index))] == expected
        assert index.last() == (expected[-1] if expected else (-1, BASE))
        assert index.last_timestamp == (entries[-1][0] if entries else -1)


@pytest.mark.parametrize("count", range(5))
def test_a_time_index_at_every_time_and_offset(count):
    entries = [(10 + 5 * n * n, BASE + 4 * (n // 2)) for n in range(count)]
    index = TimeIndex(BASE)
    for entry in entries:
        index.append(*entry)
        index.append(entry[0], entry[1] + 1)  # it is known already
        index.append(entry[0] - 1, entry[1] + 1)
    assert [index.entry(n) for n in range(len(index))] == entries
    for time in range(5, 100):
        upto = [entry for entry in entries if entry[0] <= time]
        assert index.slots_up_to(time) == len(upto)
        assert index.lookup(time) == (upto[-1][1] if upto else BASE)
    for offset in range(BASE - 1, BASE + 20):
        shorter = TimeIndex(BASE, index.entries)
        shorter.truncate(offset)
        kept = [entry for entry in entries if entry[1] < offset]
        assert [shorter.entry(n) for n in range(len(shorter))] == kept
        assert shorter.last_timestamp == (kept[-1][0] if kept else -1)


@pytest.mark.parametrize(
    ("entries", "taken"),
    [
        ([], True),
        ([(0, 7, 100, 100, 101)], True),  # an empty transaction: its marker alone
        ([(0, 7, 101, 100, 101)], False),
        ([(1, 7, 100, 100, 101)], False),
        ([(-1, 7, 100, 100, 101)], False),
        ([(0, 7, 5, 99, 101)], False),  # its marker is in the segment before
        ([(0, 7, 5, 100, 101)], True),
        ([(0, 7, 100, 110, 111), (0, 8, 90, 111, 112)], True),
        ([(0, 7, 100, 110, 111), (0, 8, 90, 110, 112)], False),
        ([(0, 7, 100, 110, 111), (0, 8, 90, 109, 112)], False),
        ([(0, 7, 100, 110, 111), (0, 8, 112, 111, 112)], False),
        ([(0, 7, 100, 110, 111), (1, 8, 90, 111, 112)], False),
    ],
)
def test_transactions_follow_each_other(entries, taken):
    data = b"".join(struct.pack(">hqqqq", *entry) for entry in entries)
    assert is_taken(lambda: txn_index.decode(data, 100)) is taken
    for more in (1, 33):
        assert not is_taken(lambda more=more: txn_index.decode(data + bytes(more), 100))
    if taken:
        decoded = txn_index.decode(data, 100)
        assert decoded == [AbortedTransaction(*entry[1:]) for entry in entries]
        assert [tuple(row) for row in decoded] == [entry[1:] for entry in entries]
        assert txn_index.encode(decoded) == data


# --- snapshots ----------------------------------------------------------------------------------------------------


ENTRY_DATA = struct.pack(">qhiqiqiq", *range(1, 9))


def snapshot_of(version=1, count=1, entries=ENTRY_DATA, crc=None):
    body = struct.pack(">i", count) + entries
    return struct.pack(">hI", version, crc32c(body) if crc is None else crc) + body


@pytest.mark.parametrize(
    "data",
    [
        snapshot_of(version=0),
        snapshot_of(version=2),
        snapshot_of(crc=0),
        snapshot_of(count=0),
        snapshot_of(count=2),
        snapshot_of(count=-1),
        snapshot_of(entries=bytes(45)),
        snapshot_of(entries=bytes(47)),
        snapshot_of(count=0, entries=b"")[:9],
        b"",
    ],
)
def test_a_snapshot_that_does_not_add_up_is_refused(data):
    with pytest.raises(CorruptFileError):
        snapshot.decode(data)


# --- checkpoints --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("", {}),
        ("0\n0\n", {}),
        ("0\n0", {}),
        ("0\n1\nt 0 5\n", {("t", 0): 5}),
        ("0\n1\nt 0 5", {("t", 0): 5}),
        ("0\n2\nt 0 5\nt 1 6\n", {("t", 0): 5, ("t", 1): 6}),
        ("0\n1\nt 0 5\n\n", None),
        ("0\n2\nt 0 5\n\n", None),
        ("0", None),
        ("\n", None),
        ("1\n0\n", None),
        ("0\n-1\n", None),
        ("0\n01\nt 0 5\n", None),
        ("0\n2\nt 0 5\n", None),
        ("0\n0\nt 0 5\n", None),
        ("0\n1\nt 0\n", None),
        ("0\n1\nt 0 5 6\n", None),
        ("0\n1\nt x 5\n", None),
        ("0\n1\nt 0 x\n", None),
        ("0\n1\nt -1 5\n", None),
        ("0\n1\nt 0 -5\n", None),
        ("0\n1\nt 0 5.0\n", None),
        ("0\n1\nt 0 \u0665\n", None),  # a digit, and not one that Kafka writes
        ("0\n1\nt \u0660 5\n", None),
        ("0\n1\nt 0 \u00b2\n", None),
    ],
)
def test_offset_checkpoints_line_by_line(text, offsets):
    assert is_taken(lambda: checkpoints.decode_offsets(text.encode())) is (offsets is not None)
    if offsets is not None:
        assert checkpoints.decode_offsets(text.encode()) == offsets


@pytest.mark.parametrize(
    ("entries", "taken"),
    [
        ([(0, 0)], True),
        ([(0, 0), (1, 0)], True),
        ([(0, 5), (1, 5)], True),
        ([(0, 5), (1, 4)], False),
        ([(1, 0), (1, 5)], False),
        ([(2, 0), (1, 5)], False),
        ([(0, 0), (1, 5), (1, 6)], False),
        ([(0, 0), (1, 5), (2, 4)], False),
        ([(0, 0), (1, 5), (2, 5)], True),
    ],
)
def test_epoch_checkpoints_rise(entries, taken):
    data = checkpoints.encode_epochs(entries)
    assert is_taken(lambda: checkpoints.decode_epochs(data)) is taken
    assert not taken or checkpoints.decode_epochs(data) == entries
    for line in ("0", "0 0 0", "x 0", "0 x", "-1 0", "0 -1"):
        assert not is_taken(lambda line=line: checkpoints.decode_epochs(f"0\n1\n{line}\n".encode()))


# --- properties ---------------------------------------------------------------------------------------------------

UUID = bytes(range(16))
UUID_TEXT = "AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.parametrize(
    ("meta", "lines"),
    [
        (MetaProperties(), ["version=1"]),
        (MetaProperties(0), ["version=0"]),
        (MetaProperties(1, "c"), ["cluster.id=c", "version=1"]),
        (MetaProperties(1, "c", 0), ["cluster.id=c", "node.id=0", "version=1"]),
        (MetaProperties(0, "c", 7), ["broker.id=7", "cluster.id=c", "version=0"]),
        (MetaProperties(1, None, 7, UUID), [f"directory.id={UUID_TEXT}", "node.id=7", "version=1"]),
        (MetaProperties(0, None, None, UUID, {"a": "b"}), ["a=b", f"directory.id={UUID_TEXT}", "version=0"]),
    ],
)
def test_meta_properties_have_the_keys_that_are_known(meta, lines):
    data = "".join(f"{line}\n" for line in lines).encode()
    assert meta.encode() == data
    assert MetaProperties.decode(data) == meta
    assert MetaProperties.decode("".join(f"{line}\n" for line in reversed(lines)).encode()) == meta


JAVA = [
    # As java.util.Properties reads them.
    ("a=1", {"a": "1"}),
    ("a:1", {"a": "1"}),
    ("a 1", {"a": "1"}),
    ("a\t1", {"a": "1"}),
    ("a\f1", {"a": "1"}),
    ("a = 1", {"a": "1"}),
    ("a = = 1", {"a": "= 1"}),
    ("a : = 1", {"a": "= 1"}),
    ("a  b c", {"a": "b c"}),
    ("a=1 ", {"a": "1 "}),
    (" \t\fa=1", {"a": "1"}),
    ("=1", {"": "1"}),
    ("a", {"a": ""}),
    ("a=", {"a": ""}),
    ("#a=1", {}),
    ("!a=1", {}),
    ("  # a=1", {}),
    ("a#b=1", {"a#b": "1"}),
    ("a!=1", {"a!": "1"}),
    ("\n \n\t\n", {}),
    ("a=1\nb=2", {"a": "1", "b": "2"}),
    ("a=1\rb=2", {"a": "1", "b": "2"}),
    ("a=1\r\nb=2", {"a": "1", "b": "2"}),
    ("a=1\\\nb=2", {"a": "1b=2"}),
    ("a=1\\\n   b=2", {"a": "1b=2"}),
    ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
    ("a=1\\\\\\\nb=2", {"a": "1\\b=2"}),
    ("a=1\\\n#b=2", {"a": "1#b=2"}),
    ("a=1\\\n\\\nb=2", {"a": "1b=2"}),
    ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
    ("#a\\\nb=2", {"b": "2"}),
    ("a\\ b=1", {"a b": "1"}),
    ("a\\=b=1", {"a=b": "1"}),
    ("a\\:b:1", {"a:b": "1"}),
    ("a\\\\=1", {"a\\": "1"}),
    ("a=\\t\\n\\r\\f\\x\\\\", {"a": "\t\n\r\fx\\"}),
    ("a=\\u0041\\u00e4Z", {"a": "A\u00e4Z"}),
    ("\\u0041=1", {"A": "1"}),
    ("a=1\\", {"a": "1"}),
    ("a\\", {"a": ""}),
]


@pytest.mark.parametrize(("text", "pairs"), JAVA)
def test_properties_are_read_as_java_reads_them(text, pairs):
    assert properties.decode_properties(text.encode()) == pairs
    assert properties.decode_properties((text + "\n").encode()) == pairs or text.endswith("\\")


@pytest.mark.parametrize(
    "text", ["a=\\u004", "a=\\u", "a=\\u00g1", "\\uzzzz=1", "a=\\u+041", "a=\\u 041", "a=\\u0_41"]
)
def test_escapes_that_are_none(text):
    with pytest.raises(CorruptFileError):
        properties.decode_properties(text.encode())


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ({"b": "2", "a": "1"}, "a=1\nb=2\n"),
        ({"a b": " c d"}, "a\\ b=\\ c d\n"),
        ({"a": "  c"}, "a=\\  c\n"),
        ({"#a": "#"}, "\\#a=\\#\n"),
        ({"!a": "!"}, "\\!a=\\!\n"),
        ({"a=b": "c=d"}, "a\\=b=c\\=d\n"),
        ({"a:b": "c:d"}, "a\\:b=c\\:d\n"),
        ({"a\\": "\\"}, "a\\\\=\\\\\n"),
        ({"a": "\t\n\r\f"}, "a=\\t\\n\\r\\f\n"),
        ({"a": "~\x7f\x1f\u00e4\u20ac"}, "a=~\\u007F\\u001F\\u00E4\\u20AC\n"),
        ({"": ""}, "=\n"),
        ({}, ""),
    ],
)
def test_properties_are_written_as_java_writes_them(pairs, text):
    assert properties.encode_properties(pairs) == text.encode()
    assert properties.decode_properties(text.encode()) == pairs
