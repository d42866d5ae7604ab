"""A rule that cannot be understood."""

from __future__ import annotations


class FaultError(ValueError):
    """A rule is invalid; `place` is the part at fault, for example `on.version`, and `line` its line in a file."""

    def __init__(self, text: str, place: str = "", line: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.place = place
        self.line = line

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        return f"{where}{self.place}: {self.text}" if self.place else f"{where}{self.text}"
