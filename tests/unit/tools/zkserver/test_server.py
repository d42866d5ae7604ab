"""The server as a process: what it keeps, what it tells, and what it refuses."""

import os
import socket
import stat
import struct
import subprocess

import pytest
import trio
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NodeExistsError, NotEmptyError
from kazoo.recipe.lock import Lock
from kazoo.security import make_digest_acl

from barnabas.security.digest_md5 import DigestServer
from barnabas.tools.zkserver import storage
from barnabas.tools.zkserver.acl import OPEN
from barnabas.tools.zkserver.core import Core, Peer
from barnabas.tools.zkserver.errors import Code
from barnabas.tools.zkserver.jute import encode_buffer, encode_int, encode_string, encode_vector
from barnabas.tools.zkserver.requests import Op, encode_acl
from barnabas.tools.zkserver.server import Server
from barnabas.tools.zkserver.storage import Storage
from tests.support.zookeeper_process import own_zookeeper_command
from tests.support.zookeeper_wire import WireClient, create, read, set_data


@pytest.fixture
def connect(server):
    """Makes connections to the server as it is now; they are closed in the end."""
    created = []

    def one(*arguments, **options):
        created.append(WireClient(server.address, *arguments, **options))
        return created[-1]

    yield one
    for client in created:
        client.close()


@pytest.fixture
def kazoo(server):
    client = KazooClient(server.address, timeout=6)
    client.start(timeout=20)
    yield client
    client.stop()
    client.close()


def test_the_stock_client_does_all_that_it_can(kazoo):
    assert kazoo.create("/a", b"1") == "/a"
    assert kazoo.create("/a/n-", b"", sequence=True) == "/a/n-0000000000"
    assert kazoo.create("/a/n-", b"", sequence=True, ephemeral=True) == "/a/n-0000000001"
    assert sorted(kazoo.get_children("/a")) == ["n-0000000000", "n-0000000001"]
    data, stat = kazoo.get("/a")
    assert (data, stat.version, stat.numChildren, stat.cversion) == (b"1", 0, 2, 2)
    with pytest.raises(NodeExistsError):
        kazoo.create("/a")
    with pytest.raises(NotEmptyError):
        kazoo.delete("/a")
    kazoo.delete("/a", recursive=True)
    assert kazoo.exists("/a") is None
    with Lock(kazoo, "/lock"):
        assert kazoo.get_children("/lock")
    transaction = kazoo.transaction()
    transaction.create("/b")
    transaction.create("/missing/c")
    assert [type(outcome).__name__ for outcome in transaction.commit()] == ["RolledBackError", "NoNodeError"]
    assert kazoo.exists("/b") is None
    assert kazoo.command(b"ruok") == "imok"
    assert "Mode: standalone" in kazoo.command(b"srvr")
    assert "zk_znode_count\t" in kazoo.command(b"mntr")


def test_acls_are_obeyed(server, kazoo):
    kazoo.add_auth("digest", "alice:secret")
    kazoo.create("/own", b"x", acl=[make_digest_acl("alice", "secret", all=True)])
    other = KazooClient(server.address, timeout=6)
    other.start(timeout=20)
    for attempt in (
        lambda: other.get("/own"),
        lambda: other.set("/own", b"y"),
        lambda: other.create("/own/child"),
        lambda: other.set_acls("/own", [make_digest_acl("bob", "b", all=True)]),
    ):
        with pytest.raises(NoAuthError):
            attempt()
    assert kazoo.get("/own")[0] == b"x"
    assert kazoo.get_acls("/own")[0][0].id.id.startswith("alice:")
    other.stop()
    other.close()


def test_what_was_answered_is_there_after_a_kill(server, connect):
    client = connect()
    for number in range(50):
        assert client.ask(Op.CREATE, create(f"/n{number}", b"%d" % number))[0] == 0
    client.ask(Op.CREATE, create("/mine", flags=1))
    client.ask(Op.SET_DATA, set_data("/n7", b"seven"))
    before = client.ask(Op.GET_DATA, read("/n7"))
    server.kill()
    server.start()
    again = connect(client.session, client.zxid)
    assert again.session == client.session
    assert again.ask(Op.GET_DATA, read("/n7")) == before
    assert again.ask(Op.EXISTS, read("/mine"))[0] == 0, "its session goes on"
    assert again.ask(Op.EXISTS, read("/n49"))[0] == 0
    again.ask(Op.CLOSE_SESSION)
    other = connect()
    assert other.ask(Op.EXISTS, read("/mine"))[0] == Code.NO_NODE


def test_what_a_crash_tears_off_the_journal_nobody_misses(server, connect):
    client = connect()
    client.ask(Op.CREATE, create("/a"))
    client.ask(Op.CREATE, create("/b"))
    server.kill()
    journal = max(server.directory.glob("journal-*"))
    os.truncate(journal, journal.stat().st_size - 3)
    server.start()
    other = connect()
    assert other.ask(Op.EXISTS, read("/a"))[0] == 0
    assert other.ask(Op.EXISTS, read("/b"))[0] == Code.NO_NODE
    assert other.ask(Op.CREATE, create("/b"))[0] == 0


def test_a_snapshot_takes_the_place_of_journals(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "SNAPSHOT_EVERY_BYTES", 2000)
    core, kept = Core(timeout_min_ms=1, timeout_max_ms=10_000), Storage(tmp_path)
    kept.open(core, 0)
    session = core.begin_session(5000, b"p" * 16, 1_700_000_000_000, 0)
    peer = Peer(session)
    for number in range(60):
        frame = struct.pack(">ii", number, Op.CREATE) + create(f"/n{number}", b"x" * 20, flags=number % 2)
        core.answer(peer, frame, 1_700_000_000_000 + number, 0)
        transactions, core.transactions = core.transactions, []
        kept.write(transactions)
        if kept.wants_snapshot:
            kept.write_snapshot(transactions[-1].zxid, storage.encode_snapshot(core))
    kept.close()
    assert len(list(tmp_path.glob("snapshot-*"))) == len(list(tmp_path.glob("journal-*"))) == 1
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*-*")} == {0o600}
    read_again, again = Core(timeout_min_ms=1, timeout_max_ms=10_000), Storage(tmp_path)
    again.open(read_again, 0)
    again.close()
    assert storage.encode_snapshot(read_again) == storage.encode_snapshot(core)
    assert read_again.tree.nodes == core.tree.nodes
    assert read_again.tree.of_session == core.tree.of_session


def test_a_damaged_snapshot_stops_the_start(server):
    server.stop()
    (server.directory / "snapshot-00000000000000ff").write_bytes(b"nonsense")
    with pytest.raises(AssertionError, match=r"snapshot-00000000000000ff is damaged"):
        server.start()


def test_a_directory_is_used_by_one_server(server):
    with pytest.raises(AssertionError, match="is used by another server"):
        type(server)(server.directory)


def test_a_session_ends_when_its_client_is_silent(server, kazoo, connect):
    client = connect(timeout_ms=1)
    assert client.timeout_ms == 1000, "the shortest that there is"
    client.ask(Op.CREATE, create("/mine", flags=1))
    gone = kazoo.handler.event_object()
    assert kazoo.exists("/mine", watch=lambda _event: gone.set())
    client.close()
    gone.wait(20)
    assert gone.is_set()
    assert kazoo.exists("/mine") is None
    late = connect(client.session, client.zxid)
    assert late.timeout_ms == 0, "the session is over"


def test_a_wrong_password_gets_no_session(server, connect):
    client = connect()
    thief = connect((client.session[0], b"?" * 16))
    assert (thief.timeout_ms, thief.session) == (0, (0, bytes(16)))
    assert client.ask(Op.PING)[0] == 0


def test_who_has_seen_more_than_there_is_is_sent_away(server, connect):
    with pytest.raises(ConnectionError):
        connect(seen=1 << 40)


@pytest.mark.parametrize(
    "sent", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\4abcd", b"GET / HTTP/1.1\r\n\r\n"]
)
def test_nonsense_closes_its_own_connection_alone(server, sent, connect):
    client = connect()
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as other:
        other.sendall(sent)
        other.shutdown(socket.SHUT_WR)
        assert other.recv(10) == b""
    assert client.ask(Op.PING)[0] == 0
    code, _ = client.ask(Op.GET_DATA, b"\0\0\0\xff/")
    assert code == Code.MARSHALLING_ERROR
    assert client.ask(-77)[0] == Code.UNIMPLEMENTED


async def test_where_somebody_is_required_nobody_else_may_do_anything(tmp_path):
    server = Server(tmp_path, credentials="broker:secret")
    port = await server.open("127.0.0.1", 0)

    def ask():
        with WireClient(f"127.0.0.1:{port}") as client:
            stranger = client.ask(Op.CREATE, create("/a")), client.ask(Op.GET_DATA, read("/"))
            wrong = client.ask(Op.AUTH, auth(b"broker:guess")), client.ask(Op.CREATE, create("/a"))
            right = client.ask(Op.AUTH, auth(b"broker:secret")), client.ask(Op.CREATE, create("/a", flags=1))
            return [code for code, _ in (*stranger, *wrong, *right)]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        assert await trio.to_thread.run_sync(ask) == [Code.NO_AUTH, Code.NO_AUTH, 0, Code.NO_AUTH, 0, 0]
        assert "/a" in server.core.tree.nodes
        server.end_owner_of("/a")  # without waiting for its time-out
        assert "/a" not in server.core.tree.nodes
        server.end_owner_of("/a")
        nursery.cancel_scope.cancel()
    await server.close()


def auth(credentials):
    return encode_int(0) + encode_string("digest") + encode_buffer(credentials)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file"),
        ("Client { a.B required; };", "there is no section Server"),
        ("Server { a.B required; };", "DigestLoginModule is expected"),
        ("Server { a.DigestLoginModule required user_a=secret };", "does not end with ;"),
    ],
)
def test_a_jaas_file_that_cannot_be_used_stops_the_start(tmp_path, text, reason):
    path = tmp_path / "jaas"
    if text is not None:
        path.write_text(text)
    command = own_zookeeper_command(tmp_path / "d", "--jaas", str(path))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"--jaas {path}" in done.stderr
    assert reason in done.stderr
    assert "secret" not in done.stderr


def test_a_refused_login_ends_the_connection_and_nothing_else(tmp_path):
    core = Core(
        timeout_min_ms=1, timeout_max_ms=10_000,
        login=lambda: DigestServer({"a": "b"}.get, realm="r", uri="zookeeper/zk-sasl-md5", nonce="n"),
    )  # fmt: skip
    session = core.begin_session(5000, b"p" * 16, 0, 0)
    peer = Peer(session)

    def asked(token):
        answer = core.answer(peer, struct.pack(">ii", 1, Op.SASL) + encode_buffer(token), 0, 0)
        return struct.unpack_from(">i", answer, 12)[0]

    assert asked(b"") == Code.OK
    assert asked(b'username="a",realm="r",nonce="n",nc=00000001,cnonce="c",response=0') == Code.AUTH_FAILED
    assert peer.is_closed
    assert not peer.identities
    assert core.sessions.get(session.session_id) is session


def test_a_znode_without_data_is_another_one_than_one_with_none(server, connect):
    null = b"\xff\xff\xff\xff"
    client = connect()
    for path, data in (("/null", null), ("/empty", b"\0\0\0\0")):
        body = encode_string(path) + data + encode_vector(OPEN, encode_acl) + encode_int(0)
        assert client.ask(Op.CREATE, body)[0] == 0
    client.ask(Op.CREATE, create("/set", b"x"))
    client.ask(Op.SET_DATA, encode_string("/set") + null + encode_int(-1))
    server.kill()
    server.start()
    again = connect()
    result = {path: again.ask(Op.GET_DATA, read(path))[1][:4] for path in ("/null", "/empty", "/set")}
    assert result == {"/null": null, "/empty": b"\0\0\0\0", "/set": null}
