"""Znodes, ACLs, watches and sessions by themselves: what a change does and takes back, who may, who is told, what ends."""

from __future__ import annotations

import copy
import struct
from typing import Any

import pytest

from barnabas.tools.zkserver.acl import (
    ANYONE,
    OPEN,
    Acl,
    Identity,
    Permission,
    digest_identity,
    require,
    resolve,
)
from barnabas.tools.zkserver.errors import Code, RefusedError
from barnabas.tools.zkserver.jute import (
    Reader,
    encode_buffer,
    encode_data,
    encode_int,
    encode_long,
    encode_string,
)
from barnabas.tools.zkserver.sessions import Sessions
from barnabas.tools.zkserver.tree import (
    DATA_MAX,
    OWN,
    AclSet,
    DataSet,
    EventType,
    Kind,
    NodeCreated,
    NodeDeleted,
    Tree,
    check_data,
    check_path,
    check_version,
    parent_of,
)
from barnabas.tools.zkserver.watches import Watches, WatchKind

CREATED, DELETED, DATA, CHILDREN = (
    EventType.CREATED, EventType.DELETED, EventType.DATA_CHANGED, EventType.CHILDREN_CHANGED,
)  # fmt: skip
ALICE = Identity("sasl", "alice")


def refused(code: Code, do: Any, *arguments: Any) -> None:
    with pytest.raises(RefusedError) as caught:
        do(*arguments)
    assert caught.value.code is code


# --- znodes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/a b", "/ä", "/...", "/.a", "/a/..b", "/~"])
def test_paths_of_znodes(path):
    check_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "", "a", "a/b", "//", "/a/", "//a", "/a//b", "/.", "/..", "/a/./b", "/a/..", "/a\0", "/a\x1f", "/a\x7f", "/a\x9f",
        "/a\ud800", "/a\uf8ff", "/a\ufff0",
    ],
)  # fmt: skip
def test_what_cannot_be_the_path_of_a_znode(path):
    refused(Code.BAD_ARGUMENTS, check_path, path)


def test_data_and_versions_have_limits():
    check_data(None)
    check_data(bytes(DATA_MAX))
    refused(Code.BAD_ARGUMENTS, check_data, bytes(DATA_MAX + 1))
    check_version("/a", 3, 3)
    check_version("/a", 3, -1)
    for wanted in (2, 4, -2):
        refused(Code.BAD_VERSION, check_version, "/a", 3, wanted)
    assert [parent_of(path) for path in ("/", "/a", "/a/b", "/a/b/c")] == ["/", "/", "/a", "/a/b"]


def stat(tree: Tree, path: str) -> dict[str, int]:
    names = (
        "czxid", "mzxid", "ctime", "mtime", "version", "cversion", "aversion", "owner", "size", "children", "pzxid",
    )  # fmt: skip
    values = struct.unpack(">qqqqiiiqiiq", tree.node(path).stat())
    return dict(zip(names, values, strict=True))


def grown() -> Tree:
    tree = Tree()
    tree.apply(NodeCreated("/a", b"one", OPEN), 1, 100)
    tree.apply(NodeCreated("/a/b", b"", OPEN, Kind.EPHEMERAL, 7), 2, 200)
    tree.apply(NodeCreated("/a/c", None, OPEN, Kind.TTL, 0, 50), 3, 300)
    return tree


def test_each_change_is_counted_where_it_happens():
    tree = grown()
    tree.apply(DataSet("/a", b"three"), 4, 400)
    tree.apply(AclSet("/a", (Acl(1, ALICE),)), 5, 500)
    tree.apply(NodeDeleted("/a/c"), 6, 600)
    assert stat(tree, "/a") == {
        "czxid": 1, "mzxid": 4, "ctime": 100, "mtime": 400, "version": 1, "cversion": 3, "aversion": 1, "owner": 0,
        "size": 5, "children": 1, "pzxid": 6,
    }  # fmt: skip
    assert stat(tree, "/a/b") == {
        "czxid": 2, "mzxid": 2, "ctime": 200, "mtime": 200, "version": 0, "cversion": 0, "aversion": 0, "owner": 7,
        "size": 0, "children": 0, "pzxid": 2,
    }  # fmt: skip
    assert tree.node("/a").acl == (Acl(1, ALICE),)
    assert tree.node("") is tree.node("/")
    assert tree.node("/").children == {"a", "zookeeper"}
    refused(Code.NO_NODE, tree.node, "/a/c")


@pytest.mark.parametrize(
    ("change", "events"),
    [
        (NodeCreated("/x", b"", OPEN), [(CREATED, "/x"), (CHILDREN, "/")]),
        (NodeCreated("/a/x", b"", OPEN, Kind.CONTAINER), [(CREATED, "/a/x"), (CHILDREN, "/a")]),
        (NodeCreated("/a/x", b"", OPEN, Kind.EPHEMERAL, 9), [(CREATED, "/a/x"), (CHILDREN, "/a")]),
        (NodeDeleted("/a/b"), [(DELETED, "/a/b"), (CHILDREN, "/a")]),
        (NodeDeleted("/a/c"), [(DELETED, "/a/c"), (CHILDREN, "/a")]),
        (DataSet("/a", b"x"), [(DATA, "/a")]),
        (DataSet("/a/b", None), [(DATA, "/a/b")]),
        (AclSet("/a", (Acl(1, ALICE),)), []),
    ],
    ids=str,
)
def test_a_change_tells_its_events_and_is_taken_back_whole(change, events):
    tree = grown()
    before = copy.deepcopy((tree.nodes, dict(tree.of_session), tree.expiring))
    told, undo = tree.apply(change, 9, 900)
    assert told == events
    assert (tree.nodes, dict(tree.of_session), tree.expiring) != before
    undo()
    assert (tree.nodes, dict(tree.of_session), tree.expiring) == before


def test_what_can_be_made_and_deleted():
    tree = grown()
    root, a = tree.node("/"), tree.node("/a")
    assert tree.check_create("/x", root, is_sequence=False) == "/x"
    assert tree.check_create("/a/n-", a, is_sequence=True) == "/a/n-0000000002"
    tree.apply(NodeDeleted("/a/c"), 4, 400)
    assert tree.check_create("/a/n-", a, is_sequence=True) == "/a/n-0000000002", (
        "those that were deleted count"
    )
    refused(Code.NODE_EXISTS, lambda: tree.check_create("/a", root, is_sequence=False))
    refused(Code.BAD_ARGUMENTS, lambda: tree.check_create("/a/", a, is_sequence=False))
    ephemeral = tree.node("/a/b")
    refused(
        Code.NO_CHILDREN_FOR_EPHEMERALS, lambda: tree.check_create("/a/b/c", ephemeral, is_sequence=False)
    )
    tree.check_delete("/a/b", 0)
    tree.check_delete("/a/b", -1)
    refused(Code.BAD_VERSION, tree.check_delete, "/a/b", 1)
    refused(Code.NOT_EMPTY, tree.check_delete, "/a", 0)


def test_znodes_end_with_their_session_their_children_or_their_time():
    tree = grown()
    tree.apply(NodeCreated("/k", b"", OPEN, Kind.CONTAINER), 4, 400)
    tree.apply(NodeCreated("/a/a", b"", OPEN, Kind.EPHEMERAL, 7), 5, 500)
    assert tree.ephemerals(7) == ["/a/a", "/a/b"]
    assert tree.ephemerals(8) == []
    assert list(tree.expired(350)) == [], "its time is not over"
    assert list(tree.expired(351)) == ["/a/c"]
    tree.apply(DataSet("/a/c", b"x"), 6, 340)
    assert list(tree.expired(390)) == [], "it was changed since"
    assert list(tree.expired(391)) == ["/a/c"]
    tree.apply(NodeCreated("/a/c/d", b"", OPEN), 7, 700)
    assert list(tree.expired(9_999)) == [], "it has a child"
    tree.apply(NodeCreated("/k/d", b"", OPEN), 8, 800)
    tree.apply(NodeDeleted("/a/c/d"), 9, 900)
    assert list(tree.expired(9_999)) == ["/a/c"], "a container that has children stays"
    tree.apply(NodeDeleted("/k/d"), 10, 1000)
    assert list(tree.expired(0)) == ["/k"]
    for path in OWN:
        assert tree.node(path).kind is Kind.PERSISTENT


# --- ACLs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("identity", "own", "may"),
    [
        (ANYONE, [], True),
        (ALICE, [ALICE], True),
        (ALICE, [Identity("digest", "alice")], False),
        (ALICE, [Identity("sasl", "bob")], False),
        (ALICE, [], False),
        (ALICE, [Identity("sasl", "bob"), ALICE], True),
        (Identity("ip", "10.0.0.0/8"), [Identity("ip", "10.1.2.3")], True),
        (Identity("ip", "10.0.0.0/8"), [Identity("ip", "11.1.2.3")], False),
        (Identity("ip", "10.0.0.1"), [Identity("ip", "10.0.0.1")], True),
        (Identity("ip", "::1"), [Identity("ip", "::1")], True),
        (Identity("ip", "::/0"), [Identity("ip", "10.0.0.1")], False),
    ],
    ids=str,
)
def test_an_entry_lets_those_who_match_do_what_it_says(identity, own, may):
    acl = [
        Acl(Permission.READ | Permission.CREATE, Identity("sasl", "other")),
        Acl(Permission.WRITE, identity),
    ]
    if may:
        require(acl, Permission.WRITE, own)
        require(acl, Permission.WRITE | Permission.ADMIN, own)
    else:
        refused(Code.NO_AUTH, require, acl, Permission.WRITE, own)
    for permission in (Permission.READ, Permission.DELETE, Permission.ADMIN):
        refused(Code.NO_AUTH, require, acl, permission, own)
    require(OPEN, Permission.ADMIN, own)


@pytest.mark.parametrize(
    "identity",
    [
        ("world", "anyone"),
        ("digest", "a:b"),
        ("sasl", "a"),
        ("ip", "10.0.0.1"),
        ("ip", "10.0.0.1/8"),
        ("ip", "::1"),
    ],
)
def test_entries_of_each_scheme_are_kept_once(identity):
    entry = Acl(3, Identity(*identity))
    assert resolve([entry, Acl(1, ALICE), entry], []) == (entry, Acl(1, ALICE))


@pytest.mark.parametrize(
    "identity",
    [
        ("world", "all"),
        ("digest", "ab"),
        ("sasl", ""),
        ("ip", "host"),
        ("ip", ""),
        ("x509", "a"),
        ("", ""),
        ("auth", ""),
    ],
)
def test_entries_that_mean_nobody_are_refused(identity):
    refused(
        Code.INVALID_ACL,
        resolve,
        [Acl(31, ANYONE), Acl(3, Identity(*identity))],
        [Identity("ip", "10.0.0.1")],
    )
    refused(Code.INVALID_ACL, resolve, [], [ALICE])


def test_the_scheme_auth_stands_for_all_logins_of_who_asks():
    own = [Identity("ip", "10.0.0.1"), ALICE, Identity("digest", "a:b")]
    found = resolve([Acl(3, Identity("auth", "whatever"))], own)
    assert found == (Acl(3, ALICE), Acl(3, Identity("digest", "a:b")))
    assert resolve([Acl(31, ANYONE)], own) is OPEN
    assert resolve([Acl(30, ANYONE)], own) is not OPEN


def test_a_digest_is_that_of_zookeeper():
    """As in the documentation of ZooKeeper: `super:superpw` gives this."""
    assert digest_identity(b"super:superpw") == Identity("digest", "super:g9oN2HttPfn8MMWJZ2r45Np/LIA=")
    for wrong in (b"super", b"super:", b":pw", b"", b"\xff:pw"):
        refused(Code.AUTH_FAILED, digest_identity, wrong)


# --- watches --------------------------------------------------------------------------------------------------------


def told(watches: Watches, *events: tuple[EventType, str]) -> list[tuple[int, EventType, str]]:
    return list(watches.triggered(events))


@pytest.mark.parametrize(
    ("kind", "event", "is_told"),
    [
        (WatchKind.DATA, CREATED, True),
        (WatchKind.DATA, DELETED, True),
        (WatchKind.DATA, DATA, True),
        (WatchKind.DATA, CHILDREN, False),
        (WatchKind.CHILDREN, CREATED, False),
        (WatchKind.CHILDREN, DELETED, True),
        (WatchKind.CHILDREN, DATA, False),
        (WatchKind.CHILDREN, CHILDREN, True),
    ],
)
def test_a_watch_is_called_once_for_what_it_is_about(kind, event, is_told):
    watches = Watches()
    watches.add(kind, "/a", 1)
    watches.add(kind, "/other", 2)
    assert told(watches, (event, "/a/b"), (event, "/")) == []
    assert told(watches, (event, "/a")) == ([(1, event, "/a")] if is_told else [])
    assert watches.has(kind, "/a", 1) is not is_told
    assert told(watches, (event, "/a")) == []
    assert len(watches) == (1 if is_told else 2)


def test_a_deletion_is_told_once_to_who_watches_both():
    watches = Watches()
    for kind in (WatchKind.DATA, WatchKind.CHILDREN):
        watches.add(kind, "/a", 1)
    assert told(watches, (DELETED, "/a"), (CHILDREN, "/")) == [(1, DELETED, "/a")]
    assert len(watches) == 0


@pytest.mark.parametrize("event", [CREATED, DELETED, DATA, CHILDREN])
def test_lasting_watches_stay_and_are_of_both_kinds(event):
    watches = Watches()
    watches.add_lasting("/a", 1, is_recursive=False)
    watches.add(WatchKind.DATA, "/a", 1)
    for _ in range(2):
        assert told(watches, (event, "/a")) == [(1, event, "/a")]
    assert told(watches, (event, "/a/b")) == []
    assert watches.has(WatchKind.DATA, "/a", 1)
    assert watches.has(WatchKind.CHILDREN, "/a", 1)


@pytest.mark.parametrize("event", [CREATED, DELETED, DATA])
def test_recursive_watches_are_for_all_below_and_not_for_lists_of_children(event):
    watches = Watches()
    watches.add_lasting("/a", 1, is_recursive=True)
    watches.add_lasting("/", 2, is_recursive=True)
    for path, sessions in (("/a", [1, 2]), ("/a/b/c", [1, 2]), ("/ab", [2]), ("/", [2])):
        assert sorted(told(watches, (event, path))) == [(session, event, path) for session in sessions]
        assert told(watches, (CHILDREN, path)) == []
    watches.remove(WatchKind.ANY, "/", 2)
    assert told(watches, (event, "/b")) == []
    assert told(watches, (event, "/a/b")) == [(1, event, "/a/b")]
    watches.drop(1)
    assert told(watches, (event, "/a/b")) == []


def test_watches_are_removed_by_kind_and_with_their_session():
    watches = Watches()
    watches.add_lasting("/a", 1, is_recursive=False)
    watches.add(WatchKind.DATA, "/a", 2)
    watches.remove(WatchKind.CHILDREN, "/a", 1)
    assert [watches.has(kind, "/a", 1) for kind in WatchKind] == [False, True, True]
    refused(Code.NO_WATCHER, watches.remove, WatchKind.CHILDREN, "/a", 1)
    refused(Code.NO_WATCHER, watches.remove, WatchKind.ANY, "/b", 1)
    watches.remove(WatchKind.ANY, "/a", 1)
    refused(Code.NO_WATCHER, watches.remove, WatchKind.ANY, "/a", 1)
    assert watches.has(WatchKind.DATA, "/a", 2)
    watches.drop(3)
    watches.drop(2)
    assert len(watches) == 0
    assert told(watches, (DATA, "/a")) == []


# --- sessions -------------------------------------------------------------------------------------------------------


def test_a_session_ends_when_it_was_not_heard_of_for_its_time():
    sessions = Sessions()
    sessions.begin(1, 100, b"p", 0)
    sessions.begin(2, 50, b"q", 0)
    assert len(sessions) == 2
    assert sessions.expired(49) == []
    sessions.heard(sessions.get(2), 40)
    assert sessions.expired(50) == []
    assert sessions.expired(89) == []
    assert sessions.expired(90) == [2]
    assert sessions.get(2) is not None, "it goes on until it is ended"
    sessions.end(2)
    sessions.end(2)
    assert sessions.get(2) is None
    sessions.set_timeout(sessions.get(1), 10, 95)
    assert sessions.expired(104) == []
    assert sessions.expired(105) == [1]


def test_after_a_time_without_anybody_each_has_its_whole_time():
    sessions = Sessions()
    sessions.begin(1, 100, b"p", 0)
    sessions.begin(2, 50, b"q", 0)
    sessions.wait_for_all(1_000)
    assert sessions.expired(1_049) == []
    assert sessions.expired(1_050) == [2]
    assert sessions.expired(1_099) == []
    assert sessions.expired(1_100) == [1]
    assert [(one.session_id, one.timeout_ms, one.password) for one in sessions] == [
        (1, 100, b"p"),
        (2, 50, b"q"),
    ]


def test_a_session_that_has_ended_is_not_told_again():
    sessions = Sessions()
    sessions.begin(1, 100, b"p", 0)
    sessions.end(1)
    assert sessions.expired(1_000) == []


# --- bytes ----------------------------------------------------------------------------------------------------------


def test_values_are_read_as_they_were_written():
    data = (
        encode_int(-5) + encode_long(-(2**40)) + encode_string("ä") + encode_buffer(b"x") + encode_data(None)
    )
    data += encode_data(b"") + b"\x02" + b"\x00"
    reader = Reader(data)
    assert (reader.int32(), reader.int64(), reader.string(), reader.buffer()) == (-5, -(2**40), "ä", b"x")
    assert (reader.data(), reader.data(), reader.boolean(), reader.boolean(), reader.rest) == (
        None,
        b"",
        True,
        False,
        0,
    )
    refused(Code.MARSHALLING_ERROR, reader.boolean)


@pytest.mark.parametrize("size", [-2, 2, 2**31 - 1])
def test_lengths_that_cannot_be_are_refused(size):
    for read in (Reader.buffer, Reader.data, Reader.string):
        refused(Code.MARSHALLING_ERROR, read, Reader(encode_int(size) + b"x"))
    assert Reader(encode_int(-1)).buffer() == b""
    assert Reader(encode_int(-1)).string() == ""
    refused(Code.MARSHALLING_ERROR, Reader(encode_int(1) + b"\xff").string)
    refused(Code.MARSHALLING_ERROR, Reader(b"\0\0\0").int32)
    refused(Code.MARSHALLING_ERROR, Reader(bytes(7)).int64)
