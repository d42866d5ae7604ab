"""Errors in turning bytes into messages, and messages into bytes.

The rule: a message that cannot be decoded is the peer's fault, one that cannot be encoded is ours.
"""

from barnabas.errors import PeerError


class DecodeError(PeerError):
    """Bytes that are not a valid message of the stated version: `field` at byte `offset` is wrong."""

    def __init__(self, problem: str, field: str, offset: int) -> None:
        super().__init__(problem, field, offset)
        self.problem = problem
        self.field = field
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.field} at byte {self.offset}: {self.problem}"


class TooManyEntriesError(DecodeError):
    """More entries of arrays and tagged fields than the reader lets a message have."""


class EncodeError(Exception):
    """A message has a value that its version cannot carry: a number out of range, a text too long, a null."""


class NullFieldError(EncodeError):
    """A field is None that can never be, or not in this version."""

    def __init__(self, struct: str, field: str) -> None:
        super().__init__(struct, field)
        self.struct = struct
        self.field = field

    def __str__(self) -> str:
        return f"{self.struct}.{self.field} cannot be null in this version"


class UnsupportedFieldError(EncodeError):
    """A message sets a field that its version lacks, and the message would have another meaning without the field."""

    def __init__(self, struct: str, field: str, versions: str) -> None:
        super().__init__(struct, field, versions)
        self.struct = struct
        self.field = field
        self.versions = versions

    def __str__(self) -> str:
        return f"version {self.versions} has no field {self.struct}.{self.field}, but it is set"


class UnknownVersionError(EncodeError):
    """There is no such version of the message."""
