"""Settings by the names that Kafka's and librdkafka's clients give them.

The rule: a table names each setting's field and how its text is read; a text that cannot be read is a ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Readers = Mapping[str, tuple[str, Callable[[str], Any]]]
"""Field and reader of each setting, by name."""

_TRUE, _FALSE = ("true", "yes", "on", "1", "t"), ("false", "no", "off", "0", "f")


def read_named(readers: Readers, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return fields and values of the settings that are in the table. Raises ValueError."""
    fields = {}
    for name, text in settings.items():
        if name in readers:
            attribute, reader = readers[name]
            try:
                fields[attribute] = reader(text)
            except ValueError as error:
                raise ValueError(f"{name} cannot be {text!r}: {error}") from None
    return fields


def whole(text: str) -> int:
    """Read a number of 0 or more. Raises ValueError."""
    if not text.isdecimal():
        raise ValueError("it is a whole number")
    return int(text)


def boolean(text: str) -> bool:
    """Read true or false, as librdkafka does. Raises ValueError."""
    if text.lower() not in (*_TRUE, *_FALSE):
        raise ValueError("it is true or false")
    return text.lower() in _TRUE


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a parser of a setting that must be one of several words."""

    def read(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"it is one of {', '.join(choices)}")
        return text.lower()

    return read
