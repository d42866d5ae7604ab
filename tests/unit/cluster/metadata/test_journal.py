"""The journal of older versions, read: one byte costs nothing where there is a copy, and nothing is lost in silence."""

from __future__ import annotations

import pytest

from barnabas.cluster.metadata.access_changes import (
    AclAdded,
    AclRemoved,
    ClientQuotaChanged,
    DelegationTokenChanged,
    DelegationTokenRemoved,
    ScramCredentialChanged,
)
from barnabas.cluster.metadata.changes import (
    ConfigChanged,
    EpochBegun,
    LogDirsRegistered,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import TOPIC, Change, PartitionInfo, TopicInfo
from barnabas.cluster.metadata.journal import Content, read_journal
from barnabas.cluster.metadata.journal_lines import decode_line
from barnabas.cluster.metadata.journal_names import COPY, JOURNAL, TAKEN_OVER, journal_files
from barnabas.errors import StorageError
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.effort import drawing
from tests.support.old_journal import encode, encode_line, encode_lines, sealed, write_journal
from tests.support.own_stores import ALICE, BOB, CREDENTIAL, GROUPS, PART, TOKEN

MAIN, SECOND = f"/a/{JOURNAL}", f"/a/{COPY}"
CHANGES = [change for group in GROUPS for change in group]

# --- lines ----------------------------------------------------------------------------------------------------------

LINES = [
    (
        TopicCreated(TopicInfo("t", b"t".ljust(16), (PART, PartitionInfo(2, (2, 3), (3,), 8, 9)))),
        b'{"crc":"166db232","n":5,"change":"TopicCreated","name":"t","id":"74202020202020202020202020202020",'
        b'"partitions":[[1,[1],[1],0,0],[2,[2,3],[3],8,9]]}\n',
    ),
    (
        PartitionsAdded("t", (PART,)),
        b'{"crc":"04edcb72","n":5,"change":"PartitionsAdded","name":"t","partitions":[[1,[1],[1],0,0]]}\n',
    ),
    (
        PartitionChanged("t", 1, PART),
        b'{"crc":"673fc03a","n":5,"change":"PartitionChanged","name":"t","index":1,"partition":[1,[1],[1],0,0]}\n',
    ),
    (EpochBegun(7), b'{"crc":"78ae9f46","n":5,"change":"EpochBegun","epoch":7}\n'),
    (TopicDeleted("t"), b'{"crc":"c537e111","n":5,"change":"TopicDeleted","name":"t"}\n'),
    (
        ConfigChanged(TOPIC, "t", (("a", "1"), ("b", "ü"))),
        b'{"crc":"4fce72ea","n":5,"change":"ConfigChanged","type":2,"name":"t","settings":{"a":"1",'
        b'"b":"\\u00fc"}}\n',
    ),
    (
        ProducerIdsAllocated(1000),
        b'{"crc":"beb5efc8","n":5,"change":"ProducerIdsAllocated","next_id":1000}\n',
    ),
    (
        LogDirsRegistered(1, frozenset({b"a" * 16, b"b" * 16})),
        b'{"crc":"78e458cc","n":5,"change":"LogDirsRegistered","broker":1,'
        b'"dirs":["61616161616161616161616161616161","62626262626262626262626262626262"]}\n',
    ),
    (
        ScramCredentialChanged("alice", "SCRAM-SHA-256", CREDENTIAL),
        b'{"crc":"c7c140fc","n":5,"change":"ScramCredentialChanged","user":"alice","mechanism":"SCRAM-SHA-256",'
        b'"credential":"salt=c2FsdA==,stored_key=ZgOBnT3e4m6ug0RaWAjT+wbbWyjyg4tRSVs5YRrlckg=,'
        b'server_key=aIEiGy0bV5Pa1w1/Ak6ms8TZoqDzKpnevZGpLsFZbek=,iterations=4096"}\n',
    ),
    (
        ScramCredentialChanged("alice", "SCRAM-SHA-512", None),
        b'{"crc":"b6fe7225","n":5,"change":"ScramCredentialChanged","user":"alice","mechanism":"SCRAM-SHA-512",'
        b'"credential":null}\n',
    ),
    (
        DelegationTokenChanged(TOKEN),
        b'{"crc":"a3b767bf","n":5,"change":"DelegationTokenChanged","id":"id-1","owner":"User:alice",'
        b'"requester":"User:bob","renewers":["User:carol"],"issued":1000,"expires":2000,"expires_max":3000}\n',
    ),
    (
        DelegationTokenRemoved("id-1"),
        b'{"crc":"44ab4a12","n":5,"change":"DelegationTokenRemoved","id":"id-1"}\n',
    ),
    (
        ClientQuotaChanged(ALICE, (("producer_byte_rate", 1000.0), ("request_percentage", 12.5))),
        b'{"crc":"ad221238","n":5,"change":"ClientQuotaChanged","entity":{"client-id":null,"user":"alice"},'
        b'"quotas":{"producer_byte_rate":1000.0,"request_percentage":12.5}}\n',
    ),
    (
        AclAdded(BOB),
        b'{"crc":"efc216d9","n":5,"change":"AclAdded","type":2,"pattern":3,"name":"t","principal":"User:bob",'
        b'"host":"*","operation":3,"permission":2}\n',
    ),
    (
        AclRemoved(BOB),
        b'{"crc":"7fa49051","n":5,"change":"AclRemoved","type":2,"pattern":3,"name":"t","principal":"User:bob",'
        b'"host":"*","operation":3,"permission":2}\n',
    ),
]
"""Changes, and their lines as the last version that wrote them has left them on disks."""


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
@pytest.mark.parametrize("has_more", [False, True])
def test_a_change_is_read_as_it_was_written(change: Change, has_more: bool) -> None:
    line = decode_line(encode_line(12, change, has_more=has_more))
    assert (line.number, line.has_more, line.change) == (12, has_more, change)
    oldest = decode_line(encode(change).encode() + b"\n")
    assert (oldest.number, oldest.has_more, oldest.change) == (-1, False, change)


@pytest.mark.parametrize(("change", "data"), LINES, ids=lambda value: type(value).__name__)
def test_a_line_on_a_disk_is_read_as_its_change(change: Change, data: bytes) -> None:
    line = decode_line(data)
    assert (line.number, line.has_more, line.change, line.data) == (5, False, change, data)
    assert encode_line(5, change) == data


@pytest.mark.parametrize(
    "line",
    [
        encode(CHANGES[0]).encode(),  # without its end
        b'{"change":"Nothing"}\n',
        b'{"change":"EpochBegun"}\n',
        b'{"change":7}\n',
        encode_line(1, CHANGES[0])[:-2] + b" \n",
        encode_line(1, CHANGES[0]).replace(b'"n":1', b'"n":2'),
        b"\n",
    ],
)
def test_a_line_that_is_not_whole_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"a line|unknown change"):
        decode_line(line)


# --- copies ---------------------------------------------------------------------------------------------------------


def written(*dirs: str) -> MemoryDisk:
    disk = MemoryDisk()
    write_journal(disk, GROUPS, dirs or ("/a",))
    return disk


def read(disk: MemoryDisk, *dirs: str) -> Content:
    return read_journal(disk, dirs or ("/a",))


@pytest.mark.parametrize("path", [MAIN, SECOND])
def test_any_one_byte_may_be_wrong(path: str) -> None:
    disk = written()
    sound = disk.read(path)
    random = drawing()
    for position in range(0, len(sound), 3):
        for value in {sound[position] ^ 1 << random.randrange(8), 0, ord("\n")} - {sound[position]}:
            damaged = bytearray(sound)
            damaged[position] = value
            disk.replace(path, bytes(damaged), sync=True)
            content = read(disk)
            assert content.changes == CHANGES, (position, value)
            assert not content.lost


def test_truncated_journal_is_completed_from_its_copy() -> None:
    disk = written()
    sound = disk.read(MAIN)
    for size in range(0, len(sound), 5):
        disk.replace(MAIN, sound[:size], sync=True)
        content = read(disk)
        assert (content.changes, content.lost) == (CHANGES, []), size


def test_changes_of_a_group_are_read_together() -> None:
    disk = written()
    sound = disk.read(MAIN)
    ends = [len(encode_lines(GROUPS[:count])) for count in range(len(GROUPS) + 1)]
    for size in range(0, len(sound), 5):
        for path in (MAIN, SECOND):
            disk.replace(path, sound[:size], sync=True)
        count = sum(end <= size for end in ends[1:])
        content = read(disk)
        assert content.changes == [change for group in GROUPS[:count] for change in group], size
        assert not content.lost


@pytest.mark.parametrize("number", range(0, len(CHANGES), 3))
def test_line_that_no_copy_has_is_named_and_the_rest_kept(number: int) -> None:
    disk = written()
    lines = disk.read(MAIN).splitlines(keepends=True)
    start = sum(map(len, lines[:number]))
    end = start + len(lines[number])
    lines[number] = lines[number][:30] + b"#" + lines[number][31:]
    for path in (MAIN, SECOND):
        disk.replace(path, b"".join(lines), sync=True)
    content = read(disk)
    assert content.lost == [f"{MAIN}, bytes {start} to {end}"]
    expected = CHANGES[:number] + CHANGES[number + 1 :]
    assert content.changes == expected[: len(content.changes)]
    assert len(expected) - len(content.changes) <= 1  # one that belongs to the lost end


def test_journal_without_checksums_is_read() -> None:
    disk = MemoryDisk()
    disk.make_dirs("/a")
    disk.replace(MAIN, "".join(encode(change) + "\n" for change in CHANGES).encode(), sync=True)
    assert read(disk).changes == CHANGES


@pytest.mark.parametrize("directory", ["/a", "/b", "/c"])
def test_each_log_dir_has_a_copy_and_any_of_them_will_do(directory: str) -> None:
    dirs = ("/a", "/b", "/c")
    disk = written(*dirs)
    for path in journal_files(disk, dirs):
        if path != f"{directory}/{COPY}":
            disk.remove(path)
    assert read(disk, "/b", "/a", "/c").changes == CHANGES


def test_copy_that_goes_further_counts() -> None:
    disk = written("/a", "/b")
    for path in (MAIN, SECOND):
        disk.replace(path, b"".join(disk.read(path).splitlines(keepends=True)[:3]), sync=True)
    assert read(disk, "/a", "/b").changes == CHANGES


def test_copy_that_cannot_be_read_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    disk = written("/a", "/b")
    disk.fault = lambda operation, path: (
        OSError(5, "broken") if operation == "open" and path == MAIN else None
    )
    assert read(disk, "/a", "/b", "/nowhere").changes == CHANGES
    assert f"{MAIN} cannot be read" in caplog.text


def test_files_with_another_suffix_are_read_for_it() -> None:
    disk = written()
    assert not read_journal(disk, ["/a"], TAKEN_OVER).changes
    for path in (MAIN, SECOND):
        disk.rename(path, path + TAKEN_OVER)
    assert not read(disk).changes
    assert read_journal(disk, ["/a"], TAKEN_OVER).changes == CHANGES


# --- other versions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'"n":%d,"change":"OfANewerBuild","epoch":1}', "'OfANewerBuild'"),
        (b'"n":%d,"change":"TopicCreated","name":"in a new form"}', "'TopicCreated'"),
        (b'"n":%d,"change":["TopicCreated"]}', "['TopicCreated']"),
        (b'"n":%d,"changes":[]}', "unknown"),
        (b'"n":%d,"change":' + b"[" * 100, "unknown"),
        (b"\x00%d", "unknown"),
    ],
)
@pytest.mark.parametrize("places", [(MAIN,), (SECOND,), (MAIN, SECOND)])
@pytest.mark.parametrize("is_last", [False, True])
def test_a_line_of_another_version_is_refused(
    body: bytes, kind: str, places: tuple[str, ...], is_last: bool
) -> None:
    disk = written()
    number = len(CHANGES) + 1 if is_last else 3
    for path in places:
        lines = disk.read(path).splitlines(keepends=True)
        lines.insert(number - 1, sealed(body % number))
        disk.replace(path, b"".join(lines), sync=True)
    before = {path: disk.read(path) for path in (MAIN, SECOND)}
    with pytest.raises(StorageError) as refusal:
        read(disk)
    assert "another version of Barnabas has written here" in str(refusal.value)
    assert f"{kind} in line {number} of {places[0]}" in str(refusal.value)
    assert {path: disk.read(path) for path in (MAIN, SECOND)} == before


def test_a_line_of_another_version_that_is_damaged_is_damage() -> None:
    disk = written()
    line = sealed(b'"n":99,"change":"OfANewerBuild"}').replace(b"Newer", b"newer")
    disk.replace(MAIN, disk.read(MAIN) + line, sync=True)
    content = read(disk)
    assert content.changes == CHANGES
    assert len(content.lost) == 1
