"""Shared requests and responses of ZooKeeper's wire protocol. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from barnabas.tools.zkserver.acl import Acl, Identity
from barnabas.tools.zkserver.errors import Code, RefusedError
from barnabas.tools.zkserver.jute import Reader, encode_bool, encode_int, encode_long, encode_string
from barnabas.tools.zkserver.tree import EventType, Kind


class Op(IntEnum):
    """Types of requests, with the numbers of the wire."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11


CREATES = (Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL)
WRITES = (*CREATES, Op.DELETE, Op.SET_DATA, Op.SET_ACL, Op.CHECK)
"""Requests that may be a part of `multi`."""

NOTIFICATION_XID = -1
_CONNECTED = 3
"""The state of the session in notifications."""
_ERROR = -1
"""The type of a failed part of `multi`, and of its end."""
_FLAGS: dict[int, tuple[Kind, bool]] = {
    0: (Kind.PERSISTENT, False),
    1: (Kind.EPHEMERAL, False),
    2: (Kind.PERSISTENT, True),
    3: (Kind.EPHEMERAL, True),
    4: (Kind.CONTAINER, False),
    5: (Kind.TTL, False),
    6: (Kind.TTL, True),
}
"""Flags of a new znode: its kind, and whether its name gets a sequence number."""
_TTL_MAX_MS = 0xFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class Create:
    """Make a znode."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    kind: Kind
    is_sequence: bool
    ttl_ms: int
    wants_stat: bool


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a znode."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class SetData:
    """Change the data of a znode."""

    path: str
    data: bytes | None
    version: int


@dataclass(frozen=True, slots=True)
class SetAcl:
    """Change the ACL of a znode."""

    path: str
    acl: tuple[Acl, ...]
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """Fail unless the data of a znode has this version."""

    path: str
    version: int


Write = Create | Delete | SetData | SetAcl | Check


def decode_write(op: int, reader: Reader, *, is_part: bool = False) -> Write:
    """Read the body of a request that changes znodes, or of a part of `multi`. Raises RefusedError."""
    path = reader.string()
    if op in CREATES:
        data, acl, flags = reader.data(), read_acl(reader), reader.int32()
        ttl_ms = reader.int64() if op == Op.CREATE_TTL else 0
        if flags not in _FLAGS:
            raise RefusedError(Code.BAD_ARGUMENTS, f"flags {flags}")
        kind, is_sequence = _FLAGS[flags]
        if kind is Kind.TTL and not 0 < ttl_ms <= _TTL_MAX_MS:
            raise RefusedError(Code.BAD_ARGUMENTS, f"a time to live of {ttl_ms} ms")
        wants_stat = op != Op.CREATE or (is_part and kind in (Kind.CONTAINER, Kind.TTL))
        return Create(path, data, acl, kind, is_sequence, ttl_ms, wants_stat)
    if op == Op.DELETE:
        return Delete(path, reader.int32())
    if op == Op.SET_DATA:
        return SetData(path, reader.data(), reader.int32())
    if op == Op.SET_ACL:
        return SetAcl(path, read_acl(reader), reader.int32())
    if op == Op.CHECK:
        return Check(path, reader.int32())
    raise RefusedError(Code.UNIMPLEMENTED, f"request of type {op}")


def type_of_part(op: int, write: Write) -> int:
    """Return the type that the answer of a part of `multi` has."""
    return Op.CREATE2 if isinstance(write, Create) and write.wants_stat else op


def decode_parts(reader: Reader) -> Iterator[int]:
    """Yield the type of each part of `multi`; the caller reads the part's body before the next one."""
    while True:
        op, is_end, _ = reader.int32(), reader.boolean(), reader.int32()
        if is_end:
            return
        yield op


def read_acl(reader: Reader) -> tuple[Acl, ...]:
    """Read the entries of an ACL."""
    return tuple(reader.vector(lambda: Acl(reader.int32(), Identity(reader.string(), reader.string()))))


def encode_acl(acl: Acl) -> bytes:
    """Encode an entry of an ACL."""
    return encode_int(acl.permissions) + encode_identity(acl.identity)


def encode_identity(identity: Identity) -> bytes:
    """Encode a scheme and an id."""
    return encode_string(identity.scheme) + encode_string(identity.id)


def encode_part(op: int, body: bytes) -> bytes:
    """Encode the result of one part of `multi`."""
    return encode_int(op) + encode_bool(False) + encode_int(0) + body


def encode_failed_part(code: int) -> bytes:
    """Encode the error of a part of `multi` that was not applied."""
    return encode_int(_ERROR) + encode_bool(False) + encode_int(code) + encode_int(code)


END_OF_PARTS = encode_int(_ERROR) + encode_bool(True) + encode_int(_ERROR)


def encode_answer(xid: int, zxid: int, code: int, body: bytes = b"") -> bytes:
    """Encode an answer with its header."""
    return b"".join((encode_int(xid), encode_long(zxid), encode_int(code), body))


def encode_notification(event: EventType, path: str) -> bytes:
    """Encode the notification of a watch."""
    body = encode_int(event) + encode_int(_CONNECTED) + encode_string(path)
    return encode_answer(NOTIFICATION_XID, -1, 0, body)
