"""Durable state: a journal of transactions, and periodic snapshots of the whole state.

The rule: a transaction is on disk before any client sees it. The state is the newest whole snapshot of the directory, and
the journals that begin after it; a record torn by a crash at the end of the last journal was not visible to any client.

Files: `snapshot-ZXID` (state after that transaction) and `journal-ZXID` (transactions from that one on), ZXID in 16
hexadecimal digits. Journal: per transaction size and CRC-32C (4 bytes each), then the transaction.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
from contextlib import suppress
from pathlib import Path

from crc32c import crc32c

from barnabas.system.files import sync, sync_data
from barnabas.tools.zkserver.core import Core, Transaction
from barnabas.tools.zkserver.errors import RefusedError
from barnabas.tools.zkserver.jute import (
    Reader,
    encode_buffer,
    encode_data,
    encode_int,
    encode_long,
    encode_string,
    encode_vector,
)
from barnabas.tools.zkserver.requests import encode_acl, read_acl
from barnabas.tools.zkserver.sessions import Session
from barnabas.tools.zkserver.tree import (
    AclSet,
    Change,
    DataSet,
    Kind,
    NodeCreated,
    NodeDeleted,
    SessionBegun,
    SessionEnded,
    Znode,
)

log = logging.getLogger(__name__)

SNAPSHOT_EVERY_BYTES = 16 << 20
"""Bytes of journal after a snapshot at which the next snapshot is written."""
_FORMAT = 1
_FRAME = struct.Struct(">II")


class StorageError(Exception):
    """The directory cannot be used; the text has the reason."""


def encode_transaction(transaction: Transaction) -> bytes:
    """Encode a transaction for the journal."""
    return b"".join(
        (
            encode_long(transaction.zxid),
            encode_long(transaction.now_ms),
            encode_vector(transaction.changes, _encode_change),
        )
    )


def _encode_change(change: Change) -> bytes:
    match change:
        case NodeCreated(path, data, acl, kind, owner, ttl_ms):
            return b"".join(
                (
                    encode_int(1), encode_string(path), encode_data(data), encode_vector(acl, encode_acl),
                    encode_int(kind), encode_long(owner), encode_long(ttl_ms),
                )
            )  # fmt: skip
        case NodeDeleted(path):
            return encode_int(2) + encode_string(path)
        case DataSet(path, data):
            return encode_int(3) + encode_string(path) + encode_data(data)
        case AclSet(path, acl):
            return encode_int(4) + encode_string(path) + encode_vector(acl, encode_acl)
        case SessionBegun(session_id, timeout_ms, password):
            return encode_int(5) + encode_long(session_id) + encode_int(timeout_ms) + encode_buffer(password)
        case SessionEnded(session_id):
            return encode_int(6) + encode_long(session_id)


def decode_transaction(data: bytes) -> Transaction:
    """Read a transaction of the journal. Raises RefusedError for anything else."""
    reader = Reader(data)
    return Transaction(reader.int64(), reader.int64(), tuple(reader.vector(lambda: _decode_change(reader))))


def _decode_change(reader: Reader) -> Change:
    kind = reader.int32()
    if kind == 1:
        return NodeCreated(
            reader.string(), reader.data(), read_acl(reader), Kind(reader.int32()), reader.int64(), reader.int64()
        )  # fmt: skip
    if kind == 2:
        return NodeDeleted(reader.string())
    if kind == 3:
        return DataSet(reader.string(), reader.data())
    if kind == 4:
        return AclSet(reader.string(), read_acl(reader))
    if kind == 5:
        return SessionBegun(reader.int64(), reader.int32(), reader.buffer())
    if kind == 6:
        return SessionEnded(reader.int64())
    raise ValueError(f"a change of type {kind}")


def encode_snapshot(core: Core) -> bytes:
    """Encode all znodes and sessions."""
    nodes = sorted(core.tree.nodes.items())  # parents come before their children
    body = b"".join(
        (
            encode_int(_FORMAT),
            encode_long(core.zxid),
            encode_long(core.last_session_id),
            encode_vector(list(core.sessions), _encode_session),
            encode_vector(nodes, _encode_node),
        )
    )
    return encode_int(crc32c(body) - (1 << 31)) + body


def _encode_session(session: Session) -> bytes:
    return encode_long(session.session_id) + encode_int(session.timeout_ms) + encode_buffer(session.password)


def _encode_node(item: tuple[str, Znode]) -> bytes:
    path, node = item
    return b"".join(
        (
            encode_string(path), encode_data(node.data), encode_vector(node.acl, encode_acl),
            encode_long(node.created), encode_long(node.created_ms), encode_long(node.modified),
            encode_long(node.modified_ms), encode_long(node.children_modified), encode_int(node.kind),
            encode_long(node.owner), encode_long(node.ttl_ms), encode_int(node.version),
            encode_int(node.acl_version), encode_int(node.creates),
        )
    )  # fmt: skip


def decode_snapshot(data: bytes, core: Core, clock_ms: int) -> None:
    """Read a snapshot into a state that is new. Raises RefusedError or ValueError for anything else."""
    reader = Reader(data)
    if reader.int32() != crc32c(data[4:]) - (1 << 31) or reader.int32() != _FORMAT:
        raise ValueError("the checksum or the format is another one")
    core.zxid, core.last_session_id = reader.int64(), reader.int64()
    for _ in range(reader.int32()):
        core.sessions.begin(reader.int64(), reader.int32(), reader.buffer(), clock_ms)
    core.tree.nodes.clear()
    for _ in range(reader.int32()):
        path = reader.string()
        core.tree.put(path, _decode_node(reader))


def _decode_node(reader: Reader) -> Znode:
    data, acl = reader.data(), read_acl(reader)
    return Znode(
        data,
        acl,
        created=reader.int64(),
        created_ms=reader.int64(),
        modified=reader.int64(),
        modified_ms=reader.int64(),
        children_modified=reader.int64(),
        kind=Kind(reader.int32()),
        owner=reader.int64(),
        ttl_ms=reader.int64(),
        version=reader.int32(),
        acl_version=reader.int32(),
        creates=reader.int32(),
    )


class Storage:
    """A directory. Lifecycle: `open` reads all state, then `write` and `write_snapshot`, `close`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = -1
        self._journal = -1
        self._journal_path = directory
        self._size = 0

    def open(self, core: Core, clock_ms: int) -> None:
        """Read the files into a new state. Raises StorageError."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StorageError(f"{self._directory} is used by another server") from error
            self._read_snapshot(core, clock_ms)
            for path in self._files("journal-"):
                self._replay(path, core, clock_ms)
            self._begin_journal(core.zxid + 1)
        except OSError as error:
            raise StorageError(f"{self._directory}: {error}") from error

    def _files(self, prefix: str) -> list[Path]:
        return sorted(self._directory.glob(f"{prefix}????????????????"))

    def _read_snapshot(self, core: Core, clock_ms: int) -> None:
        snapshots = self._files("snapshot-")
        if not snapshots:
            return
        path = snapshots[-1]  # older snapshots are removed once this one is on disk
        try:
            decode_snapshot(path.read_bytes(), core, clock_ms)
        except (RefusedError, ValueError, KeyError) as error:
            raise StorageError(f"{path} is damaged ({error}); restore it from a copy") from error

    def _replay(self, path: Path, core: Core, clock_ms: int) -> None:
        data, position = path.read_bytes(), 0
        while position < len(data):
            end = position + _FRAME.size
            if end <= len(data):
                size, checksum = _FRAME.unpack_from(data, position)
                content = data[end : end + size]
                if len(content) == size and crc32c(content) == checksum:
                    transaction = decode_transaction(content)
                    if transaction.zxid > core.zxid:
                        core.replay(transaction, clock_ms)
                    position = end + size
                    continue
            if path != self._files("journal-")[-1]:
                raise StorageError(f"{path} is damaged at byte {position}; restore it from a copy")
            log.warning("%s: cut %d bytes that a crash has left at its end", path, len(data) - position)
            os.truncate(path, position)
            return

    def _begin_journal(self, zxid: int) -> None:
        path = self._directory / f"journal-{zxid:016x}"
        journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._sync_directory()
        if self._journal >= 0:
            os.close(self._journal)
        self._journal, self._journal_path, self._size = journal, path, 0

    def _sync_directory(self) -> None:
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync(directory)
        finally:
            os.close(directory)

    def write(self, transactions: list[Transaction]) -> None:
        """Append transactions; they are on disk when this returns. Raises OSError."""
        frames = b"".join(
            _FRAME.pack(len(content), crc32c(content)) + content
            for content in map(encode_transaction, transactions)
        )
        view = memoryview(frames)
        while view:
            view = view[os.write(self._journal, view) :]
        sync_data(self._journal)
        self._size += len(frames)

    @property
    def wants_snapshot(self) -> bool:
        """True once the journal has become long."""
        return self._size >= SNAPSHOT_EVERY_BYTES

    def write_snapshot(self, zxid: int, content: bytes) -> None:
        """Keep a snapshot of the state after `zxid`, the last transaction written; older files go. Raises OSError."""
        path = self._directory / f"snapshot-{zxid:016x}"
        unfinished = path.with_name("snapshot.unfinished")
        unfinished.unlink(missing_ok=True)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            sync(file.fileno())
        unfinished.rename(path)
        self._begin_journal(zxid + 1)
        for old in (*self._files("journal-"), *self._files("snapshot-")):
            if old not in (path, self._journal_path):
                with suppress(OSError):
                    old.unlink()

    def close(self) -> None:
        """Let others use the directory."""
        for descriptor in (self._journal, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._journal = self._lock = -1
