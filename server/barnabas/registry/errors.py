"""Errors of schema registries, for client and server, and of schemas.

The rule: codes and texts of a registry's errors are Confluent's, since clients depend on them.
"""

from __future__ import annotations


class SchemaError(ValueError):
    """A schema is invalid, or data does not fit it."""


class RegistryError(Exception):
    """A registry refuses a request, or cannot be reached; `status` is HTTP's, 0 without a response."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        """Confluent's error code: five digits, or the same as the status."""
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} ({self.code})" if self.code else self.message
