"""The state machine by itself: each request with its answer, what is left to write, and which sessions are told."""

from __future__ import annotations

import struct
from itertools import count

import pytest

from barnabas.tools.zkserver.acl import OPEN, Acl, Identity, Permission, digest_identity
from barnabas.tools.zkserver.core import Core, Peer
from barnabas.tools.zkserver.errors import Code, RefusedError
from barnabas.tools.zkserver.jute import (
    Reader,
    encode_buffer,
    encode_int,
    encode_long,
    encode_string,
    encode_vector,
)
from barnabas.tools.zkserver.requests import Op, encode_acl
from barnabas.tools.zkserver.tree import EventType, NodeCreated, NodeDeleted, SessionBegun, SessionEnded
from tests.support.zookeeper_wire import create, multi, path_and_version, read, set_data

NOW_MS = 1_700_000_000_000
CREATED, DELETED, DATA, CHILDREN = (
    EventType.CREATED, EventType.DELETED, EventType.DATA_CHANGED, EventType.CHILDREN_CHANGED,
)  # fmt: skip
USER = b"u:secret"


class Asker:
    """A client of a core of its own or of another's."""

    def __init__(self, core: Core | None = None) -> None:
        self.core = core or Core(timeout_min_ms=100, timeout_max_ms=1000)
        self.peer = Peer(self.core.begin_session(500, b"p" * 16, NOW_MS, 0))
        self.id = self.peer.session.session_id
        self.now_ms = NOW_MS
        self._xids = count(1)

    def ask(self, op: int, body: bytes = b"") -> tuple[int, bytes]:
        xid = next(self._xids)
        frame = self.core.answer(self.peer, encode_int(xid) + encode_int(op) + body, self.now_ms, 0)
        answered, zxid, code = struct.unpack_from(">iqi", frame)
        assert (answered, zxid) == (xid, self.core.zxid)
        assert not code or len(frame) == 16
        return code, frame[16:]

    def does(self, op: int, body: bytes = b"") -> Reader:
        code, answer = self.ask(op, body)
        assert code == Code.OK
        return Reader(answer)

    def told(self) -> list[tuple[int, str]]:
        """Return the notifications for this session."""
        result = []
        for session_id, frame in self.core.messages:
            if session_id == self.id:
                reader = Reader(frame)
                assert (reader.int32(), reader.int64(), reader.int32()) == (-1, -1, 0)
                event, state, path = reader.int32(), reader.int32(), reader.string()
                assert state == 3
                result.append((event, path))
        self.core.messages = [message for message in self.core.messages if message[0] != self.id]
        return result

    def data(self, path: str) -> bytes:
        return self.does(Op.GET_DATA, read(path)).buffer()

    def paths(self) -> list[str]:
        return sorted(
            path for path in self.core.tree.nodes if path not in ("", "/") and "zookeeper" not in path
        )


@pytest.fixture
def client():
    return Asker()


def set_acl(path: str, acl: tuple[Acl, ...], version: int = -1) -> bytes:
    return encode_string(path) + encode_vector(acl, encode_acl) + encode_int(version)


# --- sessions ---------------------------------------------------------------------------------------------------


def test_session_gets_an_allowed_timeout_and_own_number(client):
    core = client.core
    requested = (0, 99, 100, 101, 999, 1000, 1001, 10**9)
    assert [core.begin_session(transaction, b"", NOW_MS, 0).timeout_ms for transaction in requested] == [
        100,
        100,
        100,
        101,
        999,
        1000,
        1000,
        1000,
    ]
    begun = [transaction.changes[0] for transaction in core.transactions]
    assert [transaction.zxid for transaction in core.transactions] == list(range(1, 10))
    assert all(isinstance(transaction, SessionBegun) for transaction in begun)
    ids = [transaction.session_id for transaction in begun]
    assert ids == list(range(ids[0], ids[0] + 9))
    assert ids[0] == (NOW_MS << 16) & 0x00FF_FFFF_FFFF_FFFF
    assert core.last_session_id == ids[-1]


def test_a_session_is_resumed_with_its_password_only(client):
    core = client.core
    assert core.resume_session(client.id, 300, b"p" * 16, 50) is client.peer.session
    assert client.peer.session.timeout_ms == 300
    core.resume_session(client.id, 1, b"p" * 16, 50)
    assert client.peer.session.timeout_ms == 100
    core.resume_session(client.id, 5000, b"p" * 16, 50)
    assert client.peer.session.timeout_ms == 1000
    assert core.sessions.expired(1049) == []
    assert core.sessions.expired(1050) == [client.id]
    assert core.resume_session(client.id, 300, b"q" * 16, 50) is None
    assert core.resume_session(client.id + 1, 300, b"p" * 16, 50) is None


def test_session_ends_with_ephemeral_znodes_and_watches(client):
    other = Asker(client.core)
    for path, flags in (("/e", 1), ("/p", 0), ("/e2", 1)):
        client.does(Op.CREATE, create(path, flags=flags))
    other.does(Op.CREATE, create("/o", flags=1))
    client.does(Op.EXISTS, read("/p", watch=True))
    other.does(Op.EXISTS, read("/e", watch=True))
    other.does(Op.GET_CHILDREN, read("/", watch=True))
    before = client.core.zxid
    client.core.transactions.clear()
    client.does(Op.CLOSE_SESSION)
    assert client.peer.is_closed
    assert client.paths() == ["/o", "/p"]
    (transaction,) = client.core.transactions
    assert (transaction.zxid, transaction.now_ms, client.core.zxid) == (before + 1, NOW_MS, before + 1)
    assert set(transaction.changes[:-1]) == {NodeDeleted("/e"), NodeDeleted("/e2")}
    assert transaction.changes[-1] == SessionEnded(client.id)
    assert other.told() == [(DELETED, "/e"), (CHILDREN, "/")]
    other.does(Op.SET_DATA, set_data("/p", b""))
    assert client.told() == []
    client.core.end_session(client.id, NOW_MS)
    assert client.core.zxid == before + 2


def test_a_journal_is_replayed(client):
    client.does(Op.CREATE, create("/a", b"1"))
    client.does(Op.CREATE, create("/e", flags=1))
    other = Asker(client.core)
    other.does(Op.CREATE, create("/f", flags=1))
    other.does(Op.CLOSE_SESSION)
    again = Core(timeout_min_ms=100, timeout_max_ms=1000)
    for transaction in client.core.transactions:
        again.replay(transaction, 70)
    assert again.tree.nodes == client.core.tree.nodes
    assert (again.zxid, again.last_session_id) == (client.core.zxid, other.id)
    assert [(session.session_id, session.timeout_ms, session.password) for session in again.sessions] == [
        (client.id, 500, b"p" * 16)
    ]
    assert again.sessions.expired(569) == []
    assert again.sessions.expired(570) == [client.id]
    assert (again.transactions, again.messages) == ([], [])


def test_znodes_expire_each_in_a_transaction_of_its_own(client):
    with_ttl = create("/t", flags=5) + encode_long(50)
    client.does(Op.CREATE_TTL, with_ttl)
    client.does(Op.CREATE_CONTAINER, create("/c", flags=4))
    client.does(Op.CREATE, create("/c/x"))
    client.does(Op.DELETE, path_and_version("/c/x"))
    client.does(Op.GET_CHILDREN, read("/", watch=True))
    client.core.transactions.clear()
    client.core.remove_expired_nodes(NOW_MS + 10)
    assert client.paths() == ["/t"]
    client.core.remove_expired_nodes(NOW_MS + 1000)
    assert client.paths() == []
    assert [txn.changes for txn in client.core.transactions] == [(NodeDeleted("/c"),), (NodeDeleted("/t"),)]
    assert client.told() == [(CHILDREN, "/")]


# --- reads ------------------------------------------------------------------------------------------------------


def test_reads_answer_what_is_there(client):
    for path, data, flags in (
        ("/b", b"2", 0),
        ("/b/y", b"", 1),
        ("/b/x", b"xx", 0),
        ("/bc", b"", 1),
        ("/b/x/z", b"", 0),
    ):
        client.does(Op.CREATE, create(path, data, flags))
    assert client.data("/b/x") == b"xx"
    assert client.does(Op.EXISTS, read("/b")).rest == client.does(Op.GET_CHILDREN2, read("/b/x/z")).rest - 4
    reader = client.does(Op.GET_CHILDREN, read("/b"))
    assert (reader.vector(reader.string), reader.rest) == (["x", "y"], 0)
    reader = client.does(Op.GET_CHILDREN2, read("/b"))
    assert reader.vector(reader.string) == ["x", "y"]
    assert reader.rest == 68
    for path, number in (("/b", 3), ("/bc", 0), ("/b/x", 1)):
        assert client.does(Op.GET_ALL_CHILDREN_NUMBER, encode_string(path)).int32() == number
    total = client.does(Op.GET_ALL_CHILDREN_NUMBER, encode_string("/")).int32()
    assert total == len([path for path in client.core.tree.nodes if path not in ("", "/")])
    for prefix, paths in (("/", ["/b/y", "/bc"]), ("/b/", ["/b/y"]), ("/c", []), ("/bc", ["/bc"])):
        reader = client.does(Op.GET_EPHEMERALS, encode_string(prefix))
        assert sorted(reader.vector(reader.string)) == paths
    assert client.does(Op.SYNC, encode_string("/b")).string() == "/b"
    assert client.ask(Op.PING) == (Code.OK, b"")
    assert Asker(client.core).does(Op.GET_EPHEMERALS, encode_string("/")).int32() == 0


def test_requests_that_nobody_knows_or_that_are_cut_are_refused(client):
    assert client.ask(-77)[0] == Code.UNIMPLEMENTED
    assert client.ask(Op.GET_DATA, b"\0\0\0\xff/")[0] == Code.MARSHALLING_ERROR
    with pytest.raises(RefusedError) as caught:
        client.core.answer(client.peer, bytes(7), NOW_MS, 0)
    assert caught.value.code is Code.MARSHALLING_ERROR


def test_a_request_keeps_its_session_alive(client):
    client.core.answer(client.peer, struct.pack(">ii", 1, Op.PING), NOW_MS, 300)
    assert client.core.sessions.expired(799) == []
    assert client.core.sessions.expired(800) == [client.id]


# --- writes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "body", "code"),
    [
        (Op.DELETE, path_and_version("/"), Code.BAD_ARGUMENTS),
        (Op.DELETE, path_and_version("/zookeeper"), Code.BAD_ARGUMENTS),
        (Op.DELETE, path_and_version("a"), Code.BAD_ARGUMENTS),
        (Op.DELETE, path_and_version("/none"), Code.NO_NODE),
        (Op.DELETE, path_and_version("/none/none"), Code.NO_NODE),
        (Op.DELETE, path_and_version("/a"), Code.NOT_EMPTY),
        (Op.SET_DATA, set_data("/none", b""), Code.NO_NODE),
        (Op.SET_DATA, set_data("none", b""), Code.BAD_ARGUMENTS),
        (Op.SET_DATA, set_data("/a", bytes(1 << 21)), Code.BAD_ARGUMENTS),
        (Op.SET_ACL, set_acl("/none", OPEN), Code.NO_NODE),
        (Op.SET_ACL, set_acl("none", OPEN), Code.BAD_ARGUMENTS),
        (Op.SET_ACL, set_acl("/a", ()), Code.INVALID_ACL),
        (Op.CHECK, path_and_version("/none"), Code.NO_NODE),
        (Op.CHECK, path_and_version("none"), Code.BAD_ARGUMENTS),
        (Op.CREATE, create("/a"), Code.NODE_EXISTS),
        (Op.CREATE, create("/none/x"), Code.NO_NODE),
        (Op.CREATE, create("x"), Code.BAD_ARGUMENTS),
        (Op.CREATE, create("/x", bytes(1 << 21)), Code.BAD_ARGUMENTS),
        (Op.CREATE, create("/x", acl=()), Code.INVALID_ACL),
        (Op.CREATE, create("/e/x"), Code.NO_CHILDREN_FOR_EPHEMERALS),
    ],
)
def test_what_cannot_be_written(client, op, body, code):
    for path, flags in (("/a", 0), ("/a/b", 0), ("/e", 1)):
        client.does(Op.CREATE, create(path, flags=flags))
    before = client.core.zxid
    assert client.ask(op, body) == (code, b"")
    assert client.core.zxid == before
    part = multi((Op.CREATE, create("/new")), (op, body))
    parts = client.does(Op.MULTI, part)
    assert [(parts.int32(), parts.boolean(), parts.int32(), parts.int32()) for _ in range(2)] == [
        (-1, False, 0, 0), (-1, False, code, code),
    ]  # fmt: skip
    assert (client.core.zxid, client.paths()) == (before, ["/a", "/a/b", "/e"])


def test_new_znodes_have_kind_owner_and_number(client):
    client.does(Op.CREATE, create("/p"))
    assert client.does(Op.CREATE, create("/p/n-", flags=2)).string() == "/p/n-0000000000"
    reader = client.does(Op.CREATE2, create("/p/n-", flags=3))
    assert (reader.string(), reader.rest) == ("/p/n-0000000001", 68)
    assert client.core.tree.nodes["/p/n-0000000000"].owner == 0
    assert client.core.tree.nodes["/p/n-0000000001"].owner == client.id
    reader = client.does(Op.CREATE, create("/q"))
    assert (reader.string(), reader.rest) == ("/q", 0)
    created = client.core.transactions[-1]
    assert created.changes == (NodeCreated("/q", b"", OPEN),)


def test_of_several_writes_all_happen_or_none(client):
    client.does(Op.GET_CHILDREN, read("/", watch=True))
    before = client.core.zxid
    writes = (
        (Op.CREATE, create("/a", b"1")),
        (Op.CREATE2, create("/a/b", b"2")),
        (Op.CHECK, path_and_version("/a", 0)),
        (Op.SET_DATA, set_data("/a", b"3", 0)),
        (Op.DELETE, path_and_version("/a/b", 0)),
    )
    client.does(Op.MULTI, multi(*writes))
    assert (client.paths(), client.data("/a"), client.core.zxid) == (["/a"], b"3", before + 1)
    assert client.told() == [(CHILDREN, "/")]
    assert client.core.tree.nodes["/a"].modified == before + 1
    failing = (
        (Op.SET_DATA, set_data("/a", b"4")),
        (Op.CREATE, create("/x")),
        (Op.CHECK, path_and_version("/a", 7)),
        (Op.CREATE, create("/y")),
        (Op.CREATE, create("/z")),
    )
    reader = client.does(Op.MULTI, multi(*failing))
    codes = []
    while True:
        kind, is_end, code = reader.int32(), reader.boolean(), reader.int32()
        if is_end:
            break
        assert kind == -1
        assert reader.int32() == code
        codes.append(code)
    assert codes == [0, 0, Code.BAD_VERSION, Code.RUNTIME_INCONSISTENCY, Code.RUNTIME_INCONSISTENCY]
    assert (client.paths(), client.data("/a"), client.core.zxid) == (["/a"], b"3", before + 1)
    assert client.told() == []
    client.does(Op.MULTI, multi())
    assert client.core.zxid == before + 1
    assert client.ask(Op.MULTI, multi((Op.GET_DATA, read("/a"))))[0] == Code.MARSHALLING_ERROR


def test_several_reads_have_each_its_answer_or_error(client):
    client.does(Op.CREATE, create("/a", b"1"))
    reader = client.does(
        Op.MULTI_READ,
        multi((Op.GET_DATA, read("/none")), (Op.GET_DATA, read("/a")), (Op.GET_CHILDREN, read("/a"))),
    )
    assert (reader.int32(), reader.boolean(), reader.int32(), reader.int32()) == (
        -1,
        False,
        Code.NO_NODE,
        Code.NO_NODE,
    )
    assert (reader.int32(), reader.boolean(), reader.int32(), reader.buffer()) == (
        Op.GET_DATA,
        False,
        0,
        b"1",
    )
    assert client.ask(Op.MULTI_READ, multi((Op.EXISTS, read("/a"))))[0] == Code.BAD_ARGUMENTS
    cut = multi((Op.GET_DATA, encode_int(50)))[:15]
    assert client.ask(Op.MULTI_READ, cut)[0] == Code.MARSHALLING_ERROR


# --- who may ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("permission", list(Permission))
def test_each_permission_is_for_its_requests(client, permission):
    client.does(Op.CREATE, create("/a", b"1"))
    client.does(Op.CREATE, create("/a/b"))
    client.does(Op.SET_ACL, set_acl("/a", (Acl(int(permission), Identity("world", "anyone")),)))
    needs = {
        (Op.GET_DATA, read("/a")): Permission.READ,
        (Op.GET_CHILDREN, read("/a")): Permission.READ,
        (Op.GET_CHILDREN2, read("/a")): Permission.READ,
        (Op.GET_ALL_CHILDREN_NUMBER, encode_string("/a")): Permission.READ,
        (Op.CHECK, path_and_version("/a")): Permission.READ,
        (Op.GET_ACL, encode_string("/a")): Permission.READ | Permission.ADMIN,
        (Op.SET_DATA, set_data("/a", b"2")): Permission.WRITE,
        (Op.CREATE, create("/a/c")): Permission.CREATE,
        (Op.DELETE, path_and_version("/a/b")): Permission.DELETE,
        (Op.SET_ACL, set_acl("/a", OPEN)): Permission.ADMIN,
    }
    client.does(Op.EXISTS, read("/a"))
    for (op, body), needed in needs.items():
        assert (client.ask(op, body)[0] == Code.OK) is bool(needed & permission), op
        code = client.ask(op, body)[0]
        assert code == Code.NO_AUTH or needed & permission


def test_a_client_is_who_it_has_said_it_is(client):
    def auth(scheme: str, credentials: bytes = USER) -> bytes:
        return encode_int(0) + encode_string(scheme) + encode_buffer(credentials)

    reader = client.does(Op.WHO_AM_I)
    assert reader.int32() == 0
    for scheme in ("ip", "world", "digest"):
        client.does(Op.AUTH, auth(scheme))
        assert not client.peer.is_closed
    reader = client.does(Op.WHO_AM_I)
    assert reader.int32() == 1
    assert reader.string() == "digest"
    assert reader.string().startswith("u:")
    own = (Acl(31, Identity("auth", "")),)
    client.does(Op.CREATE, create("/own", b"x", acl=own))
    assert client.data("/own") == b"x"
    assert Asker(client.core).ask(Op.GET_DATA, read("/own"))[0] == Code.NO_AUTH
    assert Asker(client.core).ask(Op.CREATE, create("/none", acl=own))[0] == Code.INVALID_ACL
    stranger = Asker(client.core)
    assert stranger.ask(Op.AUTH, auth("kerberos"))[0] == Code.AUTH_FAILED
    assert stranger.peer.is_closed
    assert stranger.does(Op.SASL, encode_buffer(b"x")).int32() == -1, "there is no login here"


def test_required_login_admits_few_requests_before_it(client):
    required = digest_identity(USER)
    asker = Asker(Core(timeout_min_ms=1, timeout_max_ms=9, required=required))
    free = {Op.AUTH, Op.SASL, Op.PING, Op.CLOSE_SESSION}
    for op in Op:
        code = asker.ask(op, b"")[0]
        assert (code != Code.NO_AUTH) is (op in free), op
    asker = Asker(asker.core)
    asker.does(Op.AUTH, encode_int(0) + encode_string("digest") + encode_buffer(USER))
    asker.does(Op.CREATE, create("/a"))
