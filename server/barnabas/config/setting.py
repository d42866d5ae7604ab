"""What a setting is: a name, a type with its limits, a default, and what it does.

The rule: a value is parsed and checked once, when it is set; whoever reads it gets the right Python type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class SettingError(ValueError):
    """A setting's value cannot be used; the text says which and what is expected."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type of value: Kafka's name for it, its number in DescribeConfigs, and how text becomes a value."""

    name: str
    code: int
    parse: Callable[[str], T]
    expected: str


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


BOOLEAN: Kind[bool] = Kind("boolean", 1, _boolean, "true or false")
STRING: Kind[str] = Kind("string", 2, str, "text")
INT: Kind[int] = Kind("int", 3, int, "a whole number")
LONG: Kind[int] = Kind("long", 5, int, "a whole number")
DOUBLE: Kind[float] = Kind("double", 6, float, "a number")
LIST: Kind[tuple[str, ...]] = Kind("list", 7, _list, "values with commas between them")


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One row of a table.

    `low` and `high` bound numbers; `choices` lists the only values of a text or of a list's items. `dynamic` tells
    whether it can change while the broker runs. `effective` is false for settings that are accepted so that a stock
    configuration file works, and that mean nothing here.
    """

    name: str
    kind: Kind[T]
    default: T
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = False
    effective: bool = True
    broker_names: tuple[str, ...] = ()
    """For a topic setting: the broker settings that give its default, most specific first."""

    def parse(self, text: str) -> T:
        """The typed value of `text`. Raises SettingError."""
        try:
            value = self.kind.parse(text)
        except (ValueError, KeyError):
            raise SettingError(f"{self.name}={text!r}: {self.kind.expected} is expected") from None
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """See that a typed value is within bounds. Raises SettingError."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            low = self.low if self.low is not None else -LONG_MAX - 1
            high = self.high if self.high is not None else (INT_MAX if self.kind is INT else LONG_MAX)
            if not low <= value <= high:
                raise SettingError(f"{self.name}={value}: a value from {low} to {high} is expected")
        items = value if isinstance(value, tuple) else (value,)
        for item in items:
            if self.choices and item not in self.choices:
                raise SettingError(f"{self.name}={item}: one of {', '.join(self.choices)} is expected")

    def format(self, value: Any) -> str:
        """The value as text, as a configuration file would have it."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)
