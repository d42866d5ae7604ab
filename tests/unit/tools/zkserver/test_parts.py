"""Znodes, ACLs, watches and sessions by themselves: what a change does and takes back, rights, notifications, what ends."""

from __future__ import annotations

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
from barnabas.tools.zkserver.tree import (
    OWN,
    AclSet,
    DataSet,
    EventType,
    Kind,
    NodeCreated,
    NodeDeleted,
    Tree,
    check_path,
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


@pytest.mark.parametrize(
    "path",
    [
        "", "a", "a/b", "//", "/a/", "//a", "/a//b", "/.", "/..", "/a/./b", "/a/..", "/a\0", "/a\x1f", "/a\x7f", "/a\x9f",
        "/a\ud800", "/a\uf8ff", "/a\ufff0",
    ],
)  # fmt: skip
def test_what_cannot_be_the_path_of_a_znode(path):
    refused(Code.BAD_ARGUMENTS, check_path, path)


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


def test_znodes_end_with_session_children_or_time():
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


def test_a_digest_is_that_of_zookeeper():
    """As in the documentation of ZooKeeper: `super:superpw` gives this."""
    assert digest_identity(b"super:superpw") == Identity("digest", "super:g9oN2HttPfn8MMWJZ2r45Np/LIA=")
    for wrong in (b"super", b"super:", b":pw", b"", b"\xff:pw"):
        refused(Code.AUTH_FAILED, digest_identity, wrong)


# --- watches --------------------------------------------------------------------------------------------------------


def told(watches: Watches, *events: tuple[EventType, str]) -> list[tuple[int, EventType, str]]:
    return list(watches.triggered(events))


@pytest.mark.parametrize("event", [CREATED, DELETED, DATA])
def test_recursive_watches_cover_descendants_but_no_child_lists(event):
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
