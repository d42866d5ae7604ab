"""A rule that cannot be understood."""

from __future__ import annotations


class FaultError(ValueError):
    """A rule is not valid; `place` says where in it, as `on.version`, and `line` in which line of a file, if in any."""

    def __init__(self, text: str, place: str = "", line: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.place = place
        self.line = line

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        return f"{where}{self.place}: {self.text}" if self.place else f"{where}{self.text}"
