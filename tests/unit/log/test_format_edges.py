"""Files of a log directory at the edges of what they may say: each field alone, the last value taken, the first refused."""

import struct

import pytest

from barnabas.log.format import CorruptFileError, checkpoints, properties, snapshot
from barnabas.log.format.offset_index import OffsetIndex
from barnabas.log.format.properties import MetaProperties
from barnabas.log.format.time_index import TimeIndex
from barnabas.records.crc import crc32c

BASE = 100


def is_taken(decode):
    try:
        decode()
    except CorruptFileError:
        return False
    return True


# --- indexes ------------------------------------------------------------------------------------------------------


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
        left = [entry for entry in entries if entry[0] < offset]
        assert [shorter.entry(n) for n in range(len(shorter))] == left
        assert shorter.last_offset == (left[-1][0] if left else BASE - 1)
        if offset >= BASE:
            shorter.append(offset, 1 << 30)
            assert shorter.entry(len(left)) == (offset, 1 << 30)
    for position in range(45, 140):
        assert index.slots_before(position) == len([entry for entry in entries if entry[1] < position])


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
        left = [entry for entry in entries if entry[1] < offset]
        assert [shorter.entry(n) for n in range(len(shorter))] == left
        assert shorter.last_timestamp == (left[-1][0] if left else -1)


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
