"""Snapshots and journals field by field, sessions beside a plain model, writes as requests, and the command's options."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.tools.zkserver import command, storage
from barnabas.tools.zkserver.acl import OPEN, Acl, Identity
from barnabas.tools.zkserver.core import Core, Transaction
from barnabas.tools.zkserver.jute import encode_int, encode_long
from barnabas.tools.zkserver.sessions import Sessions
from barnabas.tools.zkserver.storage import (
    Storage,
    StorageError,
    decode_transaction,
    encode_snapshot,
    encode_transaction,
)
from barnabas.tools.zkserver.tree import (
    AclSet,
    DataSet,
    Kind,
    NodeCreated,
    NodeDeleted,
    SessionBegun,
    SessionEnded,
)
from tests.support.effort import drawing

ACL = (Acl(5, Identity("sasl", "ann")), Acl(31, Identity("world", "anyone")))
CHANGES = (
    NodeCreated("/a", b"data", ACL, Kind.TTL, 0, 77), NodeCreated("/e", None, OPEN, Kind.EPHEMERAL, 9, 0),
    DataSet("/a", b"more"), AclSet("/a", ACL[:1]), NodeDeleted("/e"), SessionBegun(9, 1234, b"p" * 16), SessionEnded(9),
)  # fmt: skip


def core() -> Core:
    return Core(timeout_min_ms=100, timeout_max_ms=1000)


# --- what is kept ---------------------------------------------------------------------------------------------------


def test_a_transaction_is_read_as_it_was_written() -> None:
    transaction = Transaction(5, 1_700_000_000_000, CHANGES)
    assert decode_transaction(encode_transaction(transaction)) == transaction
    with pytest.raises(ValueError, match="a change of type 7"):
        decode_transaction(encode_long(5) + encode_long(6) + encode_int(1) + encode_int(7))


def opened(directory: Path) -> tuple[Storage, Core]:
    result, state = Storage(directory), core()
    result.open(state, 0)
    return result, state


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def created(zxid: int) -> Transaction:
    return Transaction(zxid, zxid * 1000, (NodeCreated(f"/n{zxid}", b"x", OPEN),))


def paths(state: Core) -> list[str]:
    return sorted(path for path in state.tree.nodes if path.startswith("/n"))


def test_what_was_written_is_there_again_and_a_torn_end_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "data"
    kept, state = opened(directory)
    assert (files(directory), state.zxid) == (["journal-0000000000000001", "lock"], 0)
    with pytest.raises(StorageError, match="is used by another server"):
        opened(directory)
    kept.write([created(1), created(2)])
    kept.write([created(3)])
    kept.close()
    kept, state = opened(directory)
    assert (paths(state), state.zxid) == (["/n1", "/n2", "/n3"], 3)
    assert state.tree.nodes["/n2"].created_ms == 2000
    kept.close()
    journal = directory / "journal-0000000000000001"
    whole = journal.read_bytes()
    (directory / "journal-0000000000000004").unlink()
    for end in (len(whole) - 1, len(whole) - 30, len(whole) - len(whole) // 3 + 1):
        journal.write_bytes(whole[:end])
        with caplog.at_level(logging.WARNING):
            kept, state = opened(directory)
        kept.close()
        assert (paths(state), state.zxid) == (["/n1", "/n2"], 2)
        assert f"cut {end - 2 * len(whole) // 3} bytes" in caplog.text
        assert journal.stat().st_size == 2 * len(whole) // 3
        (directory / "journal-0000000000000003").unlink()
    broken = bytearray(whole)
    broken[10] ^= 1
    journal.write_bytes(broken)
    (directory / "journal-0000000000000004").write_bytes(b"")
    with pytest.raises(StorageError, match="journal-0000000000000001 is damaged at byte 0"):
        opened(directory)


def test_a_snapshot_takes_the_place_of_what_is_older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "SNAPSHOT_EVERY_BYTES", 150)
    kept, state = opened(tmp_path)
    for zxid in (1, 2):
        assert not kept.wants_snapshot
        kept.write([created(zxid)])
        state.replay(created(zxid), 0)
    assert kept.wants_snapshot
    (tmp_path / "snapshot.unfinished").write_bytes(b"of a crash")
    kept.write_snapshot(2, encode_snapshot(state))
    assert not kept.wants_snapshot
    assert files(tmp_path) == ["journal-0000000000000003", "lock", "snapshot-0000000000000002"]
    kept.write([created(3)])
    kept.close()
    kept, state = opened(tmp_path)
    assert (paths(state), state.zxid) == (["/n1", "/n2", "/n3"], 3)
    kept.close()
    (tmp_path / "journal-0000000000000001").write_bytes(
        (tmp_path / "journal-0000000000000003").read_bytes()[:0]
    )
    (tmp_path / "snapshot-0000000000000002").write_bytes(b"\0" * 30)
    with pytest.raises(StorageError, match="snapshot-0000000000000002 is damaged"):
        opened(tmp_path)


# --- sessions -------------------------------------------------------------------------------------------------------


def test_sessions_end_in_time_whatever_comes_between() -> None:
    """Random events, beside a dictionary of when each session ends."""
    rng = drawing()
    for _ in range(100):
        sessions, ends, timeouts = Sessions(), dict[int, int](), dict[int, int]()
        now = 0
        for _ in range(30):
            now += rng.randrange(40)
            number = rng.randrange(4)
            what = rng.choice(("begin", "heard", "timeout", "end", "all", "look", "look"))
            session = sessions.get(number)
            assert (session is not None) is (number in ends)
            if what == "begin" and session is None:
                timeouts[number] = rng.randrange(1, 100)
                sessions.begin(number, timeouts[number], b"p", now)
                ends[number] = now + timeouts[number]
            elif what == "heard" and session is not None:
                sessions.heard(session, now)
                ends[number] = now + timeouts[number]
            elif what == "timeout" and session is not None:
                timeouts[number] = rng.randrange(1, 100)
                sessions.set_timeout(session, timeouts[number], now)
                ends[number] = now + timeouts[number]
            elif what == "end":
                sessions.end(number)
                ends.pop(number, None)
            elif what == "all":
                sessions.wait_for_all(now)
                ends = {entry: now + timeouts[entry] for entry in ends}
            over = sessions.expired(now)
            assert sorted(over) == sorted(entry for entry, end in ends.items() if end <= now)
            for entry in over:
                sessions.end(entry)
                del ends[entry]
            assert (len(sessions), {each.session_id: each.ends_ms for each in sessions}) == (len(ends), ends)


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "address"), [("h:0", ("h", 0)), ("[::1]:65535", ("::1", 65535))])
def test_an_address_has_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert command.parser().parse_args(["--listen", text]).listen == address


@pytest.mark.parametrize("text", ["h", ":1", "h:65536", "h:x", "h:"])
def test_other_addresses_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--listen", text])
    assert f"{text}: HOST:PORT expected" in capsys.readouterr().err


def test_znodes_are_kept_where_it_is_said_or_in_the_users_state(set_environment: Callable[..., None]) -> None:
    set_environment(HOME="/home/u")
    set_environment(XDG_STATE_HOME=None)
    assert command.directory_of(None) == Path("/home/u/.local/state/barnabas-zookeeper")
    set_environment(XDG_STATE_HOME="/state")
    assert command.directory_of(None) == Path("/state/barnabas-zookeeper")
    assert command.directory_of("x") == Path("x").absolute()


def test_users_come_from_a_jaas_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "jaas"
    path.write_text(
        'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_a="x" user_b="y"; };'
    )
    assert command.users_of(str(path)) == {"a": "x", "b": "y"}
    assert command.users_of(None) is None
    path.write_text("Server { com.sun.security.auth.module.Krb5LoginModule required; };")
    none = tmp_path / "none"
    for arguments, words in (
        (["--jaas", str(path)], f"--jaas {path}: {command.DIGEST_MODULE} is expected in the section Server"),
        (["--jaas", str(none)], f"--jaas {none}: "),
        (["--data", str(path), "--listen", "127.0.0.1:0"], "File exists"),
    ):
        assert command.main(arguments) == command.FAILED
        err = capsys.readouterr().err
        assert err.startswith("barnabas zookeeper: ")
        assert words in err
