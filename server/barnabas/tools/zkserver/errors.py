"""Errors of refused requests, with the codes of ZooKeeper's wire protocol. Pure."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """Error codes of answers; 0 is success."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    NO_WATCHER = -121


class RefusedError(Exception):
    """A refused request without effect; the response has the code."""

    def __init__(self, code: Code, text: str = "") -> None:
        super().__init__(f"{code.name} {text}".strip())
        self.code = code
