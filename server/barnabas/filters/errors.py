"""Errors of filters: an invalid text, and a record that takes a filter too many steps."""

from __future__ import annotations


class FilterError(ValueError):
    """A text that is no filter: `reason` is a sentence, `position` the index of the character that it is about."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason, position)  # as it is recreated on its way from a child process
        self.reason = reason
        self.position = position

    def __str__(self) -> str:
        return f"character {self.position + 1}: {self.reason}"


class FilterLimitError(Exception):
    """A filter takes more steps for a record than allowed."""
