"""Errors of a schema registry, on both of its sides, and of schemas themselves.

The rule: codes and texts of what a registry refuses are Confluent's, which its clients read.
"""

from __future__ import annotations


class SchemaError(ValueError):
    """A schema is none, or data does not fit it."""


class RegistryError(Exception):
    """A registry refuses a request, or cannot be asked; `status` is HTTP's, 0 where nothing was answered."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        """Confluent's code of the error, five digits or those of the status."""
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} ({self.code})" if self.code else self.message
