"""Watches by requests: those that are set, looked for, removed, and set again after a reconnect."""

from __future__ import annotations

import pytest

from barnabas.tools.zkserver.errors import Code
from barnabas.tools.zkserver.jute import encode_int, encode_long, encode_string, encode_vector
from barnabas.tools.zkserver.requests import Op
from barnabas.tools.zkserver.tree import EventType
from barnabas.tools.zkserver.watches import WatchKind
from tests.support.zookeeper_wire import create, read, set_data
from tests.unit.tools.zkserver.test_core import CHILDREN, DATA, DELETED, Asker

CREATED = EventType.CREATED


@pytest.fixture
def client():
    return Asker()


def watch(path: str, number: int) -> bytes:
    return encode_string(path) + encode_int(number)


def paths_of(*paths: str) -> bytes:
    return encode_vector(paths, encode_string)


@pytest.mark.parametrize("mode", [-1, 0, 1, 2])
def test_lasting_watches_are_of_two_modes(client, mode):
    body = watch("/a", mode)
    if mode not in (0, 1):
        assert client.ask(Op.ADD_WATCH, body)[0] == Code.BAD_ARGUMENTS
        assert len(client.core.watches) == 0
        return
    assert client.does(Op.ADD_WATCH, body).int32() == 0
    client.does(Op.CREATE, create("/a"))
    client.does(Op.CREATE, create("/a/b"))
    below = [(CHILDREN, "/a")] if mode == 0 else [(CREATED, "/a/b")]
    assert client.told() == [(CREATED, "/a"), *below]
    assert client.ask(Op.ADD_WATCH, watch("a", mode))[0] == Code.BAD_ARGUMENTS


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4])
def test_watches_are_looked_for_and_removed_by_kind(client, kind):
    client.does(Op.EXISTS, read("/", watch=True))
    is_one = kind in (WatchKind.DATA, WatchKind.ANY)
    code = Code.OK if is_one else Code.NO_WATCHER if kind == WatchKind.CHILDREN else Code.BAD_ARGUMENTS
    for op in (Op.CHECK_WATCHES, Op.REMOVE_WATCHES):
        assert client.ask(op, watch("/", kind)) == (code, b"")
        assert Asker(client.core).ask(op, watch("/", kind))[0] == (code or Code.NO_WATCHER)
    assert len(client.core.watches) == (not is_one)


@pytest.mark.parametrize("op", [Op.SET_WATCHES, Op.SET_WATCHES2])
def test_who_comes_again_is_told_what_it_has_missed(client, op):
    for path in ("/same", "/changed", "/grown", "/grown2", "/made"):
        if path != "/made":
            client.does(Op.CREATE, create(path))
    seen = client.core.zxid
    client.does(Op.SET_DATA, set_data("/changed", b"1"))
    client.does(Op.CREATE, create("/grown/x"))
    client.does(Op.CREATE, create("/made"))
    again = Asker(client.core)
    body = encode_long(seen) + paths_of("/same", "/gone", "/changed", "/grown")
    body += paths_of("/made", "/none") + paths_of("/same", "/gone2", "/grown")
    if op == Op.SET_WATCHES2:
        body += paths_of("/lasting") + paths_of("/deep")
    again.does(op, body)
    assert again.told() == [
        (DELETED, "/gone"), (DATA, "/changed"), (CREATED, "/made"), (DELETED, "/gone2"), (CHILDREN, "/grown"),
    ]  # fmt: skip
    for path in ("/none", "/same/x", "/lasting", "/lasting/x", "/deep", "/deep/x"):
        client.does(Op.CREATE, create(path))
    client.does(Op.SET_DATA, set_data("/same", b"1"))
    client.does(Op.SET_DATA, set_data("/grown", b"1"))
    client.does(Op.SET_DATA, set_data("/changed", b"2"))
    lasting = [(CREATED, "/lasting"), (CHILDREN, "/lasting"), (CREATED, "/deep"), (CREATED, "/deep/x")]
    assert again.told() == [
        (CREATED, "/none"), (CHILDREN, "/same"), *(lasting if op == Op.SET_WATCHES2 else []), (DATA, "/same"),
        (DATA, "/grown"),
    ]  # fmt: skip
    assert client.told() == []
